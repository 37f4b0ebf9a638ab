//! Access reviews and rules reviews that Tributary sends to a cluster with its own credentials.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tributary_apimachinery::json::null_is_default;
use tributary_authentication::UserInfo;
use tributary_authorization::{Attributes, ResourceAttributes, RulesReview};
use tributary_proxy::Transport;
use tributary_sharing::body;

use super::subject::review_spec;

/// Time limit for a cluster's answer to a review. 5 s: kube-apiserver decides from memory, and an authorization webhook
/// may need some seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Maximum size of a cluster's answer in bytes. 4 MiB hold a SelfSubjectRulesReview of an account with ten thousand
/// rules.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Reason for which an access review has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccessReviewError {
    /// The cluster forbids the review (403), or does not serve the review's resource (404 or 405).
    ReviewsForbidden { resource: &'static str, code: u16 },
    /// The cluster is unreachable, or its answer is not usable. A later review may succeed.
    Unavailable,
}

/// Sends a SelfSubjectReview. Returns Tributary's own account.
///
/// # Errors
/// [`AccessReviewError`].
pub(super) async fn own_account(transport: Transport) -> Result<UserInfo, AccessReviewError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Answer {
        #[serde(deserialize_with = "null_is_default")]
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        #[serde(deserialize_with = "null_is_default")]
        user_info: UserInfo,
    }
    let text =
        send_review(transport, ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"), Value::Null)
            .await?;
    let answer: Answer = serde_json::from_slice(&text).map_err(|_| AccessReviewError::Unavailable)?;
    Ok(answer.status.user_info)
}

/// Sends a SelfSubjectRulesReview for the rules of Tributary's own account in a namespace.
///
/// # Errors
/// [`AccessReviewError`] if the cluster gives no result.
pub(super) async fn own_rules(transport: Transport, namespace: &str) -> Result<RulesReview, AccessReviewError> {
    let of = ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview");
    let text = send_review(transport, of, json!({"namespace": namespace})).await?;
    RulesReview::parse(&text).map_err(|_| AccessReviewError::Unavailable)
}

/// Sends a SubjectAccessReview. Returns whether the cluster allows the subject to make the request.
///
/// # Errors
/// [`AccessReviewError`] if the cluster gives no result.
pub(super) async fn access(
    transport: Transport,
    user: &UserInfo,
    requested: &Attributes<'_>,
) -> Result<bool, AccessReviewError> {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
    }
    let mut spec = review_spec(user);
    match requested {
        Attributes::Resource(requested) => {
            let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = requested;
            // An empty `version` is valid: in a SubjectAccessReview it stands for all versions.
            spec["resourceAttributes"] = json!({"verb": verb, "group": group, "version": version, "resource": resource,
                "subresource": subresource, "namespace": namespace, "name": name});
        }
        Attributes::NonResource { verb, path } => spec["nonResourceAttributes"] = json!({"verb": verb, "path": path}),
    }
    let of = ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview");
    let text = send_review(transport, of, spec).await?;
    serde_json::from_slice(&text)
        .map(|answer: Answer| answer.status.allowed)
        .map_err(|_| AccessReviewError::Unavailable)
}

async fn send_review(
    transport: Transport,
    (group, resource, kind): (&str, &'static str, &str),
    spec: Value,
) -> Result<Bytes, AccessReviewError> {
    let mut review = json!({"apiVersion": format!("{group}/v1"), "kind": kind});
    if !spec.is_null() {
        review["spec"] = spec;
    }
    let request = Request::post(format!("/apis/{group}/v1/{resource}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(body::full(review.to_string().into_bytes()))
        .map_err(|_| AccessReviewError::Unavailable)?;
    let answer = tokio::time::timeout(ANSWER_WITHIN, async {
        let answer = body::send(transport, request).await?;
        let code = answer.status();
        body::whole_up_to(answer.into_body(), ANSWER_BYTES_MAX).await.map(|text| (code, text))
    });
    match answer.await {
        Ok(Ok((StatusCode::CREATED | StatusCode::OK, text))) => Ok(text),
        Ok(Ok((code @ (StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED), _))) => {
            Err(AccessReviewError::ReviewsForbidden { resource, code: code.as_u16() })
        }
        _ => Err(AccessReviewError::Unavailable),
    }
}
