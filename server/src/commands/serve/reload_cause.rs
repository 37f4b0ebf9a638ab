//! Why a configuration is read anew.

/// Why a configuration is read anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// A file that it comes from is another one, or gone.
    FilesChanged,
    /// Somebody sent SIGHUP.
    Hangup,
    /// It was refused before, or a cluster has no client, and that may have mended itself.
    Retry,
}

impl ReloadCause {
    /// Whether a reload that changes nothing is told of. A try that was nobody's wish is not: it is made all the time.
    pub(super) fn is_news_by_itself(self) -> bool {
        self != Self::Retry
    }

    /// The words for it in the log.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::FilesChanged => "the files have changed",
            Self::Hangup => "SIGHUP",
            Self::Retry => "another try",
        }
    }
}
