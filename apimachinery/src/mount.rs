//! The API that a request's listener, host and path prefix address.
//!
//! | listener or host, and path of the request | addressed API |
//! |---|---|
//! | a host of the merged view, any other path | all clusters as one |
//! | a host of the merged view, a path below `/clusters/<name>` | the cluster's own API |
//! | the host of a cluster | the cluster's own API, without the merged view |
//! | the aggregated entry, a path below `<group>/views/all/proxy` | all clusters as one |
//! | the aggregated entry, a path below `<group>/clusters/<name>/proxy` | the cluster's own API |
//! | the aggregated entry, any other path | the entry itself |
//!
//! `<group>` is `/apis/aggregation.tributary.dev/v1alpha1`. The path after the prefix is parsed in the same way for
//! each API (`RequestInfo`). It is not searched for a prefix again.

mod door;
mod table;

use crate::{ClusterName, Status};

pub use door::Door;
pub use table::{MERGED_VIEW, MountTarget, Mounted};
use table::{PrefixNames, PrefixRow, PrefixTable};

/// The API at the path `/`. The default is the merged view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mount {
    /// The merged view, with each cluster's own API below `/clusters/<name>`.
    #[default]
    Merged,
    /// The API of one cluster: each path belongs to that cluster.
    Cluster(ClusterName),
    /// The aggregated entry, to which the kube-apiserver of the hub forwards requests.
    Aggregated,
}

/// The path prefixes at a host of the merged view.
const MERGED: PrefixTable = PrefixTable {
    rows: &[PrefixRow { before: "/clusters/", after: "", names: PrefixNames::Clusters }],
    door: Door::Direct,
};

/// The path prefixes at the aggregated entry.
const AGGREGATED: PrefixTable = PrefixTable {
    rows: &[
        PrefixRow {
            before: "/apis/aggregation.tributary.dev/v1alpha1/views/",
            after: "/proxy",
            names: PrefixNames::Views,
        },
        PrefixRow {
            before: "/apis/aggregation.tributary.dev/v1alpha1/clusters/",
            after: "/proxy",
            names: PrefixNames::Clusters,
        },
    ],
    door: Door::Aggregated,
};

impl Mount {
    /// Returns the way by which clients reach the API.
    pub fn door(&self) -> Door {
        match self {
            Self::Merged | Self::Cluster(_) => Door::Direct,
            Self::Aggregated => AGGREGATED.door,
        }
    }

