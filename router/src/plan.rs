//! Plan of the answer to a request. The plan is a pure decision, so that a table in a test can cover it.

pub(crate) mod routes;

use std::sync::Arc;

use http::HeaderMap;
use tributary_answers::refusal::{Refusal, RequestRefusal, WatchRemedy};
use tributary_apimachinery::request_info::{RequestInfo, RequestTarget, ResourceRequest, Verb};
use tributary_apimachinery::{ClusterName, Door, Query};
use tributary_fleet::discovery::{DiscoveryPath, MergedDiscovery, ServedResource};
use tributary_fleet::metrics::RequestSource;

use crate::caller::Caller;
use crate::configuration::ConfigurationSnapshot;
use crate::received::ReceivedRequest;
use crate::{cluster_gateway, cluster_resource};

/// Source of an answer, and the steps to get the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan<'a> {
    /// A request to one cluster's own view: forwarded unchanged.
    Cluster(&'a ClusterName),
    /// A document of the merged discovery.
    Discovery(DiscoveryPath<'a>),
    /// `/healthz`, `/livez`, `/readyz` and their checks.
    Health,
    Version,
    /// A document below `/openapi`.
    OpenApi,
    /// The resource `clusters` of Tributary itself.
    Clusters,
    /// A resource of cluster-gateway at the aggregated entry.
    ClusterGateway,
    /// A request that Karmada's control plane answers.
    ControlPlane,
    /// A request of an API group of Karmada that the group's old server answers.
    OldServer,
    /// A discovery document that joins the documents of the members and of Karmada's control plane.
    JoinedDiscovery(DiscoveryPath<'a>),
    /// An OpenAPI document that joins the documents of the members and of Karmada's control plane.
    JoinedOpenApi,
    /// A resource: the clusters that serve the resource, and the plan for the request.
    Resource(Arc<ServedResource>, ResourcePlan),
}

impl Plan<'_> {
    pub(crate) fn source(&self) -> RequestSource {
        match self {
            Self::Cluster(_) | Self::ControlPlane | Self::OldServer => RequestSource::Member,
            Self::Discovery(_)
            | Self::Health
            | Self::Version
            | Self::OpenApi
            | Self::Clusters
            | Self::ClusterGateway
            | Self::JoinedDiscovery(_)
            | Self::JoinedOpenApi => RequestSource::Own,
            Self::Resource(_, ResourcePlan::Get { .. } | ResourcePlan::List | ResourcePlan::Watch) => {
                RequestSource::Memory
            }
            Self::Resource(..) => RequestSource::Member,
        }
    }

    /// Returns whether the route accepts HEAD. kube-apiserver's resource routes reject HEAD, except below `proxy`.
    /// Routes of documents are not checked here, because the plan has already checked their method.
    pub(crate) fn takes_head(&self, info: &RequestInfo) -> bool {
        match self {
            Self::Clusters | Self::ClusterGateway => false,
            Self::Resource(..) => info.resource().is_some_and(|it| it.subresource.as_deref() == Some("proxy")),
            _ => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourcePlan {
    /// Read an object from memory. If memory lacks the object, forward the get to the clusters that are excluded from
    /// the merged view, if any exist.
    Get {
        /// True if clusters are excluded from the merged view.
        or_elsewhere: bool,
    },
    List,
    Watch,
    /// List a collection that memory does not cache: send the list to each member.
    ListLive,
    /// Forward a request for one object to the cluster that owns the object.
    Owner(OwnerRequest),
    /// Create an object in the cluster that the request or the configuration names.
    Create,
    /// Delete a collection in every cluster that serves the resource.
    DeleteCollection,
    /// Send a review of the caller's own rights or identity to every cluster.
    SelfReview,
    /// Forward a path that no discovery document lists to the only cluster that serves its group and version.
    Unlisted,
}

/// Kind of a request for one object: whether Tributary translates its body, and the body of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerRequest {
    /// The bodies are objects: Tributary translates versions and the annotation in request and answer.
    Object,
    /// The bodies are no objects (`log`, `exec`, `proxy`, …): Tributary translates nothing.
    Streamed,
}

/// Decides whether the request has a route, and plans its answer: by the path, the method, the requested media types,
/// the caller and the objects in memory.
///
/// # Errors
/// [`Refusal::NoRoute`] for a path that no member serves: [`plan_answer`](crate::stages::plan::plan_answer) then renews
/// the discovery of all clusters. 405, 406 and 415 of the route. 403 for reads of all clusters under another user's
/// name. 405 for a watch of a resource that is not in memory.
pub(crate) fn plan<'a>(
    received: ReceivedRequest<'a>,
    headers: &HeaderMap,
    configuration: &ConfigurationSnapshot,
    caller: &Caller,
) -> Result<Plan<'a>, Refusal> {
    let ReceivedRequest { info, query, is_head, preferences, door, .. } = received;
    routes::check_door(door, info)?;
    let merged_discovery = &configuration.merged_discovery;
    let planned = match (&info.cluster, &info.target) {
        (Some(cluster), _) => Plan::Cluster(cluster),
        (None, RequestTarget::NonResource) => non_resource(info, merged_discovery)?,
        (None, RequestTarget::Resource(request)) if received.is_entry_path && cluster_gateway::is_own(request) => {
            Plan::ClusterGateway
        }
        (None, RequestTarget::Resource(request)) if cluster_resource::is_own(&request.resource) => {
            cluster_resource::check_route(info.verb, request).map(|()| Plan::Clusters)?
        }
        (None, RequestTarget::Resource(request)) => {
            let served = merged_discovery.get(&request.resource).ok_or(Refusal::NoRoute)?;
            Plan::Resource(Arc::clone(served), resource(info.verb, request, served)?)
        }
    };
    if is_head && !planned.takes_head(info) {
        return Err(Refusal::method());
    }
    let Plan::Resource(served, plan) = planned else { return Ok(planned) };
    routes::check_media_types(info.verb, &served.resource, plan, headers, preferences)?;
    if !info.verb.is_read() {
        return Ok(Plan::Resource(served, plan));
    }
    let namespace = info.resource().and_then(|resource| resource.namespace.as_deref());
    let plan = plan_by_cache(plan, &served, namespace, query, configuration, caller)?;
    Ok(Plan::Resource(served, plan))
}

/// Plans a request that only Karmada's own servers can answer, in part or completely. `None` for a request that the
/// members answer.
///
/// * At the aggregated entry: a request of an API group of Karmada goes to the group's old server.
/// * At the search proxy: a request for a resource that is not registered goes to the control plane.
/// * At the search proxy, and at the path for all clusters: discovery and OpenAPI join the members and the control
///   plane, and other paths without a resource go to the control plane.
pub(crate) fn plan_at_karmada<'a>(
    received: ReceivedRequest<'a>,
    configuration: &ConfigurationSnapshot,
) -> Option<Plan<'a>> {
    let ReceivedRequest { info, door, is_entry_path, .. } = received;
    let merged_discovery = &configuration.merged_discovery;
    match (door, &info.target) {
        _ if is_entry_path => is_of_karmada(info).then_some(Plan::OldServer),
        _ if info.cluster.is_some() => None,
        (Door::KarmadaSearch, RequestTarget::Resource(request)) => {
            let is_registered = match merged_discovery.get(&request.resource) {
                Some(served) => configuration.is_registered(served),
                None => configuration.policies.is_registered(&request.resource),
            };
            (!is_registered).then_some(Plan::ControlPlane)
        }
        (Door::KarmadaSearch | Door::KarmadaClusters, RequestTarget::NonResource) => {
            Some(match non_resource(info, merged_discovery) {
                Ok(Plan::Discovery(path)) => Plan::JoinedDiscovery(path),
                Ok(Plan::OpenApi) => Plan::JoinedOpenApi,
                _ => Plan::ControlPlane,
            })
        }
        _ => None,
    }
}

