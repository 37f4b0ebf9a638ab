//! Watches of a cluster's CustomResourceDefinitions and APIServices, if the cluster allows them. The watches are
//! metadata-only, because discovery contains the definitions.

use std::sync::Arc;

use tributary_apimachinery::{ChangeType, ClusterName, ObjectDecoder};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ListPermits, ObjectMemoryLimit, ObjectRetention, Precedence, ReflectorTuning,
    Update, UpdateObserver,
};
use tributary_proxy::Transport;

use super::health::{ClusterHealth, next_state};
use super::kind_changes::{KindChanges, KindSource};
use crate::discovery::MemberDiscovery;

/// A cluster, with everything that the watches of its CustomResourceDefinitions and APIServices need.
pub(super) struct KindsOf<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) discovery: &'a MemberDiscovery,
    pub(super) transport: &'a Transport,
    pub(super) list_permits: &'a ListPermits,
    pub(super) object_memory: &'a ObjectMemoryLimit,
    pub(super) changes: &'a Arc<KindChanges>,
}

/// Watches of one cluster's CustomResourceDefinitions and APIServices. The watches end when the value is dropped.
#[derive(Default)]
pub(super) struct FollowedKinds(Vec<(KindSource, Arc<Cacher>)>);

impl FollowedKinds {
    /// Returns whether both watches work and are up to date, so that no change of the cluster's kinds is missed.
    pub(super) fn are_current(&self) -> bool {
        self.0.len() == KindSource::ALL.len() && self.0.iter().all(|(_, own)| own.state() == CacherState::Synced)
    }

    /// Starts the watches of CustomResourceDefinitions and APIServices, if the cluster serves them. `health` subscribes
    /// to the cluster's health.
    pub(super) fn follow(&mut self, kinds: &KindsOf<'_>, health: impl Fn() -> ClusterHealth) {
        for source in KindSource::ALL {
            let (resource, kind) = source.resource();
            let own = kinds.discovery.find(&resource);
            let is_served = own.is_some_and(|own| own.has_verb("list") && own.has_verb("watch"));
            let is_followed = self.0.iter().any(|(followed, _)| *followed == source);
            if !is_served {
                self.0.retain(|(followed, _)| *followed != source);
            }
            if !is_served || is_followed {
                continue;
            }
            let config = CacherConfig {
                cluster: kinds.cluster.clone(),
                decoder: ObjectDecoder::new(&resource.group_version().to_string(), kind, [].into()),
                resource,
                namespace: None,
                list_permits: kinds.list_permits.clone(),
                object_memory: kinds.object_memory.clone(),
                precedence: Precedence::default(),
                retention: ObjectRetention::MetadataUntilPublished,
                tuning: ReflectorTuning::default(),
            };
            let observer = KindObserver { source, changes: Arc::clone(kinds.changes) };
            let cacher = Arc::new(Cacher::start(config, kinds.transport.clone(), Arc::new(observer)));
            tell_health(health(), &cacher);
            self.0.push((source, cacher));
        }
    }
}

/// Reports the cluster's health to a cacher, until the cacher is dropped.
fn tell_health(mut health: ClusterHealth, cacher: &Arc<Cacher>) {
    let (of, mut states) = (Arc::downgrade(cacher), cacher.states());
    tokio::spawn(async move { while next_state(&of, &mut states, &mut health).await {} });
}

struct KindObserver {
    source: KindSource,
    changes: Arc<KindChanges>,
}

impl UpdateObserver for KindObserver {
    fn update(&self, update: Update) {
        match update {
            // The first state is no change, because the known discovery is as new as this state.
            Update::Synced { .. } | Update::Progress { .. } => {}
            Update::Relisted { .. } | Update::Reset { .. } => self.changes.record_any_change(),
            Update::Changes { changes, .. } => {
                let made = changes.iter().filter(|change| change.change_type != ChangeType::Deleted);
                let names: Vec<_> = made.map(|change| change.object.name()).collect();
                self.changes.add_change(self.source, names.iter().map(|name| &**name));
            }
        }
    }
}
