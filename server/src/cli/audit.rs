//! The flags of the audit log. Names, defaults and values are those of kube-apiserver (apiserver
//! `pkg/server/options/audit.go`), except that throttling of the webhook is off by default.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args, ValueEnum};
use tributary_records::audit::{
    AuditLogSettings, AuditMode, AuditSettings, AuditWebhookSettings, ThrottleSettings, Truncation,
};
use tributary_records::line_log::{MEGABYTE, Rotation};

use super::boolean::boolean;
use super::bytes::parse_bytes;
use super::duration::parse_duration_above_zero;
use super::flag_values;

/// The audit policy, and the destinations of audit events.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Audit")]
pub struct AuditArguments {
    /// A Policy of audit.k8s.io/v1: the requests to audit, and the level for each
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Flags of the log file.
    #[command(flatten)]
    pub log: AuditLogArguments,
    /// Flags of the webhook.
    #[command(flatten)]
    pub webhook: AuditWebhookArguments,
}

/// The log file of audit events.
#[derive(Args, Clone, Debug)]
pub struct AuditLogArguments {
    /// Write each audit event as a line of JSON to this file; - is standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// Maximum size of the audit log in megabytes before it is rotated; 0 disables rotation
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// Maximum number of days to keep rotated audit logs, by the time in the file name; 0 keeps them forever
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    pub audit_log_maxage: u32,
    /// Maximum number of rotated audit logs to keep; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub audit_log_maxbackup: usize,
    /// Compress rotated audit logs with gzip
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_log_compress: bool,
    /// Format of the audit log
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    pub audit_log_format: AuditFormat,
    /// API version of the events in the audit log
    #[arg(long, value_enum, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_log_version: AuditVersion,
    /// The time at which events are written
    #[arg(long, value_name = "MODE", default_value = "blocking", value_parser = flag_values::audit_mode())]
    pub audit_log_mode: AuditMode,
    /// Maximum number of events that wait to be written; batch mode only
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count())]
    pub audit_log_batch_buffer_size: usize,
    /// Truncate events above --audit-log-truncate-max-event-size: leave out the bodies, then shorten texts and lists
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_log_truncate_enabled: bool,
    /// Maximum size of an event in bytes, if truncation is enabled
    #[arg(long, value_name = "BYTES", default_value_t = EVENT_BYTES, value_parser = parse_bytes::<usize>)]
    pub audit_log_truncate_max_event_size: usize,
}

/// kube-apiserver's default size limits of an event and of an EventList, in bytes (`NewAuditTruncateOptions`).
const EVENT_BYTES: usize = 100 << 10;
const LIST_BYTES: usize = 10 << 20;

/// The flags of the audit webhook.
#[derive(Args, Clone, Debug)]
pub struct AuditWebhookArguments {
    /// A kubeconfig with the server to which audit events are sent, as EventLists
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// As --audit-log-mode
    #[arg(long, value_name = "MODE", default_value = "batch", value_parser = flag_values::audit_mode())]
    pub audit_webhook_mode: AuditMode,
    /// As --audit-log-batch-buffer-size
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count())]
    pub audit_webhook_batch_buffer_size: usize,
    /// Maximum number of events in a batch; batch mode only
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = count())]
    pub audit_webhook_batch_max_size: usize,
    /// Maximum time until a batch that is not full is sent; batch mode only
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration_above_zero)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Limit the rate of batches; batch mode only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Maximum average number of batches per second, if throttling is enabled
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = rate)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// Maximum number of batches sent at the same moment, if throttling is enabled
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub audit_webhook_batch_throttle_burst: u32,
    /// As --audit-log-truncate-enabled; also splits batches that are too large
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_webhook_truncate_enabled: bool,
    /// As --audit-log-truncate-max-event-size
    #[arg(long, value_name = "BYTES", default_value_t = EVENT_BYTES, value_parser = parse_bytes::<usize>)]
    pub audit_webhook_truncate_max_event_size: usize,
    /// Maximum size of a batch in bytes, if truncation is enabled
    #[arg(long, value_name = "BYTES", default_value_t = LIST_BYTES, value_parser = parse_bytes::<usize>)]
    pub audit_webhook_truncate_max_batch_size: usize,
    /// As --audit-log-version
    #[arg(long, value_enum, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_webhook_version: AuditVersion,
    /// Time until the first retry after a failure. Each further retry waits half as long again; there are at most five
    /// attempts
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_above_zero)]
    pub audit_webhook_initial_backoff: Duration,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// A JSON object per line.
    #[default]
    Json,
}

/// The API version of audit events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditVersion {
    /// The version of kube-apiserver.
    #[default]
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

impl AuditArguments {
    /// Converts the flags into the settings of the audit log.
    pub fn settings(&self) -> AuditSettings {
        let policy_file = self.audit_policy_file.clone();
        AuditSettings { policy_file, log: self.log.settings(), webhook: self.webhook.settings() }
    }
}

