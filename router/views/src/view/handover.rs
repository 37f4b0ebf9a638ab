//! Which numbers of single objects another view may have told: nobody goes on from those.
//!
//! ```text
//! watch of n ──▶ view of all ── b forbids it ──▶ n's own view ── b is out of reach, or allows it ──▶ view of all
//!                      │  └─ told: handed over       └─ while it is there, and what it told: handed over
//!                      └─ no room for that: goes on as held, and n's own view may come beside it
//! ```
//!
//! A number says how far one cluster is. How far the others are is read from the log that told it, and two logs have
//! events of different clusters in different orders; what is more, the view of one namespace may have objects of a
//! cluster that the view of all never knew. Nothing in a number says which of the two told it. So whatever the other
//! one may have told is refused, and its client lists anew, from memory. A vector is good for both.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tributary_apimachinery::{ClusterName, ResourceVersion};
use tributary_merge::CompositeResourceVersion;

/// How many namespaces are remembered by name to have had a view of their own. 4096: of names as long as they may be
/// that is half a megabyte. Once there were more, all are taken to have had one.
const REMEMBERED_MAX: usize = 4096;

/// The longest name of a namespace, in bytes (RFC 1123's label). A longer one is in no cluster and is not remembered:
/// in a path it may have kilobytes.
const NAMESPACE_BYTES_MAX: usize = 63;

/// What has passed between a view of all namespaces and the views of single ones beside it. It is the former's.
#[derive(Default)]
pub(super) struct Handovers {
    state: Mutex<HandoverRecord>,
}

#[derive(Default)]
struct HandoverRecord {
    /// Who tells of each namespace.
    tellers: HashMap<String, Tellers>,
    /// How far each cluster had been told, at most, when watches of single namespaces last went from
    /// one view to another.
    told: CompositeResourceVersion,
    /// The namespaces that had a view of their own since the view of all was last as far as those were.
    had_parts: HadParts,
}

/// The namespaces that had a view of their own.
#[derive(Default)]
struct HadParts {
    names: HashSet<String>,
    /// Whether there were more than are remembered.
    too_many: bool,
}

/// Who tells of a namespace where a cluster forbids to read all.
#[derive(Default)]
struct Tellers {
    /// How many views of it there are. Two for a moment, where one takes the place of another.
    parts: usize,
    /// How many watches of it the view of all goes on with, for want of room for a view of the namespace.
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

    /// The namespaces that have one now.
    fn from_tellers(tellers: &HashMap<String, Tellers>) -> Self {
        let names = tellers.iter().filter(|(_, tellers)| tellers.parts > 0).map(|(namespace, _)| namespace.clone());
        Self { names: names.collect(), too_many: false }
    }
}

/// Whether a view of all is as far as was told, in every cluster that it holds.
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
    /// There is one more view of a namespace.
    pub(super) fn begin(&self, namespace: &str) {
        let mut state = self.state.lock();
        state.tellers.entry(namespace.to_owned()).or_default().parts += 1;
        state.had_parts.add_namespace(namespace);
    }

    /// A view of a namespace is gone, and may have told as much.
    pub(super) fn end(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        state.told.join(told);
        state.leave(namespace, |tellers| tellers.parts -= 1);
    }

    /// There is one more watch of a namespace with which the view of all goes on as held.
    pub(super) fn begin_as_held(&self, namespace: &str) {
        self.state.lock().tellers.entry(namespace.to_owned()).or_default().as_held += 1;
    }

    /// Such a watch is gone, and may have told as much. A view of the namespace that comes later has none of these
    /// events: it begins with the state behind them.
    pub(super) fn end_as_held(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        if state.tellers.get(namespace).is_some_and(|tellers| tellers.parts > 0) {
            state.told.join(told);
        }
        state.leave(namespace, |tellers| tellers.as_held -= 1);
    }

    /// Makes a change after which the views of single namespaces may take over, and says whether they do. Nobody looks
    /// before it is noted what was told up to then.
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

    /// Whether a namespace may have had a view of its own that was further in a cluster than the view of all is.
    pub(super) fn had_part(&self, namespace: &str) -> bool {
        let HadParts { names, too_many } = &self.state.lock().had_parts;
        *too_many || names.contains(namespace)
    }

    /// Whether a cluster's event may have been told to a watch of a namespace by another view than the one that asks,
    /// which is one `of_part` or the view of all.
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
    fn what_no_namespace_can_be_called_is_not_remembered() {
        let mut had = HadParts::default();
        for number in 0..=REMEMBERED_MAX {
            had.add_namespace(&format!("{number}{}", "x".repeat(8 << 10)));
        }
        assert!(had.names.is_empty() && !had.too_many);
        had.add_namespace(&"x".repeat(NAMESPACE_BYTES_MAX));
        assert_eq!(had.names.len(), 1);
    }
}
