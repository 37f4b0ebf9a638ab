//! Configuration of a cluster, and the parts of it whose change requires a new cluster.

use tributary_apimachinery::{ClusterAuthorization, ClusterName};
use tributary_authentication::MemberRules;
use tributary_proxy::ClusterClient;

use super::address::ClusterAddress;

/// Configuration of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSetup {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Client of the cluster, or the reason for which the cluster has no client (a missing file, for example).
    pub client: Result<ClusterClient, String>,
    /// Generation of the client. A different number means a new client with new connections.
    pub client_generation: u64,
    /// Address of the cluster. Credentials are no part of the address, because the client renews them itself.
    pub address: ClusterAddress,
    /// Number of the cluster in integer resourceVersions (`itemResourceVersions: Integer`), if one is configured.
    pub index: Option<u16>,
    /// Attributes of users that the cluster may see in shared mode, in addition to names and groups.
    pub impersonation: MemberRules,
    /// Method by which Tributary decides, in shared mode, which cached objects a user may see.
    pub authorization: ClusterAuthorization,
}

impl ClusterSetup {
    /// Returns the revision of the configuration. A cluster with an equal revision keeps its connections and caches.
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

/// Parts of a configuration whose change requires a new [`Cluster`](super::Cluster). The value is only compared.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupRevision {
    /// Generation of the client, or the reason for which the cluster has no client. A client that becomes possible
    /// later is a new client.
    client: Result<u64, String>,
    address: ClusterAddress,
    /// Number of the cluster in the integer resourceVersions of its objects.
    index: Option<u16>,
    impersonation: MemberRules,
    authorization: ClusterAuthorization,
}
