//! Execution of a request's plan: an answer from memory, or requests to members.

use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use tributary_answers::answer;
use tributary_answers::negotiate::Preferences;
use tributary_answers::refusal::{MemberRefusal, Refusal};
use tributary_apimachinery::{RequestInfo, Verb};
use tributary_fleet::discovery::documents::StorageVersionHashes;
use tributary_fleet::discovery::{DiscoveryPath, documents};
use tributary_fleet::openapi::OpenApiRequest;
use tributary_fleet::report::{self, Report};
use tributary_fleet::topology::KindReader;
use tributary_rights::Candidates;
use tributary_sharing::body::Body;

use super::plan::PlannedAnswer;
use super::staged_request::StagedRequest;
use crate::caller::Caller;
use crate::candidates_by_plan::candidates_by_plan;
use crate::forward::one_object;
use crate::plan::{OwnerRequest, Plan, ResourcePlan};
use crate::received::ReceivedRequest;
use crate::request::ClientRequest;
use crate::{Router, cluster_gateway, cluster_resource, forward, health, memory, response};

/// Executes a plan. Futures that send requests to members are boxed, so that they do not increase the future of
/// requests that memory answers.
///
/// # Errors
/// Errors of memory, of a member or of Tributary's own documents.
pub(crate) async fn answer_planned(
    request: &StagedRequest<'_>,
    caller: &Caller,
    message: Request<Body>,
    planned: PlannedAnswer<'_>,
) -> Result<Response<Body>, Refusal> {
    let (router, received) = (request.router, request.received);
    let ReceivedRequest { info, query, preferences, .. } = received;
    let configuration = planned.renewed.as_deref().unwrap_or(request.configuration);
    match planned.plan {
        Plan::Cluster(cluster) => {
            Box::pin(forward::one_cluster::forward(router, configuration, caller, message, received, cluster)).await
        }
        Plan::ControlPlane => Box::pin(forward::karmada::forward(router, caller, message, (info, query))).await,
        Plan::OldServer => Box::pin(forward::karmada::relay(router, caller, message, (info, query))).await,
        Plan::JoinedDiscovery(path) => {
            let (head, _) = message.into_parts();
            Box::pin(forward::karmada::discover(router, caller, head, received, &path)).await
        }
        Plan::JoinedOpenApi => {
            let document = Box::pin(forward::karmada::openapi(router, caller, message, received)).await;
            document.map_err(|refusal| router.hide_cluster_names(refusal))
        }
        Plan::Discovery(path) => {
            let (head, _) = message.into_parts();
            Box::pin(router.discover(&head, &path)).await
        }
        Plan::Health => {
            if caller.rights().is_some() && health::requests_clusters(&info.path, query) {
                request.trace.record_by_clusters();
            }
            Box::pin(router.health(info, query, caller)).await
        }
        Plan::Version => router.version(preferences).map_err(|refusal| router.hide_cluster_names(refusal)),
        Plan::OpenApi => {
            let wish = OpenApiRequest { path: &info.path, query, headers: message.headers(), door: received.door };
            let document = Box::pin(router.openapi.answer_request(wish)).await;
            document.map_err(|refusal| router.hide_cluster_names(refusal))
        }
        Plan::Clusters => Box::pin(cluster_resource::answer(router, caller, received)).await,
        Plan::ClusterGateway => {
            Box::pin(cluster_gateway::answer(router, configuration, caller, (message, received))).await
        }
        Plan::Resource(served, plan) => {
            let resource = info.resource().ok_or(Refusal::NoRoute)?;
            let (served, candidates) = (&*served, &Candidates::default());
            let request =
                ClientRequest { router, configuration, caller, candidates, info, resource, query, served, preferences };
            answer_resource(request, message, plan).await
        }
    }
}

/// Executes the plan of a request for a resource.
async fn answer_resource(
    request: ClientRequest<'_>,
    message: Request<Body>,
    plan: ResourcePlan,
) -> Result<Response<Body>, Refusal> {
    let ClientRequest { configuration, caller, resource, served, .. } = request;
    if let Some(dispatched) = &caller.dispatched {
        dispatched.pass_clusters(configuration.having(served), caller.trace.as_ref());
    }
    let candidates = match plan {
        // Answers from memory need no candidates, because they check the rights for each object.
        ResourcePlan::Get { .. } | ResourcePlan::List | ResourcePlan::Watch => Candidates::default(),
        _ => {
            let _authorizing = caller.stage("authorize");
            candidates_by_plan(request, plan).await?
        }
    };
    let request = request.about(resource, served, &candidates);
    let answer = match plan {
        ResourcePlan::Get { or_elsewhere } => Box::pin(get(request, message, or_elsewhere)).await,
        ResourcePlan::List => Box::pin(list(request)).await,
        ResourcePlan::Watch => {
            let _stage = request.caller.stage("memory");
            Box::pin(memory::watch::watch(request)).await
        }
        ResourcePlan::ListLive => Box::pin(forward::list::list(request, &[])).await,
        ResourcePlan::Owner(OwnerRequest::Streamed) => Box::pin(one_object::pass_to_owner(request, message)).await,
        ResourcePlan::Owner(OwnerRequest::Object) if request.info.verb == Verb::Get => {
            Box::pin(one_object::get(request, message)).await
        }
        ResourcePlan::Owner(OwnerRequest::Object) => Box::pin(one_object::write(request, message)).await,
        ResourcePlan::Create => Box::pin(forward::create::create(request, message)).await,
        ResourcePlan::DeleteCollection => {
            Box::pin(forward::delete_collection::delete_collection(request, message)).await
        }
        ResourcePlan::Unlisted => Box::pin(forward::unlisted::to_only_cluster(request, message)).await,
        ResourcePlan::SelfReview => Box::pin(forward::self_review::self_review(request, message)).await,
    }?;
    // The reader is recorded only after an answer: recorded readers cause requests to clusters, and a refused caller
    // must not cause these.
    match plan {
        ResourcePlan::List | ResourcePlan::ListLive => request.record_reader(KindReader::List),
        ResourcePlan::Watch => request.record_reader(KindReader::Watch),
        _ => {}
    }
    Ok(answer)
}

