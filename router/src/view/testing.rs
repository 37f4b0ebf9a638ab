//! Views for unit tests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder, ResourceVersion, Snapshot};
use tributary_printers::Printer;

use super::View;
use crate::limits::Limits;
use crate::response::ResourceKind;
use crate::topology::{Fleet, MemberShareMetrics};

impl View {
    /// A view of pods, of no cluster.
    pub(crate) fn for_tests() -> Arc<Self> {
        let resource = GroupVersionResource::new("", "v1", "pods");
        let kind = ResourceKind { resource, kind: "Pod".into(), namespaced: true, printer: Printer::default_columns() };
        let decoder = ObjectDecoder::new("v1", "Pod", Arc::new([]));
        let fleet = Fleet::new(MemberShareMetrics::default(), std::collections::BTreeMap::new());
        Self::of(kind, None, decoder, fleet, Arc::default(), Arc::default(), &Limits::default())
    }

    /// Has a cluster join the log, with a pod of that version.
    pub(crate) fn join_for_tests(&self, cluster: &ClusterName, version: ResourceVersion) {
        let metadata = json!({"name": "x", "namespace": "default", "uid": "1", "resourceVersion": version.to_string()});
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}).to_string();
        let mut held = Snapshot::default();
        held.insert(Arc::new(self.decoder.decode(pod.as_bytes()).unwrap()));
        held.set_resource_version(version);
        self.log.write().join(cluster, held, Duration::ZERO);
    }
}
