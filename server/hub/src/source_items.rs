//! The items of ClusterSources: each is read alone, and becomes a member like an UpstreamCluster. Without I/O.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use tributary_apimachinery::{ForeignSystem, Object, Snapshot, explain};
use tributary_authentication::IdentityPolicy;
use tributary_cluster_sources::{ItemObject, RefusedItem, Secrets, SourceItem, SourceReader};
use tributary_crds::{UpstreamCluster, hub_problems};
use tributary_router::{ForeignMember, GatewayFacts};
use tributary_sources::ClusterSpec;
use tributary_sources::upstream_clusters::cluster_spec;

use crate::in_force::{InForce, ItemInForce, ItemReading, MemberInForce, UnusableItem, fingerprint};
use crate::item_command::{allowed_plugin, is_listed};
use crate::members::{HubRules, ItemReference, JudgedMember, check_addresses};
use crate::verdict::{check_problems, shorten};
use crate::{ConditionState, HubKind, ItemVerdict, ObjectReference, SourceVerdict, Verdict};

/// The collections of a source at one time.
#[derive(Clone)]
pub(crate) struct ListedSource {
    pub(crate) items: Snapshot,
    /// The Secrets to which items refer; `None` if the items have their credentials themselves.
    pub(crate) secrets: Option<Snapshot>,
    /// Karmada's ResourceRegistries; `None` until the hub has listed them, and for other systems.
    pub(crate) registries: Option<Snapshot>,
    /// Whether the collections are up to date.
    pub(crate) is_current: bool,
}

impl UnusableItem {
    fn invalid(state: ConditionState) -> Self {
        Self { state, keeps_earlier: true }
    }
}

impl From<RefusedItem> for UnusableItem {
    fn from(refused: RefusedItem) -> Self {
        let keeps_earlier = refused.keeps_earlier();
        Self { state: ConditionState::failed(refused.reason, shorten(refused.message)), keeps_earlier }
    }
}

impl ItemReading {
    fn is_current(&self, object: &Object, secrets: Option<&Snapshot>) -> bool {
        let version_of = |key: &str| secrets?.get(key).map(|secret| secret.resource_version());
        self.version == object.resource_version()
            && self.secrets.iter().all(|used| version_of(&used.key) == used.version)
    }
}

/// Judges the items of all sources in force. Members of a source stay while the hub has not listed the source. With
/// `may_remove`, the members that their source no longer lists are removed. Members of a source that is not in force
/// are removed.
pub(crate) async fn judge_items(
    in_force: &mut InForce,
    listed: &BTreeMap<String, ListedSource>,
    may_remove: bool,
    rules: &HubRules,
) -> Vec<JudgedMember> {
    let mut readings = std::mem::take(&mut in_force.readings);
    let mut earlier: HashMap<(&str, &str), &Arc<MemberInForce>> = HashMap::new();
    for member in in_force.members.values() {
        if let Some(source) = member.source().filter(|source| readings.contains_key(*source)) {
            earlier.insert((source, &member.object.uid), member);
        }
    }
    let mut judged = Vec::new();
    for (source, ListedSource { items, secrets, .. }) in listed {
        let Some(reading) = readings.get_mut(source) else { continue };
        let mut before = std::mem::take(&mut reading.items);
        for object in items.iter() {
            let earlier = earlier.remove(&(source.as_str(), object.uid()));
            let read = before.remove(object.uid()).filter(|read| read.is_current(object, secrets.as_ref()));
            let read = match read {
                Some(read) => read,
                None => read_item(source, &reading.reader, object, secrets.as_ref(), earlier, rules).await,
            };
            let earlier = earlier.map(|earlier| with_present_rules(earlier, &reading.reader));
            judged.push(judge_item(source, object, &read.result, earlier, rules));
            reading.items.insert(object.uid().to_owned(), read);
        }
    }
    // The remaining earlier members are not in the lists.
    let stays = |source: &str| !may_remove || !listed.contains_key(source);
    let absent = earlier.into_iter().filter(|((source, _), _)| stays(source));
    judged.extend(absent.map(|((source, _), member)| {
        let reader = readings.get(source).map(|reading| &*reading.reader);
        JudgedMember::retain(reader.map_or_else(|| Arc::clone(member), |reader| with_present_rules(member, reader)))
    }));
    in_force.readings = readings;
    judged
}

/// Gives a member the identity and the authorization of its source, if the source has different ones by now. The member
/// may stay as it was read last, but its clients must not keep a stored credential that the source withdraws.
fn with_present_rules(member: &Arc<MemberInForce>, reader: &SourceReader) -> Arc<MemberInForce> {
    let (identity, authorize) = (reader.identity(), reader.authorize());
    let is_changed =
        |own: &&Arc<ItemInForce>| !own.item.identity.ends_with(identity) || own.item.authorize != authorize;
    let Some(own) = member.item.as_ref().filter(is_changed) else { return Arc::clone(member) };
    let identity = match own.item.identity.ends_with(identity) {
        true => own.item.identity.clone(),
        false => identity.clone(),
    };
    let item = SourceItem { identity, authorize, ..own.item.clone() };
    let item = ItemInForce { warnings: own.warnings.clone(), ..ItemInForce::new(&own.source, item) };
    let item = Some(Arc::new(item));
    Arc::new(MemberInForce { item, ..MemberInForce::clone(member) })
}

