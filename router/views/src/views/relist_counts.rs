//! How often collections were listed anew, as counters that only grow.
//!
//! A cluster that allows single namespaces alone has a collection for each, and resources without series of their own
//! share one. What such collections count must not be summed up: each goes with whoever read it, so that the sum would
//! fall, which Prometheus takes for a new beginning; and a restart of the server of a cluster has each listed once,
//! which is not often. So a counter grows as the one of its collections that was listed most often since it was told
//! last.

use std::collections::BTreeMap;

use tributary_fleet::report::CollectionReport;

use super::held_series::{CollectionLabels, OwnSeries};

/// One collection: the cluster, the resource, and the namespace where that is read by itself.
type CollectionKey = (String, String, Option<String>);

/// What was counted of collections up to when it was told last.
#[derive(Debug, Default)]
pub(super) struct RelistCounts {
    by_collection: BTreeMap<CollectionKey, u64>,
    totals: BTreeMap<CollectionLabels, u64>,
}

impl RelistCounts {
    /// Takes over what collections count now, and gives what is to be told. Of what is held no longer nothing is.
    ///
    /// Cost: one look at each collection.
    pub(super) fn update(
        &mut self,
        collections: &[CollectionReport],
        own: &OwnSeries,
    ) -> &BTreeMap<CollectionLabels, u64> {
        let mut by_collection = BTreeMap::new();
        let mut growth: BTreeMap<CollectionLabels, u64> = BTreeMap::new();
        for collection in collections {
            let key = (collection.cluster.clone(), collection.resource.clone(), collection.namespace.clone());
            // One that counts less than before is followed anew.
            let before = self.by_collection.get(&key).copied().filter(|before| *before <= collection.relists);
            let grown = collection.relists - before.unwrap_or_default();
            let most = growth.entry(own.of_collection(collection)).or_default();
            *most = (*most).max(grown);
            by_collection.insert(key, collection.relists);
        }
        let totals = growth.into_iter().map(|(labels, grown)| {
            let before = self.totals.get(&labels).copied().unwrap_or_default();
            (labels, before + grown)
        });
        self.totals = totals.collect();
        self.by_collection = by_collection;
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(namespace: Option<&str>, relists: u64) -> CollectionReport {
        CollectionReport {
            cluster: "a".to_owned(),
            resource: "pods".to_owned(),
            namespace: namespace.map(str::to_owned),
            relists,
            ..CollectionReport::default()
        }
    }

    fn told(counts: &mut RelistCounts, collections: &[CollectionReport]) -> Vec<u64> {
        counts.update(collections, &OwnSeries::from_reports(&[], collections)).values().copied().collect()
    }

    #[test]
    fn a_counter_never_falls_while_anything_of_it_is_held() {
        let mut counts = RelistCounts::default();
        assert_eq!(told(&mut counts, &[of(None, 0)]), [0]);
        assert_eq!(told(&mut counts, &[of(None, 2)]), [2]);
        assert_eq!(told(&mut counts, &[of(None, 2)]), [2], "nothing has happened");
        assert_eq!(told(&mut counts, &[of(None, 1)]), [3], "it is followed anew, and was listed since");
        assert_eq!(told(&mut counts, &[]), Vec::<u64>::new());
        assert_eq!(told(&mut counts, &[of(None, 0)]), [0]);
    }

    #[test]
    fn a_restart_that_each_namespace_pays_for_counts_once() {
        let mut counts = RelistCounts::default();
        let namespaces: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        let all = |relists| namespaces.iter().map(|name| of(Some(name), relists)).collect::<Vec<_>>();
        assert_eq!(told(&mut counts, &all(0)), [0]);
        assert_eq!(told(&mut counts, &all(1)), [1]);
        assert_eq!(told(&mut counts, &all(1)[..3]), [1], "who goes takes nothing with it");
        // One that is listed again and again is seen, whatever the others did before.
        let looping = |relists| [of(Some("n0"), relists), of(Some("n1"), 1), of(Some("late"), 0)];
        assert_eq!(told(&mut counts, &looping(9)), [9]);
        assert_eq!(told(&mut counts, &looping(12)), [12]);
    }
}
