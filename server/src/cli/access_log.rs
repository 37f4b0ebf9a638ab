//! The flags of the access log.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use tributary_records::access_log::AccessLogSettings;
use tributary_records::line_log::{MEGABYTE, Rotation};

/// The file, rotation and buffer of the access log.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Access log")]
pub struct AccessLogArguments {
    /// Write a line of JSON for each answered request to this file; - is standard output. logging and logMode of
    /// configuration objects select the requests
    #[arg(long, value_name = "FILE")]
    pub access_log_path: Option<PathBuf>,
    /// Maximum size of the access log in megabytes before it is rotated; 0 disables rotation
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub access_log_maxsize: u64,
    /// Maximum number of days to keep rotated access logs, by the time in the file name; 0 keeps them forever
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    pub access_log_maxage: u32,
    /// Maximum number of rotated access logs to keep; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub access_log_maxbackup: usize,
    /// Maximum number of lines that wait to be written; further lines are dropped and counted
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub access_log_buffer_size: usize,
}

impl AccessLogArguments {
    /// Returns the settings of the access log; `None` without `--access-log-path`.
    pub fn settings(&self) -> Option<AccessLogSettings> {
        let rotation = Rotation {
            max_bytes: self.access_log_maxsize.saturating_mul(MEGABYTE),
            max_backups: self.access_log_maxbackup,
            max_age_days: self.access_log_maxage,
            compress: false,
        };
        let path = self.access_log_path.clone()?;
        Some(AccessLogSettings { path, rotation, buffer_size: self.access_log_buffer_size })
    }
}

/// The defaults of the flags, for code that starts a server without parsing a command line.
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
