//! The errors of opening the audit log.

use std::path::PathBuf;

use tributary_audit::InvalidPolicy;

/// An error that prevents the audit log from starting.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The audit policy file cannot be read.
    #[error("loading audit policy file: failed to read file path {path:?}")]
    PolicyFile {
        /// Path of the policy file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The content of the audit policy file is invalid.
    #[error("loading audit policy file: {problem}: from file {}", .path.display())]
    Policy {
        /// Path of the policy file.
        path: PathBuf,
        /// The first problem in the policy.
        problem: InvalidPolicy,
    },
    /// The audit log file cannot be opened for writing.
    #[error("the audit log {} cannot be opened", .path.display())]
    Log {
        /// Path of the log file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The webhook's kubeconfig is missing or invalid.
    #[error("initializing audit webhook: {}: {problem}", .path.display())]
    Webhook {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The problem of the kubeconfig, as text.
        problem: String,
    },
}
