//! Structured logs on standard error, as text or JSON.
//!
//! Only this program's own crates follow `--log-level`. Other crates log warnings at most, because HTTP libraries log
//! headers with credentials at lower levels.
//!
//! Texts from clusters and clients are escaped, so that they cannot imitate a log line.

use std::io::{self, Write};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};
use tributary_apimachinery::text::is_terminal_control;

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text lines for people.
    Text,
    /// A JSON object per line, for log collectors.
    Json,
}

/// The lowest level of log lines to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Broken guarantees of Tributary.
    Error,
    /// Degraded service that continues.
    Warn,
    /// Start, clusters that join or leave, drain.
    Info,
    /// A line per request: method, path, status, latency.
    Debug,
    /// A line per watch event.
    Trace,
}

/// The target of log lines about single watch events.
const EVENTS: &str = "tributary_cacher::events";

impl LogLevel {
    /// Returns the filter of log lines.
    ///
    /// `--log-level trace` includes the lines about single watch events. These lines have the level debug and a
    /// separate target, by which the filter distinguishes them from other debug lines. The level trace is impossible: a
    /// release build contains no lines of that level (feature `release_max_level_debug` of `tracing`), because the
    /// trace lines of libraries cost time.
    fn filter(self) -> Targets {
        let (level, events) = match self {
            Self::Error => (LevelFilter::ERROR, LevelFilter::OFF),
            Self::Warn => (LevelFilter::WARN, LevelFilter::OFF),
            Self::Info => (LevelFilter::INFO, LevelFilter::OFF),
            Self::Debug => (LevelFilter::DEBUG, LevelFilter::OFF),
            Self::Trace => (LevelFilter::DEBUG, LevelFilter::DEBUG),
        };
        let others = level.min(LevelFilter::WARN);
        Targets::new().with_target("tributary", level).with_target(EVENTS, events).with_default(others)
    }
}

/// Starts logging for the process. A second call changes nothing.
///
/// The log contains only the location of a panic, because the message of a panic may quote the bytes of an object.
pub fn start(format: LogFormat, level: LogLevel) {
    let filter = level.filter();
    let layer = match format {
        LogFormat::Text => text_layer(ansi(), io::stderr).with_filter(filter).boxed(),
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).with_filter(filter).boxed(),
    };
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let thread = std::thread::current();
            tracing::error!(place, thread = thread.name().unwrap_or("unnamed"), "a task panicked");
        }));
    }
}

/// Returns the layer for text lines. JSON lines need no layer for escaping, because JSON itself escapes line ends.
fn text_layer<S, W>(colours: bool, writer: fn() -> W) -> impl Layer<S> + Send + Sync
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: Write + 'static,
{
    fmt::layer().with_ansi(colours).with_writer(move || OneLine { writer: writer(), colours })
}

/// Escapes line ends and terminal control characters within each log line.
struct OneLine<W> {
    writer: W,
    /// True if the log contains colours. Their escape sequences are written unescaped.
    colours: bool,
}

impl<W> OneLine<W> {
    /// Returns whether the first character of a text must be escaped. Colour sequences are not escaped, because the log
    /// itself writes them, and foreign ones do no harm.
    fn is_escaped(&self, text: &str) -> bool {
        let is_colour = || {
            text.strip_prefix("\u{1b}[").is_some_and(|codes| {
                codes.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
            })
        };
        text.starts_with(is_terminal_control) && !(self.colours && is_colour())
    }
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (line, end) = bytes.strip_suffix(b"\n").map_or((bytes, &b""[..]), |line| (line, b"\n"));
        let text = String::from_utf8_lossy(line);
        if !text.contains(is_terminal_control) {
            self.writer.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut shown = String::with_capacity(text.len() + 16);
        for (at, c) in text.char_indices() {
            if self.is_escaped(&text[at..]) { shown.extend(c.escape_default()) } else { shown.push(c) }
        }
        self.writer.write_all(&[shown.as_bytes(), end].concat())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Returns whether the log has colours: on a terminal, unless `NO_COLOR` is set (no-color.org).
fn ansi() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn each_log_level_adds_lines_and_libraries_only_warn() {
        use tracing::Level;
        let lines = [
            ("tributary_server", Level::ERROR),
            ("tributary_server", Level::WARN),
            ("tributary_server", Level::INFO),
            ("tributary_server::front", Level::DEBUG),
            (EVENTS, Level::DEBUG),
        ];
        let levels = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        for (level, written) in levels.into_iter().zip(1..) {
            let filter = level.filter();
            let own = lines.iter().filter(|(target, level)| filter.would_enable(target, level)).count();
            assert_eq!(own, written, "{level:?}");
            assert!(!filter.would_enable("h2::codec", &Level::INFO) && filter.would_enable("h2::codec", &Level::ERROR));
        }
    }

    thread_local! {
        static WRITTEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    struct Written;

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            WRITTEN.with_borrow_mut(|written| written.extend_from_slice(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn untrusted_text_cannot_forge_a_log_line() {
        // A second subscriber is needed. With a single subscriber, tracing caches the first thread's filter result of
        // each call site for all threads.
        let _another = tracing::Dispatch::new(tracing_subscriber::registry());
        for colours in [false, true] {
            let lines = tracing_subscriber::registry().with(text_layer(colours, || Written));
            let _guard = tracing::subscriber::set_default(lines);
            let said = "get\n2026-01-01T00:00:00Z  INFO all is well\r\u{9b}2J\u{1b}[2J\u{2028}\u{202e}ä";
            tracing::warn!(reason = %said, "it is said");
            let written = String::from_utf8(WRITTEN.take()).unwrap();
            let line = written.strip_suffix('\n').unwrap();
            assert!(line.contains("WARN") && line.contains("it is said") && line.contains('ä'), "{line:?}");
            let is_ours = |c: char| colours && c == '\u{1b}';
            assert!(
                !line.contains(|c| is_terminal_control(c) && !is_ours(c)) && !line.contains("\u{1b}[2J"),
                "{line:?}"
            );
            assert!(line.contains(r"get\n2026-01-01T00:00:00Z  INFO all is well\r"), "{line:?}");
        }
    }
}
