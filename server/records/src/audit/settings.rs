//! The settings of the audit log.

use std::path::PathBuf;
use std::time::Duration;

use super::truncation::Truncation;
use crate::line_log::Rotation;

/// The settings of the audit log: the policy and the backends.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// Path of the audit.k8s.io/v1 Policy. Without a policy the audit log is off.
    pub policy_file: Option<PathBuf>,
    /// The settings of the log file; `None` without a log file.
    pub log: Option<AuditLogSettings>,
    /// The settings of the webhook; `None` without a webhook.
    pub webhook: Option<AuditWebhookSettings>,
}

/// The settings of the log file.
#[derive(Clone, Debug)]
pub struct AuditLogSettings {
    /// Path of the log file; `-` is standard output.
    pub path: PathBuf,
    /// The limits for the rotation of the log file.
    pub rotation: Rotation,
    /// Decides whether an audit log line is written before or after its answer is sent.
    pub mode: AuditMode,
    /// The capacity of the log file's queue in batch mode, in lines.
    pub buffer_size: usize,
    /// The longest audit event that is written without truncation, in bytes. `None` disables truncation.
    pub event_bytes_max: Option<usize>,
}

/// The settings of the webhook.
#[derive(Clone, Debug)]
pub struct AuditWebhookSettings {
    /// Path of the kubeconfig with the webhook's server and credentials.
    pub kubeconfig: PathBuf,
    /// Decides whether an audit event is sent to the webhook before or after its answer is sent to the client.
    pub mode: AuditMode,
    /// The capacity of the webhook's queue in batch mode, in events.
    pub buffer_size: usize,
    /// The most events in one EventList, in batch mode.
    pub batch_size: usize,
    /// The longest time that an event waits until its EventList is full, in batch mode.
    pub batch_wait: Duration,
    /// The rate limit of EventLists in batch mode; `None` sets no limit.
    pub throttle: Option<ThrottleSettings>,
    /// The size limits of events and EventLists; `None` disables truncation.
    pub truncation: Option<Truncation>,
    /// The pause before the first retry of a failed request to the webhook.
    pub initial_backoff: Duration,
}

/// The rate limit of EventLists: a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleSettings {
    /// The average rate, in EventLists per second.
    pub per_second: f64,
    /// The most EventLists in a burst.
    pub burst: u32,
}

/// Decides whether audit events are written before or after their answers are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// Audit events are queued, and written after their answers.
    Batch,
    /// Audit events are written before their answers are sent.
    #[default]
    Blocking,
    /// Audit events are written before their answers are sent. A request is refused if its first event cannot be
    /// written.
    BlockingStrict,
}
