//! Counters of lost lines.

use prometheus_client::metrics::counter::Counter;

/// The lost lines of one log. Clones share the counters.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    /// The name of the log for messages: `audit log`.
    pub(crate) log: &'static str,
    /// Lines that could not be written.
    pub(crate) unwritten: Counter,
    /// Lines that the full queue rejected.
    pub(crate) unqueued: Counter,
    /// All lost lines, the sum of the two.
    pub(crate) all: Counter,
}

impl Losses {
    /// Creates the counters of a log.
    pub(crate) fn new(log: &'static str) -> Self {
        Self { log, unwritten: Counter::default(), unqueued: Counter::default(), all: Counter::default() }
    }

    /// Counts a line that could not be written.
    pub(crate) fn count_unwritten(&self) {
        self.unwritten.inc();
        self.all.inc();
    }

    /// Counts a line that the full queue rejected.
    pub(crate) fn count_unqueued(&self) {
        self.unqueued.inc();
        self.all.inc();
    }
}
