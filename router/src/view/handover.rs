//! Which numbers of single objects another view may have told: nobody goes on from those.
//!
//! ```text
//! watch of n ──▶ view of all ── b forbids it ──▶ n's own view ── b is out of reach, or allows it ──▶ view of all
//!                      └─ told: handed over          └─ while it is there, and what it told: handed over
//! ```
//!
//! A number says how far one cluster is. How far the others are is read from the log that told it, and two logs have
//! events of different clusters in different orders; what is more, the view of one namespace may have objects of a
//! cluster that the view of all never knew. Nothing in a number says which of the two told it. So whatever the other
//! one may have told is refused, and its client lists anew, from memory. A vector is good for both.

use std::collections::HashMap;

use parking_lot::Mutex;
use tributary_apimachinery::{ClusterName, ResourceVersion};
use tributary_merge::CompositeResourceVersion;

/// What has passed between a view of all namespaces and the views of single ones beside it. It is the former's.
#[derive(Default)]
pub(super) struct Handovers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many views of each namespace there are. Two for a moment, where one takes the place of another.
    parts: HashMap<String, usize>,
    /// How far each cluster had been told, at most, when watches of single namespaces last went from
    /// one view to another.
    told: CompositeResourceVersion,
}

impl Handovers {
    /// There is one more view of a namespace.
    pub(super) fn begin(&self, namespace: &str) {
        *self.state.lock().parts.entry(namespace.to_owned()).or_default() += 1;
    }

    /// A view of a namespace is gone, and may have told as much.
    pub(super) fn end(&self, namespace: &str, told: &CompositeResourceVersion) {
        let mut state = self.state.lock();
        state.told.join(told);
        if let Some(count) = state.parts.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                state.parts.remove(namespace);
            }
        }
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
            state.told.join(&told());
        }
        take_over
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
        let parts = state.parts.get(namespace).copied().unwrap_or_default();
        let others = parts.saturating_sub(usize::from(of_part));
        others > 0 || state.told.get(cluster).is_some_and(|told| told.revision() >= version)
    }
}
