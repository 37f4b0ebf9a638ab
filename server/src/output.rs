//! What the program prints on standard output; its own log, which goes to standard error; and what a terminal may be
//! shown.

pub mod log;
pub(crate) mod terminal;

use std::io::Write;

/// Prints text; a reader that went away is no reason to fail.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
