//! The outputs of the program: standard output, the log on standard error, and the escaping of text for terminals.

pub mod log;
pub(crate) mod terminal;

use std::io::Write;

/// Prints text to standard output. A closed standard output is not an error.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
