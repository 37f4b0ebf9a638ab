//! In whose name a request is sent.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// kube-apiserver adds this group to every authenticated user, so it need not be sent, and an impersonator needs no
/// right to it (apiserver `pkg/endpoints/filters/impersonation`).
const AUTHENTICATED_GROUP: &str = "system:authenticated";
/// Keeps kube-apiserver from adding `system:authenticated`.
const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";

/// In whose name a member sees a request.
#[derive(Clone, Debug, Default)]
pub enum Identity {
    /// The kubeconfig's own user, and whom that user's `as` fields name.
    #[default]
    Member,
    /// The kubeconfig's own user, with the `Impersonate-*` headers of these passed on for the member to judge
    /// (personal mode). Other headers in the map are ignored. If there is any, the kubeconfig's own `as` fields are not
    /// sent, as kubectl's flags replace them too.
    AsGiven(HeaderMap),
    /// Somebody else, whom the caller has authenticated and authorized (shared mode).
    Impersonate(Impersonation),
}

/// A user as impersonation headers. Cheap to clone: make it once per authenticated user.
#[derive(Clone, Debug)]
pub struct Impersonation {
    headers: Arc<HeaderMap>,
}

/// The user cannot be expressed in headers, or would arrive as somebody else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} cannot be impersonated: {problem}")]
pub struct InvalidImpersonation {
    /// `user`, `group`, `uid`, or `extra`.
    pub field: &'static str,
    /// The value, or the key of an extra.
    pub value: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Impersonation {
    /// Turns a user into headers: `Impersonate-User`, `-Group` (repeated), `-Uid`, and `-Extra-KEY` with the key
    /// percent-escaped as client-go does it (`transport.NewImpersonatingRoundTripper`). The group
    /// `system:authenticated` is left out where kube-apiserver adds it anyway.
    ///
    /// # Errors
    /// [`InvalidImpersonation`] for empty values, for control characters and for spaces at either end, which a header
    /// would lose on the way: ` admin` must not arrive as `admin`.
    pub fn new<'a>(
        user: &str,
        groups: impl IntoIterator<Item = &'a str>,
        uid: Option<&str>,
        extra: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidImpersonation> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("impersonate-user"), value("user", user)?);
        let groups: Vec<&str> = groups.into_iter().collect();
        let implied = !groups.contains(&UNAUTHENTICATED_GROUP);
        for group in groups {
            if !(implied && group == AUTHENTICATED_GROUP) {
                headers.append(HeaderName::from_static("impersonate-group"), value("group", group)?);
            }
        }
        if let Some(uid) = uid.filter(|uid| !uid.is_empty()) {
            headers.insert(HeaderName::from_static("impersonate-uid"), value("uid", uid)?);
        }
        for (key, text) in extra {
            headers.append(extra_name(key)?, value("extra", text)?);
        }
        Ok(Self { headers: Arc::new(headers) })
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// A header value that arrives as it was sent.
fn value(field: &'static str, text: &str) -> Result<HeaderValue, InvalidImpersonation> {
    let invalid = |problem| InvalidImpersonation { field, value: text.to_owned(), problem };
    if text.is_empty() && field != "extra" {
        return Err(invalid("it is empty"));
    }
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return Err(invalid("it begins or ends with a space, which a header loses"));
    }
    let mut value = HeaderValue::from_bytes(text.as_bytes()).map_err(|_| invalid("it holds a control character"))?;
    // Names of people: not to be indexed in the HTTP/2 header table, nor shown by Debug.
    value.set_sensitive(true);
    Ok(value)
}

/// `Impersonate-Extra-KEY`, with what may not stand in a header name (and `%`) percent-escaped. Keys are folded to lower
/// case, as HTTP/2 and kube-apiserver do it.
fn extra_name(key: &str) -> Result<HeaderName, InvalidImpersonation> {
    let invalid = |problem| InvalidImpersonation { field: "extra", value: key.to_owned(), problem };
    if key.is_empty() {
        return Err(invalid("its key is empty"));
    }
    let mut name = String::with_capacity("impersonate-extra-".len() + key.len());
    name.push_str("impersonate-extra-");
    for &byte in key.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            name.push(byte.to_ascii_lowercase() as char);
        } else {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            name.push('%');
            name.push(HEX[usize::from(byte >> 4)] as char);
            name.push(HEX[usize::from(byte & 15)] as char);
        }
    }
    HeaderName::try_from(name).map_err(|_| invalid("its key is too long for a header name"))
}

/// A request extension: the address that the client connected from. It is sent as `X-Forwarded-For`, which
/// kube-apiserver writes into the `sourceIPs` of its audit events; what the client itself claims there is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

#[cfg(test)]
mod tests {
    use super::*;

    fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn a_user_becomes_headers() {
        let identity = Impersonation::new(
            "jürgen",
            ["dev", "system:authenticated", "ops"],
            Some("u-1"),
            [("scopes.example.com/A%b", "x"), ("scopes.example.com/A%b", "y")],
        )
        .unwrap();
        let headers = identity.headers();
        assert_eq!(all(headers, "impersonate-user"), ["jürgen"]);
        assert_eq!(all(headers, "impersonate-group"), ["dev", "ops"]);
        assert_eq!(all(headers, "impersonate-uid"), ["u-1"]);
        assert_eq!(all(headers, "impersonate-extra-scopes.example.com%2fa%25b"), ["x", "y"]);
    }

    #[test]
    fn an_unauthenticated_user_stays_one() {
        let groups = ["system:unauthenticated", "system:authenticated"];
        let identity = Impersonation::new("system:anonymous", groups, None, []).unwrap();
        assert_eq!(all(identity.headers(), "impersonate-group"), groups);
    }

    #[test]
    fn values_that_would_change_on_the_way_are_refused() {
        for user in ["", " admin", "admin ", "ad\nmin", "\tadmin", "a\0b"] {
            assert_eq!(Impersonation::new(user, [], None, []).unwrap_err().field, "user", "{user:?}");
        }
        assert_eq!(Impersonation::new("a", [" system:masters"], None, []).unwrap_err().field, "group");
        assert_eq!(Impersonation::new("a", [], Some("1\r\n"), []).unwrap_err().field, "uid");
        assert_eq!(Impersonation::new("a", [], None, [("", "v")]).unwrap_err().field, "extra");
    }
}
