//! What is new in a view, and which of its watchers have to look at it.
//!
//! Of a resource with objects in a thousand namespaces, who watches ten of them is told nothing of most changes: to wake
//! such a watcher for each costs half of what telling it would.

use tributary_apimachinery::{Change, ClusterName};
use tributary_merge::LogConfig;

/// How many changes are told apart. As many as a watcher takes in one turn: among more there is something for nearly
/// everybody.
const CHANGES_MAX: usize = 32;

/// What a watcher is told of.
pub(crate) trait Interest: Send + Sync {
    /// Whether a change that a cluster sent may be told to it.
    fn is_in(&self, cluster: &ClusterName, change: &Change) -> bool;
}

/// What has happened.
#[derive(Debug)]
pub(super) enum News {
    /// Something that every watcher looks at.
    Anything,
    /// These changes, and nothing else.
    Changes(Vec<(ClusterName, Change)>),
}

impl News {
    /// Changes that a cluster sent.
    pub(super) fn of(cluster: &ClusterName, changes: &[Change]) -> Self {
        match changes.len() {
            ..=CHANGES_MAX => Self::Changes(changes.iter().map(|change| (cluster.clone(), change.clone())).collect()),
            _ => Self::Anything,
        }
    }

    /// Adds what has happened since.
    pub(super) fn add(&mut self, later: Self) {
        match (&mut *self, later) {
            (Self::Changes(own), Self::Changes(later)) if own.len() + later.len() <= CHANGES_MAX => own.extend(later),
            _ => *self = Self::Anything,
        }
    }
}

/// How much may pass a watcher by before it looks at it all the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    changes: usize,
    bytes: usize,
}

impl Patience {
    /// A quarter of what a log keeps of each cluster in any case: where a watcher goes on is never forgotten while it
    /// sleeps.
    pub(super) fn within(log: &LogConfig) -> Self {
        Self { changes: log.history_entries_min / 4, bytes: log.history_bytes_max / 4 }
    }
}

/// What has passed a watcher by since it was last woken.
#[derive(Debug, Default)]
pub(super) struct PassedBy {
    changes: usize,
    bytes: usize,
}

impl PassedBy {
    /// Whether a watcher is to be woken: there is something for it, or too much has passed it by.
    pub(super) fn is_to_look(&mut self, news: &News, interest: Option<&dyn Interest>, patience: Patience) -> bool {
        let (News::Changes(changes), Some(interest)) = (news, interest) else { return self.looks() };
        if changes.iter().any(|(cluster, change)| interest.is_in(cluster, change)) {
            return self.looks();
        }
        self.changes += changes.len();
        self.bytes += changes.iter().map(|(_, change)| change.object.size()).sum::<usize>();
        let is_over = self.changes > patience.changes || self.bytes > patience.bytes;
        is_over && self.looks()
    }

    fn looks(&mut self) -> bool {
        *self = Self::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tributary_apimachinery::{ChangeType, ObjectDecoder};

    use super::*;

    /// For nothing.
    struct Nothing;

    impl Interest for Nothing {
        fn is_in(&self, _: &ClusterName, _: &Change) -> bool {
            false
        }
    }

    /// So many changes of an object with a text of so many bytes.
    fn changes(count: usize, bytes: usize) -> News {
        let text = format!(
            r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"1"}},"data":{{"a":"{}"}}}}"#,
            "x".repeat(bytes)
        );
        let object = Arc::new(ObjectDecoder::new("v1", "ConfigMap", [].into()).decode(text.as_bytes()).unwrap());
        let change = Change { change_type: ChangeType::Added, object, previous: None };
        News::of(&ClusterName::new("a").unwrap(), &vec![change; count])
    }

    #[test]
    fn a_watcher_looks_once_too_much_has_passed_it_by() {
        let patience = Patience::within(&LogConfig { history_bytes_max: 400_000, ..LogConfig::default() });
        for (count, bytes, expected) in [(1, 10, 26), (5, 10, 6), (1, 30_000, 4), (40, 10, 1)] {
            let mut passed = PassedBy::default();
            for _ in 0..3 {
                let mut turns = 1;
                while !passed.is_to_look(&changes(count, bytes), Some(&Nothing), patience) {
                    turns += 1;
                }
                assert_eq!(turns, expected, "{count} changes of {bytes} bytes at a time");
            }
        }
        let news = || changes(1, 10);
        assert!(PassedBy::default().is_to_look(&news(), None, patience), "who said nothing looks at everything");
        let mut added = news();
        added.add(changes(31, 10));
        assert!(matches!(&added, News::Changes(changes) if changes.len() == 32));
        added.add(news());
        assert!(matches!(added, News::Anything), "so many are not told apart");
    }
}
