//! Check by facts in memory whether an impersonation is allowed. Tributary makes the check before it sends any access
//! review, and uses the result for rate limits and log entries.

use tributary_apimachinery::{ClusterName, RequestInfo};
use tributary_authorization::Attributes;

use super::caller_rights::CallerRights;

impl CallerRights {
    /// Returns whether the clusters allow the caller's impersonation for a request. For a path of one cluster, this
    /// cluster decides. In the merged view, each cluster with facts in memory has to allow the impersonation, because
    /// the limits of the merged view concern all clusters. Clusters without any facts are ignored. Returns `None` if
    /// the result is unknown. The function sends no review, and uses even expired review results.
    ///
    /// Rights that are unknown because of too many bindings are treated as denied, because a user with rights in a
    /// single namespace can create too many bindings.
    pub fn is_impersonation_allowed(&self, info: &RequestInfo) -> Option<bool> {
        if self.actor.impersonated_user().is_none() {
            return Some(true);
        }
        let (rights, request) = (self.with_expired_answers(), Attributes::from_request(info));
        let fleet = rights.mirror.compiled();
        let known = |cluster: &ClusterName| match rights.if_visible(&fleet, cluster, &request, || Some(true)) {
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
                None => is_one_unsaid |= rights.mirror.decision_method(cluster).is_some(),
            }
        }
        (is_one_known && !is_one_unsaid).then_some(true)
    }
}
