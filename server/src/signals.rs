//! Signals: SIGTERM and SIGINT drain, a second one ends at once, SIGHUP reloads.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

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
    pub fn take() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Follows signals for the life of the process: cancels `stop` on the first end signal, ends the process with exit code 1
    /// on the second, and calls `reload` on each SIGHUP.
    pub async fn follow(mut self, stop: CancellationToken, reload: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => end(&stop, "SIGTERM"),
                _ = self.interrupt.recv() => end(&stop, "SIGINT"),
                _ = self.hangup.recv() => reload(),
            }
        }
    }
}

fn end(stop: &CancellationToken, signal: &'static str) {
    if stop.is_cancelled() {
        tracing::warn!(signal, "second signal; ending at once");
        std::process::exit(exit::RUNTIME_FAILURE.into());
    }
    tracing::info!(signal, "stopping; a second signal ends at once");
    stop.cancel();
}
