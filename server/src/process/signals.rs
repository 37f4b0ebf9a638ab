//! The signals of the process: SIGTERM and SIGINT drain, a second SIGTERM or SIGINT ends the process at once, and
//! SIGHUP reloads the configuration.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The signal handlers of this program.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the signal handlers. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Handles signals for the life of the process. Cancels `stop` on the first end signal and `at_once` on the second,
    /// and calls `reload` on each SIGHUP.
    ///
    /// The process does not exit in this function, so that temporary files can be removed.
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
