//! What the subjects of all clusters have at one moment: subject, cluster, grants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use imbl::HashMap as SharedMap;
use tributary_apimachinery::{ClusterName, MASTERS_GROUP};

use crate::allowed_by::{AllowedBy, UserBinding, role_not_found};
use crate::attributes::{Attributes, RbacUser, ResourceAttributes};
use crate::object::{Binding, Subject};
use crate::rule::{CompiledRule, Marks, Rules};
use crate::share::{Grant, Share};
use crate::shared_parts::{SHARED_FROM, SharedParts};
use crate::visible::{Part, Visible};

/// How much is remembered of subjects that lost what they had in a cluster, in subjects and 256 bytes of their names.
/// 1,024: bindings come and go with namespaces, and what nobody remembers any more counts as changed for everybody
/// there.
const GONE_MAX: usize = 1024;

/// The number of a cluster, as subjects have it. One that left is given again.
pub(crate) type ClusterIndex = usize;

/// What the subjects of many clusters have at one moment. A clone costs nothing and stays as it is: its maps are
/// persistent (copy-on-write), so whoever asks never waits for what changes.
#[derive(Clone, Debug, Default)]
pub struct FleetRights {
    clusters: SharedMap<ClusterName, ServedCluster>,
    /// Above all indices that were ever given.
    next_index: ClusterIndex,
    /// Of how many subjects more is granted than is looked at, in the clusters that have such.
    beyond: BTreeMap<ClusterIndex, usize>,
    /// How many subjects have a binding whose role is not there, in the clusters that have such.
    without_role: BTreeMap<ClusterIndex, usize>,
    /// The clusters whose bindings name more subjects than are compiled: nobody has anything there.
    unknown: BTreeSet<ClusterIndex>,
    users: SharedMap<Arc<str>, Arc<Shares>>,
    groups: SharedMap<Arc<str>, Arc<Shares>>,
    /// Counts changes of what anybody may do.
    generation: u64,
    /// Whether anything has changed since this generation began.
    touched: bool,
    /// When a cluster last came or went.
    clusters_changed: u64,
    /// How much is remembered of subjects that lost what they had in a cluster: see [`GONE_MAX`].
    gone: BTreeMap<ClusterIndex, usize>,
    /// When that was last forgotten, in the clusters where it was.
    forgotten: BTreeMap<ClusterIndex, u64>,
    /// What is held of what large grants reach.
    parts: Arc<SharedParts>,
}

/// A cluster that is there.
#[derive(Clone, Copy, Debug)]
struct ServedCluster {
    index: ClusterIndex,
    /// The generation in which it came.
    since: u64,
}

/// What a subject has, cluster by cluster in the order of their indices.
#[derive(Clone, Debug, Default)]
struct Shares {
    by_cluster: Vec<ClusterShare>,
    changed: u64,
}

/// What a subject has in one cluster.
#[derive(Clone, Debug)]
struct ClusterShare {
    index: ClusterIndex,
    /// `None` once it has nothing any more, for as long as that is remembered.
    share: Option<Arc<Share>>,
    changed: u64,
}

/// The clusters that allow something.
#[derive(Debug)]
pub struct AllowingClusters<'a> {
    rights: &'a FleetRights,
    /// Whether each does, by its index.
    indices: Vec<bool>,
}

impl AllowingClusters<'_> {
    /// Whether a cluster is one of them. One that is not known is not.
    pub fn contains(&self, cluster: &ClusterName) -> bool {
        self.rights.index(cluster).is_some_and(|index| self.indices[index])
    }
}

/// Who a subject of a binding is, for lookups: a ServiceAccount is a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Principal {
    User(Arc<str>),
    Group(Arc<str>),
}

impl Principal {
    pub(crate) fn from_subject(subject: &Subject) -> Self {
        match subject {
            Subject::User(name) | Subject::ServiceAccount { user: name, .. } => Self::User(Arc::clone(name)),
            Subject::Group(name) => Self::Group(Arc::clone(name)),
        }
    }

    pub(crate) fn is(&self, user: RbacUser<'_>) -> bool {
        match self {
            Self::User(name) => **name == *user.name,
            Self::Group(name) => user.groups.iter().any(|group| **group == **name),
        }
    }
}

impl Shares {
    fn place(&self, index: ClusterIndex) -> Result<usize, usize> {
        self.by_cluster.binary_search_by_key(&index, |own| own.index)
    }

