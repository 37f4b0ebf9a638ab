//! Counters of relists, whose values never decrease.
//!
//! Several collections may share one series: the namespaces of a cluster that allows Tributary to read only single
//! namespaces, and resources without their own series. The counter of a series must not be the sum over its
//! collections. A collection disappears with its last reader, so the sum would decrease, and Prometheus interprets a
//! decrease as a restart. Also, the usual restart of a cluster's server relists each collection once, which would
//! increase the sum a lot. Therefore a counter increases by the largest increase among its collections since the last
//! update.

use std::collections::BTreeMap;

use tributary_fleet::report::CollectionReport;

use super::own_series::{CollectionLabels, OwnSeries};

/// Key of a collection: the cluster, the resource, and the namespace if Tributary reads only this namespace.
type CollectionKey = (String, String, Option<String>);

#[derive(Debug, Default)]
pub(super) struct RelistCounts {
    by_collection: BTreeMap<CollectionKey, u64>,
    totals: BTreeMap<CollectionLabels, u64>,
}

impl RelistCounts {
    /// Updates the counters and returns them. Removes the series that have no collection.
    ///
    /// Costs a visit of each collection.
    pub(super) fn update(
        &mut self,
        collections: &[CollectionReport],
        own: &OwnSeries,
    ) -> &BTreeMap<CollectionLabels, u64> {
        let mut by_collection = BTreeMap::new();
        let mut growth: BTreeMap<CollectionLabels, u64> = BTreeMap::new();
        for collection in collections {
            let key = (collection.cluster.clone(), collection.resource.clone(), collection.namespace.clone());
            // If a count is smaller than the previous count, the collection is new, so its counter began at zero.
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

    fn collection(namespace: Option<&str>, relists: u64) -> CollectionReport {
        CollectionReport {
            cluster: "a".to_owned(),
            resource: "pods".to_owned(),
            namespace: namespace.map(str::to_owned),
            relists,
            ..CollectionReport::default()
        }
    }

    fn updated_totals(counts: &mut RelistCounts, collections: &[CollectionReport]) -> Vec<u64> {
        counts.update(collections, &OwnSeries::from_reports(&[], collections)).values().copied().collect()
    }

    #[test]
    fn relist_counter_never_decreases_while_a_collection_exists() {
        let mut counts = RelistCounts::default();
        assert_eq!(updated_totals(&mut counts, &[collection(None, 0)]), [0]);
        assert_eq!(updated_totals(&mut counts, &[collection(None, 2)]), [2]);
        assert_eq!(updated_totals(&mut counts, &[collection(None, 2)]), [2], "nothing has happened");
        assert_eq!(
            updated_totals(&mut counts, &[collection(None, 1)]),
            [3],
            "it is followed anew, and was listed since"
        );
        assert_eq!(updated_totals(&mut counts, &[]), Vec::<u64>::new());
        assert_eq!(updated_totals(&mut counts, &[collection(None, 0)]), [0]);
    }

    #[test]
    fn relists_of_all_namespaces_at_once_count_as_one() {
        let mut counts = RelistCounts::default();
        let namespaces: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
        let all = |relists| namespaces.iter().map(|name| collection(Some(name), relists)).collect::<Vec<_>>();
        assert_eq!(updated_totals(&mut counts, &all(0)), [0]);
        assert_eq!(updated_totals(&mut counts, &all(1)), [1]);
        assert_eq!(
            updated_totals(&mut counts, &all(1)[..3]),
            [1],
            "a collection that disappears does not decrease the counter"
        );
        // Repeated relists of one collection raise the counter, although the counts of the other collections do not
        // change.
        let looping =
            |relists| [collection(Some("n0"), relists), collection(Some("n1"), 1), collection(Some("late"), 0)];
        assert_eq!(updated_totals(&mut counts, &looping(9)), [9]);
        assert_eq!(updated_totals(&mut counts, &looping(12)), [12]);
    }
}
