//! Why what would last is over.

/// Why what would last is over: of what a member answers, and of watches that memory answers alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamOver {
    /// The cluster's rules no longer grant what it was opened for.
    #[error("the cluster no longer lets you do what this was opened for")]
    RightLost,
    /// Whoever opened it is known no more.
    #[error("the credentials that this was opened with have expired")]
    Expired,
    /// Nobody vouches any more for whoever opened it.
    #[error("the credentials that this was opened with are not taken any more")]
    Withdrawn,
    /// Whoever opened it is answered nothing any more.
    #[error("you are denied access by this endpoint's administrator (its --denied-users-file)")]
    Denied,
    /// A policy refuses it that did not when it was opened.
    #[error("a dispatch policy of this endpoint refuses it now")]
    Policy,
    /// It has lasted as long as anything may.
    #[error("this has lasted as long as it may (the server's --max-stream-age)")]
    Age,
}
