//! Configuration of a cluster, and the parts that make a new client necessary.

use tributary_apimachinery::{ClusterAuthorization, ClusterName};
use tributary_authentication::MemberRules;
use tributary_proxy::ClusterClient;

use super::address::ClusterAddress;

/// Configuration of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSetup {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Client of the cluster, or the reason for which there is none (a missing file, for example).
    pub client: Result<ClusterClient, String>,
    /// Number of the client. A different number means a new client with new connections.
    pub client_generation: u64,
    /// Address of the cluster. Credentials are no part of it: the client takes new ones itself.
    pub address: ClusterAddress,
    /// The index of `itemResourceVersions: Integer`, if one is set.
    pub index: Option<u16>,
    /// Attributes of users, beyond names and groups, that the cluster may see in shared mode.
    pub impersonation: MemberRules,
    /// Method by which Tributary decides in shared mode which objects users see from memory.
    pub authorization: ClusterAuthorization,
}

impl ClusterSetup {
    /// Revision. A cluster with an equal one keeps its connections and caches.
    pub fn revision(&self) -> SetupRevision {
        SetupRevision {
            client: self.client.as_ref().map(|_| self.client_generation).map_err(Clone::clone),
            address: self.address.clone(),
            index: self.index,
            impersonation: self.impersonation.clone(),
            authorization: self.authorization,
        }
    }
}

/// Parts of a setup that make a new cluster necessary when they differ. Only compared.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupRevision {
    /// Number of the client, or the reason for which there is none. A client that can be made later is a new one.
    client: Result<u64, String>,
    address: ClusterAddress,
    /// Its objects' versions carry it.
    index: Option<u16>,
    /// Part of the cluster's state.
    impersonation: MemberRules,
    /// Part of the cluster's state, too.
    authorization: ClusterAuthorization,
}
