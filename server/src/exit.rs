//! The exit codes of the program, for scripts.

use std::fmt;
use std::process::ExitCode;

use tributary_sources::kubeconfig::users_file::UsersFileError;
use tributary_sources::kubeconfig::write::KubeconfigWriteError;

/// The exit code of a success, including the end of a graceful drain.
pub const OK: u8 = 0;
/// A failure at runtime: a port in use, or a directory that cannot be written.
pub const RUNTIME_FAILURE: u8 = 1;
/// An invalid command line or configuration; clap uses the same code.
pub const USAGE: u8 = 2;

/// The reason why a command fails.
#[derive(Debug)]
pub enum Failure {
    /// A flag, a kubeconfig or a configuration file must be corrected: exit code 2.
    Usage(anyhow::Error),
    /// The machine or the network caused the failure: exit code 1.
    Runtime(anyhow::Error),
}

impl Failure {
    /// Creates a failure that the user corrects in a flag or a file.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Creates a failure of the machine or the network.
    pub fn runtime(error: impl Into<anyhow::Error>) -> Self {
        Self::Runtime(error.into())
    }

    /// Returns the exit code of the program after this failure.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => USAGE.into(),
            Self::Runtime(_) => RUNTIME_FAILURE.into(),
        }
    }
}

impl fmt::Display for Failure {
    /// Formats the error with its causes on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) | Self::Runtime(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<UsersFileError> for Failure {
    fn from(error: UsersFileError) -> Self {
        match error {
            UsersFileError::Locked { .. } | UsersFileError::Read { .. } | UsersFileError::Write { .. } => {
                Self::runtime(error)
            }
            UsersFileError::Change { .. }
            | UsersFileError::Hidden { .. }
            | UsersFileError::Missing(_)
            | UsersFileError::NoFile(_) => Self::usage(error),
        }
    }
}

impl From<KubeconfigWriteError> for Failure {
    fn from(error: KubeconfigWriteError) -> Self {
        match error {
            KubeconfigWriteError::Foreign { .. } | KubeconfigWriteError::NoDirectory { .. } => Self::usage(error),
            KubeconfigWriteError::Read { .. } | KubeconfigWriteError::Write { .. } => Self::runtime(error),
        }
    }
}
