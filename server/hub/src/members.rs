//! The judgement on UpstreamClusters of the hub: each alone, then all together. Without I/O.

mod claims;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tributary_apimachinery::{Host, Object, ResourceVersion, Snapshot, explain, without_brackets};
use tributary_cluster_sources::AccessProviders;
use tributary_crds::{
    ConfigurationObjects, InsecureMembers, UpstreamCluster, UpstreamClusterSpec, decode_hub_object, hub_problems,
};
use tributary_proxy::{CommandPolicy, DialPolicy};
use tributary_sources::ClusterSpec;
use tributary_sources::upstream_clusters::cluster_spec;

pub(crate) use claims::Claims;
pub use claims::leads_to;

use crate::credential::{UnusableSecret, resolve_secret};
use crate::in_force::{MemberInForce, ResolvedSecret, SeenVersions};
use crate::verdict::{check_problems, shorten};
use crate::{ConditionState, HubKind, ObjectReference};

/// Maximum size of an object in bytes: the limit of a request to etcd.
pub(crate) const OBJECT_BYTES_MAX: usize = 1_572_864;

/// The rules for objects of the hub. Flags set these rules.
#[derive(Clone)]
pub struct HubRules {
    /// The namespace of the Secrets to which UpstreamClusters refer.
    pub namespace: String,
    /// Whether members may have unverified servers.
    pub insecure: InsecureMembers,
    /// Names of clusters that flags trust, for example as the reviewer of all bearer tokens. Only sources other than
    /// the hub may define clusters with these names.
    pub reserved_names: Vec<String>,
    /// Decides to which addresses Tributary connects for members.
    pub dial_policy: Arc<DialPolicy>,
    /// The policy for the commands of items of ClusterSources.
    pub command_policy: Arc<CommandPolicy>,
    /// The access providers of ClusterProfiles; `None` without the file.
    pub access_providers: Option<Arc<AccessProviders>>,
    /// The address and the hosts of this endpoint, which no member may have.
    pub own: OwnEndpoint,
}

/// The address and the hosts of this endpoint.
#[derive(Clone, Debug, Default)]
pub struct OwnEndpoint {
    /// The address of the listener; `None` without a listener.
    pub address: Option<SocketAddr>,
    /// The hosts of `--merged-host`. Without them, members of the hub may have no hosts.
    pub merged_hosts: Vec<Host>,
    /// The host names of a listener on loopback, such as `localhost`.
    pub local_hosts: Vec<Host>,
}

pub(crate) struct ItemReference {
    /// The name of the ClusterSource.
    pub(crate) source: String,
    /// The name of the object in the list.
    pub(crate) name: String,
}

/// A member of the hub with the verdict so far.
pub(crate) struct JudgedMember {
    pub(crate) object: ObjectReference,
    pub(crate) created: String,
    /// The item, if its source lists it; `None` for an UpstreamCluster.
    pub(crate) item: Option<ItemReference>,
    /// The present generation, if it is valid.
    pub(crate) draft: Option<Arc<MemberInForce>>,
    /// The last accepted generation of the same object.
    pub(crate) earlier: Option<Arc<MemberInForce>>,
    pub(crate) accepted: ConditionState,
    pub(crate) resolved_refs: Option<ConditionState>,
}

impl JudgedMember {
    /// Keeps a member that the hub does not list: the hub has not listed its collection, or the member may not leave
    /// yet.
    pub(crate) fn retain(member: Arc<MemberInForce>) -> Self {
        Self {
            object: member.object.clone(),
            created: String::new(),
            item: None,
            draft: Some(Arc::clone(&member)),
            earlier: Some(member),
            accepted: ConditionState::fulfilled("Accepted", ""),
            resolved_refs: None,
        }
    }

    /// Returns whether the member is an item of a ClusterSource.
    pub(crate) fn is_item(&self) -> bool {
        self.object.kind == HubKind::ClusterSource
    }

    /// Returns whether the object has not changed since its last acceptance.
    pub(crate) fn is_unchanged(&self) -> bool {
        let draft = self.draft.as_ref();
        let is_same = |(draft, earlier): (&Arc<MemberInForce>, &Arc<MemberInForce>)| {
            Arc::ptr_eq(draft, earlier) || draft.cluster == earlier.cluster
        };
        draft.zip(self.earlier.as_ref()).is_some_and(is_same)
    }

