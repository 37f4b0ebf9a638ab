//! The rights in all clusters, compiled, and who waits for them to change.

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Fleet, RbacKind, RbacObject};

/// One change of a cluster's roles and bindings.
pub(super) enum RbacChange {
    /// It is there, as it is now.
    Put(RbacObject),
    /// It is not there, or cannot be read: then it allows nothing.
    Gone { kind: RbacKind, namespace: String, name: String },
}

/// The rights in all clusters.
#[derive(Default)]
pub(super) struct CompiledRights {
    /// Held for a change or a question, never across an await.
    fleet: RwLock<Fleet>,
    /// Counts what may have changed for anybody: what roles and bindings give, and which clusters are known.
    changes: watch::Sender<u64>,
}

impl CompiledRights {
    /// The rights of this moment. Hold it briefly, and never across an await.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Fleet> {
        self.fleet.read()
    }

    /// Tells when a right may have changed, or whether rights are known.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Makes these all the roles and bindings of a cluster.
    pub(super) fn replace(&self, cluster: &ClusterName, objects: Vec<RbacObject>) {
        self.change(|fleet| fleet.replace(cluster, objects));
    }

    /// Takes over changes of a cluster's roles and bindings, in their order. Nobody sees some of them only.
    pub(super) fn apply(&self, cluster: &ClusterName, changes: Vec<RbacChange>) {
        self.change(|fleet| {
            let mut is_news = false;
            for change in changes {
                is_news |= match change {
                    RbacChange::Put(object) => fleet.upsert(cluster, object),
                    RbacChange::Gone { kind, namespace, name } => fleet.remove(cluster, kind, &namespace, &name),
                };
            }
            is_news
        });
    }

    /// Forgets a cluster: it allows nothing any more.
    pub(super) fn leave(&self, cluster: &ClusterName) {
        self.change(|fleet| fleet.leave(cluster));
    }

    /// Notes that it has changed of which clusters the rights are known.
    pub(super) fn note(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn change(&self, change: impl FnOnce(&mut Fleet) -> bool) {
        let is_news = change(&mut self.fleet.write());
        if is_news {
            self.note();
        }
    }
}
