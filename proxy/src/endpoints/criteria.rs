//! Selects the endpoints for a request, by the kind of request, its origin and its earlier attempts.

use std::sync::Arc;

use crate::endpoints::destination::Destination;
use crate::endpoints::endpoint::Endpoint;
use crate::permit_pool::RequestOrigin;
use crate::pool::StreamClass;

#[derive(Clone, Default)]
pub(crate) enum PreviousAttempt {
    #[default]
    NotTried,
    /// The request failed at this endpoint. A retry may use this endpoint only if no other endpoint is left.
    Failed(Arc<Endpoint>),
    /// This endpoint answered the request. A retry must use a different endpoint.
    AnsweredBusy(Arc<Endpoint>),
}

impl PreviousAttempt {
    pub(crate) fn has_failed_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        matches!(self, Self::Failed(before) if Arc::ptr_eq(before, endpoint))
    }

    pub(crate) fn was_answered_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        matches!(self, Self::AnsweredBusy(before) if Arc::ptr_eq(before, endpoint))
    }
}

/// Attributes of a request that decide which endpoint gets the request.
#[derive(Clone, Copy)]
pub(crate) struct EndpointCriteria<'a> {
    pub(crate) kind: StreamClass,
    pub(crate) origin: RequestOrigin,
    pub(crate) destination: &'a Destination,
    pub(crate) tried: &'a PreviousAttempt,
}

impl EndpointCriteria<'_> {
    /// Returns whether limits and circuit breakers apply to the request. Tributary's own requests are exempt.
    pub(crate) fn has_limits(self) -> bool {
        self.origin != RequestOrigin::Ourselves
    }

    /// Returns whether the request names a single endpoint. Such a request goes to this endpoint even if the endpoint
    /// is drained.
    pub(crate) fn has_fixed_endpoint(self) -> bool {
        matches!(self.destination, Destination::At(_))
    }

    /// Returns whether the endpoint's limit of requests in flight allows the request.
    pub(crate) fn has_capacity_at(self, endpoint: &Endpoint) -> bool {
        !self.has_limits() || endpoint.has_capacity(self.kind)
    }

    /// Returns whether a request may try an endpoint in the usual order. An unreachable endpoint, or an endpoint whose
    /// circuit breaker refuses the request, may be tried only when no other endpoint is left.
    pub(crate) fn may_be_tried(self, endpoint: &Endpoint) -> bool {
        !endpoint.observer.is_unreachable() && (!self.has_limits() || endpoint.observer.retry_after().is_none())
    }
}
