//! Set of endpoints that a request may use.

use std::sync::Arc;

use http::Uri;

use crate::target::ServerUrl;

/// A set of endpoints of a cluster. The set limits a request to these endpoints, or names the endpoints to drain. A
/// request without a set may use all endpoints. Cheap to clone. Create one set for many requests, because a new set
/// must parse URLs and allocate memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSubset(Arc<[Box<str>]>);

impl EndpointSubset {
    /// Creates a set of the endpoints at these URLs, in any spelling of host and port. Invalid URLs are ignored.
    pub fn new(urls: &[String]) -> Self {
        let parsed = urls.iter().filter_map(|url| url.parse::<Uri>().ok());
        Self(parsed.filter_map(|url| ServerUrl::comparable_text(&url)).collect())
    }

    pub(crate) fn includes(&self, server: &ServerUrl) -> bool {
        self.0.iter().any(|url| **url == *server.comparable)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Destination {
    #[default]
    Any,
    Chosen(EndpointSubset),
    /// Only the endpoint with this index in the configuration. An index beyond the end means the last endpoint.
    At(usize),
}

impl Destination {
    pub(crate) fn includes(&self, server: &ServerUrl) -> bool {
        match self {
            Self::Any | Self::At(_) => true,
            Self::Chosen(subset) => subset.includes(server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_subset_matches_any_spelling_of_a_server_url() {
        for (one, other, is_same) in [
            ("https://a.example", "https://A.example:443/", true),
            ("https://[::1]:6443", "https://[::1]:6443", true),
            ("http://127.0.0.1:80", "http://127.0.0.1", true),
            ("https://a/k8s/clusters/c-1/", "https://a/k8s/clusters/c-1", true),
            ("https://a/k8s/clusters/c-1", "https://a/k8s/clusters/c-2", false),
            ("https://a:6443", "https://a", false),
            ("https://a:6443", "http://a:6443", false),
            ("https://a:6443", "https://b:6443", false),
            ("https://a:6443", "a:6443", false),
            ("https://a:6443", "", false),
        ] {
            let server = ServerUrl::parse(&one.parse().unwrap()).unwrap();
            let chosen = Destination::Chosen(EndpointSubset::new(&[other.to_owned()]));
            assert_eq!(chosen.includes(&server), is_same, "{one} {other}");
        }
    }
}
