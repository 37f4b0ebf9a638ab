//! Check by known facts whether an impersonation is allowed, before any access review is sent: the result decides about
//! rate limits and log entries.

use tributary_apimachinery::{ClusterName, RequestInfo};
use tributary_authorization::Attributes;

use super::caller_rights::CallerRights;

impl CallerRights {
    /// Returns whether the clusters allow the caller's impersonation for a request: the cluster of the path, or in the
    /// merged view each cluster with known facts. `None` if unknown. Sends no review; expired review results count.
    ///
    /// In the merged view one cluster's answer is not enough, because the merged view's limits are common to all
    /// clusters. A cluster without any known fact does not count. Rights that are unknown because of too many bindings
    /// count as denied, because an administrator of a namespace can cause such an excess.
    pub fn is_known_to_act(&self, info: &RequestInfo) -> Option<bool> {
        if self.actor.impersonated_user().is_none() {
            return Some(true);
        }
        let (rights, request) = (self.by_last_word(), Attributes::from_request(info));
        let fleet = rights.mirror.compiled();
        let known = |cluster: &ClusterName| match rights.there_for(&fleet, cluster, &request, || Some(true)) {
            None if rights.is_unknown_by_excess(&fleet, cluster) => Some(false),
            known => known,
        };
        if let Some(cluster) = &info.cluster {
            return known(cluster);
        }
        let (mut is_one_known, mut is_one_unsaid) = (false, false);
        for cluster in &rights.clusters() {
            match known(cluster) {
                Some(true) => is_one_known = true,
                Some(false) => return Some(false),
                None => is_one_unsaid |= rights.mirror.decides(cluster).is_some(),
            }
        }
        (is_one_known && !is_one_unsaid).then_some(true)
    }
}
