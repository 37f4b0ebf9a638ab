//! The flags of the access log.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;

/// Where a line of each request is written.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Access log")]
pub struct AccessLogArguments {
    /// Write a line of JSON of each request to this file, once it has been answered; - is standard output. Where a
    /// configuration object says what is logged (spec.logging, logMode), that is followed
    #[arg(long, value_name = "FILE")]
    pub access_log_path: Option<PathBuf>,
    /// Megabytes that the access log may have before it is rotated; 0 never rotates it
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub access_log_maxsize: u64,
    /// Days for which rotated access logs are kept, by the time in their names; 0 keeps them however old they are
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub access_log_maxage: u32,
    /// Rotated access logs that are kept; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub access_log_maxbackup: usize,
    /// Lines that wait to be written; what has no room is dropped, and counted
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub access_log_buffer_size: usize,
}

/// What clap makes of no flags at all, for who starts a server without a command line.
impl Default for AccessLogArguments {
    fn default() -> Self {
        Self {
            access_log_path: None,
            access_log_maxsize: 100,
            access_log_maxage: 30,
            access_log_maxbackup: 10,
            access_log_buffer_size: 10_000,
        }
    }
}
