//! Waits until the states of clusters are known, and checks for clusters that forbid reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Partial};

use super::View;
use super::standing::{self, Standing, Standings};

/// Time for which lists and watches wait for unknown clusters.
pub const KNOWN_WITHIN: Duration = Duration::from_secs(30);

impl View {
    /// Waits until the wanted clusters are known, and returns their states. If partial answers are allowed, the
    /// function waits only until the first attempt to read each cluster has succeeded or failed.
    ///
    /// # Errors
    /// 429 with the clusters that are still unknown at the deadline, if partial answers are denied. The error comes at
    /// once if a cluster is unknown for a permanent cause.
    pub async fn wait_until_known(
        &self,
        partial: Partial,
        wanted: &ClusterSelector,
        deadline: Instant,
    ) -> Result<Arc<Standings>, Refusal> {
        // Usually all states are known, and this case does not touch the shared channel.
        if let Some(standings) = self.board.enough(partial, wanted) {
            return self.unless_refused(partial, standings);
        }
        let mut changes = self.board.enough_changes(wanted);
        loop {
            changes.look();
            if let Some(standings) = self.board.enough(partial, wanted) {
                return self.unless_refused(partial, standings);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return self.unless_refused(partial, self.standings_of(wanted));
            }
        }
    }

    fn unless_refused(&self, partial: Partial, standings: Arc<Standings>) -> Result<Arc<Standings>, Refusal> {
        match (partial, standing::refusal(&self.kind.resource, &standings)) {
            (Partial::Deny, Some(refusal)) => Err(refusal.into()),
            _ => Ok(standings),
        }
    }

    /// Waits until the first attempt to read each of these clusters has succeeded or failed, or until the deadline.
    /// Returns the states of all clusters.
    pub async fn attempted(&self, clusters: &[ClusterName], deadline: Instant) -> Arc<Standings> {
        let mut changes = self.board.changes();
        // Each cluster is visited only until its first attempt has ended, because the states of a thousand clusters may
        // change as many times.
        let mut waited_for = clusters.iter().peekable();
        loop {
            changes.mark_unchanged();
            let standings = self.standings();
            let is_tried = |cluster: &&ClusterName| !standings.standing_of(cluster).is_some_and(Standing::is_under_way);
            while waited_for.next_if(is_tried).is_some() {}
            if waited_for.peek().is_none() {
                return standings;
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return self.standings();
            }
        }
    }

    /// Returns whether all of these clusters forbid Tributary to read the objects of this view.
    pub fn is_forbidden_by_all(&self, clusters: &[ClusterName]) -> bool {
        let standings = self.standings();
        clusters.iter().all(|cluster| standings.standing_of(cluster).is_some_and(Standing::is_forbidden))
    }

    /// Returns whether a wanted cluster forbids reads of all namespaces, so that a single namespace needs its own view.
    /// Costs one load if no cluster forbids reads.
    pub fn is_forbidden(&self, wanted: &ClusterSelector) -> bool {
        self.board.forbidden() > 0 && self.standings_of(wanted).is_one_forbidden()
    }

    /// Returns the number of times that a cluster began to forbid reads of all namespaces. While the number is
    /// unchanged, [`is_forbidden`](Self::is_forbidden) has the same result.
    pub fn times_forbidden(&self) -> usize {
        self.board.times_forbidden()
    }

    /// Returns whether a wanted cluster forbids reads of all namespaces and its cached objects have been removed. Costs
    /// as much as [`is_forbidden`](Self::is_forbidden).
    pub fn is_given_up(&self, wanted: &ClusterSelector) -> bool {
        self.board.forbidden() > 0 && self.standings_of(wanted).is_one_given_up()
    }
}
