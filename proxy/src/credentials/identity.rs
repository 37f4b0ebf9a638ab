//! Identity of a request at a cluster.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

use tributary_apimachinery::{AUTHENTICATED_GROUP, NOBODY, ServiceAccount, UNAUTHENTICATED_GROUP};

use crate::credentials::exec_plugin::bearer;
use crate::headers::is_impersonation;

/// uid in the question without a name. No user has it.
pub(crate) const NAMELESS_UID: &str = NOBODY;

/// Prefix of the header of an extra; its key follows.
const EXTRA: &str = "impersonate-extra-";

/// Identity of a request at a cluster.
#[derive(Clone, Debug, Default)]
pub enum RequestIdentity {
    /// The kubeconfig's own user, with the user of its `as` fields.
    #[default]
    Member,
    /// The kubeconfig's own user, with the client's own impersonation for the cluster to check (personal mode). The
    /// kubeconfig's `as` fields are not sent, as kubectl's flags replace them, too.
    AsGiven(GivenIdentity),
    /// A different user, whom the caller has authenticated and authorized (shared mode).
    Impersonate(Impersonation),
    /// The user, by a token of their own, which the caller knows to be the member's to judge.
    Own(OwnToken),
    /// The kubeconfig's own user, with `Impersonate-Uid` and without a user name. A kube-apiserver refuses it before it
    /// checks rights, with a text that shows its impersonation filter. The `as` fields are not sent.
    Nameless,
}

/// A client's own impersonation, in headers that every kube-apiserver reads alike: one `Impersonate-User`, at most one
/// `Impersonate-Uid`, any `Impersonate-Group` and `Impersonate-Extra-*`. It may replace the kubeconfig's `as`, because
/// a cluster always acts as the other user.
#[derive(Clone, Debug)]
pub struct GivenIdentity(HeaderMap);

/// A client's `Impersonate-*` headers do not make a cluster act as a different user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGivenIdentity {
    /// No user, several, or an empty one: a kube-apiserver would act as the kubeconfig's user, or choose among them.
    #[error("acting as somebody else needs exactly one Impersonate-User, which must not be empty")]
    User,
    /// A uid is given more than once.
    #[error("Impersonate-Uid is given more than once")]
    Uid,
    /// An unknown header. A server in front of kube-apiserver might know it.
    #[error("{0} is not known; allowed are Impersonate-User, -Group, -Uid and -Extra-KEY")]
    Unknown(HeaderName),
    /// The value is not text.
    #[error("{0} is not UTF-8")]
    NotText(HeaderName),
}

impl GivenIdentity {
    /// Parses the headers of a request; `None` if no name begins with `Impersonate-`, also with underscores for dashes.
    ///
    /// # Errors
    /// [`InvalidGivenIdentity`] if a cluster could read them differently, or ignore them.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, InvalidGivenIdentity> {
        // Most requests have no such headers, and copy nothing.
        if !headers.keys().any(is_impersonation) {
            return Ok(None);
        }
        let mut given = HeaderMap::new();
        for (name, value) in headers.iter().filter(|(name, _)| is_impersonation(name)) {
            let known = match name.as_str() {
                "impersonate-user" | "impersonate-group" | "impersonate-uid" => true,
                other => other.strip_prefix(EXTRA).is_some_and(|key| !key.is_empty()),
            };
            if !known {
                return Err(InvalidGivenIdentity::Unknown(name.clone()));
            }
            given.append(name.clone(), value.clone());
        }
        let mut users = given.get_all("impersonate-user").iter();
        // Of a value of spaces another hop may leave nothing.
        let is_empty = |user: &HeaderValue| user.as_bytes().trim_ascii().is_empty();
        if users.next().is_none_or(is_empty) || users.next().is_some() {
            return Err(InvalidGivenIdentity::User);
        }
        if given.get_all("impersonate-uid").iter().nth(1).is_some() {
            return Err(InvalidGivenIdentity::Uid);
        }
        Ok(Some(Self(given)))
    }

    /// The headers of the client's request, unchanged.
    pub fn headers(&self) -> &HeaderMap {
        &self.0
    }

    /// Meaning of each header for a kube-apiserver, with the header's name.
    pub fn parts(&self) -> impl Iterator<Item = (&HeaderName, GivenPart<'_>)> {
        self.0.iter().map(|(name, value)| {
            let value = value.as_bytes();
            let part = match name.as_str() {
                "impersonate-user" => GivenPart::User(value),
                "impersonate-uid" => GivenPart::Uid(value),
                "impersonate-group" => GivenPart::Group(value),
                other => GivenPart::Extra(extra_key(other.strip_prefix(EXTRA).unwrap_or_default()), value),
            };
            (name, part)
        })
    }
}

