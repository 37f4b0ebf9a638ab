//! Decides who answers a request, a cacher or a cluster, and joins the two.
//!
//! ```text
//! RequestInfo::parse → plan (pure) ─┬─ Get, List, Watch  → read::*   (memory)      ─┐
//!                                   ├─ Owner, Create, …  → write::*  (one cluster) ─┼─▶ answer
//!                                   └─ Discovery, Health → documents               ─┘
//! every error is a Status; one function here turns it into an answer
//! ```
//!
//! This is the only crate that sees cachers, merge and proxy at once.

pub mod body;
mod deadline;
pub mod discovery;
pub mod health;
pub mod limits;
pub mod metrics;
pub mod negotiate;
pub mod openapi;
pub mod plan;
pub mod policy;
pub mod read;
pub mod response;
mod routes;
pub mod topology;
pub mod turns;
pub mod view;
pub mod views;
pub mod write;

pub use body::{Body, BoxError};
pub use limits::Limits;
pub use metrics::Metrics;
pub use policy::{Consistency, ItemResourceVersions, Policies, Policy, ResourcePattern};
pub use topology::ClusterSetup;
pub use turns::Peer;
pub use view::Partial;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{ClusterName, ClusterSelector, GroupVersionResource, Query, RequestInfo, Status, Verb};
use tributary_merge::Epochs;

use discovery::storage_versions::{self, StorageVersionHashes};
use discovery::{DiscoveryPath, ServedResource, Union, documents};
use metrics::RequestLabels;
use negotiate::Preferences;
use openapi::OpenApi;
use plan::{OwnerRequest, Plan, ResourcePlan, plan};
use read::Asked;
use read::version::Versions;
use topology::{Cluster, EndpointMetrics, Fleet};
use turns::Lanes;
use view::{KNOWN_WITHIN, Standing, View, standing};
use views::Views;
use write::Call;

/// When a client is to come back that asks for a resource which only clusters that were not asked yet may serve, in seconds.
const UNDISCOVERED_RETRY_AFTER: u32 = 5;

/// Who sends a request, as authentication found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
}

/// Keeps the lists of clusters that compact resourceVersions refer to, beyond this process.
pub type KeepEpochs = Box<dyn Fn(&Epochs) + Send + Sync>;

/// What a router starts with.
#[derive(Default)]
pub struct RouterConfig {
    /// How resources are treated.
    pub policies: Policies,
    /// The lists of clusters that compact resourceVersions may refer to, as the data directory keeps them.
    pub epochs: Epochs,
    /// Is given the lists when they change, to keep them.
    pub keep_epochs: Option<KeepEpochs>,
    /// What is held at most.
    pub limits: Limits,
    /// Whether no other process serves the same clients. Only then can a watch go on from the integer of one object: the
    /// places of the other clusters are taken from this process's log, which is no other's.
    pub alone: bool,
}

/// Answers requests. One per process; shared by all connections.
pub struct Router {
    fleet: Arc<Fleet>,
    views: Arc<Views>,
    policies: Arc<ArcSwap<Policies>>,
    epochs: ArcSwap<Epochs>,
    metrics: Arc<Metrics>,
    lanes: Arc<Lanes>,
    draining: CancellationToken,
    alone: bool,
    openapi: OpenApi,
}

impl Router {
    /// A router without clusters. Must be called within a tokio runtime.
    pub fn new(config: RouterConfig) -> Arc<Self> {
        let (fleet, metrics) = (Fleet::new(), Arc::new(Metrics::default()));
        metrics.set_limits(&config.limits);
        let endpoints = EndpointMetrics::of(&fleet);
        metrics.register(|registry| registry.register_collector(Box::new(endpoints)));
        let policies = Arc::new(ArcSwap::from_pointee(config.policies));
        let views = Views::new(Arc::clone(&fleet), Arc::clone(&policies), Arc::clone(&metrics), config.limits.clone());
        let router = Arc::new(Self {
            views,
            policies,
            epochs: ArcSwap::from_pointee(config.epochs),
            lanes: Lanes::new(config.limits.long_answers, &metrics.lanes),
            metrics,
            draining: CancellationToken::new(),
            alone: config.alone,
            openapi: OpenApi::new(Arc::clone(&fleet)),
            fleet,
        });
        router.follow_identities(config.keep_epochs);
        router
    }

