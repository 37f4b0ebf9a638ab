//! What others make of what Tributary tells of itself: Prometheus of its alert rules and of the dashboard's queries, a
//! collector of its spans.

mod alerts;

use crate::context::Case;

pub(crate) fn cases() -> Vec<Case> {
    alerts::cases()
}
