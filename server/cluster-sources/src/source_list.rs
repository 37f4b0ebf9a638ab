//! The collections that a source lists and watches.

use tributary_apimachinery::GroupVersionResource;
use tributary_crds::ClusterSourceSpec;
use tributary_crds::cluster_source::{
    ClusterProfiles, KarmadaClusters, KubeGatewayClusters, ManagedClusters, SecretList,
};

use crate::label_selector::format_label_selector;
use crate::source_kind::SourceKind;
use crate::{SourceRefusal, argo_cd, cluster_gateway, kubeconfig_secret, managed_cluster};

/// The list of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceList {
    /// Secrets of cluster-gateway.
    ClusterGatewaySecrets(SecretList),
    /// Clusters of Karmada.
    KarmadaClusters(KarmadaClusters),
    /// ClusterProfiles of SIG Multicluster.
    ClusterProfiles(ClusterProfiles),
    /// Kubeconfig Secrets of multicluster-runtime.
    KubeconfigSecrets(SecretList),
    /// Cluster Secrets of Argo CD.
    ArgoCdSecrets(SecretList),
    /// ManagedClusters of Open Cluster Management.
    ManagedClusters(ManagedClusters),
    /// UpstreamClusters of KubeGateway.
    KubeGatewayClusters(KubeGatewayClusters),
}

/// A collection to list and watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceCollection {
    /// The resource. Its [`path`](GroupVersionResource::path) with the namespace is the path of the collection.
    pub resource: GroupVersionResource,
    /// The `apiVersion` of the objects.
    pub api_version: String,
    /// The `kind` of the objects.
    pub kind: &'static str,
    /// The namespace; all namespaces, or a cluster-scoped resource, if unset.
    pub namespace: Option<String>,
    /// The value of the parameter `labelSelector`, not percent-encoded. May be empty.
    pub label_selector: String,
}

impl SourceCollection {
    fn new(group: &str, version: &str, resource: &str, kind: &'static str) -> Self {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let resource = GroupVersionResource::new(group, version, resource);
        Self { resource, api_version, kind, namespace: None, label_selector: String::new() }
    }

    fn secrets() -> Self {
        Self::new("", "v1", "secrets", "Secret")
    }
}

impl SourceList {
    /// Returns the list that a source names.
    ///
    /// # Errors
    /// The source names no list, or several lists.
    pub fn from_spec(spec: &ClusterSourceSpec) -> Result<Self, SourceRefusal> {
        let lists = [
            spec.cluster_gateway_secrets.clone().map(Self::ClusterGatewaySecrets),
            spec.karmada_clusters.clone().map(Self::KarmadaClusters),
            spec.cluster_profiles.clone().map(Self::ClusterProfiles),
            spec.kubeconfig_secrets.clone().map(Self::KubeconfigSecrets),
            spec.argo_cd_secrets.clone().map(Self::ArgoCdSecrets),
            spec.managed_clusters.clone().map(Self::ManagedClusters),
            spec.kube_gateway_clusters.clone().map(Self::KubeGatewayClusters),
        ];
        let mut lists = lists.into_iter().flatten();
        match (lists.next(), lists.next()) {
            (Some(list), None) => Ok(list),
            _ => {
                Err(SourceRefusal::new("Invalid", "spec names no list of clusters, or several. Name exactly one list."))
            }
        }
    }

