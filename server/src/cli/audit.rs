//! The flags of the audit log: kube-apiserver's names, defaults and words (apiserver `pkg/server/options/audit.go`),
//! but that the webhook's lists are throttled only where that is asked for.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args, ValueEnum};

use super::boolean::boolean;
use super::bytes::parse_bytes;
use super::duration::parse_duration_above_zero;

/// What is written of requests, and where.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Audit")]
pub struct AuditArguments {
    /// The audit.k8s.io/v1 Policy that says which requests are audited, and how much is written of them
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where the log is written.
    #[command(flatten)]
    pub log: AuditLogArguments,
    /// Where events are sent.
    #[command(flatten)]
    pub webhook: AuditWebhookArguments,
}

/// The audit log's file.
#[derive(Args, Clone, Debug)]
pub struct AuditLogArguments {
    /// Write audit events to this file, a line of JSON each; - is standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// Megabytes that the audit log may have before it is rotated; 0 never rotates it
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub audit_log_maxsize: u64,
    /// Days for which rotated audit logs are kept, by the time in their names; 0 keeps them however old they are
    #[arg(long, value_name = "DAYS", default_value_t = 366)]
    pub audit_log_maxage: u32,
    /// Rotated audit logs that are kept; 0 keeps all
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub audit_log_maxbackup: usize,
    /// Compress rotated audit logs (gzip)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_log_compress: bool,
    /// The format of the log; there is no other
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    pub audit_log_format: AuditFormat,
    /// The API version of the log's events; there is no other
    #[arg(long, value_enum, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_log_version: AuditVersion,
    /// How events are written: each before its answer goes on (blocking); so, and a request whose first event cannot be
    /// written is refused (blocking-strict); or behind the answers, from a buffer that drops what it has no room for
    /// (batch)
    #[arg(long, value_enum, value_name = "MODE", default_value = "blocking")]
    pub audit_log_mode: AuditMode,
    /// Events that wait to be written, in batch mode
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count())]
    pub audit_log_batch_buffer_size: usize,
    /// Leave the bodies out of events that are longer than --audit-log-truncate-max-event-size, and cut texts and lists
    /// of those that are longer without
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_log_truncate_enabled: bool,
    /// Bytes that an event in the log may have, where longer ones are truncated
    #[arg(long, value_name = "BYTES", default_value_t = EVENT_BYTES, value_parser = parse_bytes::<usize>)]
    pub audit_log_truncate_max_event_size: usize,
}

/// Bytes of an event, and of a list of events, where they are truncated and nothing else is said
/// (`NewAuditTruncateOptions`).
const EVENT_BYTES: usize = 100 << 10;
const LIST_BYTES: usize = 10 << 20;

/// The audit webhook.
#[derive(Args, Clone, Debug)]
pub struct AuditWebhookArguments {
    /// A kubeconfig that says where audit events are posted, as EventLists
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// How events are sent; as --audit-log-mode
    #[arg(long, value_enum, value_name = "MODE", default_value = "batch")]
    pub audit_webhook_mode: AuditMode,
    /// Events that wait to be sent, in batch mode
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count())]
    pub audit_webhook_batch_buffer_size: usize,
    /// Events that are sent together at most, in batch mode
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = count())]
    pub audit_webhook_batch_max_size: usize,
    /// How long an event may wait for others to be sent with, in batch mode
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration_above_zero)]
    pub audit_webhook_batch_max_wait: Duration,
    /// Send no more lists than --audit-webhook-batch-throttle-qps says, in batch mode
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_webhook_batch_throttle_enable: bool,
    /// Lists that are sent in a second on average at most, in batch mode
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = rate)]
    pub audit_webhook_batch_throttle_qps: f64,
    /// Lists that are sent at once where few were sent before, in batch mode
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = RangedU64ValueParser::<u32>::new().range(1..))]
    pub audit_webhook_batch_throttle_burst: u32,
    /// Leave the bodies out of events that are longer than --audit-webhook-truncate-max-event-size, and cut texts and
    /// lists of those that are longer without; send longer lists than --audit-webhook-truncate-max-batch-size in parts
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value = "false", action = ArgAction::Set, value_parser = boolean())]
    pub audit_webhook_truncate_enabled: bool,
    /// Bytes that an event may have that is sent, where longer ones are truncated
    #[arg(long, value_name = "BYTES", default_value_t = EVENT_BYTES, value_parser = parse_bytes::<usize>)]
    pub audit_webhook_truncate_max_event_size: usize,
    /// Bytes of events that are sent together at most, where longer ones are truncated
    #[arg(long, value_name = "BYTES", default_value_t = LIST_BYTES, value_parser = parse_bytes::<usize>)]
    pub audit_webhook_truncate_max_batch_size: usize,
    /// The API version of the events that are sent; there is no other
    #[arg(long, value_enum, value_name = "VERSION", default_value = "audit.k8s.io/v1")]
    pub audit_webhook_version: AuditVersion,
    /// How long after a failure events are sent again, for the first time; each further time it is half as long again,
    /// up to five in all
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration_above_zero)]
    pub audit_webhook_initial_backoff: Duration,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// An object for each event.
    #[default]
    Json,
}

/// Of which API version events are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditVersion {
    /// The one that kube-apiserver writes, too.
    #[default]
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// Behind the answers.
    Batch,
    /// Before the answers.
    #[default]
    Blocking,
    /// Before the answers; what cannot be written is not done.
    BlockingStrict,
}

/// A number above 0.
fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// A number above 0, which may have a fraction.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        Ok(_) => Err("must be above 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What clap makes of no flags at all, for who starts a server without a command line.
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

    /// A throttle would let one client's cheap requests fill the buffer, from which another's write is then dropped.
    #[test]
    fn the_webhook_is_throttled_only_where_that_is_asked_for() {
        for arguments in [Line::parse_from(["serve"]).audit, AuditArguments::default()] {
            assert!(!arguments.webhook.audit_webhook_batch_throttle_enable);
        }
    }

    #[test]
    fn what_is_on_or_off_is_said_as_to_kube_apiserver() {
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
            assert!(Line::try_parse_from(["serve", flag, "false"]).is_err(), "{flag} takes no value after a blank");
            assert!(!read(&Line::parse_from(["serve"]).audit), "{flag} is off where nothing is said");
        }
    }
}
