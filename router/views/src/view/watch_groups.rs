//! Groups of watches with the same filter. Each change is compared with a filter once for the whole group. A change
//! that does not match the filter wakes no watch of the group.
//!
//! A group stores *quiet ranges*: ranges of log positions without a matching change. A change that does not match
//! extends the current quiet range. A matching change ends the current quiet range, and a new one starts after the
//! change. A watch that has not read the log up to the new quiet range must read the log.
//!
//! ```text
//!   log   … │ match │ other │ other │ match │ other │ ◀─ another change extends `now`
//!                   └──── before ───┘       └─ now ─┘
//!   a watch here ─────────▶ continues at ──▶ and reads the log, because a change matches
//!   a watch here ─────────────────────────────▶ sleeps, and later continues at the end
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::notification::{NewChanges, WakeFilter};

#[derive(Default)]
pub(super) struct WatchGroups {
    by_wake_filter: HashMap<Arc<dyn WakeFilter>, u64>,
    by_number: BTreeMap<u64, (Arc<WatchGroup>, usize)>,
    /// Number of groups ever created. The newest group has this number.
    begun: u64,
}

/// Watches with the same filter.
pub(super) struct WatchGroup {
    number: u64,
    wake_filter: Arc<dyn WakeFilter>,
    /// Whether the latest changes require some watches of the group to read the log.
    must_read: AtomicBool,
    quiet_ranges: Mutex<QuietRanges>,
}

/// Ranges of log positions without a matching change.
struct QuietRanges {
    /// Last completed range of log positions without a matching change. After this range, the log may contain a
    /// matching change, so a watch that sleeps at a position in this range will be woken.
    before: Range<u64>,
    /// Current range of log positions without a matching change, which still grows. A watch with a position before this
    /// range has been woken, or will read the log.
    now: Range<u64>,
}

impl WatchGroups {
    /// Adds a watch to the group of its filter. The watch has read the log up to `position`.
    pub(super) fn join(&mut self, wake_filter: Arc<dyn WakeFilter>, position: u64) -> Arc<WatchGroup> {
        let number = *self.by_wake_filter.entry(Arc::clone(&wake_filter)).or_insert_with(|| {
            self.begun += 1;
            self.begun
        });
        let new = || (Arc::new(WatchGroup::new(number, wake_filter, position)), 0);
        let (watch_group, watchers) = self.by_number.entry(number).or_insert_with(new);
        *watchers += 1;
        Arc::clone(watch_group)
    }

    pub(super) fn leave(&mut self, watch_group: &WatchGroup) {
        let Some((_, watchers)) = self.by_number.get_mut(&watch_group.number) else { return };
        *watchers -= 1;
        if *watchers == 0 {
            self.by_number.remove(&watch_group.number);
            self.by_wake_filter.remove(&watch_group.wake_filter);
        }
    }

    /// Returns the first group whose number is greater than `behind`. Without `behind`, returns the group with the
    /// lowest number. New groups have the highest numbers.
    pub(super) fn next(&self, behind: Option<u64>) -> Option<(u64, &WatchGroup)> {
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_number
            .range((behind, Bound::Unbounded))
            .next()
            .map(|(number, (watch_group, _))| (*number, &**watch_group))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_wake_filter.is_empty() && self.by_number.is_empty()
    }
}

impl WatchGroup {
    fn new(number: u64, wake_filter: Arc<dyn WakeFilter>, position: u64) -> Self {
        let quiet_ranges = QuietRanges { before: position..position, now: position..position };
        Self { number, wake_filter, must_read: AtomicBool::new(false), quiet_ranges: Mutex::new(quiet_ranges) }
    }

    /// Compares changes with the group's filter. Returns whether some watches must read the log, because a change
    /// matches or an earlier change may have been missed. If so, [`wake_action`](Self::wake_action) must be used for
    /// each watch before the next changes.
    pub(super) fn match_changes(&self, changes: &NewChanges) -> bool {
        let must_read = self.quiet_ranges.lock().match_changes(changes, &*self.wake_filter);
        self.must_read.store(must_read, Ordering::Relaxed);
        must_read
    }

    /// Returns whether a watch that has read the log up to `position` can sleep after the latest changes.
    pub(super) fn wake_action(&self, position: u64) -> WakeAction {
        if !self.must_read.load(Ordering::Relaxed) {
            return WakeAction::Sleep;
        }
        let quiet_ranges = self.quiet_ranges.lock();
        let position = quiet_ranges.passed(position);
        if position < quiet_ranges.now.start { WakeAction::ReadLog { from: position } } else { WakeAction::Sleep }
    }

