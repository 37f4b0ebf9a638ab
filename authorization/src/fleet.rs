//! The roles and bindings of all clusters, compiled: subject, cluster, grants.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tributary_apimachinery::ClusterName;

use crate::attributes::{Attributes, ResourceAttributes, User};
use crate::ground::{BindingGround, Ground};
use crate::intern::Interner;
use crate::member::Member;
use crate::object::{Binding, Content, Place, RbacChange, RbacKind, RbacObject, Subject};
use crate::rule::{Marks, Rule, Rules};
use crate::share::{Grant, Share};
use crate::visible::{Part, Visible};

/// The group that an authorizer before RBAC lets do everything (`user.SystemPrivilegedGroup`).
const MASTERS: &str = "system:masters";

/// How much is remembered of subjects that lost what they had, in subjects and 256 bytes of their names. 1,024: bindings
/// come and go with namespaces, and what nobody remembers any more counts as changed for everybody.
const GONE_MAX: usize = 1024;

/// The number of a cluster, as subjects have it. One that left is given again.
type Slot = usize;

/// The RBAC of many clusters.
#[derive(Debug, Default)]
pub struct Fleet {
    clusters: HashMap<ClusterName, Slot>,
    members: Vec<Option<Member>>,
    /// Of how many subjects more is granted in each cluster than is looked at.
    beyond: Vec<usize>,
    users: HashMap<Arc<str>, Shares>,
    groups: HashMap<Arc<str>, Shares>,
    /// Counts changes of what anybody may do.
    generation: u64,
    /// Whether anything has changed since this generation began.
    touched: bool,
    /// When a cluster last came or went.
    clusters_changed: u64,
    /// When each cluster came that is there.
    joined: Vec<u64>,
    /// How much is remembered of subjects that lost what they had: see [`GONE_MAX`].
    gone: usize,
    /// When that was last forgotten.
    forgotten: u64,
    places: Interner<Place>,
    rules: Interner<Rules>,
    bindings: Interner<Binding>,
    shares: Interner<Share>,
}

/// What a subject has, cluster by cluster in the order of their slots.
#[derive(Debug, Default)]
struct Shares {
    by_cluster: Vec<ClusterShare>,
    changed: u64,
}

/// What a subject has in one cluster.
#[derive(Debug)]
struct ClusterShare {
    slot: Slot,
    /// `None` once it has nothing any more, for as long as that is remembered.
    share: Option<Arc<Share>>,
    changed: u64,
}

/// What changes of a cluster touch.
#[derive(Default)]
struct Changed {
    /// The roles that have other rules.
    roles: HashSet<Arc<Place>>,
    /// Where bindings are others.
    bindings: HashSet<Arc<Place>>,
    /// Whom the bindings before named.
    principals: HashSet<Principal>,
}

/// The clusters that allow something.
#[derive(Debug)]
pub struct AllowingClusters<'a> {
    fleet: &'a Fleet,
    /// Whether each does, by its slot.
    slots: Vec<bool>,
}

impl AllowingClusters<'_> {
    /// Whether a cluster is one of them. One that is not known is not.
    pub fn contains(&self, cluster: &ClusterName) -> bool {
        self.fleet.clusters.get(cluster).is_some_and(|slot| self.slots[*slot])
    }
}

/// Who a subject of a binding is, for lookups: a ServiceAccount is a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Principal {
    User(Arc<str>),
    Group(Arc<str>),
}

impl Principal {
    fn of(subject: &Subject) -> Self {
        match subject {
            Subject::User(name) | Subject::ServiceAccount { user: name, .. } => Self::User(Arc::clone(name)),
            Subject::Group(name) => Self::Group(Arc::clone(name)),
        }
    }

    fn is(&self, user: User<'_>) -> bool {
        match self {
            Self::User(name) => **name == *user.name,
            Self::Group(name) => user.groups.iter().any(|group| **group == **name),
        }
    }
}

impl Shares {
    fn place(&self, slot: Slot) -> Result<usize, usize> {
        self.by_cluster.binary_search_by_key(&slot, |own| own.slot)
    }

