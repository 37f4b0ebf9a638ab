//! The roles and bindings of all clusters, and how they are compiled into what their subjects have.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use tributary_apimachinery::ClusterName;

use crate::intern::Interner;
use crate::member::ClusterObjects;
use crate::object::{Binding, Content, ObjectPlace, RbacChange, RbacKind, RbacObject};
use crate::rights::{ClusterIndex, FleetRights, Principal};
use crate::rule::Rules;
use crate::share::{Grant, Share};

/// The RBAC of many clusters.
#[derive(Debug, Default)]
pub struct Fleet {
    members: Vec<Option<ClusterObjects>>,
    rights: FleetRights,
    places: Interner<ObjectPlace>,
    rules: Interner<Rules>,
    bindings: Interner<Binding>,
    shares: Interner<Share>,
}

/// It is asked as what it gives now.
impl Deref for Fleet {
    type Target = FleetRights;

    fn deref(&self) -> &FleetRights {
        &self.rights
    }
}

/// What changes of a cluster touch.
#[derive(Default)]
struct Changed {
    /// The roles that have other rules.
    roles: HashSet<Arc<ObjectPlace>>,
    /// Where bindings are others.
    bindings: HashSet<Arc<ObjectPlace>>,
    /// Whom the bindings before named.
    principals: HashSet<Principal>,
}

/// What changes. Each call costs what it touches, once: of bindings their subjects' grants in this cluster, of roles
/// those of all who have them there.
impl Fleet {
    /// Puts a role or a binding into a cluster, in place of one of its kind, namespace and name. A cluster not yet
    /// known is known from then on. Whether anybody's rights may differ from before.
    pub fn upsert(&mut self, cluster: &ClusterName, object: RbacObject) -> bool {
        self.apply(cluster, [RbacChange::Put(object)])
    }

    /// Takes a role or a binding from a cluster; `namespace` is empty for the kinds that have none. Whether anybody's
    /// rights may differ from before.
    pub fn remove(&mut self, cluster: &ClusterName, kind: RbacKind, namespace: &str, name: &str) -> bool {
        self.apply(cluster, [RbacChange::Gone { kind, namespace: namespace.to_owned(), name: name.to_owned() }])
    }

    /// Takes over changes of a cluster, in their order. A cluster not yet known is known from then on, if anything is
    /// put into it. Whether anybody's rights may differ from before.
    ///
    /// Costs each change and, once however many they are, all grants of the subjects that have them.
    pub fn apply(&mut self, cluster: &ClusterName, changes: impl IntoIterator<Item = RbacChange>) -> bool {
        let changes: Vec<_> = changes.into_iter().collect();
        if !self.knows(cluster) && !changes.iter().any(|change| matches!(change, RbacChange::Put(_))) {
            return false;
        }
        self.change(cluster, |fleet, index| fleet.step(index, changes))
    }

    /// Makes these all the roles and bindings of a cluster; of several of one kind, namespace and name the last counts.
    /// Whether anybody's rights may differ from before. Linear in the objects before and after.
    pub fn replace(&mut self, cluster: &ClusterName, objects: impl IntoIterator<Item = RbacObject>) -> bool {
        self.change(cluster, |fleet, index| {
            let mut member = ClusterObjects::default();
            for object in objects {
                match object.0 {
                    Content::Role(place, rules) => {
                        let (place, rules) = (fleet.places.intern(place), fleet.rules.intern(Rules::new(rules)));
                        member.set_role(&place, Some(rules));
                    }
                    Content::Binding(binding) => {
                        let place = fleet.places.intern(binding.place.clone());
                        let role = binding.role.clone().map(|role| fleet.places.intern(role));
                        member.set_binding(&place, Some((fleet.bindings.intern(binding), role)));
                    }
                }
            }
            fleet.put_member(index, Some(member));
        })
    }

    /// Makes these all the objects of one kind of a cluster, with those of the other kinds as they are; of several of
    /// one namespace and name the last counts, and objects of other kinds do not. A cluster not yet known is known from
    /// then on, if there are any. Whether anybody's rights may differ from before.
    ///
    /// Costs what [`Self::apply`] does, and a walk over those of before.
    pub fn replace_kind(
        &mut self,
        cluster: &ClusterName,
        kind: RbacKind,
        objects: impl IntoIterator<Item = RbacObject>,
    ) -> bool {
        let objects: Vec<_> = objects.into_iter().filter(|object| object.kind() == kind).collect();
        let stay: HashSet<&ObjectPlace> = objects.iter().map(RbacObject::place).collect();
        let member = self.rights.index(cluster).and_then(|index| self.members[index].as_ref());
        let before = member.into_iter().flat_map(|member| member.places(kind));
        let gone = before.filter(|place| !stay.contains(place)).map(|place| RbacChange::Gone {
            kind,
            namespace: place.namespace.to_string(),
            name: place.name.to_string(),
        });
        let gone: Vec<_> = gone.collect();
        self.apply(cluster, gone.into_iter().chain(objects.into_iter().map(RbacChange::Put)))
    }

    /// Forgets a cluster. Whether it was known.
    pub fn leave(&mut self, cluster: &ClusterName) -> bool {
        let Some(index) = self.rights.leave(cluster) else { return false };
        self.put_member(index, None);
        self.rights.close()
    }

