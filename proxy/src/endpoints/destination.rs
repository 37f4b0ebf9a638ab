//! Which of a member's endpoints a request may be sent to.

use std::sync::Arc;

use http::Uri;

use crate::target::ServerUrl;

/// Some of a cluster's endpoints: those that a request may be sent to, or those that are drained. It is made once for
/// many requests: taking the URLs apart costs some allocations for each. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSubset(Arc<[Box<str>]>);

impl EndpointSubset {
    /// Those at these URLs, however host and port are written. What is no URL is none of them.
    pub fn new(urls: &[String]) -> Self {
        let parsed = urls.iter().filter_map(|url| url.parse::<Uri>().ok());
        Self(parsed.filter_map(|url| ServerUrl::comparable_text(&url)).collect())
    }

    pub(crate) fn includes(&self, server: &ServerUrl) -> bool {
        self.0.iter().any(|url| **url == *server.comparable)
    }
}

/// Which of a member's endpoints a request may be sent to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Destination {
    /// All of them.
    #[default]
    Any,
    /// Those that a policy names, and no others.
    Chosen(EndpointSubset),
    /// The one at this place in the configuration; the last one where there are fewer.
    At(usize),
}

impl Destination {
    /// Whether it may be sent to this server, as far as its address decides that.
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
    fn urls_are_one_however_they_are_written() {
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
