//! What stands at the root of a request's path: the row of the table of mounts by which it came in.
//!
//! | by | there is |
//! |---|---|
//! | a path of the merged view | all clusters as one |
//! | `/clusters/<name>` below it | one cluster's own API |
//! | a host of the cluster's own | one cluster's own API, and nothing else |
//!
//! Whichever it is, the path behind it is read in the same way (`RequestInfo`).

use crate::{ClusterName, Status};

/// What stands at the root of a request's path. Among a request's extensions once its host is known; one that has none
/// is at the merged view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mount {
    /// The merged view, with each cluster's own API below `/clusters/<name>`.
    #[default]
    Merged,
    /// One cluster's own API: whatever the path, it is that cluster's.
    Cluster(ClusterName),
}

impl Mount {
    /// The cluster whose own API a path belongs to, and the path there, byte for byte.
    ///
    /// # Errors
    /// 404 for what stands in the place of a cluster's name and can be none. A name needs no escapes, so an escaped one
    /// is no name.
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
    fn on_a_clusters_own_host_every_path_is_the_clusters() {
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
