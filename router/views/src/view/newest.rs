//! What a read of the newest waits for.

use tributary_answers::refusal::VersionRefusal;
use tributary_apimachinery::Consistency;

use super::fences::WrittenBy;
use super::{EarlierStandings, Standing, View};

impl View {
    /// Waits until memory has what the newest is to have: what was written through this process, and where members are
    /// to be asked, all that they have now. A cluster that does not say so is stale, if that is allowed.
    ///
    /// # Errors
    /// 504 for what does not come within 3 s.
    pub async fn newest(
        &self,
        by: WrittenBy,
        before: &mut EarlierStandings,
        consistency: Consistency,
    ) -> Result<(), VersionRefusal> {
        let own = self.own_writes_seen(by, before.wanted_clusters(), before.partial()).await?;
        if own.waited {
            // Whoever was fresh may have become stale while it was waited for, and is not waited for then.
            self.look_again(before);
        }
        for (cluster, since) in own.late {
            before.doubt(cluster, Standing::unseen_writes(since));
        }
        if consistency == Consistency::Quorum {
            self.as_of_now(before).await?;
        }
        Ok(())
    }
}
