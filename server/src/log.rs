//! Structured logs on standard error, as text or JSON.
//!
//! Only this program's own crates follow `--log-level`; everything else is kept at warnings, because HTTP libraries
//! print headers, and with them credentials, at their lower levels.

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// The spelling of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

/// The least important line that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// A promise of Tributary was broken.
    Error,
    /// Degraded, still serving.
    Warn,
    /// The lifecycle: started, clusters joined and left, drained.
    Info,
    /// One line per request: method, path, status, latency.
    Debug,
    /// One line per event.
    Trace,
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// Starts logging, once per process; a second call changes nothing.
///
/// Panics are logged with their place alone: a panic's message may quote the bytes of an object.
pub fn start(format: LogFormat, level: LogLevel) {
    let level = level.filter();
    let others = level.min(LevelFilter::WARN);
    let filter = Targets::new().with_target("tributary", level).with_default(others);
    let layer = match format {
        LogFormat::Text => fmt::layer().with_writer(std::io::stderr).with_ansi(ansi()).with_filter(filter).boxed(),
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).with_filter(filter).boxed()
        }
    };
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let thread = std::thread::current();
            tracing::error!(place, thread = thread.name().unwrap_or("unnamed"), "a task panicked");
        }));
    }
}

/// Colours only where a person reads: a terminal, unless `NO_COLOR` is set (no-color.org).
fn ansi() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
