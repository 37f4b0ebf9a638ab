//! Waiting for a version, and the list of versions that are waited for.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tributary_apimachinery::ResourceVersion;

/// The cacher did not reach the version in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too large resource version: {wanted}, current: {}", .current.unwrap_or_default())]
pub struct TooNew {
    /// The version that was waited for.
    pub wanted: ResourceVersion,
    /// The cacher's version when the time was over; `None` if it was not synced.
    pub current: Option<ResourceVersion>,
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

/// The versions that are waited for. The reflector looks here to see whether the member is to be asked for progress.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// How many wait for each version.
    versions: Mutex<BTreeMap<ResourceVersion, usize>>,
    arrived: Notify,
}

impl Wanted {
    /// Enters a version until the guard is dropped, and wakes the reflector.
    pub(crate) fn enter(&self, version: ResourceVersion) -> Waiting<'_> {
        *self.versions.lock().entry(version).or_default() += 1;
        self.arrived.notify_one();
        Waiting { wanted: self, version }
    }

    /// Ends when a version has been entered since the last call ended.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// The lowest version above `current` that is waited for.
    pub(crate) fn next_above(&self, current: ResourceVersion) -> Option<ResourceVersion> {
        let above = (std::ops::Bound::Excluded(current), std::ops::Bound::Unbounded);
        self.versions.lock().range(above).next().map(|(version, _)| *version)
    }
}

/// One waiter's entry.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    wanted: &'a Wanted,
    version: ResourceVersion,
}

impl Drop for Waiting<'_> {
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
        let wanted = Wanted::default();
        let version = ResourceVersion;
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
}
