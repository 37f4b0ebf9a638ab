//! Selection of a list or a watch: the objects that the request selects, that its caller may see, and that policies
//! allow. Lists, their pages, watches and counts of objects all use this selection.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Filter, Object, Scope};
use tributary_merge::ObjectFilter;

use tributary_rights::{NamespaceRights, Readable};

#[derive(Clone, Debug)]
pub(crate) struct Selection {
    filter: Filter,
    /// Readable namespaces, if the rights exclude some of the namespaces that the filter selects.
    by_namespace: Option<Arc<NamespaceRights>>,
}

impl Selection {
    /// Makes the selection of a request; in personal mode all objects of the filter.
    pub(crate) fn new(mut filter: Filter, readable: Option<&Readable>) -> Self {
        let Some(readable) = readable else { return Self { filter, by_namespace: None } };
        filter.clusters = filter.clusters.within(Arc::clone(&readable.only));
        Self { filter, by_namespace: readable.by_namespace.clone() }
    }

    /// Returns whether the other selection has an equal filter and the same rights (by pointer equality). Cost: a
    /// comparison of the selectors.
    pub(crate) fn is_same_selection(&self, other: &Self) -> bool {
        self.rights_address() == other.rights_address() && self.filter == other.filter
    }

    /// Hashes the parts that [`is_same_selection`](Self::is_same_selection) compares, except the clusters, which may be
    /// a thousand.
    pub(crate) fn hash_compared_parts(&self, mut hasher: &mut dyn Hasher) {
        let Filter { namespace, name, labels, fields, .. } = &self.filter;
        (namespace, name, labels, fields, self.rights_address()).hash(&mut hasher);
    }

    fn rights_address(&self) -> Option<*const NamespaceRights> {
        self.by_namespace.as_ref().map(Arc::as_ptr)
    }
}

/// A selection can be used as the filter of its request.
impl Deref for Selection {
    type Target = Filter;

    fn deref(&self) -> &Filter {
        &self.filter
    }
}

impl ObjectFilter for Selection {
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.filter.matches(cluster, object)
            && self.by_namespace.as_ref().is_none_or(|rights| rights.show(cluster, object))
    }

    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        self.filter.clusters.matches(cluster)
    }

    fn cost(&self, object: &Object) -> usize {
        self.filter.cost(object)
    }

    fn skip_to_key(&self, cluster: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        self.by_namespace.as_ref().and_then(|rights| rights.skip_to_key(cluster, unwanted))
    }

    fn scope(&self) -> Scope<'_> {
        self.filter.scope()
    }

    /// Returns whether the selection omits no object of the namespace. Clusters that are hidden from the caller are
    /// ignored: for the caller, a list without these clusters is complete.
    fn is_whole_namespace(&self) -> bool {
        let Filter { name, labels, fields, clusters, .. } = &self.filter;
        let selects = name.is_some() || !labels.is_empty() || !fields.is_empty() || clusters.has_requirements();
        !selects && self.by_namespace.is_none()
    }
}
