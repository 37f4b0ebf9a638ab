//! A cluster as the configuration names it, and what of that makes another cluster of it.

use tributary_apimachinery::{ClusterAuthorization, ClusterName};
use tributary_authentication::MemberRules;
use tributary_proxy::ClusterClient;

use super::address::ClusterAddress;

/// A cluster as the configuration names it.
#[derive(Clone, Debug)]
pub struct ClusterSetup {
    /// Its name.
    pub name: ClusterName,
    /// Sends requests to it, or says why none can be sent (a missing file, for example).
    pub client: Result<ClusterClient, String>,
    /// Which of the clients that were made for it that is: another number is another client, with connections of its
    /// own.
    pub client_generation: u64,
    /// How it is reached. Who we are to the cluster is no part of it: the client is told of another user itself.
    pub address: ClusterAddress,
    /// The index of `itemResourceVersions: Integer`, if one is set.
    pub index: Option<u16>,
    /// What it is told of users beyond their names and groups, in the shared mode.
    pub impersonation: MemberRules,
    /// By what it is decided which of its objects users are shown from memory, in the shared mode.
    pub authorization: ClusterAuthorization,
}

impl ClusterSetup {
    /// What an equal one of keeps connections and caches.
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

/// What of a setup makes another cluster of it where it differs. Compared, and neither written nor kept.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupRevision {
    /// The client, or why there is none: one that can be made later is another one, though its description is the same.
    client: Result<u64, String>,
    address: ClusterAddress,
    /// Its objects' versions carry it.
    index: Option<u16>,
    /// In whose name it is asked is settled with the cluster.
    impersonation: MemberRules,
    /// By what it is authorized is, too.
    authorization: ClusterAuthorization,
}