    /// Runs a change of one cluster. Whatever it touches is of one generation.
    fn change(&mut self, cluster: &ClusterName, apply: impl FnOnce(&mut Self, ClusterIndex)) -> bool {
        let index = self.rights.index(cluster).unwrap_or_else(|| self.join(cluster));
        apply(self, index);
        self.rights.close()
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

    /// Takes over changes, and makes anew what those have whom they touch.
    fn step(&mut self, index: ClusterIndex, changes: Vec<RbacChange>) {
        let Some(mut member) = self.members[index].take() else { return };
        let (was_beyond, mut changed) = (member.names_too_many(), Changed::default());
        for change in changes {
            match change {
                RbacChange::Put(RbacObject(Content::Role(place, rules))) => {
                    let rules = self.rules.intern(Rules::new(rules));
                    self.set_role(&mut member, place, Some(rules), &mut changed);
                }
                RbacChange::Put(RbacObject(Content::Binding(binding))) => {
                    let place = binding.place.clone();
                    self.set_binding(&mut member, place, Some(binding), &mut changed);
                }
                RbacChange::Gone { kind, namespace, .. } if namespace.is_empty() == kind.is_namespaced() => {}
                RbacChange::Gone { kind, namespace, name } => {
                    let place = ObjectPlace::new(&namespace, &name);
                    match kind {
                        RbacKind::Role | RbacKind::ClusterRole => self.set_role(&mut member, place, None, &mut changed),
                        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                            self.set_binding(&mut member, place, None, &mut changed);
                        }
                    }
                }
            }
        }
        match (was_beyond, member.names_too_many()) {
            (false, false) => {
                for (principal, grants) in self.touched(index, &member, changed) {
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
        place: ObjectPlace,
        rules: Option<Arc<Rules>>,
        changed: &mut Changed,
    ) {
        let place = self.places.intern(place);
        if member.set_role(&place, rules) {
            changed.roles.insert(place);
        }
    }

    fn set_binding(
        &mut self,
        member: &mut ClusterObjects,
        place: ObjectPlace,
        binding: Option<Binding>,
        changed: &mut Changed,
    ) {
        let place = self.places.intern(place);
        let binding = binding.map(|binding| self.bindings.intern(binding));
        let role = binding.as_ref().and_then(|binding| binding.role.clone()).map(|role| self.places.intern(role));
        let address = binding.as_ref().map(Arc::as_ptr);
        let before = member.set_binding(&place, binding.map(|binding| (binding, role)));
        if before.as_ref().map(Arc::as_ptr) != address {
            changed.principals.extend(before.iter().flat_map(|binding| principals(binding)));
            changed.bindings.insert(place);
        }
    }

    /// What everybody has by now who had what was changed, or has it now.
    fn touched(&self, index: ClusterIndex, member: &ClusterObjects, changed: Changed) -> Vec<(Principal, Vec<Grant>)> {
        let Changed { roles, bindings, mut principals } = changed;
        let mut new: HashMap<Principal, Vec<Grant>> = HashMap::new();
        for binding in bindings.iter().filter_map(|place| member.binding(place)) {
            for principal in self::principals(binding) {
                new.entry(principal).or_default().push(member.grant(binding));
            }
        }
        principals.extend(new.keys().cloned());
        let given = roles.iter().flat_map(|role| member.bindings_of(role));
        principals.extend(given.flat_map(|binding| self::principals(binding)));
        let shares = principals.into_iter().map(|principal| {
            let kept = self.rights.share(index, &principal).map(|share| share.grants()).unwrap_or_default();
            let kept = kept.iter().filter(|grant| !bindings.contains(&grant.binding.place));
            let has_another = |grant: &&Grant| grant.binding.role.as_ref().is_some_and(|role| roles.contains(role));
            let now = |grant: &Grant| if has_another(&grant) { member.grant(&grant.binding) } else { grant.clone() };
            let mut grants: Vec<_> = kept.map(now).collect();
            grants.extend(new.remove(&principal).into_iter().flatten());
            (principal, grants)
        });
        shares.collect()
    }

    /// Puts another member at an index, or none: what each subject has there is made anew.
    fn put_member(&mut self, index: ClusterIndex, member: Option<ClusterObjects>) {
        let before = self.members[index].take().filter(|before| !before.names_too_many());
        let had = before.iter().flat_map(ClusterObjects::bindings).flat_map(|binding| principals(binding));
        let had = had.map(|principal| (principal, Vec::new())).collect();
        drop(before);
        self.compile(index, member.as_ref().unwrap_or(&ClusterObjects::default()), had);
        self.members[index] = member;
    }

    /// Makes anew what each subject has in a cluster, those of `grants` included, which had something. Nobody has
    /// anything where that would take too much.
    fn compile(&mut self, index: ClusterIndex, member: &ClusterObjects, mut grants: HashMap<Principal, Vec<Grant>>) {
        self.rights.set_unknown(index, member.names_too_many());
        for binding in member.bindings().filter(|_| !member.names_too_many()) {
            principals(binding).for_each(|principal| grants.entry(principal).or_default().push(member.grant(binding)));
        }
        for (principal, grants) in grants {
            self.set_share(index, &principal, grants);
        }
    }

    fn set_share(&mut self, index: ClusterIndex, principal: &Principal, mut grants: Vec<Grant>) {
        // A binding that names somebody as a user and as a ServiceAccount gives what it gives once.
        grants.dedup_by(|a, b| Arc::ptr_eq(&a.binding, &b.binding));
        let share = (!grants.is_empty()).then(|| self.shares.intern(Share::new(grants)));
        self.rights.set_share(index, principal, share);
    }

    /// What each binding of a cluster gives, in an order that stays while they do.
    pub(crate) fn grants(&self, cluster: &ClusterName) -> impl Iterator<Item = Grant> {
        let member = self.rights.index(cluster).and_then(|index| self.members[index].as_ref());
        member.into_iter().flat_map(|member| member.bindings().map(|binding| member.grant(binding)))
    }
}

fn principals(binding: &Binding) -> impl Iterator<Item = Principal> {
    binding.subjects.iter().map(Principal::from_subject)
}
