//! Acceptance of the hub's objects, one by one. Without I/O.
//!
//! A refused object keeps its last accepted generation in force. Objects conflict by name, index, host or resource. An
//! unchanged object wins a conflict, then the object that was accepted first, then the older object, then the order of
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tributary_apimachinery::Object;
use tributary_crds::denied_users::denied_users_of;
use tributary_crds::{
    ConfigurationObjects, MergedEndpoint, ResourceRegistry, Severity, ValidationProblem, decode_hub_object,
    registry_conflict,
};
use tributary_sources::{LoadedConfiguration, known_clusters};

use crate::disappearance::DisappearanceGuard;
use crate::in_force::{InForce, MemberInForce, ObjectInForce};
use crate::members::{Claims, HubRules, JudgedMember, describe, judge_members, read_document, shorten};
use crate::{ConditionState, HubKind, HubSnapshot, ObjectReference, Verdict};

/// The most members that the check of the whole configuration refuses one by one. If the whole configuration is still
/// refused, all changed members keep their earlier generation.
const REFUSED_BY_WHOLE_MAX: usize = 32;

/// Checks a whole configuration, for conflicts that concern several objects and the flags.
pub type WholeCheck<'a> = &'a dyn Fn(&LoadedConfiguration) -> Result<(), String>;

/// The result of an acceptance: the configuration of all sources, and the verdicts.
pub struct Acceptance {
    /// The configuration of all sources.
    pub configuration: LoadedConfiguration,
    /// The users that objects of the hub deny.
    pub denied: BTreeSet<String>,
    /// The verdict on each object of the hub.
    pub verdicts: Vec<Verdict>,
    /// Whether the objects in force have changed.
    pub is_changed: bool,
    /// Time of the next decision without a change of the hub.
    pub decides_at: Option<Instant>,
}

/// Accepts the objects of a snapshot, and changes `in_force` accordingly. Collections that the hub has not listed stay
/// as they are.
pub(crate) async fn accept(
    in_force: &mut InForce,
    guard: &mut DisappearanceGuard,
    snapshot: &HubSnapshot,
    base: LoadedConfiguration,
    rules: &HubRules,
    check: WholeCheck<'_>,
) -> Acceptance {
    let mut verdicts = Vec::new();
    let mut members = members(in_force, guard, snapshot, &base, rules).await;
    accept_denied_users(in_force, snapshot, &mut verdicts);
    let mut objects = base.objects.clone();
    let configured = settle_members(&mut members, &base, &rules.reserved_names);
    objects.clusters.extend(configured.iter().map(|member| member.cluster.clone()));
    let mut specs = base.clusters.clone();
    specs.extend(configured.iter().filter_map(|member| member.spec.as_deref().cloned()));
    accept_registries(in_force, snapshot, &mut objects, &specs, &mut verdicts);
    accept_merged_endpoints(in_force, snapshot, &mut objects, &mut verdicts);
    let whole =
        Whole { base: &base, registries: objects.registries, merged_endpoints: objects.merged_endpoints, check };
    let configuration = whole.settle(&mut members);
    record_members(in_force, members, &mut verdicts);
    let denied = in_force.denied_users.values().flat_map(|object| object.value.iter().cloned()).collect();
    Acceptance { configuration, denied, verdicts, is_changed: true, decides_at: guard.decides_at() }
}

/// Judges each member alone, in the order in which conflicts are decided.
async fn members(
    in_force: &mut InForce,
    guard: &mut DisappearanceGuard,
    snapshot: &HubSnapshot,
    base: &LoadedConfiguration,
    rules: &HubRules,
) -> Vec<JudgedMember> {
    describe_remembered(in_force, rules).await;
    let Some(listed) = snapshot.objects(HubKind::UpstreamCluster) else {
        return in_force.members.values().cloned().map(retain_member).collect();
    };
    let mut judged = judge_members(listed, snapshot.secrets.as_ref(), &in_force.members, rules).await;
    let is_listed: BTreeSet<String> = judged.iter().map(|member| member.object.name.clone()).collect();
    let gone: Vec<&MemberInForce> =
        in_force.members.iter().filter(|(name, _)| !is_listed.contains(*name)).map(|(_, member)| member).collect();
    if !guard.may_leave(gone.len(), in_force.members.len(), snapshot.is_current, Instant::now()) {
        tracing::warn!(
            members = gone.len(),
            "the hub no longer lists most of its members; they stay until the hub has confirmed this for a minute"
        );
        judged.extend(gone.into_iter().cloned().map(retain_member));
    }
    let has_priority =
        |member: &JudgedMember| base.clusters.iter().any(|spec| spec.name.as_str() == member.object.name);
    for member in judged.iter_mut().filter(|member| member.draft.is_none()) {
        // The last accepted generation takes the place of a refused one, and keeps its index and hosts.
        member.draft.clone_from(&member.earlier);
    }
    judged.sort_by_key(|member| {
        let order = member.earlier.as_ref().map_or(u64::MAX, |earlier| earlier.order);
        (!member.is_unchanged(), order, member.created.clone(), member.object.name.clone())
    });
    for member in judged.iter_mut().filter(|member| has_priority(member)) {
        // The other source takes the name at once.
        member.earlier = None;
    }
    judged
}

