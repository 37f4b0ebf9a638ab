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
use tributary_answers::refusal::{LimitRefusal, Refusal, is_forbidden_by_status};
use tributary_fleet::topology::Cluster;
use tributary_sharing::body::{self, Body};
use tributary_sharing::flow::buffered_body::read_whole_within;
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairPermit, FairSemaphore};
use tributary_sharing::limits::PARALLEL_REQUESTS_MAX;

use super::send;
use crate::caller::Caller;

/// A lookup or review for several members.
#[derive(Clone)]
pub(super) struct LookupRequest {
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
    pub(super) timeout_policy: LookupTimeout,
    pub(super) put: Counter,
}

impl LookupRequest {
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
pub(super) enum LookupTimeout {
    /// Time limit for each member: once for the wait for a slot, and once for the reply.
    Each(Duration),
    /// Common deadline for the replies of all members.
    Until(Instant),
}

impl LookupTimeout {
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
    Answer(StatusCode, Bytes, FairPermit),
    /// The member's 403. Or Tributary's refusal because the member forbids the user's impersonation: the member then
    /// gets no request.
    Forbidden(Refusal),
    /// The member got no request: no slot was free in time, or the limit of body bytes was reached.
    NotSent(Refusal),
    /// Cause of a missing or unreadable answer.
    Unanswered(String),
}

/// Sends the lookup to these clusters in parallel. The lookup in a cluster waits until the client gets a slot of the
/// cluster. The replies have no order.
pub(super) async fn look_up_in_each(clusters: Vec<Arc<Cluster>>, lookup: LookupRequest) -> Vec<(Arc<Cluster>, Reply)> {
    let replies = clusters.into_iter().map(|cluster| {
        let lookup = lookup.clone();
        async move {
            let reply = look_up_in_one(&cluster, &lookup).await;
            (cluster, reply)
        }
    });
    stream::iter(replies).buffer_unordered(PARALLEL_REQUESTS_MAX).collect().await
}

async fn look_up_in_one(cluster: &Arc<Cluster>, lookup: &LookupRequest) -> Reply {
    let share_key = lookup.caller.share_key;
    let body_permit = timeout_at(lookup.timeout_policy.end(), cluster.lookup(share_key)).await;
    // Other requests with the same deadline may release their slots only at the deadline, which is too late for this
    // request.
    let is_over = || lookup.timeout_policy.end() <= Instant::now();
    let Some(_turn) = body_permit.ok().filter(|_| !is_over()) else {
        // The member's state is unknown, because the member got no request.
        return Reply::NotSent(LimitRefusal::Lookups { cluster: cluster.name().clone() }.into());
    };
    let reservation = match lookup.held_bytes.acquire(share_key, 0) {
        Ok(reservation) => reservation,
        Err(exceeded) => return Reply::NotSent(no_room(cluster, exceeded)),
    };
    lookup.put.inc();
    let reply = async {
        match send::send_lookup(cluster, &lookup.caller, lookup.message(), &lookup.path).await {
            Ok(answer) => read(cluster, answer, lookup.answer_bytes_max, reservation).await,
            Err(refusal) if refusal.is_impersonation_forbidden_by_cluster() => Reply::Forbidden(refusal),
            // Tributary's account lacks the right to impersonate for this action, and the user lacks the right for the
            // action, too.
            Err(refusal) if refusal.member_status().is_some_and(is_forbidden_by_status) => Reply::Forbidden(refusal),
            Err(refusal) => Reply::Unanswered(refusal.status().message),
        }
    };
    let (begun, end) = (Instant::now(), lookup.timeout_policy.end());
    let late =
        |_| Reply::Unanswered(format!("the cluster did not answer within {} s", (end - begun).as_secs_f32().ceil()));
    timeout_at(end, Box::pin(reply)).await.unwrap_or_else(late)
}

/// Reads a whole answer. `reservation` counts the bytes of the answer as they arrive.
async fn read(cluster: &Cluster, answer: Response<Body>, bytes_max: usize, mut reservation: FairPermit) -> Reply {
    let code = answer.status();
    if code == StatusCode::NOT_FOUND {
        return Reply::Answer(code, Bytes::new(), reservation);
    }
    match read_whole_within(answer.into_body(), bytes_max, &mut reservation).await {
        Ok(text) if code == StatusCode::FORBIDDEN => Reply::Forbidden(Refusal::from_member_answer(code, &text)),
        Ok(text) => Reply::Answer(code, text, reservation),
        Err(error) => match error.downcast_ref::<Exceeded>() {
            Some(exceeded) => Reply::NotSent(no_room(cluster, *exceeded)),
            None => Reply::Unanswered(format!("the answer cannot be read: {error}")),
        },
    }
}

/// Returns the 429 for an answer that exceeds the limit of body bytes.
fn no_room(cluster: &Cluster, exceeded: Exceeded) -> Refusal {
    LimitRefusal::ClusterAnswer { cluster: cluster.name().clone(), exceeded }.into()
}
