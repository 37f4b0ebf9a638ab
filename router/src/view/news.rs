//! What is new in a view, and which of its watchers have to look at it.
//!
//! Of a resource with objects in a thousand namespaces, who watches ten of them is told nothing of most changes: to wake
//! such a watcher for each costs half of what telling it would.

use std::any::Any;

use tributary_apimachinery::{Change, ClusterName};
use tributary_merge::Log;

/// How many changes are told apart. As many as a watcher takes in one turn: among more there is something for nearly
/// everybody.
const CHANGES_MAX: usize = 32;

/// What a watcher is told of.
pub(crate) trait Interest: Any + Send + Sync {
    /// Whether a change that a cluster sent may be told to it.
    fn is_in(&self, cluster: &ClusterName, change: &Change) -> bool;

    /// Whether it is known without a long look that another watcher is told of the same.
    fn is_that_of(&self, other: &dyn Interest) -> bool;
}

/// What has happened.
#[derive(Debug)]
pub(super) enum News {
    /// Something that every watcher looks at.
    Anything,
    /// These changes, and nothing else.
    Changes(NewChanges),
}

/// What was found of the last watcher: those of one user stand side by side, and have come as far.
#[derive(Default)]
pub(super) struct LastPassed<'a>(Option<(&'a dyn Interest, u64, Option<u64>)>);

impl<'a> LastPassed<'a> {
    /// As [`NewChanges::passed`], which is not asked twice of the same. The changes are the same each time.
    pub(super) fn find(&mut self, changes: &NewChanges, place: u64, interest: &'a dyn Interest) -> Option<u64> {
        if let Some((last, from, passed)) = self.0
            && from == place
            && interest.is_that_of(last)
        {
            return passed;
        }
        let passed = changes.passed(place, interest);
        self.0 = Some((interest, place, passed));
        passed
    }
}

/// Changes that stand in the log with nothing between them but what members said of how far they are: of that no watcher is
/// told, so it wakes none.
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
    /// Up to which place a watcher need not look that has nothing to look at before this one. `None` where it is to look: there is
    /// something for it, or something else may have happened before them that it was not told of.
    pub(super) fn passed(&self, place: u64, interest: &dyn Interest) -> Option<u64> {
        if place < self.quiet_since {
            return None;
        }
        let unseen = self.changes.iter().filter(|new| new.place >= place);
        let concerns = unseen.into_iter().any(|new| interest.is_in(&new.cluster, &new.change));
        (!concerns).then(|| self.to.max(place))
    }
}

impl News {
    /// Changes that a cluster sent, which are about to stand in the log behind all that it has.
    pub(super) fn of(cluster: &ClusterName, changes: &[Change], log: &Log) -> Self {
        Self::at(cluster, changes, (log.quiet_since(), log.position()))
    }

    /// Changes that a cluster sent, which stand in the log from a place on. Before it is progress alone, from another place
    /// on.
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
    use super::super::testing::{InNamespace, news_behind, news_in};
    use super::*;

    #[test]
    fn what_is_not_for_a_watcher_is_passed_and_no_more() {
        // (from, namespaces), place before → place after, or it is to look
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
        for ((from, namespaces), place, expected, why) in cases {
            let News::Changes(changes) = news_in(from, namespaces) else { panic!("few are told apart") };
            assert_eq!(changes.passed(place, &InNamespace("shop")), expected, "{why}");
        }
    }

    #[test]
    fn what_was_found_of_another_watcher_counts_for_the_same_alone() {
        let News::Changes(changes) = news_in(5, &["mill", "shop"]) else { panic!("few are told apart") };
        let watchers = [("shop", 5), ("shop", 5), ("mill", 6), ("shop", 6), ("bank", 6), ("bank", 6), ("bank", 4)];
        let watchers = watchers.map(|(namespace, place)| (InNamespace(namespace), place));
        let mut last = LastPassed::default();
        for (interest, place) in &watchers {
            let expected = changes.passed(*place, interest);
            assert_eq!(last.find(&changes, *place, interest), expected, "{} at {place}", interest.0);
        }
    }

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

    /// Members said how far they are at 7, 8 and 10.
    #[test]
    fn progress_before_and_between_changes_is_nothing_to_look_at() {
        let mut news = news_behind((7, 9), &["mill"]);
        news.add(news_behind((10, 11), &["mill", "shop"]));
        let News::Changes(changes) = news else { panic!("they are told apart") };
        let passed = |place, namespace| changes.passed(place, &InNamespace(namespace));
        for place in 7..=13 {
            assert_eq!(passed(place, "bank"), Some(13), "from {place}");
            assert_eq!(passed(place, "shop"), (place == 13).then_some(13), "from {place}");
            assert_eq!(passed(place, "mill"), (place >= 12).then_some(13), "from {place}");
        }
        assert_eq!(passed(6, "bank"), None, "something happened there");
    }
}
