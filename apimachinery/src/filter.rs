//! The filter of a request over a collection: namespace, name, labels, fields and clusters. A compiled filter compares
//! a few slices per object and allocates nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::object::CLUSTER_ANNOTATION;
use crate::selector::{FieldRequirement, FieldSelector, LabelOperator, LabelRequirement, LabelSelector};
use crate::{ClusterName, GroupVersionResource, Object, Scope, SelectableField, Status, json};

/// The label key that selects clusters in a label selector, although no object has this label. The key equals the key
/// of the cluster annotation, so that users learn one name.
pub const CLUSTER_LABEL: &str = CLUSTER_ANNOTATION;

/// The cluster selection of a request: the requirements of its label selector on [`CLUSTER_LABEL`]. The selector
/// evaluates each object as if its cluster's name were a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterSelector {
    requirements: Vec<LabelRequirement>,
    /// The clusters that the user may see; `None` if the user may see all clusters.
    only: Option<Arc<BTreeSet<ClusterName>>>,
}

impl ClusterSelector {
    /// Returns whether the selection contains all clusters: the request has no requirements on clusters, and the user
    /// may see all clusters.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && self.only.is_none()
    }

    /// Returns whether the request's label selector has requirements on clusters.
    pub fn has_requirements(&self) -> bool {
        !self.requirements.is_empty()
    }

    /// Iterates over the cluster names in the request's requirements on clusters, in the order of the request. A name
    /// may occur several times.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().flat_map(|requirement| requirement.values()).map(String::as_str)
    }

    /// Iterates over the cluster names in the request that meet all its requirements on clusters.
    pub fn wanted_names(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| self.requirements.iter().all(|requirement| requirement.matches(Some(name))))
    }

    /// Restricts the selection to the clusters that the user may see. For the user, other clusters do not exist.
    #[must_use]
    pub fn within(mut self, only: Arc<BTreeSet<ClusterName>>) -> Self {
        self.only = Some(only);
        self
    }

    /// Returns whether the user may see this cluster. The requirements of the request's label selector are ignored.
    pub fn admits(&self, cluster: &ClusterName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(cluster))
    }

    /// Splits a label selector into the part for objects and the part for clusters.
    ///
    /// # Errors
    /// 400 for an order comparison of clusters (`>`, `<`).
    pub fn split(selector: &LabelSelector) -> Result<(LabelSelector, Self), Status> {
        let (labels, requirements) = selector.split_off(CLUSTER_LABEL);
        if requirements.iter().any(|it| matches!(it.operator(), LabelOperator::GreaterThan | LabelOperator::LessThan)) {
            return Err(Status::bad_request(format!(
                "clusters have no order, so {CLUSTER_LABEL} cannot be compared with > or <"
            )));
        }
        Ok((labels, Self { requirements, only: None }))
    }

    /// Returns whether a cluster is selected.
    pub fn matches(&self, cluster: &ClusterName) -> bool {
        self.admits(cluster) && self.requirements.iter().all(|requirement| requirement.matches(Some(cluster.as_str())))
    }
}

/// The objects that a request selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The namespace; `None` for all namespaces.
    pub namespace: Option<Box<str>>,
    /// The name from the path or from a field selector `metadata.name=…`; `None` for all names.
    pub name: Option<Box<str>>,
    /// The label requirements, without the requirements on [`CLUSTER_LABEL`].
    pub labels: LabelSelector,
    /// The field requirements. Each field is an index in the object decoder's list of selectable fields.
    pub fields: CompiledFieldSelector,
    /// The requirements on clusters.
    pub clusters: ClusterSelector,
}

/// A field selector whose field names are resolved to indices in a decoder's list of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompiledFieldSelector {
    requirements: Vec<CompiledRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CompiledRequirement {
    source: FieldSource,
    equals: bool,
    value: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FieldSource {
    Name,
    Namespace,
    /// A field in the decoder's list of selectable fields.
    Field {
        index: usize,
        /// The value of the field for an object that lacks the field.
        default: Arc<str>,
        /// Whether a snapshot may have an index of this field.
        indexed: bool,
    },
}

impl CompiledFieldSelector {
    /// Returns whether the selector has no requirements.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the first equality requirement on an indexed field: the field's index in the decoder's list, and the
    /// required value.
    fn indexed(&self) -> Option<(usize, &str)> {
        self.requirements.iter().find_map(|requirement| match requirement {
            CompiledRequirement { source: FieldSource::Field { index, indexed: true, .. }, equals: true, value } => {
                Some((*index, &**value))
            }
            _ => None,
        })
    }

    /// Returns whether the object's fields meet all requirements. Allocates only for a value with JSON escapes.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements.iter().all(|requirement| {
            let equal = match &requirement.source {
                FieldSource::Name => object.name() == &*requirement.value,
                FieldSource::Namespace => object.namespace() == &*requirement.value,
                FieldSource::Field { index, default, .. } => {
                    object.field(*index).map_or(**default == *requirement.value, |text| {
                        // Each byte takes at most six bytes as a JSON escape. A text of more than six times the length
                        // cannot be equal, so it is not unescaped.
                        text.len() <= 6 * requirement.value.len() && json::unescaped(text) == *requirement.value
                    })
                }
            };
            equal == requirement.equals
        })
    }
}

