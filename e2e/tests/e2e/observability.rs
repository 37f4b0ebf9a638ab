//! Tests Tributary's telemetry with real programs. Prometheus checks the alert rules and the dashboard's queries, and
//! an OpenTelemetry collector receives the spans.

mod alerts;
mod traces;

use crate::context::Case;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = alerts::cases();
    cases.extend(traces::cases());
    cases
}
