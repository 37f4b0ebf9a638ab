//! Notifications of a view (changes for its watches), and the filters by which watches select changes.
//!
//! If objects are in a thousand namespaces, a watch of ten namespaces needs few of the changes. Waking a watch without
//! a matching change costs half as much as sending the change.

use std::any::Any;
use std::hash::{Hash, Hasher};

use tributary_apimachinery::{Change, ClusterName};
use tributary_merge::Log;

/// Maximum number of changes of a notification that are compared with filters. A notification with more changes wakes
/// all watches, because so many changes concern nearly every watch. 32, the number of changes that a watch processes in
/// one batch.
const CHANGES_MAX: usize = 32;

/// Filter that decides which changes wake a watch.
pub trait WakeFilter: Any + Send + Sync {
    /// Returns whether the watch may need this change of the cluster.
    fn is_in(&self, cluster: &ClusterName, change: &Change) -> bool;

    /// Returns whether a second filter is certainly equal to this filter. The check is cheap, and may return false for
    /// equal filters.
    fn is_equal_to(&self, other: &dyn WakeFilter) -> bool;

    /// Hashes the filter. [Equal filters](Self::is_equal_to) have equal hashes.
    fn hash_into(&self, hasher: &mut dyn Hasher);
}

impl PartialEq for dyn WakeFilter {
    fn eq(&self, other: &Self) -> bool {
        self.is_equal_to(other)
    }
}

impl Eq for dyn WakeFilter {}

impl Hash for dyn WakeFilter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

#[derive(Debug)]
pub(super) enum LogNotification {
    Anything,
    /// A small number of changes, which are compared with the watches' filters.
    Changes(NewChanges),
}

/// Consecutive changes in the log. Between them, the log contains at most progress of members, which wakes no watch.
#[derive(Debug)]
pub(super) struct NewChanges {
    /// Log position from which on the log contains only progress of members until the first of these changes.
    quiet_since: u64,
    changes: Vec<NewChange>,
    /// Log position after the last change.
    to: u64,
}

#[derive(Debug)]
struct NewChange {
    position: u64,
    cluster: ClusterName,
    change: Change,
}

impl NewChanges {
    pub(super) fn quiet_since(&self) -> u64 {
        self.quiet_since
    }

    pub(super) fn to(&self) -> u64 {
        self.to
    }

    /// Returns the position of the last change that matches a filter and is not before `from`.
    pub(super) fn last_for(&self, wake_filter: &dyn WakeFilter, from: u64) -> Option<u64> {
        let unseen = self.changes.iter().rev().take_while(|new| new.position >= from);
        unseen.into_iter().find(|new| wake_filter.is_in(&new.cluster, &new.change)).map(|new| new.position)
    }
}

impl LogNotification {
    /// Creates the notification of changes of one cluster that are about to be appended to the log.
    pub(super) fn from_changes(cluster: &ClusterName, changes: &[Change], log: &Log) -> Self {
        Self::at(cluster, changes, (log.quiet_since(), log.position()))
    }

    /// Creates the notification of changes at the log position `from`. The log contains only progress reports of
    /// members between `quiet_since` and `from`.
    pub(super) fn at(cluster: &ClusterName, changes: &[Change], (quiet_since, from): (u64, u64)) -> Self {
        if changes.len() > CHANGES_MAX {
            return Self::Anything;
        }
        let positions = (from..).zip(changes);
        let new = |(position, change): (u64, &Change)| NewChange {
            position,
            cluster: cluster.clone(),
            change: change.clone(),
        };
        Self::Changes(NewChanges {
            quiet_since,
            changes: positions.map(new).collect(),
            to: from + changes.len() as u64,
        })
    }

    pub(super) fn add(&mut self, later: Self) {
        match (&mut *self, later) {
            (Self::Changes(own), Self::Changes(later))
                if own.to == later.quiet_since && own.changes.len() + later.changes.len() <= CHANGES_MAX =>
            {
                own.changes.extend(later.changes);
                own.to = later.to;
            }
            _ => *self = Self::Anything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_notifications::notification_in;
    use super::*;

    #[test]
    fn only_consecutive_log_changes_are_merged_into_one_notification() {
        let joined = |mut first: LogNotification, then: LogNotification| {
            first.add(then);
            match first {
                LogNotification::Changes(changes) => Some((changes.quiet_since, changes.to)),
                LogNotification::Anything => None,
            }
        };
        let some = |from, count| notification_in(from, &vec!["mill"; count]);
        assert_eq!(joined(some(5, 2), some(7, 30)), Some((5, 37)));
        assert_eq!(joined(some(5, 2), some(7, 31)), None, "too many changes to compare");
        assert_eq!(joined(some(5, 2), some(8, 1)), None, "a change of another cluster was not announced yet");
        assert_eq!(joined(some(8, 1), some(7, 1)), None, "another order");
        assert_eq!(joined(some(5, 1), LogNotification::Anything), None);
        assert_eq!(joined(LogNotification::Anything, some(5, 1)), None);
        assert!(matches!(some(5, 33), LogNotification::Anything));
    }
}
