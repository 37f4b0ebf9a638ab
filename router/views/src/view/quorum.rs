//! `consistency: Quorum`: reads that contain everything the members had when the request came.
//!
//! Each member is asked for its collection's version (an unset list of one object, which a kube-apiserver answers as of
//! "most recent", by a quorum of its etcd), and the answer is given from memory once the cacher has come that far. So
//! it is linearizable per member, however it was written there, and costs a small request instead of a whole list. In a
//! collection that changes the cacher has come that far already; one that does not change has to be told of progress,
//! which takes a kube-apiserver 1.36 about 1.3 s.
//!
//! Reads that come while a question is under way share the next one: an answer to a question that was put before a read
//! came says nothing to it.

use std::sync::Arc;

use futures::future::join_all;
use tokio::time::Instant;
use tributary_answers::refusal::VersionRefusal;
use tributary_apimachinery::{ClusterName, Partial, explain};

use super::standing::Standing;
use super::{EarlierStandings, View, standing};

impl View {
    /// Waits until memory has everything that the clusters have now of which it holds something. A cluster that does
    /// not confirm it is stale, where a partial answer is allowed.
    ///
    /// # Errors
    /// 504 naming the clusters that do not confirm it within about 3 s, where a partial answer is denied.
    pub(super) async fn as_of_now(&self, before: &mut EarlierStandings) -> Result<(), VersionRefusal> {
        let asked = before.cached_clusters().map(|(cluster, standing)| async move {
            let Err(reason) = self.confirmed(cluster).await else { return None };
            let since = match standing {
                Standing::Stale { since, .. } => *since,
                _ => Instant::now(),
            };
            Some((cluster.clone(), since, reason))
        });
        let unconfirmed: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let late: Vec<_> = unconfirmed.iter().map(|(cluster, _, reason)| format!("{cluster}: {reason}")).collect();
        for (cluster, since, reason) in unconfirmed {
            let reason = format!("it did not confirm that this is its newest state: {reason}").into();
            before.doubt(cluster, Standing::Stale { since, reason, forbidden: false });
        }
        if late.is_empty() || before.partial() == Partial::Allow {
            return Ok(());
        }
        let (resource, reasons) = (self.kind.resource.clone(), standing::shortened(&late));
        Err(VersionRefusal::NotConfirmed { resource, reasons })
    }

    /// Waits until memory has all that one cluster has now.
    async fn confirmed(&self, cluster: &ClusterName) -> Result<(), Arc<str>> {
        let Some((cacher, questions)) = self.questions(cluster) else {
            return Err("it is no longer held in memory".into());
        };
        let held = cacher.snapshot().map(|snapshot| snapshot.resource_version()).unwrap_or_default();
        let latest = questions.latest(&cacher).await?;
        if held > latest {
            // What is held is of a state that is no more.
            cacher.reset();
            return Err(format!("its revisions went back from {held} to {latest}").into());
        }
        match self.shown(cluster, cacher, latest.into()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(explain(&error).into()),
            None => Err("it is no longer held in memory".into()),
        }
    }
}
