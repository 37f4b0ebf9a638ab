//! `ClusterSource`: a list of clusters in a foreign system, whose items become members.

#![expect(clippy::duplicated_attributes, reason = "every printer column has a `type_` and a `json_path` of its own")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ClusterSourceStatus;
use crate::identity_rule::SourceIdentity;
use crate::resource_registry::label_selector_schema;

/// A list of clusters in a foreign system. Each item of the list becomes a member.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tributary.dev",
    version = "v1alpha1",
    kind = "ClusterSource",
    plural = "clustersources",
    category = "tributary",
    derive = "PartialEq",
    status = "ClusterSourceStatus",
    doc = "A list of clusters in a foreign system. Each item of the list becomes a member.",
    printcolumn(name = "List", type_ = "string", json_path = ".status.list"),
    printcolumn(name = "Found", type_ = "integer", json_path = ".status.found"),
    printcolumn(name = "Accepted", type_ = "integer", json_path = ".status.accepted"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "[has(self.clusterGatewaySecrets), has(self.karmadaClusters), has(self.clusterProfiles), has(self.kubeconfigSecrets), has(self.argoCDSecrets), has(self.managedClusters), has(self.kubeGatewayClusters)].filter(given, given).size() == 1",
     "message": "give exactly one of clusterGatewaySecrets, karmadaClusters, clusterProfiles, kubeconfigSecrets, argoCDSecrets, managedClusters and kubeGatewayClusters"}
]))]
pub struct ClusterSourceSpec {
    /// Secrets of cluster-gateway (KubeVela), with the label `cluster.core.oam.dev/cluster-credential-type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_gateway_secrets: Option<SecretList>,
    /// Clusters of Karmada (`cluster.karmada.io/v1alpha1`), with their Secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub karmada_clusters: Option<KarmadaClusters>,
    /// ClusterProfiles (`multicluster.x-k8s.io/v1alpha1`). Tributary also needs the flags `--cluster-profile-providers`
    /// and `--exec-allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profiles: Option<ClusterProfiles>,
    /// Secrets with a kubeconfig in the key `kubeconfig`, and multicluster-runtime's label
    /// `sigs.k8s.io/multicluster-runtime-kubeconfig: "true"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secrets: Option<SecretList>,
    /// Cluster Secrets of Argo CD, with the label `argocd.argoproj.io/secret-type: cluster`.
    #[serde(rename = "argoCDSecrets", skip_serializing_if = "Option::is_none")]
    pub argo_cd_secrets: Option<SecretList>,
    /// ManagedClusters of Open Cluster Management, with the token of a ManagedServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_clusters: Option<ManagedClusters>,
    /// UpstreamClusters of KubeGateway (`proxy.kubegateway.io/v1alpha1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_gateway_clusters: Option<KubeGatewayClusters>,
    /// The user that the members see.
    #[serde(skip_serializing_if = "SourceIdentity::is_default")]
    pub identity: SourceIdentity,
    /// The rights in the hub that a request through the door of the source's system needs. `Proxy`, the default: the
    /// right to `proxy` of the name in the path. `Inner`: also the right to the inner request, as if the client had
    /// sent it to the hub. Only for `clusterGatewaySecrets`.
    #[serde(skip_serializing_if = "DoorAuthorization::is_proxy")]
    pub authorize: DoorAuthorization,
    /// Keys of the labels that a member takes over from its item. `*` stands for all labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 317)))]
    pub placement_labels: Vec<String>,
    /// The decision about an item without certificate authorities, or with verification turned off. `Refuse`, the
    /// default: the item is refused. `Insecure`: the member's servers are not verified, so anyone on the network path
    /// can read and change all data; Tributary also needs the flag `--hub-allow-insecure-skip-verify`.
    #[serde(rename = "missingCA", skip_serializing_if = "MissingCa::is_refuse")]
    pub missing_ca: MissingCa,
}

/// The Secrets of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretList {
    /// The namespace of the Secrets.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Secrets to read. All Secrets with the list's own label if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub label_selector: Option<LabelSelector>,
}

/// The Clusters of Karmada.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KarmadaClusters {
    /// The only namespace of the Secrets. Clusters with Secrets in a different namespace are refused.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Clusters to read. All if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub label_selector: Option<LabelSelector>,
}

impl Default for KarmadaClusters {
    /// Returns all Clusters, with the default of the flag `--cluster-namespace` of karmadactl.
    fn default() -> Self {
        Self { namespace: "karmada-cluster".to_owned(), label_selector: None }
    }
}

/// The ClusterProfiles of one or all namespaces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfiles {
    /// The namespace of the profiles. All namespaces if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The profiles to read. All if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub label_selector: Option<LabelSelector>,
}

/// The ManagedClusters of Open Cluster Management.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusters {
    /// The name of a ManagedServiceAccount in the namespace of each cluster. Its Secret has the token.
    #[schemars(length(min = 1, max = 253))]
    pub managed_service_account: String,
    /// The ManagedClusters to read. All if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub label_selector: Option<LabelSelector>,
    /// The user-server of cluster-proxy, through which Tributary connects to the clusters. If unset, Tributary connects
    /// to the first address in `spec.managedClusterClientConfigs` of each cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_server: Option<UserServer>,
    /// Whether requests to the API of one cluster reach the cluster with the user's own bearer token, if the cluster
    /// authenticated the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_pass_through: bool,
}

/// The user-server of Open Cluster Management's cluster-proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserServer {
    /// The address, for example `https://cluster-proxy-addon-user.open-cluster-management-addon.svc:9092`. The name of
    /// the cluster follows as a path.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// Certificate authorities of the user-server: base64 of PEM text, for example of `tls.crt` in the Secret
    /// `cluster-proxy-user-serving-cert`.
    pub ca_data: String,
    /// The expected name in the certificate of the user-server, if it differs from the host of `url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tls_server_name: Option<String>,
}

/// The UpstreamClusters of KubeGateway.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeGatewayClusters {
    /// The UpstreamClusters to read. All if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub label_selector: Option<LabelSelector>,
}

/// The rights in the hub that a request through a door needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DoorAuthorization {
    /// The right to `proxy` of the name in the path.
    #[default]
    Proxy,
    /// Also the right to the inner request.
    Inner,
}

impl DoorAuthorization {
    /// Returns whether only the right to `proxy` is needed.
    pub fn is_proxy(&self) -> bool {
        *self == Self::Proxy
    }
}

/// The decision about an item whose servers cannot be verified.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MissingCa {
    /// The item is refused.
    #[default]
    Refuse,
    /// The servers of the member are not verified.
    Insecure,
}

impl MissingCa {
    fn is_refuse(&self) -> bool {
        *self == Self::Refuse
    }
}
