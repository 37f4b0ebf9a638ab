//! Waiting until clusters are known, and which of them forbid to be read.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Partial};

use super::View;
use super::standing::{self, Standing, Standings};

/// How long lists and watches wait for clusters that are not known yet.
pub const KNOWN_WITHIN: Duration = Duration::from_secs(30);

impl View {
    /// Waits until the clusters that are wanted are known: all of them where a partial answer is denied; where it is
    /// allowed, until the first attempt at each has succeeded or failed. Gives how each stands.
    ///
    /// # Errors
    /// 429 naming the clusters that are unknown at the deadline, where a partial answer is denied; at once where one of
    /// them is for a cause that lasts.
    pub async fn wait_until_known(
        &self,
        partial: Partial,
        wanted: &ClusterSelector,
        deadline: Instant,
    ) -> Result<Arc<Standings>, Refusal> {
        // Hardly anybody has to wait, and the others leave alone what all who wait share.
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

    /// Waits until the first attempt at each of these clusters has succeeded or failed, or the time is up,
    /// and gives how all stand.
    pub async fn attempted(&self, clusters: &[ClusterName], deadline: Instant) -> Arc<Standings> {
        let mut changes = self.board.changes();
        // Each is asked about until it has been tried once, and no more:
        // they may be a thousand, and so may the changes.
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

    /// Whether each of these clusters forbids to read what this view is to hold.
    pub fn is_forbidden_by_all(&self, clusters: &[ClusterName]) -> bool {
        let standings = self.standings();
        clusters.iter().all(|cluster| standings.standing_of(cluster).is_some_and(Standing::is_forbidden))
    }

    /// Whether one of the clusters that are wanted forbids to read all: then a single namespace has a view of its own.
    /// Cost: one load where none forbids it.
    pub fn is_forbidden(&self, wanted: &ClusterSelector) -> bool {
        self.board.forbidden() > 0 && self.standings_of(wanted).is_one_forbidden()
    }

    /// How often a cluster came to forbid it: where that has not changed,
    /// [`is_forbidden`](Self::is_forbidden) need not be asked again.
    pub fn times_forbidden(&self) -> usize {
        self.board.times_forbidden()
    }

    /// Whether one of the clusters that are wanted forbids to read all, and what was held of it is gone. Cost: as of
    /// [`is_forbidden`](Self::is_forbidden).
    pub fn is_given_up(&self, wanted: &ClusterSelector) -> bool {
        self.board.forbidden() > 0 && self.standings_of(wanted).is_one_given_up()
    }
}
