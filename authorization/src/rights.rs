//! An immutable snapshot of the grants of every subject in every cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use imbl::HashMap as SharedMap;
use tributary_apimachinery::{AUTHENTICATED_GROUP, ClusterName, MASTERS_GROUP, UNAUTHENTICATED_GROUP, UserInfo};

use crate::allowed_by::{AllowedBy, UserBinding, role_not_found};
use crate::attributes::{Attributes, ResourceAttributes};
use crate::object::{Binding, Subject};
use crate::rule::{BloomFilter, CompiledRule, Rules};
use crate::share::{Grant, Share};
use crate::shared_parts::{SHARED_FROM, SharedParts};
use crate::visible::{Part, Visible};

/// Maximum number of recorded losses in a cluster. A loss is a subject that lost its last grant; its record contains
/// the generation of the loss. A subject with a name of 256 bytes or more has the weight of several losses. Losses are
/// frequent, because bindings are created and deleted together with namespaces. Above the maximum, all records of the
/// cluster are deleted, and the generation of every user's rights in the cluster increases.
const RECORDED_LOSSES_MAX: usize = 1024;

/// The index of a cluster in the tables of subjects. The index of a removed cluster is reused.
pub(crate) type ClusterIndex = usize;

/// A snapshot of the grants of all subjects in many clusters. A clone is cheap and immutable: the maps are persistent
/// (copy-on-write), so readers never wait for a change.
#[derive(Clone, Debug, Default)]
pub struct FleetRights {
    clusters: SharedMap<ClusterName, ServedCluster>,
    /// One more than the largest index that was ever assigned.
    next_index: ClusterIndex,
    /// The number of subjects whose grants exceed the limit, by cluster. Clusters without such a subject have no entry.
    over_grant_limit: BTreeMap<ClusterIndex, usize>,
    /// The number of subjects with a binding to a role that does not exist, by cluster. Clusters without such a subject
    /// have no entry.
    without_role: BTreeMap<ClusterIndex, usize>,
    /// The clusters whose bindings name too many subjects. No subject has grants in these clusters.
    unknown: BTreeSet<ClusterIndex>,
    users: SharedMap<Arc<str>, Arc<Shares>>,
    groups: SharedMap<Arc<str>, Arc<Shares>>,
    /// The generation number of the rights: increases with each change of any user's rights.
    generation: u64,
    /// Whether any rights have changed during the current generation.
    touched: bool,
    /// The generation in which a cluster was last added or removed.
    clusters_changed: u64,
    /// The number of subjects that lost their last grant, by cluster, up to [`RECORDED_LOSSES_MAX`].
    recorded_losses: BTreeMap<ClusterIndex, usize>,
    /// The generation in which the rights of all users in a cluster were last treated as changed: the cluster's records
    /// of losses were deleted, or its rights became known or unknown.
    all_changed_at: BTreeMap<ClusterIndex, u64>,
    /// The visible objects of users with large grants, shared between all users with equal grants.
    parts: Arc<SharedParts>,
}

#[derive(Clone, Copy, Debug)]
struct ServedCluster {
    index: ClusterIndex,
    /// The generation in which the cluster was added to the fleet.
    since: u64,
}

/// The grants of a subject in each cluster, ordered by the index of the cluster.
#[derive(Clone, Debug, Default)]
struct Shares {
    by_cluster: Vec<ClusterShare>,
    changed: u64,
}

#[derive(Clone, Debug)]
struct ClusterShare {
    index: ClusterIndex,
    /// The grants; `None` if the subject has lost its grants. The entry stays until the record of the loss is deleted.
    share: Option<Arc<Share>>,
    changed: u64,
}

/// The clusters that allow a request.
#[derive(Debug)]
pub struct AllowingClusters<'a> {
    rights: &'a FleetRights,
    /// Whether each cluster allows the request, by the cluster's index.
    indices: Vec<bool>,
}

impl AllowingClusters<'_> {
    /// Returns whether the cluster allows the request. A cluster that is not in the snapshot allows nothing.
    pub fn contains(&self, cluster: &ClusterName) -> bool {
        self.rights.index(cluster).is_some_and(|index| self.indices[index])
    }
}

/// The user or group of a subject, as a key for lookups. A ServiceAccount is a user.
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

    pub(crate) fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => **name == *user.username,
            Self::Group(name) => user.groups.iter().any(|group| **group == **name),
        }
    }
}

impl Shares {
    fn find(&self, index: ClusterIndex) -> Result<usize, usize> {
        self.by_cluster.binary_search_by_key(&index, |own| own.index)
    }

