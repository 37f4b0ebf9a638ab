//! The resources that a simulated member serves.

/// The description of a resource in discovery.
#[derive(Debug)]
pub(crate) struct CatalogResource {
    /// The API group; empty for the core group.
    pub(crate) group: &'static str,
    /// The version within the group.
    pub(crate) version: &'static str,
    /// The plural name in paths.
    pub(crate) name: &'static str,
    /// The singular name of the resource.
    pub(crate) singular: &'static str,
    /// The kind of the objects.
    pub(crate) kind: &'static str,
    /// Whether the resource is namespaced.
    pub(crate) namespaced: bool,
    /// The short names for kubectl.
    pub(crate) short_names: &'static [&'static str],
    /// The categories, for example `all`.
    pub(crate) categories: &'static [&'static str],
    /// The subresources of an object.
    pub(crate) subresources: &'static [&'static str],
    /// The fields for field selectors besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
}

impl CatalogResource {
    /// Returns the group version, `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the name in messages: `pods` or `deployments.apps`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }
}

/// An index in [`CATALOG`].
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

/// The group of roles and bindings, which are stored without an effect.
pub(crate) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// All resources, the core group first, each group by name.
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

/// The group versions, in discovery's order.
pub(crate) static GROUP_VERSIONS: [(&str, &str); 3] = [("", "v1"), ("apps", "v1"), (RBAC_GROUP, "v1")];

/// The group version of [`CUSTOM_RESOURCE`], which has no OpenAPI document and no Protobuf.
pub(crate) const CUSTOM_GROUP_VERSION: (&str, &str) = ("projectcalico.org", "v3");

/// The only custom resource. A member does not serve it from the start.
pub(crate) const CUSTOM_RESOURCE: &str = "networksets.projectcalico.org";

/// Returns the resource that a path names.
pub(crate) fn find(group: &str, version: &str, name: &str) -> Option<ResourceIndex> {
    CATALOG.iter().position(|r| r.group == group && r.version == version && r.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_constants_match_the_catalog() {
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
