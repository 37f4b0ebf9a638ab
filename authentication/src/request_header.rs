//! Authenticates users that a front proxy names in headers (apiserver `pkg/authentication/request/headerrequest`).

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::user::UserInfo;
use crate::x509::{CertificateError, ClientCertificates, common_name};

/// The header names that kube-apiserver uses without configuration.
const STANDARD_NAMES: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
/// The prefix of the headers with extra fields that kube-apiserver uses without configuration.
const STANDARD_EXTRA_PREFIX: &str = "x-remote-extra-";

/// The settings of the `--requestheader-*` flags of Tributary, or of the hub's kube-apiserver.
#[derive(Debug)]
pub struct RequestHeaders {
    /// The authorities of `--requestheader-client-ca-file`, which sign the certificates of front proxies.
    pub authorities: ClientCertificates,
    /// The certificate names of `--requestheader-allowed-names`. If the list is empty, every certificate of the
    /// authorities is allowed.
    pub allowed_names: Vec<String>,
    /// The headers that name the user.
    pub headers: UserHeaders,
}

/// The names of the headers in which a front proxy names a user. Header names are in lower case, as in [`HeaderName`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserHeaders {
    /// The headers of `--requestheader-username-headers`.
    pub username: Vec<HeaderName>,
    /// The headers of `--requestheader-uid-headers`.
    pub uid: Vec<HeaderName>,
    /// The headers of `--requestheader-group-headers`.
    pub group: Vec<HeaderName>,
    /// The prefixes of `--requestheader-extra-headers-prefix`, in lower case.
    pub extra_prefixes: Vec<String>,
}

/// The reason why headers that name a user are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontProxyError {
    /// The client's certificate is not a valid certificate of a front proxy.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The client's certificate is valid, but its name is not in `--requestheader-allowed-names`.
    #[error("x509: subject with cn={0} is not in the allowed list")]
    Name(String),
    /// The value of a header is not UTF-8.
    #[error("header {0} is not text")]
    NotText(HeaderName),
    /// A header for the user or the uid occurs twice. If a proxy appends its header to a header from the client, the
    /// client's value could take precedence.
    #[error("header {0} is given more than once")]
    Twice(HeaderName),
}

impl RequestHeaders {
    /// Verifies that the client is the front proxy. Returns the time until which the result is valid while the bundle
    /// is unchanged. Takes about 0.1 ms.
    ///
    /// # Errors
    /// [`FrontProxyError::Certificate`], [`FrontProxyError::Name`].
    pub fn verify_proxy(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<UnixTime, FrontProxyError> {
        let until = self.authorities.verify(chain, now)?;
        if !self.allowed_names.is_empty() {
            let name = common_name(chain.first().ok_or(CertificateError::Missing)?)?;
            if !self.allowed_names.contains(&name) {
                return Err(FrontProxyError::Name(name));
            }
        }
        Ok(until)
    }
}

impl UserHeaders {
    /// Returns whether the headers name a user. The client's certificate is not checked.
    pub fn has_user_header(&self, headers: &HeaderMap) -> bool {
        self.username.iter().any(|name| headers.contains_key(name))
    }

