//! Acceptance of the hub's objects, one by one. Without I/O.
//!
//! A refused object keeps its last accepted generation in force. Objects conflict by name, index, host or resource. An
//! unchanged object wins a conflict, then the object that was accepted first, then the older object, then the order of
//! names.

mod candidate;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use tributary_apimachinery::Object;
use tributary_cluster_sources::{CLUSTER_INDEX, KarmadaRegistry, SourceReader};
use tributary_crds::denied_users::denied_users_of;
use tributary_crds::{
    ClusterSource, ConfigurationObjects, MergedEndpoint, ResourceRegistry, ValidationProblem, decode_hub_object,
    hub_problems, registry_conflict,
};
use tributary_sources::{ClusterSpec, LoadedConfiguration, known_clusters};

use crate::disappearance::{DisappearanceGuard, Disappeared};
use crate::in_force::{InForce, MemberInForce, ObjectInForce, SourceReading, conflict_order};
use crate::members::{Claims, HubRules, ItemReference, JudgedMember, describe, judge_members, read_document};
use crate::other_sources::OtherSources;
use crate::placement_decisions::resolve_decisions;
use crate::source_items::{ListedSource, add_item_verdicts, describe_item, judge_items};
use crate::verdict::{check_problems, shorten};
use crate::{ConditionState, ConditionStatus, HubKind, HubSnapshot, ItemVerdict, ObjectReference, Verdict};
use candidate::CandidateConfiguration;
pub use candidate::ConfigurationCheck;

/// The result of an acceptance: the configuration of all sources, and the verdicts.
pub struct Acceptance {
    /// The configuration of all sources.
    pub configuration: LoadedConfiguration,
    /// The users that objects of the hub deny.
    pub denied: BTreeSet<String>,
    /// The verdict on each object of the hub.
    pub verdicts: Arc<[Verdict]>,
    /// Settings of foreign objects that have no effect. The objects themselves are not changed.
    pub problems: Vec<String>,
    /// Whether the objects in force have changed.
    pub is_changed: bool,
    /// Time at which the acceptance must run again even if the hub does not change, to decide about absent objects.
    /// `None` if no decision is open.
    pub decides_at: Option<Instant>,
}

/// The hub's lists. `may_remove` tells whether objects in force that the lists lack are removed.
struct Listed<'a> {
    snapshot: &'a HubSnapshot,
    may_remove: bool,
}

impl<'a> Listed<'a> {
    /// Asks the guard whether objects that the lists lack may be removed.
    fn new(snapshot: &'a HubSnapshot, in_force: &InForce, guard: &mut DisappearanceGuard) -> Self {
        let denied_users = disappeared(snapshot, HubKind::DeniedUsers, &in_force.denied_users);
        let (mut members, mut is_current) = (vec![disappeared_members(snapshot, in_force)], snapshot.is_current);
        for (source, listed) in &snapshot.sources {
            let items = disappeared_items(source, listed, in_force);
            members.push(items);
            is_current &= items.gone == 0 || listed.is_current;
        }
        members.push(disappeared_with_all_sources(snapshot, in_force));
        let was_guarded = guard.decides_at().is_some();
        let may_remove = guard.may_remove(&members, denied_users, is_current, Instant::now());
        if !may_remove && !was_guarded {
            tracing::warn!(
                members = members.iter().map(|list| list.gone).sum::<usize>(),
                denied_users = denied_users.gone,
                "most members or all DeniedUsers have disappeared from the hub; no object is removed until the hub has \
                 confirmed its lists for a minute"
            );
        }
        Self { snapshot, may_remove }
    }

    /// Returns the objects in force that stay although the hub does not list them: the hub has not listed their
    /// collection, or absent objects may not be removed yet.
    fn retained<'b, T>(&self, kind: HubKind, in_force: &'b BTreeMap<String, T>) -> Vec<&'b T> {
        match self.snapshot.objects(kind) {
            None => in_force.values().collect(),
            Some(_) if self.may_remove => Vec::new(),
            Some(_) => self.snapshot.absent(kind, in_force.keys()).into_iter().map(|name| &in_force[name]).collect(),
        }
    }
}

/// Counts the objects in force that the hub no longer lists.
fn disappeared<T>(snapshot: &HubSnapshot, kind: HubKind, in_force: &BTreeMap<String, T>) -> Disappeared {
    Disappeared { gone: snapshot.absent(kind, in_force.keys()).len(), in_force: in_force.len() }
}

