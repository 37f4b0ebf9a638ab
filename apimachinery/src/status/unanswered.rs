//! What a client is told where a cluster gave no answer to its request.
//!
//! client-go sends any request again, its body rewound and up to ten times, whose answer of 429 or 5xx carries Retry-After
//! (`checkWait` in client-go's `rest/with_retry.go`). So the advice to come again is a part of the case in which the cluster has
//! certainly not acted on the request, and the other case has no place for it.

use std::fmt;
use std::time::Duration;

use super::field_error::go_quote;
use super::{Reason, Status};
use crate::ClusterName;

/// Whether the cluster can have acted on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It has certainly not.
    NotSent {
        /// After how many seconds the client may come again, if it is to do so by itself.
        retry_after: Option<u32>,
    },
    /// It may have.
    MaybeSent,
}

/// What keeps a cluster from answering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The cluster.
    pub cluster: ClusterName,
    /// The cause, in one line, for people.
    pub cause: String,
    /// For how long it has been so.
    pub age: Duration,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (for {} s: {})", self.cluster, self.age.as_secs(), self.cause)
    }
}

impl Status {
    /// A request to which a cluster gave no answer.
    pub fn unanswered(code: u16, reason: Reason, message: impl Into<String>, unanswered: Unanswered) -> Self {
        let status = Self::new(code, reason, message);
        match unanswered {
            Unanswered::NotSent { retry_after: Some(seconds) } => status.with_retry_after(seconds),
            Unanswered::NotSent { retry_after: None } | Unanswered::MaybeSent => status,
        }
    }

    /// 502: the cluster began to answer, and the answer cannot be given: it broke off, took too long or is too large. What was asked
    /// for may be done.
    pub fn interrupted(cluster: &ClusterName, cause: impl fmt::Display) -> Self {
        let message = format!(
            "cluster {}: its answer cannot be passed on: {cause}; the request may have been carried out: check before you try again",
            go_quote(cluster.as_str())
        );
        Self::unanswered(502, Reason::InternalError, message, Unanswered::MaybeSent)
    }

    /// The same without the advice to come again.
    #[must_use]
    pub fn without_retry_after(mut self) -> Self {
        if let Some(details) = &mut self.details {
            details.retry_after_seconds = 0;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_carried_out_carries_no_advice_to_come_again() {
        for (unanswered, advice) in [
            (Unanswered::NotSent { retry_after: Some(1) }, Some(1)),
            (Unanswered::NotSent { retry_after: None }, None),
            (Unanswered::MaybeSent, None),
        ] {
            let status = Status::unanswered(503, Reason::ServiceUnavailable, "x", unanswered);
            assert_eq!(status.retry_after_seconds(), advice, "{unanswered:?}");
            assert_eq!(status.without_retry_after().retry_after_seconds(), None);
        }
        let interrupted = Status::interrupted(&ClusterName::new("eu").unwrap(), "it broke off");
        assert_eq!((interrupted.code, interrupted.retry_after_seconds()), (502, None));
        assert!(
            interrupted.message.contains("\"eu\"") && interrupted.message.contains("check before"),
            "{interrupted}"
        );
    }
}
