//! The hosts in requests and in configurations: without port, in canonical spelling.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// A host without its port. Different spellings of one host are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A DNS name.
    Name(HostName),
    /// An IP address; an IPv4-mapped IPv6 address is stored as IPv4.
    Address(IpAddr),
}

/// A DNS name in lower case, without the trailing dot: labels of letters, digits, `-` and, in requests, `_`. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

/// The reason why a text is not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// The name is empty, or longer than DNS permits.
    #[error("must have 1 to {max} characters, and at most 63 between two dots", max = HostName::LENGTH_MAX)]
    Length,
    /// A part of the name is not a DNS label.
    #[error(
        "must be a DNS name: letters, digits, '-' and '.', where each part between two dots begins and ends with a \
         letter or a digit; there are no wildcards"
    )]
    Characters,
    /// The last label is a number. Some clients would read such a name as an IP address.
    #[error("must not end with a number: some programs read such a name as an IP address")]
    Number,
    /// The text is an IP address where a name is required.
    #[error("is an IP address; use a DNS name")]
    Address,
    /// The text after the host is not a port.
    #[error("must be a host, with or without a port")]
    Port,
}

impl HostName {
    /// The longest name, in bytes (RFC 1035, 3.1, without the lengths of labels).
    pub const LENGTH_MAX: usize = 253;
    const LABEL_MAX: usize = 63;

    /// Returns the name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = InvalidHost;

    /// Parses a name in a configuration: the characters of a Kubernetes DNS-1123 subdomain, in upper or lower case,
    /// without a port or a trailing dot.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.parse::<IpAddr>().is_ok() {
            return Err(InvalidHost::Address);
        }
        if text.contains('_') { Err(InvalidHost::Characters) } else { name(text) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Host {
    /// Parses `Host` or `:authority` (RFC 9110, 7.2): a host, or an address in brackets, then an optional port. A
    /// trailing dot and the case of letters are ignored.
    ///
    /// # Errors
    /// [`InvalidHost`] for texts that no API client sends, for example user information, an IPv6 address with a zone,
    /// or `a..b`.
    pub fn from_authority(text: &str) -> Result<Self, InvalidHost> {
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (address, after) = bracketed.split_once(']').ok_or(InvalidHost::Characters)?;
                let address = IpAddr::V6(address.parse().map_err(|_| InvalidHost::Characters)?);
                (Self::Address(address.to_canonical()), after)
            }
            None => {
                let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Self::from_text(host.strip_suffix('.').unwrap_or(host))?, port)
            }
        };
        let is_port = port.strip_prefix(':').is_none_or(|digits| digits.is_empty() || digits.parse::<u16>().is_ok());
        let is_port = is_port && (port.is_empty() || port.starts_with(':')) && !port.contains('+');
        if is_port { Ok(host) } else { Err(InvalidHost::Port) }
    }

    fn from_text(text: &str) -> Result<Self, InvalidHost> {
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Address(address.to_canonical())),
            Err(_) => name(text).map(Self::Name),
        }
    }
}

impl FromStr for Host {
    type Err = InvalidHost;

    /// Parses a host in a configuration: a name, or an address without brackets; no port.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Address(address.to_canonical())),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Returns the host of a URL in the form for sockets and TLS: an IPv6 address without its brackets (RFC 3986, 3.2.2),
/// any other host unchanged.
pub fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|address| address.strip_suffix(']')).unwrap_or(host)
}

fn name(text: &str) -> Result<HostName, InvalidHost> {
    let labels = || text.split('.');
    if text.is_empty() || text.len() > HostName::LENGTH_MAX || labels().any(|it| it.len() > HostName::LABEL_MAX) {
        return Err(InvalidHost::Length);
    }
    if !labels().all(is_label) {
        return Err(InvalidHost::Characters);
    }
    if labels().next_back().is_some_and(is_number) {
        return Err(InvalidHost::Number);
    }
    Ok(HostName(text.to_ascii_lowercase().into()))
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)
}

