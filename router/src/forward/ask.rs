//! Lookups and reviews that Tributary sends to members in a client's name, before it answers the client. Tributary
//! sends few of them to a member at a time, and serves clients round robin. Each lookup has a time limit, and its
//! answers count towards `--max-held-bytes`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, timeout_at};
use tributary_answers::refusal::{LimitRefusal, Refusal, says_forbidden};
use tributary_fleet::topology::Cluster;
use tributary_sharing::body::{self, Body};
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairSemaphore, Portion};
use tributary_sharing::flow::held_body::whole_within;
use tributary_sharing::limits::ASKED_AT_ONCE;

use super::send;
use crate::caller::Caller;

/// A lookup or review for several members.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) path: Arc<str>,
    /// JSON body of a review, sent by POST; `None` for a get.
    pub(super) review: Option<Bytes>,
    pub(super) accept: HeaderValue,
    /// Client in whose name Tributary sends the request.
    pub(super) caller: Caller,
    /// Limit of body bytes in memory, which includes the answers.
    pub(super) held_bytes: Arc<FairSemaphore>,
    /// Maximal length of an answer in bytes.
    pub(super) answer_bytes_max: usize,
    /// Time limit for the members' replies.
    pub(super) patience: Patience,
    pub(super) put: Counter,
}

impl Question {
    fn message(&self) -> Request<Body> {
        let mut message = Request::new(self.review.clone().map_or_else(body::empty, body::full));
        message.headers_mut().insert(header::ACCEPT, self.accept.clone());
        if self.review.is_some() {
            *message.method_mut() = Method::POST;
            message.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        message
    }
}

/// Time limit for the members' replies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Time limit for each member: once for the wait for a slot, and once for the reply.
    Each(Duration),
    /// Common deadline for the replies of all members.
    Until(Instant),
}

impl Patience {
    fn end(self) -> Instant {
        match self {
            Self::Each(time) => Instant::now() + time,
            Self::Until(end) => end,
        }
    }
}

/// Result of the request to one member.
pub(super) enum Reply {
    /// An answer other than 403. The body of a 404 is not read.
    Answer(StatusCode, Bytes, Portion),
    /// The member's 403, or Tributary's refusal because the user may not impersonate in the member, which then gets no
    /// request.
    Forbidden(Refusal),
    /// The member got no request: no slot was free in time, or the limit of body bytes was reached.
    NotPut(Refusal),
    /// Cause of a missing or unreadable answer.
    Unanswered(String),
}

/// Sends the lookup to these clusters in parallel. The lookup in a cluster waits until the client gets a slot of the
/// cluster. The replies have no order.
pub(super) async fn ask_each(clusters: Vec<Arc<Cluster>>, question: Question) -> Vec<(Arc<Cluster>, Reply)> {
    let replies = clusters.into_iter().map(|cluster| {
        let question = question.clone();
        async move {
            let reply = ask_one(&cluster, &question).await;
            (cluster, reply)
        }
    });
    stream::iter(replies).buffer_unordered(ASKED_AT_ONCE).collect().await
}

async fn ask_one(cluster: &Arc<Cluster>, question: &Question) -> Reply {
    let holder = question.caller.holder;
    let turn = timeout_at(question.patience.end(), cluster.question(holder)).await;
    // Requests with a common deadline free their slots at the deadline, which is too late for this request.
    let is_over = || question.patience.end() <= Instant::now();
    let Some(_turn) = turn.ok().filter(|_| !is_over()) else {
        // The member's state is unknown, because the member got no request.
        return Reply::NotPut(LimitRefusal::Questions { cluster: cluster.name().clone() }.into());
    };
    let room = match question.held_bytes.acquire(holder, 0) {
        Ok(room) => room,
        Err(exceeded) => return Reply::NotPut(no_room(cluster, exceeded)),
    };
    question.put.inc();
    let reply = async {
        match send::ask_cluster(cluster, &question.caller, question.message(), &question.path).await {
            Ok(answer) => read(cluster, answer, question.answer_bytes_max, room).await,
            Err(refusal) if refusal.forbids_acting() => Reply::Forbidden(refusal),
            // Tributary's account lacks the right to impersonate for this action, and the user lacks the right for the
            // action, too.
            Err(refusal) if refusal.said_by_member().is_some_and(says_forbidden) => Reply::Forbidden(refusal),
            Err(refusal) => Reply::Unanswered(refusal.status().message),
        }
    };
    let (begun, end) = (Instant::now(), question.patience.end());
    let late = |_| Reply::Unanswered(format!("it did not answer within {} s", (end - begun).as_secs_f32().ceil()));
    timeout_at(end, Box::pin(reply)).await.unwrap_or_else(late)
}

/// Reads a whole answer. `room` counts the bytes of the answer as they arrive.
async fn read(cluster: &Cluster, answer: Response<Body>, bytes_max: usize, mut room: Portion) -> Reply {
    let code = answer.status();
    if code == StatusCode::NOT_FOUND {
        return Reply::Answer(code, Bytes::new(), room);
    }
    match whole_within(answer.into_body(), bytes_max, &mut room).await {
        Ok(text) if code == StatusCode::FORBIDDEN => Reply::Forbidden(Refusal::from_member_answer(code, &text)),
        Ok(text) => Reply::Answer(code, text, room),
        Err(error) => match error.downcast_ref::<Exceeded>() {
            Some(exceeded) => Reply::NotPut(no_room(cluster, *exceeded)),
            None => Reply::Unanswered(format!("its answer: {error}")),
        },
    }
}

/// Returns the 429 for an answer that exceeds the limit of body bytes.
fn no_room(cluster: &Cluster, exceeded: Exceeded) -> Refusal {
    LimitRefusal::ClusterAnswer { cluster: cluster.name().clone(), exceeded }.into()
}
