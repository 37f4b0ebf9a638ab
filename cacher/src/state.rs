//! The state of a cacher, and the reason if it is not synced.

use std::fmt;

use tokio::time::Instant;

/// The state of a cacher. Until it is first `Synced`, its cluster is unknown for this resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacherState {
    /// There is no complete state yet.
    Syncing {
        /// When the cacher started.
        since: Instant,
        /// The reason why the last attempt failed; `None` during the first attempt.
        reason: Option<StaleReason>,
    },
    /// The collection is complete and changes arrive.
    Synced,
    /// There is a complete state and it is served, but changes do not arrive.
    Stale {
        /// When contact was lost.
        since: Instant,
        /// The reason why contact is not restored.
        reason: StaleReason,
    },
}

/// Whether changes arrive without a gap.
///
/// A cacher stays [`Synced`](CacherState::Synced) for some seconds while its watch is reopened, because readers need no
/// notice of that. A caller that must not use rights that the member has revoked uses this value. A watch that ended
/// regularly and is reopened at once leaves no gap: the events in between arrive before later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Continuity {
    /// The collection is not complete, or changes do not arrive.
    #[default]
    Broken,
    /// Changes arrive again since this time, in order: older changes may still be on their way.
    Resumed(Instant),
    /// Changes have arrived since the last complete list.
    Unbroken,
}

/// The reason why changes do not arrive. Its text is suitable for logs, `/readyz?verbose` and `Warning` headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// The member is unreachable, or the connection broke off; the text has the details.
    Unreachable(String),
    /// 401: the member does not accept Tributary's credentials.
    Unauthorized,
    /// 403: Tributary may not list or watch this collection.
    Forbidden,
    /// 404: the member does not serve this resource.
    NotFound,
    /// 429: the member asks to wait.
    TooManyRequests,
    /// 410: the member no longer has the events since the current version; the collection is being listed again.
    Expired,
    /// Revisions went back; the collection is being listed again.
    Reset,
    /// The collection exceeds its size limit, in bytes.
    TooLarge(u64),
    /// All collections of the process together would exceed their size limit.
    NoRoom {
        /// The size of this collection, in bytes.
        bytes: u64,
        /// The size limit of all collections together, in bytes ([`ObjectRoom`](crate::ObjectRoom)).
        max: u64,
    },
    /// The collection, or an object in it, has this version, which is not a number. Versions of etcd are numbers; an
    /// aggregated API server may use other texts, or none.
    OpaqueVersions(String),
    /// A different answer of the member: the status code and message, or the defect of the answer.
    Other(String),
}

/// The shown length of a version that is not a number, in characters.
const OPAQUE_SHOWN_MAX: usize = 64;

impl StaleReason {
    /// Creates the reason for a version that is not a number.
    pub(crate) fn opaque(version: &str) -> Self {
        Self::OpaqueVersions(version.chars().take(OPAQUE_SHOWN_MAX).collect())
    }

    /// Returns the reason without its text, in Kubernetes' spelling, for metrics labels and for comparing reasons.
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
            Self::NoRoom { .. } => "NoRoom",
            Self::OpaqueVersions(_) => "OpaqueVersions",
            Self::Other(_) => "Other",
        }
    }
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(text) => write!(f, "unreachable: {text}"),
            Self::Unauthorized => f.write_str("unauthorized: the member does not accept our credentials"),
            Self::Forbidden => f.write_str("forbidden: we may not list or watch this collection"),
            Self::NotFound => f.write_str("not found: the member does not serve this resource"),
            Self::TooManyRequests => f.write_str("too many requests: the member asks us to wait"),
            Self::Expired => f.write_str("expired: the collection is being listed again"),
            Self::Reset => f.write_str("its revisions went back: the collection is being listed again"),
            Self::TooLarge(most) => write!(f, "the collection is larger than {most} bytes"),
            Self::NoRoom { bytes, max } => write!(
                f,
                "there is no room for {bytes} bytes of the collection: all collections of all clusters together may \
                 have {max} (--max-total-collection-bytes), and the others keep what they have; give the process more \
                 memory, or have it hold fewer resources"
            ),
            Self::OpaqueVersions(version) => {
                write!(f, "its resourceVersion {version:?} is not a number, so the collection cannot be cached")
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl CacherState {
    /// Returns the reason why changes do not arrive, if they do not.
    pub fn reason(&self) -> Option<&StaleReason> {
        match self {
            Self::Syncing { reason, .. } => reason.as_ref(),
            Self::Synced => None,
            Self::Stale { reason, .. } => Some(reason),
        }
    }

    /// Returns whether there is no complete state yet.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Syncing { .. })
    }
}
