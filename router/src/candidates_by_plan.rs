//! Candidates of a request: the clusters where the caller may perform the action, or see the object.

use std::sync::Arc;

use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::request_info::ResourceRequest;
use tributary_apimachinery::{ClusterName, ClusterSelector, ListOptions, Partial};
use tributary_authorization::{Attributes, ResourceAttributes};
use tributary_fleet::policy::ResourcePolicy;
use tributary_rights::{CallerRights, Candidates};
use tributary_sharing::limits;

use crate::asked::{attributes, is_of_oneself, proxied_name};
use crate::configuration::ConfigurationSnapshot;
use crate::plan::ResourcePlan;
use crate::request::ClientRequest;

/// Returns the candidates for a forwarded request: clusters where the caller may perform the action, get the object, or
/// list the collection. In personal mode all clusters are candidates. Waits for the rights in clusters that have just
/// joined.
///
/// # Errors
/// 403 without candidates, with the message of kube-apiserver, or of the policy that excludes all clusters. 503, or 429
/// for a collection, if the rights in a selected cluster are unknown and the answer must include the cluster.
pub(crate) async fn candidates_by_plan(request: ClientRequest<'_>, plan: ResourcePlan) -> Result<Candidates, Refusal> {
    let ClientRequest { configuration, caller, resource, .. } = request;
    let found = match caller.rights() {
        None => Candidates::default(),
        Some(rights) => {
            let decide = |rights: &CallerRights| decide(request, rights, plan);
            let is_in_part = is_in_part(configuration, resource, plan);
            let lacks = |found: &Result<Candidates, Refusal>| match found {
                Ok(candidates) => candidates.has_unknown() && (!is_in_part || candidates.is_empty()),
                Err(refusal) => refusal.is_about_unknown_rights(),
            };
            rights.with_joining(|| rights.decide_after_reviews(decide), lacks).await?
        }
    };
    let Some(denied) = caller.denied_clusters() else { return Ok(found) };
    let looked_at = looked_at(resource, plan);
    let may_look = |cluster: &ClusterName| match (&looked_at, &caller.dispatched) {
        (Some(looked_at), Some(dispatched)) => !dispatched.denies_also(cluster, looked_at),
        _ => false,
    };
    let remaining = found.except(configuration.clusters.keys(), |cluster| denied.has(cluster) && !may_look(cluster));
    let is_somewhere = remaining.has_unknown() || denied.allowed_clusters().any(|cluster| remaining.has(cluster));
    match denied.refusal(|cluster| found.has(cluster)) {
        Some(refusal) if !is_somewhere => Err(refusal),
        _ => Ok(remaining),
    }
}

/// Returns whether a live list may exclude clusters where the caller's rights are unknown, as a list from memory does.
fn is_in_part(configuration: &ConfigurationSnapshot, resource: &ResourceRequest, plan: ResourcePlan) -> bool {
    plan == ResourcePlan::ListLive && configuration.policy(&resource.resource).partial == Partial::Allow
}

/// Returns the read action that makes a cluster a candidate although its policy refuses the request. If the caller may
/// perform this action, Tributary searches the object in the cluster too, and can refuse with the policy's message.
/// `None` if a cluster whose policy refuses the request is never a candidate.
fn looked_at(resource: &ResourceRequest, plan: ResourcePlan) -> Option<ResourceAttributes<'_>> {
    match plan {
        ResourcePlan::Owner(_) => {
            Some(ResourceAttributes { name: proxied_name(resource), ..attributes(resource, "get") })
        }
        ResourcePlan::Create => Some(attributes(resource, "list")),
        _ => None,
    }
}

