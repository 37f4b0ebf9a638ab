//! The reasons for which the listener refuses a request, and their HTTP answers.

use tributary_apimachinery::{Status, StatusReason};

use crate::settings::{CONNECTION_UNREAD_BYTES_MAX, HEADERS_MAX};

/// The reason why the listener refuses a request. The router's metrics do not count these requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRefusal {
    /// 400: an HTTP/1.1 request is malformed. hyper answers it, so its path is unknown.
    Malformed,
    /// 431 or 414: the head of an HTTP/1.1 request is too long. hyper answers it, so its path is unknown.
    HeadTooLarge,
    /// 431: the request has too many headers.
    TooManyHeaders,
    /// 429: too many requests on unauthenticated connections wait for their authentication.
    TooManyUnknown,
    /// 431: the connection sent too many trailers. The connection is closed without this answer.
    TooManyTrailers,
    /// 429: the user has too many connections, or all users whom the same member authenticates have too many together.
    /// The request is not executed, and its connection is closed.
    TooManyConnections,
    /// 429: the connection has too many unread bytes of answers. The request is a read, or was not executed, so the
    /// client can retry it.
    TooManyUnread,
    /// 403: a browser sent the request for a web page of another origin, with the user's client certificate.
    CrossOrigin,
}

impl ListenerRefusal {
    /// All reasons for a refusal, in the order of their definition.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::HeadTooLarge,
        Self::TooManyHeaders,
        Self::TooManyUnknown,
        Self::TooManyTrailers,
        Self::TooManyConnections,
        Self::TooManyUnread,
        Self::CrossOrigin,
    ];

    /// Returns the value of the metric label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::HeadTooLarge => "head_too_large",
            Self::TooManyHeaders => "too_many_headers",
            Self::TooManyUnknown => "too_many_unknown",
            Self::TooManyTrailers => "too_many_trailers",
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyUnread => "too_many_unread",
            Self::CrossOrigin => "cross_origin",
        }
    }

    /// Returns the Status in the HTTP answer to a refused request.
    pub fn status(self) -> Status {
        match self {
            Self::Malformed => {
                Status::new(400, StatusReason::BadRequest, "the received bytes are not an HTTP/1.1 request")
            }
            Self::HeadTooLarge => {
                Status::new(431, StatusReason::Unknown, "the head of the request is too long; send less in its headers")
            }
            Self::TooManyHeaders => {
                let message = format!("the request has more than {HEADERS_MAX} headers; send fewer");
                Status::new(431, StatusReason::Unknown, message)
            }
            Self::TooManyUnknown => {
                let message = "too many requests wait for authentication; send a single request over this connection \
                               first, and the others after its answer";
                Status::too_many_requests(message, 1)
            }
            Self::TooManyTrailers => {
                Status::new(431, StatusReason::Unknown, "the connection has sent too much in trailers; send none")
            }
            Self::TooManyConnections => {
                let message = "you, or all users that only your cluster authenticates, have reached your share of the \
                               connections (--max-connections); close some connections, or send more requests over \
                               each";
                Status::too_many_requests(message, 1)
            }
            Self::TooManyUnread => {
                let message = format!(
                    "this connection has left {} MiB of its answers unread, or more than half of what other \
                     connections leave free (--max-unread-bytes); read the answers, or send fewer requests at once",
                    CONNECTION_UNREAD_BYTES_MAX >> 20
                );
                Status::too_many_requests(message, 1)
            }
            Self::CrossOrigin => {
                let message = "a page of a different site sent the request with the client certificate of the \
                               browser's user; only pages of this host may send such requests";
                Status::denied(message)
            }
        }
    }
}
