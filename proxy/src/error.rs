//! Errors between a request and a cluster's response, by the step that failed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tributary_apimachinery::ClusterName;

use crate::left_out::LeftOut;
use crate::obstacle::Obstacle;

/// A shared cause: several requests wait for one dial, and each of them reports its failure.
pub(crate) type SharedError = Arc<dyn Error + Send + Sync>;

/// Reason for which a client cannot be made: a fault of its configuration. The cluster is not asked.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server URL cannot be used.
    #[error(
        "cluster {cluster}: server {server:?} cannot be used: {problem}; set clusters[].cluster.server to \
         https://HOST[:PORT][/PATH]"
    )]
    Server {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The URL as configured.
        server: String,
        /// Fault of the header.
        problem: &'static str,
    },
    /// The proxy URL cannot be used.
    #[error(
        "cluster {cluster}: proxy-url cannot be used: {problem}; allowed are http://, https://, socks5:// and socks5h://"
    )]
    ProxyUrl {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Fault of the URL. The URL itself may contain a password.
        problem: &'static str,
    },
    /// The certificate authority, the client certificate or its key cannot be used.
    #[error(
        "cluster {cluster}: TLS cannot be set up: {source}; check certificate-authority, client-certificate and client-key"
    )]
    Tls {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Cause of the failure, for people.
        #[source]
        source: SharedError,
    },
    /// The credentials of the configuration's user cannot be used.
    #[error("cluster {cluster}: its credentials cannot be used: {message}")]
    Credentials {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The cause and the remedy, without any secret.
        message: String,
    },
    /// A header that the configuration adds to requests, or the user that it impersonates, is not valid.
    #[error("cluster {cluster}: {field} cannot be sent as a header: {problem}")]
    Header {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The field of the configuration.
        field: &'static str,
        /// Fault of the credentials.
        problem: String,
    },
}

/// Whether a failed request can have reached the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The member has certainly not acted on it: it may be sent again.
    No,
    /// The member may have acted on it.
    Maybe,
}

