//! The resources that a simulated member serves.

/// The discovery information about a resource.
#[derive(Debug)]
pub(crate) struct CatalogResource {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The plural name in paths.
    pub(crate) name: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) subresources: &'static [&'static str],
    /// The field selectors that the resource supports besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
}

impl CatalogResource {
    /// Returns the group and version, for example `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the name in messages, for example `pods` or `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }
}

pub(crate) type ResourceIndex = usize;

pub(crate) const CONFIGMAPS: ResourceIndex = 0;
pub(crate) const EVENTS: ResourceIndex = 1;
pub(crate) const NAMESPACES: ResourceIndex = 2;
pub(crate) const NODES: ResourceIndex = 3;
pub(crate) const PODS: ResourceIndex = 4;
pub(crate) const SERVICEACCOUNTS: ResourceIndex = 6;
pub(crate) const SERVICES: ResourceIndex = 7;
pub(crate) const DEPLOYMENTS: ResourceIndex = 8;
pub(crate) const REPLICASETS: ResourceIndex = 9;

const CORE: CatalogResource = CatalogResource {
    group: "",
    version: "v1",
    name: "",
    singular: "",
    kind: "",
    namespaced: true,
    short_names: &[],
    categories: &[],
    subresources: &[],
    fields: &[],
};

const RBAC: CatalogResource = CatalogResource { group: RBAC_GROUP, ..CORE };

/// The API group of roles and bindings. The simulator stores these objects, but does not authorize by them.
pub(crate) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// All resources: first the core group, and each group sorted by name.
pub(crate) static CATALOG: [CatalogResource; 15] = [
    CatalogResource { name: "configmaps", singular: "configmap", kind: "ConfigMap", short_names: &["cm"], ..CORE },
    CatalogResource {
        name: "events",
        singular: "event",
        kind: "Event",
        short_names: &["ev"],
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ..CORE
    },
    CatalogResource {
        name: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        namespaced: false,
        short_names: &["ns"],
        subresources: &["status"],
        fields: &["status.phase"],
        ..CORE
    },
    CatalogResource {
        name: "nodes",
        singular: "node",
        kind: "Node",
        namespaced: false,
        short_names: &["no"],
        subresources: &["status"],
        fields: &["spec.unschedulable"],
        ..CORE
    },
    CatalogResource {
        name: "pods",
        singular: "pod",
        kind: "Pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &["binding", "ephemeralcontainers", "log", "status"],
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ..CORE
    },
    CatalogResource { name: "secrets", singular: "secret", kind: "Secret", fields: &["type"], ..CORE },
    CatalogResource {
        name: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short_names: &["sa"],
        ..CORE
    },
    CatalogResource {
        name: "services",
        singular: "service",
        kind: "Service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &["status"],
        fields: &["spec.clusterIP", "spec.type"],
        ..CORE
    },
    CatalogResource {
        group: "apps",
        name: "deployments",
        singular: "deployment",
        kind: "Deployment",
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &["scale", "status"],
        ..CORE
    },
    CatalogResource {
        group: "apps",
        name: "replicasets",
        singular: "replicaset",
        kind: "ReplicaSet",
        short_names: &["rs"],
        categories: &["all"],
        subresources: &["scale", "status"],
        fields: &["status.replicas"],
        ..CORE
    },
    CatalogResource {
        name: "clusterrolebindings",
        singular: "clusterrolebinding",
        kind: "ClusterRoleBinding",
        namespaced: false,
        ..RBAC
    },
    CatalogResource { name: "clusterroles", singular: "clusterrole", kind: "ClusterRole", namespaced: false, ..RBAC },
    CatalogResource { name: "rolebindings", singular: "rolebinding", kind: "RoleBinding", ..RBAC },
    CatalogResource { name: "roles", singular: "role", kind: "Role", ..RBAC },
    CatalogResource {
        group: CUSTOM_GROUP_VERSION.0,
        version: CUSTOM_GROUP_VERSION.1,
        name: "networksets",
        singular: "networkset",
        kind: "NetworkSet",
        ..CORE
    },
];

/// The group versions in the order of the discovery document.
pub(crate) static GROUP_VERSIONS: [(&str, &str); 3] = [("", "v1"), ("apps", "v1"), (RBAC_GROUP, "v1")];

/// The group version of [`CUSTOM_RESOURCE`], which has no OpenAPI document and no protobuf.
pub(crate) const CUSTOM_GROUP_VERSION: (&str, &str) = ("projectcalico.org", "v3");

/// The only custom resource of the simulator. The member does not serve the resource until a test enables it.
pub(crate) const CUSTOM_RESOURCE: &str = "networksets.projectcalico.org";

pub(crate) fn find(group: &str, version: &str, name: &str) -> Option<ResourceIndex> {
    CATALOG.iter().position(|r| r.group == group && r.version == version && r.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_index_constants_match_the_catalog() {
        for (index, name) in [
            (CONFIGMAPS, "configmaps"),
            (EVENTS, "events"),
            (NAMESPACES, "namespaces"),
            (NODES, "nodes"),
            (PODS, "pods"),
            (SERVICEACCOUNTS, "serviceaccounts"),
            (SERVICES, "services"),
            (DEPLOYMENTS, "deployments"),
            (REPLICASETS, "replicasets"),
        ] {
            assert_eq!(CATALOG[index].name, name);
        }
        assert!(CATALOG.iter().any(|resource| resource.qualified() == CUSTOM_RESOURCE));
        assert_eq!(find("apps", "v1", "deployments"), Some(DEPLOYMENTS));
        assert_eq!(find("", "v1", "deployments"), None);
    }
}
