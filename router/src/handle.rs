//! One request, from its plan to its answer: who is asked, and what a refusal looks like.

use std::pin::pin;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, GroupVersionResource, Query, RequestClass, RequestInfo, Status, Verb};
use tributary_proxy::Identity;

use crate::body::{self, Body};
use crate::discovery::storage_versions::{self, StorageVersionHashes};
use crate::discovery::{DiscoveryPath, documents};
use crate::flow::fair_share::{Exceeded, Holder, Portion};
use crate::forward::Call;
use crate::memory::Asked;
use crate::metrics::RequestLabels;
use crate::negotiate::Preferences;
use crate::plan::routes;
use crate::plan::{OwnerRequest, Plan, ResourcePlan, is_health_check, plan};
use crate::topology::Cluster;
use crate::view::standing;
use crate::{Router, User, deadline, forward, health, limits, memory, response};

/// When a client is to come back that asks for a resource which only clusters that were not asked yet may serve, in seconds.
const UNDISCOVERED_RETRY_AFTER: u32 = 5;

impl Router {
    /// Answers one request. Never fails: an error is a Status. Dropping the future cancels what it started.
    pub async fn handle(self: &Arc<Self>, mut request: Request<Body>, user: &User) -> Response<Body> {
        let started = Instant::now();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().map(str::to_owned);
        let parsed = RequestInfo::parse(request.method().as_str(), &path, query.as_deref());
        let head_only = request.method() == http::Method::HEAD;
        let preferences = Preferences::of(request.headers(), query.as_deref());
        let class = parsed.as_ref().map_or(RequestClass::Short, RequestInfo::class);
        let (labels, mut response) = match parsed {
            Ok(info) => {
                tracing::debug!(user = user.name, verb = %info.verb, path, "request");
                // Whoever sends it on to a member goes by this one reading of it.
                request.extensions_mut().insert(class);
                let place = self.admitted(&info, request.extensions().get().copied());
                let answer = match &place {
                    Ok(_) => {
                        let answer = pin!(self.answer(request, &info, query.as_deref(), &preferences));
                        deadline::within(&info, query.as_deref(), self.request_timeout(), answer).await
                    }
                    Err(exceeded) => Err((*exceeded).into()),
                };
                let refused = |status: Status| self.refuse(&status, &preferences, &info);
                (RequestLabels::of(&info, &self.fleet.union()), answer.unwrap_or_else(refused))
            }
            Err(status) => (RequestLabels::unparsed(), response::status(&status, preferences.error_form())),
        };
        if head_only {
            *response.body_mut() = body::empty();
        }
        // How long its reader may take is judged by the connection.
        response.extensions_mut().insert(class);
        self.metrics.observe(RequestLabels { code: response.status().as_u16(), ..labels }, started.elapsed());
        response
    }

    /// A place among the requests in flight, where the request takes one: what lasts does not, and health checks always pass.
    fn admitted(&self, info: &RequestInfo, holder: Holder) -> Result<Option<Portion>, Exceeded> {
        if info.class().is_long_running() || is_health_check(info) {
            return Ok(None);
        }
        self.requests().take(holder, 1).map(Some)
    }

