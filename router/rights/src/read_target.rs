//! Resource, namespace and name of a read, for its authorization.

use tributary_apimachinery::GroupVersionResource;

/// Resource, namespace and name of a read, for its authorization.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadTarget {
    /// Resource of the read.
    pub resource: GroupVersionResource,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// Namespace of the read. Empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Name of the object. Empty for all objects.
    pub name: String,
}

impl ReadTarget {
    pub(crate) fn of_all_names(&self) -> Self {
        Self { name: String::new(), ..self.clone() }
    }
}
