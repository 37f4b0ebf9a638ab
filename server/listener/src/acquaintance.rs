//! The authentication state of a client connection: whether any of its requests has been authenticated.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::heads::HeldHead;
use crate::service::{AuthenticationOutcome, Room};
use crate::strangers::{ConnectionPermit, Stranger};
use crate::user_connections::{UserConnection, UserConnections};

/// The longest life of a connection without an authenticated request. Clients send a request within 30 s of connecting,
/// and idle unauthenticated connections occupy slots.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the last answers of a connection that closes without an authenticated request. Its client may not
/// read the answers.
const STRANGER_FAREWELL: Duration = Duration::from_secs(5);
/// The time limit for authenticating a connection's pending requests after another request got a 401. Authentication
/// may send a TokenReview to a cluster, and a pending request may still succeed.
const STRANGERS_ASKED: Duration = STRANGER_TIMEOUT;

/// The authentication state of a connection. A connection without an authenticated request is closed after a 401 or
/// after a timeout. kube-apiserver closes after a 401, too, against floods of requests that cost the sender nothing
/// (CVE-2023-44487).
pub(super) struct Acquaintance {
    stranger: Stranger,
    known: AtomicBool,
    users: Arc<UserConnections>,
    /// The permit that counts the connection for its first authenticated user.
    place: OnceLock<UserConnection>,
    /// The notification after a 401. The connection then closes, unless another of its requests is authenticated.
    refused: Notify,
    /// True if `refused` was notified. Requests that arrive after the notification do not delay the close.
    is_refused: AtomicBool,
    /// The notification after too many HTTP/2 trailers.
    trailers_refused: Notify,
    /// The number of complete request heads that arrived before the first authentication.
    heads: AtomicUsize,
    authenticating: Arc<Authenticating>,
}

/// The number of a connection's requests whose authentication is in progress.
#[derive(Default)]
struct Authenticating {
    all: AtomicUsize,
    /// The number of requests that arrived before the first 401 and whose authentication is in progress.
    before_refusal: watch::Sender<usize>,
    /// The task that reads the connection. Reading is paused while an authentication is in progress.
    reader: AtomicWaker,
}

/// A request whose authentication is in progress. The request is counted until this value is dropped.
pub(super) struct UnknownSender {
    _head: HeldHead,
    among: Arc<Authenticating>,
    is_before_refusal: bool,
}

impl Drop for UnknownSender {
    fn drop(&mut self) {
        if self.is_before_refusal {
            self.among.before_refusal.send_modify(|requests| *requests -= 1);
        }
        if self.among.all.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.among.reader.wake();
        }
    }
}

