//! Kind, scope and printer of a resource.

use tributary_apimachinery::GroupVersionResource;
use tributary_printers::Printer;

use super::model::Nature;

/// Properties of a resource that list responses need.
#[derive(Clone, Debug)]
pub struct ResourceKind {
    /// API group, version and name of the resource.
    pub resource: GroupVersionResource,
    /// Kind of the resource's objects.
    pub kind: Box<str>,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// Printer that makes Table rows of the resource's objects.
    pub printer: Printer,
}

impl ResourceKind {
    /// Returns kind and scope. Clusters are merged only if their kind and scope are equal.
    pub fn nature(&self) -> Nature<'_> {
        Nature { kind: &self.kind, namespaced: self.namespaced }
    }
}
