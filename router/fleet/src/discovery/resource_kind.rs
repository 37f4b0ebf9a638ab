//! The kind of a resource and its printer.

use tributary_apimachinery::GroupVersionResource;
use tributary_printers::Printer;

use super::model::Nature;

/// Facts about a resource's kind that lists need.
#[derive(Clone, Debug)]
pub struct ResourceKind {
    /// Resource of the request.
    pub resource: GroupVersionResource,
    /// The kind of its objects.
    pub kind: Box<str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Printer of its Tables.
    pub printer: Printer,
}

impl ResourceKind {
    /// The kind and scope on which clusters must agree to share a merged view.
    pub fn nature(&self) -> Nature<'_> {
        Nature { kind: &self.kind, namespaced: self.namespaced }
    }
}
