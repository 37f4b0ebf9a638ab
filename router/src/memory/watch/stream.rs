//! Stream of a watch: its phases, and the writing of events and bookmarks.
//!
//! ```text
//! Initial ── sent ──▶ Behind ◀── log advanced, or client no longer ahead ──┐
//!    │                  └───────────── no new event ─────────────────▶ CaughtUp
//!    │                  │                                                 │
//!    └──────────────────┴─ end of its time, refusal, or handover ─────────┴──▶ Ended
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tributary_answers::refusal::{Refusal, RequestRefusal, VersionRefusal};
use tributary_apimachinery::or_pending;
use tributary_merge::{CompositeResourceVersion, EventVersion, Progress, WatchEvent};
use tributary_rights::{FollowedRights, ScopeChange};
use tributary_sharing::flow::long_answers::AnswerPermit;

use super::ahead::CatchingUp;
use super::bookmarks::{BookmarkSchedule, Due};
use super::followed_policies::FollowedPolicies;
use super::joined::FrameJoiner;
use super::source::LogPosition;

use crate::response::watch::{EventWriter, Prepared};

pub(super) enum StreamPhase {
    /// Sends the present state: the initial events, or the objects of clusters that the client's version lacks. Needs a
    /// write permit.
    Initial(AnswerPermit),
    /// The log may have more events for this watch.
    Behind,
    /// The log had no new event: the stream waits for the log to advance.
    CaughtUp,
    /// The stream only sends the remaining frames in `ready`.
    Ended,
}

pub(super) struct WatchStream {
    source: LogPosition,
    phase: StreamPhase,
    /// Present while the client's version of a cluster is newer than memory's.
    ahead: Option<CatchingUp>,
    writer: EventWriter,
    /// Batch of events from the log. The allocation is reused for each batch.
    events: Vec<WatchEvent>,
    prepared: Vec<Option<Prepared>>,
    ready: VecDeque<Bytes>,
    bookmarks: BookmarkSchedule,
    /// Fires at the [next](BookmarkSchedule::next) time of the bookmark schedule.
    timer: Pin<Box<Sleep>>,
    draining: CancellationToken,
    /// Rights of the watch's user; `None` in personal mode.
    rights: Option<FollowedRights>,
    /// Dispatch policies of the watch; `None` if no policy can ever refuse the watch.
    policies: Option<FollowedPolicies>,
}

enum Wake {
    Head,
    Timer,
    /// The rights or the policies of the watch may have changed.
    Rights,
    /// The wait for the client's version is over: memory has reached the version, or will never reach it.
    CaughtUpWith(Option<Refusal>),
}

impl WatchStream {
    /// Creates a stream with this initial phase. `draining` is cancelled when clients have to connect to a different
    /// process.
    pub(super) fn new(
        source: LogPosition,
        phase: StreamPhase,
        ahead: Option<CatchingUp>,
        writer: EventWriter,
        bookmarks: BookmarkSchedule,
        draining: CancellationToken,
    ) -> Self {
        Self {
            source,
            phase,
            ahead,
            writer,
            events: Vec::new(),
            prepared: Vec::new(),
            ready: VecDeque::new(),
            timer: Box::pin(tokio::time::sleep_until(bookmarks.next())),
            bookmarks,
            draining,
            rights: None,
            policies: None,
        }
    }

    /// Adds rights and policies whose change ends the stream.
    pub(super) fn under(self, rights: Option<FollowedRights>, policies: Option<FollowedPolicies>) -> Self {
        Self { rights, policies, ..self }
    }

