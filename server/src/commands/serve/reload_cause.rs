//! The causes of a reload of the configuration.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// A configuration file has changed, or was removed.
    FilesChanged,
    /// Objects of the hub have changed.
    HubChanged,
    /// The process received the signal SIGHUP.
    Hangup,
    /// A retry follows an invalid configuration, or a cluster without a client.
    Retry,
}

impl ReloadCause {
    /// Returns whether a reload for this cause is logged even if the configuration has not changed. Frequent retries
    /// and status changes in the hub are not logged.
    pub(super) fn is_always_logged(self) -> bool {
        !matches!(self, Self::Retry | Self::HubChanged)
    }

    /// Returns the reload's cause as text for the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::FilesChanged => "the files have changed",
            Self::HubChanged => "objects of the hub have changed",
            Self::Hangup => "SIGHUP",
            Self::Retry => "another try",
        }
    }
}
