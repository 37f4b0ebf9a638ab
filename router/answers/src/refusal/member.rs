//! Refusals because clusters return errors or no answers.
//!
//! client-go repeats a request up to ten times, with its body, if the answer is a 429 or 5xx with Retry-After
//! (`checkWait` in client-go's `rest/with_retry.go`). So Retry-After is set only if the cluster has certainly not acted
//! on the request.

use std::fmt::Display;
use std::time::Duration;

use http::StatusCode;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, Door, Status, StatusReason};
use tributary_proxy::{ForwardError, Sent};

use super::account::ImpersonationForbidden;
use super::wording::{first, leaves_out, listed};
use super::{ClusterFailure, Refusal};

/// Retry-After in seconds for an unreachable cluster.
const RETRY_AFTER: u32 = 1;

/// Failure of one or several members to answer a request.
#[derive(Clone, Debug)]
pub enum MemberRefusal {
    /// The error that a cluster returned. Tributary passes its code and reason on unchanged.
    MemberStatus(Status),
    /// A cluster forbids the user to impersonate the requested user: 403 with the cluster's text. Tributary excludes
    /// the cluster from the request.
    ForbidsImpersonation(Status),
    /// A cluster gave no answer to a forwarded request: 429, 500, 502, 503 or 504 by [`ForwardError::status_code`], or
    /// 400 if the client caused the failure.
    Forward {
        /// Cause of the failure.
        error: ForwardError,
        /// True if the cluster is known to be unreachable, so that a retry would fail as well.
        is_out_of_reach: bool,
        /// Time since the cluster's last answer, or since its configuration if the cluster has never answered.
        silent_for: Duration,
    },
    /// The configuration of the cluster forbids requests to the cluster: 503.
    RequestsForbidden(ClusterFailure),
    /// A cluster forbids Tributary's account to make the request in the user's name: 503.
    ImpersonationForbidden(ImpersonationForbidden),
    /// The cluster's answer broke off, took too long or is too large: 502. The cluster may have acted.
    Interrupted {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Cause of the interruption, for people.
        cause: String,
    },
    /// A cluster does not answer a lookup or review that the request depends on: 503. The lookup changes nothing in the
    /// cluster.
    Unavailable {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Reason, for people.
        cause: String,
    },
    /// The caller's rights depend on clusters that do not answer: 503 without Retry-After, because Tributary has
    /// already retried.
    Undecided {
        /// Unreachable clusters with causes; empty if no cluster is configured.
        unknown: Vec<String>,
    },
    /// A deletion of a collection cannot reach all clusters, so Tributary deletes no object: 503.
    NothingDeleted {
        /// Unreachable clusters, with reasons.
        failures: Vec<ClusterFailure>,
        /// True if a cluster is known to be unreachable, so that an early retry is in vain.
        is_lasting: bool,
    },
    /// A deletion of a collection failed in some clusters. The code comes from the first cluster that failed.
    PartlyDeleted {
        /// The clusters that completed the deletion.
        done: Vec<ClusterName>,
        /// The first cluster whose deletion failed, and the reason.
        first: (ClusterName, Refusal),
        /// All other clusters whose deletions failed, and the reasons.
        others: Vec<(ClusterName, Refusal)>,
    },
    /// No cluster has yet reported a fact that the answer needs, for example its version: 503.
    Unreported {
        /// The missing fact, as the end of the message `no cluster has …`: for example `reported its version yet`.
        what: &'static str,
        /// Clusters that have not reported the fact, with reasons.
        failures: Vec<ClusterFailure>,
    },
    /// No cluster can be queried for its OpenAPI document: 503.
    NoDocument {
        /// Clusters that cannot be queried, with reasons.
        failures: Vec<ClusterFailure>,
    },
    /// An OpenAPI document changes faster than it can be read: 503.
    ChangingDocument,
    /// No cluster returned an OpenAPI document that at least one cluster has: 503.
    DocumentNotGiven {
        /// Path of the document.
        path: String,
        /// Causes, one for each cluster.
        causes: Vec<String>,
    },
    /// Tributary cannot merge the OpenAPI documents of the clusters: 503.
    DocumentNotJoined {
        /// Path of the documents.
        path: String,
        /// Reason, for people.
        cause: String,
    },
}

impl MemberRefusal {
    /// Refuses a request because its only cluster does not answer.
    pub fn unavailable(cluster: &ClusterName, cause: impl Display) -> Self {
        Self::Unavailable { cluster: cluster.clone(), cause: cause.to_string() }
    }

