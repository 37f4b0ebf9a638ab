//! The authentication state of a client connection: whether any of its requests has been authenticated.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::heads::CountedHead;
use crate::service::{AuthenticationOutcome, LimitCheck};
use crate::unauthenticated_connections::{ConnectionPermit, UnauthenticatedConnection};
use crate::user_connections::{UserConnectionPermit, UserConnections};

/// The longest life of a connection without an authenticated request. A longer life would let idle unauthenticated
/// connections occupy the slots of clients; real clients send a request much sooner.
const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for the last answers of a connection that closes without an authenticated request. The limit is
/// needed because the client may read no answers.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for authenticating a connection's pending requests after a different request got a 401. The
/// connection stays open for this time, because a pending request may wait for a TokenReview and then be authenticated.
const PENDING_AUTHENTICATION_TIMEOUT: Duration = UNAUTHENTICATED_TIMEOUT;

/// The authentication state of a connection. A connection without an authenticated request is closed after a 401 or
/// after a timeout. kube-apiserver also closes the connection after a 401. The close limits floods of requests without
/// credentials (CVE-2023-44487).
pub(super) struct ConnectionAuthentication {
    unauthenticated: UnauthenticatedConnection,
    is_authenticated: AtomicBool,
    users: Arc<UserConnections>,
    /// The permit for the connection's first authenticated user. The permit counts the connection against this user's
    /// limit of connections.
    permit: OnceLock<UserConnectionPermit>,
    /// The notification that a request got a 401. The notified connection closes, unless another of its requests is
    /// authenticated.
    refused: Notify,
    /// True if `refused` was notified. Requests that arrive after the notification do not delay the close.
    is_refused: AtomicBool,
    /// The notification that the client sent more HTTP/2 trailers than the limit allows.
    trailers_refused: Notify,
    /// The number of complete request heads that arrived before the first authentication.
    heads: AtomicUsize,
    pending_authentications: Arc<PendingAuthentications>,
}

/// The number of a connection's requests whose authentication is in progress.
#[derive(Default)]
struct PendingAuthentications {
    all: AtomicUsize,
    /// The number of requests that arrived before the first 401 and whose authentication is in progress.
    before_refusal: watch::Sender<usize>,
    /// The waker of the task that reads the connection. The task does not read while an authentication is in progress.
    reader: AtomicWaker,
}

/// A request whose authentication is in progress. The request counts as pending until this value is dropped.
pub(super) struct PendingAuthentication {
    _head: CountedHead,
    pending: Arc<PendingAuthentications>,
    is_before_refusal: bool,
}

impl Drop for PendingAuthentication {
    fn drop(&mut self) {
        if self.is_before_refusal {
            self.pending.before_refusal.send_modify(|requests| *requests -= 1);
        }
        if self.pending.all.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pending.reader.wake();
        }
    }
}

impl ConnectionAuthentication {
    pub(super) fn new(unauthenticated: UnauthenticatedConnection, users: Arc<UserConnections>) -> Self {
        let (is_authenticated, permit) = (AtomicBool::new(false), OnceLock::new());
        let (refused, is_refused, trailers_refused) = (Notify::new(), AtomicBool::new(false), Notify::new());
        let (heads, pending_authentications) = (AtomicUsize::new(0), Arc::default());
        Self {
            unauthenticated,
            is_authenticated,
            users,
            permit,
            refused,
            is_refused,
            trailers_refused,
            heads,
            pending_authentications,
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Acquire)
    }

    pub(super) fn complete_heads(&self) -> usize {
        self.heads.load(Ordering::Relaxed)
    }

    pub(super) fn is_authenticating(&self) -> bool {
        self.pending_authentications.all.load(Ordering::Acquire) > 0
    }

    /// Acquires a permit for an incomplete request head of more than `SHORT_HEAD_BYTES`.
    pub(super) fn acquire_long_head(&self) -> ConnectionPermit {
        self.unauthenticated.acquire_long_head()
    }

