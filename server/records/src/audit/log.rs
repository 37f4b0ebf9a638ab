//! The log backend: writes lines to a file or to standard output.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::emission::Emission;
use super::error::AuditError;
use super::metrics::AuditMetrics;
use super::settings::{AuditLogSettings, AuditMode};
use super::shared_output::SharedOutput;
use crate::line_log::{Batch, Output, Target, open_target};

/// The log backend of the audit log, in batch or blocking mode.
pub(crate) enum LogSink {
    /// Blocking mode: each line is written before its answer is sent.
    Blocking {
        output: Arc<SharedOutput>,
        /// True if a request is refused when its audit event cannot be written.
        strict: bool,
    },
    /// Batch mode: a background thread writes the lines.
    Batch(Batch),
}

impl LogSink {
    /// Opens the log file or standard output.
    ///
    /// # Errors
    /// [`AuditError::Log`].
    pub(crate) fn open(settings: &AuditLogSettings, metrics: &Arc<AuditMetrics>) -> Result<Self, AuditError> {
        let failed = |source| AuditError::Log { path: settings.path.clone(), source };
        let target = open_target(&settings.path, settings.rotation).map_err(failed)?;
        Self::new(target, settings.mode, settings.buffer_size, metrics).map_err(failed)
    }

    fn new(target: Box<dyn Target>, mode: AuditMode, buffer: usize, metrics: &Arc<AuditMetrics>) -> io::Result<Self> {
        let output = Output::new(target, metrics.log_losses());
        if mode != AuditMode::Batch {
            let strict = mode == AuditMode::BlockingStrict;
            return Ok(Self::Blocking { output: SharedOutput::new(output), strict });
        }
        Ok(Self::Batch(Batch::start("audit-log", output, buffer)?))
    }

    /// Writes a line of the audit log, or queues the line in batch mode.
    pub(crate) fn write(&self, line: &Bytes) -> Emission {
        match self {
            Self::Blocking { output, strict: true } => output.write(line),
            Self::Blocking { output, strict: false } => output.write(line).ignore_failure(),
            Self::Batch(batch) => {
                batch.write(line.clone());
                Emission::Done(true)
            }
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        matches!(self, Self::Blocking { strict: true, .. })
    }

    /// Writes the queued lines of the audit log.
    pub(crate) async fn shut_down(&self) {
        match self {
            Self::Blocking { output, .. } => output.idle().await,
            Self::Batch(batch) => batch.shut_down().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parking_lot::Mutex;

    use super::*;
    use crate::line_log::unbuffered;

    /// A test output with its written bytes, and with the number of next writes that will fail after a few bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, failures) = &mut *self.0.lock();
            match failures {
                0 => {
                    written.extend_from_slice(bytes);
                    Ok(bytes.len())
                }
                _ if bytes.len() > 2 => {
                    written.extend_from_slice(&bytes[..2]);
                    Ok(2)
                }
                _ => {
                    *failures -= 1;
                    Err(io::ErrorKind::StorageFull.into())
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Target for Disk {}

    fn sink(mode: AuditMode, buffer: usize) -> (LogSink, Disk, Arc<AuditMetrics>) {
        let (disk, metrics) = (Disk::default(), Arc::new(AuditMetrics::default()));
        let sink = LogSink::new(Box::new(disk.clone()), mode, buffer, &metrics).unwrap();
        (sink, disk, metrics)
    }

    fn lost(metrics: &AuditMetrics, plugin: &'static str) -> u64 {
        metrics.errors.get_or_create(&super::super::metrics::PluginLabels { plugin }).get()
    }

    #[tokio::test]
    async fn failed_audit_log_write_refuses_requests_only_in_strict_mode() {
        for (mode, goes_on) in [(AuditMode::Blocking, true), (AuditMode::BlockingStrict, false)] {
            let (sink, disk, metrics) = sink(mode, 1);
            assert!(sink.write(&Bytes::from_static(b"{one}\n")).await);
            disk.0.lock().1 = 1;
            assert_eq!(sink.write(&Bytes::from_static(b"{two}\n")).await, goes_on, "{mode:?}");
            assert!(sink.write(&Bytes::from_static(b"{three}\n")).await);
            assert_eq!(lost(&metrics, "log"), 1);
            let written = String::from_utf8(disk.0.lock().0.clone()).unwrap();
            let lines: Vec<_> = written.lines().collect();
            assert_eq!((lines[0], lines[lines.len() - 1]), ("{one}", "{three}"), "whole lines stay whole: {written}");
        }
    }

    /// The reader of standard output stops reading, so that the pipe fills in the middle of a line.
    #[test]
    fn audit_line_counts_as_written_after_its_last_byte_is_written() {
        let (output, mut reader) = std::os::unix::net::UnixStream::pair().unwrap();
        output.set_nonblocking(true).unwrap();
        let lines: Vec<_> = (0..4000).map(|number| Bytes::from(format!("{number:04} {}\n", "x".repeat(700)))).collect();
        let metrics = Arc::new(AuditMetrics::default());
        let told = Output::new(Box::new(unbuffered(&output).unwrap()), metrics.log_losses()).write(&lines);
        drop(output);
        let mut text = Vec::new();
        io::Read::read_to_end(&mut reader, &mut text).unwrap();
        let whole = text.iter().filter(|byte| **byte == b'\n').count();
        let written = told.iter().filter(|is_written| **is_written).count();
        assert!(written > 0 && written < lines.len(), "{written}");
        assert_eq!((written, lost(&metrics, "log")), (whole, (lines.len() - whole) as u64));
        assert_eq!(text[..whole * lines[0].len()], lines[..whole].concat());
    }

    #[tokio::test]
    async fn full_audit_queue_drops_lines_and_writes_queued_lines_at_shutdown() {
        let (sink, disk, metrics) = sink(AuditMode::Batch, 2);
        // The test holds the output's lock. The lock blocks the writing thread, so only one line leaves the queue.
        {
            let _busy = disk.0.lock();
            for _ in 0..10 {
                assert!(matches!(sink.write(&Bytes::from_static(b"{}\n")), Emission::Done(true)));
            }
        }
        sink.shut_down().await;
        let (dropped, written) = (lost(&metrics, "buffered"), disk.0.lock().0.len() as u64 / 3);
        assert_eq!(dropped + written, 10);
        assert!((7..=8).contains(&dropped), "{dropped} of 10 were dropped");
        sink.write(&Bytes::from_static(b"{}\n")).await;
        assert_eq!(lost(&metrics, "buffered"), dropped + 1, "nothing is taken after the end");
    }
}
