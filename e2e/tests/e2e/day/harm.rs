//! Records the active faults, and decides which failed requests they excuse. All other requests must succeed.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Time after the end of a fault in which the fault still excuses failures. Tributary tries to connect to a lost
/// endpoint at least every half minute.
const AFTERMATH: Duration = Duration::from_secs(35);

/// Requests that a fault may affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Requests that need this cluster.
    Cluster(usize),
    /// Writes to this cluster. Tributary does not repeat a write that the cluster may have executed.
    Writes(usize),
    /// Requests through the relay between some clients and Tributary.
    Front,
    /// Requests to the merged view. They may fail while Tributary has not yet read the RBAC objects of a joining
    /// cluster.
    Merged,
}

/// Parts of the system that a request uses. Only a fault of these parts excuses a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Cluster that must answer. `None` if Tributary answers itself or from its cache, and so needs no cluster.
    pub(super) cluster: Option<usize>,
    /// True for a request to the merged view, which needs the sender's RBAC rights in the clusters.
    pub(super) is_merged: bool,
    pub(super) is_write: bool,
    pub(super) through_front: bool,
}

#[derive(Debug, Default)]
pub(super) struct Harms(Mutex<Vec<FaultPeriod>>);

#[derive(Debug)]
struct FaultPeriod {
    reach: Reach,
    from: Instant,
    /// The end of the fault; `None` while the fault lasts.
    until: Option<Instant>,
}

/// Fault that is in effect. Dropping the value ends the fault.
pub(super) struct ActiveFault<'a> {
    harms: &'a Harms,
    numbers: Vec<usize>,
}

impl Harms {
    pub(super) fn begin(&self, reaches: &[Reach]) -> ActiveFault<'_> {
        let mut all = self.0.lock();
        let first = all.len();
        all.extend(reaches.iter().map(|reach| FaultPeriod { reach: *reach, from: Instant::now(), until: None }));
        ActiveFault { harms: self, numbers: (first..all.len()).collect() }
    }

    /// Returns whether a fault excuses the failure of a request with these needs, sent at this time.
    pub(super) fn excuse(&self, needs: Needs, sent: Instant) -> bool {
        let lasts = |harm: &&FaultPeriod| harm.until.is_none_or(|until| until + AFTERMATH >= sent);
        self.0.lock().iter().filter(lasts).any(|harm| harm.from <= Instant::now() && harm.reach.has(needs))
    }
}

impl Reach {
    fn has(self, needs: Needs) -> bool {
        let is_of = |cluster| needs.cluster == Some(cluster);
        match self {
            Self::Cluster(cluster) => is_of(cluster),
            Self::Writes(cluster) => needs.is_write && is_of(cluster),
            Self::Front => needs.through_front,
            Self::Merged => needs.is_merged,
        }
    }
}

impl Drop for ActiveFault<'_> {
    fn drop(&mut self) {
        let mut all = self.harms.0.lock();
        for number in &self.numbers {
            if let Some(harm) = all.get_mut(*number) {
                harm.until = Some(Instant::now());
            }
        }
    }
}
