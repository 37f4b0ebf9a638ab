//! Metrics of the cached data. The metrics are computed from the reports when a client reads the metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tributary_fleet::report::{CollectionReport, CollectionState, ResourceReport};
use tributary_proxy::ClusterClient;
use tributary_sharing::gauges::gauges;

use super::Views;
use super::own_series::{CollectionLabels, NamedResourceLabels, OwnSeries, ResourcePartLabels};
use super::relist_counts::RelistCounts;

/// Collector for metrics of each resource, and of each resource in each cluster.
pub struct CacheMetrics {
    views: Weak<Views>,
    relists: Mutex<RelistCounts>,
}

impl CacheMetrics {
    /// Creates a collector for these views. The collector has a weak reference to the views.
    pub fn for_views(views: &Arc<Views>) -> Self {
        Self { views: Arc::downgrade(views), relists: Mutex::default() }
    }

    fn answer_ages(&self) -> BTreeMap<String, u64> {
        let clusters = self.views.upgrade().map(|views| views.fleet.clusters());
        let clusters = clusters.iter().flat_map(|clusters| clusters.iter());
        let ages = clusters.filter_map(|(name, cluster)| {
            let age = cluster.setup.client.as_ref().ok().and_then(ClusterClient::since_last_answer)?;
            Some((name.to_string(), age.as_secs()))
        });
        ages.collect()
    }

    fn reports(&self) -> (Vec<ResourceReport>, Vec<CollectionReport>) {
        let (mut resources, mut collections) = (Vec::new(), Vec::new());
        for view in self.views.upgrade().iter().flat_map(|views| views.all()) {
            collections.extend(view.collection_reports());
            if !view.is_namespace_view() {
                resources.push(view.resource_report());
            }
        }
        (resources, collections)
    }
}

impl fmt::Debug for CacheMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldMetrics")
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct CachedCollection {
    objects: u64,
    /// Whether a part of the collection is not up to date. If Tributary reads namespaces one by one, each namespace is
    /// a part.
    is_behind: bool,
    /// Age of the oldest part of the collection, in seconds; `None` if nothing is cached.
    age: Option<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct UnreadClusters<'a> {
    /// Clusters that forbid reads of the resource. The refusal may be intended, because the clusters may still allow
    /// reads of single namespaces.
    forbidden: BTreeSet<&'a str>,
    /// Clusters whose objects are not cached for a reason other than a refusal.
    unknown: BTreeSet<&'a str>,
}

#[derive(Debug, Default)]
struct CachedCollections<'a> {
    by_cluster: BTreeMap<CollectionLabels, CachedCollection>,
    unread: BTreeMap<NamedResourceLabels, UnreadClusters<'a>>,
}

impl<'a> CachedCollections<'a> {
    /// Computes the metrics from reports. `answer_ages` contains the seconds since the last answer of each cluster.
    fn from_reports(collections: &'a [CollectionReport], own: &OwnSeries, answer_ages: &BTreeMap<String, u64>) -> Self {
        let mut cached = Self::default();
        for collection in collections {
            let of_cluster = cached.by_cluster.entry(own.of_collection(collection)).or_default();
            of_cluster.objects += collection.objects;
            of_cluster.is_behind |= collection.is_behind();
            let unread = cached.unread.entry(own.of_its_resource(collection)).or_default();
            let age = match collection.state {
                CollectionState::Current => answer_ages.get(&collection.cluster).copied().unwrap_or_default(),
                CollectionState::Stale => collection.seconds,
                CollectionState::Unknown => {
                    let clusters = if collection.forbidden { &mut unread.forbidden } else { &mut unread.unknown };
                    clusters.insert(&collection.cluster);
                    continue;
                }
            };
            of_cluster.age = of_cluster.age.max(Some(age));
        }
        cached
    }
}

/// Name, help text and function of a gauge. The function reads the value.
type CacheGauge<Held, Value> = (&'static str, &'static str, fn(&Held) -> Value);

const OF_RESOURCES: [CacheGauge<ResourceReport, u64>; 3] = [
    ("tributary_history_bytes", "Bytes of remembered changes, of all clusters together", |it| it.history_bytes),
    ("tributary_encodings_bytes", "Bytes of encoded watch events that watchers share", |it| it.encodings_bytes),
    ("tributary_repeated_names", "Names (with namespace) of objects in several clusters", |it| it.repeated_names),
];

