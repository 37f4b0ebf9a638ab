//! Address of a cluster, and the function that joins a request's path to the address.

use std::sync::Arc;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use tributary_apimachinery::{ClusterName, without_brackets};

use crate::error::ConnectError;

/// Address of a cluster, with the proxy to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// URL of the server.
    pub url: Uri,
    /// URL of the proxy, if any.
    pub proxy: Option<Uri>,
}

impl From<Uri> for Address {
    fn from(url: Uri) -> Self {
        Self { url, proxy: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) server: ServerUrl,
    pub(crate) proxy: Option<Uri>,
}

/// Parses the configuration's own address, and then the additional addresses.
///
/// # Errors
/// An error about the first invalid address.
pub(crate) fn targets(
    cluster: &ClusterName,
    config: &kube::Config,
    further: &[Address],
) -> Result<Vec<Target>, ConnectError> {
    let first = Address { url: config.cluster_url.clone(), proxy: config.proxy_url.clone() };
    let targets = std::iter::once(&first).chain(further).map(|Address { url, proxy }| {
        let server = ServerUrl::parse(url).map_err(|problem| ConnectError::Server {
            cluster: cluster.clone(),
            server: without_user_info(&url.to_string()),
            problem,
        })?;
        Ok(Target { server, proxy: proxy.clone() })
    });
    targets.collect()
}

#[derive(Clone, Debug)]
pub(crate) struct ServerUrl {
    scheme: Scheme,
    authority: Authority,
    /// Path of the server URL without a trailing slash. Empty for most clusters; `/k8s/clusters/c-1` behind Rancher.
    base_path: Box<str>,
    pub(crate) address: Arc<str>,
    /// The whole URL in a form in which equal addresses have equal texts.
    pub(crate) comparable: Box<str>,
}

impl ServerUrl {
    /// Parses a server URL.
    ///
    /// # Errors
    /// A message about the problem with the URL.
    pub(crate) fn parse(url: &Uri) -> Result<Self, &'static str> {
        let scheme = url.scheme().ok_or("the URL has no scheme")?.clone();
        if scheme != Scheme::HTTPS && scheme != Scheme::HTTP {
            return Err("the scheme of the URL is neither https nor http");
        }
        let authority = url.authority().ok_or("the URL has no host")?.clone();
        if authority.as_str().contains('@') {
            return Err("the URL has a user name; put credentials into the kubeconfig's user");
        }
        if authority.host().is_empty() {
            return Err("the URL has no host");
        }
        if url.query().is_some() {
            return Err("the URL has a query");
        }
        let base_path = url.path().trim_end_matches('/').into();
        let address = address(&scheme, &authority).into();
        let comparable = Self::comparable_text(url).ok_or("the URL has no host")?;
        Ok(Self { scheme, authority, base_path, address, comparable })
    }

    /// Returns a server URL in a comparable form, with its port, and with the host in lower case. `None` for a URL
    /// without a host. Omits query and user info.
    pub(crate) fn comparable_text(url: &Uri) -> Option<Box<str>> {
        let (scheme, authority) = (url.scheme()?, url.authority()?);
        let address = address(scheme, authority).to_ascii_lowercase();
        Some(format!("{scheme}://{address}{}", url.path().trim_end_matches('/')).into())
    }

    pub(crate) fn has_base_path(&self) -> bool {
        !self.base_path.is_empty()
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns the host without the port and without the brackets of an IPv6 address, as TLS requires.
    pub(crate) fn host(&self) -> &str {
        without_brackets(self.authority.host())
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn dial_uri(&self) -> Uri {
        self.absolute(PathAndQuery::from_static("/"))
    }

    /// Returns the absolute URI of a request to this address. Ignores scheme and authority of the request's URI. Keeps
    /// path and query byte for byte.
    ///
    /// # Errors
    /// A message about the problem with the path: the path does not begin with a slash (`*`), or its dot segments could
    /// leave the base path and reach another cluster.
    pub(crate) fn join(&self, uri: &Uri) -> Result<Uri, &'static str> {
        self.check(uri)?;
        let path_and_query = uri.path_and_query().ok_or("the request has no path")?;
        if self.base_path.is_empty() {
            return Ok(self.absolute(path_and_query.clone()));
        }
        PathAndQuery::try_from(format!("{}{path_and_query}", self.base_path))
            .map(|joined| self.absolute(joined))
            .map_err(|_| "the path is too long together with the cluster's server URL")
    }

    /// Checks whether [`join`](Self::join) would succeed for this URI, without building the result.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), &'static str> {
        let path = uri.path_and_query().ok_or("the request has no path")?.path();
        if !path.starts_with('/') {
            return Err("the path does not begin with a slash");
        }
        if !self.base_path.is_empty() && has_dot_segment(path) {
            return Err("the path has a dot segment, and the cluster's server URL has a path");
        }
        Ok(())
    }

