//! Part of the [report](tributary_fleet::report) about one view.

use tributary_answers::refusal::cause_alone;
use tributary_apimachinery::{ClusterName, Snapshot};
use tributary_cacher::StaleReason;
use tributary_fleet::report::{CollectionReport, CollectionState, ResourceReport};

use super::member::{CachedMember, ViewCluster};
use super::{CacheState, View};

impl View {
    /// Report about the cached data of the resource. Costs a few locks and a visit of each cluster's history, whatever
    /// its size.
    pub(crate) fn resource_report(&self) -> ResourceReport {
        let (objects, repeated_names, history_bytes) = {
            let log = self.log();
            (log.objects(), log.repeated_names(), log.history_bytes())
        };
        let resource = &self.kind.resource;
        ResourceReport {
            group: resource.group.to_string(),
            version: resource.version.to_string(),
            resource: resource.resource.to_string(),
            namespace: self.namespace.clone(),
            objects: objects as u64,
            repeated_names: repeated_names as u64,
            history_bytes: history_bytes as u64,
            encodings_bytes: self.encodings.bytes() as u64,
        }
    }

    /// Reports about the cached data of each cluster, and whether the data is current. A view of one namespace omits
    /// data that the view of all namespaces caches. Costs a few locks for each cluster, and visits no object.
    pub(crate) fn collection_reports(&self) -> Vec<CollectionReport> {
        let members = self.members.lock();
        members.by_name.iter().filter_map(|(name, member)| self.collection_report(name, member)).collect()
    }

    fn collection_report(&self, name: &ClusterName, member: &ViewCluster) -> Option<CollectionReport> {
        let (refused, bytes, relists) = match member {
            ViewCluster::Undiscovered(_) if self.is_namespace_view() => return None,
            ViewCluster::Undiscovered(_) => (false, 0, 0),
            ViewCluster::Cached(CachedMember { leader: Some(_), .. }) => return None,
            ViewCluster::Cached(member) => {
                let stats = member.cacher.stats();
                (is_refusal(member.cacher.state().reason()), stats.object_bytes, stats.relists)
            }
        };
        let cache_state = self.cache_state_of(name, member);
        let forbidden = cache_state.is_forbidden();
        let (state, since, reason) = match cache_state {
            CacheState::Fresh | CacheState::NoNamespace | CacheState::LeftOut { .. } => {
                (CollectionState::Current, None, None)
            }
            CacheState::Stale { since, reason, .. } | CacheState::Unserved { since, reason, .. } => {
                (CollectionState::Stale, Some(since), Some(cause_alone(&reason, name)))
            }
            CacheState::Unknown { since, reason, .. } => {
                (CollectionState::Unknown, Some(since), reason.map(|reason| cause_alone(&reason, name)))
            }
        };
        Some(CollectionReport {
            cluster: name.to_string(),
            resource: self.kind.resource.to_string(),
            namespace: self.namespace.clone(),
            state,
            seconds: since.map_or(0, |since| since.elapsed().as_secs()),
            reason,
            refused,
            forbidden,
            objects: self.log().snapshot(name).map_or(0, Snapshot::len) as u64,
            bytes,
            relists,
        })
    }
}

/// Returns whether the member answers and refuses Tributary's request. An outage appears in the report about the member
/// instead.
fn is_refusal(reason: Option<&StaleReason>) -> bool {
    matches!(reason, Some(StaleReason::Unauthorized | StaleReason::Forbidden | StaleReason::Other(_)))
}
