//! The objects of the hub that are in force: the last accepted generation of each object.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tributary_apimachinery::ResourceVersion;
use tributary_crds::{MergedEndpoint, ResourceRegistry, UpstreamCluster, UpstreamClusterSpec};
use tributary_sources::ClusterSpec;

use crate::ObjectReference;

/// The last accepted generation of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ObjectInForce<T> {
    pub(crate) object: ObjectReference,
    /// Position of the object in the order of first acceptance. The lower order wins a conflict.
    pub(crate) order: u64,
    pub(crate) value: T,
}

/// The last accepted generation of a member, with its credentials.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct MemberInForce {
    pub(crate) object: ObjectReference,
    /// Position of the object in the order of first acceptance. The lower order wins a conflict.
    pub(crate) order: u64,
    /// The object as written in the hub.
    pub(crate) cluster: UpstreamCluster,
    /// The spec with the values of the Secret. `None` if no credential was ever resolved.
    pub(crate) resolved: Option<UpstreamClusterSpec>,
    /// The description for the router. Made anew after a start.
    #[serde(skip)]
    pub(crate) spec: Option<Arc<ClusterSpec>>,
    /// The versions from which this value was made. Equal versions need no new judgement.
    #[serde(skip)]
    pub(crate) seen: Option<SeenVersions>,
}

/// The versions of an object and of its Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenVersions {
    pub(crate) object: ResourceVersion,
    pub(crate) secret: Option<ResourceVersion>,
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
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct InForce {
    /// The order of the next object that is accepted for the first time.
    pub(crate) next_order: u64,
    pub(crate) members: BTreeMap<String, MemberInForce>,
    pub(crate) registries: BTreeMap<String, ObjectInForce<ResourceRegistry>>,
    pub(crate) merged_endpoints: BTreeMap<String, ObjectInForce<MergedEndpoint>>,
    pub(crate) denied_users: BTreeMap<String, ObjectInForce<BTreeSet<String>>>,
}

impl InForce {
    /// Returns the generation in force of each member, sorted by name.
    pub fn member_generations(&self) -> Vec<(String, i64)> {
        self.members.iter().map(|(name, member)| (name.clone(), member.object.generation)).collect()
    }

    /// Returns the position of a member in the order of first acceptance.
    pub fn order_of(&self, name: &str) -> Option<u64> {
        self.members.get(name).map(|member| member.order)
    }

    /// Returns a hash of all values that the configuration depends on. Writes of status leave the hash unchanged.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for member in self.members.values() {
            let metadata = &member.cluster.metadata;
            member.object.hash(&mut hasher);
            (&metadata.labels, &metadata.annotations, member.resolved.is_some()).hash(&mut hasher);
            member.spec.as_ref().map(|spec| &spec.user_fingerprint).hash(&mut hasher);
            member.spec.as_ref().map(|spec| spec.config.is_ok()).hash(&mut hasher);
            member.seen.and_then(|seen| seen.secret).hash(&mut hasher);
        }
        let registries = self.registries.values().map(|own| &own.object);
        let endpoints = self.merged_endpoints.values().map(|own| &own.object);
        let denied = self.denied_users.values().map(|own| &own.object);
        registries.chain(endpoints).chain(denied).for_each(|object| object.hash(&mut hasher));
        hasher.finish()
    }

    /// Returns the order of an object that is accepted for the first time.
    pub(crate) fn reserve_order(&mut self) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        order
    }
}