    /// Registers the waker of the task that reads the connection. The task is woken when the connection becomes
    /// authenticated, and when no authentication is in progress.
    pub(super) fn register_reader(&self, waker: &Waker) {
        self.pending_authentications.reader.register(waker);
    }

    /// Requests the close of the connection after too many HTTP/2 trailers.
    pub(super) fn refuse_trailers(&self) {
        self.trailers_refused.notify_one();
    }

    /// Counts the bytes of a request's head on an unauthenticated connection. Returns `None` if the heads of waiting
    /// requests exceed their limit. On an authenticated connection, nothing is counted, and the result is `Some(None)`.
    pub(super) fn count_head(&self, bytes: usize) -> Option<Option<PendingAuthentication>> {
        if self.is_authenticated() {
            return Some(None);
        }
        self.heads.fetch_add(1, Ordering::Relaxed);
        let head = self.unauthenticated.count_head(bytes)?;
        // A request from after the refusal does not delay the close. Otherwise, a client that never reads its 401 could
        // keep the connection open with new requests.
        let is_before_refusal = !self.is_refused.load(Ordering::Acquire);
        let pending = Arc::clone(&self.pending_authentications);
        pending.all.fetch_add(1, Ordering::AcqRel);
        if is_before_refusal {
            pending.before_refusal.send_modify(|requests| *requests += 1);
        }
        Some(Some(PendingAuthentication { _head: head, pending, is_before_refusal }))
    }

    /// Completes when the connection has sent too many trailers. An authenticated connection closes too, because the
    /// server stops reading the connection. Cancel: safe.
    pub(super) async fn trailers_refused(&self) {
        self.trailers_refused.notified().await;
    }

    /// Completes when this unauthenticated connection must close, so that a new connection gets its slot. Cancel: safe.
    pub(super) async fn evicted(&self) {
        self.unauthenticated.evicted().await;
        if self.is_authenticated() {
            std::future::pending().await
        }
    }

    /// Records the result of an authentication. Counts the connection for its first authenticated user. Returns
    /// [`LimitCheck::TooManyConnections`] if that user has too many connections.
    pub(super) fn record_outcome(&self, outcome: AuthenticationOutcome<'_>) -> LimitCheck {
        match outcome {
            AuthenticationOutcome::Authenticated { .. } if self.is_authenticated() => LimitCheck::WithinLimits,
            AuthenticationOutcome::Authenticated { user } => match user.map(|user| self.users.acquire(user)) {
                Some(None) => {
                    self.refuse();
                    LimitCheck::TooManyConnections
                }
                permit => {
                    // Two requests may be authenticated at the same time, and both acquire a permit for the connection.
                    // The connection keeps the first permit, and this line drops the second.
                    let _one_is_enough = permit.flatten().map(|permit| self.permit.set(permit));
                    self.is_authenticated.store(true, Ordering::Release);
                    self.unauthenticated.release_permit();
                    self.pending_authentications.reader.wake();
                    LimitCheck::WithinLimits
                }
            },
            AuthenticationOutcome::Unauthorized => {
                self.refuse();
                LimitCheck::WithinLimits
            }
        }
    }

    /// Requests the close of the connection. If a pending request is authenticated, the connection stays open.
    fn refuse(&self) {
        self.is_refused.store(true, Ordering::Release);
        self.refused.notify_one();
    }

    /// Completes when an unauthenticated connection must stop accepting requests: after a 401 or a timeout. Never
    /// completes for an authenticated connection. Cancel: safe.
    pub(super) async fn refused(&self) {
        let _ = tokio::time::timeout(UNAUTHENTICATED_TIMEOUT, self.refused.notified()).await;
        // A timeout without an authenticated request closes the connection, as a 401 does.
        self.is_refused.store(true, Ordering::Release);
        if self.is_authenticated() {
            std::future::pending().await
        }
    }

