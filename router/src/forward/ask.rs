//! Questions to members, in a client's name, about what this process has to know to answer the client: few at once at
//! each member, clients in turn, each with an end, and what they are answered counted among the bytes that are held.

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

/// A question.
#[derive(Clone)]
pub(super) struct Question {
    /// Path and query.
    pub(super) path: Arc<str>,
    /// The JSON that is posted: a review. `None` where something is read.
    pub(super) review: Option<Bytes>,
    /// In which form it is to be answered.
    pub(super) accept: HeaderValue,
    /// In whose name it is put.
    pub(super) caller: Caller,
    /// What its answers are counted among.
    pub(super) held_bytes: Arc<FairSemaphore>,
    /// The largest answer that is read, in bytes.
    pub(super) answer_bytes_max: usize,
    /// How long members may take.
    pub(super) patience: Patience,
    /// Counts each time it is put to a member.
    pub(super) put: Counter,
}

impl Question {
    /// The request that puts it.
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

/// How long members may take to answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Each so long until it is its turn, and so long from then on.
    Each(Duration),
    /// All together until then.
    Until(Instant),
}

impl Patience {
    /// The end of what begins now.
    fn end(self) -> Instant {
        match self {
            Self::Each(time) => Instant::now() + time,
            Self::Until(end) => end,
        }
    }
}

/// What became of a question to one member.
pub(super) enum Reply {
    /// It was answered, with anything but 403. A 404 is not read.
    Answer(StatusCode, Bytes, Portion),
    /// The member forbids it, 403: it says so, or is not asked because it does not let the user be whom they ask to be.
    Forbidden(Refusal),
    /// It was not its turn in time, or there was no room for what it says.
    NotPut(Refusal),
    /// There was no answer, or none that can be read, and why.
    Unanswered(String),
}

/// Puts a question to these clusters, some at once, each when it is the client's turn there. The replies come in no
/// order.
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
    // Those before may have given up their turns when the time was over for all.
    let is_over = || question.patience.end() <= Instant::now();
    let Some(_turn) = turn.ok().filter(|_| !is_over()) else {
        // Nothing is known of it, not even that it does not answer.
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
            // What a cluster says of our account, and would say of the user, too, is told in its words.
            Err(refusal) if refusal.said_by_member().is_some_and(says_forbidden) => Reply::Forbidden(refusal),
            Err(refusal) => Reply::Unanswered(refusal.status().message),
        }
    };
    let (begun, end) = (Instant::now(), question.patience.end());
    let late = |_| Reply::Unanswered(format!("it did not answer within {} s", (end - begun).as_secs_f32().ceil()));
    timeout_at(end, Box::pin(reply)).await.unwrap_or_else(late)
}

/// An answer, read whole in a room that grows with it.
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

/// 429: what a cluster says cannot be held, so that it is not known.
fn no_room(cluster: &Cluster, exceeded: Exceeded) -> Refusal {
    LimitRefusal::ClusterAnswer { cluster: cluster.name().clone(), exceeded }.into()
}