    fn get(&self, slot: Slot) -> Option<&Arc<Share>> {
        self.by_cluster[self.place(slot).ok()?].share.as_ref()
    }

    /// When it last changed in a cluster, as far as that is remembered.
    fn changed_in(&self, slot: Slot) -> u64 {
        self.place(slot).map_or(0, |at| self.by_cluster[at].changed)
    }

    /// What it has now, from this generation on. Whether that is another than before.
    fn set(&mut self, slot: Slot, share: Option<Arc<Share>>, now: u64) -> bool {
        match self.place(slot) {
            Ok(at) if self.by_cluster[at].share.as_ref().map(Arc::as_ptr) == share.as_ref().map(Arc::as_ptr) => {
                return false;
            }
            Ok(at) => self.by_cluster[at] = ClusterShare { slot, share, changed: now },
            Err(_) if share.is_none() => return false,
            Err(at) => self.by_cluster.insert(at, ClusterShare { slot, share, changed: now }),
        }
        self.changed = now;
        true
    }

    /// Forgets what it has no more. Whether anything is left.
    fn forget(&mut self) -> bool {
        self.by_cluster.retain(|own| own.share.is_some());
        !self.by_cluster.is_empty()
    }
}

/// What changes. Each call costs what it touches, once: of bindings their subjects' grants in this cluster, of roles those
/// of all who have them there.
impl Fleet {
    /// Puts a role or a binding into a cluster, in place of one of its kind, namespace and name. A cluster not yet known
    /// is known from then on. Whether anybody's rights may differ from before.
    pub fn upsert(&mut self, cluster: &ClusterName, object: RbacObject) -> bool {
        self.apply(cluster, [RbacChange::Put(object)])
    }

    /// Takes a role or a binding from a cluster; `namespace` is empty for the kinds that have none. Whether anybody's
    /// rights may differ from before.
    pub fn remove(&mut self, cluster: &ClusterName, kind: RbacKind, namespace: &str, name: &str) -> bool {
        self.apply(cluster, [RbacChange::Gone { kind, namespace: namespace.to_owned(), name: name.to_owned() }])
    }

    /// Takes over changes of a cluster, in their order. A cluster not yet known is known from then on, if anything is put
    /// into it. Whether anybody's rights may differ from before.
    ///
    /// Costs each change and, once however many they are, all grants of the subjects that have them.
    pub fn apply(&mut self, cluster: &ClusterName, changes: impl IntoIterator<Item = RbacChange>) -> bool {
        let changes: Vec<_> = changes.into_iter().collect();
        if !self.knows(cluster) && !changes.iter().any(|change| matches!(change, RbacChange::Put(_))) {
            return false;
        }
        self.change(cluster, |fleet, slot| fleet.step(slot, changes))
    }

    /// Makes these all the roles and bindings of a cluster; of several of one kind, namespace and name the last counts.
    /// Whether anybody's rights may differ from before. Linear in the objects before and after.
    pub fn replace(&mut self, cluster: &ClusterName, objects: impl IntoIterator<Item = RbacObject>) -> bool {
        self.change(cluster, |fleet, slot| {
            let mut member = Member::default();
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
            fleet.put_member(slot, Some(member));
        })
    }

    /// Forgets a cluster. Whether it was known.
    pub fn leave(&mut self, cluster: &ClusterName) -> bool {
        let Some(slot) = self.clusters.remove(cluster) else { return false };
        self.clusters_changed = self.touch();
        self.put_member(slot, None);
        self.close()
    }

    /// Runs a change of one cluster. Whatever it touches is of one generation.
    fn change(&mut self, cluster: &ClusterName, apply: impl FnOnce(&mut Self, Slot)) -> bool {
        let slot = match self.clusters.get(cluster) {
            Some(slot) => *slot,
            None => self.join(cluster),
        };
        apply(self, slot);
        self.close()
    }

    /// Begins a new generation if anything was touched, and says whether.
    fn close(&mut self) -> bool {
        if self.gone > GONE_MAX {
            self.gone = 0;
            self.forgotten = self.touch();
            self.users.retain(|_, shares| shares.forget());
            self.groups.retain(|_, shares| shares.forget());
        }
        let touched = std::mem::take(&mut self.touched);
        self.generation += u64::from(touched);
        touched
    }

