//! Attributes by which members authorize a request, and the clusters where the caller may do an action.

use std::sync::Arc;

use tributary_apimachinery::request_info::{ResourceRequest, requested_resource};
use tributary_apimachinery::{ClusterName, Verb};
use tributary_authorization::{Attributes, ResourceAttributes};
use tributary_fleet::topology::Cluster;
use tributary_rights::{CallerRights, Candidates};

use crate::caller::Caller;

/// Returns the clusters in which the caller may do `verb` on an object that a request refers to.
pub(crate) async fn candidates_of<'a>(
    clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
    caller: &Caller,
    resource: &ResourceRequest,
    verb: &str,
) -> Candidates {
    let found = match caller.rights() {
        None => Candidates::default(),
        Some(rights) => {
            let actions = [Attributes::Resource(attributes(resource, verb))];
            let decide = |rights: &CallerRights| rights.candidates(clusters.clone(), &actions);
            rights.with_joining(|| rights.decide_after_reviews(decide), Candidates::has_unknown).await
        }
    };
    match &caller.dispatched {
        Some(dispatched) if dispatched.is_of_clusters() => {
            let action = attributes(resource, verb);
            found.except(clusters.into_iter(), |cluster| dispatched.denies_also(cluster, &action))
        }
        _ => found,
    }
}

/// Returns the clusters whose existence the caller may learn: clusters where the caller may get the object, or list the
/// collection. For clusters that have not answered discovery yet.
pub(crate) async fn may_know(
    clusters: &[&Arc<Cluster>],
    caller: &Caller,
    verb: Verb,
    resource: &ResourceRequest,
) -> Candidates {
    let verb = match verb {
        Verb::Create | Verb::List | Verb::Watch | Verb::DeleteCollection => "list",
        _ => "get",
    };
    candidates_of(clusters.iter().map(|cluster| cluster.name()), caller, resource, verb).await
}

/// Returns the attributes of an action on an object or a collection, without a subresource.
pub(crate) fn attributes<'a>(resource: &'a ResourceRequest, verb: &'a str) -> ResourceAttributes<'a> {
    ResourceAttributes { subresource: "", ..ResourceAttributes::from_request(resource, verb) }
}

/// Returns whether the resource is a review of the caller's own rights, such as a SelfSubjectAccessReview.
pub(crate) fn is_of_oneself(resource: &ResourceRequest) -> bool {
    resource.resource.resource.starts_with("selfsubject")
}

/// Returns the name of the object in a request. For `proxy`, returns only the name in `[scheme:]name:port`.
pub(crate) fn proxied_name(resource: &ResourceRequest) -> &str {
    let named = resource.name.as_deref().unwrap_or_default();
    match resource.subresource.as_deref() {
        Some("proxy") => requested_resource::proxied_name(named),
        _ => named,
    }
}