    pub(super) fn status_at(&self, door: Door) -> Status {
        let mut status = self.status();
        let is_down = match self {
            Self::Forward { error, .. } => error.has_no_connection(),
            Self::Unavailable { .. } => true,
            _ => false,
        };
        // KubeVela recognizes an unreachable cluster by this text of Go's `net` package.
        if is_down && door == Door::ClusterGateway {
            status.message = format!("dial tcp: {}", status.message);
        }
        status
    }

    fn status(&self) -> Status {
        match self {
            Self::MemberStatus(status) | Self::ForbidsImpersonation(status) => status.clone(),
            Self::Forward { error, is_out_of_reach, silent_for } => not_forwarded(error, *is_out_of_reach, *silent_for),
            Self::RequestsForbidden(failure) => Status::service_unavailable(format!("cluster {failure}")),
            Self::ImpersonationForbidden(impersonation_forbidden) => impersonation_forbidden.status(),
            Self::Interrupted { cluster, cause } => interrupted(cluster, cause),
            Self::Unavailable { cluster, cause } => {
                Status::service_unavailable(format!("cluster {} is unavailable: {cause}", go_quote(cluster.as_str())))
                    .with_retry_after(RETRY_AFTER)
            }
            Self::Undecided { unknown } => undecided(unknown),
            Self::NothingDeleted { failures, is_lasting } => nothing_deleted(failures, *is_lasting),
            Self::PartlyDeleted { done, first, others } => partly_deleted(done, first, others),
            Self::Unreported { what, failures } => {
                Status::service_unavailable(because(format!("no cluster has {what}"), &first(failures, "; ")))
            }
            Self::NoDocument { failures } => {
                let what = "no cluster can be queried for its OpenAPI document now".to_owned();
                Status::service_unavailable(because(what, &first(failures, "; ")))
            }
            Self::ChangingDocument => {
                Status::service_unavailable("the document changes faster than it can be read; try again")
            }
            Self::DocumentNotGiven { path, causes } => {
                Status::service_unavailable(because(format!("{path} is not available"), &causes.join("; ")))
            }
            Self::DocumentNotJoined { path, cause } => {
                Status::service_unavailable(because(format!("{path} is not available"), cause))
            }
        }
    }

    /// Removes the names of clusters, because in shared mode not every user may know all clusters.
    pub(super) fn without_names(self) -> Self {
        match self {
            Self::Unreported { what, .. } => Self::Unreported { what, failures: Vec::new() },
            Self::NoDocument { .. } => Self::NoDocument { failures: Vec::new() },
            Self::DocumentNotGiven { path, .. } => Self::DocumentNotGiven { path, causes: Vec::new() },
            Self::DocumentNotJoined { path, .. } => Self::DocumentNotJoined { path, cause: String::new() },
            other => other,
        }
    }

    pub(super) fn is_about_request(&self) -> bool {
        match self {
            Self::MemberStatus(status) => status.code < 500 && status.code != 429,
            Self::Forward { error, .. } => error.status_code() == StatusCode::BAD_REQUEST,
            _ => false,
        }
    }

    pub(super) fn is_redirect(&self) -> bool {
        matches!(self, Self::Forward { error: ForwardError::Redirect { .. }, .. })
    }
}

/// Returns whether a cluster's Status means that the cluster does not serve the resource.
pub fn is_unserved_by_status(status: &Status) -> bool {
    status.code == 404
}

/// Returns whether a cluster's error about a list concerns the request or the continue token. Other clusters would
/// return the same error, or cannot decode the token.
pub fn is_list_error(status: &Status) -> bool {
    matches!(status.code, 400 | 410 | 422)
}

/// Returns whether a cluster's Status forbids the request: 403.
pub fn is_forbidden_by_status(status: &Status) -> bool {
    status.code == 403
}

/// Returns whether a retry would fail as well, because the cluster forbids the user or the method.
pub fn is_permanent_error(status: &Status) -> bool {
    matches!(status.code, 401 | 403 | 405)
}

fn because(what: String, causes: &str) -> String {
    if causes.is_empty() { what } else { format!("{what}; {causes}") }
}

/// Makes the Status of a forwarded request that got no answer. A 503 contains the time since the cluster's last answer.
/// The Status has Retry-After only if the cluster has certainly not acted on the request and may soon be reachable
/// again.
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

