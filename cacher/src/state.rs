//! How far a cacher is, and what keeps it from being further.

use std::fmt;

use tokio::time::Instant;

/// How far a cacher is. Until it is first `Synced` its cluster is unknown for this resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacherState {
    /// There is no complete state yet.
    Syncing {
        /// When the cacher started.
        since: Instant,
        /// What kept the last attempt from succeeding; `None` while the first is under way.
        reason: Option<StaleReason>,
    },
    /// The collection is complete and changes arrive.
    Synced,
    /// There is a complete state and it is served, but changes do not arrive.
    Stale {
        /// When contact was lost.
        since: Instant,
        /// Why it is not back.
        reason: StaleReason,
    },
}

/// Whether changes arrive without a gap.
///
/// A cacher is [`Synced`](CacherState::Synced) for some seconds more while its watch is opened again: to readers that
/// is no news. Whoever must not act on what the member has taken back goes by this. A watch that has ended in order and
/// is open again at once leaves no gap: what came between comes as soon as what comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Continuity {
    /// Nothing is held, or changes do not arrive.
    #[default]
    Broken,
    /// Changes arrive again since this moment, in their order: older ones may still be on their way.
    Resumed(Instant),
    /// Changes have arrived ever since all was listed.
    Unbroken,
}

/// Why changes do not arrive. Its text is fit for logs, `/readyz?verbose` and `Warning` headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// The member cannot be reached, or broke off; the text says how.
    Unreachable(String),
    /// 401: our credentials are not accepted.
    Unauthorized,
    /// 403: list or watch of this collection is not allowed to us.
    Forbidden,
    /// 404: the member does not serve this resource.
    NotFound,
    /// 429: the member asks for patience.
    TooManyRequests,
    /// 410: the member no longer has the events since our version; the collection is being listed anew.
    Expired,
    /// Revisions went back; the collection is being listed anew.
    Reset,
    /// The collection has more bytes than are held: more than this.
    TooLarge(u64),
    /// All collections of the process together would have more bytes than are held.
    NoRoom {
        /// What this one would have.
        bytes: u64,
        /// What all may have together ([`ObjectRoom`](crate::ObjectRoom)).
        max: u64,
    },
    /// The collection, or an object in it, has this version, which is not a number. Versions of etcd are numbers; an
    /// aggregated API server may write other texts, or none.
    OpaqueVersions(String),
    /// Anything else that the member answered: the status code and its message, or what is wrong with the answer.
    Other(String),
}

/// The shown length of a version that is not a number, in characters.
const OPAQUE_SHOWN_MAX: usize = 64;

impl StaleReason {
    /// The reason for a version that is not a number.
    pub(crate) fn opaque(version: &str) -> Self {
        Self::OpaqueVersions(version.chars().take(OPAQUE_SHOWN_MAX).collect())
    }

    /// The reason without its text, in Kubernetes' spelling, for metrics labels and for telling new reasons from old.
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
    /// Why changes do not arrive, if so.
    pub fn reason(&self) -> Option<&StaleReason> {
        match self {
            Self::Syncing { reason, .. } => reason.as_ref(),
            Self::Synced => None,
            Self::Stale { reason, .. } => Some(reason),
        }
    }

    /// Whether there is no complete state yet.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Syncing { .. })
    }
}
