//! Errors of requests without a response of the cluster. Each variant stands for a step that failed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tributary_apimachinery::ClusterName;

use crate::dial_policy::RefusedAddress;
use crate::failure_class::FailureClass;
use crate::left_out::LeftOut;

/// An error that several requests share, because all of them waited for the same connection attempt.
pub(crate) type SharedError = Arc<dyn Error + Send + Sync>;

/// Reason why a client cannot be created: an invalid configuration. The cluster is not contacted.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server URL is invalid.
    #[error(
        "cluster {cluster}: server {server:?} cannot be used: {problem}; set clusters[].cluster.server to \
         https://HOST[:PORT][/PATH]"
    )]
    Server {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The URL in the configuration.
        server: String,
        /// The problem with the URL.
        problem: &'static str,
    },
    /// The proxy URL is invalid.
    #[error(
        "cluster {cluster}: proxy-url cannot be used: {problem}; allowed are http://, https://, socks5:// and socks5h://"
    )]
    ProxyUrl {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The problem with the URL. The URL itself is omitted, because it may contain a password.
        problem: &'static str,
    },
    /// The certificate authority, the client certificate or its key is invalid.
    #[error(
        "cluster {cluster}: TLS cannot be set up: {source}; check certificate-authority, client-certificate and client-key"
    )]
    Tls {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Cause of the failure.
        #[source]
        source: SharedError,
    },
    /// The credentials of the configuration's user are invalid.
    #[error("cluster {cluster}: the credentials cannot be used: {message}")]
    Credentials {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The cause and the remedy, without any secret.
        message: String,
    },
    /// An extra request header of the configuration, or its impersonated user, is invalid.
    #[error("cluster {cluster}: {field} cannot be sent as a header: {problem}")]
    Header {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The field of the configuration.
        field: &'static str,
        /// The problem with the value.
        problem: String,
    },
}

/// Whether a failed request may have reached the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The member has certainly not acted on the request. A retry is safe.
    No,
    /// The member may have acted on the request.
    Maybe,
}

