//! What members answer, or that they do not.
//!
//! client-go sends any request again, its body rewound and up to ten times, whose answer of 429 or 5xx carries
//! Retry-After (`checkWait` in client-go's `rest/with_retry.go`). So the advice to come again is given only where the
//! member has certainly not acted on the request.

use std::fmt::Display;
use std::time::Duration;

use http::StatusCode;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, Status, StatusReason};
use tributary_proxy::{ForwardError, Sent};

use super::account::NotLet;
use super::wording::{first, leaves_out, listed};
use super::{Refusal, Trouble};

/// When a client is to come again whose cluster cannot be reached now, in seconds.
const RETRY_AFTER: u32 = 1;

/// Why members do not give the answer.
#[derive(Clone, Debug)]
pub enum MemberRefusal {
    /// What a member said itself. It is data: its code and reason are the member's.
    Said(Status),
    /// A cluster does not let the user act as whom they ask to be, or not for this: 403, as it would say it itself. It
    /// is not sent the request, and is not there for it.
    ForbidsActing(Status),
    /// A member gave no answer to a request that was sent on: 429, 500, 502, 503 or 504, as
    /// [`ForwardError::status_code`] says; 400 for the client's own faults.
    Forward {
        /// Why.
        error: ForwardError,
        /// Whether it is known to be out of reach: coming again soon is in vain.
        is_out_of_reach: bool,
        /// Since its last answer, or since it was configured.
        silent_for: Duration,
    },
    /// The cluster is configured such that nothing can be sent to it: 503.
    NotAskable(Trouble),
    /// A cluster does not let this endpoint's account do it in the user's name: 503.
    NotLet(NotLet),
    /// The cluster began to answer, and the answer cannot be given: it broke off, took too long or is too large. What
    /// was asked for may be done: 502.
    Interrupted {
        /// The cluster.
        cluster: ClusterName,
        /// What became of its answer.
        cause: String,
    },
    /// A question that changes nothing, and that the one cluster which it is for does not answer: 503. Or one on which
    /// it depends whether the cluster is sent anything.
    Unavailable {
        /// The cluster.
        cluster: ClusterName,
        /// Why not.
        cause: String,
    },
    /// What the caller may do depends on clusters that cannot be asked: 503. Without the advice to come again: they
    /// have been tried.
    Undecided {
        /// The clusters and their causes; empty where none is configured.
        unknown: Vec<String>,
    },
    /// Nothing of a collection is deleted, because not all of it could be: 503.
    NothingDeleted {
        /// The clusters that cannot be asked.
        troubles: Vec<Trouble>,
        /// Whether one of them is known to be out of reach: coming again soon is in vain.
        is_out_of_reach: bool,
    },
    /// A collection is not deleted in all clusters: what the first of the others said, with its code.
    PartlyDeleted {
        /// The clusters in which it is.
        done: Vec<ClusterName>,
        /// The first in which it is not.
        first: (ClusterName, Refusal),
        /// The others.
        others: Vec<(ClusterName, Refusal)>,
    },
    /// No cluster has told what every one would have to be asked for: 503.
    Untold {
        /// What none has done: `said its version yet`.
        what: &'static str,
        /// What is wrong with them.
        troubles: Vec<Trouble>,
    },
    /// No cluster can be asked for its OpenAPI document: 503.
    NoDocument {
        /// What is wrong with them.
        troubles: Vec<Trouble>,
    },
    /// An OpenAPI document changes faster than it can be read: 503.
    ChangingDocument,
    /// No cluster gives an OpenAPI document that it has: 503.
    DocumentNotGiven {
        /// The document's path.
        path: String,
        /// Why not, by cluster.
        causes: Vec<String>,
    },
    /// OpenAPI documents cannot be joined: 503.
    DocumentNotJoined {
        /// The documents' path.
        path: String,
        /// Why not.
        cause: String,
    },
}

