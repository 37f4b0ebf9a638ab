//! The form of a command's output.

use clap::ValueEnum;

/// The form of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
}
