//! Decides when to request the member's latest version for readers that wait for a version.
//!
//! The version of an unchanged collection stays the same, while the member's version advances: versions are etcd's
//! revisions, which all resources share. Without this module, a reader that waits for a recent version would wait for
//! the next bookmark, about a minute. A remote client cannot request a bookmark. But a kube-apiserver (seen on 1.36)
//! sends a bookmark about 2 s before a watch ends, with the version that its watch cache has reached. A consistent list
//! makes the watch cache reach the latest version. The steps:
//!
//! * A waiter's version has not arrived within `progress_after`.
//! * The reflector requests the member's latest version with a list of one object, while the watch continues. One
//!   request at a time serves all waiters.
//! * If the member has reached the awaited version, a short watch from the current version replaces the watch. The
//!   bookmark of the short watch arrives after about a second. When the short watch ends, a long watch follows.
//!
//! Bookmarks come from the watch cache. A kube-apiserver does not cache some collections (Events,
//! `--watch-cache-sizes=x#0`, many aggregated servers). The only bookmark of such a collection is the end of the
//! initial events. So the reflector lists such a collection again instead: the list has the member's version, and
//! unchanged objects are shared. Events never have other bookmarks. Any other collection is treated in this way after a
//! short watch that ended without a bookmark, although the member had advanced, until a bookmark arrives.
//!
//! The waiters receive the member's latest version as well: a waiter for a version that the member has not reached
//! fails early.
//!
//! The short watch replaces the watch instead of running beside it, so that events have one source: no event is applied
//! twice or out of order. The cost is one more request.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{CollectionVersion, GroupVersionResource, ResourceVersion};

use crate::request::{LatestError, LatestFuture};
use crate::wait::VersionWaiters;

/// Schedules the requests for the member's latest version. Only the reflector's task uses this type, while a watch is
/// open.
#[derive(Default)]
pub(crate) struct ProgressRequests {
    due: Option<Instant>,
    pending: Option<PendingLatest>,
    /// Whether the collection receives no bookmarks, as far as is known. If so, a list must raise the collection's
    /// version instead.
    lacks_bookmarks: bool,
    /// The start time of the current list, if the list is requested in place of a missing bookmark.
    listing_since: Option<Instant>,
    /// The earliest time at which the next list may be requested in place of a missing bookmark.
    lists_from: Option<Instant>,
}

/// The pause after a list that replaces a missing bookmark, as a multiple of the list's duration. 4: lists take at most
/// a fifth of the time, for any number of readers.
const PAUSE_PER_LIST: u32 = 4;

/// The resource that a kube-apiserver does not cache by default (`DefaultWatchCacheSizes`), and its API groups.
const UNCACHED: (&str, [&str; 2]) = ("events", ["", "events.k8s.io"]);

/// A request for the member's latest version whose response has not arrived yet.
struct PendingLatest {
    number: u64,
    /// The collection's version when the request was sent.
    version_at_request: CollectionVersion,
    latest: LatestFuture,
}

/// A wakeup of the reflector by [`ProgressRequests`].
#[derive(Debug)]
pub(crate) enum ProgressWakeup {
    /// A waiting reader was added.
    Arrived,
    /// The time for which a request was scheduled has come.
    Due,
    /// The member answered request `number`; `version_at_request` is the collection's version when the request was
    /// sent.
    Answered { number: u64, version_at_request: CollectionVersion, latest: Result<ResourceVersion, LatestError> },
}

/// The conclusion from a comparison of the member's latest version with the awaited versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressVerdict {
    /// The member's latest version is below the collection's version: revisions went back.
    WentBack,
    /// An awaited version exists at the member, so a short watch will reach the version.
    Reachable,
    /// The member has not reached any awaited version, so a later request follows.
    NotYet,
    /// No reader waits for a version above the collection's version.
    Idle,
}

impl ProgressRequests {
    pub(crate) fn new(resource: &GroupVersionResource) -> Self {
        let (name, groups) = UNCACHED;
        let lacks_bookmarks = *resource.resource == *name && groups.contains(&&*resource.group);
        Self { lacks_bookmarks, ..Self::default() }
    }

    /// Records whether a bookmark arrived after the member's version had advanced. If none arrived, lists must replace
    /// bookmarks.
    pub(crate) fn set_has_bookmarks(&mut self, has_bookmarks: bool) {
        self.lacks_bookmarks = !has_bookmarks;
    }

    /// Returns whether the collection receives bookmarks, as far as is known.
    pub(crate) fn has_bookmarks(&self) -> bool {
        !self.lacks_bookmarks
    }

    /// Returns whether a list may replace a missing bookmark now. If so, records the start of the list. Two such lists
    /// start at least `interval` apart, and after a slow list even further apart. Without this pause, continuous reads
    /// would cause continuous lists.
    pub(crate) fn may_list(&mut self, now: Instant, interval: Duration) -> bool {
        let may = self.lists_from.is_none_or(|from| now >= from);
        if may {
            self.listing_since = Some(now);
            self.lists_from = Some(now + interval);
        }
        may
    }

    /// Records that a list is complete. Returns whether the list replaced a missing bookmark. If the list was restarted
    /// meanwhile, it is still the same list.
    pub(crate) fn listed(&mut self, now: Instant) -> bool {
        let Some(since) = self.listing_since.take() else { return false };
        self.lists_from = self.lists_from.max(Some(now + PAUSE_PER_LIST * (now - since)));
        true
    }

    /// Completes with the next wakeup of the reflector. Cancelling loses no wakeup.
    pub(crate) async fn next(&mut self, wanted: &VersionWaiters) -> ProgressWakeup {
        if let Some(PendingLatest { number, version_at_request, latest }) = &mut self.pending {
            let (number, version_at_request, latest) = (*number, *version_at_request, latest.as_mut().await);
            self.pending = None;
            return ProgressWakeup::Answered { number, version_at_request, latest };
        }
        if let Some(due) = self.due {
            sleep_until(due).await;
            self.due = None;
            return ProgressWakeup::Due;
        }
        wanted.arrived().await;
        ProgressWakeup::Arrived
    }

    /// Schedules a [`ProgressWakeup::Due`] at `now` + `after`.
    pub(crate) fn schedule(&mut self, now: Instant, after: Duration) {
        self.due = Some(now + after);
    }

    /// Stores a sent request for the latest version, so that its response can be awaited.
    pub(crate) fn set_pending_request(
        &mut self,
        number: u64,
        version_at_request: CollectionVersion,
        latest: LatestFuture,
    ) {
        self.pending = Some(PendingLatest { number, version_at_request, latest });
    }

    /// Cancels the pending request. Called before a list replaces the version with which the response would be
    /// compared.
    pub(crate) fn forget(&mut self) {
        self.pending = None;
    }
}

/// Compares the member's `latest` version with two versions. `version_at_request` is the collection's version when the
/// request was sent. `next` is the lowest awaited version above the collection's version.
pub(crate) fn verdict(
    version_at_request: CollectionVersion,
    latest: ResourceVersion,
    next: Option<CollectionVersion>,
) -> ProgressVerdict {
    match next {
        _ if version_at_request > latest => ProgressVerdict::WentBack,
        None => ProgressVerdict::Idle,
        Some(next) if next <= latest => ProgressVerdict::Reachable,
        Some(_) => ProgressVerdict::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_latest_version_is_compared_with_the_collections_version() {
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
        for (version_at_request, latest, next, expected) in cases {
            assert_eq!(verdict(version(version_at_request), ResourceVersion(latest), next.map(version)), expected);
        }
    }
}
