//! What is new in a view, and which of its watchers have to look at it.
//!
//! Of a resource with objects in a thousand namespaces, who watches ten of them is told nothing of most changes: to
//! wake such a watcher for each costs half of what telling it would.

use std::any::Any;
use std::hash::{Hash, Hasher};

use tributary_apimachinery::{Change, ClusterName};
use tributary_merge::Log;

/// How many changes are told apart. As many as a watcher takes in one turn: among more there is something for nearly
/// everybody.
const CHANGES_MAX: usize = 32;

/// What a watcher is told of.
pub trait Interest: Any + Send + Sync {
    /// Whether a change that a cluster sent may be told to it.
    fn is_in(&self, cluster: &ClusterName, change: &Change) -> bool;

    /// Whether it is known without a long look that another watcher is told of the same.
    fn is_that_of(&self, other: &dyn Interest) -> bool;

    /// Tells it from others by a hash: the same for those that [are told of the same](Self::is_that_of).
    fn hash_into(&self, hasher: &mut dyn Hasher);
}

impl PartialEq for dyn Interest {
    fn eq(&self, other: &Self) -> bool {
        self.is_that_of(other)
    }
}

impl Eq for dyn Interest {}

impl Hash for dyn Interest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_into(state);
    }
}

/// What has happened.
#[derive(Debug)]
pub(super) enum News {
    /// Something that every watcher looks at.
    Anything,
    /// These changes, and nothing else.
    Changes(NewChanges),
}

/// Changes that stand in the log with nothing between them but what members said of how far they are: of that no
/// watcher is told, so it wakes none.
#[derive(Debug)]
pub(super) struct NewChanges {
    /// The place behind what happened before them.
    quiet_since: u64,
    changes: Vec<NewChange>,
    /// The place behind the last.
    to: u64,
}

/// A change, and where it stands in the log.
#[derive(Debug)]
struct NewChange {
    place: u64,
    cluster: ClusterName,
    change: Change,
}

impl NewChanges {
    /// The place behind what happened before them.
    pub(super) fn quiet_since(&self) -> u64 {
        self.quiet_since
    }

    /// The place behind the last of them.
    pub(super) fn to(&self) -> u64 {
        self.to
    }

    /// Where the last of them stands that somebody may be told, of those from a place on.
    pub(super) fn last_for(&self, interest: &dyn Interest, from: u64) -> Option<u64> {
        let unseen = self.changes.iter().rev().take_while(|new| new.place >= from);
        unseen.into_iter().find(|new| interest.is_in(&new.cluster, &new.change)).map(|new| new.place)
    }
}

impl News {
    /// Changes that a cluster sent, which are about to stand in the log behind all that it has.
    pub(super) fn from_changes(cluster: &ClusterName, changes: &[Change], log: &Log) -> Self {
        Self::at(cluster, changes, (log.quiet_since(), log.position()))
    }

    /// Changes that a cluster sent, which stand in the log from a place on. Before it is progress alone, from another
    /// place on.
    pub(super) fn at(cluster: &ClusterName, changes: &[Change], (quiet_since, from): (u64, u64)) -> Self {
        if changes.len() > CHANGES_MAX {
            return Self::Anything;
        }
        let places = (from..).zip(changes);
        let new =
            |(place, change): (u64, &Change)| NewChange { place, cluster: cluster.clone(), change: change.clone() };
        Self::Changes(NewChanges { quiet_since, changes: places.map(new).collect(), to: from + changes.len() as u64 })
    }

    /// Adds what has happened since.
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
    use super::super::test_news::news_in;
    use super::*;

    #[test]
    fn changes_are_joined_where_nothing_is_between() {
        let joined = |mut first: News, then: News| {
            first.add(then);
            match first {
                News::Changes(changes) => Some((changes.quiet_since, changes.to)),
                News::Anything => None,
            }
        };
        let some = |from, count| news_in(from, &vec!["mill"; count]);
        assert_eq!(joined(some(5, 2), some(7, 30)), Some((5, 37)));
        assert_eq!(joined(some(5, 2), some(7, 31)), None, "so many are not told apart");
        assert_eq!(joined(some(5, 2), some(8, 1)), None, "another cluster's has not been told yet");
        assert_eq!(joined(some(8, 1), some(7, 1)), None, "another order");
        assert_eq!(joined(some(5, 1), News::Anything), None);
        assert_eq!(joined(News::Anything, some(5, 1)), None);
        assert!(matches!(some(5, 33), News::Anything));
    }
}
