//! The interface to the handler of authenticated requests: the router, or a replacement for the router in tests.

use std::future::Future;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use prometheus_client::registry::Registry;
use tributary_apimachinery::{AuditLevel, RequestInfo};
use tributary_router::{Answer, DispatchSettings, Report, RequestArrival, RequestContext, Router};

pub use tributary_apimachinery::body::{Body, BoxError, empty, full};

/// Answers requests of authenticated users.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request; every failure is an HTTP answer with a Status.
    ///
    /// `context` contains the results of the previous stages. Cancel: the future is dropped when the client
    /// disconnects.
    fn handle(&self, request: Request<Body>, context: &RequestContext) -> impl Future<Output = Answer> + Send;

    /// Returns whether a user may read the metrics and the report, which describe all clusters. Cancel: safe.
    ///
    /// # Errors
    /// The answer to send instead.
    fn may_get_non_resource_url(
        &self,
        head: &Parts,
        context: &RequestContext,
    ) -> impl Future<Output = Result<(), Box<Response<Body>>>> + Send;

    /// Returns the answer to a request that policies refuse for every user, before authentication. Returns `None` for
    /// all other requests. Records the decision in the arrival's trace.
    fn refuse_unheard(&self, _head: &Parts, _arrival: &RequestArrival) -> Option<Response<Body>> {
        None
    }

    /// Returns the audit level of a request, if it differs from the level of the audit policy.
    fn audit_level(&self, _head: &Parts, _info: &RequestInfo, _context: &RequestContext) -> Option<AuditLevel> {
        None
    }

    /// Ends open watches with bookmarks, and refuses new watches. Streams may stay open after the call; the listener
    /// waits for them.
    fn drain(&self) -> impl Future<Output = ()> + Send;

    /// Registers the server's own metrics beside the handler's metrics; called once.
    fn register_metrics(&self, register: &mut dyn FnMut(&mut Registry));

    /// Returns the report about the handler and its clusters, without the listener's parts. Cancel: safe.
    fn report(&self) -> impl Future<Output = Report> + Send;

    /// Returns the dispatch policies in use, for `/tributary/policy-test`.
    fn dispatch_settings(&self) -> DispatchSettings {
        DispatchSettings::default()
    }

    /// Returns all metrics in OpenMetrics text; called for each scrape.
    fn expose_metrics(&self) -> String;
}

impl Handler for Arc<Router> {
    async fn handle(&self, request: Request<Body>, context: &RequestContext) -> Answer {
        Router::handle(self, request, context).await
    }

    async fn may_get_non_resource_url(
        &self,
        head: &Parts,
        context: &RequestContext,
    ) -> Result<(), Box<Response<Body>>> {
        Router::may_get_non_resource_url(self, head, context).await
    }

    fn refuse_unheard(&self, head: &Parts, arrival: &RequestArrival) -> Option<Response<Body>> {
        Router::refuse_frozen(self, head, arrival)
    }

    fn audit_level(&self, head: &Parts, info: &RequestInfo, context: &RequestContext) -> Option<AuditLevel> {
        Router::audit_level(self, head, info, context)
    }

    async fn drain(&self) {
        // The call only starts the drain. The watches end on their own, and the listener waits for their streams.
        Router::drain(self);
    }

    fn register_metrics(&self, register: &mut dyn FnMut(&mut Registry)) {
        self.metrics().register(register);
    }

    async fn report(&self) -> Report {
        Router::report(self).await
    }

    fn dispatch_settings(&self) -> DispatchSettings {
        Router::dispatch_settings(self)
    }

    fn expose_metrics(&self) -> String {
        self.metrics().expose()
    }
}
