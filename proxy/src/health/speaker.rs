//! Who speaks in an answer, as its status shows: the member, or what stands before it.

use http::StatusCode;

/// Who gave an answer, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The member, which takes our requests.
    Member,
    /// The member, or whom it asked, which does not accept the credentials.
    Rejecting,
    /// Perhaps a load balancer that has no server to ask (RFC 9110 §15.6.3 to §15.6.5): it says nothing of the member.
    /// A kube-apiserver gives these itself where an aggregated server or etcd fails it; its other answers show then
    /// that it is alive, `/livez/ping` at the latest.
    Intermediary,
}

impl Speaker {
    /// Of an answer of this status.
    pub(crate) fn from_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::Rejecting,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Self::Intermediary
            }
            _ => Self::Member,
        }
    }
}
