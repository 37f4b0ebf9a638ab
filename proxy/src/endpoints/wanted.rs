//! Endpoints that a request may use, by its kind, its sender, and its earlier tries.

use std::sync::Arc;

use crate::endpoints::destination::Destination;
use crate::endpoints::endpoint::Endpoint;
use crate::places::Asker;
use crate::pool::LaneKind;

/// Earlier tries of a request.
#[derive(Clone, Default)]
pub(crate) enum Tried {
    #[default]
    Nowhere,
    /// The request failed at this endpoint, and goes there again only where no other is left.
    Failed(Arc<Endpoint>),
    /// This endpoint answered the request, which goes to other endpoints only.
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

/// The parts of a request that decide its endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) kind: LaneKind,
    pub(crate) asker: Asker,
    pub(crate) destination: &'a Destination,
    pub(crate) tried: &'a Tried,
}

impl Wanted<'_> {
    /// Whether limits and breakers count. They do not for Tributary's own questions.
    pub(crate) fn is_gated(self) -> bool {
        self.asker != Asker::Ourselves
    }

    /// Whether the request is for one endpoint alone, which may be drained.
    pub(crate) fn is_to_one(self) -> bool {
        matches!(self.destination, Destination::At(_))
    }

    /// Whether an endpoint has room for it.
    pub(crate) fn has_room_at(self, endpoint: &Endpoint) -> bool {
        !self.is_gated() || endpoint.has_room(self.kind)
    }

    /// Whether an endpoint may be tried before the end: it is reachable, as far as known, and lets the request in.
    pub(crate) fn may_be_asked_of(self, endpoint: &Endpoint) -> bool {
        !endpoint.observer.is_unreachable() && (!self.is_gated() || endpoint.observer.retry_after().is_none())
    }
}