    fn get(&self, index: ClusterIndex) -> Option<&Arc<Share>> {
        self.by_cluster[self.place(index).ok()?].share.as_ref()
    }

    /// When it last changed in a cluster, as far as that is remembered.
    fn changed_in(&self, index: ClusterIndex) -> u64 {
        self.place(index).map_or(0, |at| self.by_cluster[at].changed)
    }

    /// What it has from this generation on.
    fn set(&mut self, index: ClusterIndex, share: Option<Arc<Share>>, now: u64) {
        let own = ClusterShare { index, share, changed: now };
        match self.place(index) {
            Ok(at) => self.by_cluster[at] = own,
            Err(at) => {
                if self.by_cluster.is_empty() {
                    // Most of those whom a hostile cluster makes up are in it alone.
                    self.by_cluster.reserve_exact(1);
                }
                self.by_cluster.insert(at, own);
            }
        }
        self.changed = now;
    }

    /// Whether it remembers what it has no more in a cluster.
    fn remembers(&self, index: ClusterIndex) -> bool {
        self.place(index).is_ok_and(|at| self.by_cluster[at].share.is_none())
    }
}

/// Forgets what subjects have no more in a cluster.
fn forget(map: &mut SharedMap<Arc<str>, Arc<Shares>>, index: ClusterIndex) {
    let remembering = map.iter().filter(|(_, shares)| shares.remembers(index));
    let remembering: Vec<_> = remembering.map(|(name, _)| Arc::clone(name)).collect();
    for name in remembering {
        let Some(shares) = map.get_mut(&name) else { continue };
        let shares = Arc::make_mut(shares);
        shares.by_cluster.retain(|own| own.index != index || own.share.is_some());
        if shares.by_cluster.is_empty() {
            map.remove(&name);
        }
    }
}

/// What changes, by the [`Fleet`](crate::Fleet) that compiles it.
impl FleetRights {
    /// The index of a cluster.
    pub(crate) fn index(&self, cluster: &ClusterName) -> Option<ClusterIndex> {
        self.clusters.get(cluster).map(|joined| joined.index)
    }

    /// Gives a cluster an index, in which nobody has anything.
    pub(crate) fn join(&mut self, cluster: &ClusterName, index: ClusterIndex) {
        self.clusters_changed = self.touch();
        self.clusters.insert(cluster.clone(), ServedCluster { index, since: self.clusters_changed });
        self.next_index = self.next_index.max(index + 1);
    }

    /// Forgets which index a cluster had, and says which.
    pub(crate) fn leave(&mut self, cluster: &ClusterName) -> Option<ClusterIndex> {
        let ServedCluster { index, .. } = self.clusters.remove(cluster)?;
        self.clusters_changed = self.touch();
        Some(index)
    }

    /// What a subject has in a cluster.
    pub(crate) fn share(&self, index: ClusterIndex, principal: &Principal) -> Option<&Arc<Share>> {
        let (map, name) = match principal {
            Principal::User(name) => (&self.users, name),
            Principal::Group(name) => (&self.groups, name),
        };
        map.get(name)?.get(index)
    }

    /// Gives a subject another share in a cluster, or none.
    pub(crate) fn set_share(&mut self, index: ClusterIndex, principal: &Principal, share: Option<Arc<Share>>) {
        let before = self.share(index, principal);
        if before.map(Arc::as_ptr) == share.as_ref().map(Arc::as_ptr) {
            return;
        }
        let (before, after) = (before.map(|share| &**share), share.as_deref());
        let [beyond, without_role] = [Share::is_beyond, Share::lacks_role]
            .map(|is_so: fn(&Share) -> bool| [before, after].map(|share| share.is_some_and(is_so)));
        count(&mut self.beyond, index, beyond);
        count(&mut self.without_role, index, without_role);
        let now = self.touch();
        let (map, name) = match principal {
            Principal::User(name) => (&mut self.users, name),
            Principal::Group(name) => (&mut self.groups, name),
        };
        if share.is_none() {
            *self.gone.entry(index).or_default() += 1 + name.len() / 256;
        }
        Arc::make_mut(map.entry(Arc::clone(name)).or_default()).set(index, share, now);
    }

