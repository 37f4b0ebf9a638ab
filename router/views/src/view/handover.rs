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
/// megabyte. Above the maximum, each namespace counts as if it had had a view of its own.
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
    tellers: HashMap<String, Tellers>,
    /// Highest version of each cluster that clients had received when watches of single namespaces last changed to a
    /// different view.
    told: CompositeResourceVersion,
    /// Namespaces that have had a view of their own since the view of all namespaces last reached the versions of these
    /// views.
    had_parts: HadParts,
}

#[derive(Default)]
struct HadParts {
    names: HashSet<String>,
    too_many: bool,
}

/// Views and watches that send versions of one namespace to clients while a cluster forbids reads of all namespaces.
#[derive(Default)]
struct Tellers {
    /// Number of views of the namespace. The number is two for a short time while one view replaces another.
    parts: usize,
    /// Number of watches of the namespace that the view of all namespaces continues, because a limit prevents a view of
    /// the namespace.
    as_held: usize,
}

impl HadParts {
    fn add_namespace(&mut self, namespace: &str) {
        if namespace.len() > NAMESPACE_BYTES_MAX {
            return;
        }
        self.too_many |= self.names.len() >= REMEMBERED_MAX && !self.names.contains(namespace);
        if !self.too_many {
            self.names.insert(namespace.to_owned());
        }
    }

    fn from_tellers(tellers: &HashMap<String, Tellers>) -> Self {
        let names = tellers.iter().filter(|(_, tellers)| tellers.parts > 0).map(|(namespace, _)| namespace.clone());
        Self { names: names.collect(), too_many: false }
    }
}

/// Returns whether `now` has reached the sent version `told` in each cluster of `now`.
fn is_as_far(now: &CompositeResourceVersion, told: &CompositeResourceVersion) -> bool {
    now.iter().all(|(cluster, version)| told.get(cluster).is_none_or(|told| told <= version))
}

impl HandoverRecord {
    fn leave(&mut self, namespace: &str, leave: impl FnOnce(&mut Tellers)) {
        let Some(tellers) = self.tellers.get_mut(namespace) else { return };
        leave(tellers);
        if tellers.parts == 0 && tellers.as_held == 0 {
            self.tellers.remove(namespace);
        }
    }
}

impl Handovers {
    pub(super) fn begin(&self, namespace: &str) {
        let mut state = self.state.lock();
        state.tellers.entry(namespace.to_owned()).or_default().parts += 1;
        state.had_parts.add_namespace(namespace);
    }

    /// Removes a view of a namespace. The view may have sent all versions up to `told`.
    pub(super) fn end(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        state.told.join(told);
        state.leave(namespace, |tellers| tellers.parts -= 1);
    }

    /// Registers a watch of a namespace that the view of all namespaces continues with cached objects.
    pub(super) fn begin_as_held(&self, namespace: &str) {
        self.state.lock().tellers.entry(namespace.to_owned()).or_default().as_held += 1;
    }

    /// Removes a watch registered by [`begin_as_held`](Self::begin_as_held). The watch may have sent all versions up to
    /// `told`. A later view of the namespace starts with a newer state, so the namespace needs no record.
    pub(super) fn end_as_held(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        if state.tellers.get(namespace).is_some_and(|tellers| tellers.parts > 0) {
            state.told.join(told);
        }
        state.leave(namespace, |tellers| tellers.as_held -= 1);
    }

    /// Makes a change after which views of single namespaces may continue the watches, and returns whether they do. The
    /// lock ensures that previously sent versions are recorded before any check.
    pub(super) fn during(
        &self,
        change: impl FnOnce() -> bool,
        told: impl FnOnce() -> CompositeResourceVersion,
    ) -> bool {
        let mut state = self.state.lock();
        let take_over = change();
        if take_over {
            let now = told();
            if is_as_far(&now, &state.told) {
                state.had_parts = HadParts::from_tellers(&state.tellers);
            }
            state.told.join(&now);
        }
        take_over
    }

    /// Returns whether a namespace may have had a view of its own that was ahead of the view of all namespaces in some
    /// cluster.
    pub(super) fn had_part(&self, namespace: &str) -> bool {
        let HadParts { names, too_many } = &self.state.lock().had_parts;
        *too_many || names.contains(namespace)
    }

    /// Returns whether a view other than the caller's view may have sent this version of a cluster to a watch of the
    /// namespace. `of_part`: the caller's view is a view of the namespace.
    pub(super) fn include(
        &self,
        namespace: &str,
        of_part: bool,
        cluster: &ClusterName,
        version: ResourceVersion,
    ) -> bool {
        let state = self.state.lock();
        let others = state.tellers.get(namespace).map_or(0, |tellers| match of_part {
            true => tellers.parts.saturating_sub(1) + tellers.as_held,
            false => tellers.parts,
        });
        others > 0 || state.told.get(cluster).is_some_and(|told| told.revision() >= version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_namespace_names_are_not_stored_in_the_version_record() {
        let mut had = HadParts::default();
        for number in 0..=REMEMBERED_MAX {
            had.add_namespace(&format!("{number}{}", "x".repeat(8 << 10)));
        }
        assert!(had.names.is_empty() && !had.too_many);
        had.add_namespace(&"x".repeat(NAMESPACE_BYTES_MAX));
        assert_eq!(had.names.len(), 1);
    }
}
