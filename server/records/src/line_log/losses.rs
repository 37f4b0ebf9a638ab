//! The counters of lost log lines.

use prometheus_client::metrics::counter::Counter;

/// The counters for lost lines of one log. Clones share the counters.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    /// The log's name in messages, for example `audit log`.
    pub(crate) log: &'static str,
    /// The number of log lines that could not be written.
    pub(crate) unwritten: Counter,
    /// The number of log lines that the full queue rejected.
    pub(crate) unqueued: Counter,
    /// The number of all lost log lines: `unwritten` plus `unqueued`.
    pub(crate) all: Counter,
}

impl Losses {
    pub(crate) fn new(log: &'static str) -> Self {
        Self { log, unwritten: Counter::default(), unqueued: Counter::default(), all: Counter::default() }
    }

    pub(crate) fn count_unwritten(&self) {
        self.unwritten.inc();
        self.all.inc();
    }

    pub(crate) fn count_unqueued(&self) {
        self.unqueued.inc();
        self.all.inc();
    }
}
