//! Why the listener refuses a request, whatever it asks for.

use hyper::Error;

/// Why the listener refuses a request, whatever it asks for. The router counts none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRefusal {
    /// 400: what came over HTTP/1.1 is no request. Its path is not known.
    Malformed,
    /// 431, or 414: its head is longer than a head may be, over HTTP/1.1. Its path is not known.
    HeadTooLarge,
    /// 431: it has more headers than a request may have.
    TooManyHeaders,
    /// 429: too much waits on connections on which nobody is known yet.
    TooManyUnknown,
    /// 429: its user has too many connections.
    TooManyConnections,
    /// 429: of what its connection was answered too much is not taken.
    TooManyUnread,
    /// 403: a page of another site had a browser send it.
    CrossOrigin,
}

impl ListenerRefusal {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Malformed,
        Self::HeadTooLarge,
        Self::TooManyHeaders,
        Self::TooManyUnknown,
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
            Self::TooManyConnections => "too_many_connections",
            Self::TooManyUnread => "too_many_unread",
            Self::CrossOrigin => "cross_origin",
        }
    }

    /// What a connection's end says of a head that was answered without becoming a request: over HTTP/1.1. Over HTTP/2 a
    /// head that is too large is answered 431 by the protocol's own part, which tells nobody.
    pub(super) fn of_end(end: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let error = end.downcast_ref::<Error>()?;
        match error {
            error if error.is_parse_too_large() => Some(Self::HeadTooLarge),
            error if error.is_parse() => Some(Self::Malformed),
            _ => None,
        }
    }
}