/// Counts the UpstreamClusters in force that the hub no longer lists.
fn disappeared_members(snapshot: &HubSnapshot, in_force: &InForce) -> Disappeared {
    let own = in_force.members.iter().filter(|(_, member)| member.item.is_none()).map(|(name, _)| name);
    let gone = snapshot.absent(HubKind::UpstreamCluster, own.clone()).len();
    Disappeared { gone, in_force: own.count() }
}

/// Counts the members of a source that the source no longer lists.
fn disappeared_items(source: &str, listed: &ListedSource, in_force: &InForce) -> Disappeared {
    let uids: HashSet<&str> = listed.items.iter().map(|item| item.uid()).collect();
    let own = in_force.members.values().filter(|member| member.source() == Some(source));
    let gone = own.clone().filter(|member| !uids.contains(member.object.uid.as_str())).count();
    Disappeared { gone, in_force: own.count() }
}

/// Counts the members that would leave because the hub lists no ClusterSource any more. A single deletion among several
/// ClusterSources counts at once.
fn disappeared_with_all_sources(snapshot: &HubSnapshot, in_force: &InForce) -> Disappeared {
    let of_hub = in_force.sources.iter().filter(|(_, source)| source.object.uid != FILE_UID);
    let sources: Vec<&String> = of_hub.map(|(name, _)| name).collect();
    let absent = snapshot.absent(HubKind::ClusterSource, sources.iter().copied());
    let is_of_hub = |member: &&Arc<MemberInForce>| {
        member.source().is_some_and(|source| sources.iter().any(|name| name.as_str() == source))
    };
    let own = in_force.members.values().filter(is_of_hub);
    let gone = if !absent.is_empty() && absent.len() == sources.len() { own.clone().count() } else { 0 };
    Disappeared { gone, in_force: own.count() }
}

/// Accepts the objects of a snapshot, and changes `in_force` accordingly. Collections that the hub has not listed stay
/// as they are.
pub(crate) async fn accept(
    in_force: &mut InForce,
    guard: &mut DisappearanceGuard,
    snapshot: &HubSnapshot,
    others: &OtherSources<'_>,
    rules: &HubRules,
    check: ConfigurationCheck<'_>,
) -> Acceptance {
    let before = in_force.without_readings();
    let listed = Listed::new(snapshot, in_force, guard);
    let mut verdicts = Vec::new();
    accept_sources(in_force, &listed, &others.configuration.objects.sources, rules, &mut verdicts);
    let mut members = judge_and_order_members(in_force, &listed, others, rules).await;
    resolve_conflicts_of_members(&mut members, Claims::new(others, rules));
    let mut candidate = CandidateConfiguration::new(others.configuration, check);
    read_karmada_registries(in_force, snapshot);
    candidate.add_karmada_registries(in_force.karmada_registries.values().flatten());
    accept_denied_users(in_force, &listed, &mut verdicts);
    // Computed only if the hub has registries, because it takes milliseconds for a thousand members.
    let known = LazyCell::new(|| known_objects(others.configuration, &members));
    accept_registries(in_force, &listed, &mut candidate, &|registry| known.validate_registry(registry), &mut verdicts);
    resolve_decisions(in_force, &snapshot.decisions, &members, &mut candidate.registries, &mut verdicts);
    accept_merged_endpoints(in_force, &listed, &mut candidate, &mut verdicts);
    let configuration = candidate.refuse_failing_members(&mut members);
    let needs_index = candidate.needs_indexes();
    let items = record_members(in_force, members, needs_index, &mut verdicts);
    add_item_verdicts(in_force, &snapshot.sources, items, &mut verdicts);
    let denied = in_force.denied_users.values().flat_map(|object| object.value.iter().cloned()).collect();
    let is_changed = in_force.differs_from(&before);
    let problems = in_force.karmada_registries.values().flatten().flat_map(KarmadaRegistry::problems).collect();
    Acceptance {
        configuration,
        denied,
        verdicts: verdicts.into(),
        problems,
        is_changed,
        decides_at: guard.decides_at(),
    }
}