impl MemberRefusal {
    /// A question that the one cluster which it is for does not answer.
    pub fn unavailable(cluster: &ClusterName, cause: impl Display) -> Self {
        Self::Unavailable { cluster: cluster.clone(), cause: cause.to_string() }
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Said(status) | Self::ForbidsActing(status) => status.clone(),
            Self::Forward { error, is_out_of_reach, silent_for } => not_forwarded(error, *is_out_of_reach, *silent_for),
            Self::NotAskable(trouble) => Status::service_unavailable(format!("cluster {trouble}")),
            Self::NotLet(not_let) => not_let.status(),
            Self::Interrupted { cluster, cause } => interrupted(cluster, cause),
            Self::Unavailable { cluster, cause } => {
                Status::service_unavailable(format!("cluster {} is unavailable: {cause}", go_quote(cluster.as_str())))
                    .with_retry_after(RETRY_AFTER)
            }
            Self::Undecided { unknown } => undecided(unknown),
            Self::NothingDeleted { troubles, is_out_of_reach } => nothing_deleted(troubles, *is_out_of_reach),
            Self::PartlyDeleted { done, first, others } => partly_deleted(done, first, others),
            Self::Untold { what, troubles } => {
                Status::service_unavailable(because(format!("no cluster has {what}"), &first(troubles, "; ")))
            }
            Self::NoDocument { troubles } => {
                let what = "no cluster can be asked for its OpenAPI document now".to_owned();
                Status::service_unavailable(because(what, &first(troubles, "; ")))
            }
            Self::ChangingDocument => Status::service_unavailable("the document changes faster than it can be read"),
            Self::DocumentNotGiven { path, causes } => {
                Status::service_unavailable(because(format!("{path} is not available"), &causes.join("; ")))
            }
            Self::DocumentNotJoined { path, cause } => {
                Status::service_unavailable(because(format!("{path} is not available"), cause))
            }
        }
    }

    /// What of it everybody may be told, where many users are served: what the clusters serve together is told to all
    /// of them, and which clusters there are is not.
    pub(super) fn without_names(self) -> Self {
        match self {
            Self::Untold { what, .. } => Self::Untold { what, troubles: Vec::new() },
            Self::NoDocument { .. } => Self::NoDocument { troubles: Vec::new() },
            Self::DocumentNotGiven { path, .. } => Self::DocumentNotGiven { path, causes: Vec::new() },
            Self::DocumentNotJoined { path, .. } => Self::DocumentNotJoined { path, cause: String::new() },
            other => other,
        }
    }

    /// See [`Refusal::is_of_request`].
    pub(super) fn is_of_request(&self) -> bool {
        match self {
            Self::Said(status) => status.code < 500 && status.code != 429,
            Self::Forward { error, .. } => error.status_code() == StatusCode::BAD_REQUEST,
            _ => false,
        }
    }

    /// See [`Refusal::is_redirect`].
    pub(super) fn is_redirect(&self) -> bool {
        matches!(self, Self::Forward { error: ForwardError::Redirect { .. }, .. })
    }
}

/// Whether a member says that it does not serve what it was asked for.
pub fn says_not_served(said: &Status) -> bool {
    said.code == 404
}

/// Whether a member that was asked for a list says something of the request itself, or of its own token: the others
/// would say the same, or never hear of the token.
pub fn says_of_list(said: &Status) -> bool {
    matches!(said.code, 400 | 410 | 422)
}

/// Whether a member forbids what it was asked for.
pub fn says_forbidden(said: &Status) -> bool {
    said.code == 403
}

/// Whether a member says that it will not answer, however often it is asked: who asks, or how, is not allowed.
pub fn says_never(said: &Status) -> bool {
    matches!(said.code, 401 | 403 | 405)
}

/// A message with its causes, if they are told.
fn because(what: String, causes: &str) -> String {
    if causes.is_empty() { what } else { format!("{what}; {causes}") }
}

