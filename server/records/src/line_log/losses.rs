//! Lines that were lost, counted.

use prometheus_client::metrics::counter::Counter;

/// What a log lost. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    /// Which log it is, for messages: `audit log`.
    pub(crate) log: &'static str,
    /// Lines that could not be written.
    pub(crate) unwritten: Counter,
    /// Lines for which the queue before it had no room.
    pub(crate) unqueued: Counter,
    /// Both.
    pub(crate) all: Counter,
}

impl Losses {
    /// Of a log that has lost nothing.
    pub(crate) fn new(log: &'static str) -> Self {
        Self { log, unwritten: Counter::default(), unqueued: Counter::default(), all: Counter::default() }
    }

    /// A line could not be written.
    pub(crate) fn count_unwritten(&self) {
        self.unwritten.inc();
        self.all.inc();
    }

    /// There was no room for a line.
    pub(crate) fn count_unqueued(&self) {
        self.unqueued.inc();
        self.all.inc();
    }
}
