//! The stream of a watch.
//!
//! ```text
//! Initial ── told ──▶ Behind ◀── the log advanced, or is no longer ahead ──┐
//!    │                  └───────────── nothing new ──────────────────▶ CaughtUp
//!    │                  │                                                 │
//!    └──────────────────┴─ its time is over, refused, another goes on ────┴──▶ Ended
//! ```

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tributary_answers::refusal::{Refusal, RequestRefusal, VersionRefusal};
use tributary_apimachinery::or_never;
use tributary_merge::{CompositeResourceVersion, EventVersion, Progress, WatchEvent};
use tributary_rights::{FollowedRights, ScopeChange};
use tributary_sharing::flow::long_answers::AnswerTurn;

use super::ahead::CatchingUp;
use super::bookmarks::{BookmarkSchedule, Due};
use super::followed_policies::FollowedPolicies;
use super::joined::FrameJoiner;
use super::source::LogPosition;

use crate::response::watch::{EventWriter, Prepared};

/// Where a stream is.
pub(super) enum StreamPhase {
    /// Much of the present state is being told: the initial events, or clusters that a version lacks. It takes a share
    /// of what is written for long answers.
    Initial(AnswerTurn),
    /// The log may have more than was told.
    Behind,
    /// There was nothing new at the last turn: the next one waits for the log's head to move.
    CaughtUp,
    /// Nothing more is told than the frames that are ready.
    Ended,
}

/// The stream of one watch.
pub(super) struct WatchStream {
    source: LogPosition,
    phase: StreamPhase,
    /// While the client is ahead of this process.
    ahead: Option<CatchingUp>,
    writer: EventWriter,
    /// What a turn takes from the log; kept for its memory.
    events: Vec<WatchEvent>,
    prepared: Vec<Option<Prepared>>,
    ready: VecDeque<Bytes>,
    bookmarks: BookmarkSchedule,
    /// For the [next](Bookmarks::next) of the bookmarks' moments.
    timer: Pin<Box<Sleep>>,
    draining: CancellationToken,
    /// The rights under which it was opened; `None` where one person owns the endpoint.
    rights: Option<FollowedRights>,
    /// The dispatch policies under which it was opened; `None` where nobody may ever refuse it.
    policies: Option<FollowedPolicies>,
}

/// Why a stream woke up.
enum Wake {
    Head,
    Timer,
    /// The rights, or policies, under which it was opened may have changed.
    Rights,
    /// The client is no longer ahead, or never will be caught up with.
    Caught(Option<Refusal>),
}

impl WatchStream {
    /// A stream that begins in this phase. `draining`: another process goes on with it.
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

    /// The same, as long as these rights and policies hold.
    pub(super) fn under(self, rights: Option<FollowedRights>, policies: Option<FollowedPolicies>) -> Self {
        Self { rights, policies, ..self }
    }

