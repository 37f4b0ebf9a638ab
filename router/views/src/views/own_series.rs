//! Selection of the resources that have their own metric series. Clusters define resources, and clients choose which
//! resources are cached, so the number of series must be bounded. All resources above the limits share one series.

use std::collections::{BTreeMap, BTreeSet};

use prometheus_client::encoding::EncodeLabelSet;
use tributary_apimachinery::GroupVersionResource;

use tributary_fleet::metrics::{OTHER, RESOURCES_MAX};
use tributary_fleet::report::{CollectionReport, ResourceReport};

/// Maximum number of series of a metric that has a series for each resource of each cluster. Above the limit, the
/// remaining resources of a cluster share one series, which is not part of the limit. 60,000: 1,000 clusters with 60
/// built-in resources each. A series takes some 100 bytes of text.
const COLLECTION_SERIES_MAX: usize = 60_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct CollectionLabels {
    pub(super) cluster: String,
    /// Resource in kubectl's notation.
    pub(super) resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct NamedResourceLabels {
    /// Resource in kubectl's notation.
    pub(super) resource: String,
}

/// Labels of a resource over all clusters: API group, version and plural name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct ResourcePartLabels {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) resource: String,
}

/// Resources that have their own series, in kubectl's notation.
#[derive(Debug)]
pub(super) struct OwnSeries(BTreeSet<String>);

impl OwnSeries {
    /// Selects the cached resources that get their own series. Resources of Kubernetes itself come first, because no
    /// CustomResourceDefinition can take their names. Both groups are sorted by name, so the result depends only on the
    /// cached resources.
    ///
    /// Costs a visit of each collection.
    pub(super) fn from_reports(resources: &[ResourceReport], collections: &[CollectionReport]) -> Self {
        Self::within(RESOURCES_MAX, COLLECTION_SERIES_MAX, resources, collections)
    }

    /// As [`Self::from_reports`], with explicit limits for the number of resources and for the number of series.
    fn within(
        resources_max: usize,
        series_max: usize,
        resources: &[ResourceReport],
        collections: &[CollectionReport],
    ) -> Self {
        let mut clusters: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for resource in resources {
            clusters.entry(named(resource)).or_default();
        }
        for CollectionReport { cluster, resource, .. } in collections {
            if let Some(of_resource) = clusters.get_mut(resource) {
                of_resource.insert(cluster);
            } else {
                clusters.insert(resource.clone(), BTreeSet::from([&**cluster]));
            }
        }
        let mut ranked: Vec<(String, usize)> =
            clusters.into_iter().map(|(resource, clusters)| (resource, clusters.len())).collect();
        // The sort is stable, so it keeps the order of the names.
        ranked.sort_by_key(|(resource, _)| !is_built_in(resource));
        let mut series = 0;
        let own = ranked.into_iter().take(resources_max).take_while(|(_, clusters)| {
            series += clusters;
            series <= series_max
        });
        Self(own.map(|(resource, _)| resource).collect())
    }

    pub(super) fn of_collection(&self, collection: &CollectionReport) -> CollectionLabels {
        CollectionLabels { cluster: collection.cluster.clone(), resource: self.label(&collection.resource).to_owned() }
    }

    pub(super) fn of_its_resource(&self, collection: &CollectionReport) -> NamedResourceLabels {
        NamedResourceLabels { resource: self.label(&collection.resource).to_owned() }
    }

    pub(super) fn of_resource(&self, resource: &ResourceReport) -> ResourcePartLabels {
        match self.0.contains(&named(resource)) {
            true => ResourcePartLabels {
                group: resource.group.clone(),
                version: resource.version.clone(),
                resource: resource.resource.clone(),
            },
            false => ResourcePartLabels { group: String::new(), version: String::new(), resource: OTHER.to_owned() },
        }
    }

    fn label<'a>(&self, resource: &'a str) -> &'a str {
        if self.0.contains(resource) { resource } else { OTHER }
    }
}

/// Name of the resource in kubectl's notation, as in a [`CollectionReport`].
fn named(resource: &ResourceReport) -> String {
    let ResourceReport { group, version, resource, .. } = resource;
    GroupVersionResource::new(group, version, resource).to_string()
}

