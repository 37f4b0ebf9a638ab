//! Resources of this machine that connections or credentials need, for example file descriptors. A lack of such a
//! resource is not the cluster's fault, and must not make a cluster unreachable.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use tokio::net::lookup_host;
use tokio::time::{Duration, Instant, timeout_at};
use tributary_apimachinery::ClusterName;

use crate::error::ForwardError;

/// Time limit for the second resolution of a host name, while a request waits. 1 s: the first resolution was successful
/// a moment ago.
const RESOLVED_WITHIN: Duration = Duration::from_secs(1);

/// Destination port for finding the source address of a connection: the discard port. No packet is sent, so any port
/// would do.
const ANY_PORT: u16 = 9;

/// A resource that this machine lacks, with the remedy. Both texts appear in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhaustion {
    /// The missing resource, as a clause: `this machine has no memory for it`.
    pub(crate) what: &'static str,
    /// Remedy for an operator, in the imperative: `raise fs.file-max`.
    pub(crate) remedy: &'static str,
}

const PORTS: Exhaustion = Exhaustion {
    what: "this machine has no free local port for the connection",
    remedy: "open fewer connections to one address, or widen net.ipv4.ip_local_port_range",
};

const FILES_OF_PROCESS: Exhaustion = Exhaustion {
    what: "this process has reached its limit of open files",
    remedy: "raise the limit (ulimit -n, LimitNOFILE)",
};

const FILES_OF_MACHINE: Exhaustion =
    Exhaustion { what: "this machine has reached its limit of open files", remedy: "raise fs.file-max" };

const MEMORY: Exhaustion = Exhaustion {
    what: "this machine has no memory for the connection",
    remedy: "add memory, or open fewer connections",
};

impl Exhaustion {
    /// Returns the exhausted resource that an error or one of its causes reports. The caller must
    /// [confirm](Self::confirmed) a lack of local ports.
    ///
    /// For an error without an OS error number, the function opens a test socket: the resolver and SOCKS connectors
    /// drop the system's error, although a lack of file descriptors may be the cause.
    pub(crate) fn from_error(
        error: &(dyn Error + 'static),
        try_socket: impl FnOnce() -> io::Result<()>,
    ) -> Option<Self> {
        let mut has_io_error = false;
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(io_error) = error.downcast_ref::<io::Error>() {
                has_io_error = true;
                let found = Self::from_io_error(io_error);
                if found.is_some() {
                    return found;
                }
            }
            cause = error.source();
        }
        if has_io_error { None } else { Self::from_trial(try_socket()) }
    }

    /// Returns the exhausted resource from an error's text. `std` puts the OS error number at the end of the text. A
    /// plugin runs on this machine, so an error number in a plugin's output also concerns this machine.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (number, _) = text.split_once("(os error ")?.1.split_once(')')?;
        let error = io::Error::from_raw_os_error(number.parse().ok()?);
        // Plugins and files need no local ports. So an error about ports has another cause, and is ignored.
        Self::from_io_error(&error).filter(|short| *short != PORTS)
    }

    /// Returns the error for missing credentials. If `found` is an exhausted resource, the error names this resource.
    pub(crate) fn without_credentials(found: Option<Self>, cluster: &ClusterName, message: String) -> ForwardError {
        let cluster = cluster.clone();
        match found {
            Some(Self { what, remedy }) => ForwardError::CredentialsExhausted { cluster, what, message, remedy },
            None => ForwardError::Credentials { cluster, message },
        }
    }

    fn from_trial(tried: io::Result<()>) -> Option<Self> {
        // The test socket uses UDP, whose ports are separate from the TCP ports of connections. So a lack of UDP ports
        // is ignored.
        tried.err().and_then(|error| Self::from_io_error(&error)).filter(|short| *short != PORTS)
    }

    /// Confirms that local ports for an address or host name are exhausted.
    ///
    /// EADDRNOTAVAIL has two causes: no local port is free, or this machine has no source address, for example because
    /// IPv6 is off. The second cause is permanent, and may concern only one of a host name's address families. So the
    /// lack of ports is confirmed only if this machine has a source address for each server address.
    ///
    /// Resolves a host name again, within a second and before the deadline, and opens a UDP socket for each address.
    /// Cancel-safe.
    pub(crate) async fn confirmed(self, host: &str, deadline: Instant) -> Option<Self> {
        if self != PORTS {
            return Some(self);
        }
        let until = deadline.min(Instant::now() + RESOLVED_WITHIN);
        match timeout_at(until, lookup_host((host, ANY_PORT))).await {
            Ok(Ok(addresses)) => Self::from_source_addresses(addresses.map(find_source)),
            // The host name was resolved a moment ago. If the second resolution fails, the cause may be a lack of
            // resources.
            Ok(Err(_)) => Self::from_trial(try_socket()),
            Err(_) => None,
        }
    }

    /// Returns the exhausted resource. Each item of `found` is the result of finding a source address for one server
    /// address. `None` if this machine has no source address for a server address, or if there are no items.
    fn from_source_addresses(found: impl Iterator<Item = io::Result<()>>) -> Option<Self> {
        let mut confirmed = None;
        for source in found {
            confirmed = match source {
                Ok(()) => confirmed.or(Some(PORTS)),
                // A failure to open any socket shows that a resource other than ports is exhausted.
                Err(error) => Some(Self::from_io_error(&error).filter(|short| *short != PORTS)?),
            };
        }
        confirmed
    }

    /// Recognizes EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS and ENOMEM, the errors of `socket` and `connect` about this
    /// machine.
    fn from_io_error(error: &io::Error) -> Option<Self> {
        match error.kind() {
            ErrorKind::AddrNotAvailable => Some(PORTS),
            ErrorKind::OutOfMemory => Some(MEMORY),
            // `ErrorKind` has no value for the following error numbers.
            _ => match error.raw_os_error()? {
                libc::EMFILE => Some(FILES_OF_PROCESS),
                libc::ENFILE => Some(FILES_OF_MACHINE),
                libc::ENOBUFS => Some(MEMORY),
                _ => None,
            },
        }
    }
}

