//! Changes and watches for the unit tests of this crate.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::{Change, ChangeType, ClusterName, ObjectDecoder, ResourceVersion};

use super::View;
use super::notification::{LogNotification, WakeFilter};

impl View {
    /// Raises the version of a cluster in the log without a change of an object.
    pub(crate) fn progress_for_tests(&self, cluster: &ClusterName, version: ResourceVersion) {
        self.log.write().progress(cluster, version, Duration::ZERO);
    }
}

/// Filter of a watch by one namespace.
pub(super) struct InNamespace(pub(super) &'static str);

impl WakeFilter for InNamespace {
    fn is_in(&self, _: &ClusterName, change: &Change) -> bool {
        change.object.namespace() == self.0
    }

    fn is_equal_to(&self, other: &dyn WakeFilter) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
    }

    fn hash_into(&self, mut hasher: &mut dyn Hasher) {
        self.0.hash(&mut hasher);
    }
}

/// A notification with one change for each of these namespaces, at the log position `from`.
pub(super) fn notification_in(from: u64, namespaces: &[&str]) -> LogNotification {
    notification_behind((from, from), namespaces)
}

/// A notification with one change for each of these namespaces, at the log position `positions.1`. The log contains
/// only progress reports between `positions.0` and `positions.1`.
pub(super) fn notification_behind(positions: (u64, u64), namespaces: &[&str]) -> LogNotification {
    let decoder = ObjectDecoder::new("v1", "ConfigMap", [].into());
    let change = |namespace: &&str| {
        let metadata = format!(r#"{{"namespace":"{namespace}","name":"a","uid":"u","resourceVersion":"1"}}"#);
        let object = decoder.decode(format!(r#"{{"metadata":{metadata}}}"#).as_bytes()).unwrap();
        Change { change_type: ChangeType::Added, object: Arc::new(object), previous: None }
    };
    LogNotification::at(&ClusterName::new("a").unwrap(), &namespaces.iter().map(change).collect::<Vec<_>>(), positions)
}