/// A member that is in force without a present object: the hub does not answer, or the member may not leave yet.
fn retain_member(member: MemberInForce) -> JudgedMember {
    JudgedMember {
        object: member.object.clone(),
        created: String::new(),
        draft: Some(member.clone()),
        earlier: Some(member),
        accepted: ConditionState::fulfilled("Accepted", ""),
        resolved_refs: None,
    }
}

/// Makes the descriptions of members that were read from the data directory.
async fn describe_remembered(in_force: &mut InForce, rules: &HubRules) {
    for member in in_force.members.values_mut().filter(|member| member.spec.is_none()) {
        let Some(resolved) = &member.resolved else { continue };
        match describe(&member.cluster, resolved, rules).await {
            Ok(spec) => member.spec = Some(Arc::new(spec)),
            Err(problem) => {
                tracing::warn!(cluster = member.object.name, problem, "the remembered member cannot be used");
            }
        }
    }
}

/// Settles conflicts between members and with other sources. Returns the members that are in force.
fn settle_members(
    judged: &mut [JudgedMember],
    base: &LoadedConfiguration,
    reserved_names: &[String],
) -> Vec<MemberInForce> {
    let mut claims = Claims::of_other_sources(base);
    claims.reserve_names(reserved_names);
    let mut settled = Vec::with_capacity(judged.len());
    for member in judged {
        let Some(draft) = &member.draft else { continue };
        if let Err(state) = claims.claim(draft) {
            let earlier = member.refuse(state);
            member.draft = earlier.filter(|earlier| claims.claim(earlier).is_ok());
        }
        settled.extend(member.draft.clone());
    }
    settled
}

/// The parts of the whole configuration that do not change while members are refused.
struct Whole<'a> {
    base: &'a LoadedConfiguration,
    registries: Vec<ResourceRegistry>,
    merged_endpoints: Vec<MergedEndpoint>,
    check: WholeCheck<'a>,
}

impl Whole<'_> {
    fn configuration<'a>(&self, members: impl Iterator<Item = &'a MemberInForce>) -> LoadedConfiguration {
        let mut objects = self.base.objects.clone();
        let mut clusters = self.base.clusters.clone();
        for member in members {
            let Some(spec) = &member.spec else { continue };
            objects.clusters.push(member.cluster.clone());
            clusters.push(spec.as_ref().clone());
        }
        objects.registries.clone_from(&self.registries);
        // A subset of the members may lack the member of a placement.
        for registry in &mut objects.registries {
            let is_known = |name: &String| clusters.iter().any(|spec| spec.name.as_str() == name);
            registry.spec.placement = registry.spec.placement.take().filter(is_known);
        }
        objects.merged_endpoints.clone_from(&self.merged_endpoints);
        LoadedConfiguration::new(clusters, objects, self.base.files.clone())
    }

    /// Returns the configuration after members are refused without which it passes the check.
    fn settle(&self, members: &mut [JudgedMember]) -> LoadedConfiguration {
        for _ in 0..REFUSED_BY_WHOLE_MAX {
            let configuration = self.configuration(members.iter().filter_map(|member| member.draft.as_ref()));
            let Err(problem) = (self.check)(&configuration) else { return configuration };
            let Some(index) = self.first_refused(members) else { return configuration };
            let earlier = members[index].refuse(ConditionState::failed("Conflict", shorten(problem)));
            members[index].draft = earlier;
        }
        for member in members.iter_mut().filter(|member| !member.is_unchanged()) {
            let message =
                "The configuration of the hub has too many conflicts. Resolve the conflicts of other objects first.";
            member.draft = member.refuse(ConditionState::failed("Conflict", message));
        }
        self.configuration(members.iter().filter_map(|member| member.draft.as_ref()))
    }

    /// Returns the first member with which the configuration of all members before it fails the check; `None` if the
    /// configuration fails without members of the hub.
    fn first_refused(&self, members: &[JudgedMember]) -> Option<usize> {
        let drafts: Vec<(usize, &MemberInForce)> =
            members.iter().enumerate().filter_map(|(index, member)| Some((index, member.draft.as_ref()?))).collect();
        let passes = |count: usize| {
            let first = drafts[..count].iter().map(|(_, member)| *member);
            (self.check)(&self.configuration(first)).is_ok()
        };
        if !passes(0) {
            return None;
        }
        // The check passes without members and fails with all: search for the first count that fails.
        let (mut passing, mut failing) = (0, drafts.len());
        while failing - passing > 1 {
            let middle = passing.midpoint(failing);
            if passes(middle) { passing = middle } else { failing = middle }
        }
        drafts.get(passing).map(|(index, _)| *index)
    }
}

