//! The objects of the hub that are in force: the last accepted generation of each object.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tributary_apimachinery::ResourceVersion;
use tributary_cluster_sources::{ItemObject, KarmadaRegistry, SourceItem, SourceList, SourceReader, UsedSecret};
use tributary_crds::{
    ClusterSource, Credentials, MergedEndpoint, ResourceRegistry, UpstreamCluster, UpstreamClusterSpec,
};
use tributary_router::cluster_status::MemberSource;
use tributary_sources::ClusterSpec;

use crate::{ConditionState, ObjectReference};

/// The profiles of the last complete decision, as `NAMESPACE/NAME`, by the namespace and the key of the decision.
pub(crate) type Selections = BTreeMap<String, BTreeSet<String>>;

/// The last accepted generation of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ObjectInForce<T> {
    pub(crate) object: ObjectReference,
    /// Position of the object in the order of first acceptance. The lower order wins a conflict.
    pub(crate) order: u64,
    pub(crate) value: T,
}

/// An item of a ClusterSource that is a member.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ItemInForce {
    /// The name of the ClusterSource.
    pub(crate) source: String,
    pub(crate) item: SourceItem,
    /// A hash of the item, without warnings.
    pub(crate) fingerprint: u64,
    /// The warnings about settings of the item, for the log of a later process, too.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

impl ItemInForce {
    pub(crate) fn new(source: &str, item: SourceItem) -> Self {
        let warnings = item.warnings.iter().map(|warning| warning.message.clone()).collect();
        Self { source: source.to_owned(), fingerprint: fingerprint(&item), item, warnings }
    }

    /// Returns kind, namespace and name of the item's object.
    fn describe(&self) -> String {
        let ItemObject { kind, namespace, name, .. } = &self.item.object;
        let slash = if namespace.is_empty() { "" } else { "/" };
        format!("{kind} {namespace}{slash}{name}")
    }
}

/// Returns a hash of a value.
pub(crate) fn fingerprint(value: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Maps of texts always serialize.
    serde_json::to_vec(value).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// The last accepted generation of a member, with its credentials.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct MemberInForce {
    /// The reference to the UpstreamCluster. For an item of a source, it has the name of the member and the uid of the
    /// item.
    pub(crate) object: ObjectReference,
    /// Position of the object in the order of first acceptance. The lower order wins a conflict.
    pub(crate) order: u64,
    /// The object as written in the hub. For an item of a source: the member without its credentials.
    pub(crate) cluster: UpstreamCluster,
    /// The item of a ClusterSource; `None` for an UpstreamCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) item: Option<Arc<ItemInForce>>,
    /// The values of the Secret. `None` if no credential was ever resolved, and for an item of a source.
    pub(crate) resolved: Option<ResolvedSecret>,
    /// The cluster's description for the router. It is not stored in the data directory, but made anew after a start.
    #[serde(skip)]
    pub(crate) spec: Option<Arc<ClusterSpec>>,
    /// The resourceVersions of the object and the Secret from which this value was made. While they stay equal, the
    /// member is not judged again.
    #[serde(skip)]
    pub(crate) seen: Option<SeenVersions>,
}

/// The credential and the authorities of a member, from its Secret or from its object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResolvedSecret {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<Credentials>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_data: Option<String>,
}

impl ResolvedSecret {
    /// Returns the spec of a member with these values in place of `secretRef`.
    pub(crate) fn complete(&self, spec: &UpstreamClusterSpec) -> UpstreamClusterSpec {
        let Self { credentials, ca_data } = self.clone();
        UpstreamClusterSpec { secret_ref: None, credentials, ca_data, ..spec.clone() }
    }
}

impl MemberInForce {
    /// Returns the name of the ClusterSource; `None` for an UpstreamCluster.
    pub(crate) fn source(&self) -> Option<&str> {
        self.item.as_ref().map(|own| own.source.as_str())
    }

    /// Returns whether both members are made from equal items of ClusterSources.
    pub(crate) fn is_same_item(&self, other: &Self) -> bool {
        let fingerprint = |member: &Self| member.item.as_ref().map(|own| own.fingerprint);
        fingerprint(self).is_some() && fingerprint(self) == fingerprint(other)
    }

    /// Describes the object of the hub, for messages.
    pub(crate) fn origin(&self) -> String {
        match &self.item {
            None => format!("UpstreamCluster {} of the hub", self.object.name),
            Some(own) => format!("{} of ClusterSource {}", own.describe(), own.source),
        }
    }

    /// Returns the object of the hub, for the resource `clusters`.
    pub(crate) fn member_source(&self) -> MemberSource {
        match &self.item {
            None => MemberSource { kind: "UpstreamCluster", name: self.object.name.clone(), item: None },
            Some(own) => MemberSource { kind: "ClusterSource", name: own.source.clone(), item: Some(own.describe()) },
        }
    }
}

/// The resourceVersions of an object and of its Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenVersions {
    pub(crate) object: ResourceVersion,
    pub(crate) secret: Option<ResourceVersion>,
}

impl MemberInForce {
    /// Returns the values from which the configuration is made.
    fn configured_values(&self) -> impl PartialEq + '_ {
        let metadata = &self.cluster.metadata;
        let spec = self.spec.as_ref().map(|spec| (&spec.user_fingerprint, spec.config.is_ok()));
        let secret = self.seen.and_then(|seen| seen.secret);
        let item = self.item.as_ref().map(|own| (&own.source, own.fingerprint));
        (&self.object, &metadata.labels, &metadata.annotations, self.resolved.is_some(), spec, secret, item)
    }
}

