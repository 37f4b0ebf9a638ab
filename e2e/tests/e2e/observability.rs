//! What others make of what Tributary tells of itself: Prometheus of its alert rules and of the dashboard's queries, a
//! collector of its spans.

mod alerts;
mod traces;

use crate::context::Case;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = alerts::cases();
    cases.extend(traces::cases());
    cases
}