    fn get(&self, index: ClusterIndex) -> Option<&Arc<Share>> {
        self.by_cluster[self.find(index).ok()?].share.as_ref()
    }

    /// Returns the generation in which the grants in a cluster last changed; 0 if no change is recorded.
    fn changed_in(&self, index: ClusterIndex) -> u64 {
        self.find(index).map_or(0, |at| self.by_cluster[at].changed)
    }

    /// Replaces the grants in a cluster. `now` is the current generation.
    fn set(&mut self, index: ClusterIndex, share: Option<Arc<Share>>, now: u64) {
        let own = ClusterShare { index, share, changed: now };
        match self.find(index) {
            Ok(at) => self.by_cluster[at] = own,
            Err(at) => {
                if self.by_cluster.is_empty() {
                    // A subject that a hostile cluster invents usually exists only in that cluster, so its list needs
                    // space for one entry only.
                    self.by_cluster.reserve_exact(1);
                }
                self.by_cluster.insert(at, own);
            }
        }
        self.changed = now;
    }

    /// Returns whether the subject has a recorded loss of its grants in a cluster.
    fn is_remembered(&self, index: ClusterIndex) -> bool {
        self.find(index).is_ok_and(|at| self.by_cluster[at].share.is_none())
    }
}

/// Deletes the records of losses of all subjects in a cluster.
fn forget(map: &mut SharedMap<Arc<str>, Arc<Shares>>, index: ClusterIndex) {
    let remembering = map.iter().filter(|(_, shares)| shares.is_remembered(index));
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

/// The methods of this block change the rights. The [`Fleet`](crate::Fleet) calls them.
impl FleetRights {
    pub(crate) fn index(&self, cluster: &ClusterName) -> Option<ClusterIndex> {
        self.clusters.get(cluster).map(|joined| joined.index)
    }

    /// Assigns an index to a new cluster, in which no subject has grants yet.
    pub(crate) fn join(&mut self, cluster: &ClusterName, index: ClusterIndex) {
        self.clusters_changed = self.mark_changed();
        self.clusters.insert(cluster.clone(), ServedCluster { index, since: self.clusters_changed });
        self.next_index = self.next_index.max(index + 1);
    }

    pub(crate) fn leave(&mut self, cluster: &ClusterName) -> Option<ClusterIndex> {
        let ServedCluster { index, .. } = self.clusters.remove(cluster)?;
        self.clusters_changed = self.mark_changed();
        Some(index)
    }

    /// Returns the grants of a subject in a cluster.
    pub(crate) fn share(&self, index: ClusterIndex, principal: &Principal) -> Option<&Arc<Share>> {
        let (map, name) = match principal {
            Principal::User(name) => (&self.users, name),
            Principal::Group(name) => (&self.groups, name),
        };
        map.get(name)?.get(index)
    }

    /// Replaces or removes (`None`) the grants of a subject in a cluster.
    pub(crate) fn set_share(&mut self, index: ClusterIndex, principal: &Principal, share: Option<Arc<Share>>) {
        let before = self.share(index, principal);
        if before.map(Arc::as_ptr) == share.as_ref().map(Arc::as_ptr) {
            return;
        }
        let (before, after) = (before.map(|share| &**share), share.as_deref());
        let [over_grant_limit, without_role] = [Share::exceeds_limit, Share::lacks_role]
            .map(|is_so: fn(&Share) -> bool| [before, after].map(|share| share.is_some_and(is_so)));
        count(&mut self.over_grant_limit, index, over_grant_limit);
        count(&mut self.without_role, index, without_role);
        let now = self.mark_changed();
        let (map, name) = match principal {
            Principal::User(name) => (&mut self.users, name),
            Principal::Group(name) => (&mut self.groups, name),
        };
        if share.is_none() {
            *self.recorded_losses.entry(index).or_default() += 1 + name.len() / 256;
        }
        Arc::make_mut(map.entry(Arc::clone(name)).or_default()).set(index, share, now);
    }

    /// Records whether the bindings of a cluster name too many subjects. A change of this value increases the
    /// generation of every user's rights in the cluster.
    pub(crate) fn set_unknown(&mut self, index: ClusterIndex, is_unknown: bool) {
        let is_news = if is_unknown { self.unknown.insert(index) } else { self.unknown.remove(&index) };
        if is_news {
            let now = self.mark_changed();
            self.all_changed_at.insert(index, now);
        }
    }

    /// Begins a new generation if any rights changed, and returns whether a new generation began.
    pub(crate) fn end_generation(&mut self) -> bool {
        let full: Vec<_> = self
            .recorded_losses
            .iter()
            .filter(|(_, recorded_losses)| **recorded_losses > RECORDED_LOSSES_MAX)
            .map(|(index, _)| *index)
            .collect();
        for index in full {
            self.recorded_losses.remove(&index);
            let now = self.mark_changed();
            self.all_changed_at.insert(index, now);
            forget(&mut self.users, index);
            forget(&mut self.groups, index);
        }
        let touched = std::mem::take(&mut self.touched);
        self.generation += u64::from(touched);
        touched
    }

    /// Records a change of rights and returns the generation number of the change.
    fn mark_changed(&mut self) -> u64 {
        self.touched = true;
        self.generation + 1
    }
}

/// Updates the number of subjects with a property in a cluster, after a change of one subject. `before` and `now` are
/// whether this subject has the property before and after the change.
fn count(counts: &mut BTreeMap<ClusterIndex, usize>, index: ClusterIndex, [before, now]: [bool; 2]) {
    let subjects = counts.remove(&index).unwrap_or_default() + usize::from(now) - usize::from(before);
    if subjects > 0 {
        counts.insert(index, subjects);
    }
}

/// The methods of this block read the rights. A cluster that is not in the snapshot allows nothing to any user.
impl FleetRights {
    /// Returns whether the snapshot contains the cluster.
    pub fn knows(&self, cluster: &ClusterName) -> bool {
        self.clusters.contains_key(cluster)
    }

    /// Returns whether a subject of the cluster has grants beyond [`GRANTED_WORDS_MAX`](crate::GRANTED_WORDS_MAX).
    pub fn exceeds_grant_limit(&self, cluster: &ClusterName) -> bool {
        self.index(cluster).is_some_and(|index| self.over_grant_limit.contains_key(&index))
    }

    /// Returns whether the bindings of a cluster name more than [`NAMED_SUBJECTS_MAX`](crate::NAMED_SUBJECTS_MAX)
    /// subjects. The rights in such a cluster are unknown, and the snapshot allows nothing in it.
    pub fn exceeds_subject_limit(&self, cluster: &ClusterName) -> bool {
        self.index(cluster).is_some_and(|index| self.unknown.contains(&index))
    }

    /// Returns whether the rights of a user in a cluster are unknown. The rights are unknown if the user or a group of
    /// the user has too many grants, or if the cluster's bindings name too many subjects. Unknown grants allow nothing.
    /// Costs a lookup per group if the cluster has a subject with too many grants, and nothing otherwise.
    pub fn has_unknown_rights(&self, cluster: &ClusterName, user: &UserInfo) -> bool {
        let Some(index) = self.index(cluster) else { return false };
        if self.unknown.contains(&index) {
            // The group `system:masters` has all rights without a binding.
            return !is_master(user);
        }
        self.over_grant_limit.contains_key(&index)
            && self.shares_of(user).filter_map(|shares| shares.get(index)).any(|share| share.exceeds_limit())
    }

    /// Returns the generation number of the snapshot. It increases with each change of any user's rights in any
    /// cluster.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the generation in which the rights of this user in any cluster last changed or may have changed. The
    /// answers of all queries for the user stay the same within a generation. The generation never decreases. Costs a
    /// lookup per group.
    pub fn generation_of(&self, user: &UserInfo) -> u64 {
        let all_changed_at = self.all_changed_at.values().copied().max().unwrap_or_default();
        let rest = self.clusters_changed.max(all_changed_at);
        self.shares_of(user).map(|shares| shares.changed).fold(rest, u64::max)
    }

    /// Returns the generation in which the rights of this user in one cluster last changed or may have changed, as in
    /// [`Self::generation_of`].
    pub fn generation_in(&self, cluster: &ClusterName, user: &UserInfo) -> u64 {
        let Some(ServedCluster { index, since }) = self.clusters.get(cluster) else { return self.clusters_changed };
        let rest = self.all_changed_at.get(index).copied().unwrap_or_default().max(*since);
        self.shares_of(user).map(|shares| shares.changed_in(*index)).fold(rest, u64::max)
    }

    /// Returns whether a cluster allows a request. Costs a lookup per group, plus the rules that may match.
    pub fn allows(&self, cluster: &ClusterName, user: &UserInfo, attributes: &Attributes<'_>) -> bool {
        let Some(index) = self.index(cluster) else { return false };
        let request_filter = BloomFilter::from_request(attributes);
        let mut shares = self.shares_of(user).filter_map(|shares| shares.get(index));
        is_master(user) || shares.any(|share| share.allows(attributes, request_filter))
    }

    /// Returns the clusters that allow at least one of these requests. Each decision equals that of [`Self::allows`].
    ///
    /// Cost: one lookup for each group. All clusters in which a subject has equal grants cost together as much as one
    /// cluster.
    pub fn allowing(&self, user: &UserInfo, requests: &[Attributes<'_>]) -> AllowingClusters<'_> {
        let marked: Vec<_> =
            requests.iter().map(|attributes| (attributes, BloomFilter::from_request(attributes))).collect();
        let mut indices = vec![is_master(user) && !requests.is_empty(); self.next_index];
        let mut decisions: HashMap<*const Share, bool> = HashMap::new();
        for ClusterShare { index, share, .. } in self.shares_of(user).flat_map(|shares| &shares.by_cluster) {
            if let Some(share) = share
                && !indices[*index]
            {
                let allows = || marked.iter().any(|(attributes, bloom_filter)| share.allows(attributes, *bloom_filter));
                indices[*index] = *decisions.entry(Arc::as_ptr(share)).or_insert_with(allows);
            }
        }
        AllowingClusters { rights: self, indices }
    }

    /// Returns the namespaces and names in which a cluster allows a verb (`list`, `watch`, `get`, …) on a resource.
    /// Costs as much as [`Self::allows`] for each namespace in which the user or a group of the user has a RoleBinding.
    pub fn rights(&self, cluster: &ClusterName, user: &UserInfo, verb: &str, group: &str, resource: &str) -> Visible {
        let Some(index) = self.index(cluster) else { return Visible::nothing() };
        if is_master(user) {
            return Visible::Whole;
        }
        let shares: Vec<_> = self.shares_of(user).filter_map(|shares| shares.get(index)).collect();
        let request = ResourceAttributes { verb, group, resource, ..ResourceAttributes::default() };
        let part = match shares.iter().map(|share| share.entry_count()).sum::<usize>() {
            0..SHARED_FROM => part_of(&shares, &request).map(Arc::new),
            _ => self.parts.get(&shares, [verb, group, resource], || part_of(&shares, &request)),
        };
        part.map_or(Visible::Whole, Visible::Part)
    }

    /// Returns all rules for a user in a namespace, including cluster-wide rules. The cluster itself lists these rules
    /// in a SelfSubjectRulesReview.
    pub fn rules<'a>(&'a self, cluster: &ClusterName, user: &'a UserInfo, namespace: &'a str) -> Vec<&'a CompiledRule> {
        let Some(index) = self.index(cluster) else { return Vec::new() };
        let shares = self.shares_of(user).filter_map(|shares| shares.get(index));
        shares.flat_map(|share| share.roles_within(namespace)).flat_map(Rules::iter).collect()
    }

    /// Returns whether a cluster grants rules to the user, or to a group of the user, in any namespace. Ignores grants
    /// to groups that exist in every cluster, such as `system:authenticated`: they also reach users that the cluster's
    /// administrator does not know. Costs a lookup per group.
    pub fn has_own_grants(&self, cluster: &ClusterName, user: &UserInfo) -> bool {
        let Some(index) = self.index(cluster) else { return false };
        let groups: Vec<_> =
            user.groups.iter().filter(|group| !COMMON_GROUPS.contains(&group.as_str())).cloned().collect();
        let own = &UserInfo { username: user.username.clone(), groups, ..UserInfo::default() };
        let mut shares = self.shares_of(own).filter_map(|shares| shares.get(index));
        is_master(user) || shares.any(|share| share.evaluated_grants().iter().any(|grant| grant.rules.is_some()))
    }

    /// Returns all reasons why a cluster allows a request, without duplicates and in a fixed order. The result is empty
    /// exactly if the request is denied. kube-apiserver reports only one reason. Intended for messages to people: the
    /// call iterates over all grants of the user in the namespace.
    pub fn allowed_by<'a>(
        &'a self,
        cluster: &ClusterName,
        user: &UserInfo,
        attributes: &Attributes<'_>,
    ) -> Vec<AllowedBy<'a>> {
        let Some(index) = self.index(cluster) else { return Vec::new() };
        let request_filter = BloomFilter::from_request(attributes);
        let (mut bindings, mut allowing) = (BTreeMap::new(), HashMap::new());
        for share in self.shares_of(user).filter_map(|shares| shares.get(index)) {
            for Grant { binding, rules } in share.within(attributes.namespace()) {
                let Some(rules) = rules else { continue };
                if *allowing.entry(Arc::as_ptr(rules)).or_insert_with(|| rules.allow(attributes, request_filter)) {
                    bindings.insert(&binding.key, &**binding);
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

    /// Returns the user's bindings to roles that do not exist, in all namespaces, without duplicates and in a fixed
    /// order. Intended for messages to people: the call iterates over all grants of the user.
    pub fn without_role<'a>(&'a self, cluster: &ClusterName, user: &UserInfo) -> Vec<UserBinding<'a>> {
        let mut bindings = BTreeMap::new();
        for share in self.shares_without_role(cluster, user) {
            let without = share.evaluated_grants().iter().filter(|grant| grant.rules.is_none());
            bindings.extend(without.map(|grant| (&grant.binding.key, &*grant.binding)));
        }
        let of_user = |binding: &'a Binding| {
            let subject = binding.subjects.iter().find(|subject| Principal::from_subject(subject).is(user))?;
            Some(UserBinding { binding, subject })
        };
        bindings.into_values().filter_map(of_user).collect()
    }

    /// Returns kube-apiserver's messages about missing roles of the user's bindings in a namespace: one message per
    /// role, in the order of the bindings, and at most `most`. Iterates over these bindings, and allocates a string per
    /// message.
    pub fn roles_not_found(&self, cluster: &ClusterName, user: &UserInfo, namespace: &str, most: usize) -> Vec<String> {
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
        naming.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        naming.into_iter().map(role_not_found).collect()
    }

    /// Returns the grants of the user, and of each group of the user, in a cluster. Leaves out a user or group whose
    /// bindings all refer to existing roles.
    fn shares_without_role(&self, cluster: &ClusterName, user: &UserInfo) -> impl Iterator<Item = &Arc<Share>> {
        // Most clusters have no binding to a missing role, and then no subject is looked up.
        let index = self.index(cluster).filter(|index| self.without_role.contains_key(index));
        let of_cluster = move |index| self.shares_of(user).filter_map(move |shares| shares.get(index));
        index.into_iter().flat_map(of_cluster).filter(|share| share.lacks_role())
    }

    fn shares_of(&self, user: &UserInfo) -> impl Iterator<Item = &Shares> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.username.as_str()).into_iter().chain(groups).map(|shares| &**shares)
    }
}