    /// Completes when a refused connection must be closed. Requests from before the refusal get time for their
    /// authentication and for their answers. If one of these requests is authenticated, the connection stays open.
    /// Requests after the refusal do not delay the close. Cancel: a new call restarts the time limit.
    pub(super) async fn close_due(&self) {
        let deadline = Instant::now() + PENDING_AUTHENTICATION_TIMEOUT;
        let mut pending_requests = self.pending_authentications.before_refusal.subscribe();
        loop {
            tokio::time::sleep(LAST_ANSWERS_TIMEOUT).await;
            if self.is_authenticated() {
                std::future::pending().await
            }
            if *pending_requests.borrow_and_update() == 0 || Instant::now() >= deadline {
                return;
            }
            let _one_is_found_out = tokio::time::timeout_at(deadline, pending_requests.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::unauthenticated_connections::UnauthenticatedConnections;

    const KNOWN: AuthenticationOutcome<'_> = AuthenticationOutcome::Authenticated { user: None };

    fn authentication() -> ConnectionAuthentication {
        ConnectionAuthentication::new(
            UnauthenticatedConnections::with_connections(8).admit(),
            UserConnections::with_connections(8),
        )
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Returns a request whose authentication is in progress, on a connection on which a different request got a 401.
    fn authenticating_request(own: &ConnectionAuthentication) -> PendingAuthentication {
        let request = own.count_head(100).unwrap().unwrap();
        own.record_outcome(AuthenticationOutcome::Unauthorized);
        request
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_authenticates_late_stays_open_after_a_refusal() {
        let own = authentication();
        let request = authenticating_request(&own);
        let mut leave = Box::pin(own.close_due());
        for _ in 0..4 {
            assert!(leave.as_mut().now_or_never().is_none());
            pass(5).await;
        }
        drop(request);
        own.record_outcome(KNOWN);
        for _ in 0..20 {
            assert!(leave.as_mut().now_or_never().is_none(), "its answer goes on");
            pass(5).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refused_connection_is_closed_despite_later_requests() {
        let own = authentication();
        own.record_outcome(AuthenticationOutcome::Unauthorized);
        let mut leave = Box::pin(own.close_due());
        let mut requests = Vec::new();
        for _ in 0..5 {
            assert!(leave.as_mut().now_or_never().is_none());
            requests.push(own.count_head(100).unwrap().unwrap());
            pass(1).await;
        }
        assert!(leave.as_mut().now_or_never().is_some(), "one of them is always being looked at");
        drop(requests);

        // A connection without an authenticated request within 30 s is refused, and closed 5 s later, even if a request
        // arrives in these 5 s.
        let own = authentication();
        let mut refused = Box::pin(own.refused());
        assert!(refused.as_mut().now_or_never().is_none());
        pass(30).await;
        assert!(refused.as_mut().now_or_never().is_some());
        let _request = own.count_head(100).unwrap().unwrap();
        let mut leave = Box::pin(own.close_due());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_successful_authentication_closes_after_a_grace_period() {
        let own = authentication();
        let request = authenticating_request(&own);
        let mut leave = Box::pin(own.close_due());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(12).await;
        assert!(leave.as_mut().now_or_never().is_none());
        drop(request);
        own.record_outcome(AuthenticationOutcome::Unauthorized);
        assert!(leave.as_mut().now_or_never().is_none());
        pass(4).await;
        assert!(leave.as_mut().now_or_never().is_none(), "its answer may be on its way");
        pass(1).await;
        assert!(leave.as_mut().now_or_never().is_some());

        let own = authentication();
        let _request = authenticating_request(&own);
        let mut leave = Box::pin(own.close_due());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_none());
        pass(25).await;
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_some());

        let own = authentication();
        drop(authenticating_request(&own));
        let mut leave = Box::pin(own.close_due());
        assert!(leave.as_mut().now_or_never().is_none());
        pass(5).await;
        assert!(leave.as_mut().now_or_never().is_some(), "nobody else is asked for");
    }
}
