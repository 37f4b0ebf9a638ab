//! An item of a source: a member, or an object that is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;
use tributary_authentication::IdentityPolicy;
use tributary_crds::cluster_source::DoorAuthorization;
use tributary_crds::{SecretText, UpstreamCluster, UpstreamClusterSpec};

use crate::credential_command::CredentialCommand;
use crate::source_kind::SourceKind;

/// A member that a source yields. Serializes with its credentials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceItem {
    /// The kind of the foreign list that contains the object.
    pub list: SourceKind,
    /// The object of the foreign list from which the member was read.
    pub object: ItemObject,
    /// The name of the cluster in the foreign system. Clients of that system address the cluster by this name.
    pub foreign_name: String,
    /// The name of the member.
    pub name: ClusterName,
    /// The labels of the member, by which registries select it.
    pub labels: BTreeMap<String, String>,
    /// The address and the credentials of the member. The credentials are inline, unless a command prints them.
    pub spec: UpstreamClusterSpec,
    /// The command that prints the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CredentialCommand>,
    /// The reason why the item cannot become a member yet. An item that was a member before stays.
    #[serde(skip)]
    pub not_ready: Option<ItemWarning>,
    /// The user that the member sees.
    pub identity: IdentityPolicy,
    /// The rights in the hub that a request through the door needs.
    #[serde(default)]
    pub authorize: DoorAuthorization,
    /// The uid of the namespace kube-system according to the foreign system. The cluster itself can report a different
    /// uid.
    pub uid: Option<String>,
    /// The token for requests that impersonate users, if it differs from the token for Tributary's own requests
    /// (Karmada).
    pub impersonator: Option<SecretText>,
    /// Headers of the request to the proxy in `spec.proxyURL`. They can contain a password.
    pub proxy_headers: BTreeMap<String, Vec<SecretText>>,
    /// The name for people (cluster-gateway).
    pub alias: Option<String>,
    /// The only namespaces that the member may serve (Argo CD). All if unset.
    pub scope: Option<NamespaceScope>,
    /// Settings that lower safety, or have no effect.
    #[serde(skip)]
    pub warnings: Vec<ItemWarning>,
}

/// The object of a list that describes a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemObject {
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
    /// All labels of the object.
    pub labels: BTreeMap<String, String>,
    /// The creation time of the object, in RFC 3339. An older item has priority in conflicts.
    pub created: String,
}

impl SourceItem {
    /// Returns the member in the form of a configuration object. The uid is left out, because it comes from the foreign
    /// system, not from the cluster.
    pub fn upstream_cluster(&self) -> UpstreamCluster {
        let mut cluster = UpstreamCluster::new(self.name.as_str(), self.spec.clone());
        cluster.metadata.labels = Some(self.labels.clone()).filter(|labels| !labels.is_empty());
        cluster
    }
}

/// The namespaces of a cluster that a foreign system manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceScope {
    /// The namespaces; at least one.
    pub namespaces: Vec<String>,
    /// Whether cluster-scoped resources belong to the scope.
    pub cluster_resources: bool,
}

/// A setting of an item that lowers safety, or has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemWarning {
    /// The reason for programs, in CamelCase.
    pub reason: &'static str,
    /// The reason for people, without secrets.
    pub message: String,
}

/// An object of a list that does not become a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedItem {
    /// The name of the object.
    pub name: String,
    /// The reason for programs, in CamelCase.
    pub reason: &'static str,
    /// The reason for people: the field, the problem and the remedy, without secrets.
    pub message: String,
}

impl RefusedItem {
    /// Returns whether the member continues with its last accepted credential although its object is now refused. False
    /// if the Secret does not allow the member or its hosts, or if the foreign system has not accepted the cluster.
    pub fn keeps_earlier(&self) -> bool {
        !matches!(self.reason, "SecretOfOtherCluster" | "HostNotAllowed" | "NotAccepted")
    }
}