    /// The generation of what changes now.
    fn touch(&mut self) -> u64 {
        self.touched = true;
        self.generation + 1
    }

    fn join(&mut self, cluster: &ClusterName) -> Slot {
        let free = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        if free == self.members.len() {
            self.members.push(None);
            self.beyond.push(0);
            self.joined.push(0);
        }
        self.members[free] = Some(Member::default());
        self.clusters_changed = self.touch();
        self.joined[free] = self.clusters_changed;
        self.clusters.insert(cluster.clone(), free);
        free
    }

    /// Takes over changes, and makes anew what those have whom they touch.
    fn step(&mut self, slot: Slot, changes: Vec<RbacChange>) {
        let Some(mut member) = self.members[slot].take() else { return };
        let mut changed = Changed::default();
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
                    let place = Place::new(&namespace, &name);
                    match kind {
                        RbacKind::Role | RbacKind::ClusterRole => self.set_role(&mut member, place, None, &mut changed),
                        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                            self.set_binding(&mut member, place, None, &mut changed);
                        }
                    }
                }
            }
        }
        let shares = self.touched(slot, &member, changed);
        self.members[slot] = Some(member);
        for (principal, grants) in shares {
            self.set_share(slot, &principal, grants);
        }
    }

    fn set_role(&mut self, member: &mut Member, place: Place, rules: Option<Arc<Rules>>, changed: &mut Changed) {
        let place = self.places.intern(place);
        if member.set_role(&place, rules) {
            changed.roles.insert(place);
        }
    }

    fn set_binding(&mut self, member: &mut Member, place: Place, binding: Option<Binding>, changed: &mut Changed) {
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
    fn touched(&self, slot: Slot, member: &Member, changed: Changed) -> Vec<(Principal, Vec<Grant>)> {
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
            let kept = self.share(slot, &principal).map(Share::grants).unwrap_or_default();
            let kept = kept.iter().filter(|grant| !bindings.contains(&grant.binding.place));
            let has_another = |grant: &&Grant| grant.binding.role.as_ref().is_some_and(|role| roles.contains(role));
            let now = |grant: &Grant| if has_another(&grant) { member.grant(&grant.binding) } else { grant.clone() };
            let mut grants: Vec<_> = kept.map(now).collect();
            grants.extend(new.remove(&principal).into_iter().flatten());
            (principal, grants)
        });
        shares.collect()
    }

    /// Puts another member into a slot, or none: what each subject has there is made anew.
    fn put_member(&mut self, slot: Slot, member: Option<Member>) {
        let mut grants: HashMap<Principal, Vec<Grant>> = HashMap::new();
        for binding in self.members[slot].iter().flat_map(Member::bindings) {
            grants.extend(principals(binding).map(|principal| (principal, Vec::new())));
        }
        for (member, binding) in member.iter().flat_map(|member| member.bindings().map(move |own| (member, own))) {
            principals(binding).for_each(|principal| grants.entry(principal).or_default().push(member.grant(binding)));
        }
        self.members[slot] = member;
        for (principal, grants) in grants {
            self.set_share(slot, &principal, grants);
        }
    }

    fn set_share(&mut self, slot: Slot, principal: &Principal, mut grants: Vec<Grant>) {
        // A binding that names somebody as a user and as a ServiceAccount gives what it gives once.
        grants.dedup_by(|a, b| Arc::ptr_eq(&a.binding, &b.binding));
        let share = (!grants.is_empty()).then(|| self.shares.intern(Share::new(grants)));
        let now = self.generation + 1;
        let is_beyond = share.as_ref().is_some_and(|share| share.is_beyond());
        let was_beyond = self.share(slot, principal).is_some_and(Share::is_beyond);
        self.beyond[slot] = self.beyond[slot] + usize::from(is_beyond) - usize::from(was_beyond);
        let (map, name) = match principal {
            Principal::User(name) => (&mut self.users, name),
            Principal::Group(name) => (&mut self.groups, name),
        };
        if share.is_none() && !map.contains_key(name) {
            return;
        }
        let is_gone = share.is_none();
        if map.entry(Arc::clone(name)).or_default().set(slot, share, now) {
            self.touched = true;
            if is_gone {
                self.gone += 1 + name.len() / 256;
            }
        }
    }

    fn share(&self, slot: Slot, principal: &Principal) -> Option<&Share> {
        let shares = match principal {
            Principal::User(name) => self.users.get(name),
            Principal::Group(name) => self.groups.get(name),
        };
        Some(shares?.get(slot)?)
    }
}

