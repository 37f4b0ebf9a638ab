//! Interruptions of a connection beside its client's requests: accept no more requests, or close at once.

use tokio_util::sync::CancellationToken;

use crate::acquaintance::Acquaintance;
use crate::goaway::Parting;
use crate::metrics::ListenerMetrics;
use crate::outgoing::Outgoing;
use crate::refusal::ListenerRefusal;

/// An instruction to a connection.
pub(super) enum Interruption {
    /// Accept no more requests.
    Leaves,
    /// Accept no more requests: the connection is unauthenticated, and a request was refused.
    Refused,
    /// Close at once, with the reason.
    Closed(&'static str),
}

/// The interruptions that a connection has already received.
#[derive(Clone, Copy, Default)]
pub(super) struct ReportedInterruptions {
    is_leaving: bool,
    is_refused: bool,
}

impl ReportedInterruptions {
    /// Records an interruption. A refused connection accepts no more requests, either.
    pub(super) fn note_interruption(&mut self, interruption: &Interruption) {
        self.is_leaving = true;
        self.is_refused |= matches!(interruption, Interruption::Refused);
    }
}

/// The sources of a connection's interruptions.
pub(super) struct Interruptions<'a> {
    /// The stop of the server.
    pub(super) stop: &'a CancellationToken,
    /// The random end of the connection.
    pub(super) parting: &'a Parting,
    /// The authentication state of the connection.
    pub(super) acquaintance: &'a Acquaintance,
    /// The unread answers of the connection.
    pub(super) outgoing: &'a Outgoing,
}

impl Interruptions<'_> {
    /// Returns the next interruption that the connection has not received yet. Cancel: safe.
    pub(super) async fn next(self, told: ReportedInterruptions, metrics: &ListenerMetrics) -> Interruption {
        let Self { stop, parting, acquaintance, outgoing } = self;
        tokio::select! {
            () = stop.cancelled(), if !told.is_leaving => Interruption::Leaves,
            () = parting.is_due(), if !told.is_leaving => Interruption::Leaves,
            // A connection that is authenticated by then goes on, as at a stop of the server.
            () = acquaintance.refused(), if !told.is_refused => Interruption::Refused,
            () = acquaintance.taken_leave(), if told.is_refused => {
                Interruption::Closed("nobody is known on it, and the last answers have had their time")
            }
            () = acquaintance.trailers_refused() => {
                metrics.count_refused(ListenerRefusal::TooManyTrailers);
                Interruption::Closed("its client sends more in trailers than is held")
            }
            () = acquaintance.sent_away() => {
                metrics.strangers_sent_away.inc();
                Interruption::Closed("nobody is known on it, and it makes room for another")
            }
            () = outgoing.stuck(&metrics.answers_stuck) => {
                metrics.connections_stuck.inc();
                Interruption::Closed("the client reads none of its answers")
            }
        }
    }
}
