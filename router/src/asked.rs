//! What a request asks of members, in the words by which they judge it.

use std::sync::Arc;

use tributary_apimachinery::request_info::{ResourceRequest, requested_resource};
use tributary_apimachinery::{ClusterName, Verb};
use tributary_authorization::{Attributes, ResourceAttributes};
use tributary_fleet::topology::Cluster;
use tributary_rights::{CallerRights, Candidates};

use crate::caller::Caller;

/// The clusters that there are for what a request refers to: where its caller may do this with it.
pub(crate) async fn candidates_of<'a>(
    clusters: impl IntoIterator<Item = &'a ClusterName> + Clone,
    caller: &Caller,
    resource: &ResourceRequest,
    verb: &str,
) -> Candidates {
    let found = match caller.rights() {
        None => Candidates::default(),
        Some(rights) => {
            let asked = [Attributes::Resource(attributes(resource, verb))];
            let decide = |rights: &CallerRights| rights.candidates(clusters.clone(), &asked);
            rights.with_joining(|| rights.settled(decide), Candidates::is_one_unknown).await
        }
    };
    match &caller.dispatched {
        Some(dispatched) if dispatched.is_of_clusters() => {
            let asked = attributes(resource, verb);
            found.except(clusters.into_iter(), |cluster| dispatched.denies_also(cluster, &asked))
        }
        _ => found,
    }
}

/// Whether a cluster that has not told what it serves may be told of to whoever asks for this.
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

/// A verb on an object, or on a collection, without what lies below it.
pub(crate) fn attributes<'a>(resource: &'a ResourceRequest, verb: &'a str) -> ResourceAttributes<'a> {
    ResourceAttributes { subresource: "", ..ResourceAttributes::from_request(resource, verb) }
}

/// Whether a review is of whoever asks for it.
pub(crate) fn is_of_oneself(resource: &ResourceRequest) -> bool {
    resource.resource.resource.starts_with("selfsubject")
}

/// The name of the object that a request passes through to: what is proxied may be named `[scheme:]name:port`.
pub(crate) fn proxied_name(resource: &ResourceRequest) -> &str {
    let named = resource.name.as_deref().unwrap_or_default();
    match resource.subresource.as_deref() {
        Some("proxy") => requested_resource::proxied_name(named),
        _ => named,
    }
}
