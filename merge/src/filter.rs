//! The trait through which lists and watches select objects.

use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Filter, Object, Scope};

/// Selects the objects of a list or watch.
///
/// The result may depend only on the cluster, the key, the labels and the selectable fields. When an object leaves the
/// selection of a watch, the watch sends DELETED, and then the object of the same name in another cluster. The log
/// records these other objects only for changes of the labels or selectable fields, and for deletions. If the result
/// depended on a different field, a client that identifies objects by name could lose the other cluster's object.
pub trait ObjectFilter {
    /// Returns whether the filter selects an object of a cluster.
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool;

    /// Returns whether the filter can select an object of this cluster. A walk over the objects skips all other
    /// clusters. A watch also resumes if the log lacks events of a cluster that its filter excludes.
    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        let _ = cluster;
        true
    }

    /// Returns the cost of evaluating the filter for an object. The unit is bytes of text that could be copied in the
    /// same time. Walks over many objects are split into steps of bounded cost.
    fn cost(&self, object: &Object) -> usize {
        let _ = object;
        Filter::COST_PER_OBJECT
    }

    /// Returns a scope (for example a namespace) that contains all matching objects. A small scope makes walks shorter.
    /// The scope alone does not make an object match.
    fn scope(&self) -> Scope<'_> {
        Scope::default()
    }

    /// Returns a key before the cluster's next matching object, if many objects before that key do not match. The walk
    /// then continues behind that key. Such a jump makes walks shorter and does not decide about any match. A jump
    /// costs about as much as evaluating the filter for 16 objects.
    fn skip_to_key(&self, cluster: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        let _ = (cluster, unwanted);
        None
    }

    /// Returns whether each object in the namespace of [`scope`](Self::scope) matches, in each cluster that the filter
    /// [wants](Self::wants_cluster). The remaining objects of a list can then be counted without evaluating the filter.
    fn is_whole_namespace(&self) -> bool {
        false
    }
}

impl ObjectFilter for Filter {
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        Filter::matches(self, cluster, object)
    }

    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        self.clusters.matches(cluster)
    }

    fn cost(&self, object: &Object) -> usize {
        Filter::cost(self, object)
    }

    fn scope(&self) -> Scope<'_> {
        Filter::scope(self)
    }

    fn is_whole_namespace(&self) -> bool {
        Filter::is_whole_namespace(self)
    }
}

impl<F: ObjectFilter + ?Sized> ObjectFilter for Arc<F> {
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        (**self).matches(cluster, object)
    }

    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        (**self).wants_cluster(cluster)
    }

    fn cost(&self, object: &Object) -> usize {
        (**self).cost(object)
    }

    fn scope(&self) -> Scope<'_> {
        (**self).scope()
    }

    fn skip_to_key(&self, cluster: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        (**self).skip_to_key(cluster, unwanted)
    }

    fn is_whole_namespace(&self) -> bool {
        (**self).is_whole_namespace()
    }
}

impl<F: Fn(&ClusterName, &Object) -> bool> ObjectFilter for F {
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        self(cluster, object)
    }
}
