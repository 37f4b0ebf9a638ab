//! Identity of a forwarded request at the member cluster.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use tributary_apimachinery::{AUTHENTICATED_GROUP, NOBODY, ServiceAccount, UNAUTHENTICATED_GROUP, UserInfo};

use crate::credentials::exec_plugin::bearer;
use crate::headers::is_impersonation;

/// uid of requests without a user name ([`RequestIdentity::UidOnly`]). No user has this uid.
pub(crate) const NOBODY_UID: &str = NOBODY;

/// Prefix of impersonation headers for extra fields of a user. The field's key follows the prefix.
const EXTRA: &str = "impersonate-extra-";

/// Identity of a request at a cluster: the credentials of the request, and the user that the cluster sees.
#[derive(Clone, Debug, Default)]
pub enum RequestIdentity {
    /// The kubeconfig's user, impersonating the user of the kubeconfig's `as` fields.
    #[default]
    Member,
    /// The kubeconfig's user, with the client's own impersonation headers, which the cluster checks (personal mode).
    /// The kubeconfig's `as` fields are not sent, just as kubectl's `--as` flags replace these fields.
    ClientImpersonation(Impersonation),
    /// Impersonation of a user whom the caller has authenticated and authorized (shared mode).
    Impersonate(Impersonation),
    /// Like [`Self::Impersonate`], with the member's impersonator
    /// ([`ClusterClient::set_impersonator`](crate::ClusterClient::set_impersonator)) if the member has one.
    ByImpersonator(Impersonation),
    /// The user's own token, with the client's own impersonation headers. The caller has checked that this member
    /// authenticates the token. The cluster checks both. The request contains no credentials of Tributary.
    UserToken {
        /// `Authorization` header of the token ([`user_authorization`]).
        authorization: HeaderValue,
        /// Headers of the user that the client impersonates.
        impersonation: Option<Impersonation>,
    },
    /// The kubeconfig's user, with `Impersonate-Uid` and without a user name. A kube-apiserver refuses such a request
    /// before it checks rights. The text of the refusal proves that kube-apiserver's impersonation filter ran. The
    /// kubeconfig's `as` fields are not sent.
    UidOnly,
}

/// Error: a client's `Impersonate-*` headers are ambiguous, or do not name a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidClientImpersonation {
    /// The headers contain no user, several users, or an empty user. A kube-apiserver would act as the kubeconfig's
    /// user, or choose one of the users.
    #[error("impersonation needs exactly one Impersonate-User header, which must not be empty")]
    User,
    /// The headers contain several uids.
    #[error("Impersonate-Uid is given more than once")]
    Uid,
    /// An impersonation header that kube-apiserver does not define. A server in front of kube-apiserver might apply
    /// such a header.
    #[error("the header {0} is unknown; allowed are Impersonate-User, -Group, -Uid and -Extra-KEY")]
    Unknown(HeaderName),
    /// The value of this header is not text.
    #[error("{0} is not UTF-8")]
    NotText(HeaderName),
}

/// Returns the key of an extra field from a header name. Percent-encoded bytes keep their case; other letters are lower
/// case. A name with an invalid escape is used unchanged as the key (apiserver `unescapeExtraKey` in
/// `pkg/endpoints/filters/impersonation/impersonation.go`).
fn extra_key(encoded: &str) -> Cow<'_, [u8]> {
    let bytes = encoded.as_bytes();
    let is_escape =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    match escapes.all(|(at, _)| is_escape(at)) {
        true => percent_encoding::percent_decode_str(encoded).into(),
        false => Cow::Borrowed(bytes),
    }
}

/// Returns the `Authorization` header of a user's own token. `None` if the token is not a valid header value. `Debug`
/// does not show the token.
pub fn user_authorization(token: &[u8]) -> Option<HeaderValue> {
    bearer(std::str::from_utf8(token).ok()?)
}

/// A user in the form of impersonation headers: an authenticated user, or the user that a client impersonates. Cheap to
/// clone: create one value per authenticated user.
#[derive(Clone, Debug)]
pub struct Impersonation {
    headers: Arc<HeaderMap>,
}

/// Error: headers cannot express the user, or the cluster would see a different user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} cannot be impersonated: {problem}")]
pub struct InvalidImpersonation {
    /// The invalid part: `user`, `group`, `uid`, or `extra`.
    pub field: &'static str,
    /// The invalid value. For an extra field, the field's key.
    pub value: String,
    /// The problem with the value.
    pub problem: &'static str,
}

