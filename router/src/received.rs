//! One request as it came.

use tributary_apimachinery::RequestInfo;

use tributary_answers::negotiate::Preferences;

/// A request as it came, taken apart: what it asks for, and in which form. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    /// What is asked for.
    pub(crate) info: &'a RequestInfo,
    /// The query string without its `?`.
    pub(crate) query: Option<&'a str>,
    /// Whether only the head of the answer is asked for.
    pub(crate) is_head: bool,
    /// Whether it asks for its connection to be switched. Then whoever answers may make a tunnel of it that lasts,
    /// whatever its class: an aggregated server's `console` is not known to last as `exec` is.
    pub(crate) may_switch: bool,
    /// What the client says of the form of its answer.
    pub(crate) preferences: &'a Preferences,
}
