//! The rights in all clusters, compiled, and who waits for them to change.

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Fleet, GRANTED_WORDS_MAX, RbacChange, RbacObject};

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
        self.change(cluster, |fleet| fleet.replace(cluster, objects));
    }

    /// Takes over changes of a cluster's roles and bindings, in their order. Nobody sees some of them only.
    pub(super) fn apply(&self, cluster: &ClusterName, changes: Vec<RbacChange>) {
        self.change(cluster, |fleet| fleet.apply(cluster, changes));
    }

    /// Forgets a cluster: it allows nothing any more.
    pub(super) fn leave(&self, cluster: &ClusterName) {
        self.change(cluster, |fleet| fleet.leave(cluster));
    }

    /// Notes that it has changed of which clusters the rights are known.
    pub(super) fn note(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn change(&self, cluster: &ClusterName, change: impl FnOnce(&mut Fleet) -> bool) {
        let mut fleet = self.fleet.write();
        let before = fleet.grants_too_much(cluster);
        let is_news = change(&mut fleet);
        let now = fleet.grants_too_much(cluster);
        drop(fleet);
        match (before, now) {
            (false, true) => tracing::warn!(
                %cluster, words = GRANTED_WORDS_MAX,
                "the cluster's bindings give a subject more than is looked at; what it allows those users is not known"
            ),
            (true, false) => tracing::info!(%cluster, "the cluster's bindings give no subject too much any more"),
            _ => {}
        }
        if is_news {
            self.note();
        }
    }
}
