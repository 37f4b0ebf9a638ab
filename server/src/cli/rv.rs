//! The commands about resourceVersions, and their flags.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::output_format::OutputFormat;

/// The commands about resourceVersions.
#[derive(Debug, Subcommand)]
pub enum RvCommand {
    /// Print the components of a composite resourceVersion, in its long, compact or item form
    #[command(after_help = "Example:\n  tributary rv decode eyJjbHVzdGVyMSI6IjEyMzQifQ")]
    Decode(DecodeArguments),
}

/// The arguments of `rv decode`.
#[derive(Args, Clone, Debug)]
pub struct DecodeArguments {
    /// The resourceVersion of a list, an event or an object
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Output format: a table or JSON
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: OutputFormat,
    /// The data directory with the lists of clusters to which compact versions refer [default: as for serve]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}