/// Returns whether a resource in kubectl's notation (`pods`, `deployments.v1.apps`) belongs to Kubernetes itself.
fn is_built_in(named: &str) -> bool {
    let mut parts = named.splitn(3, '.');
    let mut part = || parts.next().unwrap_or_default();
    let (resource, version, group) = (part(), part(), part());
    GroupVersionResource::new(group, version, resource).is_built_in()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, resource: &str) -> ResourceReport {
        let [group, version, resource] = [group, "v1", resource].map(str::to_owned);
        ResourceReport { group, version, resource, ..ResourceReport::default() }
    }

    fn collections(clusters: &[&str], resources: &[&str]) -> Vec<CollectionReport> {
        let of = |cluster: &str, resource: &str| {
            let (cluster, resource) = (cluster.to_owned(), resource.to_owned());
            CollectionReport { cluster, resource, ..CollectionReport::default() }
        };
        clusters.iter().flat_map(|cluster| resources.iter().map(move |resource| of(cluster, resource))).collect()
    }

    fn own_series(resources_max: usize, series_max: usize, collections: &[CollectionReport]) -> Vec<String> {
        let OwnSeries(own) = OwnSeries::within(resources_max, series_max, &[], collections);
        own.into_iter().collect()
    }

    #[test]
    fn built_in_resources_get_metric_series_before_custom_resources() {
        let reports =
            collections(&["a", "b"], &["aaa.v1.example.com", "deployments.v1.apps", "leases.v1.example.com", "pods"]);
        assert_eq!(own_series(9, 99, &reports).len(), 4);
        assert_eq!(own_series(3, 99, &reports), ["aaa.v1.example.com", "deployments.v1.apps", "pods"]);
        // Each resource needs two series, so the third resource exceeds the limit.
        assert_eq!(own_series(9, 5, &reports), ["deployments.v1.apps", "pods"]);
        assert_eq!(own_series(9, 0, &reports), Vec::<String>::new());
        let reversed: Vec<_> = reports.iter().rev().cloned().collect();
        assert_eq!(own_series(3, 99, &reversed), own_series(3, 99, &reports), "however they come");
    }

    #[test]
    fn number_of_metric_series_is_limited() {
        let names: Vec<String> = (0..3 * RESOURCES_MAX).map(|number| format!("r{number}.v1.example.com")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let reports = collections(&["a", "b", "c"], &names);
        let own = OwnSeries::from_reports(&[], &reports);
        let labels: BTreeSet<_> = reports.iter().map(|collection| own.of_collection(collection)).collect();
        assert_eq!(labels.len(), 3 * (RESOURCES_MAX + 1));
        let together = |labels: &&CollectionLabels| labels.resource == OTHER;
        assert_eq!(labels.iter().filter(together).count(), 3, "one of each cluster");
        let clusters: Vec<String> = (0..100).map(|number| format!("cluster-{number}")).collect();
        let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
        let reports = collections(&clusters, &names[..RESOURCES_MAX]);
        let own = OwnSeries::from_reports(&[], &reports);
        let labels: BTreeSet<_> = reports.iter().map(|collection| own.of_collection(collection)).collect();
        assert_eq!(labels.len(), COLLECTION_SERIES_MAX + 100);
    }

    #[test]
    fn resource_labels_in_parts_and_in_kubectl_notation_agree() {
        let resources = [resource("", "pods"), resource("example.com", "widgets"), resource("example.com", "gadgets")];
        let own = OwnSeries::within(2, 99, &resources, &collections(&["a"], &["widgets.v1.example.com"]));
        let labels = resources.iter().map(|resource| own.of_resource(resource).resource).collect::<Vec<_>>();
        assert_eq!(labels, ["pods", OTHER, "gadgets"]);
        let of_widgets = &collections(&["a"], &["widgets.v1.example.com"])[0];
        assert_eq!(own.of_its_resource(of_widgets).resource, OTHER);
        assert_eq!(own.of_resource(&resources[1]).group, "");
    }
}
