//! Reads the requested host from a request's `Host` or `:authority`.

use http::header::HOST;
use http::request::Parts;
use tributary_apimachinery::Host;

use crate::refusal::HostRefusal;

/// The parsed host of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedHost {
    /// A valid host name or address.
    Host(Host),
    /// A `Host` value that is not a valid host.
    Unreadable,
    /// A request without a host, which HTTP/1.0 allows.
    None,
}

impl NamedHost {
    /// Reads the host from a request's head: `Host` in HTTP/1.1, `:authority` or else `Host` in HTTP/2 (RFC 9113,
    /// 8.3.1).
    ///
    /// # Errors
    /// [`HostRefusal::Contradicting`] for several hosts: a proxy in front of this process may have used a different
    /// one.
    pub fn from_head(head: &Parts) -> Result<Self, HostRefusal> {
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        let mut headers = head.headers.get_all(HOST).iter();
        let header = headers.next().map(|value| value.to_str().unwrap_or(UNREADABLE));
        if headers.next().is_some() {
            return Err(HostRefusal::Contradicting);
        }
        let read = |text: &str| Host::from_authority(text).map_or(Self::Unreadable, Self::Host);
        match (authority.map(read), header.map(read)) {
            (Some(one), Some(other)) if one != other => Err(HostRefusal::Contradicting),
            (Some(named), _) | (None, Some(named)) => Ok(named),
            (None, None) => Ok(Self::None),
        }
    }
}

/// The text that is parsed instead of a `Host` header with bytes beyond ASCII. An empty text is never a valid host, so
/// the result is `NamedHost::Unreadable`.
const UNREADABLE: &str = "";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_host_is_parsed_and_contradicting_hosts_are_refused() {
        let host = |text: &str| Ok(NamedHost::Host(text.parse().unwrap()));
        for (uri, headers, expected) in [
            ("/api", &["EU.example.com:6443"][..], host("eu.example.com")),
            ("https://eu.example.com:6443/api", &[], host("eu.example.com")),
            ("https://eu.example.com:6443/api", &["eu.example.com"], host("eu.example.com")),
            ("https://eu.example.com/api", &["us.example.com"], Err(HostRefusal::Contradicting)),
            ("/api", &["eu.example.com", "eu.example.com"], Err(HostRefusal::Contradicting)),
            ("https://eu.example.com/api", &["\u{e4}"], Err(HostRefusal::Contradicting)),
            ("/api", &["[::1]:6443"], host("::1")),
            ("/api", &["eu..com"], Ok(NamedHost::Unreadable)),
            ("/api", &[""], Ok(NamedHost::Unreadable)),
            ("/api", &[], Ok(NamedHost::None)),
        ] {
            let mut request = http::Request::get(uri);
            for value in headers {
                request = request.header(HOST, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(NamedHost::from_head(&head), expected, "{uri} {headers:?}");
        }
    }
}