/// Opens a UDP socket without sending a packet.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn try_socket() -> io::Result<()> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map(drop)
}

/// Checks that this machine has a source address for a server address. Connects a UDP socket, which sends no packet and
/// needs no TCP port.
fn find_source(address: SocketAddr) -> io::Result<()> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    UdpSocket::bind(any)?.connect(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that wraps the system's error, as connectors do.
    #[derive(Debug, thiserror::Error)]
    #[error("tcp connect error")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn os_error_number_distinguishes_exhausted_resources_from_remote_faults() {
        let untried = || -> io::Result<()> { panic!("the system has said what is wrong") };
        let of = |error: io::Error| {
            let bare = Exhaustion::from_error(&error, untried);
            assert_eq!(Exhaustion::from_error(&Wrapped(error), untried), bare);
            bare
        };
        for (errno, expected) in [
            (libc::EADDRNOTAVAIL, Some(PORTS)),
            (libc::EMFILE, Some(FILES_OF_PROCESS)),
            (libc::ENFILE, Some(FILES_OF_MACHINE)),
            (libc::ENOBUFS, Some(MEMORY)),
            (libc::ENOMEM, Some(MEMORY)),
            (libc::ECONNREFUSED, None),
            (libc::ECONNRESET, None),
            (libc::EHOSTUNREACH, None),
            (libc::ENETUNREACH, None),
            (libc::ETIMEDOUT, None),
        ] {
            assert_eq!(of(io::Error::from_raw_os_error(errno)), expected, "{errno}");
        }
        assert_eq!(of(ErrorKind::AddrNotAvailable.into()), Some(PORTS));
        assert_eq!(of(io::Error::other("no such host")), None);
    }

    #[test]
    fn exhausted_resource_without_an_os_error_number_is_found_by_a_test_socket() {
        /// An error without a cause. The connector of a SOCKS proxy reports such errors.
        #[derive(Debug, thiserror::Error)]
        #[error("failed to create underlying connection")]
        struct Untold;

        for (errno, expected) in [
            (libc::EMFILE, Some(FILES_OF_PROCESS)),
            (libc::ENFILE, Some(FILES_OF_MACHINE)),
            (libc::ENOBUFS, Some(MEMORY)),
            (libc::ENOMEM, Some(MEMORY)),
            (libc::EADDRNOTAVAIL, None),
            (libc::EAFNOSUPPORT, None),
        ] {
            assert_eq!(
                Exhaustion::from_error(&Untold, || Err(io::Error::from_raw_os_error(errno))),
                expected,
                "{errno}"
            );
        }
        assert_eq!(Exhaustion::from_error(&Untold, || Ok(())), None);
        assert_eq!(Exhaustion::from_error(&Untold, try_socket), None);
    }

    #[test]
    fn os_error_number_in_an_error_text_reveals_an_exhausted_resource() {
        let of = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            Exhaustion::from_text(&format!(
                "credential plugin aws cannot be run: {error}; the plugin may run again in 5 s"
            ))
        };
        for (errno, expected) in [
            (libc::EMFILE, Some(FILES_OF_PROCESS)),
            (libc::ENFILE, Some(FILES_OF_MACHINE)),
            (libc::ENOMEM, Some(MEMORY)),
            (libc::EACCES, None),
            (libc::EADDRNOTAVAIL, None),
        ] {
            assert_eq!(of(errno), expected, "{errno}");
        }
        for text in ["", "credential plugin aws failed (exit status: 1): sign in", "(os error ", "(os error x)"] {
            assert_eq!(Exhaustion::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn local_port_shortage_is_reported_only_if_a_source_address_exists() {
        let confirmed = |found: &[i32]| {
            let results = found.iter().map(|errno| match errno {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(*errno)),
            });
            Exhaustion::from_source_addresses(results)
        };
        let cases: [(&[i32], Option<Exhaustion>); 11] = [
            (&[], None),
            (&[0], Some(PORTS)),
            (&[0, 0], Some(PORTS)),
            (&[libc::EADDRNOTAVAIL], None),
            (&[libc::ENETUNREACH], None),
            (&[libc::EAFNOSUPPORT], None),
            (&[0, libc::EADDRNOTAVAIL], None),
            (&[libc::EADDRNOTAVAIL, 0], None),
            (&[libc::EMFILE, 0], Some(FILES_OF_PROCESS)),
            (&[0, libc::ENFILE], Some(FILES_OF_MACHINE)),
            (&[libc::EMFILE, libc::ENETUNREACH], None),
        ];
        for (found, expected) in cases {
            assert_eq!(confirmed(found), expected, "{found:?}");
        }
    }

    #[tokio::test]
    async fn local_port_shortage_is_confirmed_by_a_check_before_it_is_reported() {
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(PORTS.confirmed("127.0.0.1", deadline).await, Some(PORTS));
        // This machine has no source address for a link-local address without an interface, so the lack of ports is not
        // confirmed.
        assert_eq!(PORTS.confirmed("fe80::1", deadline).await, None);
        assert_eq!(PORTS.confirmed("", deadline).await, None, "nothing that can be resolved");
        assert_eq!(FILES_OF_PROCESS.confirmed("fe80::1", deadline).await, Some(FILES_OF_PROCESS));
    }
}