/// It says since when the cluster cannot be reached, and carries the advice to come again only where the cluster has
/// certainly not acted on the request and may soon be back.
fn not_forwarded(error: &ForwardError, is_out_of_reach: bool, silent_for: Duration) -> Status {
    let code = error.status_code();
    let reason = match code {
        StatusCode::BAD_REQUEST => StatusReason::BadRequest,
        StatusCode::TOO_MANY_REQUESTS => StatusReason::TooManyRequests,
        StatusCode::SERVICE_UNAVAILABLE => StatusReason::ServiceUnavailable,
        StatusCode::GATEWAY_TIMEOUT => StatusReason::Timeout,
        _ => StatusReason::InternalError,
    };
    let mut message = error.to_string();
    if code == StatusCode::SERVICE_UNAVAILABLE && !matches!(error, ForwardError::Unreachable { .. }) {
        message.push_str(&format!("; the last answer was {} s ago", silent_for.as_secs()));
    }
    let status = Status::new(code.as_u16(), reason, message);
    let passes = matches!(code, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    match error.sent() {
        Sent::No if passes && !is_out_of_reach => status.with_retry_after(retry_after(error)),
        Sent::No | Sent::Maybe => status,
    }
}

/// When a client is to come again, in seconds: when something may have changed.
fn retry_after(error: &ForwardError) -> u32 {
    let known = error.retry_after().map_or(0, |after| after.as_millis().div_ceil(1000));
    u32::try_from(known).unwrap_or(u32::MAX).max(RETRY_AFTER)
}

fn interrupted(cluster: &ClusterName, cause: &str) -> Status {
    let message = format!(
        "cluster {}: its answer cannot be passed on: {cause}; the request may have been carried out: check before you try again",
        go_quote(cluster.as_str())
    );
    Status::new(502, StatusReason::InternalError, message)
}

fn undecided(unknown: &[String]) -> Status {
    let clusters = if unknown.is_empty() { "no cluster is configured".to_owned() } else { unknown.join("; ") };
    Status::service_unavailable(format!("the answer depends on clusters that cannot be asked now: {clusters}"))
}

fn nothing_deleted(troubles: &[Trouble], is_out_of_reach: bool) -> Status {
    let status = Status::service_unavailable(format!(
        "nothing is deleted while these clusters cannot be asked: {}; {}",
        listed(troubles),
        leaves_out("NAME"),
    ));
    if is_out_of_reach { status } else { status.with_retry_after(RETRY_AFTER) }
}

/// The request as a whole is to be sent again only if no cluster can have acted on it.
fn partly_deleted(done: &[ClusterName], first: &(ClusterName, Refusal), others: &[(ClusterName, Refusal)]) -> Status {
    let failed: Vec<_> = [first].into_iter().chain(others).map(|(cluster, own)| (cluster, own.status())).collect();
    let done_names: Vec<_> = done.iter().map(ClusterName::as_str).collect();
    let causes: Vec<_> = failed.iter().map(|(cluster, own)| format!("{cluster}: {}", own.message)).collect();
    let untouched = done.is_empty() && failed.iter().all(|(_, own)| own.retry_after_seconds().is_some());
    let mut status = first.1.status();
    status.message = format!("deleted in [{}], but not in: {}", done_names.join(", "), causes.join("; "));
    if untouched { status } else { status.without_retry_after() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn eu() -> ClusterName {
        ClusterName::new("eu").unwrap()
    }

    fn of(refusal: MemberRefusal) -> Status {
        Refusal::from(refusal).status()
    }

    #[test]
    fn what_may_have_been_carried_out_carries_no_advice_to_come_again() {
        let forward = |error: ForwardError, is_out_of_reach| {
            of(MemberRefusal::Forward { error, is_out_of_reach, silent_for: Duration::from_secs(7) })
        };
        let full = || ForwardError::Full { cluster: eu(), what: "places", limit: 3 };
        let silent = || ForwardError::HeadTimeout { cluster: eu(), after: Duration::from_secs(1) };
        let credentials = || ForwardError::Credentials { cluster: eu(), message: "none".to_owned() };
        let unauthorized = || ForwardError::Unauthorized { cluster: eu(), remedy: "renew them" };
        // A 401 is given before anything is carried out.
        let unknown = || ForwardError::UnknownSender { cluster: eu() };
        let no_endpoint = |milliseconds| ForwardError::NoEndpoint {
            cluster: eu(),
            is_chosen: true,
            left_out: Arc::new([]),
            retry_after: Duration::from_millis(milliseconds),
        };
        for (error, is_out_of_reach, code, advice) in [
            (full(), false, 429, Some(1)),
            (full(), true, 429, None),
            (credentials(), false, 503, Some(1)),
            (credentials(), true, 503, None),
            (no_endpoint(0), false, 503, Some(1)),
            (no_endpoint(6_001), false, 503, Some(7)),
            (no_endpoint(6_001), true, 503, None),
            (silent(), false, 504, None),
            (unauthorized(), false, 502, None),
            (unknown(), false, 503, Some(1)),
            (unknown(), true, 503, None),
        ] {
            let status = forward(error, is_out_of_reach);
            assert_eq!((status.code, status.retry_after_seconds()), (code, advice), "{status}");
        }
        assert!(forward(credentials(), false).message.ends_with("no credentials: none; the last answer was 7 s ago"));
        let interrupted = of(MemberRefusal::Interrupted { cluster: eu(), cause: "it broke off".to_owned() });
        assert_eq!((interrupted.code, interrupted.retry_after_seconds()), (502, None));
        assert!(
            interrupted.message.contains("\"eu\"") && interrupted.message.contains("check before"),
            "{interrupted}"
        );
    }

    #[test]
    fn what_everybody_is_told_names_nobody() {
        let troubles = || vec![Trouble { cluster: eu(), cause: "it is silent".to_owned(), age: None }];
        let causes = || vec!["eu answered 500".to_owned()];
        let (path, cause) = (|| "/openapi/v2".to_owned(), "eu and us differ".to_owned());
        for (refusal, expected) in [
            (
                MemberRefusal::Untold { what: "said its version yet", troubles: troubles() },
                "no cluster has said its version yet",
            ),
            (
                MemberRefusal::NoDocument { troubles: troubles() },
                "no cluster can be asked for its OpenAPI document now",
            ),
            (MemberRefusal::DocumentNotGiven { path: path(), causes: causes() }, "/openapi/v2 is not available"),
            (MemberRefusal::DocumentNotJoined { path: path(), cause }, "/openapi/v2 is not available"),
        ] {
            let refusal = Refusal::from(refusal);
            assert!(refusal.status().message.starts_with(&format!("{expected}; ")), "{refusal}");
            let told = refusal.without_names().status();
            assert_eq!((told.code, told.message.as_str()), (503, expected));
        }
    }

    #[test]
    fn a_deletion_is_to_be_asked_for_again_only_where_none_can_have_been_carried_out() {
        let unavailable = || (eu(), Refusal::from(MemberRefusal::unavailable(&eu(), "it is silent")));
        let broken = || {
            let refusal = MemberRefusal::Interrupted { cluster: eu(), cause: "it broke off".to_owned() };
            (eu(), Refusal::from(refusal))
        };
        for (done, others, advice) in [
            (vec![], vec![unavailable()], Some(1)),
            (vec![eu()], vec![unavailable()], None),
            (vec![], vec![broken()], None),
        ] {
            let status = of(MemberRefusal::PartlyDeleted { done, first: unavailable(), others });
            assert_eq!((status.code, status.retry_after_seconds()), (503, advice), "{status}");
            assert!(status.message.starts_with("deleted in ["), "{status}");
        }
    }
}
