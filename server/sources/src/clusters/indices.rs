//! The indexes of clusters, which are parts of the resourceVersions in `Integer` form, stored in the data directory.
//!
//! Clients store resourceVersions that contain a cluster's index. If the index were later assigned to a different
//! cluster, a stored version would refer to that cluster's objects. So an index is never reused, even after its cluster
//! was removed, and `UpstreamCluster.spec.index` is compared with the stored indexes.
//!
//! Indexes of hub members are not stored: replicas have different data directories, and a user of the hub must not use
//! up indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tributary_apimachinery::ClusterName;
use tributary_merge::integer::CLUSTERS_MAX;

use crate::ClusterSpec;
use crate::data_directory::{DataDirectory, DataDirectoryError};

/// The file of the indexes: a JSON object from index to cluster name.
const FILE: &str = "cluster-indices.json";

/// The reason why clusters cannot get indexes for `itemResourceVersions: Integer`.
#[derive(Debug, thiserror::Error)]
pub enum ClusterIndexError {
    /// The file of the indexes cannot be read or written.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// The file of the indexes contains invalid JSON.
    #[error(
        "{path} is damaged; restore it from a backup. If you remove it instead, integer resourceVersions that clients have may refer to a different cluster"
    )]
    Damaged {
        /// Path of the file of the indexes.
        path: String,
        /// The error of the JSON parser.
        #[source]
        source: serde_json::Error,
    },
    /// The configured index belongs, or belonged, to a different cluster.
    #[error(
        "{origin}: spec.index: {index} was the index of cluster {owner} before, and clients may still have \
         resourceVersions with it; give an index that no cluster has had{}",
        free.map(|free| format!(", for example {free}")).unwrap_or_default()
    )]
    Taken {
        /// The source of the cluster's description, for messages.
        origin: String,
        /// The index in `spec.index`.
        index: u16,
        /// The present or former owner of the index.
        owner: ClusterName,
        /// An unused index that the error message suggests.
        free: Option<u16>,
    },
    /// All indexes for `itemResourceVersions: Integer` have been used.
    #[error(
        "{origin}: all {CLUSTERS_MAX} indices of itemResourceVersions: Integer are used; set Composite, or begin with \
         a new data directory"
    )]
    Exhausted {
        /// The source of the cluster's description, for messages.
        origin: String,
    },
}

/// Assigns an index to each cluster of the kubeconfig and the files: the configured index, the stored index, or a new
/// index that no cluster has used. A member of the hub keeps its configured index, unless the index is stored for a
/// different cluster.
///
/// # Errors
/// [`ClusterIndexError`]; the file is then unchanged.
pub async fn assign(directory: &DataDirectory, clusters: &mut [Arc<ClusterSpec>]) -> Result<(), ClusterIndexError> {
    // Two processes with one data directory must not assign the same index to two clusters.
    let _lock = directory.lock().await?;
    let mut owners = IndexOwners::read(directory)?;
    let before = owners.0.clone();
    owners.assign(clusters)?;
    if owners.0 != before {
        // A map from numbers to names always serializes.
        directory.write(FILE, &serde_json::to_vec(&owners.0).unwrap_or_default())?;
    }
    Ok(())
}

/// Checks whether [`assign`] would succeed. Changes nothing.
///
/// # Errors
/// [`ClusterIndexError`].
pub fn check(directory: &DataDirectory, clusters: &[Arc<ClusterSpec>]) -> Result<(), ClusterIndexError> {
    let mut others: Vec<Arc<ClusterSpec>> = clusters.iter().filter(|spec| !spec.is_from_hub).cloned().collect();
    IndexOwners::read(directory)?.assign(&mut others)
}

/// The present and former owners of the stored indexes, by index.
#[derive(Clone, Debug, Default)]
pub struct IndexOwners(pub BTreeMap<u16, ClusterName>);