    /// Resolves a path to the addressed API and the path in this API. The path is percent-encoded as received. The
    /// function does not check the inner path; `RequestInfo::parse_mounted` does.
    ///
    /// # Errors
    /// 404 for the name of a cluster that is invalid, and for the name of a view that does not exist.
    pub fn resolve<'a>(&self, path: &'a str) -> Result<Mounted<'a>, Status> {
        let (table, target) = match self {
            Self::Merged => (&MERGED, MountTarget::Merged),
            Self::Aggregated => (&AGGREGATED, MountTarget::Entry),
            Self::Cluster(cluster) => {
                let target = MountTarget::Cluster(cluster.clone());
                return Ok(Mounted { target, prefix: "", inner: path, door: Door::Direct });
            }
        };
        let mounted = table.resolve(path)?;
        Ok(mounted.unwrap_or(Mounted { target, prefix: "", inner: path, door: table.door }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "/apis/aggregation.tributary.dev/v1alpha1";

    fn eu() -> ClusterName {
        ClusterName::new("eu").unwrap()
    }

    #[test]
    fn request_path_at_a_clusters_host_addresses_that_cluster() {
        let own = Mount::Cluster(eu());
        for path in
            ["/", "/api/v1/pods", "/clusters/us/api", "/clusters/", "/clusters/A", "/metrics", "/healthz", "//x"]
        {
            let target = MountTarget::Cluster(eu());
            assert_eq!(own.resolve(path).unwrap(), Mounted { target, prefix: "", inner: path, door: Door::Direct });
        }
    }

    /// The target, the prefix and the inner path. `None` is an unknown name.
    type Expected = Option<(MountTarget, &'static str, &'static str)>;

    fn check_table(mount: &Mount, cases: &[(&str, Expected)]) {
        for (path, expected) in cases {
            let mounted = mount.resolve(path);
            if let Err(status) = &mounted {
                assert_eq!(status.code, 404, "{path}");
            }
            let parts = mounted.ok().map(|mounted| (mounted.target, mounted.prefix, mounted.inner));
            assert_eq!(parts, *expected, "{path}");
        }
    }

    #[test]
    fn merged_host_mounts_each_cluster() {
        let eu = || MountTarget::Cluster(eu());
        let merged = |path| Some((MountTarget::Merged, "", path));
        check_table(
            &Mount::Merged,
            &[
                ("/api/v1/pods", merged("/api/v1/pods")),
                ("/clusters/eu/api", Some((eu(), "/clusters/eu", "/api"))),
                ("/clusters/eu/clusters/us/api", Some((eu(), "/clusters/eu", "/clusters/us/api"))),
                ("/clusters/eu//api", Some((eu(), "/clusters/eu", "//api"))),
                ("/clusters/eu", Some((eu(), "/clusters/eu", "/"))),
                ("/clusters/eu/", Some((eu(), "/clusters/eu", "/"))),
                ("/clusters/", merged("/clusters/")),
                ("/clusters", merged("/clusters")),
                ("//clusters/eu/api", merged("//clusters/eu/api")),
                ("/clusters//", merged("/clusters//")),
                ("/clusters//api", None),
                ("/clusters/EU/api", None),
                ("/clusters/%65u/api", None),
                ("/clusters/eu;x/api", None),
                ("/clusters/../api", None),
                ("/clusters/eu%2Fapi", None),
                (
                    "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy/api",
                    merged("/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy/api"),
                ),
            ],
        );
    }

    #[test]
    fn aggregated_entry_mounts_the_merged_view_and_each_cluster() {
        let (all, eu_prefix) = (format!("{GROUP}/views/all/proxy"), format!("{GROUP}/clusters/eu/proxy"));
        for (suffix, inner) in [
            ("", "/"),
            ("/", "/"),
            ("/api/v1/pods", "/api/v1/pods"),
            ("/clusters/us/api", "/clusters/us/api"),
            ("//api", "//api"),
            ("/..", "/.."),
            ("/api%2Fv1", "/api%2Fv1"),
            ("/api;v=1", "/api;v=1"),
            (
                "/apis/aggregation.tributary.dev/v1alpha1/views/all/proxy/api",
                "/apis/aggregation.tributary.dev/v1alpha1/views/all/proxy/api",
            ),
        ] {
            for (prefix, target) in [(&all, MountTarget::Merged), (&eu_prefix, MountTarget::Cluster(eu()))] {
                let path = format!("{prefix}{suffix}");
                let expected = Mounted { target, prefix, inner, door: Door::Aggregated };
                assert_eq!(Mount::Aggregated.resolve(&path).unwrap(), expected, "{path}");
            }
        }
        for path in ["views//proxy/api", "views/ALL/proxy", "views/al%6C/proxy", "views/%2F/proxy", "views/all;x/proxy"]
        {
            assert_eq!(Mount::Aggregated.resolve(&format!("{GROUP}/{path}")).unwrap_err().code, 404, "{path}");
        }
        for path in ["clusters/EU/proxy", "clusters/e%75/proxy/api", "clusters/../proxy", "clusters/eu;x/proxy/api"] {
            assert_eq!(Mount::Aggregated.resolve(&format!("{GROUP}/{path}")).unwrap_err().code, 404, "{path}");
        }
    }

    #[test]
    fn other_paths_at_the_aggregated_entry_belong_to_the_entry() {
        for path in [
            "/",
            "/apis",
            "/api/v1/pods",
            "/clusters/eu/api",
            "/metrics",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxyx",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy%2Fapi",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/status",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters//eu/proxy",
            "/apis/aggregation.tributary.dev/v1alpha1/views/all%2Fproxy",
            "/apis/aggregation.tributary.dev/v1alpha2/views/all/proxy",
            "/apis/aggregation%2Etributary.dev/v1alpha1/views/all/proxy",
            "//apis/aggregation.tributary.dev/v1alpha1/views/all/proxy",
        ] {
            let expected = Mounted { target: MountTarget::Entry, prefix: "", inner: path, door: Door::Aggregated };
            assert_eq!(Mount::Aggregated.resolve(path).unwrap(), expected);
        }
    }
}
