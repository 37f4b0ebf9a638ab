//! What clusters have said to questions of rights, and how one of them is put.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Fleet;

use super::kept::KeptAnswers;
use super::question::Question;
use super::said::{KnownAnswer, ReviewAnswer, asked_again_at};
use crate::SharedMode;
use crate::access_review;
use crate::mirror_state::BEHIND_MAX;

/// What clusters have said.
pub(crate) struct ClusterAnswers {
    fleet: Arc<Fleet>,
    mode: SharedMode,
    kept: Mutex<KeptAnswers>,
    /// The clusters that are asked nothing: nothing is dispatched to them at all.
    frozen: ArcSwap<BTreeSet<ClusterName>>,
}

impl ClusterAnswers {
    /// Of these clusters, of which nothing is known yet.
    pub(super) fn new(fleet: Arc<Fleet>, mode: SharedMode) -> Self {
        Self { fleet, mode, kept: Mutex::default(), frozen: ArcSwap::default() }
    }

    /// Has these clusters be asked nothing from now on, and all others what there is to ask. Gives those of before.
    pub(crate) fn freeze(&self, clusters: BTreeSet<ClusterName>) -> Arc<BTreeSet<ClusterName>> {
        self.frozen.swap(Arc::new(clusters))
    }

    /// Whether a cluster is asked nothing: what it said last holds as of one that does not answer.
    pub(crate) fn is_frozen(&self, cluster: &ClusterName) -> bool {
        self.frozen.load().contains(cluster)
    }

    /// What is known of an answer, where the user's rights there by roles and bindings are of this generation.
    pub(crate) fn known_answer(&self, question: &Question, generation: u64) -> KnownAnswer {
        self.last_answer(question).known_answer(Instant::now(), generation, self.hold_time(&question.cluster))
    }

    /// The same, where what is open counts as it was said last, in whatever generation.
    pub(crate) fn known_last(&self, question: &Question, generation: u64) -> KnownAnswer {
        self.last_answer(question).known_last(Instant::now(), generation, self.hold_time(&question.cluster))
    }

    /// What is known, without what counts only because the cluster does not answer any more.
    pub(crate) fn known_now(&self, question: &Question, generation: u64) -> KnownAnswer {
        self.last_answer(question).known_answer(Instant::now(), generation, Duration::ZERO)
    }

    /// The same of what was asked since a moment, without what was said before.
    pub(crate) fn known_since(&self, question: &Question, generation: u64, moment: Instant) -> KnownAnswer {
        self.last_answer(question).asked_since(moment).known_answer(Instant::now(), generation, Duration::ZERO)
    }

    /// How long an answer of a cluster holds that does not answer any more.
    fn hold_time(&self, cluster: &ClusterName) -> Duration {
        let is_cut_off = self.fleet.cluster(cluster).is_none_or(|cluster| cluster.is_out_of_reach());
        if is_cut_off { self.mode.stale_rights } else { BEHIND_MAX }
    }

    /// What was said last.
    pub(super) fn last_answer(&self, question: &Question) -> ReviewAnswer {
        self.kept.lock().get(question).unwrap_or_default()
    }

    /// Forgets the answers of a cluster whose name means another by now.
    pub(crate) fn forget(&self, cluster: &ClusterName) {
        self.kept.lock().forget(cluster);
    }

    /// Puts a question, and notes the answer.
    pub(super) async fn put(&self, question: &Question, generation: u64) {
        let asked = Instant::now();
        let cluster = self.fleet.cluster(&question.cluster);
        let answer = self.wait_for_answer(question).await;
        if cluster.is_some_and(|cluster| cluster.incarnation().has_ended()) {
            return;
        }
        let mut kept = self.kept.lock();
        let before = kept.get(question).unwrap_or_default();
        let said = match answer {
            // It was asked in another turn as well, and later.
            Some(_) if before.answer.is_some_and(|(_, own, _)| own > asked) => before,
            Some(allowed) => ReviewAnswer { answer: Some((allowed, asked, generation)), silent_until: None },
            None => ReviewAnswer { silent_until: Some(asked_again_at(asked, Instant::now())), ..before },
        };
        kept.put(question.clone(), said);
    }

    async fn wait_for_answer(&self, question: &Question) -> Option<bool> {
        if self.is_frozen(&question.cluster) {
            return None;
        }
        let cluster = self.fleet.cluster(&question.cluster).filter(|cluster| !cluster.is_out_of_reach())?;
        let transport = cluster.transport().ok()?;
        access_review::access(transport, &question.who, &question.attributes()).await.ok()
    }
}