/// Reads Karmada's ResourceRegistries beside each source in force. An unreadable one is skipped, and those of a source
/// that is not listed stay.
fn read_karmada_registries(in_force: &mut InForce, snapshot: &HubSnapshot) {
    let InForce { karmada_registries, sources, .. } = in_force;
    karmada_registries.retain(|source, _| sources.contains_key(source));
    for (source, listed) in snapshot.sources.iter().filter(|(source, _)| sources.contains_key(*source)) {
        let Some(registries) = &listed.registries else { continue };
        let readable = registries.iter().filter_map(|object| {
            let read = KarmadaRegistry::read(object);
            read.inspect_err(|refusal| {
                tracing::warn!(source, problem = refusal.message, "a ResourceRegistry of Karmada is skipped")
            })
            .ok()
        });
        karmada_registries.insert(source.clone(), readable.collect());
    }
}

/// Judges each member alone, in the order in which conflicts are decided.
async fn judge_and_order_members(
    in_force: &mut InForce,
    listed: &Listed<'_>,
    others: &OtherSources<'_>,
    rules: &HubRules,
) -> Vec<JudgedMember> {
    describe_remembered(in_force, rules).await;
    let secrets = listed.snapshot.secrets.as_ref();
    let mut judged = match listed.snapshot.objects(HubKind::UpstreamCluster) {
        Some(objects) => judge_members(objects, secrets, &in_force.members, rules).await,
        None => Vec::new(),
    };
    let retained = listed.retained(HubKind::UpstreamCluster, &in_force.members).into_iter();
    judged.extend(retained.filter(|member| member.item.is_none()).cloned().map(JudgedMember::retain));
    judged.extend(judge_items(in_force, &listed.snapshot.sources, listed.may_remove, rules).await);
    for member in judged.iter_mut().filter(|member| member.draft.is_none()) {
        // The last accepted generation takes the place of a refused one, and keeps its index and hosts.
        member.draft.clone_from(&member.earlier);
    }
    judged.sort_by_cached_key(|member| {
        let order = member.earlier.as_ref().map(|earlier| earlier.order);
        (member.is_item(), conflict_order(member.is_unchanged(), order, &member.created, &member.object))
    });
    let names: BTreeSet<&str> = others.configuration.clusters.iter().map(|spec| spec.name.as_str()).collect();
    for member in &mut judged {
        // The name belongs to a cluster of another source, so the earlier generation of this member ends at once.
        member.earlier = member.earlier.take().filter(|earlier| !names.contains(&*earlier.object.name));
    }
    judged
}

/// Makes the descriptions of members that were read from the data directory.
async fn describe_remembered(in_force: &mut InForce, rules: &HubRules) {
    if in_force.members.values().all(|member| member.spec.is_some()) {
        return;
    }
    for member in Arc::make_mut(&mut in_force.members).values_mut().filter(|member| member.spec.is_none()) {
        // A flag that allowed the member's settings may be absent now.
        if let Err(state) = check_problems(hub_problems(&member.cluster, rules.insecure)) {
            tracing::warn!(cluster = member.object.name, problem = state.message, "the remembered member is not used");
            continue;
        }
        let described = match (&member.resolved, describe_item(member, rules).await) {
            (_, Some(described)) => described.map_err(|state| state.message),
            (Some(resolved), None) => describe(&member.cluster, resolved, rules).await,
            (None, None) => continue,
        };
        match described {
            Ok(spec) => Arc::make_mut(member).spec = Some(Arc::new(spec)),
            Err(problem) => {
                tracing::warn!(cluster = member.object.name, problem, "the remembered member cannot be used");
            }
        }
    }
}

/// Refuses members that conflict with an earlier member or with a different source.
fn resolve_conflicts_of_members(judged: &mut [JudgedMember], mut claims: Claims<'_>) {
    for member in judged {
        let Some(draft) = &member.draft else { continue };
        if let Err(state) = claims.claim(draft) {
            let earlier = member.refuse(state);
            member.draft = earlier.filter(|earlier| claims.claim(earlier).is_ok());
        }
    }
}

