//! Views for unit tests of this crate and of the router (Cargo feature `testing`).
#![allow(clippy::unwrap_used, reason = "a panic is how a test and its helpers fail")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tributary_apimachinery::{
    Change, ChangeType, ClusterName, GroupVersionResource, Object, ObjectDecoder, ResourceVersion, Snapshot,
};
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::topology::{Fleet, MemberShareMetrics};
use tributary_printers::Printer;
use tributary_sharing::limits::Limits;

use super::notification::LogNotification;
use super::{View, ViewedResource};

impl View {
    /// Creates a view of pods without clusters.
    pub fn for_tests() -> Arc<Self> {
        Self::within_for_tests(&Limits::default())
    }

    /// Creates a view of pods without clusters, with these limits.
    pub fn within_for_tests(limits: &Limits) -> Arc<Self> {
        let resource = GroupVersionResource::new("", "v1", "pods");
        let kind = ResourceKind { resource, kind: "Pod".into(), namespaced: true, printer: Printer::default_columns() };
        let decoder = ObjectDecoder::new("v1", "Pod", Arc::new([]));
        let fleet = Fleet::new(MemberShareMetrics::default(), std::collections::BTreeMap::new());
        let resource = ViewedResource { kind, namespace: None, decoder };
        Self::empty(resource, fleet, Arc::default(), Arc::default(), limits)
    }

    /// Adds a cluster with one pod at this version to the log.
    pub fn join_for_tests(&self, cluster: &ClusterName, version: ResourceVersion) {
        let mut snapshot = Snapshot::default();
        snapshot.insert(self.pod_for_tests("default", version));
        snapshot.set_resource_version(version);
        self.log.write().join(cluster, snapshot, Duration::ZERO);
    }

    /// Changes a pod of a cluster in the log, so that the pod has this version. Wakes the watches that the change
    /// concerns.
    pub fn change_for_tests(&self, cluster: &ClusterName, namespace: &str, version: ResourceVersion) {
        let object = self.pod_for_tests(namespace, version);
        let mut log = self.log.write();
        let mut snapshot = log.snapshot(cluster).cloned().unwrap_or_default();
        let previous = snapshot.insert(Arc::clone(&object));
        snapshot.set_resource_version(version);
        let change_type = if previous.is_some() { ChangeType::Modified } else { ChangeType::Added };
        let changes = vec![Change { change_type, object, previous }];
        let notification = LogNotification::from_changes(cluster, &changes, &log);
        log.append(cluster, changes, snapshot, Duration::ZERO);
        drop(log);
        self.watch_notifier.advance(notification);
    }

    fn pod_for_tests(&self, namespace: &str, version: ResourceVersion) -> Arc<Object> {
        let metadata = json!({"name": "x", "namespace": namespace, "uid": "1", "resourceVersion": version.to_string()});
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}).to_string();
        Arc::new(self.decoder.decode(pod.as_bytes()).unwrap())
    }
}
