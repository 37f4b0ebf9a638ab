//! Recognition of a cluster's refusal to let Tributary's account impersonate its users, in contrast to a refusal of the
//! user.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use tributary_answers::refusal::{ImpersonationForbidden, MemberRefusal, MissingPermission, Refusal};
use tributary_apimachinery::{ClusterName, rewrite};
use tributary_fleet::topology::Cluster;
use tributary_rights::SentRequest;
use tributary_sharing::body::{self, Body};
use tributary_sharing::flow::large_bodies::{at_once, yaml_conversion_cost};
use tributary_sharing::limits::REFUSAL_BYTES_MAX;

use crate::caller::Caller;

/// Permission that Tributary's account lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacking {
    /// Permission to act as the user: `impersonate`, or with constrained impersonation (1.36 on; KEP-5284) a verb such
    /// as `impersonate:user-info` (apiserver `pkg/endpoints/filters/impersonation/mode.go`).
    Impersonation,
    /// Permission for this action as the user: `impersonate-on:user-info:list`. A cluster checks this permission before
    /// the permission to impersonate.
    ThisInTheirName,
}

/// Path of SelfSubjectReviews. Each profile of `tributary join` lets every user post such reviews.
const SELF_REVIEW_PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const SELF_REVIEW_BODY: &[u8] = br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;

/// SelfSubjectReview as a request to a member.
const SELF_REVIEW_REQUEST: SentRequest<'_> = SentRequest { method: &Method::POST, path: SELF_REVIEW_PATH, query: None };

/// Checks whether an answer in shared mode is a refusal of Tributary's account.
///
/// # Errors
/// 403 with the cluster's text if the user lacks the permission, too; otherwise 503, because only an administrator of
/// the cluster can help.
pub(super) async fn check_impersonation(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    sent: &SentRequest<'_>,
    answer: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    // An impersonator may be limited to some users on purpose, as in Karmada. Its refusal is the member's answer.
    if caller.rights().is_none() || caller.has_own_token(&cluster.setup) || caller.is_by_impersonator(&cluster.setup) {
        return Ok(answer);
    }
    let length = answer.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_short = length.is_some_and(|length: usize| length <= REFUSAL_BYTES_MAX);
    if answer.status() != StatusCode::FORBIDDEN || !is_short {
        record_impersonation(cluster, answer.status());
        return Ok(answer);
    }
    Box::pin(check_refusal(cluster, caller, sent, answer)).await
}

/// Checks a 403 whose body is short enough to read it into memory.
async fn check_refusal(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    sent: &SentRequest<'_>,
    answer: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    let (head, incoming) = answer.into_parts();
    let text = body::whole_up_to(incoming, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    // A workload behind a service proxy may answer in YAML.
    match at_once(yaml_conversion_cost(text.len()), || missing_permission(sent, cluster.name(), &text)) {
        Some(lacking) => Err(refuse(cluster, caller, sent, lacking, &text).await),
        None => Ok(Response::from_parts(head, body::full(text))),
    }
}

/// Records that the cluster lets Tributary's account impersonate, if the answer is a success. Other answers prove
/// nothing: the cluster may send them before it checks the right to impersonate.
fn record_impersonation(cluster: &Cluster, status: StatusCode) {
    if !cluster.allows_impersonation() && (status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS) {
        cluster.record_impersonation_allowed();
    }
}

/// Reads from a refusal of kube-apiserver which permission Tributary's account lacks; `None` if the refusal has a
/// different reason.
fn missing_permission(sent: &SentRequest<'_>, cluster: &ClusterName, text: &[u8]) -> Option<Lacking> {
    let message = rewrite::status_message(text)?;
    let verb = refused_verb(&message)?;
    let lacking = match verb.strip_prefix("impersonate")? {
        "" => Lacking::Impersonation,
        mode if mode.starts_with(':') => Lacking::Impersonation,
        mode if mode.starts_with("-on:") => Lacking::ThisInTheirName,
        _ => return None,
    };
    // The message begins with the resource in the path, and may contain text of the client. A resource with special
    // characters could imitate the rest of the message, but no such resource exists.
    let info = sent.info(cluster).ok()?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let is_named_plainly =
        info.resource().is_none_or(|request| is_plain(&request.resource.resource) && is_plain(&request.resource.group));
    is_named_plainly.then_some(lacking)
}

/// Reads the refused verb from a message: `pods "x" is forbidden: User "ann" cannot VERB …`. A request without a name
/// has no quoted name, and a non-resource path has only `forbidden: ` before `User`. Names are quoted as in Go, so a
/// name cannot look like a part of the message. (apimachinery `NewForbidden`, apiserver `forbiddenMessage`)
fn refused_verb(message: &str) -> Option<&str> {
    let cause = match message.strip_prefix("forbidden: ") {
        Some(cause) => cause,
        None => {
            let (_resource, rest) = message.split_once(' ')?;
            let rest = skip_quoted(rest).map_or(Some(rest), |rest| rest.strip_prefix(' '))?;
            rest.strip_prefix("is forbidden: ")?
        }
    };
    let rest = skip_quoted(cause.strip_prefix("User ")?)?.strip_prefix(" cannot ")?;
    rest.split(' ').next()
}

/// Returns the remainder after a Go-quoted text; `None` without a quoted text.
fn skip_quoted(text: &str) -> Option<&str> {
    let quoted = text.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = quoted.find(|letter| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    })?;
    Some(&quoted[end + 1..])
}

