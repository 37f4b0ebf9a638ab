//! The indexes of clusters, which are parts of the resourceVersions in `Integer` form, stored in the data directory.
//!
//! Clients store resourceVersions that contain a cluster's index. If the index were later assigned to a different
//! cluster, a stored version would refer to that cluster's objects. So an index is never reused, even after its cluster
//! was removed, and `UpstreamCluster.spec.index` is compared with the stored indexes.

use std::collections::BTreeMap;

use tributary_apimachinery::ClusterName;
use tributary_merge::integer::CLUSTERS_MAX;

use crate::ClusterSpec;
use crate::data_directory::{DataDirectory, DataDirectoryError};

/// The file of the indexes: a JSON object from index to cluster name.
const FILE: &str = "cluster-indices.json";

/// The reason why clusters cannot get their indexes for item versions.
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
    /// All indexes for item versions have been used.
    #[error(
        "{origin}: all {CLUSTERS_MAX} indices of itemResourceVersions: Integer are used; set Composite, or begin with \
         a new data directory"
    )]
    Exhausted {
        /// The source of the cluster's description, for messages.
        origin: String,
    },
}

/// Assigns an index to each cluster: the configured index, the stored index, or a new index that no cluster has used.
///
/// # Errors
/// [`ClusterIndexError`]; the file is then unchanged.
pub async fn assign(directory: &DataDirectory, clusters: &mut [ClusterSpec]) -> Result<(), ClusterIndexError> {
    // Two processes with one data directory must not assign the same index to two clusters.
    let _lock = directory.lock().await?;
    let mut owners = read(directory)?;
    let before = owners.0.clone();
    owners.assign(clusters)?;
    if owners.0 != before {
        // A map from numbers to names always serializes.
        directory.write(FILE, &serde_json::to_vec(&owners.0).unwrap_or_default())?;
    }
    Ok(())
}

fn read(directory: &DataDirectory) -> Result<Owners, ClusterIndexError> {
    let Some(bytes) = directory.read(FILE)? else { return Ok(Owners::default()) };
    let owners = serde_json::from_slice(&bytes);
    owners
        .map(Owners)
        .map_err(|source| ClusterIndexError::Damaged { path: directory.file(FILE).display().to_string(), source })
}

/// The present and former owners of the indexes.
#[derive(Default)]
struct Owners(BTreeMap<u16, ClusterName>);

impl Owners {
    fn assign(&mut self, clusters: &mut [ClusterSpec]) -> Result<(), ClusterIndexError> {
        // Configured indexes are assigned first, so that no other cluster gets them.
        for spec in &*clusters {
            let Some(index) = spec.index else { continue };
            if let Some(owner) = self.0.get(&index).filter(|owner| **owner != spec.name) {
                if spec.is_from_hub {
                    continue;
                }
                let (origin, owner, free) = (spec.origin.clone(), owner.clone(), self.free());
                return Err(ClusterIndexError::Taken { origin, index, owner, free });
            }
            self.0.insert(index, spec.name.clone());
        }
        // Replicas have different data directories, so none of them may choose the index of a member of the hub.
        let (of_hub, others): (Vec<_>, Vec<_>) = clusters.iter_mut().partition(|spec| spec.is_from_hub);
        for spec in of_hub {
            let index = spec.index.filter(|index| self.0.get(index) == Some(&spec.name));
            if index != spec.index {
                tracing::warn!(cluster = %spec.name, index = spec.index,
                    "spec.index was the index of a different cluster before, so registries with itemResourceVersions: \
                     Integer omit the cluster; give an index that no cluster has had");
            }
            spec.index = index;
        }
        for spec in others.into_iter().filter(|spec| spec.index.is_none()) {
            let own = self.0.iter().rev().find(|(_, owner)| **owner == spec.name).map(|(index, _)| *index);
            let index = own.or_else(|| self.free());
            let index = index.ok_or_else(|| ClusterIndexError::Exhausted { origin: spec.origin.clone() })?;
            self.0.insert(index, spec.name.clone());
            spec.index = Some(index);
        }
        Ok(())
    }

    /// Returns the index after the highest used index. If that index is too large, returns any unused index.
    fn free(&self) -> Option<u16> {
        let above = self.0.last_key_value().map_or(Some(0), |(last, _)| last.checked_add(1));
        above
            .filter(|index| *index < CLUSTERS_MAX)
            .or_else(|| (0..CLUSTERS_MAX).find(|index| !self.0.contains_key(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(clusters: &[(&str, Option<u16>)]) -> Vec<ClusterSpec> {
        let spec = |(name, index): &(&str, Option<u16>)| ClusterSpec {
            origin: format!("UpstreamCluster {name}"),
            index: *index,
            ..ClusterSpec::named(name)
        };
        clusters.iter().map(spec).collect()
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
        let mut owners = Owners::default();
        let mut last = specs(&[("last", Some(CLUSTERS_MAX - 1)), ("gap", None)]);
        owners.assign(&mut last).unwrap();
        assert_eq!(last[1].index, Some(0));
        let name = ClusterName::new("taken").unwrap();
        owners.0.extend((1..CLUSTERS_MAX - 1).map(|index| (index, name.clone())));
        let error = owners.assign(&mut specs(&[("more", None)])).unwrap_err();
        assert!(error.to_string().contains("UpstreamCluster more: all 10000 indices"), "{error}");
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