/// Returns whether a request is for a resource of Karmada's aggregated API groups.
pub(crate) fn is_of_karmada(info: &RequestInfo) -> bool {
    info.resource().is_some_and(|own| matches!(&*own.resource.group, "cluster.karmada.io" | "search.karmada.io"))
}

/// Adjusts the plan of a read to the objects in memory. In personal mode, memory has the objects that the kubeconfig's
/// user may see. So an impersonated get goes to the object's cluster, which checks the rights. Reads of resources that
/// are not in memory also go to the clusters.
fn plan_by_cache(
    plan: ResourcePlan,
    served: &ServedResource,
    namespace: Option<&str>,
    query: Option<&str>,
    configuration: &ConfigurationSnapshot,
    caller: &Caller,
) -> Result<ResourcePlan, Refusal> {
    let resource = &served.resource;
    let held = configuration.is_cached(served, namespace);
    match (plan, caller.impersonates_another(), held) {
        (ResourcePlan::Get { .. }, true, _) | (ResourcePlan::Get { .. }, _, false) => {
            Ok(ResourcePlan::Owner(OwnerRequest::Object))
        }
        // The object's owner has the newest state, and the lookup is one small request.
        (ResourcePlan::Get { .. }, ..) if configuration.asks_members(resource) && is_of_now(query) => {
            Ok(ResourcePlan::Owner(OwnerRequest::Object))
        }
        (ResourcePlan::Get { .. }, ..) => {
            Ok(ResourcePlan::Get { or_elsewhere: !configuration.left_out(served).is_empty() })
        }
        (ResourcePlan::List | ResourcePlan::Watch | ResourcePlan::ListLive, true, _) => {
            Err(RequestRefusal::ReadForAnother { resource: resource.clone() }.into())
        }
        (ResourcePlan::List, false, false) => Ok(ResourcePlan::ListLive),
        (ResourcePlan::Watch, false, false) => {
            let remedy = configuration.remedy(resource);
            Err(RequestRefusal::NotWatched { resource: resource.clone(), remedy }.into())
        }
        (plan, ..) => Ok(plan),
    }
}

