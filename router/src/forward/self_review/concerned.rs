//! Clusters that an access review concerns. A cluster without the namespace, or without the ServiceAccount of the
//! review, cannot do the action, so its answer has no meaning.

use std::collections::BTreeSet;

use tributary_apimachinery::{ClusterName, GroupVersionResource, ServiceAccount};
use tributary_rights::Candidates;

use super::reviewed_right::ReviewedRight;
use crate::asked::is_of_oneself;
use crate::forward::owner::decision::Evidence;
use crate::forward::owner::evidence::{NamedObject, find_named};
use crate::request::ClientRequest;

/// Chooses the candidates that a review concerns; all candidates if none is known to have the namespace or the account.
/// Memory answers for cached kinds. Other kinds need lookups in the clusters, for some seconds at most.
pub(super) async fn choose_concerned(
    request: ClientRequest<'_>,
    reviewed_right: &ReviewedRight,
    candidates: &Candidates,
) -> Candidates {
    let request = request.about(request.resource, request.served, candidates);
    if request.clusters().len() < 2 {
        return candidates.clone();
    }
    let user = match is_of_oneself(request.resource) {
        true => request.caller.acting_name().unwrap_or_default(),
        false => reviewed_right.user.clone(),
    };
    // The impersonated user may lack the right to get namespaces, so the lookup does not impersonate.
    let caller = request.caller.of_owner();
    let request = ClientRequest { caller: &caller, ..request };
    let having_namespace = find_having(request, "namespaces", None, &reviewed_right.namespace).await;
    let having_account = match ServiceAccount::of_user(&user) {
        Some(ServiceAccount { namespace, name }) => {
            find_having(request, "serviceaccounts", Some(namespace), name).await
        }
        None => None,
    };
    let all = request.configuration.clusters.keys();
    match combine(having_namespace, having_account) {
        Some(concerned) => candidates.except(all, |cluster| !concerned.contains(cluster)),
        None => candidates.clone(),
    }
}

/// Returns the clusters that have, or may have, an object of the core group; `None` if no cluster is known to have the
/// object.
async fn find_having(
    request: ClientRequest<'_>,
    resource: &str,
    namespace: Option<&str>,
    name: &str,
) -> Option<BTreeSet<ClusterName>> {
    if name.is_empty() {
        return None;
    }
    let resource = GroupVersionResource::new("", "v1", resource);
    let found = find_named(request, request.candidates, NamedObject { resource, namespace, name }).await;
    let Evidence { has, may, .. } = found.ok()?.evidence;
    (!has.is_empty()).then(|| has.into_iter().chain(may).collect())
}

/// Combines the clusters with the namespace and the clusters with the account: the clusters with both, or else the
/// clusters with the account, because an account acts in its own cluster.
fn combine(
    having_namespace: Option<BTreeSet<ClusterName>>,
    having_account: Option<BTreeSet<ClusterName>>,
) -> Option<BTreeSet<ClusterName>> {
    match (having_namespace, having_account) {
        (Some(namespace), Some(account)) if namespace.is_disjoint(&account) => Some(account),
        (Some(namespace), Some(account)) => Some(namespace.intersection(&account).cloned().collect()),
        (namespace, account) => account.or(namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_of_a_review_takes_precedence_over_its_namespace() {
        let names = |text: &str| -> Option<BTreeSet<ClusterName>> {
            (text != "-").then(|| text.split(' ').map(|name| ClusterName::new(name).unwrap()).collect())
        };
        for (namespace, account, expected) in
            [("-", "-", "-"), ("a b", "-", "a b"), ("-", "b", "b"), ("a b", "b c", "b"), ("a", "b", "b")]
        {
            assert_eq!(combine(names(namespace), names(account)), names(expected), "{namespace}, {account}");
        }
    }
}