    /// Returns the position up to which a watch can skip the log, if the watch has read the log up to `position`.
    pub(super) fn passed(&self, position: u64) -> u64 {
        self.quiet_ranges.lock().passed(position)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeAction {
    /// The watch can sleep: no change matches its filter.
    Sleep,
    /// The watch must read the log from this position on.
    ReadLog { from: u64 },
}

impl QuietRanges {
    /// Updates the ranges with these changes. Returns whether some watches must read the log because of them.
    fn match_changes(&mut self, changes: &NewChanges, wake_filter: &dyn WakeFilter) -> bool {
        let Range { start, end } = self.now;
        // A later change has already been announced. The watches that it woke read these changes as well.
        if changes.to() <= start {
            return false;
        }
        let known_from = if changes.quiet_since() <= end { start } else { changes.quiet_since() };
        let begins = changes.last_for(wake_filter, known_from).map_or(known_from, |position| position + 1);
        let has_ended = begins > start;
        if has_ended {
            self.before = self.now.clone();
        }
        self.now = begins..changes.to().max(end);
        has_ended
    }

    fn passed(&self, position: u64) -> u64 {
        [&self.before, &self.now].into_iter().fold(position, |position, stretch| {
            if position >= stretch.start { position.max(stretch.end) } else { position }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::notification::LogNotification;
    use super::super::test_notifications::{InNamespace, notification_behind, notification_in};
    use super::*;

    fn changes(notification: LogNotification) -> NewChanges {
        let LogNotification::Changes(changes) = notification else { panic!("few are told apart") };
        changes
    }

    /// A group of one watch. The watch has a filter by one namespace, and has read the log up to `position`.
    fn watch_group(namespace: &'static str, position: u64) -> Arc<WatchGroup> {
        WatchGroups::default().join(Arc::new(InNamespace(namespace)), position)
    }

    #[test]
    fn watches_with_equal_filters_skip_exactly_the_unmatched_changes() {
        // Columns: position of the first change and namespaces of the changes; position that the watch has read;
        // position up to which the watch can skip (`None`: must read the log); reason.
        type Happened<'a> = (u64, &'a [&'a str]);
        let cases: [(Happened<'_>, u64, Option<u64>, &str); 9] = [
            ((5, &["mill"]), 5, Some(6), "nothing for it"),
            ((5, &["mill", "bank"]), 5, Some(7), "nothing for it in all of them"),
            ((5, &["mill", "shop"]), 5, None, "something for it"),
            ((5, &["mill", "shop"]), 6, None, "the second is for it"),
            ((5, &["shop", "mill"]), 6, Some(7), "the first has been looked at"),
            ((5, &["shop"]), 6, Some(6), "it has looked at them"),
            ((5, &["shop"]), 9, Some(9), "it has looked at later ones"),
            ((5, &["mill"]), 4, None, "it was not told of what stands before"),
            ((5, &[]), 5, Some(5), "nothing has happened"),
        ];
        for ((from, namespaces), position, expected, why) in cases {
            let watch_group = watch_group("shop", position);
            watch_group.match_changes(&changes(notification_in(from, namespaces)));
            let found = (watch_group.wake_action(position) == WakeAction::Sleep).then(|| watch_group.passed(position));
            assert_eq!(found, expected, "{why}");
        }
    }

    #[test]
    fn watches_that_have_not_read_a_matching_change_are_woken() {
        let watch_group = watch_group("shop", 5);
        assert!(!watch_group.match_changes(&changes(notification_in(5, &["mill"]))));
        assert!(watch_group.match_changes(&changes(notification_in(6, &["mill", "shop", "mill"]))));
        // A watch skips the changes before the matching change.
        assert_eq!(
            [5, 6, 7].map(|position| watch_group.wake_action(position)),
            [6, 6, 7].map(|from| WakeAction::ReadLog { from })
        );
        assert_eq!([5, 6, 7].map(|position| watch_group.passed(position)), [6, 6, 7]);
        assert_eq!([8, 9, 10].map(|position| watch_group.wake_action(position)), [WakeAction::Sleep; 3]);
        assert_eq!([8, 9, 10].map(|position| watch_group.passed(position)), [9, 9, 10]);
        assert!(
            !watch_group.match_changes(&changes(notification_in(9, &["bank"]))),
            "watchers that have not looked yet were called before"
        );
        assert_eq!([7, 8, 9].map(|position| watch_group.passed(position)), [7, 10, 10]);
    }

    /// Members report progress at positions 7, 8 and 10.
    #[test]
    fn watches_with_equal_filters_skip_progress_reports_between_changes() {
        let mut notification = notification_behind((7, 9), &["mill"]);
        notification.add(notification_behind((10, 11), &["mill", "shop"]));
        let notification = changes(notification);
        let passed = |position, namespace| {
            let watch_group = watch_group(namespace, position);
            watch_group.match_changes(&notification);
            (watch_group.wake_action(position) == WakeAction::Sleep).then(|| watch_group.passed(position))
        };
        for position in 7..=13 {
            assert_eq!(passed(position, "bank"), Some(13), "from {position}");
            assert_eq!(passed(position, "shop"), (position == 13).then_some(13), "from {position}");
            assert_eq!(passed(position, "mill"), (position >= 12).then_some(13), "from {position}");
        }
        assert_eq!(passed(6, "bank"), None, "something happened there");
    }

    #[test]
    fn group_of_equal_watch_filters_exists_while_it_has_watches() {
        let mut watch_groups = WatchGroups::default();
        let [shop, same, bank] = ["shop", "shop", "bank"].map(|own| watch_groups.join(Arc::new(InNamespace(own)), 5));
        assert!(Arc::ptr_eq(&shop, &same) && !Arc::ptr_eq(&shop, &bank));
        let numbers = |watch_groups: &WatchGroups| {
            let mut next = watch_groups.next(None);
            std::iter::from_fn(|| {
                let found = next.map(|(number, _)| number);
                next = watch_groups.next(found);
                found
            })
            .take(9)
            .collect::<Vec<_>>()
        };
        assert_eq!(numbers(&watch_groups), [1, 2]);
        watch_groups.leave(&shop);
        assert_eq!(numbers(&watch_groups), [1, 2]);
        watch_groups.leave(&same);
        assert_eq!(numbers(&watch_groups), [2]);
        let again = watch_groups.join(Arc::new(InNamespace("shop")), 5);
        assert!(!Arc::ptr_eq(&shop, &again));
        assert_eq!(numbers(&watch_groups), [2, 3]);
        [again, bank].iter().for_each(|watch_group| watch_groups.leave(watch_group));
        assert!(watch_groups.is_empty());
    }
}
