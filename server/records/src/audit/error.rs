//! The errors of opening the audit log.

use std::path::PathBuf;

use tributary_audit::InvalidPolicy;

/// The reason why the audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy cannot be read.
    #[error("loading audit policy file: failed to read file path {path:?}")]
    PolicyFile {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The content of the file is not a valid policy.
    #[error("loading audit policy file: {problem}: from file {}", .path.display())]
    Policy {
        /// Path of the file.
        path: PathBuf,
        /// The problem of the policy.
        problem: InvalidPolicy,
    },
    /// The log cannot be written.
    #[error("the audit log {} cannot be opened", .path.display())]
    Log {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The webhook's kubeconfig cannot be used.
    #[error("initializing audit webhook: {}: {problem}", .path.display())]
    Webhook {
        /// Path of the file.
        path: PathBuf,
        /// The problem of the kubeconfig.
        problem: String,
    },
}
