//! The composite resourceVersion: a map from cluster name to the cluster's resourceVersion. [`crate::version_text`]
//! encodes and decodes the map as text.

use std::fmt;
use std::fmt::Write as _;

use tributary_apimachinery::{ClusterName, CollectionVersion, Snapshot};

/// A map from cluster name to the cluster's resourceVersion (the cluster's *component*), sorted by name.
///
/// The value depends on the clusters' versions alone and never on the process that wrote it, so a client can resume at
/// each replica.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CompositeResourceVersion {
    components: Vec<(ClusterName, CollectionVersion)>,
}

impl CompositeResourceVersion {
    /// Creates a composite version without components.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a composite version from one snapshot per cluster. The version of a snapshot becomes the component of
    /// its cluster.
    pub fn from_snapshots(snapshots: &[(ClusterName, Snapshot)]) -> Self {
        snapshots.iter().map(|(cluster, snapshot)| (cluster.clone(), snapshot.resource_version())).collect()
    }

    /// Returns a cluster's component.
    pub fn get(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        self.search(cluster).ok().map(|at| self.components[at].1)
    }

    /// Sets a cluster's component.
    pub fn set(&mut self, cluster: &ClusterName, version: impl Into<CollectionVersion>) {
        let version = version.into();
        match self.search(cluster) {
            Ok(at) => self.components[at].1 = version,
            Err(at) => self.components.insert(at, (cluster.clone(), version)),
        }
    }

    /// Raises a cluster's component to `version`. Does nothing if the component is higher.
    pub fn raise(&mut self, cluster: &ClusterName, version: impl Into<CollectionVersion>) {
        let version = version.into();
        match self.search(cluster) {
            Ok(at) => self.components[at].1 = self.components[at].1.max(version),
            Err(at) => self.components.insert(at, (cluster.clone(), version)),
        }
    }

    /// Removes a cluster's component and returns it.
    pub fn remove(&mut self, cluster: &ClusterName) -> Option<CollectionVersion> {
        self.search(cluster).ok().map(|at| self.components.remove(at).1)
    }

    /// Iterates over the components in the order of the clusters' names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&ClusterName, CollectionVersion)> {
        self.components.iter().map(|(cluster, version)| (cluster, *version))
    }

    /// Returns the number of clusters with a component.
    pub fn len(&self) -> usize {
        self.components.len()
    }

    /// Returns whether no cluster has a component.
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Raises each component to the component of `other`, if that is higher. The result is the component-wise maximum.
    pub fn join(&mut self, other: &Self) {
        for (cluster, version) in other.iter() {
            self.raise(cluster, version);
        }
    }

    /// Returns whether this composite version has each component of `other` with the same or a higher version.
    pub fn covers(&self, other: &Self) -> bool {
        other.iter().all(|(cluster, version)| self.get(cluster).is_some_and(|own| own >= version))
    }

    fn search(&self, cluster: &ClusterName) -> Result<usize, usize> {
        self.components.binary_search_by(|(name, _)| name.cmp(cluster))
    }

    /// Returns the canonical JSON form. `mark_of` returns the mark that distinguishes a cluster from earlier clusters
    /// of the same name, if a mark is needed.
    pub(crate) fn json(&self, mark_of: impl Fn(&ClusterName) -> Option<String>) -> String {
        let mut json = String::with_capacity(self.json_len(&mark_of));
        json.push('{');
        for (at, (cluster, version)) in self.components.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            // Writing to a `String` cannot fail.
            let _ = match mark_of(cluster) {
                Some(mark) => write!(json, "\"{cluster}\":\"{version}@{mark}\""),
                None => write!(json, "\"{cluster}\":\"{version}\""),
            };
        }
        json.push('}');
        json
    }

    pub(crate) fn json_len(&self, mark_of: impl Fn(&ClusterName) -> Option<String>) -> usize {
        let marked = |cluster: &ClusterName| mark_of(cluster).map_or(0, |mark| 1 + mark.len());
        let members = self.components.iter().map(|(cluster, version)| member_len(cluster, *version) + marked(cluster));
        let members: usize = members.sum();
        2 + members + self.components.len().saturating_sub(1)
    }
}

impl<V: Into<CollectionVersion>> FromIterator<(ClusterName, V)> for CompositeResourceVersion {
    /// Collects components. If a cluster occurs several times, its last component is used.
    fn from_iter<I: IntoIterator<Item = (ClusterName, V)>>(components: I) -> Self {
        let mut vector = Self::new();
        for (cluster, version) in components {
            // Components nearly always arrive in the order of names, so `set` appends to the end.
            vector.set(&cluster, version);
        }
        vector
    }
}

impl fmt::Debug for CompositeResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json(|_| None))
    }
}

fn member_len(cluster: &ClusterName, version: CollectionVersion) -> usize {
    let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
    let part = version.changes().map_or(0, |changes| 1 + digits(changes.into()));
    cluster.as_str().len() + "\"\":\"\"".len() + digits(version.revision().0) + part
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ResourceVersion;

    use super::*;

    fn vector(components: &[(&str, u64)]) -> CompositeResourceVersion {
        components.iter().map(|(name, v)| (ClusterName::new(name).unwrap(), ResourceVersion(*v))).collect()
    }

    #[test]
    fn join_of_composite_versions_takes_the_higher_components() {
        let mut value = vector(&[("a", 1), ("b", 5)]);
        let other = vector(&[("b", 3), ("c", 9), ("a", 2)]);
        assert!(!value.covers(&other));
        value.join(&other);
        assert_eq!(value, vector(&[("a", 2), ("b", 5), ("c", 9)]));
        assert!(value.covers(&other));
        assert_eq!(value.remove(&ClusterName::new("b").unwrap()), Some(ResourceVersion(5).into()));
        assert_eq!(value, vector(&[("a", 2), ("c", 9)]));
    }
}
