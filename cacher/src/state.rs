//! The state of a collection: syncing, synced or stale, with the reason.

use std::fmt;

use tokio::time::Instant;

/// The state of a cacher. Before the first complete list, the cacher does not know the collection's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacherState {
    /// No list has been complete yet.
    Syncing {
        /// The time at which the cacher started.
        since: Instant,
        /// The reason why the last attempt failed; `None` during the first attempt.
        reason: Option<StaleReason>,
    },
    /// The collection is complete, and changes arrive.
    Synced,
    /// The collection is complete and is served, but new changes do not arrive.
    Stale {
        /// The time at which contact was lost.
        since: Instant,
        /// The reason why contact with the member has not been restored.
        reason: StaleReason,
    },
}

/// The continuity of changes: whether changes arrive without a gap.
///
/// A cacher stays [`Synced`](CacherState::Synced) for some seconds while its watch is reopened, because a short gap
/// does not matter to most readers. But some callers must not use access rights after the member has revoked them. Such
/// a caller checks the continuity instead. A watch that ended regularly and is reopened at once leaves no gap: events
/// that occurred between the two watches arrive before later events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Continuity {
    /// The collection is not complete, or changes do not arrive.
    #[default]
    Broken,
    /// Changes have arrived in order since this time, after a gap. Changes from before this time may still be missing.
    Resumed(Instant),
    /// Changes have arrived without a gap since the last complete list.
    Unbroken,
}

/// The reason why changes do not arrive. The text of a reason is suitable for logs, `/readyz?verbose` and `Warning`
/// headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// The member is unreachable, or the connection was closed; the text has the details.
    Unreachable(String),
    /// 401: the member does not accept Tributary's credentials.
    Unauthorized,
    /// 403: Tributary may not list or watch this collection.
    Forbidden,
    /// 404: the member does not serve this resource.
    NotFound,
    /// 429: the member limits the rate of requests.
    TooManyRequests,
    /// 410: the member no longer has the events after the collection's version. The collection is being listed again.
    Expired,
    /// The member's revisions went back, for example because a backup was restored. The collection is being listed
    /// again.
    Reset,
    /// The collection exceeds its size limit, in bytes.
    TooLarge(u64),
    /// The collection would exceed the memory limit of all collections of the process.
    MemoryLimitReached {
        /// The size of this collection, in bytes.
        bytes: u64,
        /// The memory limit of all collections together, in bytes ([`ObjectMemoryLimit`](crate::ObjectMemoryLimit)).
        max: u64,
    },
    /// The collection, or an object in the collection, has a resourceVersion that is not a number. Versions of etcd are
    /// numbers; an aggregated API server may use other texts, or none.
    OpaqueVersions(String),
    /// Any other unusable response: its status code and message, or the problem with the response.
    Other(String),
}

/// The number of characters to which messages shorten a resourceVersion that is not a number.
const OPAQUE_SHOWN_MAX: usize = 64;

impl StaleReason {
    pub(crate) fn opaque(version: &str) -> Self {
        Self::OpaqueVersions(version.chars().take(OPAQUE_SHOWN_MAX).collect())
    }

    /// Returns the name of the reason in Kubernetes' spelling, without details, for metrics labels and comparisons.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "Unreachable",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::TooManyRequests => "TooManyRequests",
            Self::Expired => "Expired",
            Self::Reset => "Reset",
            Self::TooLarge(_) => "TooLarge",
            Self::MemoryLimitReached { .. } => "NoRoom",
            Self::OpaqueVersions(_) => "OpaqueVersions",
            Self::Other(_) => "Other",
        }
    }
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text) => write!(f, "unreachable: {text}"),
            Self::Unauthorized => f.write_str("unauthorized: the cluster does not accept Tributary's credentials"),
            Self::Forbidden => f.write_str("forbidden: Tributary's account may not list or watch this collection"),
            Self::NotFound => f.write_str("not found: the cluster does not serve this resource"),
            Self::TooManyRequests => f.write_str("too many requests: the cluster asks Tributary to wait"),
            Self::Expired => f.write_str("expired: the collection is being listed again"),
            Self::Reset => {
                f.write_str("the resourceVersions of the cluster went back: the collection is being listed again")
            }
            Self::TooLarge(most) => write!(f, "the collection is larger than {most} bytes"),
            Self::MemoryLimitReached { bytes, max } => write!(
                f,
                "there is no memory for {bytes} bytes of the collection: all collections of all clusters together may \
                 have {max} (--max-total-collection-bytes), and cached collections stay; give the process more \
                 memory, or cache fewer resources"
            ),
            Self::OpaqueVersions(version) => {
                write!(f, "the resourceVersion {version:?} is not a number, so the collection cannot be cached")
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl CacherState {
    /// Returns the reason why changes do not arrive; `None` if changes arrive.
    pub fn reason(&self) -> Option<&StaleReason> {
        match self {
            Self::Syncing { reason, .. } => reason.as_ref(),
            Self::Synced => None,
            Self::Stale { reason, .. } => Some(reason),
        }
    }

    /// Returns whether no list has been complete yet.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Syncing { .. })
    }
}
