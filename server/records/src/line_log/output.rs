//! What lines are written to, and what becomes of them where that fails.

use std::fs::File;
use std::io::{self, Write};

use bytes::Bytes;

use super::losses::Losses;

/// How many bytes of lines are written in one go. Longer ones are written one by one, and not copied.
const TOGETHER_BYTES: usize = 64 << 10;

/// What takes lines. What it has taken is with the system: it holds nothing back, and there is nothing to flush.
pub(crate) trait Target: Write + Send {
    /// Told of lines that are to stay together, before they are written: so many bytes. What takes only a part of them
    /// is not told of the rest.
    fn make_room(&mut self, _bytes: usize) {}
}

/// As it is opened: standard output, to a pipe or a file that others rotate.
impl Target for File {}

/// Where lines are written.
pub(crate) struct Output {
    target: Box<dyn Target>,
    /// Lines that are written together; kept for its memory.
    joined: Vec<u8>,
    /// Whether the last line may have been written in part.
    torn: bool,
    /// Whether writing fails, which is logged once.
    failing: bool,
    losses: Losses,
}

impl Output {
    /// Writes to a target, and counts what it does not take.
    pub(crate) fn new(target: Box<dyn Target>, losses: Losses) -> Self {
        Self { target, joined: Vec::new(), torn: false, failing: false, losses }
    }

    /// What was lost.
    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Writes a line, or counts it as lost. Whether it was written.
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

    /// Writes lines, each whole or counted as lost. Which of them were written: each that is lost has failed itself.
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

    /// Writes the first lines in one go. How many were written whole, and why the next one was not.
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
            // What is left of the last line shall not spoil this one. Its end is where it is.
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

/// Writes all of a text, and says how much of it was taken.
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
