//! Versions of single objects that another view may have told. A watch must not resume from them.
//!
//! ```text
//! watch of n ──▶ view of all ── b forbids it ──▶ own view of n ── b is out of reach, or allows it ──▶ view of all
//!                      │  └─ versions that it told           └─ versions that it told
//!                      └─ no room for the own view: continues with cached objects, possibly next to the own view
//! ```
//!
//! The version of an object gives the position of one cluster. The positions of the other clusters come from the log
//! that told the version, and two logs have the events of different clusters in different orders; the view of one
//! namespace may even have objects of a cluster that the view of all never knew. A number does not show which view told
//! it. Therefore each view rejects versions that the other may have told, and the client lists again, from memory.
//! Vectors are valid in both views.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tributary_apimachinery::{ClusterName, ResourceVersion};
use tributary_merge::CompositeResourceVersion;

/// The maximum number of remembered namespaces that had a view of their own. 4,096 of the longest names take half a
/// megabyte. After more than this, every namespace counts as having had one.
const REMEMBERED_MAX: usize = 4096;

/// The maximum length of a namespace's name, in bytes (RFC 1123 label). A longer name, which a path may contain, exists
/// in no cluster and is not remembered.
const NAMESPACE_BYTES_MAX: usize = 63;

/// The versions that a view of all namespaces and the views of single namespaces have told. Belongs to the former.
#[derive(Default)]
pub(super) struct Handovers {
    state: Mutex<HandoverRecord>,
}

#[derive(Default)]
struct HandoverRecord {
    /// The views and watches that tell versions of each namespace.
    tellers: HashMap<String, Tellers>,
    /// For each cluster, the highest version that was told when watches of single namespaces last changed to another
    /// view.
    told: CompositeResourceVersion,
    /// The namespaces that had a view of their own since the view of all was last as far as those views.
    had_parts: HadParts,
}

#[derive(Default)]
struct HadParts {
    names: HashSet<String>,
    /// Whether there were more namespaces than the limit.
    too_many: bool,
}

/// The sources of versions of a namespace for which a cluster forbids reading all namespaces.
#[derive(Default)]
struct Tellers {
    /// The number of views of the namespace; briefly two, while one replaces another.
    parts: usize,
    /// The number of its watches that the view of all continues, because there is no room for a view of the namespace.
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

    /// The namespaces that have a view of their own now.
    fn from_tellers(tellers: &HashMap<String, Tellers>) -> Self {
        let names = tellers.iter().filter(|(_, tellers)| tellers.parts > 0).map(|(namespace, _)| namespace.clone());
        Self { names: names.collect(), too_many: false }
    }
}

/// Whether a view of all has reached the told version in every cluster that it has.
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
    /// Registers a view of a namespace.
    pub(super) fn begin(&self, namespace: &str) {
        let mut state = self.state.lock();
        state.tellers.entry(namespace.to_owned()).or_default().parts += 1;
        state.had_parts.add_namespace(namespace);
    }

    /// Removes a view of a namespace, which may have told these versions.
    pub(super) fn end(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        state.told.join(told);
        state.leave(namespace, |tellers| tellers.parts -= 1);
    }

    /// Registers a watch of a namespace that the view of all continues with cached objects.
    pub(super) fn begin_as_held(&self, namespace: &str) {
        self.state.lock().tellers.entry(namespace.to_owned()).or_default().as_held += 1;
    }

    /// Removes such a watch, which may have told these versions. They do not matter to a later view of the namespace,
    /// which begins with a newer state.
    pub(super) fn end_as_held(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        if state.tellers.get(namespace).is_some_and(|tellers| tellers.parts > 0) {
            state.told.join(told);
        }
        state.leave(namespace, |tellers| tellers.as_held -= 1);
    }

    /// Makes a change after which views of single namespaces may take over, and returns whether they do. The lock
    /// ensures that the versions told until then are recorded before anyone checks them.
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

    /// Whether a namespace may have had a view of its own that was ahead of the view of all in some cluster.
    pub(super) fn had_part(&self, namespace: &str) -> bool {
        let HadParts { names, too_many } = &self.state.lock().had_parts;
        *too_many || names.contains(namespace)
    }

    /// Whether another view than the calling one may have told a watch of the namespace about this version of a
    /// cluster. `of_part` says that the caller is a view of the namespace.
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
    fn impossible_namespace_names_are_not_remembered() {
        let mut had = HadParts::default();
        for number in 0..=REMEMBERED_MAX {
            had.add_namespace(&format!("{number}{}", "x".repeat(8 << 10)));
        }
        assert!(had.names.is_empty() && !had.too_many);
        had.add_namespace(&"x".repeat(NAMESPACE_BYTES_MAX));
        assert_eq!(had.names.len(), 1);
    }
}
