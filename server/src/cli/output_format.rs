//! The output format of a command.

use clap::ValueEnum;

/// The form of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A table for people.
    Table,
    /// JSON for programs.
    Json,
}
