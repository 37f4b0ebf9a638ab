//! Questions to members in a client's name, which precede the answer to the client. A member gets few questions at
//! once, clients take turns, each question has a time limit, and the answers count towards `--max-held-bytes`.

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

/// A question to members.
#[derive(Clone)]
pub(super) struct Question {
    /// The path and the query of the question.
    pub(super) path: Arc<str>,
    /// The JSON of a review, which is posted; `None` for a get.
    pub(super) review: Option<Bytes>,
    /// The `Accept` header.
    pub(super) accept: HeaderValue,
    /// The client that the question is for.
    pub(super) caller: Caller,
    /// The limit for the bytes of the answers.
    pub(super) held_bytes: Arc<FairSemaphore>,
    /// The limit for the length of an answer, in bytes.
    pub(super) answer_bytes_max: usize,
    /// The time limit of members.
    pub(super) patience: Patience,
    /// The number of questions so far, by member and question.
    pub(super) put: Counter,
}

impl Question {
    /// The request with the question.
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

/// The time limit of members.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// This time for each member until its turn comes, and again from then on.
    Each(Duration),
    /// This end for all members.
    Until(Instant),
}

impl Patience {
    /// The end of a wait that begins now.
    fn end(self) -> Instant {
        match self {
            Self::Each(time) => Instant::now() + time,
            Self::Until(end) => end,
        }
    }
}

/// The reply of one member.
pub(super) enum Reply {
    /// An answer other than 403. The body of a 404 is not read.
    Answer(StatusCode, Bytes, Portion),
    /// The member's 403, or the refusal to let the user act as the user of the request; then the member is not asked.
    Forbidden(Refusal),
    /// No turn in time, or no room for the answer.
    NotPut(Refusal),
    /// The cause for no answer, or for an unreadable one.
    Unanswered(String),
}

/// Asks these clusters, some at once, each as soon as it is the client's turn there. The replies have no order.
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
    // Other questions may have given up their turns at the common end.
    let is_over = || question.patience.end() <= Instant::now();
    let Some(_turn) = turn.ok().filter(|_| !is_over()) else {
        // The member's state is unknown: it was not asked.
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
            // The cluster forbids our account an action that it forbids the user, too.
            Err(refusal) if refusal.said_by_member().is_some_and(says_forbidden) => Reply::Forbidden(refusal),
            Err(refusal) => Reply::Unanswered(refusal.status().message),
        }
    };
    let (begun, end) = (Instant::now(), question.patience.end());
    let late = |_| Reply::Unanswered(format!("it did not answer within {} s", (end - begun).as_secs_f32().ceil()));
    timeout_at(end, Box::pin(reply)).await.unwrap_or_else(late)
}

/// Reads an answer whole, in room that grows with it.
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

/// The 429 for an answer without room in memory.
fn no_room(cluster: &Cluster, exceeded: Exceeded) -> Refusal {
    LimitRefusal::ClusterAnswer { cluster: cluster.name().clone(), exceeded }.into()
}
