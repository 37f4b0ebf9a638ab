//! One figure to reach.

use serde::Serialize;

/// One figure: what was measured, what is allowed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// What it is about.
    pub(crate) name: String,
    /// What was measured.
    pub(crate) measured: f64,
    /// The most that is allowed.
    pub(crate) limit: f64,
    /// The unit of both: `×` of the member, `ms`, `MB`, or a count.
    pub(crate) unit: &'static str,
    /// Whether it is reached.
    pub(crate) reached: bool,
}
