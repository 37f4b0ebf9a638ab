//! How clusters stand with what was read of them.
//!
//! ```text
//! request ─▶ known ─▶ EarlierStandings ─▶ waits, then reads the log ─▶ View::standings_with ─▶ Standings
//!                                                                                    ─▶ 429, 404, warnings
//! ```
//!
//! A cluster that forbids to be read is given up while requests wait for something else: then its objects leave the
//! log, and who remembers that it was known would say of them that they do not exist. So what a request is given first
//! answers nothing: how clusters stand is said together with what was read of them.

use std::sync::Arc;

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Object, ObjectKey, Partial};
use tributary_merge::Heads;

use super::View;
use super::standing::{self, Standing, Standings};

/// How the clusters that a request wants stood before it waited and read.
#[derive(Clone, Debug)]
pub struct EarlierStandings {
    wanted: ClusterSelector,
    partial: Partial,
    standings: Arc<Standings>,
}

impl EarlierStandings {
    /// Of the clusters that are wanted, and what happens where one is unknown.
    pub fn new(standings: Arc<Standings>, wanted: &ClusterSelector, partial: Partial) -> Self {
        Self { wanted: wanted.clone(), partial, standings }
    }

    /// The clusters that are wanted.
    pub(super) fn wanted_clusters(&self) -> &ClusterSelector {
        &self.wanted
    }

    /// What happens where a cluster is unknown.
    pub(super) fn partial(&self) -> Partial {
        self.partial
    }

    /// The clusters of which objects are held, and how they stood.
    pub(super) fn cached_clusters(&self) -> impl Iterator<Item = (&ClusterName, &Standing)> {
        self.standings.iter().filter(|(_, standing)| matches!(standing, Standing::Fresh | Standing::Stale { .. }))
    }

    /// Whether one forbade to read the whole collection.
    pub fn is_one_forbidden(&self) -> bool {
        self.standings.is_one_forbidden()
    }

    /// Notes that what is held of a cluster may lack something: it is stale, however well it follows its member. One
    /// that is not wanted is left out.
    pub fn doubt(&mut self, cluster: ClusterName, stale: Standing) {
        if self.standings.standing_of(&cluster).is_some() {
            Arc::make_mut(&mut self.standings).set(cluster, stale);
        }
    }
}

impl View {
    /// How clusters stand with what was read of them: `held` are the heads that the answer is made of, or among which
    /// it was looked for. The only way from what a request was given first to what its answer says.
    ///
    /// # Errors
    /// 429 where a partial answer is denied and a cluster was given up meanwhile, or is new.
    pub fn standings_with(&self, before: EarlierStandings, held: &Heads) -> Result<Arc<Standings>, Refusal> {
        let EarlierStandings { wanted, partial, standings } = before;
        // After the heads: a cluster is noted as unknown before it leaves the log.
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

    /// Looks again how clusters stand, after something was waited for and before something else is:
    /// whoever was unknown may be known.
    pub fn look_again(&self, before: &mut EarlierStandings) {
        let held = Arc::clone(self.log().head());
        before.standings = self.standings_of(&before.wanted).advance_from(&before.standings, &held);
    }

    /// The objects of a name and their clusters, and how the clusters stand with that.
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
