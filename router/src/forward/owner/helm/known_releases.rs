//! A cache of the clusters' answers about Helm releases.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource};

use super::release::Release;
use crate::caller::CallerKey;
use crate::forward::owner::decision::Evidence;

/// The answers of the last seconds: one upgrade writes dozens of objects.
#[derive(Default)]
pub(crate) struct KnownReleases(Mutex<ReleaseAnswers>);

#[derive(Default)]
struct ReleaseAnswers {
    answers: HashMap<ReleaseKey, (Instant, Evidence)>,
    /// The number of times that answers were forgotten. An answer to an earlier question lacks later writes.
    generation: u64,
}

/// A question for the records of a release.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ReleaseKey {
    /// The identity of the caller at the clusters.
    pub(crate) caller: CallerKey,
    /// The resource of the records.
    pub(crate) resource: GroupVersionResource,
    pub(crate) release: Release,
    /// The clusters that were asked.
    pub(crate) clusters: Box<[ClusterName]>,
}

/// The lifetime of an answer. 10 s: most upgrades take less, and a write of a record through this process ends it at
/// once.
const KEPT: Duration = Duration::from_secs(10);

/// The number of answers in the cache: more than clients upgrade releases in 10 s.
const KEPT_MAX: usize = 1_000;

impl KnownReleases {
    /// The answer to a question, if it is in the cache.
    pub(crate) fn get(&self, key: &ReleaseKey) -> Option<Evidence> {
        let known = self.0.lock();
        known.answers.get(key).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, evidence)| evidence.clone())
    }

    /// The generation of a question that is put now, for [`insert`](Self::insert).
    pub(crate) fn generation(&self) -> u64 {
        self.0.lock().generation
    }

    /// Adds the answer to a question of this generation, if there is room and nothing was forgotten since.
    pub(crate) fn insert(&self, key: ReleaseKey, asked_at: u64, evidence: Evidence) {
        let mut known = self.0.lock();
        known.answers.retain(|_, (at, _)| at.elapsed() < KEPT);
        if known.answers.len() < KEPT_MAX && known.generation == asked_at {
            known.answers.insert(key, (Instant::now(), evidence));
        }
    }

    /// Forgets the releases of a namespace in which a record may have been written.
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
    fn an_answer_counts_only_for_the_clusters_that_were_asked() {
        let known = KnownReleases::default();
        known.insert(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
        assert_eq!(known.get(&key(&["a", "b"])), None);
    }

    #[test]
    fn an_answer_to_a_question_before_a_write_is_not_cached() {
        let known = KnownReleases::default();
        let before = known.generation();
        known.forget("n");
        known.insert(key(&["a"]), before, Evidence::default());
        assert_eq!(known.get(&key(&["a"])), None);
        known.insert(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
    }
}
