//! Snapshot of the configuration for one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_answers::refusal::WatchRemedy;
use tributary_apimachinery::{ClusterName, Consistency, GroupVersionResource, ItemResourceVersions, ResourceRequest};
use tributary_fleet::discovery::{MergedDiscovery, ServedResource};
use tributary_fleet::foreign_member::ForeignMembers;
use tributary_fleet::policy::{Policies, ResourcePolicy};
use tributary_fleet::topology::Cluster;
use tributary_merge::Epochs;
use tributary_rights::ReadableConfiguration;
use tributary_views::view::CacheState;

use crate::dispatch::Dispatch;
use crate::flow_control::ActiveSchemas;
use crate::versions::Versions;

/// Policies, clusters and discovery at the arrival of a request. All stages of a request use one snapshot, so that a
/// change of the configuration has no effect in the middle of a request. Cost: seven reference counts.
#[derive(Clone)]
pub(crate) struct ConfigurationSnapshot {
    /// Policies for reads of each resource, for example their consistency.
    pub(crate) policies: Arc<Policies>,
    /// Flow-control schemas of the merged view and of all clusters.
    pub(crate) flow_control: Arc<ActiveSchemas>,
    /// Dispatch policies; `None` without policies.
    pub(crate) dispatch: Option<Arc<Dispatch>>,
    /// Merged discovery of all clusters.
    pub(crate) merged_discovery: Arc<MergedDiscovery>,
    pub(crate) clusters: Arc<BTreeMap<ClusterName, Arc<Cluster>>>,
    /// Lists of clusters (epochs) that compact composite versions refer to.
    pub(crate) epochs: Arc<Epochs>,
    /// Members that foreign systems know by their own names.
    pub(crate) foreign: Arc<ForeignMembers>,
}

impl ConfigurationSnapshot {
    /// Returns the parts of the configuration that decide which objects a caller may read.
    pub(crate) fn for_readable(&self) -> ReadableConfiguration {
        let Self { policies, merged_discovery, clusters, .. } = self.clone();
        ReadableConfiguration { policies, merged_discovery, clusters }
    }

    pub(crate) fn policy(&self, resource: &GroupVersionResource) -> &ResourcePolicy {
        self.policies.policy_for(resource)
    }

    /// Returns whether a cluster has answered discovery, and the merged discovery contains the answer. The merged
    /// discovery is updated up to 0.1 s after the answer. Until then, the cluster must not look like a cluster that
    /// serves nothing. A cluster that is configured under two names is in the merged discovery only under the first
    /// name, so for the second name the answer is sufficient.
    pub(crate) fn has_discovery(&self, cluster: &Cluster) -> bool {
        cluster.discovery().is_some()
            && (self.merged_discovery.has_discovery_of(cluster.name()) || cluster.duplicate().is_some())
    }

    /// Returns whether a cluster may serve a resource that its discovery lacks, because discovery is missing or out of
    /// date.
    pub(crate) fn may_serve(&self, cluster: &Cluster, served: &ServedResource) -> bool {
        !self.has_discovery(cluster) || self.is_unserved(cluster, served)
    }

    /// Returns whether a resource is missing in a cluster's discovery, and the discovery is out of date.
    pub(crate) fn is_unserved(&self, cluster: &Cluster, served: &ServedResource) -> bool {
        self.has_discovery(cluster)
            && !served.is_served_by(cluster.name())
            && cluster.outdated(&served.resource).is_some()
    }

    /// Finds the cluster for a resource that no discovery document lists, if only one cluster serves the group and
    /// version. An aggregated server may serve more resources than its discovery lists; a kube-apiserver lists all.
    ///
    /// `None` while the cluster's discovery may be out of date: if discovery lists the resource soon afterwards, its
    /// objects must have versions of the merged view.
    pub(crate) fn unlisted(&self, request: &ResourceRequest) -> Option<ServedResource> {
        let version = request.resource.group_version();
        let has_it = |own: &&Arc<Cluster>| own.discovery().is_some_and(|own| own.has_version(&version));
        let resource = &request.resource;
        let is_up_to_date = |own: &Cluster| own.outdated(resource).is_none() && own.undescribed(resource).is_none();
        let mut having = self.clusters.values().filter(|own| own.duplicate().is_none()).filter(has_it);
        match (having.next(), having.next()) {
            (Some(only), None) if !request.resource.is_built_in() && is_up_to_date(only) => {
                Some(ServedResource::unlisted(request, only.name().clone()))
            }
            _ => None,
        }
    }

