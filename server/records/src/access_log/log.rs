//! The access log: its settings, its output, and the choice of the requests that get a line.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tributary_policy::LoggingModes;

use crate::line_log::{Batch, Losses, Output, Rotation, open_target};

/// The settings of the access log's file, rotation and queue.
#[derive(Clone, Debug)]
pub struct AccessLogSettings {
    /// Path of the log file; `-` is standard output.
    pub path: PathBuf,
    /// The limits for the rotation of the log file.
    pub rotation: Rotation,
    /// The capacity of the access log's queue, in lines.
    pub buffer_size: usize,
}

/// Writes one line for each request. A process has at most one access log.
pub struct AccessLog {
    batch: Batch,
    modes: ArcSwap<LoggingModes>,
    lines: Counter,
    losses: Losses,
}

/// An error of the operating system when the access log is opened.
#[derive(Debug, thiserror::Error)]
#[error("the access log {} cannot be opened", .path.display())]
pub struct AccessLogError {
    /// Path of the log file.
    pub path: PathBuf,
    /// The error of the operating system.
    #[source]
    pub source: std::io::Error,
}

impl AccessLog {
    /// Opens the access log, and starts the thread that writes the lines.
    ///
    /// # Errors
    /// [`AccessLogError`].
    pub fn open(settings: AccessLogSettings) -> Result<Arc<Self>, AccessLogError> {
        let AccessLogSettings { path, rotation, buffer_size } = settings;
        let losses = Losses::new("access log");
        let opened = open_target(&path, rotation).and_then(|target| {
            let output = Output::new(target, losses.clone());
            Batch::start("access-log", output, buffer_size)
        });
        let batch = opened.map_err(|source| AccessLogError { path, source })?;
        Ok(Arc::new(Self { batch, modes: ArcSwap::default(), lines: Counter::default(), losses }))
    }

    /// Registers the counters of lines in a metrics registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("tributary_access_log_lines", "Lines of the access log", self.lines.clone());
        let help = "Lines of the access log that were lost: the write failed, or the queue was full";
        registry.register("tributary_access_log_lost", help, self.losses.all.clone());
    }

    /// Replaces the logging modes of the access log. The new modes apply to all requests that end after the call.
    pub fn set_modes(&self, modes: LoggingModes) {
        self.modes.store(Arc::new(modes));
    }

    /// Returns the logging modes. The modes decide which requests get a line in the access log.
    pub(super) fn modes(&self) -> Arc<LoggingModes> {
        self.modes.load_full()
    }

    /// Queues a line of the access log without waiting.
    pub(super) fn write(&self, line: Bytes) {
        self.lines.inc();
        self.batch.write(line);
    }

    /// Writes the queued lines. The duration depends on the disk.
    pub async fn shut_down(&self) {
        self.batch.shut_down().await;
    }
}