    /// What asks a member is boxed: only what is answered from memory shall decide how much each request's future takes.
    async fn answer(
        self: &Arc<Self>,
        request: Request<Body>,
        info: &RequestInfo,
        query: Option<&str>,
        preferences: &Preferences,
    ) -> Result<Response<Body>, Status> {
        limits::admit(info, query)?;
        let identity = forward::send::identity(request.headers())?;
        let planned = match plan(info, &self.fleet.union()) {
            Err(status) if status.code == 404 && info.path.starts_with("/api") => {
                self.fleet.refresh_unknown().await;
                plan(info, &self.fleet.union()).map_err(|status| self.unless_undiscovered(status, info))?
            }
            planned => planned?,
        };
        if request.method() == http::Method::HEAD && !planned.takes_head(info) {
            return Err(Status::method_not_allowed());
        }
        if let Plan::Resource(served, plan) = &planned {
            routes::admit(info.verb, &served.resource, *plan, request.headers(), preferences)?;
        }
        let namespace = info.resource().and_then(|resource| resource.namespace.as_deref());
        let as_another = matches!(identity, Identity::AsGiven(_));
        let planned = self.without_memory(planned, &request, as_another, namespace)?;
        match planned {
            Plan::Cluster(cluster) => Box::pin(self.forward_to_cluster(request, info, cluster, query)).await,
            Plan::Discovery(path) => {
                let (head, _) = request.into_parts();
                Box::pin(self.discover(&head, &path)).await
            }
            Plan::Health => {
                let clusters = self.fleet.clusters();
                let refusals = || self.views.refusals();
                Ok(health::answer(&info.path, query, clusters.values(), refusals, self.draining.is_cancelled()))
            }
            Plan::Version => self.version(preferences),
            Plan::OpenApi => Box::pin(self.openapi.answer(&info.path, query, request.headers())).await,
            Plan::Resource(served, plan) => {
                let resource = info.resource().ok_or_else(Status::path_not_found)?;
                let peer = request.extensions().get().copied();
                let asked = Asked { info, request: resource, query, headers: request.headers(), preferences, peer };
                let call = Call { router: self, info, resource, query, served: &served, preferences };
                match plan {
                    ResourcePlan::Get => match memory::get::get(self, asked, &served).await {
                        // It may be in a cluster that the view does not hold.
                        Err(status) if status.code == 404 && !self.left_out(&served).is_empty() => {
                            Box::pin(forward::owner::to_owner(call, request, OwnerRequest::Object)).await
                        }
                        answer => answer,
                    },
                    ResourcePlan::List => memory::list::list(self, asked, &served).await,
                    ResourcePlan::Watch => memory::watch::watch(self, asked, &served).await,
                    ResourcePlan::ListLive => Box::pin(forward::list::list(self, asked, &served)).await,
                    ResourcePlan::Owner(kind) => Box::pin(forward::owner::to_owner(call, request, kind)).await,
                    ResourcePlan::Create => Box::pin(forward::create::create(call, request)).await,
                    ResourcePlan::DeleteCollection => {
                        Box::pin(forward::delete_collection::delete_collection(call, request)).await
                    }
                    ResourcePlan::SelfReview => Box::pin(forward::self_review::self_review(call, request)).await,
                }
            }
        }
    }

