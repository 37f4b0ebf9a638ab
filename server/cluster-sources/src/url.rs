//! Addresses of servers and proxies in foreign objects.

use http::Uri;

use crate::SourceRefusal;

/// Reads the address of a server. Surrounding white space and slashes at the end are removed. A path in the address
/// becomes the base path of the cluster's API. `place` names the field in error messages.
///
/// # Errors
/// The address is empty, or is not `https://HOST[:PORT][/PATH]`. The message never contains a user or a password.
pub(crate) fn read_endpoint(text: &str, place: &str) -> Result<String, SourceRefusal> {
    let text = text.trim().trim_end_matches('/');
    if text.is_empty() {
        let message = format!("{place} is missing or empty. Give the address of the cluster, https://HOST[:PORT].");
        return Err(SourceRefusal::new("MissingEndpoint", message));
    }
    let refuse = |problem: &str| {
        let message = format!("{place} {problem}. Give https://HOST[:PORT][/PATH].");
        Err(SourceRefusal::new("InvalidEndpoint", message))
    };
    if has_user_info(text) {
        return refuse("contains a user or a password");
    }
    if !text.starts_with("https://") {
        return refuse("is not an https:// address");
    }
    if text.contains(['?', '#', '@']) || !has_host_and_port(text) {
        return refuse("is not the address of a server");
    }
    Ok(text.to_owned())
}

/// Reads the address of a proxy. Surrounding white space is removed; `None` if the field is empty.
///
/// # Errors
/// The address is not a proxy URL, or contains a user or a password.
pub(crate) fn read_proxy(text: &str, place: &str) -> Result<Option<String>, SourceRefusal> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let refuse = |problem: &str| {
        let message = format!("{place} {problem}. Give http://, https:// or socks5:// with HOST[:PORT].");
        Err(SourceRefusal::new("InvalidProxy", message))
    };
    if has_user_info(text) {
        return refuse("contains a user or a password");
    }
    let has_scheme = ["http://", "https://", "socks5://", "socks5h://"].iter().any(|scheme| text.starts_with(scheme));
    if !has_scheme || !has_host_and_port(text) {
        return refuse("is not the address of a proxy");
    }
    Ok(Some(text.to_owned()))
}

/// Returns the host of an address, without the brackets of an IPv6 address.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let host = tributary_apimachinery::without_brackets(uri.host()?);
    Some(host.to_owned()).filter(|host| !host.is_empty())
}

/// Returns whether an address has a host, and a port from 1 to 65535 or no port.
fn has_host_and_port(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority);
    authority.is_some_and(|authority| {
        let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let is_port = port.is_empty() || authority.port_u16().is_some_and(|port| port > 0);
        !authority.host().is_empty() && is_port
    })
}

fn has_user_info(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_trimmed_and_keeps_its_path() {
        for (text, expected) in [
            ("https://eu:6443\n", "https://eu:6443"),
            (" https://eu:6443// ", "https://eu:6443"),
            ("https://rancher/k8s/clusters/c-1/", "https://rancher/k8s/clusters/c-1"),
            ("https://[::1]:6443", "https://[::1]:6443"),
        ] {
            assert_eq!(read_endpoint(text, "endpoint").unwrap(), expected);
        }
        for (text, reason, problem) in [
            ("", "MissingEndpoint", "endpoint is missing"),
            ("\n", "MissingEndpoint", "endpoint is missing"),
            ("/", "MissingEndpoint", "endpoint is missing"),
            ("http://eu", "InvalidEndpoint", "is not an https:// address"),
            ("eu:6443", "InvalidEndpoint", "is not an https:// address"),
            ("https://ann:hunter2@eu", "InvalidEndpoint", "contains a user"),
            ("ann:hunter2@eu", "InvalidEndpoint", "contains a user"),
            ("https://eu/?hunter2", "InvalidEndpoint", "is not the address"),
            ("https://eu#hunter2", "InvalidEndpoint", "is not the address"),
            ("https://e u", "InvalidEndpoint", "is not the address"),
            ("https://eu:0", "InvalidEndpoint", "is not the address"),
            ("https://eu:65536", "InvalidEndpoint", "is not the address"),
            ("https://eu:", "InvalidEndpoint", "is not the address"),
            ("https://:6443", "InvalidEndpoint", "is not the address"),
            ("https://eu\nhttps://us", "InvalidEndpoint", "is not the address"),
        ] {
            let refusal = read_endpoint(text, "endpoint").unwrap_err();
            assert_eq!(refusal.reason, reason, "{text}");
            assert!(refusal.message.contains(problem) && !refusal.message.contains("hunter2"), "{refusal:?}");
        }
    }

    #[test]
    fn proxy_needs_a_known_scheme_and_no_user() {
        for text in ["http://proxy:3128", "https://proxy", "socks5://proxy:1080\n", "socks5h://[::1]:1080"] {
            assert_eq!(read_proxy(text, "proxy-url").unwrap().as_deref(), Some(text.trim()));
        }
        assert_eq!(read_proxy("\n", "proxy-url").unwrap(), None);
        for text in ["proxy:3128", "ftp://proxy", "http://ann:hunter2@proxy", "http://"] {
            let refusal = read_proxy(text, "proxy-url").unwrap_err();
            assert_eq!(refusal.reason, "InvalidProxy", "{text}");
            assert!(refusal.message.starts_with("proxy-url ") && !refusal.message.contains("hunter2"), "{refusal:?}");
        }
    }
}