fn principals(binding: &Binding) -> impl Iterator<Item = Principal> {
    binding.subjects.iter().map(Principal::of)
}

/// What is asked. A cluster that is not known allows nothing, to nobody.
impl Fleet {
    /// Whether a cluster is known.
    pub fn knows(&self, cluster: &ClusterName) -> bool {
        self.clusters.contains_key(cluster)
    }

    /// Whether a cluster grants more to one of its subjects than is looked at.
    pub fn grants_too_much(&self, cluster: &ClusterName) -> bool {
        self.clusters.get(cluster).is_some_and(|slot| self.beyond[*slot] > 0)
    }

    /// Whether a cluster grants more to a user, or a group of theirs, than is looked at: what it allows them is not known,
    /// and is nothing here. Costs nothing but where some cluster's subject has so much, and a lookup for each group
    /// there.
    pub fn is_beyond(&self, cluster: &ClusterName, user: User<'_>) -> bool {
        let Some(slot) = self.clusters.get(cluster).filter(|slot| self.beyond[**slot] > 0) else { return false };
        self.shares_of(user).filter_map(|shares| shares.get(*slot)).any(|share| share.is_beyond())
    }

    /// Counts the changes of what anybody may do anywhere.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation in which what this user may do anywhere last changed, or may have: while it is the same, so is
    /// every answer. It never falls. Costs a lookup for each group.
    pub fn generation_of(&self, user: User<'_>) -> u64 {
        let rest = self.clusters_changed.max(self.forgotten);
        self.shares_of(user).map(|shares| shares.changed).fold(rest, u64::max)
    }

    /// The same of what this user may do in one cluster, whatever changes in others.
    pub fn generation_in(&self, cluster: &ClusterName, user: User<'_>) -> u64 {
        let Some(slot) = self.clusters.get(cluster) else { return self.clusters_changed };
        let rest = self.joined[*slot].max(self.forgotten);
        self.shares_of(user).map(|shares| shares.changed_in(*slot)).fold(rest, u64::max)
    }

    /// Whether a cluster allows a request. Costs a lookup for each group, and the rules that may match.
    pub fn allows(&self, cluster: &ClusterName, user: User<'_>, attributes: &Attributes<'_>) -> bool {
        let Some(slot) = self.clusters.get(cluster) else { return false };
        let asked = Marks::of_request(attributes);
        let mut shares = self.shares_of(user).filter_map(|shares| shares.get(*slot));
        is_master(user) || shares.any(|share| share.allows(attributes, asked))
    }