/// Reason for which a request got no response from its cluster.
///
/// `Display` is meant for the `message` of a metav1.Status: it names the cluster, the cause and the remedy, and
/// contains no secret. [`ForwardError::status_code`] is the HTTP status.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForwardError {
    /// The request's target is not a path that may be forwarded.
    #[error("cluster {cluster}: {path:?} cannot be forwarded: {problem}")]
    Path {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Path of the client.
        path: String,
        /// Fault of the path.
        problem: &'static str,
    },
    /// The client requested a protocol other than websocket and SPDY/3.1, or made the request in an invalid way.
    #[error("cluster {cluster}: the upgrade cannot be forwarded: {problem}; websocket and SPDY/3.1 over HTTP/1.1 can")]
    UpgradeRefused {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Fault of the request.
        problem: String,
    },
    /// Both the caller and the kubeconfig want to impersonate.
    #[error(
        "cluster {cluster}: its kubeconfig user already impersonates somebody (as, as-groups, as-uid, \
         as-user-extra), so requests cannot be sent in another user's name; remove these fields"
    )]
    ImpersonationConflict {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// The member's own credentials could not be had: a plugin failed, a token file cannot be read.
    #[error("cluster {cluster}: no credentials: {message}")]
    Credentials {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The cause and the remedy, without any secret.
        message: String,
    },
    /// There are no credentials, because this machine lacks a resource for a plugin or a file. The cluster is not at
    /// fault.
    #[error("cluster {cluster}: no credentials, because {what}: {message}; the cluster is not at fault: {remedy}")]
    CredentialsExhausted {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Name of the exhausted resource.
        what: &'static str,
        /// The cause, without any secret.
        message: String,
        /// Remedy, in the imperative.
        remedy: &'static str,
    },
    /// No connection could be made.
    #[error(
        "cluster {cluster} cannot be reached at {address}: {source}; check that the address is right and the network allows it"
    )]
    Dial {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// Cause of the failure.
        #[source]
        source: SharedError,
    },
    /// This machine lacks a resource for a connection. The cluster is not at fault.
    #[error(
        "cluster {cluster}: no connection to {address} could be opened, because {what}: {source}; the cluster is not \
         at fault: {remedy}"
    )]
    Exhausted {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// Name of the exhausted resource.
        what: &'static str,
        /// Cause of the failure.
        #[source]
        source: SharedError,
        /// Remedy, in the imperative.
        remedy: &'static str,
    },
    /// A connection was not ready in time.
    #[error(
        "cluster {cluster} cannot be reached at {address}: no {step} within {after:?}; check the network, firewalls and proxy-url"
    )]
    DialTimeout {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// Step that took too long: `TCP connection`, `TLS handshake`, `HTTP handshake`.
        step: &'static str,
        /// The time limit of the whole dial.
        after: Duration,
    },
    /// No endpoint that the request may use takes it.
    #[error("{}", no_endpoint(cluster, *is_chosen, left_out))]
    NoEndpoint {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Whether a policy chose the endpoints.
        is_chosen: bool,
        /// Their hosts and ports, and why each is left out; empty where a policy names none that the cluster has.
        left_out: Arc<[(Arc<str>, LeftOut)]>,
        /// Time until one of them may be tried again.
        retry_after: Duration,
    },
    /// The last connection failed, and a new one is not there yet.
    #[error("{reason}; unreachable for {} s", .age.as_secs())]
    Unreachable {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Cause of the last failed attempt; names the cluster.
        reason: Arc<str>,
        /// Duration of the failure.
        age: Duration,
    },
    /// A limit is reached.
    #[error(
        "cluster {cluster}: all {limit} {what} are in use; the request was not sent: try again when some have ended"
    )]
    Full {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Subject of the limit.
        what: &'static str,
        /// Value of the limit.
        limit: usize,
    },
    /// Too many upgrades of the user ended without 101: each took a connection.
    #[error(
        "cluster {cluster} did not switch protocols for too many of this user's last requests that asked for it \
         (Upgrade), and each of them took a connection of its own; the request was not sent: try again in {} s, or \
         without Upgrade",
        .retry_after.as_millis().div_ceil(1000)
    )]
    UpgradesInVain {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Time until the user's next token.
        retry_after: Duration,
    },
    /// The TLS handshake failed.
    #[error("cluster {cluster} at {address}: TLS failed for server name {server_name}: {source}; {remedy}")]
    Tls {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// The name that the certificate was checked against.
        server_name: Arc<str>,
        /// Cause of the failure.
        #[source]
        source: SharedError,
        /// Remedy, in the imperative.
        remedy: &'static str,
        /// The class of the failure, for `tributary status`.
        obstacle: Obstacle,
    },
    /// The connection was made, but HTTP could not be started on it.
    #[error(
        "cluster {cluster} at {address} does not speak HTTP: {source}; check that the server URL is kube-apiserver's"
    )]
    Handshake {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// Cause of the failure.
        #[source]
        source: SharedError,
    },
    /// A new connection leads to another cluster than before.
    #[error(
        "the name {cluster} means another cluster by now (the uid of its namespace kube-system is another), or none; the \
         request was not sent: try again in some seconds"
    )]
    AnotherCluster {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// A new connection has not reported which cluster it leads to.
    #[error(
        "cluster {cluster} at {address} has not told which cluster it is (the uid of its namespace kube-system): \
         {problem}; the request was not sent: try again"
    )]
    ClusterUnconfirmed {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// The answer or error that came instead of the uid.
        problem: Arc<str>,
        /// Whether the server has answered.
        is_answered: bool,
    },
    /// The connection broke before a response head.
    #[error("cluster {cluster}: the connection broke before a response: {cause}{}", match sent {
        Sent::No => "; the request was not sent: try again",
        Sent::Maybe => "; the request may have been carried out: check before you try again",
    })]
    Send {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Cause with its own causes, as text.
        cause: Arc<str>,
        /// Cause of the failure.
        #[source]
        source: SharedError,
        /// Whether the member may have acted on the request.
        sent: Sent,
    },
    /// The member took too long to answer.
    #[error(
        "cluster {cluster} did not answer within {after:?}; the request may have been carried out: check before you try again"
    )]
    HeadTimeout {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Time limit of the step.
        after: Duration,
    },
    /// The member answered with a redirect.
    #[error(
        "cluster {cluster} answered {status} with a Location; redirects of members are neither followed nor passed on"
    )]
    Redirect {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Status of the redirect.
        status: StatusCode,
    },
    /// The member answered with a status that is none of an answer.
    #[error("cluster {cluster} answered {status}, though nothing was asked that such an answer could announce")]
    Informational {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The status: 101 above all.
        status: StatusCode,
    },
    /// The cluster switched to a protocol that was not requested.
    #[error("cluster {cluster} answered the upgrade wrongly: {problem}")]
    BadUpgrade {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Fault of the answer.
        problem: String,
    },
    /// The member answered 401 to the configuration's own user.
    #[error("cluster {cluster} rejects this endpoint's own credentials (401 Unauthorized); {remedy}")]
    Unauthorized {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Remedy: the field of the configuration that has the credentials.
        remedy: &'static str,
    },
    /// An API server did not know Tributary's account, and refused before it acted, although the cluster does not
    /// reject the credentials: they were replaced meanwhile, the cluster knows them by now, or an API server behind it
    /// does not trust it.
    #[error(
        "cluster {cluster}, or the API server behind it, did not know this endpoint's own credentials (401 \
         Unauthorized): they were replaced, or are new there, or the API server behind it does not trust the cluster; \
         the request was not carried out: try again"
    )]
    UnknownSender {
        /// Name of the cluster.
        cluster: ClusterName,
    },
}

