//! Waiting for a version, and the list of versions that are waited for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tributary_apimachinery::{CollectionVersion, ResourceVersion};

/// Why a version was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReached {
    /// The time was over: the member is out of reach, or its events are late.
    #[error("too large resource version: {wanted}, current: {}", .current.unwrap_or_default())]
    TooNew {
        /// The version that was waited for.
        wanted: CollectionVersion,
        /// The cacher's version when the time was over; `None` if it was not synced.
        current: Option<CollectionVersion>,
    },
    /// The member itself, asked after the wait began, has not come so far: whoever knows this version has it from
    /// before its revisions went back, or from elsewhere.
    #[error("too large resource version: {wanted}, the member's latest: {latest}")]
    Beyond {
        /// The version that was waited for.
        wanted: CollectionVersion,
        /// The member's latest version.
        latest: ResourceVersion,
    },
}

/// The object did not go away in time, or the cacher was not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object {key} with uid {uid} is still there")]
pub struct StillThere {
    /// The object's key.
    pub key: String,
    /// The object's uid.
    pub uid: String,
}

/// The versions that are waited for, and what the member says of them. The reflector looks here to see whether the
/// member is to be asked for progress, and leaves its answers here.
#[derive(Debug, Default)]
pub(crate) struct VersionWaiters {
    /// How many wait for each version.
    versions: Mutex<BTreeMap<CollectionVersion, usize>>,
    arrived: Notify,
    /// How many questions for the latest version were put.
    questions: AtomicU64,
    answer: watch::Sender<LatestVersion>,
}

/// The member's latest version, as of some moment between question and answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestVersion {
    /// The number of the question; 0 for none.
    question: u64,
    latest: ResourceVersion,
}

impl VersionWaiters {
    /// Enters a version that has just become known until the guard is dropped, and wakes the reflector.
    pub(crate) fn enter(&self, version: CollectionVersion) -> VersionWaiter<'_> {
        self.enter_known(version, self.questions.load(Ordering::SeqCst))
    }

    /// Enters a version that was known when so many questions had been put.
    pub(crate) fn enter_known(&self, version: CollectionVersion, questions: u64) -> VersionWaiter<'_> {
        *self.versions.lock().entry(version).or_default() += 1;
        self.arrived.notify_one();
        VersionWaiter { wanted: self, version, questions }
    }

    /// Ends when a version has been entered since the last call ended.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// The number of a question that is about to be put.
    pub(crate) fn next_question(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Tells the waiters what the member answered.
    pub(crate) fn resolve_question(&self, question: u64, latest: ResourceVersion) {
        self.answer.send_replace(LatestVersion { question, latest });
    }

    /// The lowest version above `current` that is waited for.
    pub(crate) fn next_above(&self, current: CollectionVersion) -> Option<CollectionVersion> {
        let above = (std::ops::Bound::Excluded(current), std::ops::Bound::Unbounded);
        self.versions.lock().range(above).next().map(|(version, _)| *version)
    }
}

/// One waiter's entry.
#[derive(Debug)]
pub(crate) struct VersionWaiter<'a> {
    wanted: &'a VersionWaiters,
    version: CollectionVersion,
    /// How many questions had been put when the version was known.
    questions: u64,
}

impl VersionWaiter<'_> {
    /// The version that is waited for.
    pub(crate) fn version(&self) -> CollectionVersion {
        self.version
    }

    /// Ends when the member's latest version turns out to be below the one that is waited for, and gives it.
    ///
    /// Only questions put since the version was known count: the answer to an earlier one may be older
    /// than the version.
    pub(crate) async fn beyond(&self) -> ResourceVersion {
        let mut answers = self.wanted.answer.subscribe();
        let beyond = |answer: &LatestVersion| answer.question > self.questions && self.version > answer.latest;
        let latest = answers.wait_for(beyond).await.ok().map(|answer| answer.latest);
        match latest {
            Some(latest) => latest,
            // The sender lives as long as `self`.
            None => std::future::pending().await,
        }
    }
}

impl Drop for VersionWaiter<'_> {
    fn drop(&mut self) {
        let mut versions = self.wanted.versions.lock();
        if let Some(count) = versions.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                versions.remove(&self.version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_counted_until_the_last_waiter_leaves() {
        let wanted = VersionWaiters::default();
        let version = |revision| CollectionVersion::whole(ResourceVersion(revision));
        let first = wanted.enter(version(5));
        let second = wanted.enter(version(5));
        let third = wanted.enter(version(9));
        assert_eq!(wanted.next_above(version(4)), Some(version(5)));
        assert_eq!(wanted.next_above(version(5)), Some(version(9)));
        assert_eq!(wanted.next_above(version(9)), None);
        drop(first);
        assert_eq!(wanted.next_above(version(0)), Some(version(5)));
        drop(second);
        assert_eq!(wanted.next_above(version(0)), Some(version(9)));
        drop(third);
        assert_eq!(wanted.next_above(version(0)), None);
    }
    #[tokio::test]
    async fn only_answers_to_later_questions_count() {
        let wanted = VersionWaiters::default();
        let early = wanted.next_question();
        let waiting = wanted.enter(ResourceVersion(5).into());
        let beyond = waiting.beyond();
        tokio::pin!(beyond);
        assert!(futures::poll!(&mut beyond).is_pending());
        wanted.resolve_question(early, ResourceVersion(4));
        assert!(futures::poll!(&mut beyond).is_pending(), "it may have been answered before version 5 was made");
        wanted.resolve_question(wanted.next_question(), ResourceVersion(5));
        assert!(futures::poll!(&mut beyond).is_pending(), "the version exists");
        wanted.resolve_question(wanted.next_question(), ResourceVersion(4));
        assert_eq!(beyond.await, ResourceVersion(4));
    }
}
