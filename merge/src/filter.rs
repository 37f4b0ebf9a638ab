//! What the merge asks of a filter.

use std::sync::Arc;

use tributary_apimachinery::{ClusterName, Filter, Object, Scope};

/// Which objects a list or a watch wants.
///
/// The answer may depend on the cluster, the key, the labels and the selectable fields alone: the log keeps what it
/// takes to announce another cluster's object of the same name only where one of those changed.
pub trait ObjectFilter {
    /// Whether the object, of this cluster, is wanted.
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool;

    /// Whether any object of this cluster may be wanted. Saves walks, and a client that wants nothing of a cluster is
    /// not refused for what is not known of it.
    fn wants_cluster(&self, cluster: &ClusterName) -> bool {
        let _ = cluster;
        true
    }

    /// What it costs to ask of an object, in bytes of text that could be copied meanwhile.
    /// Walks are cut into pieces by it.
    fn cost(&self, object: &Object) -> usize {
        let _ = object;
        Filter::LOOK_COST
    }

    /// Outside of which nothing matches. Saves walks, decides nothing.
    fn scope(&self) -> Scope<'_> {
        Scope::default()
    }

    /// Behind which key the next object of this cluster lies that may be wanted, where many lie between it and one that
    /// is not: a walk leaps there. Saves walks, decides nothing. A leap costs about as much as a look at 16 objects.
    fn leap(&self, cluster: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        let _ = (cluster, unwanted);
        None
    }

    /// Whether every object of the namespace of [`scope`](Self::scope) matches, in every cluster that it
    /// [wants](Self::wants_cluster). Only then can the rest of a list be counted without looking at it, and is none of
    /// its objects asked about.
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

    fn leap(&self, cluster: &ClusterName, unwanted: &Object) -> Option<Box<str>> {
        (**self).leap(cluster, unwanted)
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
