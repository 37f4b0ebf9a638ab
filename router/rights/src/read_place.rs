//! What is read, as it is authorized.

use tributary_apimachinery::GroupVersionResource;

/// What is read, as it is authorized.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadPlace {
    /// The resource.
    pub resource: GroupVersionResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The namespace by which it is judged; empty for all and for what has none.
    pub namespace: String,
    /// The name by which it is judged; empty for all.
    pub name: String,
}

impl ReadPlace {
    /// The same place, of objects of any name.
    pub(crate) fn of_all_names(&self) -> Self {
        Self { name: String::new(), ..self.clone() }
    }
}