/// Returns whether both maps have the same generations of the same objects.
fn same_objects<T>(own: &BTreeMap<String, ObjectInForce<T>>, before: &BTreeMap<String, ObjectInForce<T>>) -> bool {
    own.values().map(|own| &own.object).eq(before.values().map(|before| &before.object))
}

/// Returns the sort key of an object in conflicts: an unchanged object wins, then the object that was accepted first,
/// then the older object, then the order of names. `order` is `None` for an object that was never accepted.
pub(crate) fn conflict_order(
    is_unchanged: bool,
    order: Option<u64>,
    created: &str,
    object: &ObjectReference,
) -> (bool, u64, String, String) {
    (!is_unchanged, order.unwrap_or(u64::MAX), created.to_owned(), object.name.clone())
}

/// The objects of the hub that are in force. Serializes to the copy in the data directory, which contains credentials.
#[derive(Default, Serialize, Deserialize)]
pub struct InForce {
    /// The order of the next object that is accepted for the first time.
    pub(crate) next_order: u64,
    /// The members by name. An acceptance copies the map, but replaces only the values of changed members, so unchanged
    /// values are shared.
    pub(crate) members: Arc<BTreeMap<String, Arc<MemberInForce>>>,
    pub(crate) registries: BTreeMap<String, ObjectInForce<ResourceRegistry>>,
    pub(crate) merged_endpoints: BTreeMap<String, ObjectInForce<MergedEndpoint>>,
    pub(crate) denied_users: BTreeMap<String, ObjectInForce<BTreeSet<String>>>,
    #[serde(default)]
    pub(crate) sources: BTreeMap<String, ObjectInForce<ClusterSource>>,
    /// The last complete PlacementDecisions.
    #[serde(default)]
    pub(crate) selections: Selections,
    /// Karmada's ResourceRegistries, by the name of the ClusterSource.
    #[serde(default)]
    pub(crate) karmada_registries: BTreeMap<String, Vec<KarmadaRegistry>>,
    /// The last reading of each source in force.
    #[serde(skip)]
    pub(crate) readings: BTreeMap<String, SourceReading>,
}

impl InForce {
    /// Returns the lists of the sources in force.
    pub(crate) fn source_lists(&self) -> impl Iterator<Item = (&String, &SourceList)> {
        self.readings.iter().map(|(name, reading)| (name, reading.reader.list()))
    }

    /// Returns the namespaces whose PlacementDecisions the accepted ResourceRegistries name.
    pub(crate) fn decision_namespaces(&self) -> BTreeSet<&str> {
        let selections = self.registries.values().map(|registry| &registry.value.spec.clusters);
        let references = selections.filter_map(|clusters| clusters.placement_decision.as_ref());
        references.map(|reference| reference.namespace.as_str()).collect()
    }

    /// Returns the generation in force of each member, sorted by name.
    pub fn member_generations(&self) -> Vec<(String, i64)> {
        self.members.iter().map(|(name, member)| (name.clone(), member.object.generation)).collect()
    }

    /// Returns the priority of a member in conflicts, where the lowest value wins: UpstreamClusters before items of
    /// sources, then the order of first acceptance.
    pub fn order_of(&self, name: &str) -> Option<(bool, u64)> {
        self.members.get(name).map(|member| (member.item.is_some(), member.order))
    }

    /// Copies the objects in force, without the readings of sources.
    pub(crate) fn without_readings(&self) -> Self {
        Self {
            next_order: self.next_order,
            members: Arc::clone(&self.members),
            registries: self.registries.clone(),
            merged_endpoints: self.merged_endpoints.clone(),
            denied_users: self.denied_users.clone(),
            sources: self.sources.clone(),
            selections: self.selections.clone(),
            karmada_registries: self.karmada_registries.clone(),
            readings: BTreeMap::new(),
        }
    }

    /// Returns whether any value from which the configuration is made differs. Writes of status change no such value.
    pub(crate) fn differs_from(&self, before: &Self) -> bool {
        let same_members =
            self.members.len() == before.members.len()
                && self.members.values().zip(before.members.values()).all(|(own, before)| {
                    Arc::ptr_eq(own, before) || own.configured_values() == before.configured_values()
                });
        !same_members
            || !same_objects(&self.registries, &before.registries)
            || !same_objects(&self.merged_endpoints, &before.merged_endpoints)
            || !same_objects(&self.denied_users, &before.denied_users)
            || !same_objects(&self.sources, &before.sources)
            || self.selections != before.selections
            || self.karmada_registries != before.karmada_registries
    }

    /// Reserves and returns the position of an object that is accepted for the first time.
    pub(crate) fn reserve_order(&mut self) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        order
    }
}

/// The last reading of a source. An item is read again if the object, a Secret that it uses or the source changes.
#[derive(Clone)]
pub(crate) struct SourceReading {
    /// The source in force.
    pub(crate) source: ClusterSource,
    pub(crate) reader: Arc<SourceReader>,
    /// The readings by the uid of the item.
    pub(crate) items: HashMap<String, ItemReading>,
}

impl SourceReading {
    pub(crate) fn new(source: ClusterSource, reader: SourceReader) -> Self {
        Self { source, reader: Arc::new(reader), items: HashMap::new() }
    }
}

#[derive(Clone)]
pub(crate) struct ItemReading {
    pub(crate) version: ResourceVersion,
    pub(crate) secrets: Vec<UsedSecret>,
    pub(crate) result: Result<Arc<MemberInForce>, UnusableItem>,
}

/// The reason why an item is not used.
#[derive(Clone)]
pub(crate) struct UnusableItem {
    pub(crate) state: ConditionState,
    /// Whether the member may continue with its last accepted generation.
    pub(crate) keeps_earlier: bool,
}
