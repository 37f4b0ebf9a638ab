//! The versions for which readers wait, and the errors of these waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tributary_apimachinery::{CollectionVersion, ResourceVersion};

/// The reason why a collection did not reach a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReached {
    /// The time limit passed: the member is unreachable, or its events are late.
    #[error("too large resource version: {wanted}, current: {}", .current.unwrap_or_default())]
    TooNew {
        /// The awaited version.
        wanted: CollectionVersion,
        /// The collection's version when the time limit passed; `None` if the collection was not synced.
        current: Option<CollectionVersion>,
    },
    /// The member has not reached the version, according to its answer to a request that was sent after the wait began.
    /// Either the member's revisions went back since the version was issued, or the version is from a different
    /// cluster.
    #[error("too large resource version: {wanted}, the cluster's latest: {latest}")]
    Beyond {
        /// The awaited version.
        wanted: CollectionVersion,
        /// The member's latest version.
        latest: ResourceVersion,
    },
}

/// The error when an object was not deleted within the time limit, or when its collection was not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object {key} with uid {uid} still exists")]
pub struct StillExists {
    /// The `namespace/name` of the object.
    pub key: String,
    /// The uid of the object whose deletion was awaited.
    pub uid: String,
}

/// The versions for which readers wait, and the member's latest version. The reflector reads the awaited versions to
/// decide whether to request the member's latest version, and stores the response here for the readers.
#[derive(Debug, Default)]
pub(crate) struct VersionWaiters {
    versions: Mutex<BTreeMap<CollectionVersion, usize>>,
    arrived: Notify,
    /// The number of requests for the latest version so far.
    requests: AtomicU64,
    answer: watch::Sender<LatestVersion>,
}

/// The member's latest version. The member had this version at some time between the request and its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestVersion {
    /// The number of the request that returned the version; 0 before the first response.
    request_number: u64,
    latest: ResourceVersion,
}

impl VersionWaiters {
    /// Registers a waiter for a version, and wakes the reflector. Only responses to requests after this call can show
    /// that the member has not reached the version. Dropping the guard removes the waiter.
    pub(crate) fn register(&self, version: CollectionVersion) -> VersionWaiter<'_> {
        self.register_known(version, self.requests.load(Ordering::SeqCst))
    }

    /// Registers a waiter for a version that the reader received when `requests` requests for the latest version had
    /// been sent. Only responses to later requests can show that the member has not reached the version.
    pub(crate) fn register_known(&self, version: CollectionVersion, requests: u64) -> VersionWaiter<'_> {
        *self.versions.lock().entry(version).or_default() += 1;
        self.arrived.notify_one();
        VersionWaiter { wanted: self, version, requests }
    }

    /// Completes when a waiter has been added since the last call completed.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Assigns and returns the number of the next request for the latest version.
    pub(crate) fn assign_request_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Passes the member's latest version to the waiting readers.
    pub(crate) fn resolve_request(&self, request_number: u64, latest: ResourceVersion) {
        self.answer.send_replace(LatestVersion { request_number, latest });
    }

    pub(crate) fn next_above(&self, current: CollectionVersion) -> Option<CollectionVersion> {
        let above = (std::ops::Bound::Excluded(current), std::ops::Bound::Unbounded);
        self.versions.lock().range(above).next().map(|(version, _)| *version)
    }
}

/// A registered waiter. Dropping the guard removes the waiter.
#[derive(Debug)]
pub(crate) struct VersionWaiter<'a> {
    wanted: &'a VersionWaiters,
    version: CollectionVersion,
    /// The number of requests for the latest version that had been sent when the reader received the awaited version.
    /// The responses to these requests are ignored.
    requests: u64,
}

impl VersionWaiter<'_> {
    pub(crate) fn version(&self) -> CollectionVersion {
        self.version
    }

    /// Completes when the member reports a latest version below the awaited version. Returns the latest version.
    ///
    /// Ignores responses to requests from before the reader received the awaited version, because the member may have
    /// reached the awaited version after such a response.
    pub(crate) async fn beyond(&self) -> ResourceVersion {
        let mut answers = self.wanted.answer.subscribe();
        let beyond = |answer: &LatestVersion| answer.request_number > self.requests && self.version > answer.latest;
        let latest = answers.wait_for(beyond).await.ok().map(|answer| answer.latest);
        match latest {
            Some(latest) => latest,
            // Unreachable, because the wait cannot fail: `self` keeps the sender alive, so the channel stays open.
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
    fn awaited_version_is_removed_when_its_last_waiter_is_dropped() {
        let wanted = VersionWaiters::default();
        let version = |revision| CollectionVersion::whole(ResourceVersion(revision));
        let first = wanted.register(version(5));
        let second = wanted.register(version(5));
        let third = wanted.register(version(9));
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
    async fn version_waiter_ignores_responses_to_requests_before_its_wait() {
        let wanted = VersionWaiters::default();
        let early = wanted.assign_request_number();
        let waiting = wanted.register(ResourceVersion(5).into());
        let beyond = waiting.beyond();
        tokio::pin!(beyond);
        assert!(futures::poll!(&mut beyond).is_pending());
        wanted.resolve_request(early, ResourceVersion(4));
        assert!(futures::poll!(&mut beyond).is_pending(), "the answer may be older than version 5");
        wanted.resolve_request(wanted.assign_request_number(), ResourceVersion(5));
        assert!(futures::poll!(&mut beyond).is_pending(), "the version exists");
        wanted.resolve_request(wanted.assign_request_number(), ResourceVersion(4));
        assert_eq!(beyond.await, ResourceVersion(4));
    }
}
