//! Interruptions of a connection by events outside its requests. An interrupted connection stops accepting requests, or
//! closes at once.

use tokio_util::sync::CancellationToken;

use crate::authentication::ConnectionAuthentication;
use crate::goaway::RandomGoaway;
use crate::metrics::ListenerMetrics;
use crate::outgoing::Outgoing;
use crate::refusal::ListenerRefusal;

pub(super) enum Interruption {
    /// The connection must stop accepting requests, and finish its open requests.
    StopAccepting,
    /// The connection has no authenticated request, and a request was refused or the time limit has passed. The
    /// connection must stop accepting requests.
    Refused,
    /// The connection must close at once, for the contained reason.
    Closed(&'static str),
}

/// The interruptions that a connection has already handled.
#[derive(Clone, Copy, Default)]
pub(super) struct ReportedInterruptions {
    is_stopping: bool,
    is_refused: bool,
}

impl ReportedInterruptions {
    /// Records a handled interruption. `Refused` includes `StopAccepting`, because both make the connection stop
    /// accepting requests.
    pub(super) fn record_interruption(&mut self, interruption: &Interruption) {
        self.is_stopping = true;
        self.is_refused |= matches!(interruption, Interruption::Refused);
    }
}

pub(super) struct Interruptions<'a> {
    pub(super) stop: &'a CancellationToken,
    pub(super) random_goaway: &'a RandomGoaway,
    pub(super) authentication: &'a ConnectionAuthentication,
    pub(super) outgoing: &'a Outgoing,
}

impl Interruptions<'_> {
    /// Waits for the next interruption that the connection has not handled. Cancel: safe.
    pub(super) async fn next(self, reported: ReportedInterruptions, metrics: &ListenerMetrics) -> Interruption {
        let Self { stop, random_goaway, authentication, outgoing } = self;
        tokio::select! {
            () = stop.cancelled(), if !reported.is_stopping => Interruption::StopAccepting,
            () = random_goaway.wait_until_drawn(), if !reported.is_stopping => Interruption::StopAccepting,
            // If a pending request is authenticated after the refusal, the connection accepts no more requests, but
            // finishes its open ones.
            () = authentication.refused(), if !reported.is_refused => Interruption::Refused,
            () = authentication.close_due(), if reported.is_refused => {
                Interruption::Closed("the connection has no authenticated request, and the time for its last answers \
                                      is over")
            }
            () = authentication.trailers_refused() => {
                metrics.count_refused(ListenerRefusal::TooManyTrailers);
                Interruption::Closed("the client sends more trailers than the limit")
            }
            () = authentication.evicted() => {
                metrics.unauthenticated_evicted.inc();
                Interruption::Closed("the connection has no authenticated request, and is closed in favour of a new \
                                      connection")
            }
            () = outgoing.abort_stuck_answers(&metrics.answers_stuck) => {
                metrics.connections_stuck.inc();
                Interruption::Closed("the client reads none of its answers")
            }
        }
    }
}