/// Answers a get from memory. If memory does not show the object, forwards the get to clusters.
async fn get(
    request: ClientRequest<'_>,
    message: Request<Body>,
    or_elsewhere: bool,
) -> Result<Response<Body>, Refusal> {
    let stage = request.caller.stage("memory");
    let lacks = |answer: &Result<Response<Body>, Refusal>| answer.as_ref().is_err_and(Refusal::is_about_unknown_rights);
    let answer = match request.caller.rights() {
        Some(rights) => rights.with_joining(|| memory::get::get(request), lacks).await,
        None => memory::get::get(request).await,
    };
    drop(stage);
    match answer {
        Err(Refusal::NotCached(_)) => {}
        Err(refusal) if refusal.may_be_elsewhere() && (or_elsewhere || request.is_live_somewhere()) => {}
        answer => return answer,
    }
    // These clusters include clusters whose objects memory does not cache.
    let candidates = candidates_by_plan(request, ResourcePlan::Get { or_elsewhere }).await?;
    let request = request.about(request.resource, request.served, &candidates);
    Box::pin(one_object::get(request, message)).await
}

/// Answers a list from memory, or by lists of the clusters if memory lacks a part of the collection.
async fn list(request: ClientRequest<'_>) -> Result<Response<Body>, Refusal> {
    let stage = request.caller.stage("memory");
    let answer = Box::pin(memory::list::list(request)).await;
    drop(stage);
    let Err(Refusal::NotCached(lacking)) = answer else { return answer };
    let candidates = candidates_by_plan(request, ResourcePlan::ListLive).await?;
    let request = request.about(request.resource, request.served, &candidates);
    Box::pin(forward::list::list(request, &lacking.uncached)).await
}

impl Router {
    /// Answers a health check: about Tributary and, for users who may see the report, about the clusters.
    async fn health(
        &self,
        info: &RequestInfo,
        query: Option<&str>,
        caller: &Caller,
    ) -> Result<Response<Body>, Refusal> {
        let draining = self.is_leaving();
        let requests_clusters = health::requests_clusters(&info.path, query);
        let mut shows_clusters = health::shows_clusters(&info.path, query, draining);
        // Every user may send health checks, but not every user may see names of clusters. The plain answer `ok` has no
        // names.
        if requests_clusters || shows_clusters {
            match caller.may_get_non_resource_url(report::PATH).await {
                Err(refusal) if requests_clusters => return Err(refusal),
                // While the process drains, users without the permission get the same answer as others, but without
                // names of clusters.
                permission => shows_clusters &= permission.is_ok(),
            }
        }
        let report = if shows_clusters { self.report().await } else { Report::default() };
        Ok(health::answer_check(&info.path, query, &report, draining))
    }

    /// Answers `/version` with the version of the oldest server, because the features of this version exist in every
    /// cluster.
    fn version(&self, preferences: &Preferences) -> Result<Response<Body>, Refusal> {
        preferences.fits_json_route()?;
        match self.fleet.oldest_version() {
            Some(version) => Ok(answer::json(StatusCode::OK, version.text.clone())),
            None => Err(self.no_cluster_answered("reported its version yet").into()),
        }
    }

    /// Returns the refusal in the form that every user may see. In shared mode this form names no cluster.
    fn hide_cluster_names(&self, refusal: Refusal) -> Refusal {
        if self.rights.is_some() { refusal.without_names() } else { refusal }
    }

    /// Returns the 503 if no cluster has answered yet, with the failures of the clusters.
    fn no_cluster_answered(&self, what: &'static str) -> MemberRefusal {
        let failures = self.fleet.clusters().values().map(|cluster| cluster.failure()).collect();
        MemberRefusal::Unreported { what, failures }
    }

    pub(crate) async fn discover(&self, request: &Parts, path: &DiscoveryPath<'_>) -> Result<Response<Body>, Refusal> {
        let merged_discovery = self.fleet.merged_discovery();
        let accept = request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let wish = documents::negotiate(accept, path)?;
        if wish.aggregated {
            let document = merged_discovery.aggregated(*path == DiscoveryPath::Core).clone();
            return Ok(response::discovery::answer_document(&request.headers, document, wish));
        }
        let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let address = host.or(request.uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
        let hashes = match path {
            DiscoveryPath::Version(group, version) => {
                let dispatch = self.dispatch.current();
                forward::storage_versions::hashes(
                    &self.fleet,
                    &merged_discovery,
                    (*group, *version),
                    dispatch.as_deref(),
                )
                .await
            }
            _ => StorageVersionHashes::new(),
        };
        let document = documents::legacy(&merged_discovery, path, address, &hashes).ok_or(Refusal::NoRoute)?;
        Ok(response::discovery::answer_document(&request.headers, document, wish))
    }
}