impl Acquaintance {
    pub(super) fn new(stranger: Stranger, users: Arc<UserConnections>) -> Self {
        let (known, place) = (AtomicBool::new(false), OnceLock::new());
        let (refused, is_refused, trailers_refused) = (Notify::new(), AtomicBool::new(false), Notify::new());
        let (heads, authenticating) = (AtomicUsize::new(0), Arc::default());
        Self { stranger, known, users, place, refused, is_refused, trailers_refused, heads, authenticating }
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    pub(super) fn whole_heads(&self) -> usize {
        self.heads.load(Ordering::Relaxed)
    }

    pub(super) fn is_authenticating(&self) -> bool {
        self.authenticating.all.load(Ordering::Acquire) > 0
    }

    /// Acquires a permit for a long, incomplete request head.
    pub(super) fn begin_long_head(&self) -> ConnectionPermit {
        self.stranger.begin_long_head()
    }

    /// Registers the waker of the task that reads the connection. The task is woken when the connection becomes
    /// authenticated, and when no authentication is in progress.
    pub(super) fn register_reader(&self, waker: &Waker) {
        self.authenticating.reader.register(waker);
    }

    /// Requests the close of the connection after too many HTTP/2 trailers.
    pub(super) fn refuse_trailers(&self) {
        self.trailers_refused.notify_one();
    }

    /// Counts the head of a request on an unauthenticated connection. Returns `None` if the heads exceed their limit,
    /// and `Some(None)` on an authenticated connection.
    pub(super) fn hold_head(&self, bytes: usize) -> Option<Option<UnknownSender>> {
        if self.is_known() {
            return Some(None);
        }
        self.heads.fetch_add(1, Ordering::Relaxed);
        let head = self.stranger.hold_head(bytes)?;
        // Otherwise, a client that never reads its 401 could keep the connection open with new requests.
        let is_before_refusal = !self.is_refused.load(Ordering::Acquire);
        let among = Arc::clone(&self.authenticating);
        among.all.fetch_add(1, Ordering::AcqRel);
        if is_before_refusal {
            among.before_refusal.send_modify(|requests| *requests += 1);
        }
        Some(Some(UnknownSender { _head: head, among, is_before_refusal }))
    }

    /// Completes when the connection has sent too many trailers. An authenticated connection closes too, because the
    /// server stops reading the connection. Cancel: safe.
    pub(super) async fn trailers_refused(&self) {
        self.trailers_refused.notified().await;
    }

    /// Completes when an unauthenticated connection must close in favor of a new connection. Cancel: safe.
    pub(super) async fn sent_away(&self) {
        self.stranger.sent_away().await;
        if self.is_known() {
            std::future::pending().await
        }
    }

    /// Records the result of an authentication. The connection is counted for its first authenticated user. Returns
    /// [`Room::Connections`] if that user has too many connections.
    pub(super) fn note_outcome(&self, outcome: AuthenticationOutcome<'_>) -> Room {
        match outcome {
            AuthenticationOutcome::Known { .. } if self.is_known() => Room::Enough,
            AuthenticationOutcome::Known { user } => match user.map(|user| self.users.acquire(user)) {
                Some(None) => {
                    self.refuse();
                    Room::Connections
                }
                place => {
                    // Two requests may be authenticated at the same time. The first one stores its permit, and this
                    // line releases the permit of the second.
                    let _one_is_enough = place.flatten().map(|place| self.place.set(place));
                    self.known.store(true, Ordering::Release);
                    self.stranger.becomes_known();
                    self.authenticating.reader.wake();
                    Room::Enough
                }
            },
            AuthenticationOutcome::Unauthorized => {
                self.refuse();
                Room::Enough
            }
        }
    }

    /// Requests the close of the connection, unless a pending request is authenticated.
    fn refuse(&self) {
        self.is_refused.store(true, Ordering::Release);
        self.refused.notify_one();
    }

    /// Completes when an unauthenticated connection must accept no more requests: after a 401 or a timeout. Never
    /// completes for an authenticated connection. Cancel: safe.
    pub(super) async fn refused(&self) {
        let _ = tokio::time::timeout(STRANGER_TIMEOUT, self.refused.notified()).await;
        // Like a 401, an authentication timeout closes the connection.
        self.is_refused.store(true, Ordering::Release);
        if self.is_known() {
            std::future::pending().await
        }
    }

    /// Completes when a refused connection must be closed. Requests from before the refusal get time for their
    /// authentication and for their answers. If one of these requests is authenticated, the connection stays open.
    /// Later requests get no time. Cancel: begins anew.
    pub(super) async fn taken_leave(&self) {
        let asked_until = Instant::now() + STRANGERS_ASKED;
        let mut asked = self.authenticating.before_refusal.subscribe();
        loop {
            tokio::time::sleep(STRANGER_FAREWELL).await;
            if self.is_known() {
                std::future::pending().await
            }
            if *asked.borrow_and_update() == 0 || Instant::now() >= asked_until {
                return;
            }
            let _one_is_found_out = tokio::time::timeout_at(asked_until, asked.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::strangers::Strangers;

    const KNOWN: AuthenticationOutcome<'_> = AuthenticationOutcome::Known { user: None };

    fn acquaintance() -> Acquaintance {
        Acquaintance::new(Strangers::with_connections(8).admit(), UserConnections::with_connections(8))
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Creates a request whose authentication is in progress while another request gets a 401.
    fn under_way(own: &Acquaintance) -> UnknownSender {
        let request = own.hold_head(100).unwrap().unwrap();
        own.note_outcome(AuthenticationOutcome::Unauthorized);
        request
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_authenticates_late_stays_open_after_a_refusal() {
        let own = acquaintance();
        let request = under_way(&own);
        let mut leave = Box::pin(own.taken_leave());
        for _ in 0..4 {
            assert!(leave.as_mut().now_or_never().is_none());
            pass(5).await;
        }
        drop(request);
        own.note_outcome(KNOWN);
        for _ in 0..20 {
            assert!(leave.as_mut().now_or_never().is_none(), "its answer goes on");
            pass(5).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_connection_is_closed_despite_later_requests() {
        let own = acquaintance();
        own.note_outcome(AuthenticationOutcome::Unauthorized);
        let mut leave = Box::pin(own.taken_leave());
        let mut requests = Vec::new();
        for _ in 0..5 {
            assert!(leave.as_mut().now_or_never().is_none());
            requests.push(own.hold_head(100).unwrap().unwrap());
            pass(1).await;
        }
        assert!(leave.as_mut().now_or_never().is_some(), "one of them is always being looked at");
        drop(requests);

        // A connection that times out without a request is closed in the same way.
        let own = acquaintance();
        let mut refused = Box::pin(own.refused());
        assert!(refused.as_mut().now_or_never().is_none());
        pass(30).await;
        assert!(refused.as_mut().now_or_never().is_some());
        let _request = own.hold_head(100).unwrap().unwrap();
        let mut leave = Box::pin(own.taken_leave());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_successful_authentication_closes_after_a_grace_period() {
        let own = acquaintance();
        let request = under_way(&own);
        let mut leave = Box::pin(own.taken_leave());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(12).await;
        assert!(leave.as_mut().now_or_never().is_none());
        drop(request);
        own.note_outcome(AuthenticationOutcome::Unauthorized);
        assert!(leave.as_mut().now_or_never().is_none());
        pass(4).await;
        assert!(leave.as_mut().now_or_never().is_none(), "its answer may be on its way");
        pass(1).await;
        assert!(leave.as_mut().now_or_never().is_some());

        let own = acquaintance();
        let _request = under_way(&own);
        let mut leave = Box::pin(own.taken_leave());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_none());
        pass(25).await;
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_some());

        let own = acquaintance();
        drop(under_way(&own));
        let mut leave = Box::pin(own.taken_leave());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_some(), "nobody else is asked for");
    }
}
