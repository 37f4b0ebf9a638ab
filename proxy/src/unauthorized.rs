//! Whom a member's 401 is about: us, or somebody behind the member.
//!
//! kube-apiserver passes on what others answer: a kubelet's refusal of its client certificate to `log`, `exec`,
//! `attach` and `portforward` (apiserver's `registry/generic/rest/response_checker.go`, and the raw answer of an
//! upgrade), an aggregated server's (kube-aggregator's `handler_proxy.go`), a workload's behind `proxy`. Neither path
//! nor text tells them apart: every server that is built on apiserver's library writes the same Status, and our own
//! credentials can expire before a `log` as before anything else. So a question of our own decides, to a path that
//! kube-apiserver answers itself and that nobody may read without an identity.

use std::sync::Arc;

use http::{Method, Request, StatusCode, Uri};
use tokio::time::{Duration, Instant, timeout};
use tributary_apimachinery::body;

use crate::credentials::Current;
use crate::destination::Destination;
use crate::exchange::Replay;
use crate::identity::RequestIdentity;
use crate::last_question::LastCheck;
use crate::member::ClientInner;
use crate::places::Asker;
use crate::pool::{Claim, LaneKind};

/// What is asked: `/version` may be answered to anybody by what stands before a kube-apiserver.
const OWN_PATH: &str = "/api";
/// How long the member may take over it. A client waits meanwhile; without an answer its 401 is passed on.
const OWN_WITHIN: Duration = Duration::from_secs(10);
/// For how long what the member said is taken for true: a workload that refuses a browser's every
/// request costs it one question a second.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// Whom a 401 is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The member rejects the credentials that the request was sent with.
    Us,
    /// Those were replaced meanwhile, so it cannot be told.
    Before,
    /// Somebody behind the member: the answer is the client's.
    Others,
}

impl ClientInner {
    /// Finds out whom the 401 to a request with these credentials is about. One caller at a time asks, and those who
    /// waited share the answer.
    pub(crate) async fn about(self: &Arc<Self>, used: &Arc<Current>) -> About {
        let mut last = self.last_question.0.lock().await;
        let recent = last.as_ref().filter(|asked| asked.at.elapsed() < BELIEVED_FOR && asked.with.is_same(used));
        if let Some(asked) = recent {
            return if asked.rejected { About::Us } else { About::Others };
        }
        let asked = timeout(OWN_WITHIN, self.ask_for_ourselves()).await.ok().flatten();
        let Some((status, with)) = asked else {
            // Those who wait do not ask again one after the other.
            *last = Some(LastCheck { at: Instant::now(), with: Arc::clone(used), rejected: false });
            return About::Others;
        };
        let about = match status {
            _ if !with.is_same(used) => About::Before,
            StatusCode::UNAUTHORIZED => About::Us,
            _ => About::Others,
        };
        *last = Some(LastCheck { at: Instant::now(), with, rejected: status == StatusCode::UNAUTHORIZED });
        about
    }

    /// The status of the member's answer to a question of our own, and the credentials that it was asked with.
    async fn ask_for_ourselves(self: &Arc<Self>) -> Option<(StatusCode, Arc<Current>)> {
        let mut request = Request::new(body::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = Uri::from_static(OWN_PATH);
        let user = self.user.load_full();
        self.set_identity(request.headers_mut(), &RequestIdentity::Member, &user).ok()?;
        let mut replay = Replay::of(&mut request);
        let limit = Some(self.tuning.head_timeout);
        let claim = Claim { lane: LaneKind::Short, asker: Asker::Ourselves, peer: None };
        let exchanged = self.exchange(request, &mut replay, (claim, &Destination::Any), limit, &user).await;
        exchanged.ok().map(|(response, with)| (response.status(), with))
    }
}