impl AuditLogArguments {
    fn settings(&self) -> Option<AuditLogSettings> {
        let rotation = Rotation {
            max_bytes: self.audit_log_maxsize.saturating_mul(MEGABYTE),
            max_backups: self.audit_log_maxbackup,
            max_age_days: self.audit_log_maxage,
            compress: self.audit_log_compress,
        };
        Some(AuditLogSettings {
            path: self.audit_log_path.clone()?,
            rotation,
            mode: self.audit_log_mode,
            buffer_size: self.audit_log_batch_buffer_size,
            event_bytes_max: self.audit_log_truncate_enabled.then_some(self.audit_log_truncate_max_event_size),
        })
    }
}

impl AuditWebhookArguments {
    fn settings(&self) -> Option<AuditWebhookSettings> {
        let throttle = ThrottleSettings {
            per_second: self.audit_webhook_batch_throttle_qps,
            burst: self.audit_webhook_batch_throttle_burst,
        };
        let truncation = Truncation {
            event: self.audit_webhook_truncate_max_event_size,
            list: self.audit_webhook_truncate_max_batch_size,
        };
        Some(AuditWebhookSettings {
            kubeconfig: self.audit_webhook_config_file.clone()?,
            mode: self.audit_webhook_mode,
            buffer_size: self.audit_webhook_batch_buffer_size,
            batch_size: self.audit_webhook_batch_max_size,
            batch_wait: self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable.then_some(throttle),
            truncation: self.audit_webhook_truncate_enabled.then_some(truncation),
            initial_backoff: self.audit_webhook_initial_backoff,
        })
    }
}

/// Parses a whole number above 0.
fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Parses a number above 0, which may have a fraction.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        Ok(_) => Err("must be above 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The defaults of the flags, for code that starts a server without parsing a command line.
impl Default for AuditArguments {
    fn default() -> Self {
        let log = AuditLogArguments {
            audit_log_path: None,
            audit_log_maxsize: 100,
            audit_log_maxage: 366,
            audit_log_maxbackup: 100,
            audit_log_compress: false,
            audit_log_format: AuditFormat::Json,
            audit_log_version: AuditVersion::V1,
            audit_log_mode: AuditMode::Blocking,
            audit_log_batch_buffer_size: 10_000,
            audit_log_truncate_enabled: false,
            audit_log_truncate_max_event_size: EVENT_BYTES,
        };
        let webhook = AuditWebhookArguments {
            audit_webhook_config_file: None,
            audit_webhook_mode: AuditMode::Batch,
            audit_webhook_batch_buffer_size: 10_000,
            audit_webhook_batch_max_size: 400,
            audit_webhook_batch_max_wait: Duration::from_secs(30),
            audit_webhook_batch_throttle_enable: false,
            audit_webhook_batch_throttle_qps: 10.0,
            audit_webhook_batch_throttle_burst: 15,
            audit_webhook_truncate_enabled: false,
            audit_webhook_truncate_max_event_size: EVENT_BYTES,
            audit_webhook_truncate_max_batch_size: LIST_BYTES,
            audit_webhook_version: AuditVersion::V1,
            audit_webhook_initial_backoff: Duration::from_secs(10),
        };
        Self { audit_policy_file: None, log, webhook }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        audit: AuditArguments,
    }

    /// With throttling, cheap requests of one client could fill the buffer, and the events of more important requests
    /// would be dropped.
    #[test]
    fn webhook_throttling_is_off_by_default() {
        for arguments in [Line::parse_from(["serve"]).audit, AuditArguments::default()] {
            assert!(!arguments.webhook.audit_webhook_batch_throttle_enable);
        }
    }

    #[test]
    fn boolean_flags_accept_the_values_of_kube_apiserver() {
        type Read = fn(&AuditArguments) -> bool;
        let flags: [(&str, Read); 4] = [
            ("--audit-log-compress", |own| own.log.audit_log_compress),
            ("--audit-log-truncate-enabled", |own| own.log.audit_log_truncate_enabled),
            ("--audit-webhook-batch-throttle-enable", |own| own.webhook.audit_webhook_batch_throttle_enable),
            ("--audit-webhook-truncate-enabled", |own| own.webhook.audit_webhook_truncate_enabled),
        ];
        let on = ["", "=1", "=t", "=T", "=TRUE", "=true", "=True"].map(|value| (value, Some(true)));
        let off = ["=0", "=f", "=F", "=FALSE", "=false", "=False"].map(|value| (value, Some(false)));
        let wrong = ["=", "=yes", "=tRUE", "=2"].map(|value| (value, None));
        for (flag, read) in flags {
            for (value, expected) in on.into_iter().chain(off).chain(wrong) {
                let line = Line::try_parse_from(["serve", &format!("{flag}{value}")]).ok();
                assert_eq!(line.map(|line| read(&line.audit)), expected, "{flag}{value}");
            }
            assert!(Line::try_parse_from(["serve", flag, "false"]).is_err(), "{flag} takes a value only after =");
            assert!(!read(&Line::parse_from(["serve"]).audit), "{flag} is off by default");
        }
    }
}
