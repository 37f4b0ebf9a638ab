//! The server that sent a response, judged by the status code: the cluster itself, or a server in front of the cluster.

use http::StatusCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Responder {
    /// The member, which accepts Tributary's requests.
    Member,
    /// The response is a 401: the member, or a server behind the member, rejects Tributary's credentials.
    Rejecting,
    /// The response may come from a load balancer without a backend (RFC 9110 §15.6.3 to §15.6.5), so it does not prove
    /// that the cluster is alive. A kube-apiserver also sends such a status if an aggregated server or etcd fails. Its
    /// other responses, at least to `/livez/ping`, then show that it is alive.
    Intermediary,
}

impl Responder {
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