impl IndexOwners {
    /// Reads the owners from the data directory.
    ///
    /// # Errors
    /// [`ClusterIndexError`] for an unreadable or damaged file.
    pub fn read(directory: &DataDirectory) -> Result<Self, ClusterIndexError> {
        let Some(bytes) = directory.read(FILE)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|source| ClusterIndexError::Damaged { path: directory.file(FILE).display().to_string(), source })
    }

    /// Returns the cluster that has or had the index.
    pub fn owner(&self, index: u16) -> Option<&ClusterName> {
        self.0.get(&index)
    }

    fn assign(&mut self, clusters: &mut [Arc<ClusterSpec>]) -> Result<(), ClusterIndexError> {
        let (of_hub, others): (Vec<_>, Vec<_>) = clusters.iter_mut().partition(|spec| spec.is_from_hub);
        let avoided: BTreeSet<u16> = of_hub.iter().filter_map(|spec| spec.index).collect();
        // Configured indexes are assigned first, so that no other cluster gets them.
        for spec in &others {
            let Some(index) = spec.index else { continue };
            if let Some(owner) = self.0.get(&index).filter(|owner| **owner != spec.name) {
                let (origin, owner, free) = (spec.origin.clone(), owner.clone(), self.free(&avoided));
                return Err(ClusterIndexError::Taken { origin, index, owner, free });
            }
            self.0.insert(index, spec.name.clone());
        }
        for spec in others.into_iter().filter(|spec| spec.index.is_none()) {
            let own = self.0.iter().rev().find(|(_, owner)| **owner == spec.name).map(|(index, _)| *index);
            let index = own.or_else(|| self.free(&avoided));
            let index = index.ok_or_else(|| ClusterIndexError::Exhausted { origin: spec.origin.clone() })?;
            self.0.insert(index, spec.name.clone());
            Arc::make_mut(spec).index = Some(index);
        }
        for spec in of_hub {
            // A member must not keep an index that is stored for a different cluster. Hub objects with such an index
            // were already refused, unless the index was stored after that check.
            if spec.index.and_then(|index| self.0.get(&index)).is_some_and(|owner| *owner != spec.name) {
                Arc::make_mut(spec).index = None;
            }
        }
        Ok(())
    }

    /// Returns the index after the highest used index. If that index is too large, returns any unused index. The
    /// `avoided` indexes of hub members are the last choice.
    fn free(&self, avoided: &BTreeSet<u16>) -> Option<u16> {
        let last = self.0.last_key_value().map(|(last, _)| last).max(avoided.last());
        let above = last.map_or(Some(0), |last| last.checked_add(1)).filter(|index| *index < CLUSTERS_MAX);
        let unused = || (0..CLUSTERS_MAX).filter(|index| !self.0.contains_key(index));
        above.or_else(|| unused().find(|index| !avoided.contains(index))).or_else(|| unused().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(clusters: &[(&str, Option<u16>)]) -> Vec<Arc<ClusterSpec>> {
        let spec = |(name, index): &(&str, Option<u16>)| ClusterSpec {
            origin: format!("UpstreamCluster {name}"),
            index: *index,
            ..ClusterSpec::named(name)
        };
        clusters.iter().map(spec).map(Arc::new).collect()
    }

    async fn assigned(directory: &DataDirectory, clusters: &[(&str, Option<u16>)]) -> Result<Vec<u16>, String> {
        let mut specs = specs(clusters);
        assign(directory, &mut specs).await.map_err(|error| error.to_string())?;
        Ok(specs.into_iter().filter_map(|spec| spec.index).collect())
    }

    #[tokio::test]
    async fn cluster_index_is_never_given_to_another_cluster() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        let unnumbered = |names: &[&'static str]| names.iter().map(|name| (*name, None)).collect::<Vec<_>>();
        for (clusters, expected) in [
            (unnumbered(&["b", "a"]), vec![0, 1]),
            (unnumbered(&["a"]), vec![1]),
            (unnumbered(&["a", "c"]), vec![1, 2]),
            (unnumbered(&["c", "b", "a", "d"]), vec![2, 0, 1, 3]),
            (vec![("e", None), ("f", Some(9))], vec![10, 9]),
            (vec![("f", None)], vec![9]),
            (vec![("f", Some(20))], vec![20]),
            (vec![("f", Some(9))], vec![9]),
            (vec![("g", None)], vec![21]),
        ] {
            assert_eq!(assigned(&directory, &clusters).await, Ok(expected), "{clusters:?}");
        }
        let refused = assigned(&directory, &[("x", None), ("new", Some(1))]).await.unwrap_err();
        assert!(
            refused.contains("UpstreamCluster new: spec.index: 1 was the index of cluster a before")
                && refused.contains("for example 22"),
            "{refused}"
        );
        assert_eq!(assigned(&directory, &[("x", None)]).await, Ok(vec![22]), "what was refused is not kept");
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(directory.file(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn unused_cluster_indices_are_assigned_until_none_is_left() {
        let mut owners = IndexOwners::default();
        let mut last = specs(&[("last", Some(CLUSTERS_MAX - 1)), ("gap", None)]);
        owners.assign(&mut last).unwrap();
        assert_eq!(last[1].index, Some(0));
        let name = ClusterName::new("taken").unwrap();
        owners.0.extend((1..CLUSTERS_MAX - 1).map(|index| (index, name.clone())));
        let error = owners.assign(&mut specs(&[("more", None)])).unwrap_err();
        assert!(error.to_string().contains("UpstreamCluster more: all 10000 indices"), "{error}");
    }

    #[test]
    fn hub_members_use_no_stored_index() {
        let mut owners = IndexOwners::default();
        let mut clusters = specs(&[("hub", Some(3)), ("unnumbered", None), ("file", None), ("moved", Some(9))]);
        for name in [0, 1, 3] {
            Arc::make_mut(&mut clusters[name]).is_from_hub = true;
        }
        owners.0.insert(9, ClusterName::new("moved").unwrap());
        owners.assign(&mut clusters).unwrap();
        let indexes: Vec<_> = clusters.iter().map(|spec| spec.index).collect();
        assert_eq!(indexes, [Some(3), None, Some(10), Some(9)], "a file cluster gets no index of a member");
        assert_eq!(owners.0.keys().copied().collect::<Vec<_>>(), [9, 10]);
        // A member from the hub loses an index that belonged to a different cluster.
        let mut clusters = specs(&[("hub", Some(9))]);
        Arc::make_mut(&mut clusters[0]).is_from_hub = true;
        owners.assign(&mut clusters).unwrap();
        assert_eq!(clusters[0].index, None);
    }

    #[test]
    fn hub_members_with_all_indexes_leave_indexes_to_file_clusters() {
        let mut owners = IndexOwners::default();
        let member = |index| ClusterSpec { index: Some(index), is_from_hub: true, ..ClusterSpec::named("hub") };
        let mut clusters: Vec<Arc<ClusterSpec>> = (0..CLUSTERS_MAX).map(member).map(Arc::new).collect();
        clusters.extend(specs(&[("file", None)]));
        owners.assign(&mut clusters).unwrap();
        assert_eq!(clusters.last().unwrap().index, Some(0));
        assert_eq!(clusters[0].index, None);
    }

    #[tokio::test]
    async fn damaged_file_of_cluster_indices_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(parent.path().to_owned()).unwrap();
        directory.write(FILE, b"{\"0\":\"A_B\"}").unwrap();
        let error = assigned(&directory, &[("a", None)]).await.unwrap_err();
        assert!(error.contains("cluster-indices.json is damaged"), "{error}");
    }
}