    /// Refuses the present generation. Returns the last accepted generation if it differs, so that the caller can check
    /// whether it stays in force.
    pub(crate) fn refuse(&mut self, state: ConditionState) -> Option<Arc<MemberInForce>> {
        let is_unchanged = self.is_unchanged();
        self.accepted = state;
        self.draft = None;
        self.earlier.take().filter(|_| !is_unchanged)
    }
}

/// Reads an object's JSON and its generation.
///
/// # Errors
/// The state of `Accepted` for an object that is too large.
pub(crate) fn read_document(object: &Object) -> Result<(Value, i64), ConditionState> {
    if object.size() > OBJECT_BYTES_MAX {
        return Err(ConditionState::failed("TooLarge", format!("The object has more than {OBJECT_BYTES_MAX} bytes.")));
    }
    let document: Value = serde_json::from_slice(object.json())
        .map_err(|error| ConditionState::invalid(format!("The object is not JSON: {error}")))?;
    let generation = document["metadata"]["generation"].as_i64().unwrap_or_default();
    Ok((document, generation))
}

/// Judges each member alone.
pub(crate) async fn judge_members(
    listed: &Snapshot,
    secrets: Option<&Snapshot>,
    in_force: &BTreeMap<String, Arc<MemberInForce>>,
    rules: &HubRules,
) -> Vec<JudgedMember> {
    let secrets = ListedSecrets::new(secrets, rules);
    let mut judged = Vec::with_capacity(listed.len());
    for object in listed.iter() {
        // An object that was deleted and made anew is a new object.
        let same = |earlier: &&Arc<MemberInForce>| earlier.item.is_none() && earlier.object.uid == object.uid();
        let earlier = in_force.get(object.name()).filter(same).cloned();
        judged.push(judge_member(object, &secrets, earlier, rules).await);
    }
    judged
}

/// The Secrets of the hub, with an index by name.
struct ListedSecrets<'a> {
    all: Option<&'a Snapshot>,
    /// The versions by the name of the Secret. A lookup in the snapshot takes ten times as long.
    versions: HashMap<&'a str, ResourceVersion>,
}

impl<'a> ListedSecrets<'a> {
    fn new(all: Option<&'a Snapshot>, rules: &HubRules) -> Self {
        let own = all.into_iter().flat_map(Snapshot::iter).filter(|secret| secret.namespace() == rules.namespace);
        Self { all, versions: own.map(|secret| (secret.name(), secret.resource_version())).collect() }
    }

    /// Returns the versions from which a member is made.
    fn seen_versions(&self, object: &Object, cluster: &UpstreamCluster) -> SeenVersions {
        let reference = cluster.spec.secret_ref.as_ref();
        let secret = reference.and_then(|reference| self.versions.get(reference.name.as_str()).copied());
        SeenVersions { object: object.resource_version(), secret }
    }
}

/// Resolves the present Secret of the last accepted generation, which stays in force if the present generation is
/// refused. So a rotated credential takes effect, and a withdrawn credential ends.
async fn with_present_secret(
    earlier: Arc<MemberInForce>,
    secrets: Option<&Snapshot>,
    rules: &HubRules,
) -> Arc<MemberInForce> {
    let earlier_value = || MemberInForce::clone(&earlier);
    match resolve_secret(&earlier.cluster, secrets, &rules.namespace) {
        Err(unusable) if !unusable.keeps_earlier => {
            let spec = without_connection(&earlier.cluster, &unusable.state.message).map(Arc::new);
            Arc::new(MemberInForce { resolved: None, spec, seen: None, ..earlier_value() })
        }
        Ok(resolved) if earlier.resolved.as_ref() != Some(&resolved) => {
            match describe(&earlier.cluster, &resolved, rules).await {
                Ok(spec) => Arc::new(MemberInForce {
                    resolved: Some(resolved),
                    spec: Some(Arc::new(spec)),
                    seen: None,
                    ..earlier_value()
                }),
                Err(_) => earlier,
            }
        }
        _ => earlier,
    }
}

