//! A reading of a foreign object before the settings of the source apply.

use std::collections::BTreeMap;

use tributary_apimachinery::ClusterName;
use tributary_crds::upstream_cluster::INDEX_MAX;
use tributary_crds::{Credentials, SecretText, UpstreamClusterSpec};

use crate::SourceRefusal;
use crate::annotations::CLUSTER_INDEX;
use crate::cluster_name::choose_cluster_name;
use crate::item::{ItemWarning, NamespaceScope};
use crate::object_metadata::ObjectMetadata;
use crate::server_trust::ServerTrust;

/// A reading of a foreign object. [`SourceReader`](crate::SourceReader) adds identity and labels.
pub(crate) struct ItemDraft {
    pub(crate) foreign_name: String,
    pub(crate) name: ClusterName,
    pub(crate) metadata: ObjectMetadata,
    pub(crate) spec: UpstreamClusterSpec,
    /// Labels that the member gets in any case.
    pub(crate) location: BTreeMap<String, String>,
    pub(crate) uid: Option<String>,
    pub(crate) impersonator: Option<SecretText>,
    pub(crate) proxy_headers: BTreeMap<String, Vec<SecretText>>,
    pub(crate) alias: Option<String>,
    pub(crate) scope: Option<NamespaceScope>,
    pub(crate) warnings: Vec<ItemWarning>,
}

impl ItemDraft {
    /// Creates a draft without address and credentials.
    ///
    /// # Errors
    /// The annotations with the name or the index of the member are wrong.
    pub(crate) fn new(foreign_name: &str, metadata: ObjectMetadata) -> Result<Self, SourceRefusal> {
        let name = choose_cluster_name(foreign_name, &metadata.annotations)?;
        let index = metadata.annotations.get(CLUSTER_INDEX).map(|text| read_index(text)).transpose()?;
        Ok(Self {
            foreign_name: foreign_name.to_owned(),
            name,
            metadata,
            spec: UpstreamClusterSpec { index, ..UpstreamClusterSpec::default() },
            location: BTreeMap::new(),
            uid: None,
            impersonator: None,
            proxy_headers: BTreeMap::new(),
            alias: None,
            scope: None,
            warnings: Vec::new(),
        })
    }

    /// Sets address, verification and credentials of the cluster.
    pub(crate) fn connect(&mut self, endpoint: String, trust: ServerTrust, credentials: Credentials) {
        self.spec.endpoints = vec![endpoint];
        self.spec.ca_data = trust.ca_data;
        self.spec.insecure_skip_verify = trust.is_insecure;
        self.spec.credentials = Some(credentials);
        self.warnings.extend(trust.warnings);
    }
}

fn read_index(text: &str) -> Result<u16, SourceRefusal> {
    text.parse().ok().filter(|index| *index <= INDEX_MAX).ok_or_else(|| {
        let message = format!("The annotation {CLUSTER_INDEX} is {text:?}. Give a number from 0 to {INDEX_MAX}.");
        SourceRefusal::new("InvalidIndex", message)
    })
}
