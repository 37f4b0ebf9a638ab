//! Whom a member's 401 is about: us, or somebody behind the member.
//!
//! kube-apiserver passes on what others answer: a kubelet's refusal of its client certificate to `log`, `exec`,
//! `attach` and `portforward` (apiserver's `registry/generic/rest/response_checker.go`, and the raw answer of an
//! upgrade), an aggregated server's (kube-aggregator's `handler_proxy.go`), a workload's behind `proxy`. Neither path
//! nor text tells them apart: every server that is built on apiserver's library writes the same Status, and our own
//! credentials can expire before a `log` as before anything else. So a question of our own decides, to a path that
//! kube-apiserver answers itself and that nobody may read without an identity. It is put to the endpoint that gave the
//! 401: each kube-apiserver remembers for some seconds by itself whom it has known (10 s: `TokenSuccessCacheTTL` in
//! Kubernetes' `pkg/kubeapiserver/options/authentication.go`), so that another one may still know who is known no more.

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use tokio::time::{Duration, Instant, timeout};
use tributary_apimachinery::RequestInfo;
use tributary_apimachinery::body::{self, Body};

use crate::credentials::Current;
use crate::credentials::last_question::LastCheck;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::own_question::{Answered, ask};
use crate::forward::speaker::Speaker;
use crate::member::ClientInner;

/// What is asked: `/version` may be answered to anybody by what stands before a kube-apiserver.
const OWN_PATH: &str = "/api";
/// How long the member may take over it. A client waits meanwhile; without an answer the 401 is taken by its own words.
const OWN_WITHIN: Duration = Duration::from_secs(10);
/// For how long what the member said is taken for true: a workload that refuses a browser's every
/// request costs it one question a second.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// The longest answer that is looked into. kube-apiserver's own 401 has 129 bytes as JSON.
const OWN_BYTES_MAX: usize = 512;

/// What kube-apiserver's own 401 has, as JSON, YAML and protobuf (`Unauthorized` in apiserver's
/// `pkg/endpoints/filters/authentication.go`). What admission refuses with 401 has a text that says so.
const OWN_WORDS: [&[u8]; 3] = [br#""message":"Unauthorized""#, b"message: Unauthorized", b"\x1a\x0cUnauthorized"];

/// Whom a 401 is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The member rejects the credentials that the request was sent with.
    Us,
    /// The credentials were replaced meanwhile, so that it cannot be told: a question of our own is put with others.
    Replaced,
    /// Somebody behind the member: the answer is the client's.
    Others,
}

/// Who gave a 401; among the answer's extensions.
#[derive(Clone)]
struct GivenBy(Arc<Endpoint>);

/// Has a 401 say which endpoint it is of.
pub(crate) fn note_endpoint<B>(response: &mut Response<B>, endpoint: &Arc<Endpoint>) {
    if response.status() == StatusCode::UNAUTHORIZED {
        response.extensions_mut().insert(GivenBy(Arc::clone(endpoint)));
    }
}

/// Whether a 401 says that a kube-apiserver did not know who asked, whatever it knows now: to a path that it answers
/// itself, and in its own words. Of several kube-apiservers each hears of a new token in its own time, and accepts it a
/// moment after it has rejected it. The answer is left as it is.
///
/// Cancel: the answer's body is lost.
pub(crate) async fn is_of_kube_apiserver(method: &Method, uri: &Uri, response: &mut Response<Body>) -> bool {
    let is_own_path = RequestInfo::parse(method.as_str(), uri.path(), uri.query()).is_ok_and(|info| {
        info.resource().is_some_and(|request| request.resource.is_built_in() && !request.is_opaque())
    });
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if !is_own_path || length.is_none_or(|length| length > OWN_BYTES_MAX) {
        return false;
    }
    let body = std::mem::replace(response.body_mut(), body::empty());
    // What breaks off is nobody's words.
    let Ok(Ok(read)) = timeout(OWN_WITHIN, body.collect()).await else { return true };
    let read = read.to_bytes();
    let is_own = OWN_WORDS.iter().any(|words| read.windows(words.len()).any(|part| part == *words));
    *response.body_mut() = body::full(read);
    is_own
}

impl ClientInner {
    /// Finds out whom the 401 to a request with these credentials is about; of an answer that says who gave it.
    pub(crate) async fn about_answer<B>(self: &Arc<Self>, used: &Arc<Current>, response: &mut Response<B>) -> About {
        match response.extensions_mut().remove::<GivenBy>() {
            Some(GivenBy(endpoint)) => self.about(used, &endpoint).await,
            None => About::Others,
        }
    }

    /// Finds out whom the 401 of this endpoint to a request with these credentials is about. One caller at a time asks,
    /// and those who waited share the answer.
    pub(crate) async fn about(self: &Arc<Self>, used: &Arc<Current>, endpoint: &Arc<Endpoint>) -> About {
        let mut last = self.last_question.0.lock().await;
        let is_recent = |asked: &&LastCheck| {
            asked.at.elapsed() < BELIEVED_FOR
                && asked.with.is_same(used)
                && std::ptr::eq(asked.at_endpoint.as_ptr(), Arc::as_ptr(endpoint))
        };
        if let Some(asked) = last.as_ref().filter(is_recent) {
            return if asked.rejected { About::Us } else { About::Others };
        }
        let at_endpoint = Arc::downgrade(endpoint);
        let asked = timeout(OWN_WITHIN, self.ask_for_ourselves(endpoint)).await.ok().flatten();
        let Some((status, with)) = asked else {
            // Those who wait do not ask again one after the other.
            *last = Some(LastCheck { at: Instant::now(), with: Arc::clone(used), at_endpoint, rejected: false });
            return About::Others;
        };
        let about = match status {
            _ if !with.is_same(used) => About::Replaced,
            StatusCode::UNAUTHORIZED => About::Us,
            _ => About::Others,
        };
        *last = Some(LastCheck { at: Instant::now(), with, at_endpoint, rejected: status == StatusCode::UNAUTHORIZED });
        about
    }

    /// The status of an endpoint's answer to a question of our own, and the credentials that it was asked with.
    async fn ask_for_ourselves(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> Option<(StatusCode, Arc<Current>)> {
        let user = self.user.load_full();
        let with = self.credentials(&user).await.ok()?;
        let Answered { status, .. } = ask(self, endpoint, &with, &user, &Uri::from_static(OWN_PATH)).await.ok()?;
        endpoint.spoke(Speaker::of(status));
        endpoint.gave(status);
        Some((status, with))
    }
}
