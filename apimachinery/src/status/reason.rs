//! The machine-readable reason of a failed request.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The `reason` of a [`Status`](crate::Status), on which clients base decisions (`metav1.StatusReason`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StatusReason {
    /// The Status has no reason.
    #[default]
    Unknown,
    /// 401: the client must authenticate.
    Unauthorized,
    /// 403: the user may not perform the action.
    Forbidden,
    /// 404: the object, resource or path does not exist.
    NotFound,
    /// 409: an object with this name exists.
    AlreadyExists,
    /// 409: the state does not allow the operation, for example because of a stale resourceVersion.
    Conflict,
    /// 410: the resource is gone, without a new address.
    Gone,
    /// 422: the request is well-formed, but its content is invalid.
    Invalid,
    /// 500 or 504: the client should retry.
    ServerTimeout,
    /// 500: an object in etcd is unreadable.
    StoreReadError,
    /// 504: the request took too long.
    Timeout,
    /// 429: too many requests; Retry-After has the delay.
    TooManyRequests,
    /// 400: the request is malformed.
    BadRequest,
    /// 405: the resource does not support this verb.
    MethodNotAllowed,
    /// 406: none of the accepted media types is available.
    NotAcceptable,
    /// 413: the body is too large.
    RequestEntityTooLarge,
    /// 415: the body's media type is not supported.
    UnsupportedMediaType,
    /// 500: an internal error of the server.
    InternalError,
    /// 410: the resourceVersion or continue token is too old.
    Expired,
    /// 503: the server, or a cluster behind it, does not answer at present.
    ServiceUnavailable,
    /// A reason from a member for which this type has no variant.
    Other(Box<str>),
}

/// The `reason` on the wire of each variant except `Unknown` and `Other`.
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
    /// Returns the reason on the wire; empty for [`Unknown`](Self::Unknown).
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
