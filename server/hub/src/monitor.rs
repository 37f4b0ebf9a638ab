//! The state of the hub for the report and the metrics.

use std::sync::Arc;

use tokio::sync::watch;
use tributary_router::report::{HubObjectReport, HubReport};

use crate::{HubCollections, Verdict};

/// The most objects in a report. 5,000: a hub with more members still gives a readable report.
const OBJECTS_MAX: usize = 5_000;

/// A view of the hub's state. Clones show the same hub.
#[derive(Clone)]
pub struct HubMonitor {
    pub(crate) collections: Arc<HubCollections>,
    pub(crate) verdicts: watch::Receiver<Vec<Verdict>>,
}

impl HubMonitor {
    /// Returns the present state of the hub. Does no I/O. At most 5,000 objects are reported, objects with a problem
    /// first.
    pub fn report(&self) -> HubReport {
        let mut objects: Vec<HubObjectReport> = self.verdicts.borrow().iter().map(object_report).collect();
        objects.sort_by(|a, b| (a.problem.is_none(), &a.kind, &a.name).cmp(&(b.problem.is_none(), &b.kind, &b.name)));
        objects.truncate(OBJECTS_MAX);
        HubReport { problem: self.collections.problem(), objects }
    }
}

fn object_report(verdict: &Verdict) -> HubObjectReport {
    HubObjectReport {
        kind: verdict.object.kind.as_str().to_owned(),
        name: verdict.object.name.clone(),
        generation: verdict.object.generation,
        generation_in_force: verdict.generation_in_force,
        problem: verdict.problem(),
    }
}