/// Records the members in force, and adds their verdicts.
fn record_members(in_force: &mut InForce, judged: Vec<JudgedMember>, verdicts: &mut Vec<Verdict>) {
    let before = std::mem::take(&mut in_force.members);
    for member in judged {
        let JudgedMember { object, draft, mut accepted, resolved_refs, .. } = member;
        if accepted.message.is_empty() {
            "The object is in force.".clone_into(&mut accepted.message);
        }
        verdicts.push(Verdict {
            generation_in_force: draft.as_ref().map(|member| member.object.generation),
            accepted,
            resolved_refs,
            object,
        });
        let Some(mut draft) = draft else { continue };
        if before.get(&draft.object.name).is_none_or(|earlier| earlier.object.uid != draft.object.uid) {
            draft.order = in_force.reserve_order();
        }
        in_force.members.insert(draft.object.name.clone(), draft);
    }
}

/// An object of the hub other than a member, with the verdict so far.
struct Judged<T> {
    object: ObjectReference,
    created: String,
    order: u64,
    value: Result<T, ConditionState>,
    earlier: Option<ObjectInForce<T>>,
}

/// Decodes each object of a kind, in the order in which conflicts are decided.
fn judge_objects<T: Clone + PartialEq>(
    snapshot: &HubSnapshot,
    kind: HubKind,
    in_force: &BTreeMap<String, ObjectInForce<T>>,
    decode: impl Fn(serde_json::Value) -> Result<T, ConditionState>,
) -> Option<Vec<Judged<T>>> {
    let judge = |object: &Arc<Object>| {
        let earlier = in_force.get(object.name()).filter(|earlier| earlier.object.uid == object.uid()).cloned();
        let (value, generation) = match read_document(object) {
            Ok((document, generation)) => (decode(document), generation),
            Err(state) => (Err(state), 0),
        };
        let (name, uid) = (object.name().to_owned(), object.uid().to_owned());
        Judged {
            object: ObjectReference { kind, name, uid, generation },
            created: object.creation_timestamp().to_owned(),
            order: earlier.as_ref().map_or(u64::MAX, |earlier| earlier.order),
            value,
            earlier,
        }
    };
    let mut judged: Vec<Judged<T>> = snapshot.objects(kind)?.iter().map(judge).collect();
    judged.sort_by_key(|one| {
        let is_unchanged =
            one.value.as_ref().ok().zip(one.earlier.as_ref()).is_some_and(|(now, old)| *now == old.value);
        (!is_unchanged, one.order, one.created.clone(), one.object.name.clone())
    });
    Some(judged)
}

/// Accepts objects in order. `check` returns the reason why a value cannot be used besides the values accepted so far.
fn accept_in_order<T: Clone + PartialEq>(
    judged: Vec<Judged<T>>,
    next_order: &mut u64,
    verdicts: &mut Vec<Verdict>,
    mut check: impl FnMut(&T) -> Result<Option<ConditionState>, ConditionState>,
) -> BTreeMap<String, ObjectInForce<T>> {
    let mut accepted = BTreeMap::new();
    for Judged { object, order, value, earlier, .. } in judged {
        let checked = value.and_then(|value| check(&value).map(|resolved_refs| (value, resolved_refs)));
        let mut resolved_refs = None;
        let (state, in_force) = match checked {
            Ok((value, refs)) => {
                resolved_refs = refs;
                let state = ConditionState::fulfilled("Accepted", "The object is in force.");
                let order = if order == u64::MAX { reserve_order(next_order) } else { order };
                (state, Some(ObjectInForce { object: object.clone(), order, value }))
            }
            Err(state) => (state, earlier.filter(|earlier| check(&earlier.value).is_ok())),
        };
        verdicts.push(Verdict {
            generation_in_force: in_force.as_ref().map(|own| own.object.generation),
            accepted: state,
            resolved_refs,
            object,
        });
        accepted.extend(in_force.map(|own| (own.object.name.clone(), own)));
    }
    accepted
}

fn reserve_order(next_order: &mut u64) -> u64 {
    let order = *next_order;
    *next_order += 1;
    order
}

fn invalid(message: String) -> ConditionState {
    ConditionState::failed("Invalid", shorten(message))
}

