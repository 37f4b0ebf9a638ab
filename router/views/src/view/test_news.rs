//! Changes and watches for the unit tests of this crate.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::{Change, ChangeType, ClusterName, ObjectDecoder, ResourceVersion};

use super::View;
use super::news::{Interest, News};

impl View {
    /// Raises the version of a cluster in the log without a change of an object.
    pub(crate) fn progress_for_tests(&self, cluster: &ClusterName, version: ResourceVersion) {
        self.log.write().progress(cluster, version, Duration::ZERO);
    }
}

/// Filter of a watch by one namespace.
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

/// News with one change for each of these namespaces, at the log position `from`.
pub(super) fn news_in(from: u64, namespaces: &[&str]) -> News {
    news_behind((from, from), namespaces)
}

/// News with one change for each of these namespaces, at the log position `places.1`. The log contains only progress
/// between `places.0` and `places.1`.
pub(super) fn news_behind(places: (u64, u64), namespaces: &[&str]) -> News {
    let decoder = ObjectDecoder::new("v1", "ConfigMap", [].into());
    let change = |namespace: &&str| {
        let metadata = format!(r#"{{"namespace":"{namespace}","name":"a","uid":"u","resourceVersion":"1"}}"#);
        let object = decoder.decode(format!(r#"{{"metadata":{metadata}}}"#).as_bytes()).unwrap();
        Change { change_type: ChangeType::Added, object: Arc::new(object), previous: None }
    };
    News::at(&ClusterName::new("a").unwrap(), &namespaces.iter().map(change).collect::<Vec<_>>(), places)
}
