//! Whether it is known, by what is held, that a caller may act as whom they ask to be: where that decides what is spent
//! or written before anybody is asked.

use tributary_apimachinery::{ClusterName, RequestInfo};
use tributary_authorization::Attributes;

use super::caller_rights::CallerRights;

impl CallerRights {
    /// Whether the clusters let the caller act as whom they ask to be for a request: the one whose own view it is for,
    /// or in the merged view each of which anything is known. `None` where that is not known. Nobody is asked: what a
    /// cluster said last counts.
    ///
    /// In the merged view one cluster's word is not enough, since what is spent there is everybody's; but that nothing
    /// is known of one is no reason to take another's word for nothing. That there is too much to be known is: whoever
    /// administrates a namespace can bring that about.
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