/// Records the members in force, and adds the verdicts on UpstreamClusters. Returns the verdicts on listed items by
/// source.
fn record_members(
    in_force: &mut InForce,
    judged: Vec<JudgedMember>,
    needs_index: bool,
    verdicts: &mut Vec<Verdict>,
) -> BTreeMap<String, Vec<ItemVerdict>> {
    let mut items: BTreeMap<String, Vec<ItemVerdict>> = BTreeMap::new();
    let (before, mut members) = (std::mem::take(&mut in_force.members), BTreeMap::new());
    for member in judged {
        let is_upstream_cluster = !member.is_item();
        let JudgedMember { object, item, draft, mut accepted, resolved_refs, .. } = member;
        if accepted.message.is_empty() {
            "The object is in force.".clone_into(&mut accepted.message);
        }
        if let Some(ItemReference { source, name }) = item {
            let index = draft.as_ref().and_then(|draft| draft.cluster.spec.index);
            if needs_index && index.is_none() && accepted.status == ConditionStatus::True {
                let message = format!("Give the annotation {CLUSTER_INDEX} a number that no cluster had.");
                accepted = ConditionState::fulfilled("IndexMissing", message);
            }
            let member = draft.as_ref().map(|draft| draft.object.name.clone());
            items.entry(source).or_default().push(ItemVerdict { name, member, accepted });
        } else if is_upstream_cluster {
            verdicts.push(Verdict {
                generation_in_force: draft.as_ref().map(|member| member.object.generation),
                accepted,
                resolved_refs,
                indexed: draft.as_ref().filter(|_| needs_index).map(|member| indexed(member.cluster.spec.index)),
                object,
                source: None,
            });
        }
        let Some(mut draft) = draft else { continue };
        let is_same =
            |earlier: &Arc<MemberInForce>| earlier.object.uid == draft.object.uid && earlier.source() == draft.source();
        if !before.get(&draft.object.name).is_some_and(is_same) {
            Arc::make_mut(&mut draft).order = in_force.reserve_order();
        }
        members.insert(draft.object.name.clone(), draft);
    }
    in_force.members = Arc::new(members);
    items
}

/// Returns the state of the condition `Indexed`. Replicas assign no index by themselves, because two replicas could
/// assign different indexes.
fn indexed(index: Option<u16>) -> ConditionState {
    match index {
        Some(_) => {
            ConditionState::fulfilled("Indexed", "Registries with itemResourceVersions: Integer have the member.")
        }
        None => ConditionState::failed(
            "IndexMissing",
            "Registries with itemResourceVersions: Integer omit the member. Give spec.index a number that no cluster had.",
        ),
    }
}

/// An object of the hub other than a member, with the verdict so far.
struct Judged<T> {
    object: ObjectReference,
    created: String,
    value: Result<T, ConditionState>,
    /// The last accepted generation of the same object.
    earlier: Option<ObjectInForce<T>>,
}

impl<T: Clone + PartialEq> Judged<T> {
    /// Decodes an object, with its last accepted generation.
    fn new(
        object: &Object,
        kind: HubKind,
        in_force: &BTreeMap<String, ObjectInForce<T>>,
        decode: impl Fn(Value) -> Result<T, ConditionState>,
    ) -> Self {
        let earlier = in_force.get(object.name()).filter(|earlier| earlier.object.uid == object.uid()).cloned();
        let (value, generation) = match read_document(object) {
            Ok((document, generation)) => (decode(document), generation),
            Err(state) => (Err(state), 0),
        };
        let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
        let created = object.creation_timestamp().to_owned();
        Self { object: ObjectReference { kind, name, uid, generation }, created, value, earlier }
    }

    /// Keeps an object that the hub does not list.
    fn retain(earlier: &ObjectInForce<T>) -> Self {
        let (object, value) = (earlier.object.clone(), Ok(earlier.value.clone()));
        Self { object, created: String::new(), value, earlier: Some(earlier.clone()) }
    }

    fn is_unchanged(&self) -> bool {
        self.value.as_ref().ok().zip(self.earlier.as_ref()).is_some_and(|(now, earlier)| *now == earlier.value)
    }
}

/// Decodes each object of a kind, in the order in which conflicts are decided.
fn judge_objects<T: Clone + PartialEq>(
    listed: &Listed<'_>,
    kind: HubKind,
    in_force: &BTreeMap<String, ObjectInForce<T>>,
    decode: impl Fn(Value) -> Result<T, ConditionState>,
) -> Vec<Judged<T>> {
    let objects = listed.snapshot.objects(kind).into_iter().flat_map(|objects| objects.iter());
    let mut judged: Vec<Judged<T>> = objects.map(|object| Judged::new(object, kind, in_force, &decode)).collect();
    judged.extend(listed.retained(kind, in_force).into_iter().map(Judged::retain));
    judged.sort_by_cached_key(|object| {
        let order = object.earlier.as_ref().map(|earlier| earlier.order);
        conflict_order(object.is_unchanged(), order, &object.created, &object.object)
    });
    judged
}