    /// Returns the next frame; `None` at the end of the stream. A slow client gets frames at its own speed. If the log
    /// drops events that the client has not got, the stream ends.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.look_at_rights();
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let is_ended = matches!(self.phase, StreamPhase::Ended);
            if !is_ended && (self.draining.is_cancelled() || self.source.is_taken_over()) {
                self.hand_over();
                continue;
            }
            match &mut self.phase {
                StreamPhase::Initial(share) => {
                    match self.draining.run_until_cancelled(share.wait_to_continue()).await {
                        Some(Ok(())) => self.follow().await,
                        Some(Err(_)) => self.phase = StreamPhase::Ended,
                        // The next iteration of the loop continues the stream at another cached view.
                        None => {}
                    }
                }
                StreamPhase::Behind if self.bookmarks.is_due_after_events(Instant::now()) => self.timer_fired(),
                StreamPhase::Behind => self.follow().await,
                StreamPhase::CaughtUp => self.wait().await,
                StreamPhase::Ended => return None,
            }
        }
    }

    /// Ends the stream if its rights or policies have changed. Drops frames that were prepared under the old rights, so
    /// that the client lists again.
    fn look_at_rights(&mut self) {
        let is_ended = matches!(self.phase, StreamPhase::Ended);
        if is_ended {
            return;
        }
        let of_policies = self.policies.as_mut().and_then(FollowedPolicies::check_change);
        match of_policies.or_else(|| self.rights.as_mut().and_then(FollowedRights::look)) {
            Some(ScopeChange::Another) => {
                self.ready.clear();
                self.fail(&VersionRefusal::AnotherScope.into());
            }
            Some(ScopeChange::Further) => self.hand_over(),
            Some(ScopeChange::Terminated(why)) => {
                self.ready.clear();
                self.fail(&RequestRefusal::Terminated(why).into());
            }
            None => {}
        }
    }

    /// Waits for the next reason to wake, and handles it. Afterwards the loop of `next` writes events and checks the
    /// rights.
    async fn wait(&mut self) {
        match self.wake().await {
            // With a steady flow of events, `wake` never reaches its branch for the timer. Events of other watches do
            // not wake this watch, but they also make `wake` return `Head` when the timer fires.
            Wake::Head if self.timer.deadline() <= Instant::now() => self.timer_fired(),
            Wake::Head => self.phase = StreamPhase::Behind,
            Wake::Timer => self.timer_fired(),
            // The loop checks the rights before it sends a frame.
            Wake::Rights => {}
            Wake::CaughtUpWith(refusal) => self.handle_caught_up(refusal),
        }
    }

    /// Waits for the next reason to wake. A drain also advances the log's head, so the stream needs no separate wait
    /// for the drain. One wait is cheaper than two for thousands of watches at each event.
    async fn wake(&mut self) -> Wake {
        tokio::select! {
            // The order of the branches matters. The timer is polled only if no event is left, so that an event does
            // not pay for a check of the timer.
            biased;
            () = self.source.advanced() => Wake::Head,
            () = &mut self.timer => Wake::Timer,
            () = or_pending(self.rights.as_mut().map(FollowedRights::wait_for_change)) => Wake::Rights,
            () = or_pending(self.policies.as_mut().map(FollowedPolicies::wait_for_change)) => Wake::Rights,
            refusal = wait_until_caught_up(&mut self.ahead), if self.ahead.is_some() => Wake::CaughtUpWith(refusal),
        }
    }

    /// Writes a batch of new events. Or handles the end of the wait for the client's version.
    async fn follow(&mut self) {
        self.source.look();
        // The end of the wait is handled before later events of the member, because the log does not know that memory
        // was behind the client's version.
        if self.ahead.as_ref().is_some_and(CatchingUp::is_over) {
            let refusal = wait_until_caught_up(&mut self.ahead).await;
            self.handle_caught_up(refusal);
            return;
        }
        self.take_batch();
        if matches!(self.phase, StreamPhase::Initial(_) | StreamPhase::Behind) {
            // Yields to other tasks between two batches, even if a batch had no event.
            tokio::task::yield_now().await;
        }
    }

    /// Handles the end of the wait for the client's version: the stream continues, or ends with a refusal.
    fn handle_caught_up(&mut self, refusal: Option<Refusal>) {
        self.ahead = None;
        match refusal {
            Some(refusal) => self.fail(&refusal),
            // The stream reads the log again: a cluster may have reached the version without an event, and events may
            // have waited for the client's version.
            None if matches!(self.phase, StreamPhase::CaughtUp) => self.phase = StreamPhase::Behind,
            None => {}
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        let status = refusal.status();
        if status.code == StatusCode::GONE.as_u16() {
            self.source.view().counters.expired.inc();
        }
        self.ready.push_back(self.writer.error(&status));
        self.phase = StreamPhase::Ended;
    }

    fn take_batch(&mut self) {
        let Self { source, writer, events, prepared, .. } = self;
        let progress = source.take_events(events, |log, from, events| {
            writer.begin_batch(log, from);
            prepared.extend(events.iter().map(|event| match event {
                WatchEvent::Object(event) => Some(writer.prepare(log, event)),
                WatchEvent::InitialEventsEnd(_) => None,
            }));
        });
        self.write_events();
        match progress {
            Progress::More if matches!(self.phase, StreamPhase::CaughtUp) => self.phase = StreamPhase::Behind,
            Progress::More => {}
            Progress::CaughtUp => self.phase = StreamPhase::CaughtUp,
            Progress::Lagged => {
                self.source.view().counters.terminated.inc();
                self.phase = StreamPhase::Ended;
            }
            Progress::Expired(too_old) => self.fail(&VersionRefusal::TooOld(too_old).into()),
        }
    }

    /// Encodes the events of a batch, and schedules the bookmark that follows the events.
    fn write_events(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let Self { events, prepared, writer, ready, bookmarks, phase, .. } = self;
        let mut joined = FrameJoiner { ready, open: BytesMut::new() };
        for (event, prepared) in events.iter().zip(prepared.drain(..)) {
            match (event, prepared) {
                (WatchEvent::Object(event), Some(prepared)) => {
                    bookmarks.forget_last_version();
                    joined.push(writer.frame(event, prepared));
                }
                (WatchEvent::InitialEventsEnd(EventVersion::Vector(version)), _) => {
                    *phase = StreamPhase::Behind;
                    bookmarks.initial_events_end(version);
                    joined.push(writer.bookmark(version, true));
                }
                _ => {}
            }
        }
        joined.end();
        self.source.view().counters.events.inc_by(self.events.len() as u64);
        if self.bookmarks.follow_events() {
            self.after_events();
        }
    }

    /// Schedules the bookmark that follows a batch of events. If the batch repeats an object, the bookmark is written
    /// immediately: the repeated object carries the integer of an earlier event, so a client that loses the connection
    /// before the bookmark has to list again.
    fn after_events(&mut self) {
        let again = |event: &WatchEvent| matches!(event, WatchEvent::Object(event) if event.is_repeat);
        if self.events.iter().any(again) {
            let version = self.source.vector();
            self.bookmark(version, false);
        }
        self.bookmarks.record_events(Instant::now());
        if self.bookmarks.next() < self.timer.deadline() {
            self.timer.as_mut().reset(self.bookmarks.next());
        }
    }

    /// Ends the stream at its deadline, or writes the due bookmark.
    fn timer_fired(&mut self) {
        match self.bookmarks.due(Instant::now()) {
            Due::End => self.phase = StreamPhase::Ended,
            Due::Bookmark { repeated } => {
                self.look_again();
                if !matches!(self.phase, StreamPhase::Ended) {
                    let version = self.source.vector();
                    self.bookmark(version, repeated);
                }
                self.timer.as_mut().reset(self.bookmarks.next());
            }
        }
    }

    /// Takes new events before a bookmark of a waiting stream. Needed because some changes of the log do not wake the
    /// stream: events of other watches, and members that reach a version without an event.
    fn look_again(&mut self) {
        if !matches!(self.phase, StreamPhase::CaughtUp) {
            return;
        }
        // The end of the wait for the client's version is handled before any event.
        if self.ahead.as_ref().is_some_and(CatchingUp::is_over) {
            self.phase = StreamPhase::Behind;
            return;
        }
        self.source.look();
        self.take_batch();
    }

    /// Writes a bookmark of a version, unless the client requests no bookmarks, or the last bookmark had the same
    /// version. With `repeated`, an equal bookmark is written, too.
    fn bookmark(&mut self, version: Option<Arc<CompositeResourceVersion>>, repeated: bool) {
        if let Some(version) = version.filter(|version| self.bookmarks.is_due_for(version, repeated)) {
            self.ready.push_back(self.writer.bookmark(&version, false));
        }
    }

    /// Ends the stream with a bookmark, so that the client can resume at a different process or view. Does not send new
    /// events: the other view may send them in a different order among the clusters. A client that resumed by the
    /// integer version of such an event would then miss events of other clusters.
    fn hand_over(&mut self) {
        let known_version = self.source.vector();
        let may_look = matches!(self.phase, StreamPhase::CaughtUp) && self.bookmarks.are_taken();
        // Members may have reached a newer version without an event. The bookmark then has this version.
        let version = if may_look && self.source.is_at_end() { self.source.vector() } else { known_version };
        self.bookmark(version, false);
        self.phase = StreamPhase::Ended;
    }
}

/// Waits until memory has the client's version. Returns a refusal if a member will not reach the version.
async fn wait_until_caught_up(ahead: &mut Option<CatchingUp>) -> Option<Refusal> {
    match ahead {
        Some(ahead) => ahead.wait_until_caught_up().await,
        None => None,
    }
}
