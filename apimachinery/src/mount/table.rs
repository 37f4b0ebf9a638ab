//! Tables of path prefixes. Each prefix selects an API, and a name in the prefix selects a cluster or a view.

use crate::{ClusterName, GroupVersionResource, Status};

use super::{Door, ForeignDoors, ForeignSystem};

/// The API that a path addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountTarget {
    /// The merged view of all clusters.
    Merged,
    /// The API of a single cluster.
    Cluster(ClusterName),
    /// The aggregated entry itself, for example its discovery documents.
    Entry,
}

/// A path, divided into the prefix and the path in the target's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted<'a> {
    /// The API that answers the request.
    pub target: MountTarget,
    /// The prefix, as received. Empty for a path without a prefix.
    pub prefix: &'a str,
    /// The path in the target's API, as received. If the received path ends with the prefix, this path is `/`.
    pub inner: &'a str,
    /// The way by which the client reaches the target.
    pub door: Door,
}

/// A path prefix `{before}{name}{after}`. It selects an API other than the mount's own.
#[derive(Debug)]
pub(super) struct PrefixRow {
    /// The part before the name. Begins and ends with a slash.
    pub(super) before: &'static str,
    /// The part after the name: empty, or a slash and more segments. Does not end with a slash.
    pub(super) after: &'static str,
    pub(super) names: PrefixNames,
    /// The door of clients that use the prefix.
    pub(super) door: Door,
}

/// The meaning of the name in a prefix.
#[derive(Debug)]
pub(super) enum PrefixNames {
    /// The name of a cluster. The target is the API of this cluster.
    Clusters,
    /// The name of a merged view. The only view is `all`.
    Views,
    /// The name of a cluster in cluster-gateway.
    ClusterGateways,
    /// The name of a cluster in Karmada, or `*` for the merged view.
    KarmadaClusters,
    /// Any name stands for the merged view.
    KarmadaSearch,
    /// The name of a cluster in Open Cluster Management.
    ManagedClusters,
}

/// The name of the only merged view.
pub const MERGED_VIEW: &str = "all";

/// Karmada's name for all clusters, as clients write it, and as the aggregator of a kube-apiserver escapes it (Go's
/// `URL.EscapedPath`).
const ALL_CLUSTERS: [&str; 2] = ["*", "%2A"];

/// Divides a path by the prefix that it begins with; returns `None` for a path without a prefix, and for the prefix of
/// a closed door. Names need no escapes, so an escaped text is no name. The rest of the path is returned byte for byte.
///
/// # Errors
/// 404 for a name that is invalid, or that no view has. 404, 500 or 502 for a name that a foreign system does
/// not know.
pub(super) fn resolve_prefix<'a>(
    rows: &[PrefixRow],
    path: &'a str,
    foreign: Option<&ForeignDoors>,
) -> Result<Option<Mounted<'a>>, Status> {
    let is_open = |row: &&PrefixRow| match row.names.system() {
        Some(system) => foreign.is_some_and(|doors| doors.is_open(system)),
        None => true,
    };
    for row in rows.iter().filter(is_open) {
        if let Some((prefix, name, inner)) = row.divide(path) {
            return Ok(Some(Mounted { target: row.names.target(name, foreign)?, prefix, inner, door: row.door }));
        }
    }
    Ok(None)
}

/// Returns the door of the foreign system whose prefix a path has, and the name in the prefix. The foreign system may
/// have no cluster of this name. Each spelling of Karmada's name for all clusters is returned as `*`. Returns `None`
/// for any other path, and for the prefix of a closed door.
pub(super) fn find_foreign_name<'a>(
    rows: &[PrefixRow],
    path: &'a str,
    foreign: &ForeignDoors,
) -> Option<(Door, &'a str)> {
    let mut open = rows.iter().filter(|row| row.names.system().is_some_and(|system| foreign.is_open(system)));
    let (row, name) = open.find_map(|row| row.divide(path).map(|(_, name, _)| (row, name)))?;
    let is_all = row.door == Door::KarmadaClusters && ALL_CLUSTERS.contains(&name);
    Some((row.door, if is_all { ALL_CLUSTERS[0] } else { name }))
}

impl PrefixRow {
    /// Divides a path into prefix, name and inner path. Returns `None` for a path without this prefix.
    fn divide<'a>(&self, path: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
        let from_name = path.strip_prefix(self.before)?;
        let (name, from_after) = from_name.split_at(from_name.find('/').unwrap_or(from_name.len()));
        let rest = from_after.strip_prefix(self.after)?;
        let inner = match rest {
            // The name is missing, so the path addresses no API.
            "" | "/" if name.is_empty() => return None,
            "" => "/",
            inner if inner.starts_with('/') => inner,
            _ => return None,
        };
        Some((&path[..path.len() - rest.len()], name, inner))
    }
}

impl PrefixNames {
    /// Returns the foreign system whose door has the prefix.
    fn system(&self) -> Option<ForeignSystem> {
        match self {
            Self::Clusters | Self::Views => None,
            Self::ClusterGateways => Some(ForeignSystem::ClusterGateway),
            Self::KarmadaClusters | Self::KarmadaSearch => Some(ForeignSystem::Karmada),
            Self::ManagedClusters => Some(ForeignSystem::OpenClusterManagement),
        }
    }

    fn target(&self, name: &str, foreign: Option<&ForeignDoors>) -> Result<MountTarget, Status> {
        let known = |system: ForeignSystem| {
            let cluster = foreign.and_then(|doors| doors.cluster(system, name)).cloned();
            cluster.map(MountTarget::Cluster).ok_or_else(|| system.unknown_cluster(name))
        };
        match self {
            Self::ClusterGateways => known(ForeignSystem::ClusterGateway),
            Self::KarmadaClusters if ALL_CLUSTERS.contains(&name) => Ok(MountTarget::Merged),
            Self::KarmadaClusters => known(ForeignSystem::Karmada),
            Self::KarmadaSearch => Ok(MountTarget::Merged),
            Self::ManagedClusters => known(ForeignSystem::OpenClusterManagement),
            Self::Clusters => {
                let cluster = ClusterName::new(name).map_err(|_| Status::cluster_not_found(name))?;
                Ok(MountTarget::Cluster(cluster))
            }
            Self::Views if name == MERGED_VIEW => Ok(MountTarget::Merged),
            Self::Views => {
                let views = GroupVersionResource::new("aggregation.tributary.dev", "v1alpha1", "views");
                Err(Status::not_found(&views, name))
            }
        }
    }
}
