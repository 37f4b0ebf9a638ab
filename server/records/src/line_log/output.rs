//! The output of a line log, and the handling of failed writes.

use std::fs::File;
use std::io::{self, Write};

use bytes::Bytes;

use super::losses::Losses;

/// The most bytes of lines that are written with one call. Longer lines are written one by one, without copying.
const TOGETHER_BYTES: usize = 64 << 10;

/// A target of lines. Written bytes have reached the operating system, so a flush is not necessary.
pub(crate) trait Target: Write + Send {
    /// Announces the total size of lines that must stay in one file, before they are written. A partial write is not
    /// announced again.
    fn make_room(&mut self, _bytes: usize) {}
}

/// Standard output as a duplicated descriptor: a pipe, or a file without rotation.
impl Target for File {}

/// The output of a line log.
pub(crate) struct Output {
    target: Box<dyn Target>,
    /// A buffer for lines that are written together. Kept to reuse its memory.
    joined: Vec<u8>,
    /// Whether the last line may be incomplete.
    torn: bool,
    /// Whether writing fails. Logged once per series of failures.
    failing: bool,
    losses: Losses,
}

impl Output {
    /// Creates an output. Lines that the target does not accept are counted in `losses`.
    pub(crate) fn new(target: Box<dyn Target>, losses: Losses) -> Self {
        Self { target, joined: Vec::new(), torn: false, failing: false, losses }
    }

    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Writes a line. Returns whether it was written; otherwise it is counted as lost.
    pub(crate) fn write_one(&mut self, line: &Bytes) -> bool {
        if self.torn || self.failing {
            return self.write(std::slice::from_ref(line)) == [true];
        }
        self.target.make_room(line.len());
        match write_counted(&mut *self.target, line).1 {
            Ok(()) => true,
            Err(error) => {
                self.torn = true;
                self.lost(&error);
                false
            }
        }
    }

    /// Writes lines. Returns for each line whether it was written; each other line had a failed write of its own and is
    /// counted as lost.
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
                self.lost(&error);
                written.push(false);
                lines = lines.get(1..).unwrap_or_default();
            }
        }
        written
    }

    /// Writes the first lines with one call. Returns the number of complete lines, and the error of the next one.
    fn write_some(&mut self, lines: &[Bytes]) -> (usize, Option<io::Error>) {
        let mut ends = Vec::new();
        let mut end = 0;
        for line in lines {
            end += line.len();
            if !ends.is_empty() && end > TOGETHER_BYTES {
                break;
            }
            ends.push(end);
        }
        if std::mem::take(&mut self.torn) {
            // Separates the next line from the incomplete one.
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
        target.make_room(text.len());
        let (done, result) = write_counted(&mut **target, text);
        match result {
            Ok(()) => (ends.len(), None),
            Err(error) => {
                self.torn = true;
                (ends.partition_point(|end| *end <= done).min(ends.len() - 1), Some(error))
            }
        }
    }

    fn lost(&mut self, error: &io::Error) {
        self.losses.count_unwritten();
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(log = self.losses.log, %error, "a log cannot be written");
        }
    }
}

/// Writes a whole text. Returns the number of written bytes, and the error.
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