fn check_problems(problems: Vec<ValidationProblem>) -> Result<(), ConditionState> {
    let errors: Vec<String> = problems
        .into_iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(|problem| format!("{}: {}", problem.field, problem.message))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(invalid(errors.join("; "))) }
}

fn decode_object<T: DeserializeOwned>(document: serde_json::Value, kind: HubKind) -> Result<T, ConditionState> {
    decode_hub_object(document, kind.as_str()).map_err(|error| invalid(error.to_string()))
}

fn accept_registries(
    in_force: &mut InForce,
    snapshot: &HubSnapshot,
    objects: &mut ConfigurationObjects,
    specs: &[tributary_sources::ClusterSpec],
    verdicts: &mut Vec<Verdict>,
) {
    let kind = HubKind::ResourceRegistry;
    let decode = |document| -> Result<ResourceRegistry, ConditionState> {
        let mut registry: ResourceRegistry = decode_object(document, kind)?;
        registry.metadata.name = std::mem::take(&mut registry.metadata).name;
        registry.status = None;
        Ok(registry)
    };
    if let Some(judged) = judge_objects(snapshot, kind, &in_force.registries, decode) {
        let known = ConfigurationObjects { clusters: known_clusters(specs), ..ConfigurationObjects::default() };
        let mut used = objects.registries.clone();
        in_force.registries = accept_in_order(judged, &mut in_force.next_order, verdicts, |registry| {
            if used.iter().any(|other| other.metadata.name == registry.metadata.name) {
                let message =
                    "A file has a ResourceRegistry of this name, and files have priority over the hub; rename it.";
                return Err(ConditionState::failed("NameConflict", message));
            }
            let problems = known.validate_registry(registry);
            let (absent, own): (Vec<_>, Vec<_>) = problems.into_iter().partition(concerns_clusters);
            check_problems(own)?;
            if let Some(conflict) = used.iter().find_map(|other| registry_conflict(registry, other)) {
                return Err(ConditionState::failed("ResourceConflict", shorten(conflict)));
            }
            used.push(registry.clone());
            let absent = check_problems(absent).err();
            Ok(absent.map(|state| ConditionState { reason: "ClusterNotFound".to_owned(), ..state }))
        });
    }
    objects.registries.extend(in_force.registries.values().map(|own| {
        let mut registry = own.value.clone();
        // Members come and go, and a placement in an absent member must not refuse the whole configuration.
        registry.spec.placement =
            registry.spec.placement.filter(|name| specs.iter().any(|spec| spec.name.as_str() == name));
        registry
    }));
}

/// Returns whether a problem concerns the clusters that a registry names, which may appear later.
fn concerns_clusters(problem: &ValidationProblem) -> bool {
    problem.field.starts_with("spec.clusters") || problem.field == "spec.placement"
}

fn accept_merged_endpoints(
    in_force: &mut InForce,
    snapshot: &HubSnapshot,
    objects: &mut ConfigurationObjects,
    verdicts: &mut Vec<Verdict>,
) {
    let kind = HubKind::MergedEndpoint;
    let decode = |document| -> Result<MergedEndpoint, ConditionState> {
        let mut endpoint: MergedEndpoint = decode_object(document, kind)?;
        endpoint.metadata.name = std::mem::take(&mut endpoint.metadata).name;
        endpoint.status = None;
        Ok(endpoint)
    };
    let has_file = !objects.merged_endpoints.is_empty();
    if let Some(judged) = judge_objects(snapshot, kind, &in_force.merged_endpoints, decode) {
        in_force.merged_endpoints = accept_in_order(judged, &mut in_force.next_order, verdicts, |endpoint| {
            if has_file {
                let message = "A file has a MergedEndpoint, and files have priority over the hub; remove one of them.";
                return Err(ConditionState::failed("NameConflict", message));
            }
            let alone =
                ConfigurationObjects { merged_endpoints: vec![endpoint.clone()], ..ConfigurationObjects::default() };
            check_problems(alone.validate()).map(|()| None)
        });
    }
    if !has_file {
        objects.merged_endpoints.extend(in_force.merged_endpoints.values().map(|own| own.value.clone()));
    }
}

fn accept_denied_users(in_force: &mut InForce, snapshot: &HubSnapshot, verdicts: &mut Vec<Verdict>) {
    let decode = |document| denied_users_of(&document).map_err(|error| invalid(error.to_string()));
    if let Some(judged) = judge_objects(snapshot, HubKind::DeniedUsers, &in_force.denied_users, decode) {
        in_force.denied_users = accept_in_order(judged, &mut in_force.next_order, verdicts, |_| Ok(None));
    }
}

#[cfg(test)]
mod tests;
