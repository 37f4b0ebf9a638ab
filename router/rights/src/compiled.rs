//! Roles and bindings of all clusters, compiled for fast decisions, with notifications about changes.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{Fleet, FleetRights, GRANTED_WORDS_MAX, RbacChange, RbacKind, RbacObject, Sample};

use super::changes::RightsChanges;
use super::unknown_rights_reason::UnknownRightsReason;

/// Roles and bindings of all clusters, compiled for fast decisions. Tributary compiles a change into a copy, and then
/// replaces the compiled rights by the copy in one step. A role with hundreds of thousands of bindings takes a third of
/// a second to compile. Meanwhile other changes wait, but decisions do not wait.
#[derive(Default)]
pub(super) struct CompiledRights {
    compiler: Mutex<Compiler>,
    now: ArcSwap<FleetRights>,
    /// Notifications about changes of rights and of the set of clusters with known rights.
    changes: RightsChanges,
}

/// State that only the compilation of a change uses, behind a lock.
#[derive(Default)]
struct Compiler {
    fleet: Fleet,
    /// The previous compiled rights, which the next change drops. Without this reference, the last decision that uses
    /// them would drop them, and a large value takes tens of milliseconds to drop.
    _before: Arc<FleetRights>,
}

impl CompiledRights {
    /// Returns the current compiled rights. Later changes do not affect the returned value.
    pub(super) fn now(&self) -> Guard<Arc<FleetRights>> {
        self.now.load()
    }

    /// Returns up to `count` sample requests that a cluster's roles and bindings allow ([`Fleet::samples`]).
    pub(super) fn samples(&self, cluster: &ClusterName, count: usize, round: usize) -> Vec<Sample> {
        self.compiler.lock().fleet.samples(cluster, count, round)
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.follow()
    }

    pub(super) fn replace(&self, cluster: &ClusterName, objects: Vec<RbacObject>) {
        self.change(cluster, |fleet| fleet.replace(cluster, objects));
    }

    /// Replaces all objects of one RBAC kind in a cluster, in one step.
    pub(super) fn replace_kind(&self, cluster: &ClusterName, kind: RbacKind, objects: Vec<RbacObject>) {
        self.change(cluster, |fleet| fleet.replace_kind(cluster, kind, objects));
    }

    /// Applies changes of a cluster's roles and bindings in order, in one step.
    pub(super) fn apply(&self, cluster: &ClusterName, changes: Vec<RbacChange>) {
        self.change(cluster, |fleet| fleet.apply(cluster, changes));
    }

    pub(super) fn leave(&self, cluster: &ClusterName) {
        self.change(cluster, |fleet| fleet.leave(cluster));
    }

    pub(super) fn record_known_clusters(&self) {
        self.changes.add_change();
    }

    fn change(&self, cluster: &ClusterName, change: impl FnOnce(&mut Fleet) -> bool) {
        let mut compiler = self.compiler.lock();
        let before = Excess::in_cluster(&compiler.fleet, cluster);
        let is_news = change(&mut compiler.fleet);
        let now = Excess::in_cluster(&compiler.fleet, cluster);
        if is_news {
            compiler._before = self.now.swap(Arc::new(FleetRights::clone(&compiler.fleet)));
        }
        drop(compiler);
        now.log_news(before, cluster);
        if is_news {
            self.record_known_clusters();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Excess {
    /// The bindings of one subject have rules with more words (verbs, API groups, resources, names) than
    /// `GRANTED_WORDS_MAX`.
    of_grants: bool,
    /// The cluster's bindings name more subjects than Tributary compiles.
    of_subjects: bool,
}

impl Excess {
    fn in_cluster(fleet: &Fleet, cluster: &ClusterName) -> Self {
        Self { of_grants: fleet.exceeds_grant_limit(cluster), of_subjects: fleet.exceeds_subject_limit(cluster) }
    }

    fn log_news(self, before: Self, cluster: &ClusterName) {
        match (before.of_grants, self.of_grants) {
            // The rights of a subject above the limit are unknown to Tributary.
            (false, true) => tracing::warn!(
                %cluster, words = GRANTED_WORDS_MAX,
                "the bindings of the cluster give a subject rules with more words (verbs, groups, resources, names) \
                 than the limit; the rights of users in the cluster are unknown; reduce the roles"
            ),
            (true, false) if !self.of_subjects => {
                tracing::info!(%cluster,
                    "the bindings of the cluster no longer give a subject rules with more words than the limit");
            }
            _ => {}
        }
        match (before.of_subjects, self.of_subjects) {
            (false, true) => tracing::warn!(
                %cluster, reason = %UnknownRightsReason::TooManySubjects,
                "the rights of users in the cluster are unknown: answers omit the cluster, or are refused"
            ),
            (true, false) => {
                tracing::info!(%cluster,
                    "the bindings of the cluster no longer name more subjects than the limit: the rights of its users \
                     are known");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::UserInfo;
    use tributary_authorization::{Attributes, ResourceAttributes};

    use super::*;

    /// A change may take long to compile, for example of a role like `edit` with many bindings.
    #[test]
    fn rights_lookup_does_not_wait_for_a_running_compilation() {
        let (rights, eu) = (CompiledRights::default(), ClusterName::new("eu").unwrap());
        let object = |kind, text: &str| RbacObject::parse(kind, text.as_bytes()).unwrap();
        let role = |resource: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"r"}},"rules":[{{"verbs":["list"],"apiGroups":[""],"resources":["{resource}"]}}]}}"#
            );
            object(RbacKind::ClusterRole, &text)
        };
        let binding = r#"{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","name":"ann"}]}"#;
        rights.replace(&eu, vec![role("pods"), object(RbacKind::ClusterRoleBinding, binding)]);
        let ann = &UserInfo::with_groups("ann", &[]);
        let lists = |resource| {
            let attributes = ResourceAttributes { verb: "list", resource, ..ResourceAttributes::default() };
            rights.now().allows(&eu, ann, &Attributes::Resource(attributes))
        };
        let snapshot = Arc::clone(&rights.now());
        rights.change(&eu, |fleet| {
            let is_news = fleet.upsert(&eu, role("services"));
            // The closure runs after the rights are compiled and before they are published.
            assert!(lists("pods") && !lists("services"));
            is_news
        });
        assert!(!lists("pods") && lists("services"));
        let attributes = ResourceAttributes { verb: "list", resource: "pods", ..ResourceAttributes::default() };
        assert!(snapshot.allows(&eu, ann, &Attributes::Resource(attributes)), "what is held stays as it is");
    }
}