/// Groups that authenticators add to users of every cluster.
const COMMON_GROUPS: [&str; 3] = [AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP, "system:serviceaccounts"];

fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == MASTERS_GROUP)
}

/// Returns the objects of a resource that these grants make visible; `None` for all objects.
fn part_of(shares: &[&Arc<Share>], request: &ResourceAttributes<'_>) -> Option<Part> {
    let bloom_filter = BloomFilter::from_request(&Attributes::Resource(*request));
    let (mut part, mut reaches) = (Part::default(), HashMap::new());
    for Grant { binding, rules } in shares.iter().flat_map(|share| share.evaluated_grants()) {
        let Some(rules) = rules.as_ref().filter(|rules| rules.may_match(bloom_filter)) else { continue };
        // Many bindings may refer to one role, so the rules of each role are evaluated only once.
        let reach = reaches
            .entry(Arc::as_ptr(rules))
            .or_insert_with(|| GrantedObjects::from_rules(rules, request, bloom_filter));
        if !reach.add_to(&mut part, &binding.key.namespace) {
            return None;
        }
    }
    Some(part.simplified())
}

/// The objects of a resource that the rules of a role allow, before a binding limits them to a namespace.
enum GrantedObjects {
    /// All objects of the resource.
    Whole,
    /// The objects with these names; no objects if the set is empty.
    Named(BTreeSet<Arc<str>>),
}

impl GrantedObjects {
    fn from_rules(rules: &Rules, request: &ResourceAttributes<'_>, bloom_filter: BloomFilter) -> Self {
        let mut named = BTreeSet::new();
        for rule in rules.candidates(bloom_filter).filter(|rule| rule.covers(request)) {
            if rule.resource_names().len() == 0 {
                return Self::Whole;
            }
            named.extend(rule.resource_names().map(Arc::from));
        }
        Self::Named(named)
    }

    /// Adds the objects that a binding in this namespace grants (empty for a ClusterRoleBinding). Returns `false`, and
    /// adds nothing, if the binding grants all objects.
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
