//! Causes of a reload.

/// Cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// A file of the configuration has changed, or is gone.
    FilesChanged,
    /// The process got SIGHUP.
    Hangup,
    /// A retry after a refused configuration, or for a cluster without a client.
    Retry,
}

impl ReloadCause {
    /// Returns whether a reload without changes is logged. Retries are not, because they are frequent.
    pub(super) fn is_news_by_itself(self) -> bool {
        self != Self::Retry
    }

    /// Words for the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::FilesChanged => "the files have changed",
            Self::Hangup => "SIGHUP",
            Self::Retry => "another try",
        }
    }
}