/// Returns whether some programs read a DNS label as a number, as in `127.1` or `0x7f000001`. These programs use such a
/// host as an IP address (WHATWG URL, "ends in a number").
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_host_is_parsed_into_its_canonical_spelling() {
        let long = "x".repeat(64);
        for (text, expected) in [
            ("eu.example.com", Ok("eu.example.com")),
            ("EU.Example.Com:6443", Ok("eu.example.com")),
            ("eu.example.com.", Ok("eu.example.com")),
            ("eu.example.com.:443", Ok("eu.example.com")),
            ("eu.example.com:", Ok("eu.example.com")),
            ("my_host", Ok("my_host")),
            ("localhost:7443", Ok("localhost")),
            ("10.0.0.1", Ok("10.0.0.1")),
            ("10.0.0.1.:1", Ok("10.0.0.1")),
            ("[::1]", Ok("::1")),
            ("[2001:DB8::1]:6443", Ok("2001:db8::1")),
            ("[::ffff:10.0.0.1]:6443", Ok("10.0.0.1")),
            ("", Err(InvalidHost::Length)),
            (".", Err(InvalidHost::Length)),
            (":443", Err(InvalidHost::Length)),
            (&long, Err(InvalidHost::Length)),
            ("eu.example.com..", Err(InvalidHost::Characters)),
            ("eu..com", Err(InvalidHost::Characters)),
            (".eu.com", Err(InvalidHost::Characters)),
            ("ann@eu.example.com", Err(InvalidHost::Characters)),
            ("eu.example.com/x", Err(InvalidHost::Characters)),
            ("eu example", Err(InvalidHost::Characters)),
            ("-eu.com", Err(InvalidHost::Characters)),
            ("e%75.com", Err(InvalidHost::Characters)),
            ("eu,us", Err(InvalidHost::Characters)),
            ("::1", Err(InvalidHost::Length)),
            ("[::1", Err(InvalidHost::Characters)),
            ("[10.0.0.1]", Err(InvalidHost::Characters)),
            ("[fe80::1%25eth0]", Err(InvalidHost::Characters)),
            ("127.1", Err(InvalidHost::Number)),
            ("eu.0x7f", Err(InvalidHost::Number)),
            ("2130706433", Err(InvalidHost::Number)),
            ("eu.example.com:x", Err(InvalidHost::Port)),
            ("eu.example.com:70000", Err(InvalidHost::Port)),
            ("eu.example.com:+1", Err(InvalidHost::Port)),
            ("eu.example.com:1:2", Err(InvalidHost::Port)),
            ("[::1]x", Err(InvalidHost::Port)),
        ] {
            let host = Host::from_authority(text).map(|host| host.to_string());
            assert_eq!(host, expected.map(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn brackets_of_an_ipv6_address_are_removed() {
        for (host, expected) in [
            ("[::1]", "::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::1", "::1"),
            ("eu.example.com", "eu.example.com"),
            ("10.0.0.1", "10.0.0.1"),
            ("[::1", "[::1"),
            ("", ""),
        ] {
            assert_eq!(without_brackets(host), expected, "{host:?}");
        }
    }

    #[test]
    fn configured_host_name_has_neither_port_nor_wildcard() {
        for (text, expected) in [
            ("eu.example.com", Ok("eu.example.com")),
            ("EU.example.com", Ok("eu.example.com")),
            ("localhost", Ok("localhost")),
            ("10.0.0.1", Err(InvalidHost::Address)),
            ("::1", Err(InvalidHost::Address)),
            ("eu.example.com:443", Err(InvalidHost::Characters)),
            ("eu.example.com.", Err(InvalidHost::Characters)),
            ("*.example.com", Err(InvalidHost::Characters)),
            ("my_host", Err(InvalidHost::Characters)),
            ("https://eu.example.com", Err(InvalidHost::Characters)),
        ] {
            let name = text.parse::<HostName>().map(|name| name.to_string());
            assert_eq!(name, expected.clone().map(str::to_owned), "{text:?}");
            let is_host = text.parse::<Host>().is_ok();
            assert_eq!(is_host, expected.is_ok() || expected == Err(InvalidHost::Address), "{text:?}");
        }
    }
}
