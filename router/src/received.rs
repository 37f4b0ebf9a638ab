//! A request at its arrival.

use tributary_apimachinery::{Door, RequestInfo};

use tributary_answers::negotiate::Preferences;

/// Parts of a request at its arrival: method, path, query and the requested form of the answer. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct ReceivedRequest<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) query: Option<&'a str>,
    /// True for HEAD requests.
    pub(crate) is_head: bool,
    /// True if the client requests a switch of protocols. The answer may then become a long-running tunnel, whatever
    /// the class of the request: for example, Tributary knows `exec` as long-running, but not an aggregated server's
    /// `console`.
    pub(crate) may_switch: bool,
    /// Entry through which the client reaches the API.
    pub(crate) door: Door,
    /// True if the path belongs to the aggregated entry itself, for example `clusters`.
    pub(crate) is_entry_path: bool,
    pub(crate) preferences: &'a Preferences,
}