impl Impersonation {
    /// Creates the headers of a user: `Impersonate-User`, `-Group` (repeated), `-Uid`, and `-Extra-KEY`. Capital
    /// letters of the key are percent-encoded, and so are all bytes that client-go percent-encodes
    /// (`transport.NewImpersonatingRoundTripper`). The group `system:authenticated` is omitted if kube-apiserver adds
    /// this group anyway (`pkg/endpoints/filters/impersonation` in k8s.io/apiserver). No other group is omitted.
    ///
    /// # Errors
    /// [`InvalidImpersonation`] for empty values, control characters, and leading or trailing spaces, which headers
    /// lose. Otherwise ` admin` would arrive as `admin`.
    pub fn new<'a>(
        user: &str,
        groups: impl IntoIterator<Item = &'a str>,
        uid: Option<&str>,
        extra: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidImpersonation> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("impersonate-user"), value("user", user)?);
        let groups: Vec<&str> = groups.into_iter().collect();
        // kube-apiserver gives a ServiceAccount without groups the groups of its namespace. So a ServiceAccount whose
        // only group is `system:authenticated` must send this group.
        let is_bare_account =
            ServiceAccount::of_user(user).is_some() && groups.iter().all(|group| *group == AUTHENTICATED_GROUP);
        let implied = !groups.contains(&UNAUTHENTICATED_GROUP) && !is_bare_account;
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

    /// Reads the impersonation headers of a client, in a form that every kube-apiserver parses equally: one
    /// `Impersonate-User`, at most one `Impersonate-Uid`, any number of `Impersonate-Group` and `Impersonate-Extra-*`.
    /// These headers may replace the kubeconfig's `as` fields, because the cluster then always acts as the impersonated
    /// user. `None` if no header name begins with `Impersonate-`. Underscores count as dashes.
    ///
    /// # Errors
    /// [`InvalidClientImpersonation`] if a cluster could interpret the headers differently, or ignore them.
    pub fn from_client_headers(headers: &HeaderMap) -> Result<Option<Self>, InvalidClientImpersonation> {
        // Most requests have no such headers. Such requests cause no copies.
        if !headers.keys().any(is_impersonation) {
            return Ok(None);
        }
        let mut client_impersonation = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_impersonation(name)) {
            let known = match name.as_str() {
                "impersonate-user" | "impersonate-group" | "impersonate-uid" => true,
                other => other.strip_prefix(EXTRA).is_some_and(|key| !key.is_empty()),
            };
            if !known {
                return Err(InvalidClientImpersonation::Unknown(name.clone()));
            }
            client_impersonation.append(name.clone(), value.clone());
        }
        let mut users = client_impersonation.get_all("impersonate-user").iter();
        // A proxy may trim a value that consists of spaces, so such a value also counts as an empty user.
        let is_empty = |user: &HeaderValue| user.as_bytes().trim_ascii().is_empty();
        if users.next().is_none_or(is_empty) || users.next().is_some() {
            return Err(InvalidClientImpersonation::User);
        }
        if client_impersonation.get_all("impersonate-uid").iter().nth(1).is_some() {
            return Err(InvalidClientImpersonation::Uid);
        }
        Ok(Some(Self { headers: Arc::new(client_impersonation) }))
    }

    /// Returns the user that a kube-apiserver reads in the headers. `text` decodes the bytes of a header's value, or of
    /// the key of an extra field.
    ///
    /// # Errors
    /// The errors of `text`.
    pub fn user<E>(&self, text: impl Fn(&HeaderName, &[u8]) -> Result<String, E>) -> Result<UserInfo, E> {
        let mut user = UserInfo::default();
        for (name, value) in self.headers.iter() {
            let value = text(name, value.as_bytes())?;
            match name.as_str() {
                "impersonate-user" => user.username = value,
                "impersonate-uid" => user.uid = value,
                "impersonate-group" => user.groups.push(value),
                other => {
                    let key = text(name, &extra_key(other.strip_prefix(EXTRA).unwrap_or_default()))?;
                    user.extra.entry(key).or_default().push(value);
                }
            }
        }
        Ok(user)
    }

    /// Returns the impersonation headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// Converts a text to a header value. Refuses a text that would arrive changed, for example with trimmed spaces.
