//! Which objects of a collection a request wants: its namespace, name, labels, fields and clusters, compiled so that
//! asking one object costs a walk over a few slices and no allocation.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::object::CLUSTER_ANNOTATION;
use crate::selector::{FieldRequirement, FieldSelector, LabelOperator, LabelRequirement, LabelSelector};
use crate::{ClusterName, GroupVersionResource, Object, Scope, SelectableField, Status, json};

/// The label key that selects clusters, though no object carries it: the annotation's, so that people learn one name.
pub const CLUSTER_LABEL: &str = CLUSTER_ANNOTATION;

/// Which clusters a request wants: the requirements of its label selector on [`CLUSTER_LABEL`]. Every object counts as
/// labelled with its cluster's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterSelector {
    requirements: Vec<LabelRequirement>,
    /// The clusters that may be told of at all; `None` for all of them.
    only: Option<Arc<BTreeSet<ClusterName>>>,
}

impl ClusterSelector {
    /// Whether every cluster is wanted.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && self.only.is_none()
    }

    /// Whether the request says itself which clusters it wants.
    pub fn has_requirements(&self) -> bool {
        !self.requirements.is_empty()
    }

    /// The names of clusters in the request, in the request's order, with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().flat_map(|requirement| requirement.values()).map(String::as_str)
    }

    /// The names among [`names`](Self::names) that match all requirements.
    pub fn wanted_names(&self) -> impl Iterator<Item = &str> {
        self.names().filter(|name| self.requirements.iter().all(|requirement| requirement.matches(Some(name))))
    }

    /// The same, of these clusters alone: for whoever asks there are no others.
    #[must_use]
    pub fn within(mut self, only: Arc<BTreeSet<ClusterName>>) -> Self {
        self.only = Some(only);
        self
    }

    /// Whether whoever asks may know of this cluster.
    pub fn admits(&self, cluster: &ClusterName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(cluster))
    }

    /// Takes a label selector apart into what selects objects and what selects clusters.
    ///
    /// # Errors
    /// 400 for an order of clusters (`>`, `<`).
    pub fn split(selector: &LabelSelector) -> Result<(LabelSelector, Self), Status> {
        let (labels, requirements) = selector.split_off(CLUSTER_LABEL);
        if requirements.iter().any(|it| matches!(it.operator(), LabelOperator::GreaterThan | LabelOperator::LessThan)) {
            return Err(Status::bad_request(format!(
                "clusters have no order, so {CLUSTER_LABEL} cannot be compared with > or <"
            )));
        }
        Ok((labels, Self { requirements, only: None }))
    }

    /// Whether this cluster is wanted.
    pub fn matches(&self, cluster: &ClusterName) -> bool {
        self.admits(cluster) && self.requirements.iter().all(|requirement| requirement.matches(Some(cluster.as_str())))
    }
}

/// Which objects a request wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// The namespace; `None` for all.
    pub namespace: Option<Box<str>>,
    /// The name, of the path or of a field selector `metadata.name=…`; `None` for all.
    pub name: Option<Box<str>>,
    /// The label requirements, without those on [`CLUSTER_LABEL`].
    pub labels: LabelSelector,
    /// The field requirements, by their places in the decoder's list.
    pub fields: CompiledFieldSelector,
    /// The clusters.
    pub clusters: ClusterSelector,
}

