//! Views for unit tests.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tributary_apimachinery::{
    Change, ChangeType, ClusterName, GroupVersionResource, Object, ObjectDecoder, ResourceVersion, Snapshot,
};
use tributary_printers::Printer;

use super::View;
use super::news::{Interest, News};
use crate::limits::Limits;
use crate::response::ResourceKind;
use crate::topology::{Fleet, MemberShareMetrics};

impl View {
    /// A view of pods, of no cluster.
    pub(crate) fn for_tests() -> Arc<Self> {
        Self::within_for_tests(&Limits::default())
    }

    /// The same within these limits.
    pub(crate) fn within_for_tests(limits: &Limits) -> Arc<Self> {
        let resource = GroupVersionResource::new("", "v1", "pods");
        let kind = ResourceKind { resource, kind: "Pod".into(), namespaced: true, printer: Printer::default_columns() };
        let decoder = ObjectDecoder::new("v1", "Pod", Arc::new([]));
        let fleet = Fleet::new(MemberShareMetrics::default(), std::collections::BTreeMap::new());
        Self::of(kind, None, decoder, fleet, Arc::default(), Arc::default(), limits)
    }

    /// Has a cluster join the log, with a pod of that version.
    pub(crate) fn join_for_tests(&self, cluster: &ClusterName, version: ResourceVersion) {
        let mut held = Snapshot::default();
        held.insert(self.pod_for_tests("default", version));
        held.set_resource_version(version);
        self.log.write().join(cluster, held, Duration::ZERO);
    }

    /// Has a pod of a cluster in the log change to that version, and wakes those whom it concerns.
    pub(crate) fn change_for_tests(&self, cluster: &ClusterName, namespace: &str, version: ResourceVersion) {
        let object = self.pod_for_tests(namespace, version);
        let mut log = self.log.write();
        let mut held = log.snapshot(cluster).cloned().unwrap_or_default();
        let previous = held.insert(Arc::clone(&object));
        held.set_resource_version(version);
        let change_type = if previous.is_some() { ChangeType::Modified } else { ChangeType::Added };
        let changes = vec![Change { change_type, object, previous }];
        let news = News::of(cluster, &changes, &log);
        log.append(cluster, changes, held, Duration::ZERO);
        drop(log);
        self.head.advance(news);
    }

    /// Has a cluster in the log say how far it is, though nothing has changed.
    pub(crate) fn progress_for_tests(&self, cluster: &ClusterName, version: ResourceVersion) {
        self.log.write().progress(cluster, version, Duration::ZERO);
    }

    fn pod_for_tests(&self, namespace: &str, version: ResourceVersion) -> Arc<Object> {
        let metadata = json!({"name": "x", "namespace": namespace, "uid": "1", "resourceVersion": version.to_string()});
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}).to_string();
        Arc::new(self.decoder.decode(pod.as_bytes()).unwrap())
    }
}

/// A watcher of one namespace.
pub(super) struct InNamespace(pub(super) &'static str);

impl Interest for InNamespace {
    fn is_in(&self, _: &ClusterName, change: &Change) -> bool {
        change.object.namespace() == self.0
    }

    fn is_that_of(&self, other: &dyn Interest) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn hash_into(&self, mut hasher: &mut dyn Hasher) {
        self.0.hash(&mut hasher);
    }
}

/// A change in each of these namespaces, in the log from a place on.
pub(super) fn news_in(from: u64, namespaces: &[&str]) -> News {
    news_behind((from, from), namespaces)
}

/// The same, with progress before it from another place on.
pub(super) fn news_behind(places: (u64, u64), namespaces: &[&str]) -> News {
    let decoder = ObjectDecoder::new("v1", "ConfigMap", [].into());
    let change = |namespace: &&str| {
        let metadata = format!(r#"{{"namespace":"{namespace}","name":"a","uid":"u","resourceVersion":"1"}}"#);
        let object = decoder.decode(format!(r#"{{"metadata":{metadata}}}"#).as_bytes()).unwrap();
        Change { change_type: ChangeType::Added, object: Arc::new(object), previous: None }
    };
    News::at(&ClusterName::new("a").unwrap(), &namespaces.iter().map(change).collect::<Vec<_>>(), places)
}
