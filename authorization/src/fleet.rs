//! The roles and bindings of all clusters, compiled into the grants of their subjects.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use tributary_apimachinery::ClusterName;

use crate::intern::Interner;
use crate::member::ClusterObjects;
use crate::object::{Binding, Content, NamespacedName, RbacChange, RbacKind, RbacObject};
use crate::rights::{ClusterIndex, FleetRights, Principal};
use crate::rule::Rules;
use crate::share::{Grant, Share};

/// The roles and bindings of many clusters, with the compiled rights of their subjects.
#[derive(Debug, Default)]
pub struct Fleet {
    members: Vec<Option<ClusterObjects>>,
    rights: FleetRights,
    keys: Interner<NamespacedName>,
    rules: Interner<Rules>,
    bindings: Interner<Binding>,
    shares: Interner<Share>,
}

/// `Deref` gives access to the queries of the current [`FleetRights`].
impl Deref for Fleet {
    type Target = FleetRights;

    fn deref(&self) -> &FleetRights {
        &self.rights
    }
}

/// The parts of a cluster that a batch of changes affects: roles, bindings, and the subjects whose grants must be
/// compiled again.
#[derive(Default)]
struct Changed {
    roles: HashSet<Arc<NamespacedName>>,
    /// The namespaces and names of the bindings that were added, replaced or removed.
    bindings: HashSet<Arc<NamespacedName>>,
    principals: HashSet<Principal>,
}

/// The methods of this block change the fleet. A changed binding causes a recompilation of the grants of its subjects
/// in the binding's cluster. A changed role causes a recompilation for the subjects of all bindings to the role. Each
/// call recompiles the grants of a subject only once.
impl Fleet {
    /// Adds a role or a binding to a cluster, or replaces the object of the same kind, namespace and name. Adds the
    /// cluster if the fleet does not contain it. Returns whether any rights may have changed.
    pub fn upsert(&mut self, cluster: &ClusterName, object: RbacObject) -> bool {
        self.apply(cluster, [RbacChange::Put(object)])
    }

    /// Removes a role or a binding from a cluster; `namespace` is empty for cluster-scoped kinds. Returns whether any
    /// rights may have changed.
    pub fn remove(&mut self, cluster: &ClusterName, kind: RbacKind, namespace: &str, name: &str) -> bool {
        self.apply(cluster, [RbacChange::Deleted { kind, namespace: namespace.to_owned(), name: name.to_owned() }])
    }

    /// Applies changes of one cluster in order. If the fleet does not contain the cluster, it is added unless all
    /// changes are deletions. Returns whether any rights may have changed.
    ///
    /// Cost: constant time for each change, plus one compilation of all grants of each affected subject. The
    /// compilation does not depend on the number of changes.
    pub fn apply(&mut self, cluster: &ClusterName, changes: impl IntoIterator<Item = RbacChange>) -> bool {
        let changes: Vec<_> = changes.into_iter().collect();
        if !self.knows(cluster) && !changes.iter().any(|change| matches!(change, RbacChange::Put(_))) {
            return false;
        }
        self.change(cluster, |fleet, index| fleet.apply_changes(index, changes))
    }

    /// Replaces all roles and bindings of a cluster. If several objects have the same kind, namespace and name, the
    /// last object is used. Returns whether any rights may have changed. Costs time linear in the old and the new
    /// objects.
    pub fn replace(&mut self, cluster: &ClusterName, objects: impl IntoIterator<Item = RbacObject>) -> bool {
        self.change(cluster, |fleet, index| {
            let mut member = ClusterObjects::default();
            for object in objects {
                match object.0 {
                    Content::Role(key, rules) => {
                        let (key, rules) = (fleet.keys.intern(key), fleet.rules.intern(Rules::new(rules)));
                        member.set_role(&key, Some(rules));
                    }
                    Content::Binding(binding) => {
                        let key = fleet.keys.intern(binding.key.clone());
                        let role = binding.role.clone().map(|role| fleet.keys.intern(role));
                        member.set_binding(&key, Some((fleet.bindings.intern(binding), role)));
                    }
                }
            }
            fleet.put_member(index, Some(member));
        })
    }

