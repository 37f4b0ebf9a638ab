//! A reading of a foreign object before the settings of the source apply.

use std::collections::BTreeMap;

use tributary_apimachinery::ClusterName;
use tributary_crds::upstream_cluster::INDEX_MAX;
use tributary_crds::{Credentials, SecretText, UpstreamClusterSpec};

use crate::SourceRefusal;
use crate::annotations::CLUSTER_INDEX;
use crate::cluster_name::choose_cluster_name;
use crate::credential_command::CredentialCommand;
use crate::item::{ItemWarning, NamespaceScope};
use crate::object_metadata::ObjectMetadata;
use crate::server_trust::ServerTrust;

/// A reading of a foreign object. [`SourceReader`](crate::SourceReader) adds identity and labels.
pub(crate) struct ItemDraft {
    pub(crate) foreign_name: String,
    pub(crate) name: ClusterName,
    pub(crate) metadata: ObjectMetadata,
    pub(crate) spec: UpstreamClusterSpec,
    /// Location labels. The member gets them even if the source's placement labels do not select them.
    pub(crate) location: BTreeMap<String, String>,
    /// The command that prints the credential, if the credential is not in `spec`.
    pub(crate) command: Option<CredentialCommand>,
    /// The reason why the cluster cannot become a member yet.
    pub(crate) not_ready: Option<ItemWarning>,
    pub(crate) uid: Option<String>,
    pub(crate) impersonator: Option<SecretText>,
    pub(crate) proxy_headers: BTreeMap<String, Vec<SecretText>>,
    pub(crate) alias: Option<String>,
    pub(crate) scope: Option<NamespaceScope>,
    pub(crate) warnings: Vec<ItemWarning>,
}

/// The credential of an item: in the object, or from a command.
pub(crate) enum ItemCredential {
    Stored(Credentials),
    Command(CredentialCommand),
}

impl From<Credentials> for ItemCredential {
    fn from(credentials: Credentials) -> Self {
        Self::Stored(credentials)
    }
}

impl From<CredentialCommand> for ItemCredential {
    fn from(command: CredentialCommand) -> Self {
        Self::Command(command)
    }
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
            command: None,
            not_ready: None,
            uid: None,
            impersonator: None,
            proxy_headers: BTreeMap::new(),
            alias: None,
            scope: None,
            warnings: Vec::new(),
        })
    }

    /// Sets address, verification and credentials of the cluster.
    pub(crate) fn connect(&mut self, endpoint: String, trust: ServerTrust, credential: impl Into<ItemCredential>) {
        self.spec.endpoints = vec![endpoint];
        self.spec.ca_data = trust.ca_data;
        self.spec.insecure_skip_verify = trust.is_insecure;
        match credential.into() {
            ItemCredential::Stored(credentials) => self.spec.credentials = Some(credentials),
            ItemCredential::Command(command) => self.command = Some(command),
        }
        self.warnings.extend(trust.warnings);
    }
}

fn read_index(text: &str) -> Result<u16, SourceRefusal> {
    text.parse().ok().filter(|index| *index <= INDEX_MAX).ok_or_else(|| {
        let message = format!("The annotation {CLUSTER_INDEX} is {text:?}. Give a number from 0 to {INDEX_MAX}.");
        SourceRefusal::new("InvalidIndex", message)
    })
}
