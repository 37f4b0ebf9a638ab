//! Whether a client may write what it may not get: RBAC grants each verb by itself, so that a cluster which forbids to
//! look for a name may have an object of it that the write would change.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Value, json};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::Verb;
use tributary_fleet::metrics::QuestionAbout;
use tributary_sharing::limits::REVIEW_ANSWER_BYTES_MAX;

use super::{ASKED_WITHIN, Located};
use crate::forward::ask::{Patience, Question, Reply, ask_each};
use crate::request::ClientRequest;

/// Where such reviews are posted (`authorization.k8s.io/v1`; apiserver's RBAC lets every authenticated user:
/// `system:basic-user` in `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`).
const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Asks the clusters that forbid to get the name whether they forbid the write, too, where one other cluster has an
/// object of it. Those that do not, or do not say, are unknown from then on. Costs each of them one small request
/// beside the one that it has refused; a write of a name that several have, or none, is refused without.
pub(super) async fn ask_forbidding_clusters(request: ClientRequest<'_>, mut located: Located) -> Located {
    if located.found.len() != 1 || located.forbidden.is_empty() {
        return located;
    }
    let clusters = located.forbidden.iter().filter_map(|name| request.cluster(name)).collect();
    let verb = request.info.verb;
    for (cluster, reply) in ask_each(clusters, question(request, verb)).await {
        let doubt = doubt(reply, verb);
        if doubt.is_some() {
            located.forbidden.retain(|name| name != cluster.name());
        }
        match doubt {
            None => {}
            Some(Doubt::Told(cause)) => located.not_told(&cluster, cause),
            Some(Doubt::NotPut(why)) => located.not_asked(&cluster, why),
        }
    }
    located
}

/// One SelfSubjectAccessReview of the write, in the client's name.
fn question(request: ClientRequest<'_>, verb: Verb) -> Question {
    let ClientRequest { router, caller, resource, .. } = request;
    let own = &resource.resource;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": verb.as_str(), "group": own.group, "version": own.version, "resource": own.resource,
            "subresource": resource.subresource, "namespace": resource.namespace, "name": resource.name,
        }},
    });
    Question {
        path: PATH.into(),
        review: Some(Bytes::from(review.to_string())),
        accept: HeaderValue::from_static("application/json"),
        caller: caller.of_shared_question(),
        held_bytes: Arc::clone(router.held_bytes()),
        answer_bytes_max: REVIEW_ANSWER_BYTES_MAX,
        patience: Patience::Each(ASKED_WITHIN),
        put: router.metrics().questions(QuestionAbout::Right),
    }
}

/// Why a cluster that forbids to get a name may have it for the write.
enum Doubt {
    /// By what it said, or did not.
    Told(String),
    /// It was not asked.
    NotPut(Refusal),
}

/// `None` where it forbids the write, too.
fn doubt(reply: Reply, verb: Verb) -> Option<Doubt> {
    let told = |cause| Some(Doubt::Told(cause));
    let unknown = |why: &str| told(format!("it forbids to get it, and does not say whether you may {verb} it: {why}"));
    match reply {
        Reply::Answer(code, text, _) if code.is_success() => {
            let review: Value = serde_json::from_slice(&text).unwrap_or_default();
            match review["status"]["allowed"].as_bool() {
                Some(false) => None,
                Some(true) => told(format!("it forbids to get it, and allows to {verb} it")),
                None => unknown("its answer is no SelfSubjectAccessReview"),
            }
        }
        Reply::Answer(code, ..) => unknown(&format!("it answered {code}")),
        Reply::Forbidden(_) => unknown("it forbids to ask for that"),
        Reply::NotPut(why) => Some(Doubt::NotPut(why)),
        Reply::Unanswered(cause) => unknown(&cause),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};
    use tributary_sharing::flow::holder::Holder;

    #[test]
    fn only_a_plain_no_is_none() {
        let share = FairSemaphore::new("bytes", 1024, ShareMetrics::default());
        for (code, text, expected) in [
            (201, r#"{"status": {"allowed": false, "denied": true}}"#, None),
            (201, r#"{"status": {"allowed": false}}"#, None),
            (200, r#"{"status": {"allowed": true}}"#, Some("allows to patch it")),
            (201, r#"{"status": {"allowed": "no"}}"#, Some("no SelfSubjectAccessReview")),
            (201, r#"{"status": {}}"#, Some("no SelfSubjectAccessReview")),
            (201, "", Some("no SelfSubjectAccessReview")),
            (500, r#"{"status": {"allowed": false}}"#, Some("answered 500")),
            (404, "", Some("answered 404")),
        ] {
            let room = share.acquire(Holder::Unknown, 0).unwrap();
            let code = StatusCode::from_u16(code).unwrap();
            let said = doubt(Reply::Answer(code, Bytes::from_static(text.as_bytes()), room), Verb::Patch);
            match (said, expected) {
                (None, None) => {}
                (Some(Doubt::Told(said)), Some(part)) => assert!(said.contains(part), "{text}: {said}"),
                (said, expected) => panic!("{code} {text}: {} instead of {expected:?}", said.is_some()),
            }
        }
        let forbidden = Reply::Forbidden(Refusal::from_member_answer(StatusCode::FORBIDDEN, b"no"));
        let said = doubt(forbidden, Verb::Patch);
        assert!(matches!(said, Some(Doubt::Told(said)) if said.contains("forbids to ask")));
    }
}
