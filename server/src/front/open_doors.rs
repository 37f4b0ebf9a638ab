//! The doors of foreign systems, at the aggregated entry and at the entry of Open Cluster Management.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tributary_apimachinery::{ForeignDoors, ForeignSystem, Mount};
use tributary_router::ForeignMembers;

/// The doors that flags open, with the names of the current configuration.
#[derive(Debug, Default)]
pub struct OpenDoors {
    systems: BTreeSet<ForeignSystem>,
    current: ArcSwap<ForeignDoors>,
}

impl OpenDoors {
    /// Opens the doors of systems. Until [`set_members`](Self::set_members), no name is known.
    pub fn new(systems: impl IntoIterator<Item = ForeignSystem>) -> Self {
        let systems = BTreeSet::from_iter(systems);
        let current = ArcSwap::from_pointee(ForeignMembers::default().doors(systems.iter().copied()));
        Self { systems, current }
    }

    /// Replaces the names that the systems know.
    pub fn set_members(&self, members: &ForeignMembers) {
        self.current.store(Arc::new(members.doors(self.systems.iter().copied())));
    }

    /// Returns whether the door of a system is open.
    pub fn has(&self, system: ForeignSystem) -> bool {
        self.systems.contains(&system)
    }

    /// Returns the API of the aggregated entry.
    pub fn mount(&self) -> Mount {
        Mount::Aggregated(self.current.load_full())
    }

    /// Returns the API of the entry of Open Cluster Management.
    pub fn mount_of_open_cluster_management(&self) -> Mount {
        Mount::OpenClusterManagement(self.current.load_full())
    }
}
