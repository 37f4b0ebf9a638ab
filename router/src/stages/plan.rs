//! Planning of the answer to a request. [`plan`](crate::plan) has the pure function that decides.

use std::sync::Arc;

use http::HeaderMap;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::{ClusterName, Door, RequestInfo, Verb};
use tributary_fleet::topology::Cluster;

use super::staged_request::StagedRequest;
use crate::caller::Caller;
use crate::configuration::ConfigurationSnapshot;
use crate::plan::{Plan, ResourcePlan, plan, plan_at_karmada};
use crate::{Router, asked, cluster_resource, forward};

/// `Retry-After`, in seconds, of the refusal of a resource that no discovery contains, while a cluster without
/// discovery may serve it.
const UNDISCOVERED_RETRY_AFTER: u32 = 5;

/// Plan, and the configuration that the plan uses.
pub(crate) struct PlannedAnswer<'a> {
    pub(crate) plan: Plan<'a>,
    /// The newer configuration after a renewal of all clusters' discovery. Boxed, because a renewal is rare.
    pub(crate) renewed: Option<Box<ConfigurationSnapshot>>,
}

/// Plans the answer, and records its source for logs and metrics. If no cluster is known to serve the path, renews the
/// discovery of all clusters first: a cluster may have begun to serve the path.
///
/// # Errors
/// The errors of [`plan`](crate::plan::plan). For a resource that a cluster may serve: 404, 429 or 503.
pub(crate) async fn plan_answer<'a>(
    request: &StagedRequest<'a>,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<PlannedAnswer<'a>, Refusal> {
    let received = request.received;
    let has_karmada = request.router.karmada().is_some();
    let planned = {
        let _planning = request.trace.stage("plan");
        match plan_at_karmada(received, request.configuration).filter(|_| has_karmada) {
            Some(planned) => Ok(planned),
            None => plan(received, headers, request.configuration, caller),
        }
    };
    let planned = match planned {
        Err(Refusal::NoRoute) if may_be_new(received.info) => Box::pin(plan_anew(request, caller, headers)).await,
        planned => planned.map(|plan| PlannedAnswer { plan, renewed: None }),
    };
    let is_of_all = received.door == Door::KarmadaSearch && received.info.cluster.is_none();
    let planned = match planned {
        Err(Refusal::NoRoute) if is_of_all && has_karmada => PlannedAnswer { plan: Plan::ControlPlane, renewed: None },
        planned => planned?,
    };
    request.trace.record_source(planned.plan.source());
    Ok(planned)
}

/// Returns whether a renewal of discovery can find a cluster that serves the path.
fn may_be_new(info: &RequestInfo) -> bool {
    let is_own = || info.resource().is_some_and(|request| cluster_resource::is_own(&request.resource));
    info.cluster.is_none() && info.path.starts_with("/api") && !is_own()
}

async fn plan_anew<'a>(
    request: &StagedRequest<'a>,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<PlannedAnswer<'a>, Refusal> {
    let (router, received) = (request.router, request.received);
    router.fleet().refresh(|_| true).await;
    let configuration = router.configuration();
    let plan = match plan(received, headers, &configuration, caller) {
        Err(Refusal::NoRoute) => match received.info.resource().and_then(|resource| configuration.unlisted(resource)) {
            Some(served) => Plan::Resource(Arc::new(served), ResourcePlan::Unlisted),
            None => return Err(router.unless_undiscovered(&configuration, received.info, caller).await),
        },
        planned => planned?,
    };
    Ok(PlannedAnswer { plan, renewed: Some(Box::new(configuration)) })
}

impl Router {
    /// Refuses a resource that no discovery contains. If the discovery of a cluster is missing, out of date, or without
    /// a description of the version, the cluster may serve the resource. The answer must then not look like the answer
    /// for a deleted object, and a client may repeat a list or watch.
    async fn unless_undiscovered(
        &self,
        configuration: &ConfigurationSnapshot,
        info: &RequestInfo,
        caller: &Caller,
    ) -> Refusal {
        let Some(request) = info.resource() else { return Refusal::NoRoute };
        let is_unknown = |cluster: &Arc<Cluster>| {
            !configuration.has_discovery(cluster)
                || cluster.undescribed(&request.resource).is_some()
                || cluster.outdated(&request.resource).is_some() && !cluster.is_out_of_reach()
        };
        let clusters = &configuration.clusters;
        let unheard: Vec<_> = clusters.values().filter(|own| is_unknown(own)).collect();
        let told = asked::may_know(&unheard, caller, info.verb, request).await;
        let names: Vec<_> = unheard.iter().map(|own| own.name().clone()).filter(|name| told.has(name)).collect();
        let resource = &request.resource;
        if names.is_empty() && told.has_unknown() {
            let (resource, name) = (resource.clone(), request.name.clone().unwrap_or_default());
            return ClusterRefusal::rights_unknown(resource, name).into();
        }
        if names.is_empty() {
            return Refusal::NoRoute;
        }
        match info.verb {
            Verb::List | Verb::Watch => {
                let needs_repair = |name: &ClusterName| clusters[name].needs_repair(resource);
                let retry_after = (!names.iter().any(needs_repair)).then_some(UNDISCOVERED_RETRY_AFTER);
                ClusterRefusal::unread(resource, names, retry_after).into()
            }
            _ => {
                let name = request.name.clone().unwrap_or_default();
                let undescribed = names.iter().filter_map(|name| self.fleet.cluster(name));
                let undescribed = undescribed.filter(|cluster| cluster.undescribed(resource).is_some());
                let told: Vec<_> = undescribed.map(|cluster| cluster.undescribed_trouble(resource)).collect();
                let unknown = forward::owner::UnknownClusters { clusters: &names, failures: &told };
                unknown.refuse(&self.fleet, resource.clone(), name).into()
            }
        }
    }
}