    /// The clusters that allow one of these requests, as [`Self::allows`] says of each. Costs a lookup for each group, and
    /// for the clusters in which any of them has the same rules what it costs for one.
    pub fn allowing(&self, user: User<'_>, asked: &[Attributes<'_>]) -> AllowingClusters<'_> {
        let marked: Vec<_> = asked.iter().map(|attributes| (attributes, Marks::of_request(attributes))).collect();
        let mut slots = vec![is_master(user) && !asked.is_empty(); self.members.len()];
        let mut known: HashMap<*const Share, bool> = HashMap::new();
        for ClusterShare { slot, share, .. } in self.shares_of(user).flat_map(|shares| &shares.by_cluster) {
            if let Some(share) = share
                && !slots[*slot]
            {
                let allows = || marked.iter().any(|(attributes, marks)| share.allows(attributes, *marks));
                slots[*slot] = *known.entry(Arc::as_ptr(share)).or_insert_with(allows);
            }
        }
        AllowingClusters { fleet: self, slots }
    }

    /// In which namespaces and with which names a cluster allows a verb (`list`, `watch`, `get`, …) of a resource. Costs
    /// what [`Self::allows`] costs, for each namespace in which a group of the user has a RoleBinding.
    pub fn rights(&self, cluster: &ClusterName, user: User<'_>, verb: &str, group: &str, resource: &str) -> Visible {
        let Some(slot) = self.clusters.get(cluster) else { return Visible::nothing() };
        if is_master(user) {
            return Visible::Whole;
        }
        let asked = ResourceAttributes { verb, group, resource, ..ResourceAttributes::default() };
        let marks = Marks::of_request(&Attributes::Resource(asked));
        let mut part = Part::default();
        for share in self.shares_of(user).filter_map(|shares| shares.get(*slot)) {
            for grant in share.looked_at() {
                let rules = grant.rules.iter().flat_map(|rules| rules.candidates(marks));
                for rule in rules.filter(|rule| rule.covers(&asked)) {
                    if !add(&mut part, &grant.binding.place.namespace, rule) {
                        return Visible::Whole;
                    }
                }
            }
        }
        Visible::Part(Arc::new(part.simplified()))
    }

    /// Every rule that a cluster's roles give a user in a namespace, with those that count everywhere: what the cluster
    /// itself lists in a SelfSubjectRulesReview.
    pub fn rules<'a>(&'a self, cluster: &ClusterName, user: User<'a>, namespace: &'a str) -> Vec<&'a Rule> {
        let Some(slot) = self.clusters.get(cluster) else { return Vec::new() };
        let shares = self.shares_of(user).filter_map(|shares| shares.get(*slot));
        let rules = shares.flat_map(|share| share.within(namespace)).filter_map(|grant| grant.rules.as_deref());
        rules.flat_map(Rules::iter).collect()
    }

    /// By which bindings a cluster allows a request, each once and in order; kube-apiserver tells the first that it
    /// finds, in an order of its own. None exactly where it is not allowed. For people: it costs the whole of the
    /// user's grants in that namespace.
    pub fn grounds<'a>(
        &'a self,
        cluster: &ClusterName,
        user: User<'_>,
        attributes: &Attributes<'_>,
    ) -> Vec<Ground<'a>> {
        let Some(slot) = self.clusters.get(cluster) else { return Vec::new() };
        let asked = Marks::of_request(attributes);
        let mut bindings = BTreeMap::new();
        for share in self.shares_of(user).filter_map(|shares| shares.get(*slot)) {
            let allowing = |grant: &&Grant| grant.rules.as_ref().is_some_and(|rules| rules.allow(attributes, asked));
            for Grant { binding, .. } in share.within(attributes.namespace()).filter(allowing) {
                bindings.insert(&binding.place, &**binding);
            }
        }
        let ground = |binding: &'a Binding| {
            let subject = binding.subjects.iter().find(|subject| Principal::of(subject).is(user))?;
            Some(Ground::Binding(BindingGround { binding, subject }))
        };
        let masters = is_master(user).then_some(Ground::Masters);
        masters.into_iter().chain(bindings.into_values().filter_map(ground)).collect()
    }

    /// What each binding of a cluster gives, in an order that stays while they do.
    pub(crate) fn grants(&self, cluster: &ClusterName) -> impl Iterator<Item = Grant> {
        let member = self.clusters.get(cluster).and_then(|slot| self.members[*slot].as_ref());
        member.into_iter().flat_map(|member| member.bindings().map(|binding| member.grant(binding)))
    }

    fn shares_of(&self, user: User<'_>) -> impl Iterator<Item = &Shares> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name).into_iter().chain(groups)
    }
}

fn is_master(user: User<'_>) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// Adds what a rule that covers the request gives in a namespace, or everywhere where that is empty. False where it
/// gives everything.
fn add(part: &mut Part, namespace: &Arc<str>, rule: &Rule) -> bool {
    let names = rule.resource_names.iter().cloned();
    match (namespace.is_empty(), rule.resource_names.is_empty()) {
        (true, true) => return false,
        (false, true) => part.namespaces.extend([Arc::clone(namespace)]),
        (true, false) => part.names.extend(names),
        (false, false) => part.names_within.entry(Arc::clone(namespace)).or_default().extend(names),
    }
    true
}
