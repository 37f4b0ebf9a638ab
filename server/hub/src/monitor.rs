//! The state of the hub for the report and the metrics.

use std::sync::Arc;

use tokio::sync::watch;
use tributary_router::report::{HubObjectReport, HubReport, SourceReport};

use crate::{ConditionState, ConditionStatus, HubCollections, SourceVerdict, Verdict};

/// The most objects in a report. 5,000: a hub with more members still gives a readable report.
const OBJECTS_MAX: usize = 5_000;

/// A view of the hub's state. Clones show the same hub.
#[derive(Clone)]
pub struct HubMonitor {
    pub(crate) collections: Arc<HubCollections>,
    pub(crate) verdicts: watch::Receiver<Arc<[Verdict]>>,
}

impl HubMonitor {
    /// Returns the present state of the hub. Does no I/O. At most 5,000 objects are reported, objects with a problem
    /// first.
    pub fn report(&self) -> HubReport {
        let report =
            |verdict: &Verdict| object_report(verdict, self.collections.source_condition(&verdict.object.name));
        let mut objects: Vec<HubObjectReport> = self.verdicts.borrow().iter().map(report).collect();
        objects.sort_by(|a, b| (a.problem.is_none(), &a.kind, &a.name).cmp(&(b.problem.is_none(), &b.kind, &b.name)));
        objects.truncate(OBJECTS_MAX);
        HubReport { problem: self.collections.problem(), objects, publications: Vec::new() }
    }
}

/// Returns the report of an object. `synced` is the condition of a ClusterSource.
fn object_report(verdict: &Verdict, synced: ConditionState) -> HubObjectReport {
    let source = verdict.source.as_deref();
    let of_list = source.filter(|_| synced.status == ConditionStatus::False).map(|_| synced.message);
    let problem = verdict.problem().or(of_list).or_else(|| source.and_then(item_problem));
    HubObjectReport {
        kind: verdict.object.kind.as_str().to_owned(),
        name: verdict.object.name.clone(),
        generation: verdict.object.generation,
        generation_in_force: verdict.generation_in_force,
        problem,
        source: source.map(|source| SourceReport {
            list: source.list.field().to_owned(),
            found: source.found(),
            accepted: source.accepted(),
        }),
    }
}

/// Returns the number of refused items, with the first of them; `None` if no item is refused.
fn item_problem(source: &SourceVerdict) -> Option<String> {
    let (found, first) = (source.found()?, source.refused().next()?);
    let ConditionState { reason, message, .. } = &first.accepted;
    Some(format!("{} of {found} items are refused: {}: {reason}: {message}", source.refused().count(), first.name))
}
