//! Decides when to ask the member for progress.
//!
//! An unchanged collection has an unchanged version, while the member's versions advance: they are etcd's revisions,
//! shared by all resources. A reader that waits for such a version would wait for the next bookmark, about a minute. A
//! remote client cannot request a bookmark. But a kube-apiserver (seen on 1.36) sends one about 2 s before a watch
//! ends, with the version that its own cache has reached, and a consistent list makes that cache reach the latest
//! version. The steps:
//!
//! 1. A waiter's version has not arrived within `progress_after`.
//! 2. The member is asked for its latest version, while the watch continues. There is one question at a time for all
//!    waiters.
//! 3. If the awaited version exists by then, a short watch from the current version replaces the watch. Its bookmark
//!    arrives after about a second. When the short watch ends, a long watch follows, as after any end.
//!
//! Bookmarks come from the watch cache. For a collection that a kube-apiserver does not cache (Events,
//! `--watch-cache-sizes=x#0`, many aggregated servers), the only bookmark is the one that ends initial events. Such a
//! collection is listed again instead, which shows its version and shares unchanged objects. Events are known to lack
//! bookmarks; for other collections, a short watch that ends without one, although the member had advanced, shows it.
//! The next bookmark revokes it.
//!
//! The waiters receive the answer as well: a waiter for a version that the member has not reached fails early.
//!
//! The watch is replaced, instead of opening a second watch beside it, so that there is one source of events: no event
//! is applied twice or out of order. The cost is one more request.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{CollectionVersion, GroupVersionResource, ResourceVersion};

use crate::request::{LatestError, LatestFuture};
use crate::wait::VersionWaiters;

/// Decides whether and when to ask the member. Only the reflector's task uses it, while a watch is open.
#[derive(Default)]
pub(crate) struct ProgressRequests {
    due: Option<Instant>,
    asked: Option<PendingLatest>,
    /// Whether bookmarks are missing.
    unmarked: bool,
    /// The start of the current list that replaces a missing bookmark.
    listing_since: Option<Instant>,
    /// The earliest start of the next such list.
    lists_from: Option<Instant>,
}

/// The pause after a list that replaces a missing bookmark, as a multiple of the list's duration. 4: at most a fifth of
/// the time is spent on lists, for any number of readers.
const PAUSE_PER_LIST: u32 = 4;

/// The resource without a watch cache in a default kube-apiserver (`DefaultWatchCacheSizes`), and its groups.
const UNCACHED: (&str, [&str; 2]) = ("events", ["", "events.k8s.io"]);

/// A question for the latest version without an answer yet.
struct PendingLatest {
    /// The number of the question.
    number: u64,
    /// The current version when the question was sent.
    held: CollectionVersion,
    latest: LatestFuture,
}

/// An event that the reflector must handle.
#[derive(Debug)]
pub(crate) enum Call {
    /// A waiter was added.
    Arrived,
    /// The time to ask has come.
    Due,
    /// The member answered question `number`; `held` is the collection's version when the question was sent.
    Answered { number: u64, held: CollectionVersion, latest: Result<ResourceVersion, LatestError> },
}

/// The meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressVerdict {
    /// The member's latest version is below `held`: revisions went back.
    WentBack,
    /// An awaited version exists: a short watch will reach it.
    Reachable,
    /// The awaited versions do not exist yet: ask again later.
    NotYet,
    /// There are no waiters left.
    Idle,
}

impl ProgressRequests {
    /// Creates the state for a collection.
    pub(crate) fn new(resource: &GroupVersionResource) -> Self {
        let (name, groups) = UNCACHED;
        let unmarked = *resource.resource == *name && groups.contains(&&*resource.group);
        Self { unmarked, ..Self::default() }
    }

    /// Records that a bookmark has arrived, or was due and has not arrived.
    pub(crate) fn note_bookmarks(&mut self, come: bool) {
        self.unmarked = !come;
    }

    /// Returns whether the collection receives bookmarks, as far as is known.
    pub(crate) fn has_bookmarks(&self) -> bool {
        !self.unmarked
    }

    /// Returns whether the collection may be listed to replace a missing bookmark, and records the list if so. Lists
    /// start at least `apart` apart, and longer after slow lists: otherwise continuous reads would cause continuous
    /// lists.
    pub(crate) fn may_list(&mut self, now: Instant, apart: Duration) -> bool {
        let may = self.lists_from.is_none_or(|from| now >= from);
        if may {
            self.listing_since = Some(now);
            self.lists_from = Some(now + apart);
        }
        may
    }

    /// Records that a list is complete. Returns whether it replaced a missing bookmark, even if it was restarted.
    pub(crate) fn listed(&mut self, now: Instant) -> bool {
        let Some(since) = self.listing_since.take() else { return false };
        self.lists_from = self.lists_from.max(Some(now + PAUSE_PER_LIST * (now - since)));
        true
    }

    /// Completes with the next event that the reflector must handle. Cancelling loses no event.
    pub(crate) async fn next(&mut self, wanted: &VersionWaiters) -> Call {
        if let Some(PendingLatest { number, held, latest }) = &mut self.asked {
            let (number, held, latest) = (*number, *held, latest.as_mut().await);
            self.asked = None;
            return Call::Answered { number, held, latest };
        }
        if let Some(due) = self.due {
            sleep_until(due).await;
            self.due = None;
            return Call::Due;
        }
        wanted.arrived().await;
        Call::Arrived
    }

    /// Schedules a [`Call::Due`] at `now` + `after`.
    pub(crate) fn schedule(&mut self, now: Instant, after: Duration) {
        self.due = Some(now + after);
    }

    /// Stores a question that was sent to the member.
    pub(crate) fn put_question(&mut self, number: u64, held: CollectionVersion, latest: LatestFuture) {
        self.asked = Some(PendingLatest { number, held, latest });
    }

    /// Drops the question: its answer would be compared with a different state.
    pub(crate) fn forget(&mut self) {
        self.asked = None;
    }
}

/// Returns the meaning of the answer `latest`, where `held` was the version when the question was sent and `next` is
/// the lowest awaited version above the current one.
pub(crate) fn verdict(
    held: CollectionVersion,
    latest: ResourceVersion,
    next: Option<CollectionVersion>,
) -> ProgressVerdict {
    match next {
        _ if held > latest => ProgressVerdict::WentBack,
        None => ProgressVerdict::Idle,
        Some(next) if next <= latest => ProgressVerdict::Reachable,
        Some(_) => ProgressVerdict::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_compares_the_answer_with_the_version_at_the_question() {
        let version = |text: &str| CollectionVersion::parse(text).unwrap();
        let cases = [
            ("10", 10, None, ProgressVerdict::Idle),
            ("10", 12, None, ProgressVerdict::Idle),
            ("10", 12, Some("12"), ProgressVerdict::Reachable),
            ("10", 12, Some("11"), ProgressVerdict::Reachable),
            ("10", 12, Some("13"), ProgressVerdict::NotYet),
            ("10", 9, Some("11"), ProgressVerdict::WentBack),
            ("10", 9, None, ProgressVerdict::WentBack),
            ("10-1", 10, None, ProgressVerdict::Idle),
            ("10-1", 10, Some("10"), ProgressVerdict::Reachable),
            ("10-1", 9, None, ProgressVerdict::WentBack),
        ];
        for (held, latest, next, expected) in cases {
            assert_eq!(verdict(version(held), ResourceVersion(latest), next.map(version)), expected);
        }
    }
}