async fn read_item(
    source: &str,
    reader: &SourceReader,
    object: &Object,
    secrets: Option<&Snapshot>,
    earlier: Option<&Arc<MemberInForce>>,
    rules: &HubRules,
) -> ItemReading {
    let (read, secrets) = {
        let secrets = Secrets::new(secrets);
        let read = reader.read_item(object, &secrets);
        (read, secrets.into_used())
    };
    let result = match read {
        Ok(item) => make_member(ItemInForce::new(source, item), earlier, rules).await.map_err(UnusableItem::invalid),
        Err(refused) => Err(refused.into()),
    };
    ItemReading { version: object.resource_version(), secrets, result }
}

/// Makes the member of an item. An unchanged description is shared with the earlier one.
async fn make_member(
    item: ItemInForce,
    earlier: Option<&Arc<MemberInForce>>,
    rules: &HubRules,
) -> Result<Arc<MemberInForce>, ConditionState> {
    if let (Some(problem), None) = (&item.item.not_ready, earlier) {
        return Err(ConditionState::failed(problem.reason, shorten(problem.message.clone())));
    }
    let is_same = |own: &Arc<ItemInForce>| own.fingerprint == item.fingerprint;
    let same = earlier.filter(|earlier| earlier.spec.is_some() && earlier.item.as_ref().is_some_and(is_same));
    if let Some(same) = same {
        return Ok(Arc::clone(same));
    }
    check_supported(&item.item)?;
    let cluster = without_credentials(&item.item);
    check_problems(hub_problems(&cluster, rules.insecure))?;
    check_addresses(&cluster.spec, rules)?;
    let object = ObjectReference {
        kind: HubKind::ClusterSource,
        name: item.item.name.to_string(),
        uid: item.item.object.uid.clone(),
        generation: 0,
    };
    let item = Some(Arc::new(item));
    let mut member = MemberInForce { object, order: 0, cluster, item, resolved: None, spec: None, seen: None };
    match describe_item(&member, rules).await {
        Some(Ok(spec)) => member.spec = Some(Arc::new(spec)),
        Some(Err(state)) => return Err(state),
        None => {}
    }
    Ok(Arc::new(member))
}

/// Refuses settings that Tributary cannot honour.
fn check_supported(item: &SourceItem) -> Result<(), ConditionState> {
    if item.scope.is_none() {
        return Ok(());
    }
    let message = "Key \"namespaces\": Tributary serves all namespaces that the credential may read. Remove the key, and \
                   restrict the credential by RBAC in the cluster.";
    Err(ConditionState::failed("NotSupported", message))
}

/// Returns the member of an item in the form of an object of the hub: without secrets.
fn without_credentials(item: &SourceItem) -> UpstreamCluster {
    let mut cluster = item.upstream_cluster();
    cluster.spec.credentials = None;
    cluster.spec.ca_data = None;
    if let Some(serving) = &mut cluster.spec.secure_serving {
        serving.key_data = None;
    }
    cluster
}

/// Makes the description of an item for the router; `None` for an UpstreamCluster.
///
/// # Errors
/// The problem with the connection settings, or with the command that prints the credential.
pub(crate) async fn describe_item(
    member: &MemberInForce,
    rules: &HubRules,
) -> Option<Result<ClusterSpec, ConditionState>> {
    let own = member.item.as_ref()?;
    let described = describe_connection(&own.item, rules).await;
    Some(described.map(|spec| ClusterSpec { origin: member.origin(), warnings: own.warnings.clone(), ..spec }))
}

async fn describe_connection(item: &SourceItem, rules: &HubRules) -> Result<ClusterSpec, ConditionState> {
    let proxy_headers = proxy_headers(item).map_err(ConditionState::invalid)?;
    let plugin = allowed_plugin(item, &rules.command_policy).await?;
    // An item contains no relative path, so the base is not used.
    let (mut spec, files) = cluster_spec(&item.upstream_cluster(), Path::new(""))
        .await
        .map_err(|error| ConditionState::invalid(explain(&error)))?;
    if !files.is_empty() {
        return Err(ConditionState::invalid("the item names a file".to_owned()));
    }
    if let (Some(plugin), Ok(config)) = (plugin, &mut spec.config) {
        config.auth_info.exec = Some(plugin);
        spec.user_fingerprint = format!("{} {:x}", spec.user_fingerprint, fingerprint(&item.command));
    }
    Ok(ClusterSpec {
        is_from_hub: true,
        dial_policy: Some(Arc::clone(&rules.dial_policy)),
        command_policy: Some(Arc::clone(&rules.command_policy)),
        impersonator: item.impersonator.clone(),
        proxy_headers,
        ..spec
    })
}

