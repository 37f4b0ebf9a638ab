//! Where Helm releases are that members were asked for a moment ago.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource};

use crate::caller::CallerKey;
use crate::grounds::Evidence;
use crate::helm_release::Release;

/// Where releases are that members were asked for a moment ago: one upgrade writes dozens of objects.
#[derive(Default)]
pub(crate) struct KnownReleases(Mutex<ReleaseAnswers>);

#[derive(Default)]
struct ReleaseAnswers {
    answers: HashMap<ReleaseKey, (Instant, Evidence)>,
    /// How often something was forgotten: an answer to a question from before says nothing of what was written since.
    generation: u64,
}

/// Which question was asked, in whose name.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ReleaseKey {
    /// Who asked.
    pub(crate) caller: CallerKey,
    /// What its records are.
    pub(crate) resource: GroupVersionResource,
    /// Whose they are.
    pub(crate) release: Release,
    /// Which clusters were asked: what others have the answer does not say.
    pub(crate) clusters: Box<[ClusterName]>,
}

/// How long an answer is good for. 10 s: most upgrades take less, and records that are written through this process end
/// it at once.
const KEPT: Duration = Duration::from_secs(10);

/// How many answers are kept: more than clients upgrade releases in 10 s.
const KEPT_MAX: usize = 1_000;

impl KnownReleases {
    /// What members answered to a question a moment ago.
    pub(crate) fn get(&self, key: &ReleaseKey) -> Option<Evidence> {
        let known = self.0.lock();
        known.answers.get(key).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, evidence)| evidence.clone())
    }

    /// When a question is put, as [`insert`](Self::insert) asks for it.
    pub(crate) fn generation(&self) -> u64 {
        self.0.lock().generation
    }

    /// Keeps the answer to a question that was put at this generation, if there is room and nothing was forgotten
    /// since.
    pub(crate) fn insert(&self, key: ReleaseKey, asked_at: u64, evidence: Evidence) {
        let mut known = self.0.lock();
        known.answers.retain(|_, (at, _)| at.elapsed() < KEPT);
        if known.answers.len() < KEPT_MAX && known.generation == asked_at {
            known.answers.insert(key, (Instant::now(), evidence));
        }
    }

    /// Forgets what is known of a namespace in which a record may have been written.
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
    fn an_answer_is_of_the_clusters_that_were_asked() {
        let known = KnownReleases::default();
        known.insert(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
        assert_eq!(known.get(&key(&["a", "b"])), None);
    }

    #[test]
    fn what_was_asked_before_a_record_was_written_is_not_kept() {
        let known = KnownReleases::default();
        let before = known.generation();
        known.forget("n");
        known.insert(key(&["a"]), before, Evidence::default());
        assert_eq!(known.get(&key(&["a"])), None);
        known.insert(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
    }
}
