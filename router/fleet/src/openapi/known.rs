//! What members said last of their OpenAPI documents: a value that can be kept beyond this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tributary_apimachinery::ClusterName;

use super::cache::DocumentKey;
use super::sources::OpenApiIndex;
use crate::topology::{Cluster, ClusterAddress};

/// What is known of the members' documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownOpenApi {
    /// What each member said last.
    pub members: BTreeMap<ClusterName, KnownMember>,
    /// Documents that members gave, compressed by gzip. The one that was used last comes first.
    pub documents: Vec<(DocumentKey, Bytes)>,
}

/// What one member said last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownMember {
    /// Which cluster it was then: the uid of its namespace kube-system, if it told.
    pub uid: Option<Arc<String>>,
    /// How it was reached.
    pub address: Option<ClusterAddress>,
    /// Its v3 documents.
    pub index: Option<Arc<OpenApiIndex>>,
    /// The tag of its v2 document.
    pub(crate) swagger: Option<String>,
}

impl KnownMember {
    /// What tells the contents of its documents apart from others.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let of_index = self.index.iter().flat_map(|index| index.hashes());
        of_index.chain(self.swagger.as_deref())
    }

    /// Whether this cluster said so: it has the same uid, or where one of the two is not known, the same address.
    pub(super) fn is_of(&self, cluster: &Cluster) -> bool {
        match (&self.uid, cluster.uid()) {
            (Some(known), Some(uid)) => *known == uid,
            _ => self.address.as_ref() == Some(cluster.address()),
        }
    }

    /// Makes it that of this cluster: what another one said goes.
    pub(super) fn become_of(&mut self, cluster: &Cluster) {
        if !self.is_of(cluster) {
            *self = Self::default();
        }
        self.uid = cluster.uid().or(self.uid.take());
        self.address = Some(cluster.address().clone());
    }
}
