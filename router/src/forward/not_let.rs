//! A cluster that does not let this endpoint act in its users' names: found in what it answers, and told apart from what
//! is the user's own to be refused.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use tributary_apimachinery::{RequestInfo, Status};

use crate::body::{self, Body};
use crate::caller::Caller;
use crate::refusal::{Beyond, MemberRefusal, NotLet, Refusal};
use crate::topology::Cluster;

/// The largest refusal that is read to find out whose fault it is, in bytes. A Status is a few hundred.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// What a kube-apiserver says of whoever may not act as another, by its authorizers' words: the verb is `impersonate`, or
/// where it takes constrained impersonation (1.36 on; KEP-5284) the one that was asked for last, such as
/// `impersonate:user-info` or `impersonate-on:user-info:list` (apiserver `pkg/endpoints/filters/impersonation/mode.go`).
const NOT_LET: [&[u8]; 3] = [b"cannot impersonate resource", b"cannot impersonate:", BEYOND];

/// What it says of an account that may not do this in another's name. It says so first of an account that may not act as
/// anybody, too.
const BEYOND: &[u8] = b"cannot impersonate-on:";

/// Which user a cluster takes somebody for. Each profile of `tributary join` lets every user ask.
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const WHO_BODY: &[u8] = br#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#;

/// What a cluster was asked in a client's name.
pub(super) struct Question<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
}

/// The answer to a request in the name of one of many users, unless the cluster says that this endpoint may not act as
/// them.
///
/// # Errors
/// 403 in the cluster's words where the user may not do it either: it would say so to them. Else 503, for that is its
/// administrator's to mend.
pub(super) async fn unless_not_let(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    question: Question<'_>,
    answer: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    if caller.rights().is_none() || caller.comes_with_own_token(&cluster.setup) {
        return Ok(answer);
    }
    let length = answer.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_short = length.is_some_and(|length: usize| length <= REFUSAL_BYTES_MAX);
    if answer.status() != StatusCode::FORBIDDEN || !is_short {
        note_lets_act(cluster, answer.status());
        return Ok(answer);
    }
    let (head, incoming) = answer.into_parts();
    let text = body::whole_up_to(incoming, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    match NOT_LET.iter().any(|said| says(&text, said)) {
        true => Err(not_let(cluster, caller, question, &text).await),
        false => Ok(Response::from_parts(head, body::full(text))),
    }
}

/// Whoever is answered with success was let act. Other answers may come from before a cluster looks who asks.
fn note_lets_act(cluster: &Cluster, status: StatusCode) {
    if !cluster.lets_act() && (status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS) {
        cluster.note_lets_act();
    }
}

fn says(text: &[u8], said: &[u8]) -> bool {
    text.windows(said.len()).any(|words| words == said)
}

/// What the client is told instead of what the cluster says of our account.
async fn not_let(cluster: &Arc<Cluster>, caller: &Caller, question: Question<'_>, text: &Bytes) -> Refusal {
    let Question { method, path, query } = question;
    let info = RequestInfo::parse(method.as_str(), path, query).ok();
    if let (Some(rights), Some(info)) = (caller.rights(), &info)
        && let Some(refusal) = rights.settled(|rights| rights.refused_by(cluster.name(), info)).await
    {
        return MemberRefusal::Said(refusal.status()).into();
    }
    let is_beyond = says(text, BEYOND) && lets_act(cluster, caller).await;
    cluster.note_not_let(&Status::from_response(StatusCode::FORBIDDEN.as_u16(), text).message, is_beyond);
    let beyond = info.as_ref().filter(|_| is_beyond).map(Beyond::of);
    MemberRefusal::NotLet(NotLet { cluster: cluster.name().clone(), beyond, is_one_of_several: false }).into()
}

/// Whether the cluster lets us act as a user at all: it is asked who that is, where it has let us act as nobody yet.
async fn lets_act(cluster: &Arc<Cluster>, caller: &Caller) -> bool {
    if !cluster.lets_act()
        && let Ok(client) = &cluster.setup.client
        && let Ok(identity) = caller.identity(&cluster.setup).await
        && let Ok(request) = Request::post(WHO)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body::full(Bytes::from_static(WHO_BODY)))
        && let Ok(answer) = client.ask(request, identity).await
    {
        note_lets_act(cluster, answer.status());
    }
    cluster.lets_act()
}
