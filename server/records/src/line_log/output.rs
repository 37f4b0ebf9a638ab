//! The output of a line log, and the handling of failed writes.

use std::fs::File;
use std::io::{self, Write};

use bytes::Bytes;

use super::losses::Losses;

/// The most bytes of several lines that are joined for one write. A longer line is written by itself, without copying.
const JOINED_BYTES_MAX: usize = 64 << 10;

/// A target of log lines. Its written bytes have reached the operating system, so no flush is needed.
pub(crate) trait Target: Write + Send {
    /// Announces the total size of the next lines, so that the target can rotate its file first. Called once before the
    /// lines, and not again after a partial write, because all lines of one call belong into one file.
    fn begin_lines(&mut self, _bytes: usize) {}
}

/// Standard output as a duplicated file descriptor, without rotation.
impl Target for File {}

pub(crate) struct Output {
    target: Box<dyn Target>,
    /// A buffer for joined log lines, reused by all writes.
    joined: Vec<u8>,
    /// True if the last write may have ended in the middle of a log line.
    torn: bool,
    /// True if the last write of the log failed. Of several failures in a row, only the first failure is logged.
    failing: bool,
    losses: Losses,
}

impl Output {
    /// Creates an output. `losses` counts the lines that the target does not accept.
    pub(crate) fn new(target: Box<dyn Target>, losses: Losses) -> Self {
        Self { target, joined: Vec::new(), torn: false, failing: false, losses }
    }

    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Writes a line. Returns whether the whole line was written. An unwritten line is counted as lost.
    pub(crate) fn write_one(&mut self, line: &Bytes) -> bool {
        if self.torn || self.failing {
            return self.write(std::slice::from_ref(line)) == [true];
        }
        self.target.begin_lines(line.len());
        match write_counted(&mut *self.target, line).1 {
            Ok(()) => true,
            Err(error) => {
                self.torn = true;
                self.count_loss(&error);
                false
            }
        }
    }

    /// Writes lines. Returns, for each line, whether the whole line was written. An unwritten line is counted as lost,
    /// and the next line is tried with a new write.
    pub(crate) fn write(&mut self, mut lines: &[Bytes]) -> Vec<bool> {
        let mut written = Vec::with_capacity(lines.len());
        while !lines.is_empty() {
            let (together, error) = self.write_some(lines);
            written.resize(written.len() + together, true);
            if together > 0 && std::mem::take(&mut self.failing) {
                tracing::info!(log = self.losses.log, "a log is written again");
            }
            lines = &lines[together..];
            if let Some(error) = error {
                self.count_loss(&error);
                written.push(false);
                lines = lines.get(1..).unwrap_or_default();
            }
        }
        written
    }

    /// Writes the first lines with one call. Returns the number of completely written lines, and the error of the first
    /// unwritten line.
    fn write_some(&mut self, lines: &[Bytes]) -> (usize, Option<io::Error>) {
        let mut ends = Vec::new();
        let mut end = 0;
        for line in lines {
            end += line.len();
            if !ends.is_empty() && end > JOINED_BYTES_MAX {
                break;
            }
            ends.push(end);
        }
        if std::mem::take(&mut self.torn) {
            // The previous write was incomplete. A line feed ends its line, so that the next line does not continue it.
            if let Err(error) = self.target.write_all(b"\n") {
                self.torn = true;
                return (0, Some(error));
            }
        }
        let Self { target, joined, .. } = self;
        let text = match lines {
            [line, ..] if ends.len() == 1 => line,
            _ => {
                joined.clear();
                lines[..ends.len()].iter().for_each(|line| joined.extend_from_slice(line));
                joined.as_slice()
            }
        };
        target.begin_lines(text.len());
        let (done, result) = write_counted(&mut **target, text);
        match result {
            Ok(()) => (ends.len(), None),
            Err(error) => {
                self.torn = true;
                (ends.partition_point(|end| *end <= done).min(ends.len() - 1), Some(error))
            }
        }
    }

    fn count_loss(&mut self, error: &io::Error) {
        self.losses.count_unwritten();
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(log = self.losses.log, %error, "a log cannot be written");
        }
    }
}

/// Writes a text with as many calls as needed. Returns the number of written bytes, and the error of the last call.
fn write_counted(target: &mut dyn Target, text: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < text.len() {
        match target.write(&text[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(taken) => done += taken,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}