/// Makes the refusal for the client, after the cluster has refused Tributary's account.
async fn refuse(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    sent: &SentRequest<'_>,
    lacking: Lacking,
    text: &Bytes,
) -> Refusal {
    let info = sent.info(cluster.name()).ok();
    if let (Some(rights), Some(info)) = (caller.rights(), &info)
        && let Some(refusal) = rights.decide_after_reviews(|rights| rights.refused_by(cluster.name(), info)).await
    {
        return MemberRefusal::MemberStatus(refusal.status()).into();
    }
    let is_beyond = lacking == Lacking::ThisInTheirName && probe_impersonation(cluster, caller).await;
    let missing_permission = info.as_ref().filter(|_| is_beyond).map(MissingPermission::from_request);
    cluster.record_impersonation_forbidden(
        &rewrite::status_message(text).unwrap_or_default(),
        missing_permission.as_ref(),
    );
    MemberRefusal::ImpersonationForbidden(ImpersonationForbidden {
        cluster: cluster.name().clone(),
        missing_permission,
        is_one_of_several: false,
    })
    .into()
}

/// Returns whether the cluster lets Tributary impersonate any user. Without an earlier success, sends a
/// SelfSubjectReview as the user.
async fn probe_impersonation(cluster: &Arc<Cluster>, caller: &Caller) -> bool {
    if !cluster.allows_impersonation()
        && let Ok(client) = &cluster.setup.client
        && let Ok(identity) = caller.identity(&cluster.setup, &SELF_REVIEW_REQUEST).await
        && let Ok(request) = Request::post(SELF_REVIEW_PATH)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body::full(Bytes::from_static(SELF_REVIEW_BODY)))
        && let Ok(answer) = client.send_own_request(request, identity).await
    {
        record_impersonation(cluster, answer.status());
    }
    cluster.allows_impersonation()
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::Status;

    use super::*;

    #[test]
    fn text_of_a_403_distinguishes_tributarys_account_from_the_user() {
        let cluster = ClusterName::new("a").unwrap();
        let pod = "/api/v1/namespaces/n/pods/x";
        let secrets = "/api/v1/namespaces/n/secrets?labelSelector=x";
        let odd = "/api/v1/namespaces/n/x%20is%20forbidden:%20User%20%22a%22%20cannot%20impersonate%20b";
        for (path, message, expected) in [
            (
                pod,
                r#"users "ann" is forbidden: User "tributary" cannot impersonate resource "users" in API group "" at the cluster scope"#,
                Some(Lacking::Impersonation),
            ),
            (
                pod,
                r#"users "ann" is forbidden: User "tributary" cannot impersonate:user-info resource "users""#,
                Some(Lacking::Impersonation),
            ),
            (
                pod,
                r#"pods "x" is forbidden: User "tributary" cannot impersonate-on:user-info:get resource "pods""#,
                Some(Lacking::ThisInTheirName),
            ),
            (
                "/metrics",
                r#"forbidden: User "tributary" cannot impersonate-on:user-info:get path "/metrics""#,
                Some(Lacking::ThisInTheirName),
            ),
            (
                pod,
                r#"pods is forbidden: User "tributary" cannot impersonate-on:user-info:list resource "pods""#,
                Some(Lacking::ThisInTheirName),
            ),
            // The path of Tributary's own requests contains the query.
            (
                secrets,
                r#"secrets is forbidden: User "tributary" cannot impersonate-on:user-info:list resource "secrets""#,
                Some(Lacking::ThisInTheirName),
            ),
            (secrets, r#"secrets is forbidden: User "ann" cannot list resource "secrets""#, None),
            // Refusals of the user with any name and cause. They must not look like refusals of Tributary's account.
            (pod, r#"pods "cannot impersonate:" is forbidden: User "ann" cannot get resource "pods""#, None),
            (
                pod,
                r#"pods "x\" is forbidden: User \"a\" cannot impersonate resource" is forbidden: User "ann" cannot get resource "pods""#,
                None,
            ),
            (pod, r#"pods "x\\" is forbidden: User "\" cannot impersonate " cannot get resource "pods""#, None),
            (
                pod,
                r#"pods is forbidden: User "ann" cannot list resource "pods": you cannot impersonate resource "x""#,
                None,
            ),
            (pod, r#"pods "x" is forbidden: quota exceeded: User "ann" cannot impersonate more"#, None),
            (
                odd,
                r#"x is forbidden: User "a" cannot impersonate b is forbidden: User "ann" cannot list resource"#,
                None,
            ),
            (pod, "cannot impersonate resource", None),
            (pod, "", None),
        ] {
            let sent = SentRequest { method: &Method::GET, path, query: None };
            let status = Status { message: message.to_owned(), ..Status::forbidden(None, "", "") };
            let text = serde_json::to_vec(&status).unwrap();
            assert_eq!(missing_permission(&sent, &cluster, &text), expected, "{message}");
        }
        let sent = SentRequest { method: &Method::GET, path: pod, query: None };
        assert_eq!(missing_permission(&sent, &cluster, b"cannot impersonate resource"), None);
    }
}
