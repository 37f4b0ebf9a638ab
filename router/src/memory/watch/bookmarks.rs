//! Schedule of a watch's bookmarks, and of its end. The functions get the present time as an argument, so tests need no
//! clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::Timeout;
use tributary_merge::CompositeResourceVersion;

/// Interval between bookmarks of a quiet watch (kube-apiserver's `bookmarkFrequency` in `cacher.go`).
const INTERVAL: Duration = Duration::from_secs(60);

/// Time between the last bookmark and the deadline (kube-apiserver's `time_budget.go`: about 2 s).
const BEFORE_END: Duration = Duration::from_secs(2);

/// Delay between an event and the bookmark that follows it. If events carry the integer versions of single objects, a
/// client needs such bookmarks to resume, because these integers are not versions of the merged view. The documentation
/// promises 250 ms, which leaves 50 ms for the network.
const AFTER_EVENT: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BookmarkFrequency {
    /// No bookmarks: the client does not request bookmarks.
    None,
    /// Every minute, and before the end.
    Regular,
    /// Every minute, before the end, and soon after events.
    AfterEvents,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// End the watch.
    End,
    /// Write a bookmark. `repeated`: write it even if it equals the last one. The bookmark of each minute is repeated,
    /// because it shows that the stream is alive.
    Bookmark { repeated: bool },
}

pub(super) struct BookmarkSchedule {
    kind: BookmarkFrequency,
    deadline: Instant,
    /// Time of the next regular bookmark, or of the end.
    regular: Instant,
    /// Time of the bookmark that follows the last events.
    after_events: Option<Instant>,
    /// Version of the last bookmark, so that an equal bookmark is not written after events.
    last_version: Option<Arc<CompositeResourceVersion>>,
}

impl BookmarkSchedule {
    pub(super) fn new(kind: BookmarkFrequency, now: Instant, timeout: Timeout) -> Self {
        let deadline = now + timeout.duration();
        let regular = match kind {
            BookmarkFrequency::None => deadline,
            _ => (now + INTERVAL).min(deadline.checked_sub(BEFORE_END).unwrap_or(deadline)),
        };
        Self { kind, deadline, regular, after_events: None, last_version: None }
    }

    pub(super) fn next(&self) -> Instant {
        self.after_events.map_or(self.regular, |due| due.min(self.regular))
    }

    /// Returns whether bookmarks follow events.
    pub(super) fn follow_events(&self) -> bool {
        self.kind == BookmarkFrequency::AfterEvents
    }

    pub(super) fn record_events(&mut self, now: Instant) {
        self.after_events.get_or_insert(now + AFTER_EVENT);
    }

    /// Returns whether the bookmark after events is due.
    pub(super) fn is_due_after_events(&self, now: Instant) -> bool {
        self.after_events.is_some_and(|due| due <= now)
    }

    /// Returns the action at the time `now`, when the timer has fired. Schedules the next regular bookmark.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        let after_events = self.after_events.take().is_some();
        if now >= self.deadline {
            return Due::End;
        }
        let before_end = self.deadline - BEFORE_END.min(self.deadline - now);
        self.regular = if before_end > now { (now + INTERVAL).min(before_end) } else { self.deadline };
        Due::Bookmark { repeated: !after_events }
    }

    /// Forgets the last bookmark after an object's event. If a cluster's revisions went back, the next bookmark may
    /// have the same version, and must be written again.
    pub(super) fn forget_last_version(&mut self) {
        self.last_version = None;
    }

    /// Records that the bookmark at the end of the initial events was sent with this version.
    pub(super) fn initial_events_end(&mut self, version: &Arc<CompositeResourceVersion>) {
        self.last_version = Some(Arc::clone(version));
    }

    /// Returns whether a bookmark of this version has to be written, and records it as written.
    pub(super) fn is_due_for(&mut self, version: &Arc<CompositeResourceVersion>, repeated: bool) -> bool {
        let is_visible_to_client =
            self.kind != BookmarkFrequency::None && (repeated || self.last_version.as_ref() != Some(version));
        if is_visible_to_client {
            self.last_version = Some(Arc::clone(version));
        }
        is_visible_to_client
    }

    pub(super) fn are_taken(&self) -> bool {
        self.kind != BookmarkFrequency::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn bookmarks(kind: BookmarkFrequency, seconds: u64) -> (BookmarkSchedule, Instant) {
        let now = Instant::now();
        (BookmarkSchedule::new(kind, now, Timeout::new(Duration::from_secs(seconds))), now)
    }

    /// Returns the seconds at which the timer fires until the end of the watch, and the action at each time.
    fn course(kind: BookmarkFrequency, seconds: u64) -> Vec<(u64, Due)> {
        let (mut bookmarks, begin) = bookmarks(kind, seconds);
        let mut course = Vec::new();
        loop {
            let now = bookmarks.next().max(begin);
            let due = bookmarks.due(now);
            course.push(((now - begin).as_secs(), due));
            if due == Due::End {
                return course;
            }
        }
    }

    #[test]
    fn watch_gets_a_bookmark_each_minute_and_before_its_end() {
        let regular = Due::Bookmark { repeated: true };
        for kind in [BookmarkFrequency::Regular, BookmarkFrequency::AfterEvents] {
            assert_eq!(course(kind, 130), [(60, regular), (120, regular), (128, regular), (130, Due::End)]);
            assert_eq!(course(kind, 10), [(8, regular), (10, Due::End)]);
            assert_eq!(course(kind, 1), [(0, regular), (1, Due::End)]);
        }
        assert_eq!(course(BookmarkFrequency::None, 130), [(130, Due::End)]);
    }

    #[test]
    fn bookmark_is_due_a_fixed_delay_after_the_first_event() {
        let (mut bookmarks, begin) = bookmarks(BookmarkFrequency::AfterEvents, 1800);
        bookmarks.record_events(begin + SECOND);
        bookmarks.record_events(begin + SECOND + AFTER_EVENT / 2);
        let due = begin + SECOND + AFTER_EVENT;
        assert_eq!(bookmarks.next(), due);
        assert!(!bookmarks.is_due_after_events(due - AFTER_EVENT / 2) && bookmarks.is_due_after_events(due));
        assert_eq!(bookmarks.due(due), Due::Bookmark { repeated: false });
        assert_eq!(bookmarks.next(), due + INTERVAL);
    }

    #[test]
    fn events_shortly_before_a_regular_bookmark_get_a_separate_bookmark() {
        let (mut bookmarks, begin) = bookmarks(BookmarkFrequency::AfterEvents, 1800);
        let now = begin + INTERVAL;
        assert_eq!(bookmarks.due(now), Due::Bookmark { repeated: true });
        bookmarks.record_events(now);
        assert_eq!(bookmarks.next(), now + AFTER_EVENT);
    }

    #[test]
    fn bookmark_repeats_a_version_only_each_minute_or_after_an_event() {
        let version = Arc::new(CompositeResourceVersion::default());
        let (mut bookmarks, _) = bookmarks(BookmarkFrequency::Regular, 1800);
        bookmarks.initial_events_end(&version);
        assert!(!bookmarks.is_due_for(&version, false));
        assert!(bookmarks.is_due_for(&version, true));
        bookmarks.forget_last_version();
        assert!(bookmarks.is_due_for(&version, false));
        assert!(!bookmarks.is_due_for(&version, false));
    }

    #[test]
    fn watch_without_requested_bookmarks_gets_none() {
        let (mut bookmarks, _) = bookmarks(BookmarkFrequency::None, 1800);
        assert!(!bookmarks.is_due_for(&Arc::new(CompositeResourceVersion::default()), true));
    }
}
