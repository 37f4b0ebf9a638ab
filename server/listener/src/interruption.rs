//! What a connection is told beside what its client sends: to take no more requests, or to close at once.

use tokio_util::sync::CancellationToken;

use crate::acquaintance::Acquaintance;
use crate::goaway::Parting;
use crate::metrics::ListenerMetrics;
use crate::outgoing::Outgoing;
use crate::refusal::ListenerRefusal;

/// What a connection is told.
pub(super) enum Interruption {
    /// To take no more requests.
    Leaves,
    /// The same, because nobody is known on it and a request was refused for that.
    Refused,
    /// To close at once, with the reason.
    Closed(&'static str),
}

/// What a connection has been told already.
#[derive(Clone, Copy, Default)]
pub(super) struct ReportedInterruptions {
    is_leaving: bool,
    is_refused: bool,
}

impl ReportedInterruptions {
    /// Notes what it is told now. Who was refused leaves, too.
    pub(super) fn note_interruption(&mut self, interruption: &Interruption) {
        self.is_leaving = true;
        self.is_refused |= matches!(interruption, Interruption::Refused);
    }
}

/// Who may interrupt a connection.
pub(super) struct Interruptions<'a> {
    /// The server, which stops.
    pub(super) stop: &'a CancellationToken,
    /// Chance, by which a request was the last.
    pub(super) parting: &'a Parting,
    /// Whoever is at the other end.
    pub(super) acquaintance: &'a Acquaintance,
    /// Answers that nobody reads.
    pub(super) outgoing: &'a Outgoing,
}

impl Interruptions<'_> {
    /// Ends with the next of what was not told yet. Cancel: safe.
    pub(super) async fn next(self, told: ReportedInterruptions, metrics: &ListenerMetrics) -> Interruption {
        let Self { stop, parting, acquaintance, outgoing } = self;
        tokio::select! {
            () = stop.cancelled(), if !told.is_leaving => Interruption::Leaves,
            () = parting.is_due(), if !told.is_leaving => Interruption::Leaves,
            // What is known on it by then goes on, as it does where the server stops.
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
