//! Why there is no audit log.

use std::path::PathBuf;

use tributary_audit::InvalidPolicy;

/// Why there is no audit log although one is asked for.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The policy cannot be read.
    #[error("loading audit policy file: failed to read file path {path:?}")]
    PolicyFile {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is none.
    #[error("loading audit policy file: {problem}: from file {}", .path.display())]
    Policy {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        problem: InvalidPolicy,
    },
    /// The log cannot be written.
    #[error("the audit log {} cannot be opened", .path.display())]
    Log {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The webhook's kubeconfig cannot be used.
    #[error("initializing audit webhook: {}: {problem}", .path.display())]
    Webhook {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}
