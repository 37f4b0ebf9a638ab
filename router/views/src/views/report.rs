//! Part of the [report](tributary_fleet::report) about all views.

use std::collections::BTreeMap;

use tributary_fleet::report::{CollectionReport, LimitReport, ResourceReport};

use super::Views;

/// Cached data of all views.
#[derive(Default)]
pub struct CacheReports {
    /// A report for each resource, over all clusters.
    pub resources: Vec<ResourceReport>,
    /// A report for each resource of each cluster.
    pub collections: Vec<CollectionReport>,
    /// Limits of collections, and of views of single namespaces.
    pub limits: Vec<LimitReport>,
}

impl Views {
    /// Reports the cached data. Costs a few locks for each resource and cluster, about a microsecond, and visits no
    /// object. Yields to other tasks after each resource.
    pub async fn report(&self) -> CacheReports {
        let mut reports = CacheReports::default();
        let mut parts: BTreeMap<String, u64> = BTreeMap::new();
        for view in self.all() {
            reports.collections.extend(view.collection_reports());
            match view.is_namespace_view() {
                // The objects of the view of one namespace are already in the report about the view of all namespaces.
                true => *parts.entry(view.kind.resource.to_string()).or_default() += 1,
                false => reports.resources.push(view.resource_report()),
            }
            drop(view);
            tokio::task::yield_now().await;
        }
        let of = |of: String, limit: LimitReport| LimitReport { of: Some(of), ..limit };
        let namespaces = self.limits.namespace_views as u64;
        let of_namespaces =
            |(resource, used)| of(resource, LimitReport::new("namespace_views", used, namespaces, None));
        reports.limits.extend(parts.into_iter().map(of_namespaces));
        let large = reports.collections.iter().map(|collection| {
            let limit = LimitReport::new("collection_bytes", collection.bytes, self.limits.collection_bytes, None);
            of(format!("{} {}", collection.cluster, collection.resource), limit)
        });
        reports.limits.extend(large.filter(LimitReport::is_near));
        reports
    }
}
