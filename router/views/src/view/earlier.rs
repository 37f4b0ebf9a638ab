//! Standings of clusters, matched with the data that was read.
//!
//! ```text
//! request ─▶ known ─▶ EarlierStandings ─▶ waits, then reads the log ─▶ View::standings_with ─▶ Standings
//!                                                                                    ─▶ 429, 404, warnings
//! ```
//!
//! A cluster that forbids reading may be given up while a request waits. Its objects then leave the log, and a request
//! that remembers the cluster as known would report the objects as missing. Therefore the standings from before the
//! wait never answer a request: the answer uses the standings that fit the data that was read.

use std::sync::Arc;

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Object, ObjectKey, Partial};
use tributary_merge::Heads;

use super::View;
use super::standing::{self, Standing, Standings};

/// The standings of the wanted clusters before a request waited and read.
#[derive(Clone, Debug)]
pub struct EarlierStandings {
    wanted: ClusterSelector,
    partial: Partial,
    standings: Arc<Standings>,
}

impl EarlierStandings {
    /// Standings of the wanted clusters. `partial` decides what happens if one of them is unknown.
    pub fn new(standings: Arc<Standings>, wanted: &ClusterSelector, partial: Partial) -> Self {
        Self { wanted: wanted.clone(), partial, standings }
    }

    pub(super) fn wanted_clusters(&self) -> &ClusterSelector {
        &self.wanted
    }

    /// Whether a partial answer is allowed if a cluster is unknown.
    pub(super) fn partial(&self) -> Partial {
        self.partial
    }

    /// The clusters with cached objects, and their earlier standings.
    pub(super) fn cached_clusters(&self) -> impl Iterator<Item = (&ClusterName, &Standing)> {
        self.standings.iter().filter(|(_, standing)| matches!(standing, Standing::Fresh | Standing::Stale { .. }))
    }

    /// Whether a cluster forbade reading the whole collection.
    pub fn is_one_forbidden(&self) -> bool {
        self.standings.is_one_forbidden()
    }

    /// Marks a cluster as stale, because its cached objects may lack something even if its watch is up to date. Has no
    /// effect on a cluster that is not wanted.
    pub fn doubt(&mut self, cluster: ClusterName, stale: Standing) {
        if self.standings.standing_of(&cluster).is_some() {
            Arc::make_mut(&mut self.standings).set(cluster, stale);
        }
    }
}

impl View {
    /// The standings that fit the data that was read. `held` are the snapshots from which the answer is made, or in
    /// which it was searched. This is the only way from earlier standings to an answer.
    ///
    /// # Errors
    /// 429 if a partial answer is denied and a wanted cluster was given up in the meantime, or is new.
    pub fn standings_with(&self, before: EarlierStandings, held: &Heads) -> Result<Arc<Standings>, Refusal> {
        let EarlierStandings { wanted, partial, standings } = before;
        // After the snapshots were taken: a cluster is marked as unknown before it leaves the log.
        let now = self.standings_of(&wanted);
        let standings = match Arc::ptr_eq(&now, &standings) {
            true => now,
            false => now.advance_from(&standings, held).no_better_than(&standings),
        };
        match (partial, standing::refusal(&self.kind.resource, &standings)) {
            (Partial::Deny, Some(refusal)) => Err(refusal.into()),
            _ => Ok(standings),
        }
    }

    /// Updates the standings between two waits, because an unknown cluster may be known by now.
    pub fn look_again(&self, before: &mut EarlierStandings) {
        let held = Arc::clone(self.log().head());
        before.standings = self.standings_of(&before.wanted).advance_from(&before.standings, &held);
    }

    /// The objects of a name with their clusters, and the standings that fit them.
    ///
    /// # Errors
    /// As [`standings_with`](Self::standings_with).
    #[expect(clippy::type_complexity, reason = "as the log gives them")]
    pub fn find(
        &self,
        before: EarlierStandings,
        key: &ObjectKey,
    ) -> Result<(Vec<(ClusterName, Arc<Object>)>, Arc<Standings>), Refusal> {
        let log = self.log();
        let (found, held) = (log.find(key.as_str()), Arc::clone(log.head()));
        drop(log);
        Ok((found, self.standings_with(before, &held)?))
    }
}
