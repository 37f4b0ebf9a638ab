//! Waits before a read that must return the newest state.

use tributary_answers::refusal::VersionRefusal;
use tributary_apimachinery::Consistency;

use super::read_your_writes::WriterSelector;
use super::{CacheState, EarlierCacheStates, View};

impl View {
    /// Waits until the cache contains the writes through this process. With `consistency: Quorum`, also waits until the
    /// cache contains the current state of the members. If partial answers are allowed, a cluster that does not confirm
    /// its state is treated as stale.
    ///
    /// # Errors
    /// 504 if the cache does not reach the state within 3 s.
    pub async fn newest(
        &self,
        by: WriterSelector,
        before: &mut EarlierCacheStates,
        consistency: Consistency,
    ) -> Result<(), VersionRefusal> {
        let own = self.own_writes_seen(by, before.wanted_clusters(), before.partial()).await?;
        if own.waited {
            // A cluster that has become stale during the first wait needs no second wait.
            self.look_again(before);
        }
        for (cluster, since) in own.late {
            before.doubt(cluster, CacheState::unseen_writes(since));
        }
        if consistency == Consistency::Quorum {
            self.wait_for_newest(before).await?;
        }
        Ok(())
    }
}