/// Returns Retry-After in seconds: the time after which Tributary may try the cluster again, at least `RETRY_AFTER`.
fn retry_after(error: &ForwardError) -> u32 {
    let known = error.retry_after().map_or(0, |after| after.as_millis().div_ceil(1000));
    u32::try_from(known).unwrap_or(u32::MAX).max(RETRY_AFTER)
}

fn interrupted(cluster: &ClusterName, cause: &str) -> Status {
    let message = format!(
        "cluster {}: the answer cannot be forwarded: {cause}; the request may have been carried out: check before you \
         try again",
        go_quote(cluster.as_str())
    );
    Status::new(502, StatusReason::InternalError, message)
}

fn undecided(unknown: &[String]) -> Status {
    let clusters = if unknown.is_empty() { "no cluster is configured".to_owned() } else { unknown.join("; ") };
    Status::service_unavailable(format!("the answer depends on clusters that cannot be queried now: {clusters}"))
}

fn nothing_deleted(failures: &[ClusterFailure], is_lasting: bool) -> Status {
    let status = Status::service_unavailable(format!(
        "nothing is deleted while these clusters cannot be queried: {}; {}",
        listed(failures),
        leaves_out("NAME"),
    ));
    if is_lasting { status } else { status.with_retry_after(RETRY_AFTER) }
}

/// Makes the Status of a deletion that failed in some clusters. Sets Retry-After only if no cluster can have acted on
/// the deletion.
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
    fn possibly_processed_request_gets_no_retry_after() {
        let forward = |error: ForwardError, is_out_of_reach| {
            of(MemberRefusal::Forward { error, is_out_of_reach, silent_for: Duration::from_secs(7) })
        };
        let full = || ForwardError::Full { cluster: eu(), what: "places", limit: 3 };
        let silent = || ForwardError::HeadTimeout { cluster: eu(), after: Duration::from_secs(1) };
        let credentials = || ForwardError::Credentials { cluster: eu(), message: "none".to_owned() };
        let unauthorized = || ForwardError::Unauthorized { cluster: eu(), remedy: "renew them" };
        // kube-apiserver answers 401 before it executes a request, so Retry-After is safe.
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
    fn refusal_because_of_an_unreachable_cluster_has_the_text_that_kubevela_looks_for() {
        let forward =
            |error| MemberRefusal::Forward { error, is_out_of_reach: true, silent_for: Duration::from_secs(7) };
        let down = ForwardError::Unreachable { cluster: eu(), reason: "refused".into(), age: Duration::from_secs(1) };
        let silent = ForwardError::HeadTimeout { cluster: eu(), after: Duration::from_secs(1) };
        for (refusal, expected) in [
            (forward(down), true),
            (MemberRefusal::unavailable(&eu(), "refused"), true),
            (forward(silent), false),
            (MemberRefusal::ChangingDocument, false),
        ] {
            let refusal = Refusal::from(refusal);
            assert_eq!(refusal.status_at(Door::ClusterGateway).message.contains("dial tcp"), expected, "{refusal:?}");
            assert!(!refusal.status().message.contains("dial tcp"));
        }
    }

    #[test]
    fn refusal_without_names_mentions_no_cluster() {
        let failures = || vec![ClusterFailure { cluster: eu(), cause: "it is silent".to_owned(), age: None }];
        let causes = || vec!["eu answered 500".to_owned()];
        let (path, cause) = (|| "/openapi/v2".to_owned(), "eu and us differ".to_owned());
        for (refusal, expected) in [
            (
                MemberRefusal::Unreported { what: "reported its version yet", failures: failures() },
                "no cluster has reported its version yet",
            ),
            (
                MemberRefusal::NoDocument { failures: failures() },
                "no cluster can be queried for its OpenAPI document now",
            ),
            (MemberRefusal::DocumentNotGiven { path: path(), causes: causes() }, "/openapi/v2 is not available"),
            (MemberRefusal::DocumentNotJoined { path: path(), cause }, "/openapi/v2 is not available"),
        ] {
            let refusal = Refusal::from(refusal);
            assert!(refusal.status().message.starts_with(&format!("{expected}; ")), "{refusal}");
            let status = refusal.without_names().status();
            assert_eq!((status.code, status.message.as_str()), (503, expected));
        }
    }

    #[test]
    fn failed_deletion_gets_retry_after_only_if_no_cluster_deleted() {
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
