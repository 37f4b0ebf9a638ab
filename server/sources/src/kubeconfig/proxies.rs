//! Selects the proxy for each server by the kubeconfig and the environment.
//!
//! Source: client-go uses `proxy-url`, or else `http.ProxyFromEnvironment`. The latter never uses a proxy for
//! `localhost` and loopback addresses, so a kind or k3d cluster is reached directly on a machine with `HTTPS_PROXY`.

use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use tributary_apimachinery::without_brackets;

/// The proxies through which a cluster's servers are reached.
#[derive(Clone, Debug)]
pub enum Proxies {
    /// The proxy of `proxy-url`, which applies to every server.
    Explicit(Uri),
    /// The proxy of `HTTPS_PROXY`, which does not apply to servers in `NO_PROXY`.
    Environment {
        /// The proxy's URL, including user and password.
        proxy: Option<Uri>,
        /// The matcher of `NO_PROXY`, which decides to which servers the proxy applies.
        matcher: Arc<Matcher>,
    },
}

impl Proxies {
    /// Reads the proxy settings from the process's environment.
    pub fn from_environment() -> Self {
        let given = ["HTTPS_PROXY", "https_proxy"].iter().filter_map(|name| std::env::var(name).ok());
        let proxy = given.filter(|text| !text.is_empty()).find_map(|text| text.parse().ok());
        Self::Environment { proxy, matcher: Arc::new(Matcher::from_env()) }
    }

    /// Returns the proxy of `proxy-url`; `None` for the proxies of the environment.
    pub fn explicit(&self) -> Option<&Uri> {
        match self {
            Self::Explicit(proxy) => Some(proxy),
            Self::Environment { .. } => None,
        }
    }

    /// Returns the proxy for a server; `None` for a direct connection. The environment's proxy does not apply to
    /// servers on this machine, nor to servers without TLS.
    pub fn proxy_for(&self, server: &Uri) -> Option<Uri> {
        match self {
            Self::Explicit(proxy) => Some(proxy.clone()),
            Self::Environment { proxy, matcher } => {
                let is_here = server.host().is_none_or(is_loopback);
                let is_meant = || server.scheme_str() == Some("https") && matcher.intercept(server).is_some();
                proxy.clone().filter(|_| !is_here && is_meant())
            }
        }
    }
}

/// Returns whether a URL's host is `localhost` or a loopback address.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = || without_brackets(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_reached_through_its_configured_proxy() {
        let proxy = Uri::from_static("http://u:p@proxy.example:3128");
        let matcher = Matcher::builder().https("http://proxy.example:3128").no("direct.example,10.0.0.0/8").build();
        let environment = Proxies::Environment { proxy: Some(proxy.clone()), matcher: Arc::new(matcher) };
        let explicit = Proxies::Explicit(proxy.clone());
        for (server, by_environment) in [
            ("https://eu.example:6443", true),
            ("https://192.0.2.1", true),
            ("https://direct.example", false),
            ("https://10.1.2.3:6443", false),
            ("https://127.0.0.1:6443", false),
            ("https://127.8.8.8:6443", false),
            ("https://localhost:6443", false),
            ("https://[::1]:6443", false),
            ("https://[::ffff:127.0.0.1]:6443", false),
            ("http://127.0.0.1:8001", false),
            ("http://plain.example", false),
        ] {
            let server: Uri = server.parse().unwrap();
            assert_eq!(environment.proxy_for(&server), by_environment.then(|| proxy.clone()), "{server}");
            assert_eq!(explicit.proxy_for(&server).as_ref(), Some(&proxy), "{server}");
        }
        assert_eq!((explicit.explicit(), environment.explicit()), (Some(&proxy), None));
    }
}
