//! Cluster states that are consistent with the data of a response.
//!
//! ```text
//! request ─▶ known ─▶ EarlierStandings ─▶ waits, then reads the log ─▶ View::standings_with ─▶ Standings
//!                                                                                    ─▶ 429, 404, warnings
//! ```
//!
//! While a request waits, the objects of a cluster that forbids reads may be removed from the log. A request that
//! remembers the cluster as known would then report the objects as deleted. Therefore a response never uses the states
//! from before the wait, but states that are consistent with the data that was read.

use std::sync::Arc;

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Object, ObjectKey, Partial};
use tributary_merge::Heads;

use super::View;
use super::standing::{self, Standing, Standings};

/// States of the wanted clusters from before a request waited and read the log.
#[derive(Clone, Debug)]
pub struct EarlierStandings {
    wanted: ClusterSelector,
    partial: Partial,
    standings: Arc<Standings>,
}

impl EarlierStandings {
    /// Stores the states of the wanted clusters. `partial` decides whether an unknown cluster fails the request.
    pub fn new(standings: Arc<Standings>, wanted: &ClusterSelector, partial: Partial) -> Self {
        Self { wanted: wanted.clone(), partial, standings }
    }

    pub(super) fn wanted_clusters(&self) -> &ClusterSelector {
        &self.wanted
    }

    pub(super) fn partial(&self) -> Partial {
        self.partial
    }

    /// Clusters with cached objects, with their states from before the wait.
    pub(super) fn cached_clusters(&self) -> impl Iterator<Item = (&ClusterName, &Standing)> {
        self.standings.iter().filter(|(_, standing)| matches!(standing, Standing::Fresh | Standing::Stale { .. }))
    }

    /// Returns whether at least one of the clusters forbade reads of the whole collection.
    pub fn is_one_forbidden(&self) -> bool {
        self.standings.is_one_forbidden()
    }

    /// Marks a cluster as stale, because its cached objects may be incomplete although its watch is up to date. Has no
    /// effect on a cluster that is not wanted.
    pub fn doubt(&mut self, cluster: ClusterName, stale: Standing) {
        if self.standings.standing_of(&cluster).is_some() {
            Arc::make_mut(&mut self.standings).set(cluster, stale);
        }
    }
}

impl View {
    /// Returns the cluster states that are consistent with the data that was read. `held` are the snapshots from which
    /// the response is made. Every response gets its states from this function.
    ///
    /// # Errors
    /// 429 if partial answers are denied and a wanted cluster is new, or has become unknown during the wait.
    pub fn standings_with(&self, before: EarlierStandings, held: &Heads) -> Result<Arc<Standings>, Refusal> {
        let EarlierStandings { wanted, partial, standings } = before;
        // The states are read after the snapshots, because a cluster is marked as unknown before its objects leave the
        // log.
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

    /// Updates the states between two waits, because an unknown cluster may have become known.
    pub fn look_again(&self, before: &mut EarlierStandings) {
        let held = Arc::clone(self.log().head());
        before.standings = self.standings_of(&before.wanted).advance_from(&before.standings, &held);
    }

    /// Finds the objects with a key in all clusters, and the cluster states that are consistent with these objects.
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