    /// Says whether a cluster's bindings name more subjects than are compiled. Where that is news, what anybody may do
    /// there may have changed.
    pub(crate) fn set_unknown(&mut self, index: ClusterIndex, is_unknown: bool) {
        let is_news = if is_unknown { self.unknown.insert(index) } else { self.unknown.remove(&index) };
        if is_news {
            let now = self.touch();
            self.forgotten.insert(index, now);
        }
    }

    /// Begins a new generation if anything was touched, and says whether.
    pub(crate) fn close(&mut self) -> bool {
        let full: Vec<_> = self.gone.iter().filter(|(_, gone)| **gone > GONE_MAX).map(|(index, _)| *index).collect();
        for index in full {
            self.gone.remove(&index);
            let now = self.touch();
            self.forgotten.insert(index, now);
            forget(&mut self.users, index);
            forget(&mut self.groups, index);
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
}

/// Counts a subject that was, or is now, one of those that are counted in a cluster.
fn count(counted: &mut BTreeMap<ClusterIndex, usize>, index: ClusterIndex, [before, now]: [bool; 2]) {
    let subjects = counted.remove(&index).unwrap_or_default() + usize::from(now) - usize::from(before);
    if subjects > 0 {
        counted.insert(index, subjects);
    }
}

/// What is asked. A cluster that is not known allows nothing, to nobody.
impl FleetRights {
    /// Whether a cluster is known.
    pub fn knows(&self, cluster: &ClusterName) -> bool {
        self.clusters.contains_key(cluster)
    }

    /// Whether a cluster grants more to one of its subjects than is looked at.
    pub fn grants_too_much(&self, cluster: &ClusterName) -> bool {
        self.index(cluster).is_some_and(|index| self.beyond.contains_key(&index))
    }

    /// Whether a cluster's bindings name more subjects than are compiled
    /// ([`NAMED_SUBJECTS_MAX`](crate::NAMED_SUBJECTS_MAX)): what it allows anybody is not known, and is nothing here.
    pub fn names_too_many(&self, cluster: &ClusterName) -> bool {
        self.index(cluster).is_some_and(|index| self.unknown.contains(&index))
    }

    /// Whether a cluster grants more to a user, or a group of theirs, than is looked at, or names too many to know what
    /// it grants: what it allows them is not known, and is nothing here. Costs nothing but where some cluster's subject
    /// has so much, and a lookup for each group there.
    pub fn is_beyond(&self, cluster: &ClusterName, user: RbacUser<'_>) -> bool {
        let Some(index) = self.index(cluster) else { return false };
        if self.unknown.contains(&index) {
            // Those need no binding.
            return !is_master(user);
        }
        self.beyond.contains_key(&index)
            && self.shares_of(user).filter_map(|shares| shares.get(index)).any(|share| share.is_beyond())
    }

    /// Counts the changes of what anybody may do anywhere.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The generation in which what this user may do anywhere last changed, or may have: while it is the same, so is
    /// every answer. It never falls. Costs a lookup for each group.
    pub fn generation_of(&self, user: RbacUser<'_>) -> u64 {
        let forgotten = self.forgotten.values().copied().max().unwrap_or_default();
        let rest = self.clusters_changed.max(forgotten);
        self.shares_of(user).map(|shares| shares.changed).fold(rest, u64::max)
    }

    /// The same of what this user may do in one cluster, whatever changes in others.
    pub fn generation_in(&self, cluster: &ClusterName, user: RbacUser<'_>) -> u64 {
        let Some(ServedCluster { index, since }) = self.clusters.get(cluster) else { return self.clusters_changed };
        let rest = self.forgotten.get(index).copied().unwrap_or_default().max(*since);
        self.shares_of(user).map(|shares| shares.changed_in(*index)).fold(rest, u64::max)
    }

    /// Whether a cluster allows a request. Costs a lookup for each group, and the rules that may match.
    pub fn allows(&self, cluster: &ClusterName, user: RbacUser<'_>, attributes: &Attributes<'_>) -> bool {
        let Some(index) = self.index(cluster) else { return false };
        let asked = Marks::of_request(attributes);
        let mut shares = self.shares_of(user).filter_map(|shares| shares.get(index));
        is_master(user) || shares.any(|share| share.allows(attributes, asked))
    }

    /// The clusters that allow one of these requests, as [`Self::allows`] says of each. Costs a lookup for each group,
    /// and for the clusters in which any of them has the same rules what it costs for one.
    pub fn allowing(&self, user: RbacUser<'_>, asked: &[Attributes<'_>]) -> AllowingClusters<'_> {
        let marked: Vec<_> = asked.iter().map(|attributes| (attributes, Marks::of_request(attributes))).collect();
        let mut indices = vec![is_master(user) && !asked.is_empty(); self.next_index];
        let mut known: HashMap<*const Share, bool> = HashMap::new();
        for ClusterShare { index, share, .. } in self.shares_of(user).flat_map(|shares| &shares.by_cluster) {
            if let Some(share) = share
                && !indices[*index]
            {
                let allows = || marked.iter().any(|(attributes, marks)| share.allows(attributes, *marks));
                indices[*index] = *known.entry(Arc::as_ptr(share)).or_insert_with(allows);
            }
        }
        AllowingClusters { rights: self, indices }
    }

