//! Signals: SIGTERM and SIGINT drain, a second one ends at once, SIGHUP reloads.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signals that this program follows, from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes over the signals' handling. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What the system says.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Follows signals for the life of the process: cancels `stop` on the first end signal and `at_once` on the second,
    /// and calls `reload` on each SIGHUP.
    ///
    /// The process is not ended from here, so that whoever made temporary files can remove them.
    pub async fn follow(mut self, stop: CancellationToken, at_once: CancellationToken, reload: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => end(&stop, &at_once, "SIGTERM"),
                _ = self.interrupt.recv() => end(&stop, &at_once, "SIGINT"),
                _ = self.hangup.recv() => reload(),
            }
        }
    }
}

fn end(stop: &CancellationToken, at_once: &CancellationToken, signal: &'static str) {
    if stop.is_cancelled() {
        tracing::warn!(signal, "second signal; ending at once");
        at_once.cancel();
    } else {
        tracing::info!(signal, "stopping; a second signal ends at once");
        stop.cancel();
    }
}