/// Returns the clusters that both the request's selector and the resource's policy select; `None` for a malformed
/// selector.
fn wanted_clusters(policy: &ResourcePolicy, plan: ResourcePlan, query: Option<&str>) -> Option<ClusterSelector> {
    match plan {
        ResourcePlan::ListLive | ResourcePlan::DeleteCollection => {
            let options = ListOptions::parse(query, limits::SELECTOR).ok()?;
            let (_, wanted) = ClusterSelector::split(&options.label_selector).ok()?;
            Some(match &policy.clusters {
                Some(selected) => wanted.within(Arc::new(selected.clone())),
                None => wanted,
            })
        }
        _ => Some(ClusterSelector::default()),
    }
}

fn decide(request: ClientRequest<'_>, rights: &CallerRights, plan: ResourcePlan) -> Result<Candidates, Refusal> {
    let ClientRequest { configuration, caller, info, query, resource, .. } = request;
    let clusters = configuration.clusters.keys();
    let action = ResourceAttributes {
        verb: info.verb.as_str(),
        subresource: resource.subresource.as_deref().unwrap_or_default(),
        ..attributes(resource, "")
    };
    let request = Attributes::Resource(action);
    let candidates = |actions: &[ResourceAttributes<'_>]| {
        let actions: Vec<_> = actions.iter().copied().map(Attributes::Resource).collect();
        rights.candidates(clusters.clone(), &actions)
    };
    let doing = match plan {
        ResourcePlan::SelfReview if is_of_oneself(resource) => rights.existing(clusters.clone(), &request),
        _ => candidates(&[action]),
    };
    let candidates = match plan {
        ResourcePlan::SelfReview | ResourcePlan::Unlisted => doing.clone(),
        ResourcePlan::Create | ResourcePlan::DeleteCollection => candidates(&[action, attributes(resource, "list")]),
        ResourcePlan::List | ResourcePlan::ListLive | ResourcePlan::Watch => doing.clone(),
        ResourcePlan::Get { .. } | ResourcePlan::Owner(_) => {
            let name = proxied_name(resource);
            let object = ResourceAttributes { name, ..attributes(resource, "get") };
            candidates(&[action, object])
        }
    };
    // A user without rights in any cluster may still review its own identity, but not the identity of an impersonated
    // user.
    let is_own_identity = plan == ResourcePlan::SelfReview
        && &*resource.resource.resource == "selfsubjectreviews"
        && rights.actor().impersonated_user().is_none();
    // If no cluster allows the action, Tributary refuses the request before it searches the object, as kube-apiserver
    // does.
    let may_succeed = |doing: Candidates| !doing.is_empty() || doing.has_unknown();
    if is_own_identity || (!candidates.is_empty() && may_succeed(doing)) {
        return Ok(candidates);
    }
    if let Some(refusal) = rights.nobody(clusters, &request) {
        return Err(refusal);
    }
    // The refusal considers neither clusters that are not selected, nor clusters whose policies refuse the request.
    let wanted = wanted_clusters(configuration.policy(&resource.resource), plan, query);
    let is_wanted = |cluster: &ClusterName| wanted.as_ref().is_some_and(|wanted| wanted.matches(cluster));
    let has_unknown = match &wanted {
        Some(wanted) => candidates.is_one_unknown_of(wanted, |cluster| wanted.admits(cluster)),
        // A later stage refuses a malformed selector.
        None => candidates.has_unknown(),
    };
    if has_unknown {
        // Unknown rights are no reason for a 403. The list excludes clusters with unknown rights, and warns.
        if is_in_part(configuration, resource, plan) {
            return Ok(candidates);
        }
        let (resource, name) = (resource.resource.clone(), resource.name.clone().unwrap_or_default());
        return Err(ClusterRefusal::rights_unknown(resource, name).into());
    }
    let is_denied = |cluster: &ClusterName| caller.denied_clusters().is_some_and(|denied| denied.has(cluster));
    let requested_clusters = configuration.clusters.keys().filter(|cluster| is_wanted(cluster) && !is_denied(cluster));
    Err(rights.forbids_asked(requested_clusters, &action, &resource.resource))
}
