//! The API that a request's listener, host and path prefix address.
//!
//! | listener or host, and path of the request | addressed API |
//! |---|---|
//! | a host of the merged view, any other path | all clusters as one |
//! | a host of the merged view, a path below `/clusters/<name>` | the cluster's own API |
//! | a host of the merged view, a path below `/k8s/clusters/<name>`, as in Rancher | the cluster's own API |
//! | the host of a cluster | the cluster's own API, without the merged view |
//! | the aggregated entry, a path below `<group>/views/all/proxy` | all clusters as one |
//! | the aggregated entry, a path below `<group>/clusters/<name>/proxy` | the cluster's own API |
//! | the aggregated entry, `<gateway>/clustergateways/<name>/proxy` | the cluster that cluster-gateway calls `name` |
//! | the aggregated entry, `<karmada>/clusters/<name>/proxy` | the cluster that Karmada calls `name` |
//! | the aggregated entry, `<karmada>/clusters/*/proxy` | all clusters as one |
//! | the aggregated entry, `<search>/proxying/<name>/proxy` | all clusters as one |
//! | the aggregated entry, any other path | the entry itself |
//! | the entry of Open Cluster Management, a path below `/<name>` | the cluster that OCM calls `name` |
//! | the entry of Open Cluster Management, any other path | none (400) |
//!
//! `<group>` is `/apis/aggregation.tributary.dev/v1alpha1`, `<gateway>` is `/apis/cluster.core.oam.dev/v1alpha1`,
//! `<karmada>` is `/apis/cluster.karmada.io/v1alpha1`, `<search>` is `/apis/search.karmada.io/v1alpha1`. The path after
//! the prefix is parsed in the same way for each API (`RequestInfo`). It is not searched for a prefix again.

mod door;
mod foreign_doors;
mod table;

use std::sync::Arc;

use crate::{ClusterName, Status};

pub use door::Door;
pub use foreign_doors::{ForeignDoors, ForeignSystem};
pub use table::{MERGED_VIEW, MountTarget, Mounted};
use table::{PrefixNames, PrefixRow, find_foreign_name, resolve_prefix};

/// The API at the path `/`. The default is the merged view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mount {
    /// The merged view, with each cluster's own API below `/clusters/<name>` and `/k8s/clusters/<name>`.
    #[default]
    Merged,
    /// The API of one cluster: each path belongs to that cluster.
    Cluster(ClusterName),
    /// The aggregated entry, to which the kube-apiserver of the hub forwards requests, with the doors of foreign
    /// systems.
    Aggregated(Arc<ForeignDoors>),
    /// The entry of Open Cluster Management (OCM), with the paths of its cluster-proxy user-server.
    OpenClusterManagement(Arc<ForeignDoors>),
}

/// The beginnings of the prefixes of a cluster's own API at a host of the merged view: Tributary's and Rancher's. The
/// name of the cluster follows.
pub const CLUSTER_PREFIXES: [&str; 2] = ["/clusters/", "/k8s/clusters/"];

/// The path prefixes at a host of the merged view.
const MERGED: &[PrefixRow] = &[
    PrefixRow { before: CLUSTER_PREFIXES[0], after: "", names: PrefixNames::Clusters, door: Door::Direct },
    PrefixRow { before: CLUSTER_PREFIXES[1], after: "", names: PrefixNames::Clusters, door: Door::Direct },
];

/// The path prefixes at the aggregated entry.
const AGGREGATED: &[PrefixRow] = &[
    PrefixRow {
        before: "/apis/aggregation.tributary.dev/v1alpha1/views/",
        after: "/proxy",
        names: PrefixNames::Views,
        door: Door::Aggregated,
    },
    PrefixRow {
        before: "/apis/aggregation.tributary.dev/v1alpha1/clusters/",
        after: "/proxy",
        names: PrefixNames::Clusters,
        door: Door::Aggregated,
    },
    PrefixRow {
        before: "/apis/cluster.core.oam.dev/v1alpha1/clustergateways/",
        after: "/proxy",
        names: PrefixNames::ClusterGateways,
        door: Door::ClusterGateway,
    },
    PrefixRow {
        before: "/apis/cluster.karmada.io/v1alpha1/clusters/",
        after: "/proxy",
        names: PrefixNames::KarmadaClusters,
        door: Door::KarmadaClusters,
    },
    PrefixRow {
        before: "/apis/search.karmada.io/v1alpha1/proxying/",
        after: "/proxy",
        names: PrefixNames::KarmadaSearch,
        door: Door::KarmadaSearch,
    },
];

