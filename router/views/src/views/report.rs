//! What is held of all resources, for the [report](tributary_fleet::report).

use std::collections::BTreeMap;

use tributary_fleet::report::{CollectionReport, LimitReport, ResourceReport};

use super::Views;

/// What is held.
#[derive(Default)]
pub struct HeldReports {
    /// Of each resource, all clusters together.
    pub resources: Vec<ResourceReport>,
    /// Of each resource of each cluster.
    pub collections: Vec<CollectionReport>,
    /// Of what is held of collections and of namespaces that are read by themselves what there may be.
    pub limits: Vec<LimitReport>,
}

impl Views {
    /// What is held now. Cost: a few locks for each resource and cluster, which take a microsecond; no object is looked
    /// at. Others have their turn after each resource.
    pub async fn report(&self) -> HeldReports {
        let mut held = HeldReports::default();
        let mut parts: BTreeMap<String, u64> = BTreeMap::new();
        for view in self.all() {
            held.collections.extend(view.collection_reports());
            match view.is_part() {
                // What it holds is among what the view of all tells.
                true => *parts.entry(view.kind.resource.to_string()).or_default() += 1,
                false => held.resources.push(view.resource_report()),
            }
            drop(view);
            tokio::task::yield_now().await;
        }
        let of = |of: String, limit: LimitReport| LimitReport { of: Some(of), ..limit };
        let namespaces = self.limits.namespace_views as u64;
        let of_namespaces =
            |(resource, used)| of(resource, LimitReport::new("namespace_views", used, namespaces, None));
        held.limits.extend(parts.into_iter().map(of_namespaces));
        let large = held.collections.iter().map(|collection| {
            let limit = LimitReport::new("collection_bytes", collection.bytes, self.limits.collection_bytes, None);
            of(format!("{} {}", collection.cluster, collection.resource), limit)
        });
        held.limits.extend(large.filter(LimitReport::is_near));
        held
    }
}