    /// Returns the kind of the list.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::ClusterGatewaySecrets(_) => SourceKind::ClusterGatewaySecrets,
            Self::KarmadaClusters(_) => SourceKind::KarmadaClusters,
            Self::ClusterProfiles(_) => SourceKind::ClusterProfiles,
            Self::KubeconfigSecrets(_) => SourceKind::KubeconfigSecrets,
            Self::ArgoCdSecrets(_) => SourceKind::ArgoCdSecrets,
            Self::ManagedClusters(_) => SourceKind::ManagedClusters,
            Self::KubeGatewayClusters(_) => SourceKind::KubeGatewayClusters,
        }
    }

    /// Returns the collection of the items.
    pub fn items(&self) -> SourceCollection {
        let secrets = |list: &SecretList, label: &str| SourceCollection {
            namespace: Some(list.namespace.clone()),
            label_selector: format_label_selector(label, list.label_selector.as_ref()),
            ..SourceCollection::secrets()
        };
        let objects = |group, version, resource, kind, selector: &Option<_>| SourceCollection {
            label_selector: format_label_selector("", selector.as_ref()),
            ..SourceCollection::new(group, version, resource, kind)
        };
        match self {
            Self::ClusterGatewaySecrets(list) => secrets(list, cluster_gateway::CREDENTIAL_TYPE),
            Self::KubeconfigSecrets(list) => secrets(list, kubeconfig_secret::LABEL),
            Self::ArgoCdSecrets(list) => secrets(list, argo_cd::LABEL),
            Self::KarmadaClusters(list) => {
                objects("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", &list.label_selector)
            }
            Self::ClusterProfiles(list) => SourceCollection {
                namespace: list.namespace.clone(),
                ..objects(
                    "multicluster.x-k8s.io",
                    "v1alpha1",
                    "clusterprofiles",
                    "ClusterProfile",
                    &list.label_selector,
                )
            },
            Self::ManagedClusters(list) => {
                let group = "cluster.open-cluster-management.io";
                objects(group, "v1", "managedclusters", "ManagedCluster", &list.label_selector)
            }
            Self::KubeGatewayClusters(list) => {
                let group = "proxy.kubegateway.io";
                objects(group, "v1alpha1", "upstreamclusters", "UpstreamCluster", &list.label_selector)
            }
        }
    }

    /// Returns the collection of the Secrets to which items refer; `None` if the items have their credentials
    /// themselves.
    pub fn secrets(&self) -> Option<SourceCollection> {
        match self {
            Self::KarmadaClusters(list) => {
                Some(SourceCollection { namespace: Some(list.namespace.clone()), ..SourceCollection::secrets() })
            }
            Self::ManagedClusters(_) => Some(SourceCollection {
                label_selector: managed_cluster::SECRET_LABEL.to_owned(),
                ..SourceCollection::secrets()
            }),
            _ => None,
        }
    }

    /// Returns the collection of Karmada's ResourceRegistries; `None` for a list of a different system.
    pub fn registries(&self) -> Option<SourceCollection> {
        let is_karmada = matches!(self, Self::KarmadaClusters(_));
        let registries =
            || SourceCollection::new("search.karmada.io", "v1alpha1", "resourceregistries", "ResourceRegistry");
        is_karmada.then(registries)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn list(spec: Value) -> Result<SourceList, SourceRefusal> {
        SourceList::from_spec(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn each_list_names_its_collections() {
        let secrets = json!({"namespace": "ns", "labelSelector": {"matchLabels": {"a": "b"}}});
        for (field, value, path, selector, secrets) in [
            (
                "clusterGatewaySecrets",
                &secrets,
                "/api/v1/namespaces/ns/secrets",
                "cluster.core.oam.dev/cluster-credential-type,a=b",
                None,
            ),
            (
                "kubeconfigSecrets",
                &secrets,
                "/api/v1/namespaces/ns/secrets",
                "sigs.k8s.io/multicluster-runtime-kubeconfig=true,a=b",
                None,
            ),
            (
                "argoCDSecrets",
                &secrets,
                "/api/v1/namespaces/ns/secrets",
                "argocd.argoproj.io/secret-type=cluster,a=b",
                None,
            ),
            (
                "karmadaClusters",
                &json!({}),
                "/apis/cluster.karmada.io/v1alpha1/clusters",
                "",
                Some("/api/v1/namespaces/karmada-cluster/secrets?"),
            ),
            (
                "managedClusters",
                &json!({"managedServiceAccount": "tributary"}),
                "/apis/cluster.open-cluster-management.io/v1/managedclusters",
                "",
                Some("/api/v1/secrets?authentication.open-cluster-management.io/is-managed-serviceaccount=true"),
            ),
            (
                "clusterProfiles",
                &json!({"namespace": "fleet"}),
                "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles",
                "",
                None,
            ),
            ("clusterProfiles", &json!({}), "/apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles", "", None),
            ("kubeGatewayClusters", &json!({}), "/apis/proxy.kubegateway.io/v1alpha1/upstreamclusters", "", None),
        ] {
            let list = list(json!({ field: value })).unwrap();
            assert_eq!(list.kind().field(), field);
            let items = list.items();
            let path_of = |collection: &SourceCollection| collection.resource.path(collection.namespace.as_deref());
            assert_eq!((path_of(&items).as_str(), items.label_selector.as_str()), (path, selector), "{field}");
            let found = list.secrets().map(|own| format!("{}?{}", path_of(&own), own.label_selector));
            assert_eq!(found.as_deref(), secrets, "{field}");
        }
    }

    #[test]
    fn source_without_exactly_one_supported_list_is_refused() {
        for (spec, reason) in [
            (json!({}), "Invalid"),
            (json!({"karmadaClusters": {}, "kubeGatewayClusters": {}}), "Invalid"),
            (json!({"karmadaClusters": {}, "clusterProfiles": {}}), "Invalid"),
        ] {
            assert_eq!(list(spec.clone()).unwrap_err().reason, reason, "{spec}");
        }
    }
}