    /// Replaces all objects of one kind in a cluster. Objects of other kinds stay, and `objects` of other kinds are
    /// ignored. If several objects have the same namespace and name, the last object is used. If the fleet does not
    /// contain the cluster, it is added unless there are no objects. Returns whether any rights may have changed.
    ///
    /// Costs as much as [`Self::apply`], plus an iteration over the old objects.
    pub fn replace_kind(
        &mut self,
        cluster: &ClusterName,
        kind: RbacKind,
        objects: impl IntoIterator<Item = RbacObject>,
    ) -> bool {
        let objects: Vec<_> = objects.into_iter().filter(|object| object.kind() == kind).collect();
        let remaining: HashSet<&NamespacedName> = objects.iter().map(RbacObject::key).collect();
        let member = self.rights.index(cluster).and_then(|index| self.members[index].as_ref());
        let before = member.into_iter().flat_map(|member| member.keys(kind));
        let deletions = before.filter(|key| !remaining.contains(key)).map(|key| RbacChange::Deleted {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        });
        let deletions: Vec<_> = deletions.collect();
        self.apply(cluster, deletions.into_iter().chain(objects.into_iter().map(RbacChange::Put)))
    }

    /// Removes a cluster. Returns whether the fleet contained the cluster.
    pub fn leave(&mut self, cluster: &ClusterName) -> bool {
        let Some(index) = self.rights.leave(cluster) else { return false };
        self.put_member(index, None);
        self.rights.end_generation()
    }

    /// Applies a change to one cluster, which is added if the fleet does not contain it. All effects of the change on
    /// the rights get the same generation number. Returns whether any rights may have changed.
    fn change(&mut self, cluster: &ClusterName, apply: impl FnOnce(&mut Self, ClusterIndex)) -> bool {
        let index = self.rights.index(cluster).unwrap_or_else(|| self.join(cluster));
        apply(self, index);
        self.rights.end_generation()
    }

    fn join(&mut self, cluster: &ClusterName) -> ClusterIndex {
        let free = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        if free == self.members.len() {
            self.members.push(None);
        }
        self.members[free] = Some(ClusterObjects::default());
        self.rights.join(cluster, free);
        free
    }