/// The path prefix at the entry of Open Cluster Management. Source: open-cluster-management-io/cluster-proxy
/// `pkg/userserver`.
const OPEN_CLUSTER_MANAGEMENT: &[PrefixRow] =
    &[PrefixRow { before: "/", after: "", names: PrefixNames::ManagedClusters, door: Door::OpenClusterManagement }];

impl Mount {
    /// Returns the door for paths without a prefix. A path with a prefix may belong to a different door.
    pub fn door(&self) -> Door {
        match self {
            Self::Merged | Self::Cluster(_) => Door::Direct,
            Self::Aggregated(_) => Door::Aggregated,
            Self::OpenClusterManagement(_) => Door::OpenClusterManagement,
        }
    }

    /// Returns the aggregated entry without doors of foreign systems.
    pub fn aggregated() -> Self {
        Self::Aggregated(Arc::default())
    }

    /// Resolves a path to the addressed API and the path in this API. The path is percent-encoded as received. The
    /// function does not check the inner path; `RequestInfo::parse_mounted` does.
    ///
    /// # Errors
    /// 404 for the name of a cluster that is invalid, and for the name of a view that does not exist. 404, 500 or 502,
    /// as the foreign system answers, for a name that this system does not know. 400 for a path without a cluster at
    /// the entry of Open Cluster Management.
    pub fn resolve<'a>(&self, path: &'a str) -> Result<Mounted<'a>, Status> {
        let (rows, target, foreign) = match self {
            Self::Merged => (MERGED, MountTarget::Merged, None),
            Self::Aggregated(foreign) => (AGGREGATED, MountTarget::Entry, Some(&**foreign)),
            Self::Cluster(cluster) => {
                let target = MountTarget::Cluster(cluster.clone());
                return Ok(Mounted { target, prefix: "", inner: path, door: Door::Direct });
            }
            Self::OpenClusterManagement(foreign) => {
                let mounted = resolve_prefix(OPEN_CLUSTER_MANAGEMENT, path, Some(foreign))?;
                return mounted.ok_or_else(|| Status::bad_request("the path has no cluster; give /CLUSTER/PATH"));
            }
        };
        let mounted = resolve_prefix(rows, path, foreign)?;
        Ok(mounted.unwrap_or(Mounted { target, prefix: "", inner: path, door: self.door() }))
    }

    /// Returns the door of the foreign system whose prefix a path has, and the cluster name in the prefix. The foreign
    /// system may have no cluster of this name. Returns `None` for a path without such a prefix.
    pub fn foreign_name<'a>(&self, path: &'a str) -> Option<(Door, &'a str)> {
        match self {
            Self::Aggregated(foreign) => find_foreign_name(AGGREGATED, path, foreign),
            Self::OpenClusterManagement(foreign) => find_foreign_name(OPEN_CLUSTER_MANAGEMENT, path, foreign),
            Self::Merged | Self::Cluster(_) => None,
        }
    }

    /// Returns whether the hub must also allow the request inside a door, because the source of the name in the path
    /// demands it.
    pub fn authorizes_inner(&self, door: Door, name: &str) -> bool {
        match (self, door.foreign_system()) {
            (Self::Aggregated(foreign), Some(system)) => foreign.authorizes_inner(system, name),
            _ => false,
        }
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
    fn every_request_path_at_the_host_of_a_cluster_goes_to_that_cluster() {
        let own = Mount::Cluster(eu());
        for path in [
            "/",
            "/api/v1/pods",
            "/clusters/us/api",
            "/k8s/clusters/us/api",
            "/clusters/A",
            "/metrics",
            "/healthz",
            "//x",
        ] {
            let target = MountTarget::Cluster(eu());
            assert_eq!(own.resolve(path).unwrap(), Mounted { target, prefix: "", inner: path, door: Door::Direct });
        }
    }

    #[test]
    fn cluster_is_reached_below_each_of_two_path_prefixes_of_a_merged_host() {
        for before in CLUSTER_PREFIXES {
            let prefix = format!("{before}eu");
            for (suffix, inner) in [
                ("", "/"),
                ("/", "/"),
                ("/api", "/api"),
                ("//api", "//api"),
                ("/clusters/us/api", "/clusters/us/api"),
                ("/k8s/clusters/us/api", "/k8s/clusters/us/api"),
                ("/metrics", "/metrics"),
            ] {
                let path = format!("{prefix}{suffix}");
                let target = MountTarget::Cluster(eu());
                let expected = Mounted { target, prefix: &prefix, inner, door: Door::Direct };
                assert_eq!(Mount::Merged.resolve(&path).unwrap(), expected, "{path}");
            }
            for name in ["", "EU", "%65u", "eu;x", "..", "eu%2Fapi"] {
                let path = format!("{before}{name}/api");
                assert_eq!(Mount::Merged.resolve(&path).unwrap_err().code, 404, "{path}");
            }
        }
    }

    #[test]
    fn path_without_a_cluster_prefix_at_a_merged_host_goes_to_the_merged_view() {
        for path in [
            "/api/v1/pods",
            "/clusters/",
            "/clusters",
            "//clusters/eu/api",
            "/clusters//",
            "/k8s",
            "/k8s/",
            "/k8s/clusters",
            "/k8s/clusters/",
            "/k8s/clusters//",
            "/k8s//clusters/eu/api",
            "//k8s/clusters/eu/api",
            "/K8s/clusters/eu/api",
            "/k8s%2Fclusters/eu/api",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy/api",
        ] {
            let expected = Mounted { target: MountTarget::Merged, prefix: "", inner: path, door: Door::Direct };
            assert_eq!(Mount::Merged.resolve(path).unwrap(), expected);
        }
    }

    #[test]
    fn aggregated_api_paths_lead_to_the_merged_view_and_to_each_cluster() {
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
                assert_eq!(Mount::aggregated().resolve(&path).unwrap(), expected, "{path}");
            }
        }
        for path in ["views//proxy/api", "views/ALL/proxy", "views/al%6C/proxy", "views/%2F/proxy", "views/all;x/proxy"]
        {
            assert_eq!(Mount::aggregated().resolve(&format!("{GROUP}/{path}")).unwrap_err().code, 404, "{path}");
        }
        for path in ["clusters/EU/proxy", "clusters/e%75/proxy/api", "clusters/../proxy", "clusters/eu;x/proxy/api"] {
            assert_eq!(Mount::aggregated().resolve(&format!("{GROUP}/{path}")).unwrap_err().code, 404, "{path}");
        }
    }

    #[test]
    fn path_that_names_no_cluster_or_view_is_answered_by_the_aggregated_api_itself() {
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
            assert_eq!(Mount::aggregated().resolve(path).unwrap(), expected);
        }
    }

    const GATEWAYS: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways";
    const KARMADA: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
    const SEARCH: &str = "/apis/search.karmada.io/v1alpha1/proxying";

    fn with_doors(systems: &[ForeignSystem]) -> Mount {
        let mut doors = ForeignDoors::default();
        for system in systems {
            doors.open(*system, [("eu.example".to_owned(), eu())].into());
        }
        Mount::Aggregated(Arc::new(doors))
    }

    #[test]
    fn karmada_and_cluster_gateway_paths_find_clusters_by_their_foreign_names() {
        let mount = with_doors(&[ForeignSystem::ClusterGateway, ForeignSystem::Karmada]);
        for (prefix, door, target) in [
            (format!("{GATEWAYS}/eu.example/proxy"), Door::ClusterGateway, MountTarget::Cluster(eu())),
            (format!("{KARMADA}/eu.example/proxy"), Door::KarmadaClusters, MountTarget::Cluster(eu())),
            (format!("{KARMADA}/*/proxy"), Door::KarmadaClusters, MountTarget::Merged),
            (format!("{KARMADA}/%2A/proxy"), Door::KarmadaClusters, MountTarget::Merged),
            (format!("{SEARCH}/karmada/proxy"), Door::KarmadaSearch, MountTarget::Merged),
        ] {
            let path = format!("{prefix}/api/v1/pods");
            let expected = Mounted { target, prefix: &prefix, inner: "/api/v1/pods", door };
            assert_eq!(mount.resolve(&path).unwrap(), expected, "{path}");
        }
        for (path, code) in [
            (format!("{GATEWAYS}/eu/proxy/api"), 500),
            (format!("{GATEWAYS}/EU.example/proxy/api"), 500),
            (format!("{GATEWAYS}/eu%2Eexample/proxy/api"), 500),
            (format!("{GATEWAYS}/*/proxy/api"), 500),
            (format!("{KARMADA}/eu/proxy/api"), 404),
            (format!("{KARMADA}/%2a/proxy/api"), 404),
        ] {
            assert_eq!(mount.resolve(&path).unwrap_err().code, code, "{path}");
        }
    }

    #[test]
    fn cluster_name_in_a_karmada_or_cluster_gateway_path_is_returned_undecoded() {
        let mount = with_doors(&[ForeignSystem::ClusterGateway, ForeignSystem::Karmada]);
        for (path, expected) in [
            (format!("{GATEWAYS}/eu.example/proxy/api"), Some((Door::ClusterGateway, "eu.example"))),
            (format!("{GATEWAYS}/unknown/proxy"), Some((Door::ClusterGateway, "unknown"))),
            (format!("{GATEWAYS}/e%75/proxy"), Some((Door::ClusterGateway, "e%75"))),
            (format!("{KARMADA}/*/proxy/api"), Some((Door::KarmadaClusters, "*"))),
            (format!("{KARMADA}/%2A/proxy/api"), Some((Door::KarmadaClusters, "*"))),
            (format!("{SEARCH}/karmada/proxy/api"), Some((Door::KarmadaSearch, "karmada"))),
            (format!("{GATEWAYS}/eu.example"), None),
            (format!("{GROUP}/clusters/eu/proxy/api"), None),
        ] {
            assert_eq!(mount.foreign_name(&path), expected, "{path}");
        }
        let path = format!("{GATEWAYS}/eu.example/proxy/api");
        assert_eq!((Mount::aggregated().foreign_name(&path), Mount::Merged.foreign_name(&path)), (None, None));
    }

    #[test]
    fn path_of_a_disabled_foreign_system_is_answered_by_the_aggregated_api_itself() {
        let mount = with_doors(&[ForeignSystem::ClusterGateway]);
        for path in [format!("{KARMADA}/eu.example/proxy/api"), format!("{SEARCH}/karmada/proxy/api")] {
            assert_eq!(mount.resolve(&path).unwrap().target, MountTarget::Entry, "{path}");
        }
        let path = format!("{GATEWAYS}/eu.example/proxy/api");
        assert_eq!(with_doors(&[ForeignSystem::Karmada]).resolve(&path).unwrap().target, MountTarget::Entry);
    }

    #[test]
    fn entry_of_open_cluster_management_leads_to_its_clusters_alone() {
        let mut doors = ForeignDoors::default();
        doors.open(ForeignSystem::OpenClusterManagement, [("eu-1".to_owned(), eu())].into());
        let mount = Mount::OpenClusterManagement(Arc::new(doors));
        for (path, inner) in [
            ("/eu-1", "/"),
            ("/eu-1/", "/"),
            ("/eu-1/api/v1/pods", "/api/v1/pods"),
            ("/eu-1/clusters/us/api", "/clusters/us/api"),
            ("/eu-1//api", "//api"),
        ] {
            let door = Door::OpenClusterManagement;
            let expected = Mounted { target: MountTarget::Cluster(eu()), prefix: "/eu-1", inner, door };
            assert_eq!(mount.resolve(path).unwrap(), expected, "{path}");
            assert_eq!(mount.foreign_name(path), Some((door, "eu-1")), "{path}");
        }
        for (path, code) in [
            ("/", 400),
            ("//", 400),
            ("", 400),
            ("//eu-1/api", 502),
            ("/eu/api", 502),
            ("/EU-1/api", 502),
            ("/eu%2D1/api", 502),
            ("/healthz", 502),
            ("/apis/aggregation.tributary.dev/v1alpha1/views/all/proxy", 502),
        ] {
            assert_eq!(mount.resolve(path).unwrap_err().code, code, "{path}");
        }
        assert!(Mount::OpenClusterManagement(Arc::default()).resolve("/eu-1/api").is_err());
    }
}