const OF_COLLECTIONS: [CacheGauge<CachedCollection, Option<u64>>; 3] = [
    ("tributary_cached_objects", "Objects in memory, by cluster and resource", |it| Some(it.objects)),
    ("tributary_cacher_synced", "1 if the objects of a resource in a cluster are complete and current, else 0", |it| {
        Some(u64::from(!it.is_behind))
    }),
    ("tributary_collection_age_seconds", "Maximum age of the objects in memory, by cluster and resource", |it| it.age),
];

impl Collector for CacheMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (resources, collections) = self.reports();
        let own = OwnSeries::from_reports(&resources, &collections);
        for (name, help, value) in OF_RESOURCES {
            let mut sums: BTreeMap<ResourcePartLabels, u64> = BTreeMap::new();
            resources.iter().for_each(|it| *sums.entry(own.of_resource(it)).or_default() += value(it));
            gauges(&mut encoder, name, help, sums.iter().map(|(labels, sum)| (labels, *sum)))?;
        }
        let cached = CachedCollections::from_reports(&collections, &own, &self.answer_ages());
        for (name, help, value) in OF_COLLECTIONS {
            let values = cached.by_cluster.iter().filter_map(|(labels, it)| Some((labels, value(it)?)));
            gauges(&mut encoder, name, help, values)?;
        }
        let help = "Clusters in which a resource was never read, although they do not forbid it";
        let unknown = cached.unread.iter().map(|(labels, it)| (labels, it.unknown.len() as u64));
        gauges(&mut encoder, "tributary_unknown_clusters", help, unknown)?;
        let help = "Clusters that forbid a list of the resource, or of a namespace that is read by itself";
        let forbidden = cached.unread.iter().map(|(labels, it)| (labels, it.forbidden.len() as u64));
        gauges(&mut encoder, "tributary_forbidden_clusters", help, forbidden)?;
        let help = "Complete lists that were repeated because changes were lost";
        let mut family = encoder.encode_descriptor("tributary_relists", help, None, MetricType::Counter)?;
        let mut relists = self.relists.lock();
        for (labels, count) in relists.update(&collections, &own) {
            ConstCounter::new(*count).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(cluster: &str, namespace: Option<&str>, state: CollectionState) -> CollectionReport {
        CollectionReport {
            cluster: cluster.to_owned(),
            resource: "pods".to_owned(),
            namespace: namespace.map(str::to_owned),
            state,
            objects: 10,
            seconds: 7,
            ..CollectionReport::default()
        }
    }

    #[test]
    fn metrics_do_not_count_a_forbidden_cluster_as_unknown() {
        use CollectionState::{Current, Unknown};
        let forbidden = CollectionReport { forbidden: true, ..collection("namespaces-only", None, Unknown) };
        let collections = [
            forbidden,
            collection("namespaces-only", Some("mine"), Current),
            collection("out-of-reach", None, Unknown),
            collection("well", None, Current),
        ];
        let answer_ages = BTreeMap::from([("well".to_owned(), 3)]);
        let own = OwnSeries::from_reports(&[], &collections);
        let cached = CachedCollections::from_reports(&collections, &own, &answer_ages);
        let unread = cached.unread.values().next().unwrap();
        assert_eq!(unread.unknown, BTreeSet::from(["out-of-reach"]));
        assert_eq!(unread.forbidden, BTreeSet::from(["namespaces-only"]));
        let series: Vec<_> =
            cached.by_cluster.iter().map(|(labels, it)| (&*labels.cluster, it.is_behind, it.age)).collect();
        assert_eq!(
            series,
            [("namespaces-only", true, Some(0)), ("out-of-reach", true, None), ("well", false, Some(3))]
        );
    }

    #[test]
    fn shared_metric_series_has_the_age_of_its_oldest_collection() {
        use CollectionState::{Current, Stale};
        let collections = [
            collection("a", Some("x"), Current),
            collection("a", Some("y"), Stale),
            collection("a", Some("z"), Current),
        ];
        let answer_ages = BTreeMap::from([("a".to_owned(), 2)]);
        let cached =
            CachedCollections::from_reports(&collections, &OwnSeries::from_reports(&[], &collections), &answer_ages);
        let series: Vec<_> = cached.by_cluster.values().collect();
        assert_eq!(series, [&CachedCollection { objects: 30, is_behind: true, age: Some(7) }]);
    }
}