/// The resource of a request, with its selectable fields.
#[derive(Clone, Copy, Debug)]
pub struct SelectableResource<'a> {
    /// The resource.
    pub resource: &'a GroupVersionResource,
    /// The selectable fields, in the order of the decoder for objects of the resource.
    pub fields: &'a [SelectableField],
    /// Whether the resource is namespaced.
    pub namespaced: bool,
}

impl Filter {
    /// The cost of visiting an object and comparing its name, in the unit of [`cost`](Self::cost). A visit takes about
    /// 100 ns, in which 64 bytes of text could be copied.
    pub const COST_PER_OBJECT: usize = 64;

    /// Compiles the filter of a request.
    ///
    /// Requirements on [`CLUSTER_LABEL`] select clusters and not labels. A field selector `metadata.name=x` sets the
    /// name.
    ///
    /// # Errors
    /// 400 with kube-apiserver's messages: an unsupported field, a selected name that differs from the path's, or an
    /// order comparison of clusters (`>`, `<`).
    pub fn compile(
        namespace: Option<&str>,
        name: Option<&str>,
        label_selector: &LabelSelector,
        field_selector: &FieldSelector,
        selectable: SelectableResource<'_>,
    ) -> Result<Self, Status> {
        let (labels, clusters) = ClusterSelector::split(label_selector)?;
        let mut filter = Self {
            namespace: namespace.map(Into::into),
            name: name.map(Into::into),
            labels,
            fields: CompiledFieldSelector::default(),
            clusters,
        };
        if let (Some(name), false) = (name, field_selector.is_empty())
            && field_selector.requires_exact_match("metadata.name") != Some(name)
        {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        for requirement in field_selector.requirements() {
            filter.require(requirement, selectable)?;
        }
        Ok(filter)
    }

    fn require(&mut self, requirement: &FieldRequirement, selectable: SelectableResource<'_>) -> Result<(), Status> {
        let SelectableResource { resource, fields, namespaced } = selectable;
        let FieldRequirement { field, equals, value } = requirement;
        let source = match field.as_str() {
            // A requirement with an empty field and an empty value selects all objects, as in Kubernetes.
            "" if value.is_empty() => return Ok(()),
            "metadata.name" if *equals && self.name.as_deref().is_none_or(|name| name == value) => {
                self.name = Some(value.as_str().into());
                return Ok(());
            }
            "metadata.name" => FieldSource::Name,
            "metadata.namespace" if namespaced || (fields.is_empty() && resource.is_built_in()) => {
                FieldSource::Namespace
            }
            _ => fields
                .iter()
                .position(|known| *known.name == **field)
                .map(|index| FieldSource::Field {
                    index,
                    default: fields[index].default.clone(),
                    indexed: fields[index].indexed,
                })
                .ok_or_else(|| unsupported_field(resource, field, fields))?,
        };
        self.fields.requirements.push(CompiledRequirement { source, equals: *equals, value: value.as_str().into() });
        Ok(())
    }

    /// Returns whether the filter matches an object of a cluster.
    pub fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.clusters.matches(cluster) && self.matches_object(object)
    }

    /// Returns whether the filter matches the object in any cluster.
    pub fn matches_object(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.name.as_deref().is_none_or(|name| name == object.name())
            && self.fields.matches(object)
            && self.labels.matches(object)
    }

    /// Returns the cost of evaluating the filter for an object. The unit is a byte of text that could be copied in the
    /// same time. A long selector or many labels make an evaluation expensive. Callers therefore split a walk over many
    /// objects into steps of bounded cost.
    pub fn cost(&self, object: &Object) -> usize {
        /// The cost of a requirement: a search among some labels, and a search among the requirement's values.
        const REQUIREMENT: usize = 32;
        let labels = self.labels.requirements().len();
        let requirements = labels + self.fields.requirements.len() + self.clusters.requirements.len();
        let text = if labels > 0 { object.labels_text().len() } else { 0 };
        Self::COST_PER_OBJECT + requirements * REQUIREMENT + text
    }

    /// Returns the namespace, name and indexed field value of the filter, which shorten a walk over a snapshot. All
    /// matching objects are in this scope.
    pub fn scope(&self) -> Scope<'_> {
        Scope { namespace: self.namespace.as_deref(), name: self.name.as_deref(), field: self.fields.indexed() }
    }

    /// Returns whether each object of each cluster matches.
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.is_whole_namespace()
    }

    /// Returns whether each object of the filter's namespace (or of all namespaces) matches, in each cluster.
    pub fn is_whole_namespace(&self) -> bool {
        self.name.is_none() && self.labels.is_empty() && self.fields.is_empty() && self.clusters.is_everything()
    }
}

/// Returns kube-apiserver's message for a field that field selectors cannot select. The message depends on the kind
/// (`pkg/apis/*/*/conversion.go`).
fn unsupported_field(resource: &GroupVersionResource, field: &str, fields: &[SelectableField]) -> Status {
    Status::bad_request(match (&*resource.group, &*resource.resource) {
        ("batch", "jobs") => format!("field label {field:?} not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            format!("field label not supported for {}, Kind=ResourceSlice: {field}", resource.group_version())
        }
        _ if fields.is_empty() && resource.is_built_in() => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => format!("field label not supported: {field}"),
    })
}

#[cfg(test)]
mod tests;
