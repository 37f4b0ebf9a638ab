//! Reads the method, path and query of a request, once.

use http::uri::PathAndQuery;
use http::{Method, Request};
use tributary_answers::negotiate::Preferences;
use tributary_apimachinery::{Mount, RequestClass, RequestInfo, Status};
use tributary_proxy::headers::Recipient;
use tributary_sharing::body::Body;

use crate::received::Received;
use crate::request_reading::RequestReading;
use crate::switching;

/// The reading of a request.
pub(crate) struct ParsedRequest {
    /// The path and the query, shared with the message.
    target: Option<PathAndQuery>,
    reading: RequestReading,
    is_head: bool,
    /// The form of the answer that the client asks for.
    pub(crate) preferences: Preferences,
}

impl ParsedRequest {
    /// Reads a request, unless the server has left its reading in the extensions.
    pub(crate) fn from_message(message: &mut Request<Body>) -> Self {
        let target = message.uri().path_and_query().cloned();
        let query = target.as_ref().and_then(PathAndQuery::query);
        let reading = message.extensions_mut().remove::<RequestReading>().unwrap_or_else(|| {
            let mount = message.extensions().get::<Mount>().cloned().unwrap_or_default();
            let path = target.as_ref().map_or("", PathAndQuery::path);
            RequestReading::parse(&mount, message.method().as_str(), path, query)
        });
        let (is_head, preferences) =
            (message.method() == Method::HEAD, Preferences::from_headers(message.headers(), query));
        let parsed = Self { target, reading, is_head, preferences };
        // The proxy goes by this reading, too. Without a class a request is short.
        let class = parsed.class();
        if class.is_long_running() {
            message.extensions_mut().insert(class);
        }
        if parsed.reading.info().is_ok_and(RequestInfo::is_for_workload) {
            message.extensions_mut().insert(Recipient::Workload);
        }
        parsed
    }

    /// The class of the request; [`RequestClass::Short`] for one that cannot be read.
    pub(crate) fn class(&self) -> RequestClass {
        self.reading.info().map_or(RequestClass::Short, RequestInfo::class)
    }

    /// Whether the client asks for the head of the answer only.
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
