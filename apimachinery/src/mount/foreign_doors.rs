//! The doors of foreign systems, and the names of clusters in these systems.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::{ClusterName, GroupVersionResource, Status, StatusReason};

/// A system other than Tributary. Its clients reach the members through Tributary with the paths of that system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForeignSystem {
    /// cluster-gateway, which KubeVela uses (`cluster.core.oam.dev/v1alpha1`).
    ClusterGateway,
    /// Karmada (`cluster.karmada.io/v1alpha1` and `search.karmada.io/v1alpha1`).
    Karmada,
    /// Open Cluster Management, with the paths of cluster-proxy's user-server.
    OpenClusterManagement,
}

impl ForeignSystem {
    /// All systems.
    pub const ALL: [Self; 3] = [Self::ClusterGateway, Self::Karmada, Self::OpenClusterManagement];

    /// Returns the name of the system in flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterGateway => "cluster-gateway",
            Self::Karmada => "karmada",
            Self::OpenClusterManagement => "ocm",
        }
    }

    /// Returns the system's answer to a request for an unknown cluster. cluster-gateway answers 500 with a text that
    /// KubeVela looks for; its clients would read a 404 as an absent object. Open Cluster Management answers 502, as
    /// for a cluster that is down.
    pub fn unknown_cluster(self, name: &str) -> Status {
        match self {
            Self::ClusterGateway => Status::new(500, StatusReason::InternalError, format!("no such cluster {name}")),
            Self::Karmada => {
                Status::not_found(&GroupVersionResource::new("cluster.karmada.io", "v1alpha1", "clusters"), name)
            }
            Self::OpenClusterManagement => Status::new(
                502,
                StatusReason::Unknown,
                format!("no cluster {name:?} is served; it may have no connection"),
            ),
        }
    }
}

impl fmt::Display for ForeignSystem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The open doors of foreign systems, each with the members by their names in the foreign system. Tributary does not
/// recognize the paths of a closed door.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignDoors {
    names: BTreeMap<ForeignSystem, HashMap<String, ClusterName>>,
    /// The names at which the hub must also allow the request inside the door.
    inner: BTreeSet<(ForeignSystem, String)>,
}

impl ForeignDoors {
    /// Opens the door of a system. `names` maps the system's name of each cluster to the member.
    pub fn open(&mut self, system: ForeignSystem, names: HashMap<String, ClusterName>) {
        self.names.insert(system, names);
    }

    /// Demands that the hub also allows the requests inside the door of a system, below a name.
    pub fn authorize_inner(&mut self, system: ForeignSystem, name: String) {
        self.inner.insert((system, name));
    }

    /// Returns whether the hub must also allow the requests inside the door of a system, below a name.
    pub fn authorizes_inner(&self, system: ForeignSystem, name: &str) -> bool {
        // Most configurations have no such name, and a lookup needs a copy of the text.
        !self.inner.is_empty() && self.inner.contains(&(system, name.to_owned()))
    }

    /// Returns whether the door of a system is open.
    pub fn is_open(&self, system: ForeignSystem) -> bool {
        self.names.contains_key(&system)
    }

    /// Returns the member that a system calls `name`.
    pub fn cluster(&self, system: ForeignSystem, name: &str) -> Option<&ClusterName> {
        self.names.get(&system)?.get(name)
    }
}
