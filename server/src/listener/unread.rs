//! What all connections together have been given and have not taken.

use prometheus_client::metrics::gauge::Gauge;

/// What all clients together may have been given and not taken, in bytes, where nothing else is asked for. 256 MiB: 16 connections that
/// take nothing at all have it. Clients that read have a few frames each.
pub const UNREAD_BYTES_MAX: usize = 256 << 20;

/// Counts it, against a bound. Shared by all connections.
///
/// Nobody who reads waits because of it: a connection that has little untaken is given the next piece in any case, so that there may be
/// a piece for each connection beyond the bound.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Gauge,
    bytes_max: i64,
}

impl Unread {
    /// Counts in a gauge of the metrics.
    pub(super) fn new(bytes: Gauge, bytes_max: usize) -> Self {
        Self { bytes, bytes_max: i64::try_from(bytes_max).unwrap_or(i64::MAX) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.get() >= self.bytes_max
    }

    pub(super) fn add(&self, bytes: usize) {
        self.bytes.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.bytes.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}