/// Accepts objects in order. `check` returns the state of `ResolvedRefs`, or, as an error, the reason why a value
/// conflicts with the values accepted so far.
fn accept_in_order<T: Clone + PartialEq>(
    judged: Vec<Judged<T>>,
    in_force: &mut InForce,
    verdicts: &mut Vec<Verdict>,
    mut check: impl FnMut(&T) -> Result<Option<ConditionState>, ConditionState>,
) -> BTreeMap<String, ObjectInForce<T>> {
    let mut accepted = BTreeMap::new();
    for Judged { object, value, earlier, .. } in judged {
        let checked = value.and_then(|value| check(&value).map(|resolved_refs| (value, resolved_refs)));
        let mut resolved_refs = None;
        let (state, kept) = match checked {
            Ok((value, refs)) => {
                resolved_refs = refs;
                let state = ConditionState::fulfilled("Accepted", "The object is in force.");
                let order = earlier.map_or_else(|| in_force.reserve_order(), |earlier| earlier.order);
                (state, Some(ObjectInForce { object: object.clone(), order, value }))
            }
            Err(state) => (state, earlier.filter(|earlier| check(&earlier.value).is_ok())),
        };
        verdicts.push(Verdict {
            generation_in_force: kept.as_ref().map(|kept| kept.object.generation),
            accepted: state,
            resolved_refs,
            indexed: None,
            object,
            source: None,
        });
        accepted.extend(kept.map(|kept| (kept.object.name.clone(), kept)));
    }
    accepted
}

fn decode_object<T: DeserializeOwned>(document: Value, kind: HubKind) -> Result<T, ConditionState> {
    decode_hub_object(document, kind.as_str()).map_err(|error| ConditionState::invalid(error.to_string()))
}

/// Returns the clusters of all sources, for the validation of registries.
fn known_objects(base: &LoadedConfiguration, members: &[JudgedMember]) -> ConfigurationObjects {
    let of_members = members.iter().filter_map(|member| member.draft.as_ref()?.spec.as_ref());
    let specs: Vec<Arc<ClusterSpec>> = base.clusters.iter().chain(of_members).cloned().collect();
    ConfigurationObjects { clusters: known_clusters(&specs), ..ConfigurationObjects::default() }
}

fn accept_registries(
    in_force: &mut InForce,
    listed: &Listed<'_>,
    candidate: &mut CandidateConfiguration<'_>,
    validate: &dyn Fn(&ResourceRegistry) -> Vec<ValidationProblem>,
    verdicts: &mut Vec<Verdict>,
) {
    let kind = HubKind::ResourceRegistry;
    let decode = |document| -> Result<ResourceRegistry, ConditionState> {
        let mut registry: ResourceRegistry = decode_object(document, kind)?;
        registry.metadata.name = std::mem::take(&mut registry.metadata).name;
        registry.status = None;
        Ok(registry)
    };
    let judged = judge_objects(listed, kind, &in_force.registries, decode);
    let accepted = accept_in_order(judged, in_force, verdicts, |registry| {
        if candidate.registries.iter().any(|other| other.metadata.name == registry.metadata.name) {
            let message =
                "A file has a ResourceRegistry of this name, and files have priority over the hub; rename it.";
            return Err(ConditionState::failed("NameConflict", message));
        }
        let (absent, own): (Vec<_>, Vec<_>) = validate(registry).into_iter().partition(concerns_clusters);
        check_problems(own)?;
        if let Some(conflict) = candidate.registries.iter().find_map(|other| registry_conflict(registry, other)) {
            return Err(ConditionState::failed("ResourceConflict", shorten(conflict)));
        }
        candidate.registries.push(registry.clone());
        if let Err(state) = candidate.check_without_members() {
            candidate.registries.pop();
            return Err(state);
        }
        let absent = check_problems(absent).err();
        Ok(absent.map(|state| ConditionState { reason: "ClusterNotFound".to_owned(), ..state }))
    });
    in_force.registries = accepted;
}

/// Returns whether a problem concerns the clusters that a registry names, which may appear later.
fn concerns_clusters(problem: &ValidationProblem) -> bool {
    problem.field.starts_with("spec.clusters") || problem.field == "spec.placement"
}