fn value(field: &'static str, text: &str) -> Result<HeaderValue, InvalidImpersonation> {
    let invalid = |problem| InvalidImpersonation { field, value: text.to_owned(), problem };
    if text.is_empty() && field != "extra" {
        return Err(invalid("the value is empty"));
    }
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return Err(invalid("the value begins or ends with a space, which a header loses"));
    }
    let mut value =
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| invalid("the value has a control character"))?;
    // User names are private: neither the HTTP/2 header table nor debug output may contain these values.
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the header name `Impersonate-Extra-KEY`. Characters that are invalid in a header name, `%` and capital
/// letters are percent-encoded, because HTTP/2 and kube-apiserver convert names to lower case.
fn extra_name(key: &str) -> Result<HeaderName, InvalidImpersonation> {
    let invalid = |problem| InvalidImpersonation { field: "extra", value: key.to_owned(), problem };
    if key.is_empty() {
        return Err(invalid("the key is empty"));
    }
    let mut name = String::with_capacity(EXTRA.len() + key.len());
    name.push_str(EXTRA);
    for &byte in key.as_bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$&'*+-.^_`|~".contains(&byte) {
            name.push(byte as char);
        } else {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            name.push('%');
            name.push(HEX[usize::from(byte >> 4)] as char);
            name.push(HEX[usize::from(byte & 15)] as char);
        }
    }
    HeaderName::try_from(name).map_err(|_| invalid("the key is too long for a header name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(headers: &HeaderMap, name: &str) -> Vec<String> {
        headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn user_is_converted_to_impersonation_headers() {
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
        assert_eq!(all(headers, "impersonate-extra-scopes.example.com%2f%41%25b"), ["x", "y"]);
        let client_impersonation = Impersonation::from_client_headers(headers).unwrap().unwrap();
        let user = client_impersonation.user(|_, bytes| String::from_utf8(bytes.to_vec())).unwrap();
        assert_eq!(user.extra.keys().collect::<Vec<_>>(), ["scopes.example.com/A%b"], "it arrives as it was");
    }

    #[test]
    fn ambiguous_impersonation_headers_of_a_client_are_refused() {
        let unknown = |name: &'static str| Err(InvalidClientImpersonation::Unknown(HeaderName::from_static(name)));
        let none: &[(&'static str, &str)] = &[];
        for (client_impersonation, expected) in [
            (none, Ok(None)),
            (&[("accept", "x"), ("impersonation", "y")], Ok(None)),
            (&[("impersonate-user", "a")], Ok(Some(1))),
            (
                &[
                    ("impersonate-user", "a"),
                    ("impersonate-group", "b"),
                    ("impersonate-group", "c"),
                    ("impersonate-uid", "d"),
                    ("impersonate-extra-scopes", "e"),
                    ("accept", "x"),
                ],
                Ok(Some(5)),
            ),
            // A kube-apiserver ignores an empty user, and would act as the kubeconfig's user.
            (&[("impersonate-user", " ")], Err(InvalidClientImpersonation::User)),
            (&[("impersonate-user", "")], Err(InvalidClientImpersonation::User)),
            (&[("impersonate-foo", "1")], unknown("impersonate-foo")),
            (&[("impersonate-user", "a"), ("impersonate-foo", "1")], unknown("impersonate-foo")),
            (&[("impersonate_user", "a")], unknown("impersonate_user")),
            (&[("impersonate-user", "a"), ("impersonate_group", "b")], unknown("impersonate_group")),
            (&[("impersonate-user", "a"), ("impersonate-extra-", "b")], unknown("impersonate-extra-")),
            (&[("impersonate-", "a")], unknown("impersonate-")),
            // kube-apiserver uses the first value, but other servers use the last value.
            (&[("impersonate-user", "a"), ("impersonate-user", "b")], Err(InvalidClientImpersonation::User)),
            (&[("impersonate-user", "a"), ("impersonate-user", "")], Err(InvalidClientImpersonation::User)),
            (
                &[("impersonate-user", "a"), ("impersonate-uid", "b"), ("impersonate-uid", "c")],
                Err(InvalidClientImpersonation::Uid),
            ),
            (&[("impersonate-group", "system:masters")], Err(InvalidClientImpersonation::User)),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in client_impersonation {
                headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
            }
            let found = Impersonation::from_client_headers(&headers).map(|client_impersonation| {
                client_impersonation.map(|client_impersonation| client_impersonation.headers().len())
            });
            assert_eq!(found, expected, "{client_impersonation:?}");
        }
    }

    /// Each case has a user, the user's groups, and the groups that the headers must contain. kube-apiserver gives a
    /// ServiceAccount without groups the groups of its namespace.
    #[test]
    fn impersonation_headers_add_no_group_that_the_user_lacks() {
        let cases: [(&str, &[&str], &[&str]); 4] = [
            ("jane", &["system:authenticated"], &[]),
            ("system:serviceaccount:n:s", &["system:authenticated"], &["system:authenticated"]),
            (
                "system:serviceaccount:n:s",
                &["system:serviceaccounts", "system:authenticated"],
                &["system:serviceaccounts"],
            ),
            ("system:serviceaccount:n:s", &[], &[]),
        ];
        for (user, groups, expected) in cases {
            let impersonation = Impersonation::new(user, groups.iter().copied(), None, []).unwrap();
            let sent: Vec<_> = impersonation.headers().get_all("impersonate-group").iter().collect();
            assert_eq!(sent, expected, "{user} {groups:?}");
        }
    }

    #[test]
    fn impersonated_anonymous_user_keeps_the_group_unauthenticated() {
        let groups = ["system:unauthenticated", "system:authenticated"];
        let identity = Impersonation::new("system:anonymous", groups, None, []).unwrap();
        assert_eq!(all(identity.headers(), "impersonate-group"), groups);
    }

    #[test]
    fn impersonated_values_that_are_invalid_in_a_header_are_refused() {
        for user in ["", " admin", "admin ", "ad\nmin", "\tadmin", "a\0b"] {
            assert_eq!(Impersonation::new(user, [], None, []).unwrap_err().field, "user", "{user:?}");
        }
        assert_eq!(Impersonation::new("a", [" system:masters"], None, []).unwrap_err().field, "group");
        assert_eq!(Impersonation::new("a", [], Some("1\r\n"), []).unwrap_err().field, "uid");
        assert_eq!(Impersonation::new("a", [], None, [("", "v")]).unwrap_err().field, "extra");
    }
}