    /// Takes over a new set of clusters, at start and whenever the configuration changes.
    pub fn set_clusters(&self, clusters: Vec<ClusterSetup>) {
        self.fleet.set(clusters);
    }

    /// Takes over new policies. Lists and watches that are open go on under the old ones, but that clusters which are selected or
    /// no longer selected come and go in them at once.
    pub fn set_policies(&self, policies: Policies) {
        self.policies.store(Arc::new(policies));
        for view in self.views.all() {
            view.follow_fleet();
        }
    }

    /// Waits until each cluster has been asked once what it serves, or the time is up.
    pub async fn asked_once(&self, within: Duration) {
        self.fleet.asked_once(within).await;
    }

    /// Pairs of clusters that have one kube-system uid: one member under two names.
    pub fn same_cluster_twice(&self) -> Option<(ClusterName, ClusterName)> {
        let clusters = self.fleet.clusters();
        let known: Vec<_> =
            clusters.values().filter_map(|cluster| Some((cluster.name().clone(), cluster.uid()?))).collect();
        known.iter().enumerate().find_map(|(at, (name, uid))| {
            let twin = known[at + 1..].iter().find(|(_, other)| other == uid)?;
            Some((name.clone(), twin.0.clone()))
        })
    }

    /// Each cluster and what is wrong with it, by name.
    pub fn cluster_problems(&self) -> Vec<(ClusterName, Option<String>)> {
        self.fleet.clusters().values().map(|cluster| (cluster.name().clone(), cluster.problem())).collect()
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Ends watches with a last bookmark, and makes `/readyz` fail. Other requests are still answered.
    pub fn drain(&self) {
        self.draining.cancel();
        for view in self.views.all() {
            view.wake();
        }
    }

    /// Answers one request. Never fails: an error is a Status. Dropping the future cancels what it started.
    pub async fn handle(self: &Arc<Self>, request: Request<Body>, user: &User) -> Response<Body> {
        let started = Instant::now();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().map(str::to_owned);
        let parsed = RequestInfo::parse(request.method().as_str(), &path, query.as_deref());
        let head_only = request.method() == http::Method::HEAD;
        let preferences = Preferences::of(request.headers(), query.as_deref());
        let (labels, mut response) = match parsed {
            Ok(info) => {
                let answer = self.answer_in_time(request, &info, query.as_deref(), &preferences, user).await;
                let refused = |status: Status| self.refuse(&status, &preferences, &info);
                (request_labels(&info, &self.fleet.union()), answer.unwrap_or_else(refused))
            }
            Err(status) => (RequestLabels::unparsed(), response::status(&status, preferences.error_form())),
        };
        if head_only {
            *response.body_mut() = body::empty();
        }
        self.metrics.observe(RequestLabels { code: response.status().as_u16(), ..labels }, started.elapsed());
        response
    }

    /// Answers within the limit that the request sets itself.
    async fn answer_in_time(
        self: &Arc<Self>,
        request: Request<Body>,
        info: &RequestInfo,
        query: Option<&str>,
        preferences: &Preferences,
        user: &User,
    ) -> Result<Response<Body>, Status> {
        let limit = deadline::of(info, query)?;
        let answer = self.answer(request, info, query, preferences, user);
        match limit {
            None => answer.await,
            Some(limit) => {
                tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(Status::request_timed_out()))
            }
        }
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<Body>,
        info: &RequestInfo,
        query: Option<&str>,
        preferences: &Preferences,
        user: &User,
    ) -> Result<Response<Body>, Status> {
        tracing::debug!(user = user.name, verb = %info.verb, path = info.path, "request");
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
        let planned = self.without_memory(planned, &request, namespace)?;
        match planned {
            Plan::Cluster(cluster) => self.forward_to_cluster(request, info, cluster, query).await,
            Plan::Discovery(path) => {
                let (head, _) = request.into_parts();
                self.discover(&head, &path).await
            }
            Plan::Health => {
                let clusters = self.fleet.clusters();
                let refusals = || self.views.refusals();
                Ok(health::answer(&info.path, query, clusters.values(), refusals, self.draining.is_cancelled()))
            }
            Plan::Version => self.version(preferences),
            Plan::OpenApi => self.openapi.answer(&info.path, query, request.headers()).await,
            Plan::Resource(served, plan) => {
                let resource = info.resource().ok_or_else(Status::path_not_found)?;
                let peer = request.extensions().get().copied();
                let asked = Asked { info, request: resource, query, headers: request.headers(), preferences, peer };
                let call = Call { router: self, info, resource, query, served: &served, preferences };
                match plan {
                    ResourcePlan::Get => match read::get::get(self, asked, &served).await {
                        // It may be in a cluster that the view does not hold.
                        Err(status) if status.code == 404 && !self.left_out(&served).is_empty() => {
                            write::owner::to_owner(call, request, OwnerRequest::Object).await
                        }
                        answer => answer,
                    },
                    ResourcePlan::List => read::list::list(self, asked, &served).await,
                    ResourcePlan::Watch => read::watch::watch(self, asked, &served).await,
                    ResourcePlan::ListLive => read::live::list(self, asked, &served).await,
                    ResourcePlan::Owner(kind) => write::owner::to_owner(call, request, kind).await,
                    ResourcePlan::Create => write::create::create(call, request).await,
                    ResourcePlan::DeleteCollection => write::fan_out::delete_collection(call, request).await,
                    ResourcePlan::SelfReview => write::self_review::self_review(call, request).await,
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
        let status = Status::owner_unknown(resource, name, unknown);
        let mut clusters = unknown.iter().filter_map(|name| self.fleet.cluster(name));
        if clusters.any(|cluster| write::forward::is_gone(&cluster)) {
            write::forward::without_retry(status)
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
        namespace: Option<&str>,
    ) -> Result<Plan<'a>, Status> {
        let Plan::Resource(served, plan) = plan else { return Ok(plan) };
        let resource = &served.resource;
        let held = self.is_held(&served, namespace);
        let plan = match (plan, write::forward::impersonates(request.headers()), held) {
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
                if let Some(view) = self.views.all().iter().find(|view| view.kind.resource == request.resource) {
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

    /// The epochs of compact versions.
    pub(crate) fn epochs(&self) -> Arc<Epochs> {
        self.epochs.load_full()
    }

    /// How a resource is treated.
    pub(crate) fn policy(&self, resource: &tributary_apimachinery::GroupVersionResource) -> Policy {
        self.policies.load().of(resource).clone()
    }

    /// The form of the versions that a resource's objects carry. Cost: a walk over the rules, without an allocation.
    pub(crate) fn items(&self, resource: &tributary_apimachinery::GroupVersionResource) -> ItemResourceVersions {
        self.policies.load().of(resource).item_resource_versions
    }

    /// Reads and writes the versions of a resource.
    pub(crate) fn versions(&self, resource: &tributary_apimachinery::GroupVersionResource) -> Versions {
        Versions::new(self.epochs(), self.items(resource), self.fleet.clusters())
    }

    /// As [`versions`](Self::versions), of an object whose resource is not known: integers are read if any resource has them.
    pub(crate) fn versions_of_any(&self) -> Versions {
        let any = self.policies.load().any_integer();
        let items = if any { ItemResourceVersions::Integer } else { ItemResourceVersions::Composite };
        Versions::new(self.epochs(), items, self.fleet.clusters())
    }

    /// Whether no other process serves the same clients.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether a resource's objects of a place are held in memory: of a namespace, or of all (`None`).
    pub(crate) fn is_held(&self, served: &ServedResource, namespace: Option<&str>) -> bool {
        let (policies, resource) = (self.policies.load(), &served.resource);
        !served.cacheable.is_empty()
            && policies.is_registered(resource)
            && policies.of(resource).holds(served.description.namespaced(), namespace)
    }

    /// Whether reads of the newest ask the members.
    pub(crate) fn asks_members(&self, resource: &tributary_apimachinery::GroupVersionResource) -> bool {
        self.policies.load().of(resource).consistency == Consistency::Quorum
    }

    /// The clusters that serve a resource and are not part of its merged view.
    pub(crate) fn left_out(&self, served: &ServedResource) -> Vec<ClusterName> {
        let policies = self.policies.load();
        let policy = policies.of(&served.resource);
        if policy.clusters.is_none() {
            return Vec::new();
        }
        let clusters = self.fleet.clusters();
        let left_out = clusters.values().filter(|cluster| !policy.selects(cluster.name()));
        // One that has not told yet what it serves may serve this.
        let serving =
            left_out.filter(|cluster| served.clusters.contains(cluster.name()) || cluster.discovery().is_none());
        serving.map(|cluster| cluster.name().clone()).collect()
    }

    /// What can be done where a resource cannot be watched for want of memory.
    fn remedy(&self, resource: &tributary_apimachinery::GroupVersionResource) -> String {
        let policies = self.policies.load();
        match &policies.of(resource).namespaces {
            Some(held) if policies.is_registered(resource) => {
                let held: Vec<_> = held.iter().map(String::as_str).collect();
                format!(
                    "a ResourceRegistry holds its objects of these namespaces only (spec.namespaces): {}; watch one of them, or \
                     one cluster under /clusters/<name>",
                    held.join(", ")
                )
            }
            _ => {
                "add it to --resources or to a ResourceRegistry, or watch one cluster under /clusters/<name>".to_owned()
            }
        }
    }

    /// The members.
    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The views.
    pub(crate) fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// Who may write long answers.
    pub(crate) fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Ends when watches are to end.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// The view for a read of one name: whichever holds the namespace, and how its clusters stand. Waits only for first
    /// attempts.
    pub(crate) async fn view(
        &self,
        served: &ServedResource,
        namespace: Option<&str>,
    ) -> (Arc<View>, Vec<(ClusterName, Standing)>) {
        let (view, standings) = self.view_of(served, namespace, &ClusterSelector::default(), Partial::Allow).await;
        let standings = standings.unwrap_or_else(|_| view.standings());
        (view, standings)
    }

    /// The view for a read of the clusters that are wanted, and how these stand. Where a member forbids the collection of all
    /// namespaces and one is asked for, the view of that namespace takes its place.
    ///
    /// # Errors
    /// (beside the view) 429 where clusters are unknown and a partial answer is denied.
    pub(crate) async fn view_of(
        &self,
        served: &ServedResource,
        namespace: Option<&str>,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> (Arc<View>, Result<Vec<(ClusterName, Standing)>, Status>) {
        let (view, standings) = self.held(served, namespace, wanted, partial).await;
        let standings = standings.map(|mut standings| {
            let policies = self.policies.load();
            let policy = policies.of(&served.resource);
            standings
                .extend(served.left_out().filter(|(cluster, _)| policy.selects(cluster) && wanted.matches(cluster)));
            standings
        });
        (view, standings)
    }

    async fn held(
        &self,
        served: &ServedResource,
        namespace: Option<&str>,
        wanted: &ClusterSelector,
        partial: Partial,
    ) -> (Arc<View>, Result<Vec<(ClusterName, Standing)>, Status>) {
        let deadline = Instant::now() + KNOWN_WITHIN;
        let own = self.policies.load().of(&served.resource).view_of(served.description.namespaced(), namespace);
        let view = self.views.get_or_start(served, own).await;
        // With a partial answer allowed this is never refused.
        let standings = view.known(Partial::Allow, wanted, deadline).await;
        let standings = standings.unwrap_or_else(|_| view.standings_of(wanted));
        let is_forbidden = |standing: &Standing| matches!(standing, Standing::Unknown { forbidden: true, .. });
        let view = match namespace {
            Some(namespace) if own.is_none() && standings.iter().any(|(_, standing)| is_forbidden(standing)) => {
                self.views.get_or_start(served, Some(namespace)).await
            }
            _ if partial == Partial::Allow || standings.iter().all(|(_, standing)| standing.is_known()) => {
                return (view, Ok(standings));
            }
            _ => view,
        };
        let standings = view.known(partial, wanted, deadline).await;
        (view, standings)
    }

    /// The version of the oldest server: a client that asks may rely on what it offers in every cluster.
    fn version(&self, preferences: &Preferences) -> Result<Response<Body>, Status> {
        preferences.admit_json()?;
        match self.fleet.oldest_version() {
            Some(version) => Ok(response::json(StatusCode::OK, version.text.clone())),
            None => Err(self.nobody("told its version yet")),
        }
    }

    /// 503 where every cluster would have to be asked first: it names what is wrong with them.
    fn nobody(&self, what: &str) -> Status {
        let clusters = self.fleet.clusters();
        let problems =
            clusters.values().filter_map(|cluster| Some(format!("{}: {}", cluster.name(), cluster.problem()?)));
        let problems: Vec<_> = problems.take(10).collect();
        Status::service_unavailable(format!("no cluster has {what}; {}", problems.join("; ")))
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

    /// Keeps the epochs of compact versions at the identities of the clusters as they are now.
    fn follow_identities(self: &Arc<Self>, keep: Option<KeepEpochs>) {
        let (weak, mut changes) = (Arc::downgrade(self), self.fleet.changes());
        let reported = Mutex::new(None);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(router) = weak.upgrade() else { break };
                router.update_epochs(keep.as_deref());
                let twins = router.same_cluster_twice();
                let mut reported = reported.lock();
                if let Some((first, second)) = &twins
                    && *reported != twins
                {
                    tracing::error!(%first, %second, "two contexts lead to one cluster (one kube-system uid): its objects are shown under the first alone; remove one");
                }
                *reported = twins;
            }
        });
    }

    fn update_epochs(&self, keep: Option<&(dyn Fn(&Epochs) + Send + Sync)>) {
        let clusters = self.fleet.clusters();
        let identities: Option<Vec<_>> =
            clusters.values().map(|cluster| Some((cluster.name().clone(), cluster.uid()?.to_string()))).collect();
        let Some(identities) = identities.filter(|identities| !identities.is_empty()) else { return };
        let mut epochs = (*self.epochs()).clone();
        if epochs.update(identities) {
            if let Some(keep) = keep {
                keep(&epochs);
            }
            self.epochs.store(Arc::new(epochs));
        }
    }
}

impl RequestLabels {
    /// The labels of a request whose path cannot be read.
    fn unparsed() -> Self {
        let empty = String::new;
        Self {
            verb: empty(),
            group: empty(),
            version: empty(),
            resource: empty(),
            subresource: empty(),
            scope: empty(),
            source: empty(),
            code: StatusCode::BAD_REQUEST.as_u16(),
        }
    }
}

/// The labels of a request. What no member serves is not named: a client could make series without end.
fn request_labels(info: &RequestInfo, union: &Union) -> RequestLabels {
    let mut labels = RequestLabels::unparsed();
    labels.verb = match info.verb {
        Verb::Create => "POST".into(),
        Verb::Update => "PUT".into(),
        verb => verb.as_str().to_uppercase(),
    };
    labels.source = if info.cluster.is_some() { "member" } else { "merged" }.into();
    if let Some((request, served)) = info.resource().and_then(|request| Some((request, union.get(&request.resource)?)))
    {
        let subresources = &served.description.subresources;
        let known = |own: &&String| subresources.iter().any(|subresource| subresource.subresource == **own);
        labels.group = request.resource.group.to_string();
        labels.version = request.resource.version.to_string();
        labels.resource = request.resource.resource.to_string();
        labels.subresource = request.subresource.as_ref().filter(known).cloned().unwrap_or_default();
        labels.scope = match (&request.name, &request.namespace) {
            (Some(_), _) => "resource",
            (None, Some(_)) => "namespace",
            (None, None) => "cluster",
        }
        .into();
    }
    labels
}

/// Whether a read asks for the newest: it names no version.
fn is_of_now(query: Option<&str>) -> bool {
    Query::parse(query).get("resourceVersion").is_none_or(str::is_empty)
}
