//! As whom a caller acts in a cluster.

use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_authentication::{MemberRules, NotSent, UserInfo};

use super::caller_rights::CallerRights;
use super::existence::Existence;
use crate::refusal::{ClusterRefusal, Refusal, RequestRefusal};

impl CallerRights {
    /// As whom the caller acts in a cluster: nobody is sent whom the cluster does not let the caller be.
    ///
    /// # Errors
    /// 403 that says why the cluster is not told; 503 where what it allows is not known. 404 where another cluster
    /// vouches for the caller: this one is not there then.
    pub(crate) fn identity(&self, cluster: &ClusterName, rules: &MemberRules) -> Result<UserInfo, Refusal> {
        let told = self.actor.identity(cluster, rules).map_err(|why| match why {
            NotSent::OfAnotherCluster(_) => Refusal::from(ClusterRefusal::NotConfigured(cluster.clone())),
            why => RequestRefusal::NotSent(why).into(),
        })?;
        // Whoever acts as themselves is the cluster's own to judge.
        if self.actor.given().is_none() {
            return Ok(told);
        }
        let fleet = self.mirror.compiled();
        match self.existence(&fleet, cluster) {
            Existence::There => Ok(told),
            Existence::Nowhere => Err(self.not_let(&fleet, [cluster])),
            Existence::Unknown => {
                let (user, name) = (GroupVersionResource::new("", "v1", "users"), self.acting_name().to_owned());
                Err(ClusterRefusal::rights_unknown(user, name).into())
            }
        }
    }
}
