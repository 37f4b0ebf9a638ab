//! Interruptions of a connection, which do not come from its requests: accept no more requests, or close at once.

use tokio_util::sync::CancellationToken;

use crate::acquaintance::Acquaintance;
use crate::goaway::Parting;
use crate::metrics::ListenerMetrics;
use crate::outgoing::Outgoing;
use crate::refusal::ListenerRefusal;

pub(super) enum Interruption {
    /// Instructs the connection to accept no more requests.
    Leaves,
    /// The connection must accept no more requests: a request was refused, and none was authenticated.
    Refused,
    /// The connection must close at once, for the contained reason.
    Closed(&'static str),
}

/// The interruptions that a connection has already handled.
#[derive(Clone, Copy, Default)]
pub(super) struct ReportedInterruptions {
    is_leaving: bool,
    is_refused: bool,
}

impl ReportedInterruptions {
    /// Records a handled interruption. A refused connection also counts as leaving.
    pub(super) fn note_interruption(&mut self, interruption: &Interruption) {
        self.is_leaving = true;
        self.is_refused |= matches!(interruption, Interruption::Refused);
    }
}

pub(super) struct Interruptions<'a> {
    pub(super) stop: &'a CancellationToken,
    pub(super) parting: &'a Parting,
    pub(super) acquaintance: &'a Acquaintance,
    pub(super) outgoing: &'a Outgoing,
}

impl Interruptions<'_> {
    /// Waits for the next interruption that the connection has not handled. Cancel: safe.
    pub(super) async fn next(self, told: ReportedInterruptions, metrics: &ListenerMetrics) -> Interruption {
        let Self { stop, parting, acquaintance, outgoing } = self;
        tokio::select! {
            () = stop.cancelled(), if !told.is_leaving => Interruption::Leaves,
            () = parting.is_due(), if !told.is_leaving => Interruption::Leaves,
            // If a pending request is authenticated after the refusal, the connection accepts no more requests, but
            // finishes its open ones.
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
