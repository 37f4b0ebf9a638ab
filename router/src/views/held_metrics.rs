//! What is held in the metrics, read when they are asked for: of the same reports as everything that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tributary_proxy::ClusterClient;

use super::Views;
use crate::metrics::ResourceLabels;
use crate::report::{CollectionReport, CollectionState, ResourceReport};

/// The labels of a resource in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct CollectionLabels {
    /// The member cluster.
    cluster: String,
    /// The resource as kubectl names it.
    resource: String,
}

/// The labels of a resource in all clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct NamedResourceLabels {
    /// The resource as kubectl names it.
    resource: String,
}

/// Tells of each resource, and of each resource of each cluster, what is held.
pub(crate) struct HeldMetrics(Weak<Views>);

impl HeldMetrics {
    /// Of these views, for as long as there are any.
    pub(crate) fn of(views: &Arc<Views>) -> Self {
        Self(Arc::downgrade(views))
    }

    /// For how many seconds each cluster has said nothing.
    fn heard_seconds(&self) -> BTreeMap<String, u64> {
        let clusters = self.0.upgrade().map(|views| views.fleet.clusters());
        let clusters = clusters.iter().flat_map(|clusters| clusters.iter());
        let heard = clusters.filter_map(|(name, cluster)| {
            let heard = cluster.setup.client.as_ref().ok().and_then(ClusterClient::since_last_answer)?;
            Some((name.to_string(), heard.as_secs()))
        });
        heard.collect()
    }

    fn reports(&self) -> (Vec<ResourceReport>, Vec<CollectionReport>) {
        let (mut resources, mut collections) = (Vec::new(), Vec::new());
        for view in self.0.upgrade().iter().flat_map(|views| views.all()) {
            collections.extend(view.collection_reports());
            if !view.is_part() {
                resources.push(view.resource_report());
            }
        }
        (resources, collections)
    }
}

impl fmt::Debug for HeldMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldMetrics")
    }
}

/// A gauge of all that is held of one kind, with its help.
type HeldGauge<Report> = (&'static str, &'static str, fn(&Report) -> u64);

const OF_RESOURCES: [HeldGauge<ResourceReport>; 3] = [
    ("tributary_history_bytes", "Bytes of remembered changes, all clusters together", |it| it.history_bytes),
    ("tributary_encodings_bytes", "Bytes of encoded watch events that watchers share", |it| it.encodings_bytes),
    ("tributary_repeated_names", "Names (with their namespace) that objects of several clusters have", |it| {
        it.repeated_names
    }),
];

impl Collector for HeldMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (resources, collections) = self.reports();
        for (name, help, value) in OF_RESOURCES {
            let mut sums: BTreeMap<ResourceLabels, u64> = BTreeMap::new();
            resources.iter().for_each(|it| *sums.entry(labels_of(it)).or_default() += value(it));
            gauges(&mut encoder, name, help, sums)?;
        }
        let heard = self.heard_seconds();
        let mut objects: BTreeMap<CollectionLabels, u64> = BTreeMap::new();
        let mut synced: BTreeMap<CollectionLabels, u64> = BTreeMap::new();
        let mut ages: BTreeMap<CollectionLabels, u64> = BTreeMap::new();
        let mut relists: BTreeMap<CollectionLabels, u64> = BTreeMap::new();
        let mut unknown: BTreeMap<NamedResourceLabels, BTreeSet<&str>> = BTreeMap::new();
        for collection in &collections {
            let (cluster, resource) = (&collection.cluster, &collection.resource);
            let labels = || CollectionLabels { cluster: cluster.clone(), resource: resource.clone() };
            *objects.entry(labels()).or_default() += collection.objects;
            *relists.entry(labels()).or_default() += collection.relists;
            // Where namespaces are read one by one, all of them count.
            let of_all = synced.entry(labels()).or_insert(1);
            *of_all = (*of_all).min(u64::from(!collection.is_behind()));
            let of_unknown = unknown.entry(NamedResourceLabels { resource: resource.clone() }).or_default();
            let age = match collection.state {
                CollectionState::Current => heard.get(cluster).copied().unwrap_or_default(),
                CollectionState::Stale => collection.seconds,
                CollectionState::Unknown => {
                    of_unknown.insert(cluster);
                    continue;
                }
            };
            let oldest = ages.entry(labels()).or_default();
            *oldest = (*oldest).max(age);
        }
        gauges(&mut encoder, "tributary_cached_objects", "Objects held per cluster and resource", objects)?;
        let help = "1 where the objects of a resource in a cluster are complete and up to date";
        gauges(&mut encoder, "tributary_cacher_synced", help, synced)?;
        let help = "Age of what is held, where something is: since its changes ceased, or its cluster was last heard";
        gauges(&mut encoder, "tributary_collection_age_seconds", help, ages)?;
        let help = "Clusters of which a resource has never been read";
        let unknown = unknown.into_iter().map(|(labels, clusters)| (labels, clusters.len() as u64));
        gauges(&mut encoder, "tributary_unknown_clusters", help, unknown.collect())?;
        let help = "Complete lists taken anew, because changes were lost";
        let mut family = encoder.encode_descriptor("tributary_relists", help, None, MetricType::Counter)?;
        for (labels, count) in relists {
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn labels_of(report: &ResourceReport) -> ResourceLabels {
    let (group, version, resource) = (&*report.group, &*report.version, &*report.resource);
    ResourceLabels { group: group.into(), version: version.into(), resource: resource.into() }
}

fn gauges<Labels: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: BTreeMap<Labels, u64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