    /// A resource that no known cluster serves may be one of a cluster that has not told yet what it serves, or of an aggregated
    /// server that does not answer: then it is not known to be missing, and a controller must not read it as gone. What can be
    /// listed or watched is to be waited for.
    fn unless_undiscovered(&self, status: Status, info: &RequestInfo) -> Status {
        let Some(request) = info.resource().filter(|_| status.code == 404) else { return status };
        let version = request.resource.group_version();
        let is_unknown = |cluster: &Arc<Cluster>| cluster.discovery().is_none_or(|own| own.is_stale(&version));
        let clusters = self.fleet.clusters();
        let names: Vec<_> = clusters.iter().filter(|(_, own)| is_unknown(own)).map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return status;
        }
        if matches!(info.verb, Verb::List | Verb::Watch) {
            return Status::clusters_unknown(&request.resource, &names, UNDISCOVERED_RETRY_AFTER);
        }
        self.owner_unknown(&request.resource, request.name.as_deref().unwrap_or_default(), &names)
    }

    /// 503: not found in the clusters that are known. The advice to come again soon is given where these may soon be known, too.
    pub(crate) fn owner_unknown(&self, resource: &GroupVersionResource, name: &str, unknown: &[ClusterName]) -> Status {
        let clusters: Vec<_> = unknown.iter().filter_map(|name| self.fleet.cluster(name)).collect();
        let troubles: Vec<_> = clusters.iter().map(|cluster| cluster.trouble()).collect();
        let status = Status::owner_unknown(resource, name, &troubles);
        if clusters.iter().any(|cluster| forward::send::is_gone(cluster)) {
            status.without_retry_after()
        } else {
            status
        }
    }

    /// A request in another user's name goes live to its one cluster, for the member to judge: memory holds what our own
    /// rights can see. Resources that are not registered are asked for live, too.
    fn without_memory<'a>(
        &self,
        plan: Plan<'a>,
        request: &Request<Body>,
        as_another: bool,
        namespace: Option<&str>,
    ) -> Result<Plan<'a>, Status> {
        let Plan::Resource(served, plan) = plan else { return Ok(plan) };
        let resource = &served.resource;
        let held = self.is_held(&served, namespace);
        let plan = match (plan, as_another, held) {
            (ResourcePlan::Get, true, _) | (ResourcePlan::Get, _, false) => ResourcePlan::Owner(OwnerRequest::Object),
            // Its owner knows best, and one small request is all that it costs.
            (ResourcePlan::Get, ..) if self.asks_members(resource) && is_of_now(request.uri().query()) => {
                ResourcePlan::Owner(OwnerRequest::Object)
            }
            (ResourcePlan::List | ResourcePlan::Watch | ResourcePlan::ListLive, true, _) => {
                let cause = "reads of all clusters cannot be made in another user's name; ask one cluster under /clusters/<name>";
                return Err(Status::forbidden(Some(resource), "", cause));
            }
            (ResourcePlan::List, false, false) => ResourcePlan::ListLive,
            (ResourcePlan::Watch, false, false) => {
                return Err(Status::watch_not_registered(resource, &self.remedy(resource)));
            }
            (plan, ..) => plan,
        };
        Ok(Plan::Resource(served, plan))
    }

    /// A Status as the answer.
    fn refuse(&self, status: &Status, preferences: &Preferences, info: &RequestInfo) -> Response<Body> {
        let without_route = *status == Status::path_not_found();
        if without_route && info.cluster.is_none() && !self.has_root(&info.path) {
            return response::page_not_found();
        }
        let mut response = response::status(status, preferences.error_form());
        match info.resource() {
            Some(request) if info.cluster.is_none() && !routes::has_refused(status) => {
                // Refused reads are warned of a deprecated version, too.
                if let Some(view) = self.views.all().find(|view| view.kind.resource == request.resource) {
                    view.warnings.add_to(response.headers_mut());
                }
            }
            // client-go shows nobody the message of such a Status (`newUnstructuredResponseError`), but prints Warnings; and
            // discovery comes before all else that kubectl does.
            None if status.code == StatusCode::SERVICE_UNAVAILABLE.as_u16() => {
                response
                    .headers_mut()
                    .extend(standing::warning_header(&status.message).map(|it| (header::WARNING, it)));
            }
            _ => {}
        }
        response
    }

    /// Whether kube-apiserver answers for all paths that begin as this one does: below `/api`, and below groups that exist.
    fn has_root(&self, path: &str) -> bool {
        let mut segments = path.split('/').skip(1);
        match (segments.next(), segments.next()) {
            (Some("api"), _) | (Some("apis"), None | Some("")) => true,
            (Some("apis"), Some(group)) => self.fleet.union().has_document(&DiscoveryPath::Group(group)),
            _ => false,
        }
    }

    /// The version of the oldest server: a client that asks may rely on what it offers in every cluster.
    fn version(&self, preferences: &Preferences) -> Result<Response<Body>, Status> {
        preferences.admit_json()?;
        match self.fleet.oldest_version() {
            Some(version) => Ok(response::json(StatusCode::OK, version.text.clone())),
            None => Err(self.nobody("said its version yet")),
        }
    }

    /// 503 where every cluster would have to be asked first: it names what is wrong with them.
    fn nobody(&self, what: &str) -> Status {
        let clusters = self.fleet.clusters();
        let troubles: Vec<_> = clusters.values().take(10).map(|cluster| cluster.trouble().to_string()).collect();
        Status::service_unavailable(format!("no cluster has {what}; {}", troubles.join("; ")))
    }

    async fn discover(&self, request: &Parts, path: &DiscoveryPath<'_>) -> Result<Response<Body>, Status> {
        let union = self.fleet.union();
        let accept = request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let wish = documents::negotiate(accept, path)?;
        if wish.aggregated {
            let document = union.aggregated(*path == DiscoveryPath::Core).clone();
            return Ok(documents::answer(&request.headers, document, wish));
        }
        let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let address = host.or(request.uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
        let hashes = match path {
            DiscoveryPath::Version(group, version) => {
                storage_versions::hashes(&self.fleet, &union, group, version).await
            }
            _ => StorageVersionHashes::new(),
        };
        let document = documents::legacy(&union, path, address, &hashes).ok_or_else(Status::path_not_found)?;
        Ok(documents::answer(&request.headers, document, wish))
    }
}

/// Whether a read asks for the newest: it names no version.
fn is_of_now(query: Option<&str>) -> bool {
    Query::parse(query).get("resourceVersion").is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RouterConfig;

    /// What a request in flight may take, in bytes. HTTP/2 keeps one place for a request and, later, its body, so that an idle
    /// watch holds this much; the benchmark allows it 20 KB with all that it has of connection and stream.
    const FUTURE_BYTES_MAX: usize = 8 << 10;

    #[tokio::test]
    async fn a_request_in_flight_is_small() {
        let router = Router::new(RouterConfig::default());
        let user = User { name: "somebody".to_owned() };
        let bytes = size_of_val(&router.handle(Request::new(body::empty()), &user));
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes} bytes");
    }
}
