//! What is broken at a time, and which requests may fail for it. Everything else has to be answered.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How long after its end a fault is still an excuse: an endpoint that was lost is dialed again at least each half
/// minute.
const AFTERMATH: Duration = Duration::from_secs(35);

/// Whose requests a fault may have fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those that need this cluster.
    Cluster(usize),
    /// Those that write there: what may have been carried out is not sent again.
    Writes(usize),
    /// Those that come through the front wire.
    Front,
    /// Those to the merged view: what users may do in one of its clusters is not known yet.
    Merged,
}

/// What a request needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// The cluster without which there is no answer; `None` for what memory answers, or Tributary itself: no cluster
    /// that is away may be seen in that.
    pub(super) cluster: Option<usize>,
    /// Whether it is sent to the merged view, and answered by what its sender may do in the clusters.
    pub(super) is_merged: bool,
    pub(super) is_write: bool,
    pub(super) through_front: bool,
}

/// The faults so far.
#[derive(Debug, Default)]
pub(super) struct Harms(Mutex<Vec<Harm>>);

#[derive(Debug)]
struct Harm {
    reach: Reach,
    from: Instant,
    /// `None` as long as it lasts.
    until: Option<Instant>,
}

/// One that lasts until this is dropped.
pub(super) struct Lasting<'a> {
    harms: &'a Harms,
    numbers: Vec<usize>,
}

impl Harms {
    /// A fault begins.
    pub(super) fn begin(&self, reaches: &[Reach]) -> Lasting<'_> {
        let mut all = self.0.lock();
        let first = all.len();
        all.extend(reaches.iter().map(|reach| Harm { reach: *reach, from: Instant::now(), until: None }));
        Lasting { harms: self, numbers: (first..all.len()).collect() }
    }

    /// Whether a request that was sent then, and failed now, may have failed for a fault.
    pub(super) fn excuse(&self, needs: Needs, sent: Instant) -> bool {
        let lasts = |harm: &&Harm| harm.until.is_none_or(|until| until + AFTERMATH >= sent);
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

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        let mut all = self.harms.0.lock();
        for number in &self.numbers {
            if let Some(harm) = all.get_mut(*number) {
                harm.until = Some(Instant::now());
            }
        }
    }
}