    /// Applies changes and recompiles the grants of each affected subject.
    fn apply_changes(&mut self, index: ClusterIndex, changes: Vec<RbacChange>) {
        let Some(mut member) = self.members[index].take() else { return };
        let (was_beyond, mut changed) = (member.exceeds_subject_limit(), Changed::default());
        for change in changes {
            match change {
                RbacChange::Put(RbacObject(Content::Role(key, rules))) => {
                    let rules = self.rules.intern(Rules::new(rules));
                    self.set_role(&mut member, key, Some(rules), &mut changed);
                }
                RbacChange::Put(RbacObject(Content::Binding(binding))) => {
                    let key = binding.key.clone();
                    self.set_binding(&mut member, key, Some(binding), &mut changed);
                }
                RbacChange::Deleted { kind, namespace, .. } if namespace.is_empty() == kind.is_namespaced() => {}
                RbacChange::Deleted { kind, namespace, name } => {
                    let key = NamespacedName::new(&namespace, &name);
                    match kind {
                        RbacKind::Role | RbacKind::ClusterRole => self.set_role(&mut member, key, None, &mut changed),
                        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                            self.set_binding(&mut member, key, None, &mut changed);
                        }
                    }
                }
            }
        }
        match (was_beyond, member.exceeds_subject_limit()) {
            (false, false) => {
                for (principal, grants) in self.changed_grants(index, &member, changed) {
                    self.set_share(index, &principal, grants);
                }
            }
            (false, true) => {
                let named = member.bindings().flat_map(|binding| principals(binding));
                named.chain(changed.principals).for_each(|own| self.rights.set_share(index, &own, None));
                self.rights.set_unknown(index, true);
            }
            (true, false) => self.compile(index, &member, HashMap::new()),
            (true, true) => {}
        }
        self.members[index] = Some(member);
    }

    fn set_role(
        &mut self,
        member: &mut ClusterObjects,
        key: NamespacedName,
        rules: Option<Arc<Rules>>,
        changed: &mut Changed,
    ) {
        let key = self.keys.intern(key);
        if member.set_role(&key, rules) {
            changed.roles.insert(key);
        }
    }

    fn set_binding(
        &mut self,
        member: &mut ClusterObjects,
        key: NamespacedName,
        binding: Option<Binding>,
        changed: &mut Changed,
    ) {
        let key = self.keys.intern(key);
        let binding = binding.map(|binding| self.bindings.intern(binding));
        let role = binding.as_ref().and_then(|binding| binding.role.clone()).map(|role| self.keys.intern(role));
        let address = binding.as_ref().map(Arc::as_ptr);
        let before = member.set_binding(&key, binding.map(|binding| (binding, role)));
        if before.as_ref().map(Arc::as_ptr) != address {
            changed.principals.extend(before.iter().flat_map(|binding| principals(binding)));
            changed.bindings.insert(key);
        }
    }

    /// Returns the new grants of each subject that a change affects.
    fn changed_grants(
        &self,
        index: ClusterIndex,
        member: &ClusterObjects,
        changed: Changed,
    ) -> Vec<(Principal, Vec<Grant>)> {
        let Changed { roles, bindings, mut principals } = changed;
        let mut new: HashMap<Principal, Vec<Grant>> = HashMap::new();
        for binding in bindings.iter().filter_map(|key| member.binding(key)) {
            for principal in self::principals(binding) {
                new.entry(principal).or_default().push(member.grant(binding));
            }
        }
        principals.extend(new.keys().cloned());
        let affected = roles.iter().flat_map(|role| member.bindings_of(role));
        principals.extend(affected.flat_map(|binding| self::principals(binding)));
        let shares = principals.into_iter().map(|principal| {
            let previous = self.rights.share(index, &principal).map(|share| share.grants()).unwrap_or_default();
            let previous = previous.iter().filter(|grant| !bindings.contains(&grant.binding.key));
            let has_another = |grant: &&Grant| grant.binding.role.as_ref().is_some_and(|role| roles.contains(role));
            let now = |grant: &Grant| if has_another(&grant) { member.grant(&grant.binding) } else { grant.clone() };
            let mut grants: Vec<_> = previous.map(now).collect();
            grants.extend(new.remove(&principal).into_iter().flatten());
            (principal, grants)
        });
        shares.collect()
    }

    /// Replaces the roles and bindings of the cluster with this index (`None` removes them), and recompiles the
    /// cluster's grants.
    fn put_member(&mut self, index: ClusterIndex, member: Option<ClusterObjects>) {
        let before = self.members[index].take().filter(|before| !before.exceeds_subject_limit());
        let had = before.iter().flat_map(ClusterObjects::bindings).flat_map(|binding| principals(binding));
        let had = had.map(|principal| (principal, Vec::new())).collect();
        drop(before);
        self.compile(index, member.as_ref().unwrap_or(&ClusterObjects::default()), had);
        self.members[index] = member;
    }

    /// Recompiles the grants of each subject of a cluster. `grants` must have an empty entry for each subject that had
    /// grants before. Without this entry, a subject that lost all bindings would keep its grants. If the bindings name
    /// too many subjects, no subject gets grants.
    fn compile(&mut self, index: ClusterIndex, member: &ClusterObjects, mut grants: HashMap<Principal, Vec<Grant>>) {
        self.rights.set_unknown(index, member.exceeds_subject_limit());
        for binding in member.bindings().filter(|_| !member.exceeds_subject_limit()) {
            principals(binding).for_each(|principal| grants.entry(principal).or_default().push(member.grant(binding)));
        }
        for (principal, grants) in grants {
            self.set_share(index, &principal, grants);
        }
    }

    fn set_share(&mut self, index: ClusterIndex, principal: &Principal, mut grants: Vec<Grant>) {
        // A binding can name a ServiceAccount twice: as a user and as a ServiceAccount. The second grant of the same
        // binding is removed.
        grants.dedup_by(|a, b| Arc::ptr_eq(&a.binding, &b.binding));
        let share = (!grants.is_empty()).then(|| self.shares.intern(Share::new(grants)));
        self.rights.set_share(index, principal, share);
    }

    /// Returns the grants of all bindings of a cluster. The order of the grants stays the same until the bindings
    /// change.
    pub(crate) fn grants(&self, cluster: &ClusterName) -> impl Iterator<Item = Grant> {
        let member = self.rights.index(cluster).and_then(|index| self.members[index].as_ref());
        member.into_iter().flat_map(|member| member.bindings().map(|binding| member.grant(binding)))
    }
}

fn principals(binding: &Binding) -> impl Iterator<Item = Principal> {
    binding.subjects.iter().map(Principal::from_subject)
}
