//! Why a request failed, as a machine reads it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The `reason` of a [`Status`](crate::Status): a word that clients decide by (`metav1.StatusReason`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StatusReason {
    /// No reason was given.
    #[default]
    Unknown,
    /// 401: the client has to authenticate.
    Unauthorized,
    /// 403: the client may not do this.
    Forbidden,
    /// 404: there is no such object, resource or path.
    NotFound,
    /// 409: the name is taken.
    AlreadyExists,
    /// 409: the state does not allow it, for example because of a stale resourceVersion.
    Conflict,
    /// 410: gone, with no other place known.
    Gone,
    /// 422: the request is well-formed and its content is not allowed.
    Invalid,
    /// 500 or 504: try again.
    ServerTimeout,
    /// 500: an object in etcd cannot be read.
    StoreReadError,
    /// 504: the request took too long.
    Timeout,
    /// 429: too many requests; Retry-After says when to come again.
    TooManyRequests,
    /// 400: the request is malformed.
    BadRequest,
    /// 405: the resource does not know this verb.
    MethodNotAllowed,
    /// 406: none of the accepted media types can be given.
    NotAcceptable,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the body's media type is not known.
    UnsupportedMediaType,
    /// 500: a fault of the server's own.
    InternalError,
    /// 410: the resourceVersion or continue token is too old.
    Expired,
    /// 503: the server, or the cluster behind it, does not answer now.
    ServiceUnavailable,
    /// A reason that a member gave and that is not known here.
    Other(Box<str>),
}

/// Every reason with a name of its own, and that name.
const NAMES: [(StatusReason, &str); 19] = [
    (StatusReason::Unauthorized, "Unauthorized"),
    (StatusReason::Forbidden, "Forbidden"),
    (StatusReason::NotFound, "NotFound"),
    (StatusReason::AlreadyExists, "AlreadyExists"),
    (StatusReason::Conflict, "Conflict"),
    (StatusReason::Gone, "Gone"),
    (StatusReason::Invalid, "Invalid"),
    (StatusReason::ServerTimeout, "ServerTimeout"),
    (StatusReason::StoreReadError, "StorageReadError"),
    (StatusReason::Timeout, "Timeout"),
    (StatusReason::TooManyRequests, "TooManyRequests"),
    (StatusReason::BadRequest, "BadRequest"),
    (StatusReason::MethodNotAllowed, "MethodNotAllowed"),
    (StatusReason::NotAcceptable, "NotAcceptable"),
    (StatusReason::RequestEntityTooLarge, "RequestEntityTooLarge"),
    (StatusReason::UnsupportedMediaType, "UnsupportedMediaType"),
    (StatusReason::InternalError, "InternalError"),
    (StatusReason::Expired, "Expired"),
    (StatusReason::ServiceUnavailable, "ServiceUnavailable"),
];

impl StatusReason {
    /// The word on the wire; empty where no reason was given.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(text) => text,
            known => NAMES.iter().find(|(reason, _)| reason == known).map_or("", |(_, name)| name),
        }
    }
}

impl From<&str> for StatusReason {
    fn from(text: &str) -> Self {
        if text.is_empty() {
            return Self::Unknown;
        }
        NAMES.iter().find(|(_, name)| *name == text).map_or_else(|| Self::Other(text.into()), |(r, _)| r.clone())
    }
}

impl fmt::Display for StatusReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for StatusReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for StatusReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::from(&*text))
    }
}