    /// In which namespaces and with which names a cluster allows a verb (`list`, `watch`, `get`, …) of a resource.
    /// Costs what [`Self::allows`] costs, for each namespace in which a group of the user has a RoleBinding.
    pub fn rights(
        &self,
        cluster: &ClusterName,
        user: RbacUser<'_>,
        verb: &str,
        group: &str,
        resource: &str,
    ) -> Visible {
        let Some(index) = self.index(cluster) else { return Visible::nothing() };
        if is_master(user) {
            return Visible::Whole;
        }
        let shares: Vec<_> = self.shares_of(user).filter_map(|shares| shares.get(index)).collect();
        let asked = ResourceAttributes { verb, group, resource, ..ResourceAttributes::default() };
        let part = match shares.iter().map(|share| share.places()).sum::<usize>() {
            0..SHARED_FROM => part_of(&shares, &asked).map(Arc::new),
            _ => self.parts.get(&shares, [verb, group, resource], || part_of(&shares, &asked)),
        };
        part.map_or(Visible::Whole, Visible::Part)
    }

    /// Every rule that a cluster's roles give a user in a namespace, with those that count everywhere: what the cluster
    /// itself lists in a SelfSubjectRulesReview.
    pub fn rules<'a>(&'a self, cluster: &ClusterName, user: RbacUser<'a>, namespace: &'a str) -> Vec<&'a CompiledRule> {
        let Some(index) = self.index(cluster) else { return Vec::new() };
        let shares = self.shares_of(user).filter_map(|shares| shares.get(index));
        shares.flat_map(|share| share.roles_within(namespace)).flat_map(Rules::iter).collect()
    }

    /// By which bindings a cluster allows a request, each once and in order; kube-apiserver tells the first that it
    /// finds, in an order of its own. None exactly where it is not allowed. For people: it costs the whole of the
    /// user's grants in that namespace.
    pub fn allowed_by<'a>(
        &'a self,
        cluster: &ClusterName,
        user: RbacUser<'_>,
        attributes: &Attributes<'_>,
    ) -> Vec<AllowedBy<'a>> {
        let Some(index) = self.index(cluster) else { return Vec::new() };
        let asked = Marks::of_request(attributes);
        let (mut bindings, mut allowing) = (BTreeMap::new(), HashMap::new());
        for share in self.shares_of(user).filter_map(|shares| shares.get(index)) {
            for Grant { binding, rules } in share.within(attributes.namespace()) {
                let Some(rules) = rules else { continue };
                if *allowing.entry(Arc::as_ptr(rules)).or_insert_with(|| rules.allow(attributes, asked)) {
                    bindings.insert(&binding.place, &**binding);
                }
            }
        }
        let allowed_by = |binding: &'a Binding| {
            let subject = binding.subjects.iter().find(|subject| Principal::from_subject(subject).is(user))?;
            Some(AllowedBy::Binding(UserBinding { binding, subject }))
        };
        let masters = is_master(user).then_some(AllowedBy::Masters);
        masters.into_iter().chain(bindings.into_values().filter_map(allowed_by)).collect()
    }

    /// The bindings of a user that name a role which is not there, in all namespaces, each once and in order. For
    /// people: it costs the whole of the user's grants.
    pub fn without_role<'a>(&'a self, cluster: &ClusterName, user: RbacUser<'_>) -> Vec<UserBinding<'a>> {
        let mut bindings = BTreeMap::new();
        for share in self.shares_without_role(cluster, user) {
            let without = share.looked_at().iter().filter(|grant| grant.rules.is_none());
            bindings.extend(without.map(|grant| (&grant.binding.place, &*grant.binding)));
        }
        let of_user = |binding: &'a Binding| {
            let subject = binding.subjects.iter().find(|subject| Principal::from_subject(subject).is(user))?;
            Some(UserBinding { binding, subject })
        };
        bindings.into_values().filter_map(of_user).collect()
    }

    /// Which roles are not there that bindings of a user name which count in a namespace, as kube-apiserver says it:
    /// each once, in the order of the bindings, and of no more than `most` roles. Costs a look at each of those
    /// bindings, and a text for each role that is told.
    pub fn roles_not_found(
        &self,
        cluster: &ClusterName,
        user: RbacUser<'_>,
        namespace: &str,
        most: usize,
    ) -> Vec<String> {
        let shares = self.shares_without_role(cluster, user);
        let grants = shares.flat_map(|share| share.within(namespace)).filter(|grant| grant.rules.is_none());
        let mut naming: Vec<&Binding> = Vec::new();
        for grant in grants {
            if naming.len() == most {
                break;
            }
            let binding: &Binding = &grant.binding;
            if !naming.iter().any(|other| other.role == binding.role) {
                naming.push(binding);
            }
        }
        naming.sort_unstable_by(|one, other| one.place.cmp(&other.place));
        naming.into_iter().map(role_not_found).collect()
    }

    /// What a user and their groups have in a cluster that has bindings whose role is not there.
    fn shares_without_role(&self, cluster: &ClusterName, user: RbacUser<'_>) -> impl Iterator<Item = &Arc<Share>> {
        // Most clusters have none.
        let index = self.index(cluster).filter(|index| self.without_role.contains_key(index));
        let of_cluster = move |index| self.shares_of(user).filter_map(move |shares| shares.get(index));
        index.into_iter().flat_map(of_cluster).filter(|share| share.lacks_role())
    }

    fn shares_of(&self, user: RbacUser<'_>) -> impl Iterator<Item = &Shares> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name).into_iter().chain(groups).map(|shares| &**shares)
    }
}

