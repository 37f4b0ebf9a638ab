//! Parsing of the method, path and query of a request, once for all stages.

use http::uri::PathAndQuery;
use http::{Method, Request};
use tributary_answers::negotiate::Preferences;
use tributary_apimachinery::{Door, RequestClass, RequestInfo, Status};
use tributary_sharing::body::Body;

use crate::received::ReceivedRequest;
use crate::request_context::RequestArrival;
use crate::request_reading::RequestReading;
use crate::switching;

/// Parsed request, and the form of its answer.
pub(crate) struct ParsedRequest<'a> {
    reading: &'a RequestReading,
    /// Path and query, shared with the message.
    target: Option<PathAndQuery>,
    is_head: bool,
    pub(crate) door: Door,
    is_entry_path: bool,
    pub(crate) preferences: Preferences,
}

impl<'a> ParsedRequest<'a> {
    /// Takes the parsed request from the server, which has parsed the path for audit and policies.
    pub(crate) fn new(arrival: &'a RequestArrival, message: &Request<Body>) -> Self {
        let target = message.uri().path_and_query().cloned();
        let query = target.as_ref().and_then(PathAndQuery::query);
        let preferences = Preferences::from_headers(message.headers(), query);
        let preferences = preferences.with_annotations(arrival.door.cluster_annotations());
        let (reading, is_head) = (&arrival.reading, message.method() == Method::HEAD);
        let RequestArrival { door, is_entry_path, .. } = *arrival;
        Self { reading, target, is_head, door, is_entry_path, preferences }
    }

    pub(crate) fn class(&self) -> RequestClass {
        self.reading.info().map_or(RequestClass::Short, RequestInfo::class)
    }

    pub(crate) fn is_of_one_cluster(&self) -> bool {
        self.reading.info().is_ok_and(|info| info.cluster.is_some())
    }

    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    /// Returns the request without its body. Removes the header `Upgrade` from the message if the path cannot switch
    /// protocols.
    ///
    /// # Errors
    /// The Status for an unparsable path or query.
    pub(crate) fn received(&self, message: &mut Request<Body>) -> Result<ReceivedRequest<'_>, &Status> {
        let info = self.reading.info()?;
        let may_switch = switching::asks_to_switch(message.headers_mut(), info);
        let query = self.target.as_ref().and_then(PathAndQuery::query);
        let Self { is_head, door, is_entry_path, .. } = *self;
        Ok(ReceivedRequest { info, query, is_head, may_switch, door, is_entry_path, preferences: &self.preferences })
    }
}
