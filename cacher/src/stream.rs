//! A watch that is being read, and the events that wake its reader.

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
use crate::progress::{ProgressRequests, ProgressWakeup};
use crate::wait::VersionWaiters;

/// The time by which a watch may end before its `timeoutSeconds` and still count as complete. Half a second: the member
/// measures from the receipt of the request, and the reflector measures from the response.
const ENDS_EARLY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchKind {
    /// The watch is a WatchList, which begins with initial events.
    Initial,
    /// The watch has a small `timeoutSeconds`, and ends soon after its bookmark.
    Short,
    /// The watch lasts several minutes.
    Long,
}

pub(crate) struct MemberWatch {
    body: Body,
    pub(crate) frames: FrameSplitter,
    /// Whether the initial events of a WatchList are incomplete.
    pub(crate) initial: bool,
    /// Whether the `timeoutSeconds` of the watch is small, so that the member soon sends a bookmark.
    short: bool,
    /// Whether a short watch has not delivered its bookmark yet, although the member is ahead of the collection's
    /// version.
    pub(crate) bookmark_due: bool,
    /// Whether the watch has delivered an object's event. The member sends no bookmark with the version of that event,
    /// so a missing bookmark then proves nothing.
    pub(crate) has_event: bool,
    /// Whether the state machine has received [`Input::Proved`] for this watch.
    pub(crate) proved: bool,
    /// The input that arrived together with the first data. The state machine receives it in the next call, after
    /// [`Input::Proved`].
    pub(crate) deferred: Option<Input>,
    opened: Instant,
    last_data_at: Instant,
    limits: WatchLimits,
}

#[derive(Clone, Copy, Debug)]
struct WatchLimits {
    watch_silence: Duration,
    initial_events_silence: Duration,
    settled_after: Duration,
}

pub(crate) enum WatchWakeup {
    /// The watch received bytes, an error, or the end of the body.
    Read(Option<Result<Frame<Bytes>, BoxError>>),
    /// The watch received no data for the longest permitted time.
    Silent,
    /// The watch has stayed open for 1 s (`settled_after`) without data.
    Settled,
    /// [`ProgressRequests`] has a wakeup for the reflector.
    Progress(ProgressWakeup),
    /// The time has come to reopen the watch with new credentials.
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
            last_data_at: now,
            limits: WatchLimits {
                watch_silence: tuning.watch_silence,
                initial_events_silence: tuning.initial_events_silence,
                settled_after: tuning.settled_after,
            },
        }
    }

    /// Returns whether the ended watch was a short watch that lasted until its `timeoutSeconds`. A watch that ended
    /// earlier proves nothing: the member may be shutting down.
    pub(crate) fn ended_in_time(&self, now: Instant, tuning: &ReflectorTuning) -> bool {
        self.short && now + ENDS_EARLY >= self.opened + tuning.progress_timeout
    }

    /// Returns whether the bookmark that was due did not arrive. Called after the watch has lasted until its end. False
    /// for a watch with events, because the member may then suppress the bookmark.
    pub(crate) fn lacks_bookmark(&self) -> bool {
        self.bookmark_due && !self.has_event
    }

    /// Returns the time without data after which the watch is silent.
    pub(crate) fn silence_max(&self) -> Duration {
        if self.initial { self.limits.initial_events_silence } else { self.limits.watch_silence }
    }

    /// Returns the time at which data was last received.
    pub(crate) fn last_data_at(&self) -> Instant {
        self.last_data_at
    }

    /// Ends the initial events: the watch is live from now on. The time for `settled_after` starts again.
    pub(crate) fn live(&mut self, now: Instant) {
        self.initial = false;
        self.opened = now;
    }

    /// Waits for the next event that wakes the reader. Cancelling loses no event.
    pub(crate) async fn next_wakeup(
        &mut self,
        progress: &mut ProgressRequests,
        wanted: &VersionWaiters,
        reopen_at: &mut watch::Receiver<Option<Instant>>,
    ) -> WatchWakeup {
        let silent_at = self.last_data_at + self.silence_max();
        let settled_at = self.opened + self.limits.settled_after;
        let settling = !self.initial && !self.proved;
        let live = !self.initial;
        tokio::select! {
            biased;
            read = self.body.frame() => {
                self.last_data_at = Instant::now();
                WatchWakeup::Read(read)
            }
            () = sleep_until(silent_at) => WatchWakeup::Silent,
            () = sleep_until(settled_at), if settling => WatchWakeup::Settled,
            () = due(reopen_at), if live => WatchWakeup::Renewed,
            call = progress.next(wanted), if live => WatchWakeup::Progress(call),
        }
    }
}

/// Completes at the time at which the watch must be reopened. If the channel receives another time meanwhile, waits for
/// that time.
async fn due(reopen_at: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let at = *reopen_at.borrow_and_update();
        tokio::select! {
            () = sleep_until(at.unwrap_or_else(Instant::now)), if at.is_some() => return,
            // The result is ignored, because the wait cannot fail: the reflector owns the sender, so the channel stays
            // open.
            _ = reopen_at.changed() => {}
        }
    }
}
