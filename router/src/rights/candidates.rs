//! The clusters that there are for one request. What its caller may not know does not exist for them: whatever asks
//! members, or says what they have, sees these alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, ClusterSelector};

/// The clusters that there are for one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    /// `None` for all: one person owns the endpoint.
    only: Option<Arc<BTreeSet<ClusterName>>>,
    /// Those of which it is not known whether they are among them. Nobody is told their names. `None` for none.
    unknown: Option<Arc<BTreeSet<ClusterName>>>,
}

impl Candidates {
    /// These alone, and perhaps some of which it is not known.
    pub(super) fn these(only: BTreeSet<ClusterName>, unknown: BTreeSet<ClusterName>) -> Self {
        Self { only: Some(Arc::new(only)), unknown: (!unknown.is_empty()).then(|| Arc::new(unknown)) }
    }

    /// Those of them that others are, too.
    pub(crate) fn within(&self, others: &Self) -> Self {
        let only = match (&self.only, &others.only) {
            (Some(own), Some(other)) => Some(Arc::new(own.intersection(other).cloned().collect())),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        let unknown = match (&self.unknown, &others.unknown) {
            (Some(own), Some(other)) => Some(Arc::new(own.union(other).cloned().collect())),
            (own, other) => own.as_ref().or(other.as_ref()).cloned(),
        };
        Self { only, unknown }
    }

    /// Those of them, of all clusters, that are not taken out.
    pub(crate) fn except<'a>(
        &self,
        all: impl Iterator<Item = &'a ClusterName>,
        is_taken_out: impl Fn(&ClusterName) -> bool,
    ) -> Self {
        let only = all.filter(|cluster| self.has(cluster) && !is_taken_out(cluster)).cloned().collect();
        Self { only: Some(Arc::new(only)), unknown: self.unknown.clone() }
    }

    /// Whether a cluster is one of them.
    pub(crate) fn has(&self, cluster: &ClusterName) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(cluster))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.only.as_ref().is_some_and(|only| only.is_empty())
    }

    /// Whether it is not known of some cluster whether it is one of them.
    pub(crate) fn is_one_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    /// Whether it is not known of some of the clusters that are asked for whether it is one of them.
    pub(crate) fn is_one_unknown_among(&self, is_wanted: impl FnMut(&ClusterName) -> bool) -> bool {
        self.unknown.as_ref().is_some_and(|unknown| unknown.iter().any(is_wanted))
    }

    /// What selects them.
    pub(crate) fn selector(&self) -> ClusterSelector {
        match &self.only {
            Some(only) => ClusterSelector::default().within(Arc::clone(only)),
            None => ClusterSelector::default(),
        }
    }
}
