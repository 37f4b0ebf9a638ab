//! Record of the resourceVersions of single objects that a different view may have sent. A watch must not resume from
//! these versions.
//!
//! ```text
//! watch of n ──▶ view of all ── b forbids it ──▶ own view of n ── b is out of reach, or allows it ──▶ view of all
//!                      │  └─ versions that it sent           └─ versions that it sent
//!                      └─ no capacity for the own view: continues with cached objects, possibly beside the own view
//! ```
//!
//! The resourceVersion of an object contains the position of one cluster. The log of the view that sent the version
//! implies the positions of all other clusters. Two logs contain the events of different clusters in different orders.
//! The view of one namespace may also have objects that the view of all namespaces never saw. The resourceVersion does
//! not show which view sent it. Therefore each view rejects versions that a different view may have sent, and the
//! client lists again from the cache. Composite versions are valid in all views.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tributary_apimachinery::{ClusterName, ResourceVersion};
use tributary_merge::CompositeResourceVersion;

/// Maximum number of stored names of namespaces with a view of their own. 4,096 of the longest names take half a
/// megabyte. Above the maximum, each namespace is treated as if it had had a view of its own.
const REMEMBERED_MAX: usize = 4096;

/// Maximum length of a namespace in bytes (RFC 1123 label). A request path may contain a longer name, but no cluster
/// has such a namespace, so the name is not stored.
const NAMESPACE_BYTES_MAX: usize = 63;

/// Record of the versions that a view of all namespaces and the views of single namespaces have sent to clients. The
/// view of all namespaces owns the record.
#[derive(Default)]
pub(super) struct Handovers {
    state: Mutex<HandoverRecord>,
}

#[derive(Default)]
struct HandoverRecord {
    /// For each namespace, the numbers of views and watches that send versions to clients.
    senders: HashMap<String, VersionSenders>,
    /// Highest version of each cluster that clients had received when watches of single namespaces last changed to a
    /// different view.
    sent: CompositeResourceVersion,
    /// Namespaces that have had a view of their own since the view of all namespaces last reached the versions of these
    /// views.
    former_namespace_views: FormerNamespaceViews,
}

#[derive(Default)]
struct FormerNamespaceViews {
    names: HashSet<String>,
    too_many: bool,
}

/// Views and watches that send versions of one namespace to clients while a cluster forbids reads of all namespaces.
#[derive(Default)]
struct VersionSenders {
    /// Number of views of the namespace. The number is two for a short time while one view replaces another.
    parts: usize,
    /// Number of watches of the namespace that the view of all namespaces continues, because a limit prevents a view of
    /// the namespace.
    continued: usize,
}

impl FormerNamespaceViews {
    fn add_namespace(&mut self, namespace: &str) {
        if namespace.len() > NAMESPACE_BYTES_MAX {
            return;
        }
        self.too_many |= self.names.len() >= REMEMBERED_MAX && !self.names.contains(namespace);
        if !self.too_many {
            self.names.insert(namespace.to_owned());
        }
    }

    fn from_senders(senders: &HashMap<String, VersionSenders>) -> Self {
        let names = senders.iter().filter(|(_, senders)| senders.parts > 0).map(|(namespace, _)| namespace.clone());
        Self { names: names.collect(), too_many: false }
    }
}

/// Returns whether `now` has reached the versions in `sent`. Ignores clusters that `now` lacks.
fn is_as_far(now: &CompositeResourceVersion, sent: &CompositeResourceVersion) -> bool {
    now.iter().all(|(cluster, version)| sent.get(cluster).is_none_or(|sent| sent <= version))
}

impl HandoverRecord {
    fn leave(&mut self, namespace: &str, leave: impl FnOnce(&mut VersionSenders)) {
        let Some(senders) = self.senders.get_mut(namespace) else { return };
        leave(senders);
        if senders.parts == 0 && senders.continued == 0 {
            self.senders.remove(namespace);
        }
    }
}

impl Handovers {
    pub(super) fn begin(&self, namespace: &str) {
        let mut state = self.state.lock();
        state.senders.entry(namespace.to_owned()).or_default().parts += 1;
        state.former_namespace_views.add_namespace(namespace);
    }

    /// Removes a view of a namespace. The view may have sent all versions up to `sent`.
    pub(super) fn end(&self, namespace: &str, sent: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        state.sent.join(sent);
        state.leave(namespace, |senders| senders.parts -= 1);
    }

    /// Registers a watch of one namespace that the view of all namespaces continues with cached objects, although a
    /// cluster forbids reads of all namespaces.
    pub(super) fn begin_continued_watch(&self, namespace: &str) {
        self.state.lock().senders.entry(namespace.to_owned()).or_default().continued += 1;
    }

    /// Removes a watch registered by [`begin_continued_watch`](Self::begin_continued_watch). The watch may have sent
    /// all versions up to `sent`. They are recorded only if the namespace has a view now, because a later view of the
    /// namespace starts with a newer state.
    pub(super) fn end_continued_watch(&self, namespace: &str, sent: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        if state.senders.get(namespace).is_some_and(|senders| senders.parts > 0) {
            state.sent.join(sent);
        }
        state.leave(namespace, |senders| senders.continued -= 1);
    }

    /// Calls `change`, which returns whether views of single namespaces may continue the watches of this view from now
    /// on. If so, records the versions `sent` that this view has sent to clients. The lock ensures that no version is
    /// checked between the change and the record.
    pub(super) fn during(
        &self,
        change: impl FnOnce() -> bool,
        sent: impl FnOnce() -> CompositeResourceVersion,
    ) -> bool {
        let mut state = self.state.lock();
        let take_over = change();
        if take_over {
            let now = sent();
            if is_as_far(&now, &state.sent) {
                state.former_namespace_views = FormerNamespaceViews::from_senders(&state.senders);
            }
            state.sent.join(&now);
        }
        take_over
    }

    /// Returns whether, in some cluster, a separate view of the namespace may have had a newer version than the view of
    /// all namespaces.
    pub(super) fn had_namespace_view(&self, namespace: &str) -> bool {
        let FormerNamespaceViews { names, too_many } = &self.state.lock().former_namespace_views;
        *too_many || names.contains(namespace)
    }

    /// Returns whether a view other than the caller's view may have sent this version of a cluster to a watch of the
    /// namespace. `of_namespace_view` is whether the caller's view is a view of the namespace.
    pub(super) fn include(
        &self,
        namespace: &str,
        of_namespace_view: bool,
        cluster: &ClusterName,
        version: ResourceVersion,
    ) -> bool {
        let state = self.state.lock();
        let others = state.senders.get(namespace).map_or(0, |senders| match of_namespace_view {
            true => senders.parts.saturating_sub(1) + senders.continued,
            false => senders.parts,
        });
        others > 0 || state.sent.get(cluster).is_some_and(|sent| sent.revision() >= version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_namespace_names_are_not_stored_in_the_version_record() {
        let mut had = FormerNamespaceViews::default();
        for number in 0..=REMEMBERED_MAX {
            had.add_namespace(&format!("{number}{}", "x".repeat(8 << 10)));
        }
        assert!(had.names.is_empty() && !had.too_many);
        had.add_namespace(&"x".repeat(NAMESPACE_BYTES_MAX));
        assert_eq!(had.names.len(), 1);
    }
}
