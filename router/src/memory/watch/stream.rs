//! The stream of a watch.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tributary_apimachinery::{Filter, Status, Timeout};
use tributary_merge::{CompositeResourceVersion, EventVersion, Log, Outcome, Progress, WatchEvent, Watcher};

use super::joined::Joined;
use crate::flow::long_answers::{Peer, Share};
use crate::response::watch::{EventWriter, Prepared};
use crate::view::{View, Waiting, Watching};

/// How often a quiet watch is sent a bookmark (kube-apiserver's `bookmarkFrequency` in `cacher.go`).
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// How long before its deadline a watch is sent a last bookmark (`time_budget.go`: about 2 s).
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// How long after an event a bookmark follows where events carry the integers of single objects, which alone are no version of
/// the merged view. Clients are promised 250 ms; the rest is for the way there.
const BOOKMARK_AFTER_EVENT: Duration = Duration::from_millis(200);

/// How many events one turn takes from the log. 32 of 7 KB are a quarter of a megabyte for a watcher that is behind, and the
/// log is held for some microseconds.
pub(super) const EVENTS_PER_TURN: usize = 32;

/// When a watch is sent bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bookmarks {
    /// Never: the client does not take them.
    None,
    /// Now and then, and before the end.
    Regular,
    /// Soon after events, too.
    AfterEvents,
}

/// The stream of one watch.
pub(super) struct WatchStream {
    watching: Watching,
    watcher: Watcher<Filter>,
    writer: EventWriter,
    /// What a turn takes from the log; kept for its memory.
    events: Vec<WatchEvent>,
    prepared: Vec<Option<Prepared>>,
    ready: VecDeque<Bytes>,
    head: Waiting,
    bookmarks: Bookmarks,
    /// When the bookmark is due that follows the last events.
    events_end: Option<Instant>,
    /// The vector of the last bookmark, so that none is repeated before its time.
    bookmarked: Option<Arc<CompositeResourceVersion>>,
    next_bookmark: Instant,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    draining: CancellationToken,
    /// While much of the present state is being told: the initial events, or clusters that a version lacks.
    pub(super) initial: Option<Share>,
    /// Whether there was nothing new at the last turn, so that the next one waits for the head to move.
    caught_up: bool,
    /// While the client is ahead of this process: ends when that is over, with a refusal where the member will not come to it.
    pub(super) ahead: Option<AbortOnDropHandle<Option<Status>>>,
    /// How often clusters had come to forbid what is watched when it was last asked whether another view goes on with it.
    times_forbidden: usize,
    /// Whether it began when a cluster forbade already to read all. One namespace is followed there as long as what was held is served, because
    /// there was no room for a view of its own.
    pub(super) as_held: bool,
    ended: bool,
}

/// Why a stream woke up.
enum Wake {
    Head,
    Timer,
    /// The client is no longer ahead, or never will be caught up with.
    Caught(Option<Status>),
}

impl WatchStream {
    pub(super) fn new(
        view: &Arc<View>,
        peer: Option<Peer>,
        watcher: Watcher<Filter>,
        writer: EventWriter,
        bookmarks: Bookmarks,
        timeout: Timeout,
        draining: CancellationToken,
    ) -> Self {
        let deadline = Instant::now() + timeout.duration();
        let next_bookmark =
            (Instant::now() + BOOKMARK_INTERVAL).min(deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(deadline));
        Self {
            watching: view.watching(),
            watcher,
            writer,
            events: Vec::new(),
            prepared: Vec::new(),
            ready: VecDeque::new(),
            head: view.wait(peer),
            bookmarks,
            events_end: None,
            bookmarked: None,
            next_bookmark,
            deadline,
            timer: Box::pin(tokio::time::sleep_until(if bookmarks == Bookmarks::None {
                deadline
            } else {
                next_bookmark
            })),
            draining,
            initial: None,
            caught_up: false,
            ahead: None,
            times_forbidden: view.times_forbidden(),
            as_held: false,
            ended: false,
        }
    }

