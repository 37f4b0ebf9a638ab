//! Names of resources and kinds.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The groups that kube-apiserver 1.36 serves itself (`pkg/apis`). Other groups with the suffix `k8s.io` are CRDs, for
/// example `gateway.networking.k8s.io`.
const BUILT_IN_GROUPS: [&str; 25] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "imagepolicy.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// An API group and version, for example `apps/v1`. The core group has an empty name, so its version is written `v1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupVersion {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version within the group, for example `v1`.
    pub version: Arc<str>,
}

impl GroupVersion {
    /// Creates a group version.
    pub fn new(group: &str, version: &str) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// Parses an `apiVersion`: `v1` or `apps/v1`.
    pub fn parse(api_version: &str) -> Self {
        match api_version.split_once('/') {
            Some((group, version)) => Self::new(group, version),
            None => Self::new("", api_version),
        }
    }

    /// Returns the path prefix of the group and version, without a trailing slash: `/api/v1` or `/apis/apps/v1`.
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// Returns a resource of the group version.
    pub fn resource(&self, resource: &str) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: self.version.clone(), resource: resource.into() }
    }
}

impl fmt::Display for GroupVersion {
    /// Writes the `apiVersion`: `v1` or `apps/v1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.version) } else { write!(f, "{}/{}", self.group, self.version) }
    }
}

/// A resource in an API group and version, named by its plural name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupVersionResource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version within the group.
    pub version: Arc<str>,
    /// The plural name, lower case: `pods`.
    pub resource: Arc<str>,
}

impl GroupVersionResource {
    /// Creates a resource from its three names.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        GroupVersion::new(group, version).resource(resource)
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// Returns whether the group belongs to Kubernetes, and not to a CRD or an aggregated server.
    pub fn is_built_in(&self) -> bool {
        BUILT_IN_GROUPS.contains(&&*self.group)
    }

    /// Returns the resource without its version, in the form of kube-apiserver's messages: `pods`, `deployments.apps`.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.resource.to_string() } else { format!("{}.{}", self.resource, self.group) }
    }

    /// Returns the path of the collection in all namespaces, or in one namespace.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let prefix = self.group_version().path();
        match namespace {
            Some(namespace) => format!("{prefix}/namespaces/{namespace}/{}", self.resource),
            None => format!("{prefix}/{}", self.resource),
        }
    }
}

impl fmt::Display for GroupVersionResource {
    /// Writes the resource in a form that kubectl accepts: `pods` for the core group, and `deployments.v1.apps` for
    /// other groups.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}.{}", self.resource, self.version, self.group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_formats_its_url_path_and_display_name() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        assert_eq!(pods.path(None), "/api/v1/pods");
        assert_eq!(pods.to_string(), "pods");
        let deployments = GroupVersion::parse("apps/v1").resource("deployments");
        assert_eq!(deployments.path(Some("a")), "/apis/apps/v1/namespaces/a/deployments");
        assert_eq!(deployments.group_version().to_string(), "apps/v1");
        assert_eq!((&*pods.group_resource(), &*deployments.group_resource()), ("pods", "deployments.apps"));
    }
}