    /// Returns the absolute URI of a path at the member, including the base path.
    fn absolute(&self, path_and_query: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path_and_query);
        // `from_parts` requires all three parts. They are set here, so the call does not fail.
        Uri::from_parts(parts).unwrap_or_default()
    }
}

fn address(scheme: &Scheme, authority: &Authority) -> String {
    let default_port = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(default_port))
}

/// Returns whether a path has a segment `.` or `..`, also with percent-encoded dots or slashes.
fn has_dot_segment(path: &str) -> bool {
    if !path.contains('.') && !path.contains('%') {
        return false;
    }
    let lower = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    lower.split('/').any(|segment| segment == "." || segment == "..")
}

/// Removes user info with a possible password from a URL, for messages. Also accepts text that is not a URL.
pub fn without_user_info(url: &str) -> String {
    let begin = url.find("://").map_or(0, |scheme| scheme + 3);
    // An unescaped password may contain any character, including `@`. So the user info ends at the last `@`.
    match url[begin..].rfind('@') {
        Some(at) => format!("{}{}", &url[..begin], &url[begin + at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<ServerUrl, &'static str> {
        ServerUrl::parse(&url.parse().unwrap())
    }

    #[test]
    fn server_url_with_unsupported_parts_is_refused() {
        let plain = target("https://example.com").unwrap();
        assert_eq!((plain.host(), &*plain.address, plain.is_https()), ("example.com", "example.com:443", true));
        let ip = target("https://[::1]:6443/").unwrap();
        assert_eq!((ip.host(), &*ip.address), ("::1", "[::1]:6443"));
        assert_eq!(&*target("http://127.0.0.1:8001").unwrap().address, "127.0.0.1:8001");
        for bad in ["/path", "ftp://x", "https://user:pw@host", "https://host?x=1"] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn request_path_is_joined_to_the_base_path_unchanged() {
        let plain = target("https://h:6443").unwrap();
        let based = target("https://h/k8s/clusters/c-1/").unwrap();
        for (path, joined) in [
            ("/api/v1/pods?labelSelector=a%2Cb&x=", "/api/v1/pods?labelSelector=a%2Cb&x="),
            ("/a%2Fb//c", "/a%2Fb//c"),
            ("http://other:1/version", "/version"),
        ] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(plain.join(&uri).unwrap().to_string(), format!("https://h:6443{joined}"));
            assert_eq!(based.join(&uri).unwrap().to_string(), format!("https://h/k8s/clusters/c-1{joined}"));
        }
    }

    #[test]
    fn request_path_cannot_leave_the_base_path() {
        let based = target("https://h/k8s/clusters/c-1").unwrap();
        for path in ["/../c-2/api", "/%2e%2E/c-2", "/a/..%2Fb", "/a/%2e", "/x%5C..%5Cy"] {
            assert!(based.join(&path.parse().unwrap()).is_err(), "{path}");
        }
        assert!(based.join(&"/a..b/.c?d=../x".parse().unwrap()).is_ok());
        assert!(target("https://h").unwrap().join(&Uri::from_static("*")).is_err());
    }

    #[test]
    fn password_is_removed_from_urls_in_messages() {
        for (url, shown) in [
            ("https://a:6443/path", "https://a:6443/path"),
            ("https://user:secret@a:6443", "https://a:6443"),
            ("https://user:se/cr@t@a", "https://a"),
            ("user:secret@a", "a"),
            ("", ""),
        ] {
            assert_eq!(without_user_info(url), shown, "{url}");
        }
    }
}
