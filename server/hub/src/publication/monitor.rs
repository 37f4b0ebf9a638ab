//! The state of the publication for the report and the metrics.

use std::sync::Arc;

use parking_lot::Mutex;
use tributary_router::report::PublicationReport;

/// A view of the publication's state. Clones show the same publication. The state is empty in replicas that do not hold
/// the Lease.
#[derive(Clone, Debug, Default)]
pub struct PublicationMonitor(Arc<Mutex<Vec<PublicationReport>>>);

impl PublicationMonitor {
    /// Returns the present state of each published kind.
    pub fn report(&self) -> Vec<PublicationReport> {
        self.0.lock().clone()
    }

    /// Replaces the state. Logs the problems that are new.
    pub(super) fn replace(&self, states: Vec<PublicationReport>) {
        let mut current = self.0.lock();
        let known: Vec<&str> = problems(&current).collect();
        for problem in problems(&states).filter(|problem| !known.contains(problem)) {
            tracing::warn!(problem, "an object for controllers is not published");
        }
        if !known.is_empty() && problems(&states).next().is_none() && !states.is_empty() {
            tracing::info!("all objects for controllers are published");
        }
        *current = states;
    }
}

fn problems(states: &[PublicationReport]) -> impl Iterator<Item = &str> {
    states.iter().flat_map(|state| state.problems.iter().map(String::as_str))
}
