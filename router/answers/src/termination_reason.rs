//! Reasons for which Tributary ends a stream.

/// Reason for which Tributary ends a stream of events or data to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminationReason {
    /// The cluster no longer allows the request.
    #[error("the cluster no longer allows you the request that opened this stream")]
    RightLost,
    /// The client's credentials have expired.
    #[error("the credentials of the stream have expired")]
    Expired,
    /// The authenticator no longer accepts the client's credentials, for example because a token is deleted.
    #[error("the credentials of the stream are no longer accepted")]
    Withdrawn,
    /// The user is in the file of denied users.
    #[error("the administrator of this server denies you access (--denied-users-file)")]
    Denied,
    /// The source of the cluster now lets the cluster see a different user, or no longer knows the cluster.
    #[error("the source of the cluster has changed the identity or the target of the cluster's name")]
    NameChanged,
    /// A dispatch policy now refuses the request.
    #[error("a dispatch policy now refuses the request that opened this stream")]
    Policy,
    /// The stream has reached `--max-stream-age`.
    #[error("the stream has reached its maximum age (the server's --max-stream-age)")]
    Age,
}
