//! The API that a request's host and path prefix address.
//!
//! | host and path of the request | addressed API |
//! |---|---|
//! | a host of the merged view, any other path | all clusters as one |
//! | a host of the merged view, a path below `/clusters/<name>` | the cluster's own API |
//! | the host of a cluster | the cluster's own API, without the merged view |
//!
//! The path after the prefix is parsed in the same way for each API (`RequestInfo`).

use crate::{ClusterName, Status};

/// The API at the root of a request's host. The value is stored in a request's extensions once the host is resolved. A
/// request without the value addresses the merged view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mount {
    /// The merged view, with each cluster's own API below `/clusters/<name>`.
    #[default]
    Merged,
    /// The API of one cluster: each path belongs to that cluster.
    Cluster(ClusterName),
}

impl Mount {
    /// Splits a path into a cluster and a Kubernetes path. The cluster is the one whose own API the path addresses. The
    /// Kubernetes path is returned byte for byte.
    ///
    /// # Errors
    /// 404 for an invalid cluster name after `/clusters/`. A cluster name needs no escapes, so an escaped text is not a
    /// name.
    pub fn split<'a>(&self, path: &'a str) -> Result<(Option<ClusterName>, &'a str), Status> {
        if let Self::Cluster(cluster) = self {
            return Ok((Some(cluster.clone()), path));
        }
        let Some(after) = path.strip_prefix("/clusters/") else {
            return Ok((None, path));
        };
        let (name, rest) = match after.find('/') {
            Some(at) => (&after[..at], &after[at..]),
            None => (after, "/"),
        };
        if name.is_empty() && rest == "/" {
            return Ok((None, path));
        }
        let cluster = ClusterName::new(name).map_err(|_| Status::cluster_not_found(name))?;
        Ok((Some(cluster), rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_path_at_a_clusters_host_addresses_that_cluster() {
        let eu = || ClusterName::new("eu").unwrap();
        let own = Mount::Cluster(eu());
        for path in
            ["/", "/api/v1/pods", "/clusters/us/api", "/clusters/", "/clusters/A", "/metrics", "/healthz", "//x"]
        {
            assert_eq!(own.split(path).unwrap(), (Some(eu()), path));
        }
        for (path, expected) in [
            ("/api/v1/pods", Some((None, "/api/v1/pods"))),
            ("/clusters/eu/api", Some((Some(eu()), "/api"))),
            ("/clusters/eu", Some((Some(eu()), "/"))),
            ("/clusters/", Some((None, "/clusters/"))),
            ("/clusters/EU/api", None),
            ("/clusters/%65u/api", None),
        ] {
            assert_eq!(Mount::Merged.split(path).ok(), expected, "{path}");
        }
    }
}