    /// Returns the cache state of each cluster whose discovery lacks a resource and is out of date. Cost: none if all
    /// clusters serve the resource, otherwise linear in the number of clusters.
    pub(crate) fn unserved<'a>(
        &'a self,
        served: &'a ServedResource,
    ) -> impl Iterator<Item = (ClusterName, CacheState)> + use<'a> {
        let all_have_it = served.clusters.len() + served.not_merged.len() >= self.clusters.len();
        let clusters = self.clusters.values().filter(move |_| !all_have_it);
        let unserved = clusters.filter(|cluster| self.is_unserved(cluster, served));
        unserved
            .filter_map(|cluster| Some((cluster.name().clone(), CacheState::of_unserved(cluster, &served.resource)?)))
    }

    /// Returns the form (integer or composite) of the resourceVersions in a resource's objects. Cost: linear in the
    /// number of policy rules, without an allocation.
    pub(crate) fn items(&self, resource: &GroupVersionResource) -> ItemResourceVersions {
        self.policy(resource).item_resource_versions
    }

    pub(crate) fn versions(&self, resource: &GroupVersionResource) -> Versions {
        Versions::new(Arc::clone(&self.epochs), self.items(resource), Arc::clone(&self.clusters))
    }

    /// Returns a codec like [`versions`](Self::versions), but for an object whose resource is not known. Decodes
    /// integer versions if the objects of any resource have integer versions.
    pub(crate) fn versions_of_any(&self) -> Versions {
        let any = self.policies.any_integer();
        let items = if any { ItemResourceVersions::Integer } else { ItemResourceVersions::Composite };
        Versions::new(Arc::clone(&self.epochs), items, Arc::clone(&self.clusters))
    }

    /// Returns a codec like [`versions`](Self::versions), but for composite versions only. Does not decode a plain
    /// number, because a plain number is a version of a member itself.
    pub(crate) fn composite_versions(&self) -> Versions {
        Versions::new(Arc::clone(&self.epochs), ItemResourceVersions::Composite, Arc::clone(&self.clusters))
    }

    /// Returns whether memory caches a resource's objects, at least of some namespaces.
    pub(crate) fn is_registered(&self, served: &ServedResource) -> bool {
        !served.cacheable.is_empty() && self.policies.is_registered(&served.resource)
    }

    /// Returns whether memory caches a resource's objects of one namespace, or of all namespaces (`None`).
    pub(crate) fn is_cached(&self, served: &ServedResource, namespace: Option<&str>) -> bool {
        let resource = &served.resource;
        self.is_registered(served) && self.policy(resource).caches(served.description.namespaced(), namespace)
    }

    /// Returns whether reads of the newest state of a resource go to the members (`consistency: Quorum`).
    pub(crate) fn asks_members(&self, resource: &GroupVersionResource) -> bool {
        self.policy(resource).consistency == Consistency::Quorum
    }

    /// Returns the clusters that the resource's policy excludes from the merged view, although they serve or may serve
    /// the resource.
    pub(crate) fn left_out(&self, served: &ServedResource) -> Vec<ClusterName> {
        let policy = self.policy(&served.resource);
        if policy.clusters.is_none() {
            return Vec::new();
        }
        let left_out = self.clusters.values().filter(|cluster| !policy.selects(cluster.name()));
        // A cluster without discovery may serve the resource.
        let serving =
            left_out.filter(|cluster| served.clusters.contains(cluster.name()) || cluster.discovery().is_none());
        serving.map(|cluster| cluster.name().clone()).collect()
    }

    pub(crate) fn having(&self, served: &ServedResource) -> impl Iterator<Item = &ClusterName> {
        let all = self.clusters.values();
        all.filter(|own| served.is_served_by(own.name()) || self.may_serve(own, served)).map(|own| own.name())
    }

    /// Returns the advice for a client that may not watch a resource because memory does not cache it: to watch a
    /// cached namespace, or to let an administrator register the resource.
    pub(crate) fn remedy(&self, resource: &GroupVersionResource) -> WatchRemedy {
        match &self.policy(resource).namespaces {
            Some(cached) if self.policies.is_registered(resource) => {
                WatchRemedy::Namespaces(cached.iter().cloned().collect())
            }
            _ => WatchRemedy::Register,
        }
    }
}