    /// The next frame; `None` at the end of the stream. A slow reader is simply not asked for more; once the log has
    /// forgotten what comes next the stream ends.
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
                StreamPhase::Initial(share) => match self.draining.run_until_cancelled(share.go_on()).await {
                    Some(Ok(())) => self.follow().await,
                    Some(Err(_)) => self.phase = StreamPhase::Ended,
                    // It is handed over.
                    None => {}
                },
                StreamPhase::Behind if self.bookmarks.is_due_after_events(Instant::now()) => self.timer_fired(),
                StreamPhase::Behind => self.follow().await,
                StreamPhase::CaughtUp => self.wait().await,
                StreamPhase::Ended => return None,
            }
        }
    }

    /// Ends the stream where the rights under which it was opened are others by now. What was about to be told by them
    /// is not told any more: the client is to list anew.
    fn look_at_rights(&mut self) {
        let is_ended = matches!(self.phase, StreamPhase::Ended);
        if is_ended {
            return;
        }
        let of_policies = self.policies.as_mut().and_then(FollowedPolicies::look);
        match of_policies.or_else(|| self.rights.as_mut().and_then(FollowedRights::look)) {
            Some(ScopeChange::Another) => {
                self.ready.clear();
                self.fail(&VersionRefusal::AnotherScope.into());
            }
            Some(ScopeChange::Further) => self.hand_over(),
            Some(ScopeChange::Over(why)) => {
                self.ready.clear();
                self.fail(&RequestRefusal::Over(why).into());
            }
            None => {}
        }
    }

    /// Waits for something to do, and does what is not of the log.
    async fn wait(&mut self) {
        match self.wake().await {
            // Where events never cease the timer is not waited for. And whoever slept through events that are not for
            // them is woken by the timer, and finds that the head has moved.
            Wake::Head if self.timer.deadline() <= Instant::now() => self.timer_fired(),
            Wake::Head => self.phase = StreamPhase::Behind,
            Wake::Timer => self.timer_fired(),
            // They are looked at before anything else is told.
            Wake::Rights => {}
            Wake::Caught(refusal) => self.caught(refusal),
        }
    }

    /// A drain wakes through the head as well: one thing to wait for is cheaper than two, for each of thousands of
    /// watchers at each event.
    async fn wake(&mut self) -> Wake {
        tokio::select! {
            // In this order: an event does not pay for a look at the timer, whose turn comes once there is none left.
            biased;
            () = self.source.advanced() => Wake::Head,
            () = &mut self.timer => Wake::Timer,
            () = or_never(self.rights.as_mut().map(FollowedRights::news)) => Wake::Rights,
            () = or_never(self.policies.as_mut().map(FollowedPolicies::news)) => Wake::Rights,
            refusal = over(&mut self.ahead), if self.ahead.is_some() => Wake::Caught(refusal),
        }
    }

    /// Tells what is new.
    async fn follow(&mut self) {
        self.source.look();
        // Before what the member did since: the log cannot tell that it had not come to the client's version.
        if self.ahead.as_ref().is_some_and(CatchingUp::is_over) {
            let refusal = over(&mut self.ahead).await;
            self.caught(refusal);
            return;
        }
        self.turn();
        if matches!(self.phase, StreamPhase::Initial(_) | StreamPhase::Behind) {
            // Others get their turn between two of ours, all the more where nothing is found.
            tokio::task::yield_now().await;
        }
    }

    /// The client is no longer ahead, or is refused.
    fn caught(&mut self, refusal: Option<Refusal>) {
        self.ahead = None;
        match refusal {
            Some(refusal) => self.fail(&refusal),
            // What it waited for may have been told without an event, and events may have waited for that.
            None if matches!(self.phase, StreamPhase::CaughtUp) => self.phase = StreamPhase::Behind,
            None => {}
        }
    }

    /// Ends the stream with an error.
    fn fail(&mut self, refusal: &Refusal) {
        let status = refusal.status();
        if status.code == StatusCode::GONE.as_u16() {
            self.source.view().counters.expired.inc();
        }
        self.ready.push_back(self.writer.error(&status));
        self.phase = StreamPhase::Ended;
    }

    /// Writes what is new in the log, a turn's worth of it.
    fn turn(&mut self) {
        let Self { source, writer, events, prepared, .. } = self;
        let progress = source.take_events(events, |log, events| {
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

    /// Encodes the events of a turn, and sees to the bookmark that follows them.
    fn write_events(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let Self { events, prepared, writer, ready, bookmarks, phase, .. } = self;
        let mut joined = FrameJoiner { ready, open: BytesMut::new() };
        for (event, prepared) in events.iter().zip(prepared.drain(..)) {
            match (event, prepared) {
                (WatchEvent::Object(event), Some(prepared)) => {
                    bookmarks.forget_told();
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

    /// Sees to the bookmark that follows the events of a turn. Behind an object that was told again it comes at once:
    /// the integer of that object is of an earlier event, so a client that is cut there would have to begin anew.
    fn after_events(&mut self) {
        let again = |event: &WatchEvent| matches!(event, WatchEvent::Object(event) if event.is_repeat);
        if self.events.iter().any(again) {
            let told = self.source.vector();
            self.bookmark(told, false);
        }
        self.bookmarks.events_told(Instant::now());
        if self.bookmarks.next() < self.timer.deadline() {
            self.timer.as_mut().reset(self.bookmarks.next());
        }
    }

    /// The moment that was waited for has come.
    fn timer_fired(&mut self) {
        match self.bookmarks.due(Instant::now()) {
            Due::End => self.phase = StreamPhase::Ended,
            Due::Bookmark { repeated } => {
                self.look_again();
                if !matches!(self.phase, StreamPhase::Ended) {
                    let told = self.source.vector();
                    self.bookmark(told, repeated);
                }
                self.timer.as_mut().reset(self.bookmarks.next());
            }
        }
    }

    /// Before a bookmark of one who waits: members that reached a version without an event have woken nobody, nor have
    /// events that are for others.
    fn look_again(&mut self) {
        if !matches!(self.phase, StreamPhase::CaughtUp) {
            return;
        }
        // That the client is no longer ahead is looked at before any event.
        if self.ahead.as_ref().is_some_and(CatchingUp::is_over) {
            self.phase = StreamPhase::Behind;
            return;
        }
        self.source.look();
        self.turn();
    }

    /// Writes a bookmark of a version, unless the client takes none or was told that version last. Then it is only
    /// `repeated` where that says something.
    fn bookmark(&mut self, version: Option<Arc<CompositeResourceVersion>>, repeated: bool) {
        if let Some(version) = version.filter(|version| self.bookmarks.is_due_for(version, repeated)) {
            self.ready.push_back(self.writer.bookmark(&version, false));
        }
    }

    /// Ends the stream with what lets the client go on elsewhere. What happened since the last look is no longer told:
    /// whoever goes on with this may tell it as well, behind other events of other clusters, and a client that is cut
    /// behind it and names its number would be taken for one that has those.
    fn hand_over(&mut self) {
        let told = self.source.vector();
        let may_look = matches!(self.phase, StreamPhase::CaughtUp) && self.bookmarks.are_taken();
        // Members may have come further without an event.
        let version = if may_look && self.source.is_at_end() { self.source.vector() } else { told };
        self.bookmark(version, false);
        self.phase = StreamPhase::Ended;
    }
}

/// Ends when the client is no longer ahead, with a refusal where that will never be.
async fn over(ahead: &mut Option<CatchingUp>) -> Option<Refusal> {
    match ahead {
        Some(ahead) => ahead.over().await,
        None => None,
    }
}
