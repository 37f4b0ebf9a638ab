//! Reviews whether a client may write an object that the client may not get. RBAC grants each verb separately, so a
//! cluster that forbids the get may have an object that the write would change.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Value, json};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::Verb;
use tributary_fleet::metrics::LookupSubject;
use tributary_sharing::limits::REVIEW_ANSWER_BYTES_MAX;

use super::answers::Answers;
use super::object_lookup::LOOKUP_TIMEOUT;
use crate::forward::lookup::{LookupRequest, LookupTimeout, Reply, look_up_in_each};
use crate::request::ClientRequest;

/// Path of access reviews (`authorization.k8s.io/v1`). RBAC allows every authenticated user to post them
/// (`system:basic-user` in apiserver's `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`).
const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Reviews the write in the clusters that forbid the get. A cluster that allows the write, or does not answer, becomes
/// an unknown cluster. Cost: one small request to each of these clusters.
pub(super) async fn review_write_in_forbidding_clusters(request: ClientRequest<'_>, answers: &mut Answers) {
    let clusters = answers.forbidden.iter().filter_map(|name| request.cluster(name)).collect();
    let verb = request.info.verb;
    for (cluster, reply) in look_up_in_each(clusters, question(request, verb)).await {
        let Some(doubt) = doubt(reply, verb) else { continue };
        answers.forbidden.retain(|name| name != cluster.name());
        match doubt {
            Doubt::Cause(cause) => answers.add_unknown(&cluster, cause),
            Doubt::NotSent(why) => answers.add_not_sent(&cluster, why),
        }
    }
}

fn question(request: ClientRequest<'_>, verb: Verb) -> LookupRequest {
    let ClientRequest { router, caller, resource, .. } = request;
    let own = &resource.resource;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": verb.as_str(), "group": own.group, "version": own.version, "resource": own.resource,
            "subresource": resource.subresource, "namespace": resource.namespace, "name": resource.name,
        }},
    });
    LookupRequest {
        path: PATH.into(),
        review: Some(Bytes::from(review.to_string())),
        accept: HeaderValue::from_static("application/json"),
        caller: caller.for_shared_lookup(),
        held_bytes: Arc::clone(router.held_bytes()),
        answer_bytes_max: REVIEW_ANSWER_BYTES_MAX,
        timeout_policy: LookupTimeout::Each(LOOKUP_TIMEOUT),
        put: router.metrics().lookups(LookupSubject::Right),
    }
}

/// Reason why a cluster that forbids the get may have the object of the write.
enum Doubt {
    /// The cluster allows the write, or does not say whether it allows the write.
    Cause(String),
    /// The cluster did not get the review.
    NotSent(Refusal),
}

/// Reads the reply to a review. `None` if the cluster forbids the write, too.
fn doubt(reply: Reply, verb: Verb) -> Option<Doubt> {
    let may_have_object = |cause| Some(Doubt::Cause(cause));
    let unknown = |why: &str| {
        may_have_object(format!(
            "the cluster forbids you to get the object, and it is unknown whether you may {verb} it: {why}"
        ))
    };
    match reply {
        Reply::Answer(code, text, _) if code.is_success() => {
            let review: Value = serde_json::from_slice(&text).unwrap_or_default();
            match review["status"]["allowed"].as_bool() {
                Some(false) => None,
                Some(true) => {
                    may_have_object(format!("the cluster forbids you to get the object, but allows you to {verb} it"))
                }
                None => unknown("the answer is not a SelfSubjectAccessReview"),
            }
        }
        Reply::Answer(code, ..) => unknown(&format!("the cluster answered {code}")),
        Reply::Forbidden(_) => unknown("the cluster forbids the access review"),
        Reply::NotSent(why) => Some(Doubt::NotSent(why)),
        Reply::Unanswered(cause) => unknown(&cause),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};
    use tributary_sharing::flow::share_key::ShareKey;

    #[test]
    fn cluster_that_forbids_get_and_write_is_treated_as_lacking_the_object() {
        let share = FairSemaphore::new("bytes", 1024, ShareMetrics::default());
        for (code, text, expected) in [
            (201, r#"{"status": {"allowed": false, "denied": true}}"#, None),
            (201, r#"{"status": {"allowed": false}}"#, None),
            (200, r#"{"status": {"allowed": true}}"#, Some("allows you to patch it")),
            (201, r#"{"status": {"allowed": "no"}}"#, Some("not a SelfSubjectAccessReview")),
            (201, r#"{"status": {}}"#, Some("not a SelfSubjectAccessReview")),
            (201, "", Some("not a SelfSubjectAccessReview")),
            (500, r#"{"status": {"allowed": false}}"#, Some("answered 500")),
            (404, "", Some("answered 404")),
        ] {
            let reservation = share.acquire(ShareKey::Unknown, 0).unwrap();
            let code = StatusCode::from_u16(code).unwrap();
            let found = doubt(Reply::Answer(code, Bytes::from_static(text.as_bytes()), reservation), Verb::Patch);
            match (found, expected) {
                (None, None) => {}
                (Some(Doubt::Cause(cause)), Some(part)) => assert!(cause.contains(part), "{text}: {cause}"),
                (found, expected) => panic!("{code} {text}: {} instead of {expected:?}", found.is_some()),
            }
        }
        let forbidden = Reply::Forbidden(Refusal::from_member_answer(StatusCode::FORBIDDEN, b"no"));
        let found = doubt(forbidden, Verb::Patch);
        assert!(matches!(found, Some(Doubt::Cause(cause)) if cause.contains("forbids the access review")));
    }
}