fn accept_merged_endpoints(
    in_force: &mut InForce,
    listed: &Listed<'_>,
    candidate: &mut CandidateConfiguration<'_>,
    verdicts: &mut Vec<Verdict>,
) {
    let kind = HubKind::MergedEndpoint;
    let decode = |document| -> Result<MergedEndpoint, ConditionState> {
        let mut endpoint: MergedEndpoint = decode_object(document, kind)?;
        endpoint.metadata.name = std::mem::take(&mut endpoint.metadata).name;
        endpoint.status = None;
        Ok(endpoint)
    };
    let judged = judge_objects(listed, kind, &in_force.merged_endpoints, decode);
    let accepted = accept_in_order(judged, in_force, verdicts, |endpoint| {
        if !candidate.merged_endpoints.is_empty() {
            let message = "A file has a MergedEndpoint, and files have priority over the hub; remove one of them.";
            return Err(ConditionState::failed("NameConflict", message));
        }
        let merged_endpoints = vec![endpoint.clone()];
        let alone = ConfigurationObjects { merged_endpoints, ..ConfigurationObjects::default() };
        check_problems(alone.validate())?;
        candidate.merged_endpoints.push(endpoint.clone());
        let checked = candidate.check_without_members();
        if checked.is_err() {
            candidate.merged_endpoints.clear();
        }
        checked.map(|()| None)
    });
    in_force.merged_endpoints = accepted;
}

fn accept_denied_users(in_force: &mut InForce, listed: &Listed<'_>, verdicts: &mut Vec<Verdict>) {
    let decode = |document| denied_users_of(&document).map_err(|error| ConditionState::invalid(error.to_string()));
    let judged = judge_objects(listed, HubKind::DeniedUsers, &in_force.denied_users, decode);
    in_force.denied_users = accept_in_order(judged, in_force, verdicts, |_| Ok(None));
}

/// The uid of a ClusterSource of a file.
const FILE_UID: &str = "file";

/// Puts the ClusterSources of files before those of the hub.
fn with_sources_of_files(
    of_files: &[ClusterSource],
    in_force: &BTreeMap<String, ObjectInForce<ClusterSource>>,
    of_hub: Vec<Judged<ClusterSource>>,
) -> Vec<Judged<ClusterSource>> {
    let judge = |source: &ClusterSource| {
        let name = source.metadata.name.clone().unwrap_or_default();
        let earlier = in_force.get(&name).filter(|earlier| earlier.object.uid == FILE_UID).cloned();
        let object = ObjectReference { kind: HubKind::ClusterSource, name, uid: FILE_UID.to_owned(), generation: 0 };
        Judged { object, created: String::new(), value: Ok(source.clone()), earlier }
    };
    let of_files: Vec<Judged<ClusterSource>> = of_files.iter().map(judge).collect();
    let names: BTreeSet<String> = of_files.iter().map(|judged| judged.object.name.clone()).collect();
    let of_hub = of_hub.into_iter().filter(|judged| judged.object.uid != FILE_UID).map(|judged| {
        if !names.contains(&judged.object.name) {
            return judged;
        }
        let message = "A file has a ClusterSource of this name, and files have priority over the hub; rename it.";
        Judged { value: Err(ConditionState::failed("NameConflict", message)), earlier: None, ..judged }
    });
    of_files.into_iter().chain(of_hub).collect()
}

/// Accepts the ClusterSources, and keeps the readings of unchanged sources.
fn accept_sources(
    in_force: &mut InForce,
    listed: &Listed<'_>,
    of_files: &[ClusterSource],
    rules: &HubRules,
    verdicts: &mut Vec<Verdict>,
) {
    let kind = HubKind::ClusterSource;
    let decode = |document| -> Result<ClusterSource, ConditionState> {
        let mut source: ClusterSource = decode_object(document, kind)?;
        source.metadata.name = std::mem::take(&mut source.metadata).name;
        source.status = None;
        Ok(source)
    };
    let judged = judge_objects(listed, kind, &in_force.sources, decode);
    let judged = with_sources_of_files(of_files, &in_force.sources, judged);
    let mut before = std::mem::take(&mut in_force.readings);
    let mut new: BTreeMap<String, SourceReading> = BTreeMap::new();
    let accepted = accept_in_order(judged, in_force, verdicts, |source| {
        let name = source.metadata.name.clone().unwrap_or_default();
        if before.get(&name).is_none_or(|known| known.source != *source) {
            let reader = SourceReader::new(source, rules.insecure, rules.access_providers.as_ref())
                .map_err(|refusal| ConditionState::failed(refusal.reason, shorten(refusal.message)))?;
            new.insert(name, SourceReading::new(source.clone(), reader));
        }
        Ok(None)
    });
    for name in accepted.keys() {
        let reading = new.remove(name).or_else(|| before.remove(name));
        in_force.readings.extend(reading.map(|reading| (name.clone(), reading)));
    }
    in_force.sources = accepted;
}

#[cfg(test)]
mod tests;
