//! What this machine has no more of for another connection, or for the credentials that it is to show. It is no fault
//! of the member's, and says nothing of it: whoever uses it up is not to have everybody cut off.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use tokio::net::lookup_host;
use tokio::time::{Duration, Instant, timeout_at};
use tributary_apimachinery::ClusterName;

use crate::error::ForwardError;

/// How long a name may take to be resolved once more. 1 s: it was resolved a moment ago, and a request waits.
const RESOLVED_WITHIN: Duration = Duration::from_secs(1);

/// The port to which it is asked for a source address. Nothing is sent there, and any is as good: the port of discard.
const ANY_PORT: u16 = 9;

/// A shortage of this machine's. Both go into a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhaustion {
    /// What there is no more of, as a clause: `this machine has no memory for it`.
    pub(crate) what: &'static str,
    /// What an operator may do about it, in the imperative: `raise fs.file-max`.
    pub(crate) remedy: &'static str,
}

const PORTS: Exhaustion = Exhaustion {
    what: "this machine has no free local port for it",
    remedy: "have fewer connections opened to one address, or widen net.ipv4.ip_local_port_range",
};

const FILES_OF_PROCESS: Exhaustion = Exhaustion {
    what: "this process has as many files open as it may",
    remedy: "raise its limit of open files (ulimit -n, LimitNOFILE)",
};

const FILES_OF_MACHINE: Exhaustion =
    Exhaustion { what: "this machine has as many files open as it may", remedy: "raise fs.file-max" };

const MEMORY: Exhaustion = Exhaustion {
    what: "this machine has no memory for it",
    remedy: "give it more memory, or have fewer connections opened",
};

impl Exhaustion {
    /// What an error, or one of its causes, says that is used up here. Of local ports it is yet to be
    /// [shown](Self::shown).
    ///
    /// Where the system has said nothing, a socket is tried: the resolver of names needs descriptors of its own, and
    /// does not keep what the system said of them; and connectors through a SOCKS proxy do not tell it.
    pub(crate) fn from_error(
        error: &(dyn Error + 'static),
        try_socket: impl FnOnce() -> io::Result<()>,
    ) -> Option<Self> {
        let mut is_told = false;
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(said) = error.downcast_ref::<io::Error>() {
                is_told = true;
                let found = Self::of_io(said);
                if found.is_some() {
                    return found;
                }
            }
            cause = error.source();
        }
        if is_told { None } else { Self::of_trial(try_socket()) }
    }

    /// What the text of an error says that is used up here, where nothing else of it is left: `std` ends what the
    /// system says with its number. A plugin that says so of itself lacks it on this machine, too.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let (number, _) = text.split_once("(os error ")?.1.split_once(')')?;
        let error = io::Error::from_raw_os_error(number.parse().ok()?);
        // What runs a plugin or reads a file needs no ports.
        Self::of_io(&error).filter(|short| *short != PORTS)
    }

    /// Why there are no credentials: for want of this, if it was for that.
    pub(crate) fn without_credentials(found: Option<Self>, cluster: &ClusterName, message: String) -> ForwardError {
        let cluster = cluster.clone();
        match found {
            Some(Self { what, remedy }) => ForwardError::CredentialsExhausted { cluster, what, message, remedy },
            None => ForwardError::Credentials { cluster, message },
        }
    }

    /// What a socket lacks that was tried.
    fn of_trial(tried: io::Result<()>) -> Option<Self> {
        // No TCP connection needs UDP's ports.
        tried.err().and_then(|error| Self::of_io(&error)).filter(|short| *short != PORTS)
    }

    /// This, where it is so for a host that was dialed: an address, or a name. EADDRNOTAVAIL says that there is no
    /// local port, and as well that this machine has no address from which to reach the other, as where IPv6 is off:
    /// that is no shortage, and lasts. Of a name with addresses of both kinds the error may be that of either. So it
    /// counts as a shortage of ports only where there is a source address for each.
    ///
    /// Resolves a name anew, within a second and no later than the deadline, and opens a UDP socket for each address.
    /// Cancelling loses nothing.
    pub(crate) async fn shown(self, host: &str, deadline: Instant) -> Option<Self> {
        if self != PORTS {
            return Some(self);
        }
        let until = deadline.min(Instant::now() + RESOLVED_WITHIN);
        match timeout_at(until, lookup_host((host, ANY_PORT))).await {
            Ok(Ok(addresses)) => Self::by_sources(addresses.map(find_source)),
            // It could be resolved a moment ago.
            Ok(Err(_)) => Self::of_trial(try_socket()),
            Err(_) => None,
        }
    }

    /// What is used up where a source address was sought so for each address.
    fn by_sources(found: impl Iterator<Item = io::Result<()>>) -> Option<Self> {
        let mut shown = None;
        for source in found {
            shown = match source {
                Ok(()) => shown.or(Some(PORTS)),
                // That no socket can be opened is a shortage of its own.
                Err(error) => Some(Self::of_io(&error).filter(|short| *short != PORTS)?),
            };
        }
        shown
    }

    /// EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS and ENOMEM: what `socket` and `connect` say of the machine that asks.
    fn of_io(error: &io::Error) -> Option<Self> {
        match error.kind() {
            ErrorKind::AddrNotAvailable => Some(PORTS),
            ErrorKind::OutOfMemory => Some(MEMORY),
            // The others have no kind.
            _ => match error.raw_os_error()? {
                libc::EMFILE => Some(FILES_OF_PROCESS),
                libc::ENFILE => Some(FILES_OF_MACHINE),
                libc::ENOBUFS => Some(MEMORY),
                _ => None,
            },
        }
    }
}

/// Whether this process can have a socket: one of UDP, without a packet.
///
/// # Errors
/// What the system says of it.
pub(crate) fn try_socket() -> io::Result<()> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map(drop)
}

/// Whether this machine has an address from which to reach another. A UDP socket is connected without a packet, and
/// needs none of TCP's ports.
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

    /// As a connector wraps what the system says.
    #[derive(Debug, thiserror::Error)]
    #[error("tcp connect error")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn what_the_system_says_of_this_machine_is_told_from_what_it_says_of_the_other() {
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
    fn where_the_system_has_said_nothing_a_socket_tells() {
        /// As the connector of a SOCKS proxy says it, which has no cause.
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
    fn a_text_in_which_the_system_says_what_is_used_up_is_told_from_others() {
        let of = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            Exhaustion::of_text(&format!("credential plugin aws cannot be run: {error}; it may run again in 5 s"))
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
            assert_eq!(Exhaustion::of_text(text), None, "{text}");
        }
    }

    #[test]
    fn ports_are_short_where_each_address_has_a_source_and_in_no_other_case() {
        let shown = |found: &[i32]| {
            let results = found.iter().map(|errno| match errno {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(*errno)),
            });
            Exhaustion::by_sources(results)
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
            assert_eq!(shown(found), expected, "{found:?}");
        }
    }

    #[tokio::test]
    async fn only_a_shortage_of_ports_has_to_be_shown() {
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(PORTS.shown("127.0.0.1", deadline).await, Some(PORTS));
        // A link-local address without its link has a source nowhere.
        assert_eq!(PORTS.shown("fe80::1", deadline).await, None);
        assert_eq!(PORTS.shown("", deadline).await, None, "nothing that can be resolved");
        assert_eq!(FILES_OF_PROCESS.shown("fe80::1", deadline).await, Some(FILES_OF_PROCESS));
    }
}
