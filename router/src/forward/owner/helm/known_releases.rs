//! Cache of the clusters' answers about Helm releases.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource};

use super::release::Release;
use crate::caller::CallerKey;
use crate::forward::owner::decision::Evidence;

/// Answers of the last seconds. One Helm upgrade writes dozens of objects of the same release, so a cached answer saves
/// many lookups.
#[derive(Default)]
pub(crate) struct KnownReleases(Mutex<ReleaseAnswers>);

#[derive(Default)]
struct ReleaseAnswers {
    answers: HashMap<ReleaseKey, (Instant, Evidence)>,
    /// Number of invalidations. A lookup that began before the last invalidation may have missed a write.
    generation: u64,
}

#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ReleaseKey {
    /// Identity of the caller in the clusters.
    pub(crate) caller: CallerKey,
    pub(crate) resource: GroupVersionResource,
    pub(crate) release: Release,
    pub(crate) clusters: Box<[ClusterName]>,
}

/// Lifetime of an answer. 10 s: most upgrades take less, and a write of a record through Tributary ends the lifetime at
/// once.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);

/// Maximum of cached answers. Clients upgrade fewer releases within 10 s.
const ANSWERS_MAX: usize = 1_000;

impl KnownReleases {
    pub(crate) fn get(&self, key: &ReleaseKey) -> Option<Evidence> {
        let known = self.0.lock();
        known.answers.get(key).filter(|(at, _)| at.elapsed() < ANSWER_LIFETIME).map(|(_, evidence)| evidence.clone())
    }

    /// Returns the number of invalidations at the start of a lookup, for [`insert`](Self::insert).
    pub(crate) fn generation(&self) -> u64 {
        self.0.lock().generation
    }

    /// Caches the answer to a lookup, unless the cache is full, or has been invalidated since the lookup began.
    /// `generation` is the [`generation`](Self::generation) at the lookup's start.
    pub(crate) fn insert(&self, key: ReleaseKey, generation: u64, evidence: Evidence) {
        let mut known = self.0.lock();
        known.answers.retain(|_, (at, _)| at.elapsed() < ANSWER_LIFETIME);
        if known.answers.len() < ANSWERS_MAX && known.generation == generation {
            known.answers.insert(key, (Instant::now(), evidence));
        }
    }

    /// Removes the releases of a namespace in which a record may have been written.
    pub(crate) fn forget(&self, namespace: &str) {
        let mut known = self.0.lock();
        known.generation += 1;
        known.answers.retain(|key, _| key.release.namespace() != namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(clusters: &[&str]) -> ReleaseKey {
        ReleaseKey {
            caller: CallerKey::Owner(Box::default()),
            resource: GroupVersionResource::new("", "v1", "secrets"),
            release: Release::named("n", "r"),
            clusters: clusters.iter().map(|name| name.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn cached_helm_release_lookup_is_valid_only_for_its_clusters() {
        let known = KnownReleases::default();
        known.insert(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
        assert_eq!(known.get(&key(&["a", "b"])), None);
    }

    #[test]
    fn helm_release_lookup_that_began_before_a_write_is_not_cached() {
        let known = KnownReleases::default();
        let before = known.generation();
        known.forget("n");
        known.insert(key(&["a"]), before, Evidence::default());
        assert_eq!(known.get(&key(&["a"])), None);
        known.insert(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
    }
}
