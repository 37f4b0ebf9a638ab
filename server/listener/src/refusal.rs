//! Why the listener refuses a request, whatever it asks for, and what the client is told.

use tributary_apimachinery::{Status, StatusReason};

use crate::settings::{HEADERS_MAX, HELD_BYTES_MAX};

/// Why the listener refuses a request, whatever it asks for. The router counts none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRefusal {
    /// 400: what came over HTTP/1.1 is no request. Its path is not known, and hyper answers it.
    Malformed,
    /// 431, or 414: its head is longer than a head may be, over HTTP/1.1. Its path is not known, and hyper answers it.
    HeadTooLarge,
    /// 431: it has more headers than a request may have.
    TooManyHeaders,
    /// 429: too much waits on connections on which nobody is known yet.
    TooManyUnknown,
    /// 431, which nobody reads: its connection has sent more in trailers than is held, and is closed.
    TooManyTrailers,
    /// 429: its user, or all for whom the same cluster alone vouches, have their part of all connections already.
    /// Nothing was done for it, and its connection is closed.
    TooManyConnections,
    /// 429: of what its connection was answered too much is not taken. Nothing was done for it, or it is a read.
    TooManyUnread,
    /// 403: a page of another site had a browser send it, with its user's certificate.
    CrossOrigin,
}

impl ListenerRefusal {
    /// All of them.
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

    /// The word for it in metrics.
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

    /// The Status that the client gets.
    pub fn status(self) -> Status {
        match self {
            Self::Malformed => Status::new(400, StatusReason::BadRequest, "what was sent is no HTTP/1.1 request"),
            Self::HeadTooLarge => {
                Status::new(431, StatusReason::Unknown, "the head of the request is too long; send less in its headers")
            }
            Self::TooManyHeaders => {
                let message = format!("the request has more than {HEADERS_MAX} headers; send fewer");
                Status::new(431, StatusReason::Unknown, message)
            }
            Self::TooManyUnknown => {
                let message = "too many requests wait until it is known who sends them; send one over this connection \
                               first, and the others once it is answered";
                Status::too_many_requests(message, 1)
            }
            Self::TooManyTrailers => {
                Status::new(431, StatusReason::Unknown, "the connection has sent too much in trailers; send none")
            }
            Self::TooManyConnections => {
                let message = "you, or all users for whom your cluster alone vouches, have your part of all connections \
                               open (--max-connections); close some, or send more requests over each";
                Status::too_many_requests(message, 1)
            }
            Self::TooManyUnread => {
                let message = format!(
                    "this connection has left {} MiB of its answers unread, or more than half of what other connections \
                     leave free (--max-unread-bytes); read the answers, or ask for fewer at once",
                    HELD_BYTES_MAX >> 20
                );
                Status::too_many_requests(message, 1)
            }
            Self::CrossOrigin => {
                let message = "a page of another site asks with the certificate of this browser's user; pages of this host alone may";
                Status::denied(message)
            }
        }
    }
}
