//! Which cluster a name means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tributary_proxy::ClusterUid;

/// A cluster for as long as its namespace kube-system has the same uid. Objects, rights and tokens of one incarnation
/// are never used for another. Clones are equal, and equal to nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Incarnation(Arc<State>);

#[derive(Debug, Default)]
struct State {
    uid: OnceLock<ClusterUid>,
    has_ended: AtomicBool,
}

impl Incarnation {
    /// The uid; `None` until the cluster has told it.
    pub(super) fn uid(&self) -> Option<ClusterUid> {
        self.0.uid.get().cloned()
    }

    /// Notes the uid that the cluster has told.
    pub(super) fn set_uid(&self, uid: &ClusterUid) {
        self.0.uid.get_or_init(|| uid.clone());
    }

    /// Whether another cluster has taken the name, or none has it any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// The name means another cluster, or none.
    pub(super) fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
    }
}

impl PartialEq for Incarnation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Incarnation {}