/// A part of the impersonated user. It may not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenPart<'a> {
    /// Name of the user.
    User(&'a [u8]),
    /// uid of the user.
    Uid(&'a [u8]),
    /// Name of a group.
    Group(&'a [u8]),
    /// The key of an extra, and one of its values.
    Extra(Cow<'a, [u8]>, &'a [u8]),
}

/// Key of an extra in a header's name. The name is in lower case, its escapes are not, and a name with an invalid
/// escape is the key as it is (apiserver `unescapeExtraKey` in `pkg/endpoints/filters/impersonation/impersonation.go`).
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

/// A user's own bearer token, with the user's impersonation. The cluster checks both; no credentials of Tributary are
/// sent. `Debug` does not show the token.
#[derive(Clone, Debug)]
pub struct OwnToken {
    pub(crate) authorization: HeaderValue,
    pub(crate) given: Option<GivenIdentity>,
}

impl OwnToken {
    /// A token as the user sent it; `None` where no header can hold it.
    pub fn new(token: &[u8], given: Option<GivenIdentity>) -> Option<Self> {
        let authorization = bearer(std::str::from_utf8(token).ok()?)?;
        Some(Self { authorization, given })
    }
}

/// A user as impersonation headers. Cheap to clone: make it once per authenticated user.
#[derive(Clone, Debug)]
pub struct Impersonation {
    headers: Arc<HeaderMap>,
}

/// The user cannot be expressed in headers, or would arrive as a different user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} cannot be impersonated: {problem}")]
pub struct InvalidImpersonation {
    /// `user`, `group`, `uid`, or `extra`.
    pub field: &'static str,
    /// The value, or the key of an extra.
    pub value: String,
    /// Fault of the value.
    pub problem: &'static str,
}

impl Impersonation {
    /// Makes the headers of a user: `Impersonate-User`, `-Group` (repeated), `-Uid`, and `-Extra-KEY` with the key
    /// percent-escaped as in client-go (`transport.NewImpersonatingRoundTripper`), capital letters too. Leaves out only
    /// the group `system:authenticated`, if kube-apiserver adds it anyway (`pkg/endpoints/filters/impersonation` in
    /// k8s.io/apiserver).
    ///
    /// # Errors
    /// [`InvalidImpersonation`] for empty values, control characters, and spaces at either end, which a header would
    /// lose: ` admin` must not arrive as `admin`.
    pub fn new<'a>(
        user: &str,
        groups: impl IntoIterator<Item = &'a str>,
        uid: Option<&str>,
        extra: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidImpersonation> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("impersonate-user"), value("user", user)?);
        let groups: Vec<&str> = groups.into_iter().collect();
        // kube-apiserver adds the groups of its namespace to a ServiceAccount without groups.
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

    /// Headers of the identity.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

/// A header value that arrives unchanged.
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

/// `Impersonate-Extra-KEY`, with percent escapes for characters that a header name may not have, `%` and capital
/// letters: HTTP/2 and kube-apiserver read names in lower case.
fn extra_name(key: &str) -> Result<HeaderName, InvalidImpersonation> {
    let invalid = |problem| InvalidImpersonation { field: "extra", value: key.to_owned(), problem };
    if key.is_empty() {
        return Err(invalid("its key is empty"));
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
    HeaderName::try_from(name).map_err(|_| invalid("its key is too long for a header name"))
}

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
        assert_eq!(all(headers, "impersonate-extra-scopes.example.com%2f%41%25b"), ["x", "y"]);
        let given = GivenIdentity::from_headers(headers).unwrap().unwrap();
        let key =
            given.parts().find_map(|(_, part)| if let GivenPart::Extra(key, _) = part { Some(key) } else { None });
        assert_eq!(key.as_deref(), Some(&b"scopes.example.com/A%b"[..]), "it arrives as it was");
    }

    #[test]
    fn given_identity_passes_only_if_every_server_reads_it_alike() {
        let unknown = |name: &'static str| Err(InvalidGivenIdentity::Unknown(HeaderName::from_static(name)));
        let none: &[(&'static str, &str)] = &[];
        for (given, expected) in [
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
            // A kube-apiserver ignores these, and would act as the kubeconfig's own user.
            (&[("impersonate-user", " ")], Err(InvalidGivenIdentity::User)),
            (&[("impersonate-user", "")], Err(InvalidGivenIdentity::User)),
            (&[("impersonate-foo", "1")], unknown("impersonate-foo")),
            (&[("impersonate-user", "a"), ("impersonate-foo", "1")], unknown("impersonate-foo")),
            (&[("impersonate_user", "a")], unknown("impersonate_user")),
            (&[("impersonate-user", "a"), ("impersonate_group", "b")], unknown("impersonate_group")),
            (&[("impersonate-user", "a"), ("impersonate-extra-", "b")], unknown("impersonate-extra-")),
            (&[("impersonate-", "a")], unknown("impersonate-")),
            // kube-apiserver uses the first value, some servers use the last.
            (&[("impersonate-user", "a"), ("impersonate-user", "b")], Err(InvalidGivenIdentity::User)),
            (&[("impersonate-user", "a"), ("impersonate-user", "")], Err(InvalidGivenIdentity::User)),
            (
                &[("impersonate-user", "a"), ("impersonate-uid", "b"), ("impersonate-uid", "c")],
                Err(InvalidGivenIdentity::Uid),
            ),
            (&[("impersonate-group", "system:masters")], Err(InvalidGivenIdentity::User)),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
            }
            let found = GivenIdentity::from_headers(&headers).map(|given| given.map(|given| given.headers().len()));
            assert_eq!(found, expected, "{given:?}");
        }
    }

    /// (user, groups) → sent groups. kube-apiserver gives a ServiceAccount without groups those of its namespace.
    #[test]
    fn impersonated_user_gets_no_group_beyond_its_own() {
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
