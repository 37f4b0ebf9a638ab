//! The address to listen on. An address beyond loopback requires client authentication and a serving certificate that
//! other machines can verify.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use tributary_apimachinery::Host;

/// The reason why an address must not be used for listening.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListenAddressError {
    /// The text of a listen address is not `IP:PORT`.
    #[error(
        "{0:?} is not an address to listen on; allowed are IP:PORT, [IPV6]:PORT and localhost:PORT, for example 127.0.0.1:7443"
    )]
    Syntax(String),
    /// Other machines could connect without client authentication.
    #[error(
        "{0} is not a loopback address, and client authentication is not configured: everyone who can reach the \
         address and has the token acts as the users of this kubeconfig; listen on 127.0.0.1:{port}, and connect from \
         a different machine with `ssh -L {port}:127.0.0.1:{port} HOST`, or enable shared mode with --client-ca-file",
        port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// Other machines could connect, but not verify the serving certificate.
    #[error(
        "{0} is not a loopback address, and the generated serving certificate is only for loopback names; give a \
         certificate with --tls-cert-file and --tls-private-key-file"
    )]
    NoCertificate(SocketAddr),
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(SocketAddr);

impl ListenAddress {
    /// Returns the IP address and port on which the listener opens its socket.
    pub fn socket_address(self) -> SocketAddr {
        self.0
    }

    /// Checks the listen address of an endpoint without client authentication. Only loopback addresses are allowed.
    ///
    /// # Errors
    /// [`ListenAddressError::NotLoopback`].
    pub fn without_client_authentication(self) -> Result<Self, ListenAddressError> {
        if self.is_loopback() { Ok(self) } else { Err(ListenAddressError::NotLoopback(self.0)) }
    }

    /// Checks the listen address of an endpoint with client authentication. A configured serving certificate or a
    /// loopback address is required.
    ///
    /// # Errors
    /// [`ListenAddressError::NoCertificate`].
    pub fn with_client_authentication(self, has_certificate: bool) -> Result<Self, ListenAddressError> {
        if has_certificate || self.is_loopback() { Ok(self) } else { Err(ListenAddressError::NoCertificate(self.0)) }
    }

    fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }

    /// Returns the loopback hosts, such as `localhost`, of an endpoint that listens on loopback. Returns no hosts for
    /// other addresses.
    pub fn local_hosts(self) -> Vec<Host> {
        let names = if self.is_loopback() { self.certificate_names() } else { Vec::new() };
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// Returns the names and IP addresses for the subjectAltName of a generated serving certificate.
    pub fn certificate_names(self) -> Vec<String> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let own = self.0.ip().to_string();
        if !names.contains(&own) {
            names.push(own);
        }
        names
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = match text.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
            None => text.parse().ok(),
        };
        address.map(Self).ok_or_else(|| ListenAddressError::Syntax(text.to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_loopback_address_needs_shared_mode_and_a_certificate() {
        for (text, expected) in [
            ("127.0.0.1:7443", "127.0.0.1:7443"),
            ("127.0.0.2:0", "127.0.0.2:0"),
            ("localhost:7443", "127.0.0.1:7443"),
            ("[::1]:7443", "[::1]:7443"),
        ] {
            let address = text.parse::<ListenAddress>().unwrap();
            assert_eq!(address.to_string(), expected);
            assert!(
                address.without_client_authentication().is_ok() && address.with_client_authentication(false).is_ok(),
                "{text}"
            );
        }
        for text in ["0.0.0.0:7443", "[::]:7443", "10.0.0.1:7443", "[fe80::1]:1", "[::ffff:10.0.0.1]:1"] {
            let address = text.parse::<ListenAddress>().unwrap();
            assert!(address.with_client_authentication(true).is_ok(), "{text}");
            let error = address.with_client_authentication(false).unwrap_err().to_string();
            assert!(error.contains("--tls-cert-file"), "{error}");
            let error = address.without_client_authentication().unwrap_err();
            assert!(matches!(error, ListenAddressError::NotLoopback(_)), "{text}");
            assert!(error.to_string().contains("ssh -L"), "{error}");
        }
        for text in ["", "7443", ":7443", "127.0.0.1", "example.com:7443", "127.0.0.1:70000", "localhost:"] {
            assert!(matches!(text.parse::<ListenAddress>(), Err(ListenAddressError::Syntax(_))), "{text}");
        }
    }

    #[test]
    fn generated_certificate_names_include_the_listen_address() {
        let names = |text: &str| text.parse::<ListenAddress>().unwrap().certificate_names();
        assert_eq!(names("127.0.0.1:1"), ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(names("127.0.0.9:1"), ["localhost", "127.0.0.1", "::1", "127.0.0.9"]);
        let local = |text: &str| text.parse::<ListenAddress>().unwrap().local_hosts();
        assert_eq!(local("127.0.0.9:1").iter().map(ToString::to_string).collect::<Vec<_>>(), names("127.0.0.9:1"));
        assert_eq!(local("0.0.0.0:1"), []);
    }
}