/// Returns whether a read requests the newest state: it has no resourceVersion.
fn is_of_now(query: Option<&str>) -> bool {
    Query::parse(query).get("resourceVersion").is_none_or(str::is_empty)
}

fn non_resource<'a>(info: &'a RequestInfo, merged_discovery: &MergedDiscovery) -> Result<Plan<'a>, Refusal> {
    let plan = match first_segment(&info.path) {
        "healthz" | "livez" | "readyz" if !info.path.ends_with('/') => Plan::Health,
        "version" if info.path.trim_end_matches('/') == "/version" => Plan::Version,
        "openapi" => Plan::OpenApi,
        _ => {
            let path = DiscoveryPath::parse(&info.path).filter(|path| merged_discovery.has_document(path));
            path.map(Plan::Discovery).ok_or(Refusal::NoRoute)?
        }
    };
    match info.verb {
        Verb::NonResource("get") => Ok(plan),
        Verb::NonResource("head" | "options") if takes_any_read(&plan) => Ok(plan),
        _ => Err(Refusal::method()),
    }
}

fn first_segment(path: &str) -> &str {
    path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// Returns whether HEAD and OPTIONS are answered like GET. In kube-apiserver `/`, `/apis`, groups, health checks and
/// OpenAPI are plain handlers that ignore the method. `/version`, `/api` and the documents of versions are routes for
/// GET only.
fn takes_any_read(plan: &Plan<'_>) -> bool {
    match plan {
        Plan::Version => false,
        Plan::Discovery(document) => {
            matches!(document, DiscoveryPath::Root | DiscoveryPath::Groups | DiscoveryPath::Group(_))
        }
        _ => true,
    }
}

/// Returns whether kube-apiserver has a route for this combination of namespace, name and subresource. For an
/// aggregated server, subresources that discovery does not list are accepted, because the server may omit them from
/// discovery.
fn has_route(request: &ResourceRequest, served: &ServedResource) -> bool {
    let namespaced = served.description.namespaced();
    let in_its_place = match (&request.namespace, &request.name) {
        (Some(_), _) => namespaced,
        (None, Some(_)) => !namespaced,
        // A resource with only the verb `create` has no collection over all namespaces.
        (None, None) => !namespaced || !request.resource.is_built_in() || served.description.has_verb("list"),
    };
    let below = request.subresource.as_deref().is_none_or(|own| {
        let is_known = served.description.below(request).is_some();
        !request.resource.is_built_in() || (is_known && (request.rest.is_none() || own == "proxy"))
    });
    in_its_place && below
}

/// Returns whether the route accepts the verb. Routes of aggregated servers accept every verb, and the server decides.
fn takes(verb: Verb, request: &ResourceRequest, served: &ServedResource) -> bool {
    let below = request.subresource.as_deref();
    if let Verb::NonResource(method) = verb {
        return method == "options" && below == Some("proxy");
    }
    if !request.resource.is_built_in() {
        return true;
    }
    let description = &served.description;
    if below.is_some() {
        return description.below(request).is_some_and(|known| known.verbs.iter().any(|own| own == verb.as_str()));
    }
    match verb {
        // One route serves list and watch. If a resource can be listed but not watched, the watch handler itself
        // refuses the watch.
        Verb::List | Verb::Watch => description.has_verb("list"),
        Verb::Create | Verb::DeleteCollection if description.namespaced() && request.namespace.is_none() => false,
        verb => description.has_verb(verb.as_str()),
    }
}

fn resource(verb: Verb, request: &ResourceRequest, served: &ServedResource) -> Result<ResourcePlan, Refusal> {
    if !has_route(request, served) {
        return Err(Refusal::NoRoute);
    }
    if !takes(verb, request, served) {
        return Err(Refusal::method());
    }
    if request.subresource.is_some() {
        let kind = if request.is_streamed() { OwnerRequest::Streamed } else { OwnerRequest::Object };
        return Ok(ResourcePlan::Owner(kind));
    }
    let cached = !served.cacheable.is_empty();
    match verb {
        // Leader election writes a Lease with the resourceVersion that it has read. An outdated cached Lease would cost
        // a leader its leadership, so the get goes to the object's cluster.
        Verb::Get if !cached || is_lease(request) => Ok(ResourcePlan::Owner(OwnerRequest::Object)),
        Verb::Get => Ok(ResourcePlan::Get { or_elsewhere: false }),
        Verb::List if cached => Ok(ResourcePlan::List),
        Verb::List => Ok(ResourcePlan::ListLive),
        Verb::Watch if cached => Ok(ResourcePlan::Watch),
        Verb::Watch => {
            Err(RequestRefusal::NotWatched { resource: served.resource.clone(), remedy: WatchRemedy::List }.into())
        }
        Verb::Create if is_self_review(request) => Ok(ResourcePlan::SelfReview),
        Verb::Create => Ok(ResourcePlan::Create),
        Verb::DeleteCollection => Ok(ResourcePlan::DeleteCollection),
        Verb::Update | Verb::Patch | Verb::Delete => Ok(ResourcePlan::Owner(OwnerRequest::Object)),
        Verb::NonResource(_) => Err(Refusal::method()),
    }
}

fn is_lease(request: &ResourceRequest) -> bool {
    &*request.resource.group == "coordination.k8s.io" && &*request.resource.resource == "leases"
}

fn is_self_review(request: &ResourceRequest) -> bool {
    match &*request.resource.group {
        "authorization.k8s.io" => request.resource.resource.ends_with("reviews"),
        "authentication.k8s.io" => &*request.resource.resource == "selfsubjectreviews",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::Consistency;

    use super::*;
    use crate::request_context::RequestContext;
    use tributary_answers::negotiate::Preferences;
    use tributary_answers::refusal::RouteRefusal;
    use tributary_fleet::discovery::MemberDiscovery;
    use tributary_fleet::policy::Policies;

    /// Makes the discovery of a member that serves some resources, with the verbs of each resource.
    fn merged_discovery() -> MergedDiscovery {
        let resource = |name: &str, kind: &str, verbs: &[&str]| {
            let below: [(&str, &[&str]); 5] = [
                ("status", &["get", "patch", "update"]),
                ("log", &["get"]),
                ("exec", &["create", "get"]),
                ("proxy", &["create", "delete", "get", "patch", "update"]),
                ("eviction", &["create"]),
            ];
            let below = below.map(|(name, verbs)| serde_json::json!({"subresource": name, "verbs": verbs}));
            serde_json::json!({"resource": name, "responseKind": {"group": "", "version": "v1", "kind": kind}, "scope": "Namespaced",
                "singularResource": "", "verbs": verbs, "subresources": below})
        };
        let document = |group: &str, resources: Vec<serde_json::Value>| {
            serde_json::from_value(
                serde_json::json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "items": [{"metadata": {"name": group}, "versions": [{"version": "v1", "resources": resources}]}]}),
            )
            .unwrap()
        };
        let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        let mut named: tributary_fleet::discovery::model::GroupList =
            document("coordination.k8s.io", vec![resource("leases", "Lease", &all)]);
        named.items.extend(document("metrics.k8s.io", vec![resource("pods", "PodMetrics", &["get", "list"])]).items);
        named.items.extend(
            document(
                "authorization.k8s.io",
                vec![resource("localsubjectaccessreviews", "LocalSubjectAccessReview", &["create"])],
            )
            .items,
        );
        let core = vec![resource("pods", "Pod", &all), resource("bindings", "Binding", &["create"])];
        let member = MemberDiscovery { core: document("", core).into(), named: named.into() };
        MergedDiscovery::new(&[(ClusterName::new("a").unwrap(), Arc::new(member))])
    }

    fn configuration(policies: Policies) -> ConfigurationSnapshot {
        let (clusters, epochs) = (Arc::default(), Arc::default());
        ConfigurationSnapshot {
            dispatch: None,
            policies: Arc::new(policies),
            flow_control: Arc::default(),
            merged_discovery: Arc::new(merged_discovery()),
            clusters,
            epochs,
            foreign: Arc::default(),
        }
    }

    /// Headers that routes for patches need, and other routes ignore.
    const PATCH: &[(&str, &str)] = &[("content-type", "application/merge-patch+json")];

    fn planned(method: &str, target: &str) -> String {
        planned_with(method, target, PATCH, &configuration(Policies::default()))
    }

    fn planned_with(
        method: &str,
        target: &str,
        headers: &[(&'static str, &'static str)],
        configuration: &ConfigurationSnapshot,
    ) -> String {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let info = match RequestInfo::parse(method, path, query) {
            Ok(info) => info,
            Err(status) => return status.code.to_string(),
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
        let headers: HeaderMap = headers.collect();
        let preferences = Preferences::from_headers(&headers, query);
        let (is_head, may_switch) = (method == "HEAD", false);
        let received = ReceivedRequest {
            info: &info,
            query,
            is_head,
            may_switch,
            door: Door::Direct,
            is_entry_path: false,
            preferences: &preferences,
        };
        let context = RequestContext::for_user(&crate::User::named("test", "owner"), &http::Request::new(()));
        let caller = Caller::from_request(&headers, &context, None).unwrap();
        match plan(received, &headers, configuration, &caller) {
            Ok(Plan::Resource(_, ResourcePlan::Owner(kind))) => format!("Owner {kind:?}"),
            Ok(Plan::Resource(_, ResourcePlan::Get { or_elsewhere: false })) => "Get".to_owned(),
            Ok(Plan::Resource(_, plan)) => format!("{plan:?}"),
            Ok(plan) => format!("{plan:?}").split(['(', ' ']).next().unwrap_or_default().to_owned(),
            Err(refusal) => refused(&refusal).to_owned(),
        }
    }

    fn refused(refusal: &Refusal) -> &'static str {
        match refusal {
            Refusal::NoRoute => "NoRoute",
            Refusal::Route(refusal) => match **refusal {
                RouteRefusal::Method => "Route Method",
                RouteRefusal::UnnamedAtKarmada(_) => "Route UnnamedAtKarmada",
                RouteRefusal::ProxyService => "Route ProxyService",
                RouteRefusal::PatchFormat => "Route PatchFormat",
                RouteRefusal::NotAcceptable(_) => "Route NotAcceptable",
            },
            Refusal::Request(refusal) => match **refusal {
                RequestRefusal::ReadForAnother { .. } => "ReadForAnother",
                RequestRefusal::NotWatched { .. } => "NotWatched",
                _ => "another request",
            },
            _ => "another refusal",
        }
    }

    #[test]
    fn plan_reads_cached_collections_from_memory_and_others_from_members() {
        let policies = |change: fn(&mut Policies)| {
            let mut policies = Policies::default();
            change(&mut policies);
            configuration(policies)
        };
        let all = policies(|_| {});
        let none = policies(|policies| policies.registered = Some(Vec::new()));
        let quorum = policies(|policies| policies.default.consistency = Consistency::Quorum);
        let one = policies(|policies| policies.default.namespaces = Some(["n".to_owned()].into()));
        let (pod, pods) = ("/api/v1/namespaces/n/pods/p", "/api/v1/namespaces/n/pods");
        let nobody: &[(&str, &str)] = &[];
        let another: &[(&str, &str)] = &[("impersonate-user", "jane")];
        for (method, target, headers, configuration, expected) in [
            ("GET", pod, nobody, &all, "Get"),
            ("GET", pod, another, &all, "Owner Object"),
            ("GET", pod, nobody, &none, "Owner Object"),
            ("GET", pod, nobody, &quorum, "Owner Object"),
            ("GET", "/api/v1/namespaces/n/pods/p?resourceVersion=0", nobody, &quorum, "Get"),
            ("GET", "/apis/aggregation.tributary.dev/v1alpha1/clusters", nobody, &all, "Clusters"),
            ("GET", "/apis/aggregation.tributary.dev/v1alpha1/clusters?watch=1", nobody, &none, "Clusters"),
            ("DELETE", "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu", nobody, &all, "Route Method"),
            ("GET", "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy", nobody, &all, "NoRoute"),
            ("GET", "/apis/aggregation.tributary.dev/v1/clusters", nobody, &all, "NoRoute"),
            ("GET", pods, nobody, &all, "List"),
            ("GET", pods, another, &all, "ReadForAnother"),
            ("GET", pods, nobody, &none, "ListLive"),
            ("GET", pods, nobody, &quorum, "List"),
            ("GET", pods, nobody, &one, "List"),
            ("GET", "/api/v1/namespaces/m/pods", nobody, &one, "ListLive"),
            ("GET", "/api/v1/pods", nobody, &one, "ListLive"),
            ("GET", "/api/v1/pods?watch=1", nobody, &none, "NotWatched"),
            ("GET", "/api/v1/pods?watch=1", another, &all, "ReadForAnother"),
            ("GET", "/api/v1/namespaces/m/pods?watch=1", nobody, &one, "NotWatched"),
            ("GET", "/apis/metrics.k8s.io/v1/pods", another, &all, "ReadForAnother"),
            ("PUT", pod, another, &all, "Owner Object"),
            ("GET", "/clusters/a/api/v1/pods", another, &all, "Cluster"),
            ("GET", pods, &[("accept", "text/html")], &all, "Route NotAcceptable"),
            ("PATCH", pod, &[("content-type", "application/json")], &all, "Route PatchFormat"),
        ] {
            assert_eq!(planned_with(method, target, headers, configuration), expected, "{method} {target}");
        }
    }

    #[test]
    fn plan_chooses_the_source_of_each_answer() {
        let cases = [
            ("GET", "/api/v1/pods", "List"),
            ("GET", "/api/v1/pods?watch=1", "Watch"),
            ("GET", "/api/v1/watch/pods", "Watch"),
            ("GET", "/api/v1/namespaces/n/pods/p", "Get"),
            ("HEAD", "/api/v1/namespaces/n/pods/p", "Route Method"),
            ("HEAD", "/api/v1/namespaces/n/pods/p/proxy/x", "Owner Streamed"),
            ("GET", "/api/v1/namespaces/n/pods/p/status", "Owner Object"),
            ("GET", "/api/v1/namespaces/n/pods/p/log?follow=true", "Owner Streamed"),
            ("POST", "/api/v1/namespaces/n/pods/p/exec?command=sh", "Owner Streamed"),
            // A client opens a WebSocket by GET (kubernikus#996), so a GET of `exec` goes to the member.
            ("GET", "/api/v1/namespaces/n/pods/p/exec?command=sh", "Owner Streamed"),
            ("GET", "/api/v1/namespaces/n/pods/p/proxy/x/y", "Owner Streamed"),
            ("POST", "/api/v1/namespaces/n/pods/p/eviction", "Owner Object"),
            ("GET", "/api/v1/namespaces/n/pods/p/nothing", "NoRoute"),
            ("GET", "/api/v1/namespaces/n/pods/p/status/more", "NoRoute"),
            ("GET", "/api/v1/pods/p", "NoRoute"),
            ("GET", "/apis/metrics.k8s.io/v1/namespaces/n/pods/p/undiscovered", "Owner Object"),
            ("POST", "/api/v1/namespaces/n/pods", "Create"),
            ("PUT", "/api/v1/namespaces/n/pods/p", "Owner Object"),
            ("PATCH", "/api/v1/namespaces/n/pods/p", "Owner Object"),
            ("DELETE", "/api/v1/namespaces/n/pods/p", "Owner Object"),
            ("DELETE", "/api/v1/namespaces/n/pods", "DeleteCollection"),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "Owner Object"),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/n/leases", "List"),
            ("GET", "/apis/metrics.k8s.io/v1/pods", "ListLive"),
            ("GET", "/apis/metrics.k8s.io/v1/pods?watch=true", "NotWatched"),
            ("GET", "/apis/metrics.k8s.io/v1/namespaces/n/pods/p", "Owner Object"),
            ("POST", "/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews", "SelfReview"),
            ("GET", "/apis/authorization.k8s.io/v1/namespaces/n/localsubjectaccessreviews", "Route Method"),
            ("GET", "/api/v1/bindings", "NoRoute"),
            ("POST", "/api/v1/bindings", "NoRoute"),
            ("GET", "/api/v1/namespaces/n/bindings", "Route Method"),
            ("POST", "/api/v1/namespaces/n/bindings", "Create"),
            ("POST", "/api/v1/pods", "Route Method"),
            ("DELETE", "/api/v1/pods", "Route Method"),
            ("PUT", "/api/v1/namespaces/n/pods", "Route Method"),
            ("POST", "/api/v1/namespaces/n/pods/p", "Route Method"),
            ("POST", "/api/v1/namespaces/n/pods/p/status", "Route Method"),
            ("GET", "/api/v1/namespaces/n/pods/p/eviction", "Route Method"),
            ("OPTIONS", "/api/v1/namespaces/n/pods/p", "Route Method"),
            ("OPTIONS", "/api/v1/namespaces/n/pods/p/nothing", "NoRoute"),
            ("OPTIONS", "/api/v1/namespaces/n/pods/p/proxy/x", "Owner Streamed"),
            ("FETCH", "/api/v1/namespaces/n/pods/p/proxy/x", "Route Method"),
            ("FETCH", "/apis/metrics.k8s.io/v1/pods", "Route Method"),
            ("FETCH", "/apis/nobody.io/v1/things", "NoRoute"),
            ("POST", "/api/v1/watch/pods", "Route Method"),
            ("POST", "/api", "Route Method"),
            ("HEAD", "/api", "Route Method"),
            ("OPTIONS", "/api/v1", "Route Method"),
            ("HEAD", "/version", "Route Method"),
            ("HEAD", "/apis", "Discovery"),
            ("OPTIONS", "/", "Discovery"),
            ("OPTIONS", "/apis/metrics.k8s.io", "Discovery"),
            ("HEAD", "/apis/metrics.k8s.io/v1", "Route Method"),
            ("OPTIONS", "/openapi/v2", "OpenApi"),
            ("HEAD", "/livez", "Health"),
            ("GET", "/livez/", "NoRoute"),
            ("FETCH", "/livez", "Route Method"),
            ("OPTIONS", "/nowhere", "NoRoute"),
            ("POST", "/readyz", "Route Method"),
            ("GET", "/apis/nobody.io", "NoRoute"),
            ("GET", "/apis/nobody.io/v1", "NoRoute"),
            ("GET", "/apis/nobody.io/v1/things", "NoRoute"),
            ("GET", "/clusters/a/api/v1/pods", "Cluster"),
            ("GET", "/api", "Discovery"),
            ("GET", "/apis/metrics.k8s.io/v1", "Discovery"),
            ("GET", "/version", "Version"),
            ("GET", "/version/", "Version"),
            ("GET", "/version/x", "NoRoute"),
            ("GET", "/openapi/v3/api/v1", "OpenApi"),
            ("GET", "/readyz", "Health"),
            ("GET", "/logs/kubelet.log", "NoRoute"),
            ("GET", "/api/v1/namespaces/n/pods/../secrets", "404"),
        ];
        for (method, target, expected) in cases {
            assert_eq!(planned(method, target), expected, "{method} {target}");
        }
    }
}