    /// Returns the user in the headers, or `None`. The caller must have verified the front proxy.
    ///
    /// # Errors
    /// [`FrontProxyError::NotText`], [`FrontProxyError::Twice`].
    pub fn read(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, FrontProxyError> {
        let username = first(headers, &self.username)?;
        if username.is_empty() {
            return Ok(None);
        }
        let uid = first(headers, &self.uid)?;
        let mut groups = Vec::new();
        for name in &self.group {
            for value in headers.get_all(name) {
                groups.push(text(name, value)?);
            }
        }
        groups.retain(|group| !group.is_empty());
        Ok(Some(UserInfo { username, uid, groups, extra: self.extra(headers)? }))
    }

    fn extra(&self, headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, FrontProxyError> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.extra_prefixes {
            for (name, value) in headers {
                if let Some(key) = name.as_str().strip_prefix(prefix.as_str()) {
                    extra.entry(unescaped(key)).or_default().push(text(name, value)?);
                }
            }
        }
        Ok(extra)
    }

    /// Removes the headers that name a user from a request, so that later stages cannot use them as trusted headers.
    /// The standard names are removed as well, if different names are configured: a later stage could expect them
    /// (kubernetes issue 119631).
    pub fn remove_from(&self, headers: &mut HeaderMap) {
        let ours = |name: &HeaderName| {
            STANDARD_NAMES.contains(&name.as_str())
                || name.as_str().starts_with(STANDARD_EXTRA_PREFIX)
                || [&self.username, &self.uid, &self.group].iter().any(|names| names.contains(name))
                || self.extra_prefixes.iter().any(|prefix| name.as_str().starts_with(prefix.as_str()))
        };
        let names: Vec<HeaderName> = headers.keys().filter(|name| ours(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }
}

/// Returns the value of the first of these headers that has a non-empty value. Returns the empty string if none has
/// one.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<String, FrontProxyError> {
    for name in names {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else { continue };
        if values.next().is_some() {
            return Err(FrontProxyError::Twice(name.clone()));
        }
        if !value.is_empty() {
            return text(name, value);
        }
    }
    Ok(String::new())
}

fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, FrontProxyError> {
    String::from_utf8(value.as_bytes().to_vec()).map_err(|_| FrontProxyError::NotText(name.clone()))
}

/// Percent-decodes the key of an extra field. The key stays unchanged if a `%` is not followed by two hex digits,
/// because Go's `url.PathUnescape` fails for such keys.
fn unescaped(key: &str) -> String {
    let whole = key.split('%').skip(1).all(|rest| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    match percent_decode_str(key).decode_utf8() {
        Ok(decoded) if whole => decoded.into_owned(),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::x509::tests::TestAuthority;

    fn request_headers(authority: &TestAuthority, allowed: &[&str]) -> RequestHeaders {
        RequestHeaders {
            authorities: ClientCertificates::new(authority.pem().as_bytes()).unwrap(),
            allowed_names: allowed.iter().map(|&name| name.to_owned()).collect(),
            headers: UserHeaders {
                username: vec![HeaderName::from_static("x-remote-user"), HeaderName::from_static("x-other-user")],
                uid: vec![HeaderName::from_static("x-remote-uid")],
                group: vec![HeaderName::from_static("x-remote-group")],
                extra_prefixes: vec!["x-remote-extra-".to_owned()],
            },
        }
    }

    fn map(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn user_headers_are_valid_only_from_a_verified_proxy() {
        let (authority, stranger) = (TestAuthority::new(), TestAuthority::new());
        let now = UnixTime::now();
        let ours = request_headers(&authority, &["front"]);
        let verified = |chain: &[CertificateDer<'static>]| ours.verify_proxy(chain, now).map(drop);
        assert_eq!(verified(&authority.client("front", &[])), Ok(()));
        assert_eq!(verified(&authority.client("back", &[])), Err(FrontProxyError::Name("back".to_owned())));
        assert!(matches!(verified(&stranger.client("front", &[])), Err(FrontProxyError::Certificate(_))));
        assert_eq!(verified(&[]), Err(FrontProxyError::Certificate(CertificateError::Missing)));
        let any = request_headers(&authority, &[]);
        assert!(any.verify_proxy(&authority.client("back", &[]), now).is_ok());
        assert!(ours.headers.has_user_header(&map(&[("X-Remote-User", b"ann")])));
        assert!(!ours.headers.has_user_header(&map(&[("X-Remote-Group", b"a")])));
    }

    #[test]
    fn user_headers_are_read_as_by_kube_apiserver() {
        let ours = request_headers(&TestAuthority::new(), &[]).headers;
        let headers = map(&[
            ("X-Remote-User", b""),
            ("X-Other-User", "j\u{fc}rgen".as_bytes()),
            ("X-Remote-Uid", b"u-1"),
            ("X-Remote-Group", b"dev"),
            ("X-Remote-Group", b""),
            ("X-Remote-Group", b"a,b"),
            ("X-Remote-Extra-Example.com%2fScopes", b"x"),
            ("X-Remote-Extra-example.com%2Fscopes", b"y"),
            ("X-Remote-Extra-100%", b"z"),
        ]);
        let user = ours.read(&headers).unwrap().unwrap();
        assert_eq!((user.username.as_str(), user.uid.as_str()), ("j\u{fc}rgen", "u-1"));
        assert_eq!(user.groups, ["dev", "a,b"]);
        let extra: Vec<_> = user.extra.iter().map(|(key, values)| (key.as_str(), values.join("+"))).collect();
        assert_eq!(extra, [("100%", "z".to_owned()), ("example.com/scopes", "x+y".to_owned())]);
        let mut headers = headers;
        ours.remove_from(&mut headers);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn standard_and_configured_user_headers_are_removed() {
        let name = |text: &'static str| vec![HeaderName::from_static(text)];
        let custom = UserHeaders {
            username: name("x-hub-user"),
            uid: name("x-hub-uid"),
            group: name("x-hub-group"),
            extra_prefixes: vec!["x-hub-extra-".to_owned(), "x-more-".to_owned()],
        };
        let standard = ["x-remote-user", "X-Remote-Uid", "x-remote-group", "X-Remote-Extra-a%2fb"];
        let configured = ["X-Hub-User", "x-hub-uid", "x-hub-group", "x-hub-extra-a", "x-more-b"];
        for (ours, expected) in
            [(UserHeaders::default(), [&configured[..], &["accept"]].concat()), (custom, vec!["accept"])]
        {
            let names = standard.iter().chain(&configured).chain(&["accept"]);
            let lines: Vec<(&str, &[u8])> = names.flat_map(|name| [(*name, &b"a"[..]), (*name, b"b")]).collect();
            let mut headers = map(&lines);
            ours.remove_from(&mut headers);
            let left: BTreeSet<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            assert_eq!(left, expected.iter().map(|name| name.to_ascii_lowercase()).collect());
        }
    }

    #[test]
    fn user_headers_with_two_users_or_invalid_utf8_are_rejected() {
        let ours = request_headers(&TestAuthority::new(), &[]).headers;
        let name = HeaderName::from_static("x-remote-user");
        let twice = map(&[("X-Remote-User", b"ann"), ("X-Remote-User", b"eve")]);
        assert_eq!(ours.read(&twice), Err(FrontProxyError::Twice(name.clone())));
        assert_eq!(ours.read(&map(&[("X-Remote-User", b"\xff")])), Err(FrontProxyError::NotText(name)));
    }
}