/// Returns the headers for the proxy of an item.
///
/// # Errors
/// A name or a value that is not allowed. The message has no value, because it can be a password.
fn proxy_headers(item: &SourceItem) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, values) in &item.proxy_headers {
        for value in values {
            let header = name.parse::<HeaderName>().ok().zip(HeaderValue::from_str(value.expose()).ok());
            let (name, mut value) = header
                .ok_or_else(|| format!("spec.proxyHeader: {name:?} or its value is not allowed in an HTTP header"))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
    }
    Ok(headers)
}

fn judge_item(
    source: &str,
    object: &Object,
    read: &Result<Arc<MemberInForce>, UnusableItem>,
    earlier: Option<Arc<MemberInForce>>,
    rules: &HubRules,
) -> JudgedMember {
    let reference = || ObjectReference {
        kind: HubKind::ClusterSource,
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
        generation: 0,
    };
    let mut judged = JudgedMember {
        object: reference(),
        created: object.creation_timestamp().to_owned(),
        item: Some(ItemReference { source: source.to_owned(), name: object.name().to_owned() }),
        draft: None,
        earlier,
        accepted: ConditionState::fulfilled("Accepted", ""),
        resolved_refs: None,
    };
    match read {
        Ok(member) => {
            judged.object = member.object.clone();
            judged.draft = Some(match &judged.earlier {
                None => Arc::clone(member),
                Some(earlier) if earlier.spec.is_some() && earlier.is_same_item(member) => Arc::clone(earlier),
                Some(earlier) => Arc::new(MemberInForce { order: earlier.order, ..MemberInForce::clone(member) }),
            });
        }
        Err(UnusableItem { state, keeps_earlier }) => {
            judged.accepted = state.clone();
            let stays = |earlier: &Arc<MemberInForce>| *keeps_earlier && !is_withdrawn(earlier, &state.reason, rules);
            judged.earlier = judged.earlier.take().filter(stays);
        }
    }
    judged
}

/// Returns whether the source or a flag no longer allows the earlier form of a refused item: servers that are not
/// verified, or its command.
fn is_withdrawn(earlier: &MemberInForce, reason: &str, rules: &HubRules) -> bool {
    let is_unverified =
        matches!(reason, "MissingCA" | "InsecureSkipVerify") && earlier.cluster.spec.insecure_skip_verify;
    let command = earlier.item.as_ref().and_then(|own| own.item.command.as_ref());
    is_unverified || command.is_some_and(|command| !is_listed(command, &rules.command_policy))
}

/// Adds the verdicts on items to the verdicts on their sources. `items` has the listed items of each source.
pub(crate) fn add_item_verdicts(
    in_force: &InForce,
    listed: &BTreeMap<String, ListedSource>,
    mut items: BTreeMap<String, Vec<ItemVerdict>>,
    verdicts: &mut [Verdict],
) {
    // A source of the hub with the name of a file's source is not in force.
    let is_source_in_force =
        |verdict: &&mut Verdict| verdict.object.kind == HubKind::ClusterSource && verdict.generation_in_force.is_some();
    for verdict in verdicts.iter_mut().filter(is_source_in_force) {
        let Some(reading) = in_force.readings.get(&verdict.object.name) else { continue };
        let is_listed = listed.contains_key(&verdict.object.name);
        let mut items = is_listed.then(|| items.remove(&verdict.object.name).unwrap_or_default());
        if let Some(items) = &mut items {
            items.sort_by(|a, b| a.name.cmp(&b.name));
        }
        verdict.source = Some(Arc::new(SourceVerdict { list: reading.reader.list().kind(), items }));
    }
}

/// Returns the member as the system with the list knows it; `None` for lists of systems without a door. At the door of
/// Open Cluster Management, no right in the hub protects a stored credential, so an item with an identity of its own
/// has no name there.
pub(crate) fn foreign_member(item: &SourceItem) -> Option<ForeignMember> {
    let system = item.list.foreign_system()?;
    if system == ForeignSystem::OpenClusterManagement && item.identity != IdentityPolicy::Impersonate {
        return None;
    }
    let SourceItem { object: ItemObject { namespace, labels, created, .. }, spec, .. } = item;
    let has_certificate =
        spec.credentials.as_ref().is_some_and(|credentials| credentials.client_certificate_data.is_some());
    let gateway = (system == ForeignSystem::ClusterGateway).then(|| GatewayFacts {
        namespace: namespace.clone(),
        alias: item.alias.clone(),
        credential_type: match (&item.command, has_certificate) {
            (Some(_), _) => "Dynamic",
            (None, true) => "X509Certificate",
            (None, false) => "ServiceAccountToken",
        }
        .to_owned(),
        endpoint: spec.endpoints.first().cloned().unwrap_or_default(),
        ca_bundle: spec.ca_data.clone(),
        proxy_url: spec.proxy_url.clone(),
    });
    Some(ForeignMember {
        system,
        name: item.foreign_name.clone(),
        cluster: item.name.clone(),
        identity: item.identity.clone(),
        authorizes_inner: !item.authorize.is_proxy(),
        labels: labels.clone(),
        created: created.clone(),
        gateway,
        credential: None,
    })
}
