//! The settings of the audit log.

use std::path::PathBuf;
use std::time::Duration;

use super::truncation::Truncation;
use crate::line_log::Rotation;

/// The settings of the audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// The audit.k8s.io/v1 Policy. Without one nothing is audited.
    pub policy_file: Option<PathBuf>,
    /// The file of the log, if one is written.
    pub log: Option<AuditLogSettings>,
    /// The webhook, if events are sent to one.
    pub webhook: Option<AuditWebhookSettings>,
}

/// The settings of the file.
#[derive(Clone, Debug)]
pub struct AuditLogSettings {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// When the file is rotated.
    pub rotation: Rotation,
    /// How lines are written.
    pub mode: AuditMode,
    /// Lines that may wait in batch mode.
    pub buffer_size: usize,
    /// The length of an event from which it is truncated, in bytes; `None` truncates nothing.
    pub event_bytes_max: Option<usize>,
}

/// The settings of the webhook.
#[derive(Clone, Debug)]
pub struct AuditWebhookSettings {
    /// The kubeconfig with the server and its credentials.
    pub kubeconfig: PathBuf,
    /// How events are sent.
    pub mode: AuditMode,
    /// Events that may wait in batch mode.
    pub buffer_size: usize,
    /// The most events in a list, in batch mode.
    pub batch_size: usize,
    /// The longest time that an event waits for others, in batch mode.
    pub batch_wait: Duration,
    /// The rate of lists in batch mode; `None` is no limit.
    pub throttle: Option<ThrottleSettings>,
    /// The lengths from which events and lists are truncated; `None` truncates nothing.
    pub truncation: Option<Truncation>,
    /// The pause before the first retry.
    pub initial_backoff: Duration,
}

/// A rate of lists.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleSettings {
    /// Lists per second, on average.
    pub per_second: f64,
    /// Lists that may be sent at once.
    pub burst: u32,
}

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditMode {
    /// After the answers, from a buffer.
    Batch,
    /// Before the answers.
    #[default]
    Blocking,
    /// Before the answers; a request whose first event cannot be written is refused.
    BlockingStrict,
}