async fn judge_member(
    object: &Object,
    secrets: &ListedSecrets<'_>,
    earlier: Option<Arc<MemberInForce>>,
    rules: &HubRules,
) -> JudgedMember {
    let reference = |generation| ObjectReference {
        kind: HubKind::UpstreamCluster,
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        generation,
    };
    let mut judged = JudgedMember {
        object: reference(0),
        created: object.creation_timestamp().to_owned(),
        item: None,
        draft: None,
        earlier,
        accepted: ConditionState::fulfilled("Accepted", ""),
        resolved_refs: None,
    };
    if let Some(same) =
        judged.earlier.as_ref().filter(|own| own.seen == Some(secrets.seen_versions(object, &own.cluster)))
    {
        judged.object = same.object.clone();
        judged.resolved_refs = same.cluster.spec.secret_ref.as_ref().map(|_| resolved());
        judged.draft = Some(Arc::clone(same));
        return judged;
    }
    if let Some(earlier) = judged.earlier.take() {
        judged.earlier = Some(with_present_secret(earlier, secrets.all, rules).await);
    }
    let (document, generation) = match read_document(object) {
        Ok(read) => read,
        Err(state) => {
            judged.accepted = state;
            return judged;
        }
    };
    judged.object = reference(generation);
    match decode_member(document, rules) {
        Err(state) => judged.accepted = state,
        Ok(cluster) => resolve_member(&mut judged, cluster, object, secrets, rules).await,
    }
    judged
}

fn resolved() -> ConditionState {
    ConditionState::fulfilled("Resolved", "")
}

/// Decodes a member and checks its fields.
fn decode_member(document: Value, rules: &HubRules) -> Result<UpstreamCluster, ConditionState> {
    let mut cluster: UpstreamCluster = decode_hub_object(document, HubKind::UpstreamCluster.as_str())
        .map_err(|error| ConditionState::invalid(error.to_string()))?;
    // Versions, managed fields and timestamps are not part of the configuration.
    let metadata = std::mem::take(&mut cluster.metadata);
    cluster.metadata.name = metadata.name;
    cluster.metadata.labels = metadata.labels;
    cluster.metadata.annotations = metadata.annotations;
    cluster.status = None;
    let alone = ConfigurationObjects { clusters: vec![cluster.clone()], ..ConfigurationObjects::default() };
    check_problems(hub_problems(&cluster, rules.insecure).into_iter().chain(alone.validate()))?;
    check_addresses(&cluster.spec, rules)?;
    Ok(cluster)
}

/// Refuses literal addresses that Tributary does not dial. Host names are checked after each lookup instead.
pub(crate) fn check_addresses(spec: &UpstreamClusterSpec, rules: &HubRules) -> Result<(), ConditionState> {
    let endpoints = spec.endpoints.iter().enumerate().map(|(index, url)| (format!("spec.endpoints[{index}]"), url));
    let proxy = spec.proxy_url.iter().map(|url| ("spec.proxyURL".to_owned(), url));
    for (field, url) in endpoints.chain(proxy) {
        let parsed: Option<http::Uri> = url.parse().ok();
        let host = parsed.as_ref().and_then(http::Uri::host).map(without_brackets).unwrap_or_default();
        if host == "localhost" || host.ends_with(".localhost") {
            // The name never leads to another machine (RFC 6761).
            let address = IpAddr::from([127, 0, 0, 1]);
            if let Err(refused) = rules.dial_policy.check(address) {
                return Err(ConditionState::failed("RefusedAddress", format!("{field}: {host}: {refused}.")));
            }
        }
        let Ok(address) = host.parse::<IpAddr>() else { continue };
        if let Err(refused) = rules.dial_policy.check(address) {
            return Err(ConditionState::failed("RefusedAddress", format!("{field}: {refused}.")));
        }
    }
    Ok(())
}

/// Reads the member's Secret, and makes the draft of the present generation.
async fn resolve_member(
    judged: &mut JudgedMember,
    cluster: UpstreamCluster,
    object: &Object,
    secrets: &ListedSecrets<'_>,
    rules: &HubRules,
) {
    let order = judged.earlier.as_ref().map_or(0, |earlier| earlier.order);
    let member = MemberInForce {
        object: judged.object.clone(),
        order,
        cluster,
        item: None,
        resolved: None,
        spec: None,
        seen: None,
    };
    match resolve_secret(&member.cluster, secrets.all, &rules.namespace) {
        Ok(resolved_secret) => {
            let has_secret = member.cluster.spec.secret_ref.is_some();
            judged.resolved_refs = has_secret.then(resolved);
            match describe_member(member, resolved_secret, judged.earlier.as_deref(), rules).await {
                Ok(mut member) => {
                    member.seen = Some(secrets.seen_versions(object, &member.cluster));
                    judged.draft = Some(Arc::new(member));
                }
                Err((member, problem)) if has_secret => {
                    let state = ConditionState::failed("InvalidCredential", shorten(problem));
                    keep_earlier_credential(judged, *member, UnusableSecret { state, keeps_earlier: true });
                }
                Err((_, problem)) => judged.accepted = ConditionState::invalid(problem),
            }
        }
        Err(unusable) => keep_earlier_credential(judged, member, unusable),
    }
}

