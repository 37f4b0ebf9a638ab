//! The settings of the audit log.

use std::path::PathBuf;
use std::time::Duration;

use super::truncation::Truncation;
use crate::line_log::Rotation;

/// The settings of the audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// The audit.k8s.io/v1 Policy. Without a policy the audit log is off.
    pub policy_file: Option<PathBuf>,
    /// The file of the log, if one is written.
    pub log: Option<AuditLogSettings>,
    /// The webhook, if events are sent to one.
    pub webhook: Option<AuditWebhookSettings>,
}

/// The settings of the log file.
#[derive(Clone, Debug)]
pub struct AuditLogSettings {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// The limits for the rotation of the file.
    pub rotation: Rotation,
    /// The mode of writing lines.
    pub mode: AuditMode,
    /// The capacity of the queue in lines, in batch mode.
    pub buffer_size: usize,
    /// The length of an event from which it is truncated, in bytes; `None` truncates nothing.
    pub event_bytes_max: Option<usize>,
}

/// The settings of the webhook.
#[derive(Clone, Debug)]
pub struct AuditWebhookSettings {
    /// The kubeconfig with the server and its credentials.
    pub kubeconfig: PathBuf,
    /// The mode of sending events.
    pub mode: AuditMode,
    /// The capacity of the queue in events, in batch mode.
    pub buffer_size: usize,
    /// The most events in a list, in batch mode.
    pub batch_size: usize,
    /// The longest time that an event waits for a full list, in batch mode.
    pub batch_wait: Duration,
    /// The rate of lists in batch mode; `None` is no limit.
    pub throttle: Option<ThrottleSettings>,
    /// The lengths from which events and lists are truncated; `None` truncates nothing.
    pub truncation: Option<Truncation>,
    /// The pause before the first retry.
    pub initial_backoff: Duration,
}

/// The rate limit of lists.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleSettings {
    /// Lists per second, on average.
    pub per_second: f64,
    /// The most lists in a burst.
    pub burst: u32,
}

/// The order of events and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// Events are written after the answers, from a buffer.
    Batch,
    /// Events are written before the answers.
    #[default]
    Blocking,
    /// Events are written before the answers; a request whose first event cannot be written is refused.
    BlockingStrict,
}
