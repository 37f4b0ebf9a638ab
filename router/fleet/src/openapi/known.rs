//! Last known OpenAPI documents of the clusters, as a value that can be stored for the next process.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tributary_apimachinery::ClusterName;

use super::cache::DocumentKey;
use super::sources::OpenApiIndex;
use crate::topology::{Cluster, ClusterAddress};

/// Last known documents of all clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownOpenApi {
    /// State of each cluster, by name.
    pub members: BTreeMap<ClusterName, KnownMember>,
    /// Documents of the clusters, compressed by gzip. The most recently used document comes first.
    pub documents: Vec<(DocumentKey, Bytes)>,
}

/// Last known documents of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownMember {
    /// Identity of the cluster: the uid of its namespace kube-system, if the cluster reported it.
    pub uid: Option<Arc<String>>,
    /// Address of the cluster.
    pub address: Option<ClusterAddress>,
    /// List of the cluster's v3 documents.
    pub index: Option<Arc<OpenApiIndex>>,
    /// Entity tag of the cluster's v2 document.
    pub(crate) swagger: Option<String>,
}

impl KnownMember {
    /// Returns the entity tags of the cluster's documents.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let of_index = self.index.iter().flat_map(|index| index.hashes());
        of_index.chain(self.swagger.as_deref())
    }

    /// Returns whether this state belongs to the cluster. The uids decide if both are known, else the addresses.
    pub(super) fn is_of(&self, cluster: &Cluster) -> bool {
        match (&self.uid, cluster.uid()) {
            (Some(known), Some(uid)) => *known == uid,
            _ => self.address.as_ref() == Some(cluster.address()),
        }
    }

    /// Assigns this state to a cluster. If the state belongs to a different cluster, clears it first.
    pub(super) fn become_of(&mut self, cluster: &Cluster) {
        if !self.is_of(cluster) {
            *self = Self::default();
        }
        self.uid = cluster.uid().or(self.uid.take());
        self.address = Some(cluster.address().clone());
    }
}
