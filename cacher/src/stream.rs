//! A watch that is being read, and the next thing that happens to it.

use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::body::{Body, BoxError};

use crate::config::ReflectorTuning;
use crate::frames::FrameSplitter;
use crate::machine::Input;
use crate::progress::{Call, ProgressRequests};
use crate::wait::VersionWaiters;

/// How long before its `timeoutSeconds` a watch may have been ended by them, seen from here. Half a second: they count
/// from when the member took the request, not from its answer.
const ENDS_EARLY: Duration = Duration::from_millis(500);

/// A watch that is being read.
pub(crate) struct MemberWatch {
    body: Body,
    pub(crate) frames: FrameSplitter,
    /// The initial events of a WatchList are not complete.
    pub(crate) initial: bool,
    /// It is to end by itself soon after its bookmark.
    short: bool,
    /// This is a short watch, and its bookmark is still to come: the member has come further than what is held.
    pub(crate) bookmark_due: bool,
    /// It has brought an event of an object. The member's bookmark may be at that event's version,
    /// and is not sent then.
    pub(crate) brought: bool,
    /// The machine has been told that this watch proved itself.
    pub(crate) proved: bool,
    /// What to report after `Proved`.
    pub(crate) deferred: Option<Input>,
    opened: Instant,
    heard: Instant,
    limits: WatchLimits,
}

/// What a watch is held to.
#[derive(Clone, Copy, Debug)]
struct WatchLimits {
    watch_silence: Duration,
    initial_events_silence: Duration,
    settled_after: Duration,
}

/// What happened to a watch.
pub(crate) enum WatchWakeup {
    /// Bytes, an error, or the end.
    Read(Option<Result<Frame<Bytes>, BoxError>>),
    /// Nothing came for too long.
    Silent,
    /// The watch has been open for long enough, and has brought nothing that counts.
    Settled,
    /// Progress calls.
    Progress(Call),
    /// It is time to open it anew.
    Renewed,
}

impl MemberWatch {
    pub(crate) fn new(body: Body, initial: bool, short: bool, now: Instant, tuning: &ReflectorTuning) -> Self {
        Self {
            body,
            frames: FrameSplitter::new(tuning.object_size_max),
            initial,
            short,
            bookmark_due: short,
            brought: false,
            proved: false,
            deferred: None,
            opened: now,
            heard: now,
            limits: WatchLimits {
                watch_silence: tuning.watch_silence,
                initial_events_silence: tuning.initial_events_silence,
                settled_after: tuning.settled_after,
            },
        }
    }

    /// Whether this watch, which has ended, was a short one that came to the end that it was asked for. One that ended
    /// long before says nothing: the member may be shutting down.
    pub(crate) fn ended_in_time(&self, now: Instant, tuning: &ReflectorTuning) -> bool {
        self.short && now + ENDS_EARLY >= self.opened + tuning.progress_timeout
    }

    /// Whether this watch, which has ended in time, should have brought a bookmark and did not. One that brought events
    /// says nothing of that.
    pub(crate) fn lacks_bookmark(&self) -> bool {
        self.bookmark_due && !self.brought
    }

    /// How long this watch may be silent.
    pub(crate) fn silence_max(&self) -> Duration {
        if self.initial { self.limits.initial_events_silence } else { self.limits.watch_silence }
    }

    /// When the last of it came.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard
    }

    /// Notes that the initial events are complete, and counts the settling from here.
    pub(crate) fn live(&mut self, now: Instant) {
        self.initial = false;
        self.opened = now;
    }

    /// Waits for the next thing. Cancelling loses nothing.
    pub(crate) async fn turn(
        &mut self,
        progress: &mut ProgressRequests,
        wanted: &VersionWaiters,
        reopen_at: &mut watch::Receiver<Option<Instant>>,
    ) -> WatchWakeup {
        let silent_at = self.heard + self.silence_max();
        let settled_at = self.opened + self.limits.settled_after;
        let settling = !self.initial && !self.proved;
        let live = !self.initial;
        tokio::select! {
            biased;
            read = self.body.frame() => {
                self.heard = Instant::now();
                WatchWakeup::Read(read)
            }
            () = sleep_until(silent_at) => WatchWakeup::Silent,
            () = sleep_until(settled_at), if settling => WatchWakeup::Settled,
            () = due(reopen_at), if live => WatchWakeup::Renewed,
            call = progress.next(wanted), if live => WatchWakeup::Progress(call),
        }
    }
}

/// Ends at the time that the channel holds, whenever that is said.
async fn due(reopen_at: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let at = *reopen_at.borrow_and_update();
        tokio::select! {
            () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
            // The sender lives as long as the reflector.
            _ = reopen_at.changed() => {}
        }
    }
}