/// Decides about a member whose Secret is not usable. The member continues with the credential that it has, unless the
/// Secret refuses it. A member that never had a credential stays in the configuration, but Tributary does not connect
/// to it.
fn keep_earlier_credential(judged: &mut JudgedMember, member: MemberInForce, unusable: UnusableSecret) {
    let problem = unusable.state.message.clone();
    judged.resolved_refs = Some(unusable.state);
    let earlier = judged.earlier.as_ref().filter(|own| unusable.keeps_earlier && own.resolved.is_some());
    match earlier {
        Some(earlier) if earlier.cluster == member.cluster => {
            let earlier = MemberInForce::clone(earlier);
            judged.draft = Some(Arc::new(MemberInForce { object: judged.object.clone(), seen: None, ..earlier }));
        }
        Some(earlier) => {
            let generation = earlier.object.generation;
            let message = format!("Generation {generation} stays in force until the Secret is usable: {problem}");
            judged.accepted = ConditionState::failed("UnresolvedRefs", shorten(message));
        }
        None => {
            let spec = without_connection(&member.cluster, &problem);
            judged.draft = spec.map(|spec| Arc::new(MemberInForce { spec: Some(Arc::new(spec)), ..member }));
        }
    }
}

/// Describes a member without a usable credential.
fn without_connection(cluster: &UpstreamCluster, problem: &str) -> Option<ClusterSpec> {
    let text = cluster.metadata.name.as_deref().unwrap_or_default();
    let name = tributary_apimachinery::ClusterName::new(text).ok()?;
    let spec = ClusterSpec::new(name, origin(text), Err(problem.to_owned()));
    let labels = cluster.metadata.labels.clone().unwrap_or_default();
    Some(ClusterSpec { labels, index: cluster.spec.index, is_from_hub: true, ..spec })
}

fn origin(name: &str) -> String {
    format!("UpstreamCluster {name} of the hub")
}

/// Makes the description for the router. An unchanged description is shared with the earlier one.
///
/// # Errors
/// The member, and the problem with its connection settings.
async fn describe_member(
    member: MemberInForce,
    resolved: ResolvedSecret,
    earlier: Option<&MemberInForce>,
    rules: &HubRules,
) -> Result<MemberInForce, (Box<MemberInForce>, String)> {
    let same = earlier.filter(|earlier| {
        earlier.spec.is_some() && earlier.resolved.as_ref() == Some(&resolved) && earlier.cluster == member.cluster
    });
    if let Some(spec) = same.and_then(|earlier| earlier.spec.clone()) {
        return Ok(MemberInForce { resolved: Some(resolved), spec: Some(spec), ..member });
    }
    match describe(&member.cluster, &resolved, rules).await {
        Ok(spec) => Ok(MemberInForce { resolved: Some(resolved), spec: Some(Arc::new(spec)), ..member }),
        Err(problem) => Err((Box::new(member), problem)),
    }
}

/// Converts a member with its credentials into the description for the router.
///
/// # Errors
/// The problem with the connection settings.
pub(crate) async fn describe(
    cluster: &UpstreamCluster,
    resolved: &ResolvedSecret,
    rules: &HubRules,
) -> Result<ClusterSpec, String> {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let complete = UpstreamCluster { spec: resolved.complete(&cluster.spec), ..cluster.clone() };
    // A hub object contains no relative path, so the base is not used.
    match cluster_spec(&complete, Path::new("")).await {
        Ok((_, files)) if !files.is_empty() => Err("the object names a file".to_owned()),
        Ok((spec, _)) => {
            let dial_policy = Some(Arc::clone(&rules.dial_policy));
            let command_policy = Some(Arc::clone(&rules.command_policy));
            Ok(ClusterSpec { origin: origin(&name), is_from_hub: true, dial_policy, command_policy, ..spec })
        }
        Err(error) => Err(explain(&error)),
    }
}
