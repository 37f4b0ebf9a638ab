//! The watches of a cluster's CustomResourceDefinitions and APIServices, where it lets them be watched. The metadata
//! suffices: discovery has what they define.

use std::sync::Arc;

use tributary_apimachinery::{ChangeType, ObjectDecoder};
use tributary_cacher::{
    Cacher, CacherConfig, HeldObjects, ObjectRoom, Precedence, ReflectorTuning, Update, UpdateObserver,
};

use super::Cluster;
use super::health::next_state;
use super::kind_changes::{KindChanges, KindSource};

/// Watches of one cluster's CustomResourceDefinitions and APIServices, which end when this is dropped.
#[derive(Default)]
pub(super) struct FollowedKinds {
    /// The cluster's uid when the watches began.
    uid: Option<Arc<String>>,
    cachers: Vec<(KindSource, Arc<Cacher>)>,
}

impl FollowedKinds {
    /// Starts the watches of the resources that the cluster serves, anew if its uid has changed.
    pub(super) fn follow(&mut self, cluster: &Arc<Cluster>, room: &ObjectRoom) {
        let (Some(discovery), Ok(transport)) = (cluster.discovery(), cluster.transport()) else { return };
        let uid = cluster.uid();
        if self.uid.is_some() && self.uid != uid {
            self.cachers.clear();
        }
        self.uid = uid;
        for source in KindSource::ALL {
            let (resource, kind) = source.resource();
            let is_served = discovery.find(&resource).is_some_and(|own| own.has_verb("list") && own.has_verb("watch"));
            let is_followed = self.cachers.iter().any(|(followed, _)| *followed == source);
            if !is_served {
                self.cachers.retain(|(followed, _)| *followed != source);
            }
            if !is_served || is_followed {
                continue;
            }
            let config = CacherConfig {
                cluster: cluster.name().clone(),
                decoder: ObjectDecoder::new(&resource.group_version().to_string(), kind, [].into()),
                resource,
                namespace: None,
                list_places: cluster.list_places().clone(),
                room: room.clone(),
                precedence: Precedence::default(),
                held: HeldObjects::MetadataUntilTold,
                tuning: ReflectorTuning::default(),
            };
            let observer = KindObserver { source, changes: Arc::clone(cluster.kind_changes()) };
            let cacher = Arc::new(Cacher::start(config, transport.clone(), Arc::new(observer)));
            tell_health(cluster, &cacher);
            self.cachers.push((source, cacher));
        }
    }
}

/// Tells a cacher how its cluster is, until it is dropped.
fn tell_health(cluster: &Cluster, cacher: &Arc<Cacher>) {
    let (of, mut states, mut health) = (Arc::downgrade(cacher), cacher.states(), cluster.health());
    tokio::spawn(async move { while next_state(&of, &mut states, &mut health).await {} });
}

struct KindObserver {
    source: KindSource,
    changes: Arc<KindChanges>,
}

impl UpdateObserver for KindObserver {
    fn update(&self, update: Update) {
        match update {
            // Discovery was as new as the first state when the watch began.
            Update::Synced { .. } | Update::Progress { .. } => {}
            Update::Relisted { .. } | Update::Reset { .. } => {
                self.changes.note(self.source, std::iter::empty());
            }
            Update::Changes { changes, .. } => {
                let made = changes.iter().filter(|change| change.change_type != ChangeType::Deleted);
                let names: Vec<_> = made.map(|change| change.object.name()).collect();
                self.changes.note(self.source, names.iter().map(|name| &**name));
            }
        }
    }
}
