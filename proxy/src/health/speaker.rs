//! Speaker of an answer, by its status: the cluster, or a server in front of it.

use http::StatusCode;

/// Speaker of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The member, which takes our requests.
    Member,
    /// The cluster, or a server that it asked, which does not accept the credentials.
    Rejecting,
    /// Perhaps a load balancer without a server (RFC 9110 §15.6.3 to §15.6.5), so the answer says nothing about the
    /// cluster. A kube-apiserver gives such answers if an aggregated server or etcd fails; its other answers show then
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
