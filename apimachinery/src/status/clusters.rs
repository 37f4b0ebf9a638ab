//! Errors that only a view of many clusters has. Each names the clusters and what the client can do.

use super::cases::{details, group_resource};
use super::field_error::go_quote;
use super::{Reason, Status, StatusDetails, Trouble};
use crate::object::CLUSTER_ANNOTATION;
use crate::{ClusterName, GroupVersionResource};

/// How many clusters a message names before it only counts them.
const NAMED_MAX: usize = 10;

/// `a, b and 3 more`.
fn names(clusters: &[ClusterName]) -> String {
    let named: Vec<_> = clusters.iter().take(NAMED_MAX).map(ClusterName::as_str).collect();
    let mut text = named.join(", ");
    if clusters.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", clusters.len() - NAMED_MAX));
    }
    text
}

/// `a (for 3 s: refused), b (for 5 s: silent) and 3 more`.
fn troubles(clusters: &[Trouble]) -> String {
    let named: Vec<_> = clusters.iter().take(NAMED_MAX).map(Trouble::to_string).collect();
    let mut text = named.join(", ");
    if clusters.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", clusters.len() - NAMED_MAX));
    }
    text
}

impl Status {
    /// 504: a read waited in vain for a version that a client, or a write through this process, has seen of the cluster. `cause` says
    /// for how long, or why there is no use in waiting.
    pub fn version_not_reached(
        cluster: &ClusterName,
        given: impl std::fmt::Display,
        current: impl std::fmt::Display,
        cause: &str,
    ) -> Self {
        let mut status = Self::too_large_resource_version(given, current);
        status.message.push_str(&format!("; cluster {}: {cause}", go_quote(cluster.as_str())));
        status
    }

    /// 409: the name exists in several clusters. `path` is the request's Kubernetes path.
    pub fn ambiguous(resource: &GroupVersionResource, name: &str, clusters: &[ClusterName], path: &str) -> Self {
        let first = clusters.first().map_or("<name>", ClusterName::as_str);
        let message = format!(
            "{} {} exists in more than one cluster: {}; address one of them by its own path, /clusters/{first}{path} (kubectl --context {first}), or name its cluster in the body's annotation {CLUSTER_ANNOTATION}",
            group_resource(resource),
            go_quote(name),
            names(clusters),
        );
        Self::new(409, Reason::Conflict, message).with_details(details(resource, name))
    }

    /// 503: not found in the clusters that are known, and `unknown` cannot be asked. Controllers read a 404 as deleted.
    /// Without a name it is the resource itself.
    pub fn owner_unknown(resource: &GroupVersionResource, name: &str, unknown: &[Trouble]) -> Self {
        let what = match name {
            "" => format!("the resource {}", group_resource(resource)),
            name => format!("{} {}", group_resource(resource), go_quote(name)),
        };
        let message = format!(
            "{what} was not found in the clusters that answer; these clusters cannot be asked now: {}",
            troubles(unknown),
        );
        Self::new(503, Reason::ServiceUnavailable, message).with_details(details(resource, name)).with_retry_after(1)
    }

    /// 429: a list or watch whose clusters are not all known yet.
    pub fn clusters_unknown(resource: &GroupVersionResource, unknown: &[ClusterName], retry_after: u32) -> Self {
        let message =
            format!("{} of these clusters have not been read yet: {}", group_resource(resource), names(unknown));
        Self::too_many_requests(message, retry_after)
    }

    /// 503: a question that changes nothing, and that the one cluster which it is for does not answer.
    pub fn cluster_unavailable(cluster: &ClusterName, cause: impl std::fmt::Display) -> Self {
        Self::service_unavailable(format!("cluster {} is unavailable: {cause}", go_quote(cluster.as_str())))
            .with_retry_after(1)
    }

    /// 404: no cluster of this name.
    pub fn cluster_not_found(name: &str) -> Self {
        Self::new(404, Reason::NotFound, format!("clusters {} not found", go_quote(name))).with_details(StatusDetails {
            name: name.to_owned(),
            kind: "clusters".to_owned(),
            ..Default::default()
        })
    }

    /// 400: a create that does not say in which cluster.
    pub fn no_target_cluster(resource: &GroupVersionResource, clusters: &[ClusterName]) -> Self {
        Self::bad_request(format!(
            "no cluster is named for the new {}: set the annotation {CLUSTER_ANNOTATION} to one of {}, or use the path /clusters/<name> (kubectl --context <name>), or set a default: --create-in, or placement of a ResourceRegistry",
            group_resource(resource),
            names(clusters),
        ))
    }

    /// 409: the annotation names another cluster than the one that has the object.
    pub fn wrong_cluster(resource: &GroupVersionResource, name: &str, named: &str, owner: &ClusterName) -> Self {
        let cause = format!(
            "the annotation {CLUSTER_ANNOTATION} names {}, but the object is in cluster {}; an object cannot move",
            go_quote(named),
            go_quote(owner.as_str()),
        );
        Self::conflict(resource, name, &cause)
    }

    /// 405: the resource can be watched only where it is registered. `remedy` says how.
    pub fn watch_not_registered(resource: &GroupVersionResource, remedy: &str) -> Self {
        let mut status = Self::method_not_supported(resource, "watch");
        status.message.push_str(": ");
        status.message.push_str(remedy);
        status
    }
}