/// A field selector whose fields have been looked up in a decoder's list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompiledFieldSelector {
    requirements: Vec<CompiledRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CompiledRequirement {
    place: FieldSource,
    equals: bool,
    value: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FieldSource {
    Name,
    Namespace,
    /// A field of the decoder's list.
    Field {
        index: usize,
        /// What holds where the object has no such field.
        default: Arc<str>,
        /// Whether snapshots may have an index of it.
        indexed: bool,
    },
}

impl CompiledFieldSelector {
    /// Whether no field is asked for.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// An indexed field that has to be equal to a value, if one has to: its place in the decoder's list, and the value.
    fn indexed(&self) -> Option<(usize, &str)> {
        self.requirements.iter().find_map(|requirement| match requirement {
            CompiledRequirement { place: FieldSource::Field { index, indexed: true, .. }, equals: true, value } => {
                Some((*index, &**value))
            }
            _ => None,
        })
    }

    /// Whether the object's fields meet all requirements. Allocates only where a field's text has escapes.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements.iter().all(|requirement| {
            let equal = match &requirement.place {
                FieldSource::Name => object.name() == &*requirement.value,
                FieldSource::Namespace => object.namespace() == &*requirement.value,
                FieldSource::Field { index, default, .. } => {
                    object.field(*index).map_or(**default == *requirement.value, |text| {
                        // An escape of one byte has six at most: what is far longer is not resolved in vain.
                        text.len() <= 6 * requirement.value.len() && json::unescaped(text) == *requirement.value
                    })
                }
            };
            equal == requirement.equals
        })
    }
}

impl Filter {
    /// What it costs to find the next object and to look at its name, in bytes of text that could be copied meanwhile:
    /// some 100 ns.
    pub const LOOK_COST: usize = 64;

    /// Compiles what a request asks for.
    ///
    /// `fields` is the list of the decoder that made the objects of `resource`; `namespaced` tells whether that is.
    /// Requirements on [`CLUSTER_LABEL`] leave the labels and select clusters.
    /// A field selector's `metadata.name=x` sets the name.
    ///
    /// # Errors
    /// 400 with kube-apiserver's messages: a field that cannot be selected, a selected name that is not the path's, or
    /// an order of clusters (`>`, `<`).
    pub fn compile(
        namespace: Option<&str>,
        name: Option<&str>,
        label_selector: &LabelSelector,
        field_selector: &FieldSelector,
        resource: &GroupVersionResource,
        fields: &[SelectableField],
        namespaced: bool,
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
            filter.require(requirement, resource, fields, namespaced)?;
        }
        Ok(filter)
    }

    fn require(
        &mut self,
        requirement: &FieldRequirement,
        resource: &GroupVersionResource,
        fields: &[SelectableField],
        namespaced: bool,
    ) -> Result<(), Status> {
        let FieldRequirement { field, equals, value } = requirement;
        let place = match field.as_str() {
            // Kubernetes drops a requirement whose field and value are both empty.
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
        self.fields.requirements.push(CompiledRequirement { place, equals: *equals, value: value.as_str().into() });
        Ok(())
    }

    /// Whether the object, of this cluster, is wanted.
    pub fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.clusters.matches(cluster) && self.matches_object(object)
    }

    /// Whether the object is wanted, whatever its cluster.
    pub fn matches_object(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.name.as_deref().is_none_or(|name| name == object.name())
            && self.fields.matches(object)
            && self.labels.matches(object)
    }

    /// What it costs to ask of an object whether it is wanted, in bytes of text that could be copied meanwhile. Long
    /// walks are cut into pieces by it: a long selector makes a look dear, and so do very many labels.
    pub fn cost(&self, object: &Object) -> usize {
        /// Of a requirement: a search among some labels, and one among its values.
        const REQUIREMENT: usize = 32;
        let labels = self.labels.requirements().len();
        let requirements = labels + self.fields.requirements.len() + self.clusters.requirements.len();
        let text = if labels > 0 { object.labels_text().len() } else { 0 };
        Self::LOOK_COST + requirements * REQUIREMENT + text
    }

    /// Where the wanted objects can lie: what a snapshot has to be walked over.
    pub fn scope(&self) -> Scope<'_> {
        Scope { namespace: self.namespace.as_deref(), name: self.name.as_deref(), field: self.fields.indexed() }
    }

    /// Whether every object of every cluster is wanted.
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.is_whole_namespace()
    }

    /// Whether every object of the namespace, or of all, is wanted, in every cluster.
    pub fn is_whole_namespace(&self) -> bool {
        self.name.is_none() && self.labels.is_empty() && self.fields.is_empty() && self.clusters.is_everything()
    }
}

/// kube-apiserver's words, which each kind with fields of its own chooses (`pkg/apis/*/*/conversion.go`).
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