fn is_master(user: RbacUser<'_>) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

/// What shares reach; `None` for everything.
fn part_of(shares: &[&Arc<Share>], asked: &ResourceAttributes<'_>) -> Option<Part> {
    let marks = Marks::of_request(&Attributes::Resource(*asked));
    let (mut part, mut reaches) = (Part::default(), HashMap::new());
    for Grant { binding, rules } in shares.iter().flat_map(|share| share.looked_at()) {
        let Some(rules) = rules.as_ref().filter(|rules| rules.may_match(marks)) else { continue };
        // Many bindings give one role.
        let reach = reaches.entry(Arc::as_ptr(rules)).or_insert_with(|| Reach::from_rules(rules, asked, marks));
        if !reach.add_to(&mut part, &binding.place.namespace) {
            return None;
        }
    }
    Some(part.simplified())
}

/// What the rules of a role reach of the objects that are asked for, wherever it is bound.
enum Reach {
    /// All of them.
    Whole,
    /// Those of these names, if any.
    Named(BTreeSet<Arc<str>>),
}

impl Reach {
    fn from_rules(rules: &Rules, asked: &ResourceAttributes<'_>, marks: Marks) -> Self {
        let mut named = BTreeSet::new();
        for rule in rules.candidates(marks).filter(|rule| rule.covers(asked)) {
            if rule.resource_names().len() == 0 {
                return Self::Whole;
            }
            named.extend(rule.resource_names().map(Arc::from));
        }
        Self::Named(named)
    }

    /// Adds it, as a binding in a namespace gives it, or one that counts everywhere; not where that is everything.
    fn add_to(&self, part: &mut Part, namespace: &Arc<str>) -> bool {
        match (self, namespace.is_empty()) {
            (Self::Whole, true) => return false,
            (Self::Whole, false) => drop(part.namespaces.insert(Arc::clone(namespace))),
            (Self::Named(names), _) if names.is_empty() => {}
            (Self::Named(names), true) => part.names.extend(names.iter().cloned()),
            (Self::Named(names), false) => {
                part.names_within.entry(Arc::clone(namespace)).or_default().extend(names.iter().cloned());
            }
        }
        true
    }
}
