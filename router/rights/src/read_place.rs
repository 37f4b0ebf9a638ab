//! Subject of a read, for its authorization.

use tributary_apimachinery::GroupVersionResource;

/// Subject of a read, for its authorization.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadPlace {
    /// The resource.
    pub resource: GroupVersionResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Namespace of the decision; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// Name of the object in the decision; empty for all.
    pub name: String,
}

impl ReadPlace {
    /// The same place for objects of all names.
    pub(crate) fn of_all_names(&self) -> Self {
        Self { name: String::new(), ..self.clone() }
    }
}