impl ForwardError {
    /// The cluster that the request was for.
    pub fn cluster(&self) -> &ClusterName {
        match self {
            Self::Path { cluster, .. }
            | Self::UpgradeRefused { cluster, .. }
            | Self::ImpersonationConflict { cluster }
            | Self::Credentials { cluster, .. }
            | Self::CredentialsExhausted { cluster, .. }
            | Self::Dial { cluster, .. }
            | Self::Exhausted { cluster, .. }
            | Self::DialTimeout { cluster, .. }
            | Self::NoEndpoint { cluster, .. }
            | Self::Unreachable { cluster, .. }
            | Self::Full { cluster, .. }
            | Self::UpgradesInVain { cluster, .. }
            | Self::Informational { cluster, .. }
            | Self::Tls { cluster, .. }
            | Self::Handshake { cluster, .. }
            | Self::AnotherCluster { cluster }
            | Self::ClusterUnconfirmed { cluster, .. }
            | Self::Send { cluster, .. }
            | Self::HeadTimeout { cluster, .. }
            | Self::Redirect { cluster, .. }
            | Self::BadUpgrade { cluster, .. }
            | Self::Unauthorized { cluster, .. }
            | Self::UnknownSender { cluster } => cluster,
        }
    }

    /// HTTP status for the client: 400 for the client's own faults, 429 for a limit, 503 if a retry may help, 504 for a
    /// silent cluster, 502 for a wrong answer, 500 for a contradictory configuration.
    pub fn status_code(&self) -> StatusCode {
        match self {
            Self::Path { .. } | Self::UpgradeRefused { .. } => StatusCode::BAD_REQUEST,
            Self::ImpersonationConflict { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Dial { .. }
            | Self::Exhausted { .. }
            | Self::DialTimeout { .. }
            | Self::NoEndpoint { .. }
            | Self::Unreachable { .. }
            | Self::AnotherCluster { .. }
            | Self::ClusterUnconfirmed { .. }
            | Self::Credentials { .. }
            | Self::CredentialsExhausted { .. }
            | Self::UnknownSender { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Send { sent: Sent::No, .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Full { .. } | Self::UpgradesInVain { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Send { sent: Sent::Maybe, .. }
            | Self::Tls { .. }
            | Self::Handshake { .. }
            | Self::Redirect { .. }
            | Self::Informational { .. }
            | Self::BadUpgrade { .. }
            | Self::Unauthorized { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    /// Whether the member can have acted on the request.
    pub fn sent(&self) -> Sent {
        match self {
            Self::Send { sent, .. } => *sent,
            Self::HeadTimeout { .. } | Self::Redirect { .. } | Self::Informational { .. } | Self::BadUpgrade { .. } => {
                Sent::Maybe
            }
            _ => Sent::No,
        }
    }

    /// Cause at the endpoint, in one line without the names of cluster and endpoint.
    pub(crate) fn at_endpoint(&self) -> String {
        match self {
            Self::Dial { source, .. } => source.to_string(),
            Self::Exhausted { what, source, remedy, .. } => format!("{what}: {source}; {remedy}"),
            Self::DialTimeout { step, after, .. } => format!("no {step} within {after:?}"),
            Self::Tls { server_name, source, remedy, .. } => {
                format!("TLS failed for server name {server_name}: {source}; {remedy}")
            }
            Self::Handshake { source, .. } => format!("it does not speak HTTP: {source}"),
            Self::AnotherCluster { .. } => "another cluster answers there".to_owned(),
            Self::ClusterUnconfirmed { problem, .. } => format!("it has not told which cluster it is: {problem}"),
            Self::Send { cause, .. } => format!("the connection broke before a response: {cause}"),
            Self::Full { what, limit, .. } => format!("all {limit} {what} are in use"),
            Self::Unreachable { reason, .. } => reason.to_string(),
            _ => self.to_string(),
        }
    }

    /// Whether a connection failed for a reason other than a resource of this machine.
    pub(crate) fn is_of_dial(&self) -> bool {
        matches!(
            self,
            Self::Dial { .. }
                | Self::DialTimeout { .. }
                | Self::Tls { .. }
                | Self::Handshake { .. }
                | Self::ClusterUnconfirmed { is_answered: false, .. }
        )
    }

    /// Time until a retry may succeed, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoEndpoint { retry_after, .. } | Self::UpgradesInVain { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// Whether a second endpoint may succeed: no connection was made, or none had room. Local ports are exhausted for
    /// each address alone.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        matches!(
            self,
            Self::Dial { .. }
                | Self::Exhausted { .. }
                | Self::DialTimeout { .. }
                | Self::NoEndpoint { .. }
                | Self::Unreachable { .. }
                | Self::Full { .. }
                | Self::Tls { .. }
                | Self::Handshake { .. }
                | Self::AnotherCluster { .. }
                | Self::ClusterUnconfirmed { .. }
                | Self::Send { sent: Sent::No, .. }
        )
    }

    /// Classifies the failure for `tributary status`.
    pub(crate) fn obstacle(&self) -> Obstacle {
        match self {
            Self::Tls { obstacle, .. } => *obstacle,
            Self::Unauthorized { .. } => Obstacle::Rejection,
            Self::Credentials { .. } => Obstacle::Credentials,
            _ => Obstacle::Network,
        }
    }

    /// Whether this failure means that the member cannot be reached, rather than that one request went wrong.
    pub(crate) fn means_unreachable(&self) -> bool {
        self.is_of_dial() || matches!(self, Self::Credentials { .. } | Self::Unauthorized { .. })
    }
}

fn no_endpoint(cluster: &ClusterName, is_chosen: bool, left_out: &[(Arc<str>, LeftOut)]) -> String {
    if left_out.is_empty() {
        return format!("cluster {cluster}: none of the endpoints that a policy names is one of the cluster's");
    }
    let among = if is_chosen { "of those that a policy names " } else { "" };
    let each: Vec<_> = left_out.iter().map(|(address, why)| format!("{address}: {why}")).collect();
    format!("cluster {cluster}: no endpoint {among}can be sent the request: {}", each.join("; "))
}
