//! A watch that is being read, and its wakeups.

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

/// The time by which a watch may end before its `timeoutSeconds`, as seen from here. Half a second: the timeout counts
/// from the receipt of the request, not from the response.
const ENDS_EARLY: Duration = Duration::from_millis(500);

/// The kinds of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchKind {
    /// A WatchList: the initial events come first.
    Initial,
    /// A watch that ends by itself soon after its bookmark.
    Short,
    /// A watch that lasts.
    Lasting,
}

/// A watch that is being read.
pub(crate) struct MemberWatch {
    body: Body,
    pub(crate) frames: FrameSplitter,
    /// Whether the initial events of a WatchList are incomplete.
    pub(crate) initial: bool,
    /// Whether the watch ends by itself soon after its bookmark.
    short: bool,
    /// Whether this is a short watch without its bookmark yet, at a member that is ahead of the current version.
    pub(crate) bookmark_due: bool,
    /// Whether the watch has delivered an object's event. A bookmark at that event's version is not sent.
    pub(crate) has_event: bool,
    /// Whether the machine has received [`Input::Proved`] for this watch.
    pub(crate) proved: bool,
    /// The input to report after `Proved`.
    pub(crate) deferred: Option<Input>,
    opened: Instant,
    heard: Instant,
    limits: WatchLimits,
}

/// The time limits of a watch.
#[derive(Clone, Copy, Debug)]
struct WatchLimits {
    watch_silence: Duration,
    initial_events_silence: Duration,
    settled_after: Duration,
}

/// A wakeup of a watch.
pub(crate) enum WatchWakeup {
    /// The watch received bytes, an error, or the end.
    Read(Option<Result<Frame<Bytes>, BoxError>>),
    /// The watch was silent for too long.
    Silent,
    /// The watch has been open for long enough without data.
    Settled,
    /// The progress requests need attention.
    Progress(Call),
    /// The watch must be reopened.
    Renewed,
}

impl MemberWatch {
    pub(crate) fn new(body: Body, kind: WatchKind, now: Instant, tuning: &ReflectorTuning) -> Self {
        let short = kind == WatchKind::Short;
        Self {
            body,
            frames: FrameSplitter::new(tuning.object_size_max),
            initial: kind == WatchKind::Initial,
            short,
            bookmark_due: short,
            has_event: false,
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

    /// Returns whether this ended watch was a short one that reached its requested end. A watch that ended long before
    /// proves nothing: the member may be shutting down.
    pub(crate) fn ended_in_time(&self, now: Instant, tuning: &ReflectorTuning) -> bool {
        self.short && now + ENDS_EARLY >= self.opened + tuning.progress_timeout
    }

    /// Returns whether this watch, which reached its end, lacked a bookmark. A watch with events proves nothing,
    /// because the bookmark may be suppressed.
    pub(crate) fn lacks_bookmark(&self) -> bool {
        self.bookmark_due && !self.has_event
    }

    /// Returns the permitted silence of this watch.
    pub(crate) fn silence_max(&self) -> Duration {
        if self.initial { self.limits.initial_events_silence } else { self.limits.watch_silence }
    }

    /// Returns the time of the last received data.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard
    }

    /// Ends the initial events, and starts the settling time.
    pub(crate) fn live(&mut self, now: Instant) {
        self.initial = false;
        self.opened = now;
    }

    /// Waits for the next wakeup. Cancelling loses no event.
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

/// Completes at the time in the channel, whenever it is set.
async fn due(reopen_at: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let at = *reopen_at.borrow_and_update();
        tokio::select! {
            () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
            // The reflector owns the sender, so the channel stays open.
            _ = reopen_at.changed() => {}
        }
    }
}
