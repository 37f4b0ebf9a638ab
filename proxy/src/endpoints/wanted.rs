//! Selects the endpoints for a request, by the kind of request, its origin and its earlier attempts.

use std::sync::Arc;

use crate::endpoints::destination::Destination;
use crate::endpoints::endpoint::Endpoint;
use crate::places::Asker;
use crate::pool::LaneKind;

#[derive(Clone, Default)]
pub(crate) enum Tried {
    #[default]
    Nowhere,
    /// The request failed at this endpoint. A retry at this endpoint requires that no other endpoint is left.
    Failed(Arc<Endpoint>),
    /// This endpoint answered the request. A retry must use a different endpoint.
    Answered(Arc<Endpoint>),
}

impl Tried {
    pub(crate) fn has_failed_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        matches!(self, Self::Failed(before) if Arc::ptr_eq(before, endpoint))
    }

    pub(crate) fn was_answered_at(&self, endpoint: &Arc<Endpoint>) -> bool {
        matches!(self, Self::Answered(before) if Arc::ptr_eq(before, endpoint))
    }
}

/// The attributes of a request that decide its endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: LaneKind,
    pub(crate) asker: Asker,
    pub(crate) destination: &'a Destination,
    pub(crate) tried: &'a Tried,
}

impl Wanted<'_> {
    /// Returns whether limits and circuit breakers apply. Neither applies to Tributary's own requests.
    pub(crate) fn is_gated(self) -> bool {
        self.asker != Asker::Ourselves
    }

    /// Returns whether the request is for one endpoint alone, which may be drained.
    pub(crate) fn is_to_one(self) -> bool {
        matches!(self.destination, Destination::At(_))
    }

    /// Returns whether the endpoint's limit of requests in flight allows the request.
    pub(crate) fn has_room_at(self, endpoint: &Endpoint) -> bool {
        !self.is_gated() || endpoint.has_room(self.kind)
    }

    /// Returns whether an endpoint may be tried before the end of the order: the endpoint is not known to be
    /// unreachable, and its circuit breaker allows the request.
    pub(crate) fn may_be_asked_of(self, endpoint: &Endpoint) -> bool {
        !endpoint.observer.is_unreachable() && (!self.is_gated() || endpoint.observer.retry_after().is_none())
    }
}
