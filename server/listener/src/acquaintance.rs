//! Whether it is known who is at the other end of a connection.

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

/// How long a connection may live without one authenticated request. 30 s: no client opens one this long before it uses
/// it, and who is not known shall not hold what is there for those who are.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last answers to a stranger may take once its connection is being closed: it may not read them.
const STRANGER_FAREWELL: Duration = Duration::from_secs(5);
/// How long it may take then to find out who sends the other requests that are under way. 30 s, as for whoever was not
/// refused: a cluster may have to be asked, and it is not known yet whether one of them is somebody's.
const STRANGERS_ASKED: Duration = STRANGER_TIMEOUT;

/// Whether a connection has had one authenticated request. One that never had is closed: after a 401, as kube-apiserver
/// does it against floods of requests that cost the sender nothing (CVE-2023-44487), or after a while.
pub(super) struct Acquaintance {
    stranger: Stranger,
    known: AtomicBool,
    users: Arc<UserConnections>,
    /// Its place among those of the user who was known on it first.
    place: OnceLock<UserConnection>,
    /// It is to be closed, unless somebody is known on it.
    refused: Notify,
    /// Whether that has been so: what comes afterwards is not waited for.
    is_refused: AtomicBool,
    /// Notified when the connection has sent too many trailers.
    trailers_refused: Notify,
    /// How many heads were whole.
    heads: AtomicUsize,
    /// The requests that are being authenticated.
    authenticating: Arc<Authenticating>,
}

/// Counts the requests of a connection that are being authenticated.
#[derive(Default)]
struct Authenticating {
    all: AtomicUsize,
    /// The number of those that arrived before the first 401.
    before_refusal: watch::Sender<usize>,
    /// The reader of the connection, which waits for them.
    reader: AtomicWaker,
}

/// A request of which it is being found out who sends it, until this is dropped.
pub(super) struct UnknownSender {
    _head: HeldHead,
    among: Arc<Authenticating>,
    /// Whether the request arrived before the first 401.
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
    /// Nobody is known yet.
    pub(super) fn new(stranger: Stranger, users: Arc<UserConnections>) -> Self {
        let (known, place) = (AtomicBool::new(false), OnceLock::new());
        let (refused, is_refused, trailers_refused) = (Notify::new(), AtomicBool::new(false), Notify::new());
        let (heads, authenticating) = (AtomicUsize::new(0), Arc::default());
        Self { stranger, known, users, place, refused, is_refused, trailers_refused, heads, authenticating }
    }

    /// Whether somebody is known.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// How many heads were whole while nobody was known.
    pub(super) fn whole_heads(&self) -> usize {
        self.heads.load(Ordering::Relaxed)
    }

    /// Returns whether a request of the connection is being authenticated.
    pub(super) fn is_authenticating(&self) -> bool {
        self.authenticating.all.load(Ordering::Acquire) > 0
    }

    /// Takes a place for a long head that has not ended.
    pub(super) fn begin_long_head(&self) -> ConnectionPermit {
        self.stranger.begin_long_head()
    }

    /// Wakes whoever reads from the connection once somebody is known, or no request is being authenticated any more.
    pub(super) fn register_reader(&self, waker: &Waker) {
        self.authenticating.reader.register(waker);
    }

    /// Has the connection closed, because it has sent too many trailers.
    pub(super) fn refuse_trailers(&self) {
        self.trailers_refused.notify_one();
    }

    /// Holds the head of a request, as far as nobody is known yet. `None` where there is no room for it.
    pub(super) fn hold_head(&self, bytes: usize) -> Option<Option<UnknownSender>> {
        if self.is_known() {
            return Some(None);
        }
        self.heads.fetch_add(1, Ordering::Relaxed);
        let head = self.stranger.hold_head(bytes)?;
        // Whoever never hears that it is to send no more could go on for as long as one of its requests is looked at.
        let is_before_refusal = !self.is_refused.load(Ordering::Acquire);
        let among = Arc::clone(&self.authenticating);
        among.all.fetch_add(1, Ordering::AcqRel);
        if is_before_refusal {
            among.before_refusal.send_modify(|requests| *requests += 1);
        }
        Some(Some(UnknownSender { _head: head, among, is_before_refusal }))
    }

    /// Ends when the connection has sent too many trailers. They are not read any further, so it is closed even if
    /// somebody is known on it. Cancel: safe.
    pub(super) async fn trailers_refused(&self) {
        self.trailers_refused.notified().await;
    }

    /// Ends when a connection on which nobody is known has to make room for another. Cancel: safe.
    pub(super) async fn sent_away(&self) {
        self.stranger.sent_away().await;
        if self.is_known() {
            std::future::pending().await
        }
    }

    /// Notes who asked. Whoever is known on it first has it; there may be no room for one more of theirs.
    pub(super) fn note_outcome(&self, outcome: AuthenticationOutcome<'_>) -> Room {
        match outcome {
            AuthenticationOutcome::Known { .. } if self.is_known() => Room::Enough,
            AuthenticationOutcome::Known { user } => match user.map(|user| self.users.acquire(user)) {
                Some(None) => {
                    self.refuse();
                    Room::Connections
                }
                place => {
                    // Of two requests at once one has taken it; the other gives its own back.
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

    /// Has the connection closed, unless somebody is known on it by then.
    fn refuse(&self) {
        self.is_refused.store(true, Ordering::Release);
        self.refused.notify_one();
    }

    /// Ends when the connection is to take no more requests. Nothing that others do on a connection that is known ends
    /// it. Cancel: safe.
    pub(super) async fn refused(&self) {
        let _ = tokio::time::timeout(STRANGER_TIMEOUT, self.refused.notified()).await;
        // Whoever said for too long nothing of who they are is refused by that.
        self.is_refused.store(true, Ordering::Release);
        if self.is_known() {
            std::future::pending().await
        }
    }

    /// Ends when the last answers to a stranger have had their time. Who was refused first may become known by a
    /// request that was already under way, and what is answered to that goes on until it ends. So it is waited for
    /// those of which it is being found out who sends them, and for the answers to these, too; for none that came
    /// after the refusal. Cancel: begins anew.
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

    /// A request under way while another is refused.
    fn under_way(own: &Acquaintance) -> UnknownSender {
        let request = own.hold_head(100).unwrap().unwrap();
        own.note_outcome(AuthenticationOutcome::Unauthorized);
        request
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_becomes_known_late_is_not_cut_for_another_who_was_refused() {
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
    async fn what_comes_after_a_refusal_is_not_waited_for() {
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

        // The same of whoever has said nothing for too long.
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
    async fn each_who_is_refused_has_time_for_the_answer_and_who_is_never_found_out_ends_too() {
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
