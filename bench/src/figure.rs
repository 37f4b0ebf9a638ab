//! A measured value with its limit.

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) measured: f64,
    /// The largest allowed value.
    pub(crate) limit: f64,
    /// The unit of the value and of the limit: `×` (a multiple of the member's value), `ms`, `MB`, or none for a count.
    pub(crate) unit: &'static str,
    /// True if the value is within the limit.
    pub(crate) reached: bool,
}
