//! Reads the method, path and query of a request, once.

use http::uri::PathAndQuery;
use http::{Method, Request};
use tributary_answers::negotiate::Preferences;
use tributary_apimachinery::{RequestClass, RequestInfo, Status};
use tributary_sharing::body::Body;

use crate::received::Received;
use crate::request_reading::RequestReading;
use crate::switching;

/// The reading of a request, and the form of its answer.
pub(crate) struct ParsedRequest<'a> {
    reading: &'a RequestReading,
    /// The path and the query, shared with the message.
    target: Option<PathAndQuery>,
    is_head: bool,
    /// The form of the answer that the client asks for.
    pub(crate) preferences: Preferences,
}

impl<'a> ParsedRequest<'a> {
    /// Takes the reading from the server, which has read the path already for audit and policies.
    pub(crate) fn new(reading: &'a RequestReading, message: &Request<Body>) -> Self {
        let target = message.uri().path_and_query().cloned();
        let query = target.as_ref().and_then(PathAndQuery::query);
        let preferences = Preferences::from_headers(message.headers(), query);
        Self { reading, target, is_head: message.method() == Method::HEAD, preferences }
    }

    /// The class of the request; [`RequestClass::Short`] for an unreadable request.
    pub(crate) fn class(&self) -> RequestClass {
        self.reading.info().map_or(RequestClass::Short, RequestInfo::class)
    }

    /// Returns whether the request is for the own view of one cluster.
    pub(crate) fn is_of_one_cluster(&self) -> bool {
        self.reading.info().is_ok_and(|info| info.cluster.is_some())
    }

    /// Returns whether the client asks for the head of the answer only.
    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    /// The request without its body. Removes `Upgrade` from the message if nobody can switch the connection.
    ///
    /// # Errors
    /// The Status for a path or query that cannot be read.
    pub(crate) fn received(&self, message: &mut Request<Body>) -> Result<Received<'_>, &Status> {
        let info = self.reading.info()?;
        let may_switch = switching::asks_to_switch(message.headers_mut(), info);
        let query = self.target.as_ref().and_then(PathAndQuery::query);
        Ok(Received { info, query, is_head: self.is_head, may_switch, preferences: &self.preferences })
    }
}