/// Reason why a request got no response from its cluster.
///
/// The `Display` text is suitable for the `message` of a metav1.Status: it contains the cluster, the cause and the
/// remedy, and no secret. [`ForwardError::status_code`] is the HTTP status.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForwardError {
    /// The request's target is not a path that may be forwarded.
    #[error("cluster {cluster}: {path:?} cannot be forwarded: {problem}")]
    Path {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Path of the client's request.
        path: String,
        /// The problem with the path.
        problem: &'static str,
    },
    /// The client requested an upgrade to an unsupported protocol (neither websocket nor SPDY/3.1), or the upgrade
    /// request is invalid.
    #[error("cluster {cluster}: the upgrade cannot be forwarded: {problem}; websocket and SPDY/3.1 over HTTP/1.1 can")]
    UpgradeRefused {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The problem with the request.
        problem: String,
    },
    /// Both the caller and the kubeconfig request impersonation.
    #[error(
        "cluster {cluster}: the kubeconfig user already impersonates a user (as, as-groups, as-uid, as-user-extra), \
         so Tributary cannot impersonate another user; remove these fields"
    )]
    ImpersonationConflict {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// Tributary's own credentials are not available: for example, a plugin failed or a token file is unreadable.
    #[error("cluster {cluster}: no credentials: {message}")]
    Credentials {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The cause and the remedy, without any secret.
        message: String,
    },
    /// Tributary's own credentials are not available, because this machine lacks a resource for a plugin or a file. The
    /// cluster is not at fault.
    #[error("cluster {cluster}: no credentials, because {what}: {message}; the cluster is not at fault: {remedy}")]
    CredentialsExhausted {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The missing resource, as a clause: `this machine has no memory for it`.
        what: &'static str,
        /// The cause, without any secret.
        message: String,
        /// Remedy, in the imperative.
        remedy: &'static str,
    },
    /// No connection was established.
    #[error(
        "cluster {cluster} cannot be reached at {address}: {source}; check that the address is right and the network allows it"
    )]
    Dial {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// Cause of the failed connection attempt.
        #[source]
        source: SharedError,
    },
    /// The server or its proxy has an address that the [`DialPolicy`](crate::DialPolicy) refuses. No connection was
    /// opened.
    #[error("cluster {cluster} cannot be reached at {address}: {refused}")]
    AddressRefused {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// The refused address, with its class and the remedy.
        #[source]
        refused: RefusedAddress,
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
        /// The missing resource, as a clause: `this machine has no memory for it`.
        what: &'static str,
        /// Cause of the failed connection attempt.
        #[source]
        source: SharedError,
        /// Remedy, in the imperative.
        remedy: &'static str,
    },
    /// A connection was not ready within the time limit.
    #[error(
        "cluster {cluster} cannot be reached at {address}: no {step} within {after:?}; check the network, firewalls and proxy-url"
    )]
    DialTimeout {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// The slow step: `TCP connection`, `TLS handshake` or `HTTP handshake`.
        step: &'static str,
        /// Time limit of the whole connection attempt.
        after: Duration,
    },
    /// None of the endpoints that the request may use takes the request.
    #[error("{}", no_endpoint(cluster, *is_chosen, left_out))]
    NoEndpoint {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Whether a policy chose the endpoints.
        is_chosen: bool,
        /// Host and port of each endpoint, and the reason why it is left out. Empty if the policy's endpoints do not
        /// exist in the cluster.
        left_out: Arc<[(Arc<str>, LeftOut)]>,
        /// Time until an endpoint may be tried again.
        retry_after: Duration,
    },
    /// The last connection attempt failed, and the next attempt has not succeeded yet.
    #[error("{reason}; unreachable for {} s", .age.as_secs())]
    Unreachable {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Cause of the last failed attempt, with the name of the cluster.
        reason: Arc<str>,
        /// Time since the cluster became unreachable.
        age: Duration,
    },
    /// A limit of connections or requests is reached.
    #[error(
        "cluster {cluster}: all {limit} {what} are in use; the request was not sent: try again when some have ended"
    )]
    Full {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The limited connections or requests, as text for the message.
        what: &'static str,
        /// Value of the limit.
        limit: usize,
    },
    /// Too many of the user's upgrade requests ended without a 101. Each of these requests took a separate connection.
    #[error(
        "cluster {cluster} did not switch protocols for too many requests of this user with an Upgrade header, and \
         each of them used a separate connection; the request was not sent: try again in {} s, or without the header",
        .retry_after.as_millis().div_ceil(1000)
    )]
    TooManyFailedUpgrades {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Time until the user's next token for an upgrade.
        retry_after: Duration,
    },
    /// The TLS handshake failed.
    #[error("cluster {cluster} at {address}: TLS failed for server name {server_name}: {source}; {remedy}")]
    Tls {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// The expected server name of the certificate.
        server_name: Arc<str>,
        /// Cause of the failed handshake.
        #[source]
        source: SharedError,
        /// Remedy, in the imperative.
        remedy: &'static str,
        /// Class of the failure, for `tributary status`.
        failure_class: FailureClass,
    },
    /// A connection was established, but the HTTP handshake failed.
    #[error(
        "cluster {cluster} at {address} does not speak HTTP: {source}; check that the server URL is kube-apiserver's"
    )]
    Handshake {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// Cause of the failed handshake.
        #[source]
        source: SharedError,
    },
    /// A new connection leads to a different cluster than the expected cluster.
    #[error(
        "the name {cluster} now belongs to a different cluster (the uid of the namespace kube-system differs), or to \
         no cluster; the request was not sent: try again in some seconds"
    )]
    AnotherCluster {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// On a new connection, the server did not report the uid of its cluster.
    #[error(
        "cluster {cluster} at {address} cannot be identified by the uid of the namespace kube-system: {problem}; the \
         request was not sent: try again"
    )]
    ClusterUnconfirmed {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Host and port of the server.
        address: Arc<str>,
        /// The response or the error that arrived instead of the uid.
        problem: Arc<str>,
        /// Whether the server has answered the request for the uid.
        is_answered: bool,
    },
    /// The connection broke before a response head arrived.
    #[error("cluster {cluster}: the connection broke before a response: {cause}{}", match sent {
        Sent::No => "; the request was not sent: try again",
        Sent::Maybe => "; the request may have been carried out: check before you try again",
    })]
    Send {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Text of the error with all its sources.
        cause: Arc<str>,
        /// Cause of the failure.
        #[source]
        source: SharedError,
        /// Whether the member may have acted on the request.
        sent: Sent,
    },
    /// The member sent no response head within the time limit.
    #[error(
        "cluster {cluster} did not answer within {after:?}; the request may have been carried out: check before you try again"
    )]
    HeadTimeout {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Time limit of the response head.
        after: Duration,
    },
    /// The member answered with a redirect.
    #[error(
        "cluster {cluster} answered {status} with a Location; redirects of clusters are neither followed nor forwarded"
    )]
    Redirect {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Status code of the redirect.
        status: StatusCode,
    },
    /// The member answered with a status that does not end a request, for example an unrequested 101.
    #[error("cluster {cluster} answered {status}, an interim status that the request did not ask for")]
    Informational {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The status code, usually 101.
        status: StatusCode,
    },
    /// The cluster switched to a protocol that was not requested.
    #[error("cluster {cluster} sent an invalid answer to the upgrade: {problem}")]
    BadUpgrade {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The problem with the response.
        problem: String,
    },
    /// The member answered 401 to Tributary's own credentials.
    #[error("cluster {cluster} rejects Tributary's own credentials (401 Unauthorized); {remedy}")]
    Unauthorized {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Remedy: the configuration field with the credentials.
        remedy: &'static str,
    },
    /// An API server answered 401 to Tributary's credentials before it processed the request, although the cluster
    /// accepts the credentials. Possible causes: the credentials were replaced during the request, the server learned
    /// of new credentials a moment later, or an aggregated API server does not trust the credentials.
    #[error(
        "cluster {cluster}, or the API server behind it, rejected Tributary's own credentials (401 Unauthorized): the \
         credentials were replaced or are not yet valid, or the API server behind the cluster does not trust it; the \
         request was not carried out: try again"
    )]
    UnknownSender {
        /// Name of the cluster.
        cluster: ClusterName,
    },
}

