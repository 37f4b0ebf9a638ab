//! When to ask the member for progress.
//!
//! A collection that does not change has a version that does not advance, while the member's versions do: they are
//! etcd's revisions, shared by all resources. Whoever waits for one of those would wait for the next bookmark, about a
//! minute. A remote reader has no way to ask for a bookmark, but a kube-apiserver (seen on 1.36) sends one about 2 s
//! before a watch ends, with the version that its own cache has reached;
//! and a consistent list makes that cache reach the latest one. So:
//!
//! 1. A version is waited for and has not come within `progress_after`.
//! 2. The member is asked for its latest version, while the watch goes on. One question at a time, however many wait.
//! 3. If some version that is waited for exists by then, the watch is replaced by a short one from the version held,
//!    whose bookmark comes after about a second; when that one ends, a long one follows as after any end.
//!
//! Bookmarks are the watch cache's. Of a collection that a kube-apiserver does not cache (Events,
//! `--watch-cache-sizes=x#0`, many aggregated servers) none come but the one that ends initial events, whatever
//! happens. There the collection is listed anew instead, which says how far it goes and shares what did not change.
//! That none come is known of Events beforehand, and of others once a short watch has ended without one though the
//! member had come further; the first that comes says otherwise.
//!
//! The answer is told to the waiters as well: whoever waits for a version that the member has not come
//! to is not kept waiting.
//!
//! Replacing the watch, rather than opening a second one beside it, keeps one source of events: nothing can be applied
//! twice or out of order, and the price is one more request.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{CollectionVersion, GroupVersionResource, ResourceVersion};

use crate::request::{Latest, LatestError};
use crate::wait::VersionWaiters;

/// Whether and when the member is asked. Used by the reflector's task alone, while a watch is open.
#[derive(Default)]
pub(crate) struct ProgressRequests {
    due: Option<Instant>,
    asked: Option<PendingLatest>,
    /// Whether no bookmarks come.
    unmarked: bool,
    /// When the list began that is made for want of them.
    listing_since: Option<Instant>,
    /// When the next such list may begin.
    lists_from: Option<Instant>,
}

/// How much longer than such a list took there is none. 4: a fifth of the time at most is spent on lists,
/// however many read.
const PAUSE_PER_LIST: u32 = 4;

/// The collection of which a kube-apiserver keeps no watch cache by default (`DefaultWatchCacheSizes`),
/// in each of its groups.
const UNCACHED: (&str, [&str; 2]) = ("events", ["", "events.k8s.io"]);

/// A question under way.
struct PendingLatest {
    /// Its number.
    number: u64,
    /// The version held when it was put.
    held: CollectionVersion,
    latest: Latest,
}

/// What calls for attention.
#[derive(Debug)]
pub(crate) enum Call {
    /// A version has been entered.
    Arrived,
    /// The time to ask has come.
    Due,
    /// The member answered question `number`; `held` is the version that was held when it was asked.
    Answered { number: u64, held: CollectionVersion, latest: Result<ResourceVersion, LatestError> },
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressVerdict {
    /// The member's latest version is below what was held: revisions went back.
    WentBack,
    /// A version that is waited for exists: a short watch will tell.
    Reachable,
    /// The versions that are waited for do not exist yet: ask again later.
    NotYet,
    /// Nobody waits any more.
    Idle,
}

impl ProgressRequests {
    /// For one collection.
    pub(crate) fn new(resource: &GroupVersionResource) -> Self {
        let (name, groups) = UNCACHED;
        let unmarked = *resource.resource == *name && groups.contains(&&*resource.group);
        Self { unmarked, ..Self::default() }
    }

    /// Takes note that a bookmark has come, or has not though it was due.
    pub(crate) fn note_bookmarks(&mut self, come: bool) {
        self.unmarked = !come;
    }

    /// Whether bookmarks come, as far as is known.
    pub(crate) fn has_bookmarks(&self) -> bool {
        !self.unmarked
    }

    /// Whether the collection may be listed for want of bookmarks, and if so notes that it is. A second apart at least,
    /// and longer for lists that take long: reads that come without pause would have it listed without pause.
    pub(crate) fn may_list(&mut self, now: Instant, apart: Duration) -> bool {
        let may = self.lists_from.is_none_or(|from| now >= from);
        if may {
            self.listing_since = Some(now);
            self.lists_from = Some(now + apart);
        }
        may
    }

    /// Takes note that a list is complete. Gives whether it was made for want of bookmarks, however often it was begun.
    pub(crate) fn listed(&mut self, now: Instant) -> bool {
        let Some(since) = self.listing_since.take() else { return false };
        self.lists_from = self.lists_from.max(Some(now + PAUSE_PER_LIST * (now - since)));
        true
    }

    /// Ends with the next thing that calls for attention. Cancelling loses nothing.
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

    /// Calls again at `now` + `after`.
    pub(crate) fn schedule(&mut self, now: Instant, after: Duration) {
        self.due = Some(now + after);
    }

    /// Puts a question.
    pub(crate) fn put_question(&mut self, number: u64, held: CollectionVersion, latest: Latest) {
        self.asked = Some(PendingLatest { number, held, latest });
    }

    /// Forgets the question under way: its answer would be compared with another state.
    pub(crate) fn forget(&mut self) {
        self.asked = None;
    }
}

/// What the answer `latest` means, where `held` was the version when the question was put and `next` is the lowest
/// version above the present one that is waited for.
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
    fn an_answer_is_compared_with_what_was_held_when_it_was_asked_for() {
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
