//! A request at its arrival.

use tributary_apimachinery::RequestInfo;

use tributary_answers::negotiate::Preferences;

/// The parts of a request at its arrival: method, path, query and the form of the answer. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    /// The reading of the method and path.
    pub(crate) info: &'a RequestInfo,
    /// The query string without its `?`.
    pub(crate) query: Option<&'a str>,
    /// Whether the client asks for the head of the answer only.
    pub(crate) is_head: bool,
    /// Whether the client asks to switch its connection. Then the answer may become a long-running tunnel, whatever the
    /// request's class: an aggregated server's `console` is not known to be long-running, as `exec` is.
    pub(crate) may_switch: bool,
    /// The form of the answer that the client asks for.
    pub(crate) preferences: &'a Preferences,
}