impl ForwardError {
    /// Returns the cluster to which the request was sent.
    pub fn cluster(&self) -> &ClusterName {
        match self {
            Self::Path { cluster, .. }
            | Self::UpgradeRefused { cluster, .. }
            | Self::ImpersonationConflict { cluster }
            | Self::Credentials { cluster, .. }
            | Self::CredentialsExhausted { cluster, .. }
            | Self::Dial { cluster, .. }
            | Self::AddressRefused { cluster, .. }
            | Self::Exhausted { cluster, .. }
            | Self::DialTimeout { cluster, .. }
            | Self::NoEndpoint { cluster, .. }
            | Self::Unreachable { cluster, .. }
            | Self::Full { cluster, .. }
            | Self::TooManyFailedUpgrades { cluster, .. }
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

    /// Returns the HTTP status for the client: 400 for the client's own errors, 429 for a limit, 503 if a retry may
    /// help, 504 for a silent cluster, 502 for an invalid response, 500 for a contradictory configuration.
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
            Self::Full { .. } | Self::TooManyFailedUpgrades { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::HeadTimeout { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Send { sent: Sent::Maybe, .. }
            | Self::AddressRefused { .. }
            | Self::Tls { .. }
            | Self::Handshake { .. }
            | Self::Redirect { .. }
            | Self::Informational { .. }
            | Self::BadUpgrade { .. }
            | Self::Unauthorized { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns whether the member may have acted on the request.
    pub fn sent(&self) -> Sent {
        match self {
            Self::Send { sent, .. } => *sent,
            Self::HeadTimeout { .. } | Self::Redirect { .. } | Self::Informational { .. } | Self::BadUpgrade { .. } => {
                Sent::Maybe
            }
            _ => Sent::No,
        }
    }

    /// Returns the cause of the error at the endpoint, in one line without the names of cluster and endpoint.
    pub(crate) fn at_endpoint(&self) -> String {
        match self {
            Self::Dial { source, .. } => source.to_string(),
            Self::AddressRefused { refused, .. } => refused.to_string(),
            Self::Exhausted { what, source, remedy, .. } => format!("{what}: {source}; {remedy}"),
            Self::DialTimeout { step, after, .. } => format!("no {step} within {after:?}"),
            Self::Tls { server_name, source, remedy, .. } => {
                format!("TLS failed for server name {server_name}: {source}; {remedy}")
            }
            Self::Handshake { source, .. } => format!("the server does not speak HTTP: {source}"),
            Self::AnotherCluster { .. } => "a different cluster answers at this address".to_owned(),
            Self::ClusterUnconfirmed { problem, .. } => {
                format!("the cluster cannot be identified by the uid of the namespace kube-system: {problem}")
            }
            Self::Send { cause, .. } => format!("the connection broke before a response: {cause}"),
            Self::Full { what, limit, .. } => format!("all {limit} {what} are in use"),
            Self::Unreachable { reason, .. } => reason.to_string(),
            _ => self.to_string(),
        }
    }

    /// Returns whether a connection attempt failed, for a reason other than a lack of resources on this machine.
    pub(crate) fn is_dial_failure(&self) -> bool {
        matches!(
            self,
            Self::Dial { .. }
                | Self::AddressRefused { .. }
                | Self::DialTimeout { .. }
                | Self::Tls { .. }
                | Self::Handshake { .. }
                | Self::ClusterUnconfirmed { is_answered: false, .. }
        )
    }

    /// Returns whether the member got no connection: an attempt failed now, or the last attempt failed.
    pub fn has_no_connection(&self) -> bool {
        self.is_dial_failure() || matches!(self, Self::Unreachable { .. } | Self::NoEndpoint { .. })
    }

    /// Returns the time until a retry may succeed, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NoEndpoint { retry_after, .. } | Self::TooManyFailedUpgrades { retry_after, .. } => {
                Some(*retry_after)
            }
            _ => None,
        }
    }

    /// Returns whether the request may succeed at a second endpoint: no connection was established, or the endpoint was
    /// at its limit. True also for a lack of resources on this machine, because each server address has separate local
    /// ports.
    pub(crate) fn is_endpoint_failure(&self) -> bool {
        matches!(
            self,
            Self::Dial { .. }
                | Self::AddressRefused { .. }
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

    pub(crate) fn failure_class(&self) -> FailureClass {
        match self {
            Self::Tls { failure_class, .. } => *failure_class,
            Self::AddressRefused { .. } => FailureClass::Address,
            Self::Unauthorized { .. } => FailureClass::Rejection,
            Self::Credentials { .. } => FailureClass::Credentials,
            _ => FailureClass::Network,
        }
    }

    /// Returns whether this failure means that the member is unreachable. False if the failure concerns a single
    /// request.
    pub(crate) fn means_unreachable(&self) -> bool {
        self.is_dial_failure() || matches!(self, Self::Credentials { .. } | Self::Unauthorized { .. })
    }
}

fn no_endpoint(cluster: &ClusterName, is_chosen: bool, left_out: &[(Arc<str>, LeftOut)]) -> String {
    if left_out.is_empty() {
        return format!(
            "cluster {cluster}: none of the endpoints of the dispatch policy is an endpoint of the cluster"
        );
    }
    let among = if is_chosen { "of the dispatch policy " } else { "" };
    let each: Vec<_> = left_out.iter().map(|(address, why)| format!("{address}: {why}")).collect();
    format!("cluster {cluster}: no endpoint {among}can receive the request: {}", each.join("; "))
}