    /// The next frame; `None` at the end of the stream. A slow reader is simply not asked for more; once the log has forgotten
    /// what comes next the stream ends.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            self.times_forbidden = self.watching.view().times_forbidden();
            if self.is_over() {
                self.end();
                continue;
            }
            if self.caught_up {
                match self.wake().await {
                    Wake::Head => {
                        self.caught_up = false;
                        // Where events never cease the timer is not looked at.
                        if self.timer.deadline() <= Instant::now() {
                            self.timer_fired();
                        }
                    }
                    Wake::Timer => self.timer_fired(),
                    Wake::Caught(refusal) => self.caught(refusal),
                }
                continue;
            }
            if let Some(initial) = &mut self.initial {
                let may_write = self.draining.run_until_cancelled(initial.go_on()).await;
                if may_write != Some(Ok(())) {
                    self.ended = may_write.is_some();
                    continue;
                }
            } else if self.events_end.is_some_and(|due| due <= Instant::now()) {
                self.timer_fired();
                continue;
            }
            self.head.look();
            // Before what the member did since: the log cannot tell that it had not come to the client's version.
            if self.ahead.as_ref().is_some_and(AbortOnDropHandle::is_finished) {
                let refusal = caught(&mut self.ahead).await;
                self.caught(refusal);
                continue;
            }
            if self.go_on() {
                // Others get their turn between two of ours, all the more where nothing is found.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether another process or another view goes on with this. So does the view of the one namespace that is watched, where a cluster
    /// forbids by now to read all.
    fn is_over(&self) -> bool {
        let (view, filter) = (self.watching.view(), self.watcher.filter());
        let is_one_namespace = view.namespace.is_none() && filter.scope().namespace.is_some();
        let is_elsewhere = || match self.as_held {
            false => view.is_forbidden(&filter.clusters),
            true => view.is_given_up(&filter.clusters),
        };
        self.draining.is_cancelled() || view.is_ended() || is_one_namespace && is_elsewhere()
    }

    /// Writes what is new in the log, a turn's worth of it, and says whether there is more.
    fn go_on(&mut self) -> bool {
        let progress = self.turn();
        let more = matches!(progress, Progress::More);
        match progress {
            Progress::More => self.caught_up = false,
            Progress::CaughtUp => {
                self.caught_up = true;
                self.initial = None;
            }
            Progress::Lagged => {
                self.watching.view().counters.terminated.inc();
                self.ended = true;
            }
            Progress::Expired(too_old) => {
                self.ready.push_back(self.writer.error(&Status::expired(too_old.to_string())));
                self.ended = true;
            }
        }
        more
    }

    /// The client is no longer ahead, or is refused.
    fn caught(&mut self, refusal: Option<Status>) {
        self.ahead = None;
        // What it waited for may have been told without an event, and events may have waited for that.
        self.caught_up = false;
        if let Some(refusal) = refusal {
            self.ready.push_back(self.writer.error(&refusal));
            self.ended = true;
        }
    }

    /// Takes what is new from the log and encodes it.
    fn turn(&mut self) -> Progress {
        let Self { watching, watcher, writer, events, prepared, ready, initial, times_forbidden, .. } = self;
        events.clear();
        let progress = {
            let log = watching.view().log();
            // A look under the lock: what is told is noted where another view takes over.
            if watching.view().times_forbidden() != *times_forbidden {
                return Progress::More;
            }
            let Outcome { progress, own_before } = watcher.next(&log, EVENTS_PER_TURN, events);
            watching.view().handed_out.note(own_before);
            prepared.extend(events.iter().map(|event| match event {
                WatchEvent::Object(event) => Some(writer.prepare(&log, event)),
                WatchEvent::InitialEventsEnd(_) => None,
            }));
            progress
        };
        let mut joined = Joined { ready, open: BytesMut::new() };
        for (event, prepared) in events.iter().zip(prepared.drain(..)) {
            match (event, prepared) {
                (WatchEvent::Object(event), Some(prepared)) => {
                    // Where revisions went back the vector behind it may be one that was told before.
                    self.bookmarked = None;
                    joined.push(writer.frame(event, prepared));
                }
                (WatchEvent::InitialEventsEnd(EventVersion::Vector(version)), _) => {
                    *initial = None;
                    self.bookmarked = Some(Arc::clone(version));
                    joined.push(writer.bookmark(version, true));
                }
                _ => {}
            }
        }
        joined.end();
        if !events.is_empty() {
            watching.view().counters.events.inc_by(events.len() as u64);
            if self.bookmarks == Bookmarks::AfterEvents {
                self.after_events();
            }
        }
        progress
    }

    /// Sees to the bookmark that follows the events of a turn. Behind an object that was told again it comes at once: the
    /// integer of that object is of an earlier event, so a client that is cut there would have to begin anew.
    fn after_events(&mut self) {
        let again = |event: &WatchEvent| matches!(event, WatchEvent::Object(event) if event.again);
        if self.events.iter().any(again) {
            self.bookmark(false);
        }
        if self.events_end.is_none() {
            self.schedule_after_events();
        }
    }

    /// Has the timer fire for the bookmark that follows events, unless another one comes sooner.
    fn schedule_after_events(&mut self) {
        let due = Instant::now() + BOOKMARK_AFTER_EVENT;
        self.events_end = Some(due);
        if due < self.timer.deadline() {
            self.timer.as_mut().reset(due);
        }
    }

    /// Waits for something to do. A drain wakes through the head as well: one thing to wait for is cheaper than two, for each
    /// of thousands of watchers at each event.
    async fn wake(&mut self) -> Wake {
        tokio::select! {
            // In this order: an event does not pay for a look at the timer, whose turn comes once there is none left.
            biased;
            () = self.head.advanced() => Wake::Head,
            () = &mut self.timer => Wake::Timer,
            refusal = caught(&mut self.ahead), if self.ahead.is_some() => Wake::Caught(refusal),
        }
    }

    fn timer_fired(&mut self) {
        let now = Instant::now();
        let after_events = self.events_end.take().is_some();
        if now >= self.deadline {
            self.ended = true;
            return;
        }
        self.look_again();
        // Each minute's says that the stream lives, even where it says nothing new.
        self.bookmark(!after_events);
        let before_end = self.deadline - BOOKMARK_BEFORE_END.min(self.deadline - now);
        self.next_bookmark = now + BOOKMARK_INTERVAL;
        let next = if before_end > now { self.next_bookmark.min(before_end) } else { self.deadline };
        // What was found just now has its own, which an event within that time relies on.
        self.timer.as_mut().reset(self.events_end.map_or(next, |due| due.min(next)));
    }

    /// Ends the stream with what lets the client go on elsewhere. What happened since the last look is no longer told: whoever goes on
    /// with this may tell it as well, behind other events of other clusters, and a client that is cut behind it and names its number would
    /// be taken for one that has those.
    fn end(&mut self) {
        let told = self.vector();
        self.events.clear();
        let is_at_end = self.caught_up && self.bookmarks != Bookmarks::None && {
            let log = self.watching.view().log();
            // What it tells is not written, so nothing is handed out.
            matches!(self.watcher.next(&log, EVENTS_PER_TURN, &mut self.events).progress, Progress::CaughtUp)
        };
        let is_told = is_at_end && self.events.is_empty();
        // Members may have come further without an event.
        let version = if is_told { self.vector() } else { told };
        self.write_bookmark(version, false);
        self.ended = true;
    }

    /// Before a bookmark of one who waits: members that reached a version without an event have woken nobody.
    fn look_again(&mut self) {
        if self.caught_up {
            self.head.look();
            self.go_on();
        }
    }

    /// Writes a bookmark of now; one that says what the last one said only where it is to be `repeated`.
    fn bookmark(&mut self, repeated: bool) {
        let version = self.vector();
        self.write_bookmark(version, repeated);
    }

    /// The version of what has been told.
    fn vector(&self) -> Option<Arc<CompositeResourceVersion>> {
        let view = self.watching.view();
        let log = view.log();
        self.watcher.bookmark(&log).and_then(|version| vector(view, &log, &version))
    }

    fn write_bookmark(&mut self, version: Option<Arc<CompositeResourceVersion>>, repeated: bool) {
        if self.bookmarks == Bookmarks::None || self.ended {
            return;
        }
        if let Some(version) = version.filter(|version| repeated || self.bookmarked.as_ref() != Some(version)) {
            self.ready.push_back(self.writer.bookmark(&version, false));
            self.bookmarked = Some(version);
        }
    }
}

async fn caught(ahead: &mut Option<AbortOnDropHandle<Option<Status>>>) -> Option<Status> {
    match ahead {
        // It neither panics nor is aborted while it is looked at.
        Some(ahead) => ahead.await.unwrap_or_default(),
        None => None,
    }
}

/// The vector of a version. Bookmarks and ends of initial events are never of the item form.
fn vector(view: &View, log: &Log, version: &EventVersion) -> Option<Arc<CompositeResourceVersion>> {
    match version {
        EventVersion::Item(_) => None,
        EventVersion::Log(version) => view.bookmarks.vector(log, *version),
        EventVersion::Vector(version) => Some(Arc::clone(version)),
    }
}
