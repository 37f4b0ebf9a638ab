//! Resources of cluster-gateway (`cluster.core.oam.dev/v1alpha1`) at the aggregated entry.
//!
//! ```text
//! ForeignMember ──▶ ClusterGateway  get, list; health: get, update   no byte of a key or token
//!               └─▶ VirtualCluster  get, list
//! ```
//!
//! The hub has judged the request, so the answers contain all members. Source: oam-dev/cluster-gateway
//! `pkg/apis/cluster/v1alpha1`.

mod gateway;
mod gateway_kind;
mod table;
mod virtual_cluster;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;
use tributary_answers::answer;
use tributary_answers::negotiate::{Clause, IncludeObject, NotAcceptable};
use tributary_answers::refusal::{ClusterRefusal, Refusal, RequestRefusal, RouteRefusal};
use tributary_apimachinery::request_info::ResourceRequest;
use tributary_apimachinery::{
    ForeignDoors, ForeignSystem, GroupVersionResource, ListOptions, Query, RequestInfo, Status, Verb,
};
use tributary_fleet::foreign_groups::{CLUSTER_GATEWAY_GROUP, CLUSTER_GATEWAY_VERSION};
use tributary_fleet::foreign_member::ForeignMember;
use tributary_sharing::body::{Body, WHOLE_BODY_BYTES_MAX};
use tributary_sharing::flow::buffered_body::read_whole_within;
use tributary_sharing::limits;

use crate::Router;
use crate::caller::Caller;
use crate::configuration::ConfigurationSnapshot;
use crate::forward::buffered::unreadable;
use crate::received::ReceivedRequest;
use gateway::{Health, gateway_object};
use gateway_kind::{GatewayKind, api_version};
use table::Table;
use virtual_cluster::virtual_clusters;

const SYSTEM: ForeignSystem = ForeignSystem::ClusterGateway;
const GATEWAYS: &str = "clustergateways";
const VIRTUAL_CLUSTERS: &str = "virtualclusters";

/// Writes the health of a cluster to its Secret in the hub.
pub trait WriteGatewayHealth: Send + Sync {
    /// Sets cluster-gateway's two health annotations on the Secret of a cluster.
    ///
    /// The future returns the Status for the client if the hub refuses the change.
    fn write(&self, place: SecretPlace, health: GatewayHealth) -> BoxFuture<'static, Result<(), Status>>;
}

/// Namespace and name of a Secret in the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlace {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Health of a cluster, as a client reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayHealth {
    /// Whether the cluster is healthy.
    pub is_healthy: bool,
    /// Reason why the cluster is unhealthy; empty for a healthy cluster.
    pub reason: String,
}

/// Returns whether the door of cluster-gateway serves the resource of a request.
pub(crate) fn is_served(info: &RequestInfo, doors: &ForeignDoors) -> bool {
    doors.is_open(SYSTEM) && info.cluster.is_none() && info.resource().is_some_and(is_own)
}

/// Returns whether a request is for a resource of cluster-gateway.
pub(crate) fn is_own(request: &ResourceRequest) -> bool {
    let GroupVersionResource { group, version, resource } = &request.resource;
    let is_known = match request.subresource.as_deref() {
        None => matches!(&**resource, GATEWAYS | VIRTUAL_CLUSTERS),
        Some(below) => &**resource == GATEWAYS && below == "health" && request.rest.is_none(),
    };
    is_known
        && &**group == CLUSTER_GATEWAY_GROUP
        && &**version == CLUSTER_GATEWAY_VERSION
        && request.namespace.is_none()
}

/// Answers a request for a resource of cluster-gateway.
///
/// # Errors
/// 404 for an unknown cluster, and 500 for a read of its health, as in cluster-gateway; 400 for a malformed body; 405;
/// 406; the hub's answer if the health cannot be written.
pub(crate) async fn answer(
    router: &Router,
    configuration: &ConfigurationSnapshot,
    caller: &Caller,
    (message, received): (Request<Body>, ReceivedRequest<'_>),
) -> Result<Response<Body>, Refusal> {
    let request = received.info.resource().ok_or(Refusal::NoRoute)?;
    if caller.impersonates_another() {
        return Err(RequestRefusal::ReadForAnother { resource: request.resource.clone() }.into());
    }
    let (resource, name) = (&*request.resource.resource, request.name.as_deref());
    let kind = if resource == GATEWAYS { GatewayKind::ClusterGateway } else { GatewayKind::VirtualCluster };
    match (received.info.verb, name, request.subresource.is_some()) {
        (Verb::Get, Some(name), is_health) => {
            let objects = objects(kind, router, configuration);
            let object = objects.into_iter().find(|object| object["metadata"]["name"] == name);
            let object = object.ok_or_else(|| unknown(&request.resource, name, is_health))?;
            write_one(kind, message.headers(), received.query, object)
        }
        (Verb::List, None, false) => {
            let options = ListOptions::parse(received.query, limits::SELECTOR).map_err(Refusal::malformed)?;
            // A ClusterGateway shows no labels, and a VirtualCluster hides those of cluster-gateway. The Secret has
            // all.
            let selects = |object: &Value| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let secret = configuration.foreign.find(SYSTEM, name).map(|member| &member.labels);
                let label = |key: &str| {
                    let shown = object["metadata"]["labels"][key].as_str();
                    shown.or_else(|| Some(secret?.get(key)?.as_str()))
                };
                options.label_selector.requirements().iter().all(|own| own.matches(label(own.key())))
            };
            let items = objects(kind, router, configuration).into_iter().filter(selects).collect();
            write_list(kind, message.headers(), received.query, items)
        }
        (Verb::Update, Some(name), true) => {
            // cluster-gateway reads the Secret first, and answers 404 without it.
            let member = configuration.foreign.find(SYSTEM, name);
            let member = member.ok_or_else(|| unknown(&request.resource, name, false))?;
            update_health(router, caller, message, member).await
        }
        _ => Err(RouteRefusal::Method.into()),
    }
}

/// cluster-gateway answers a read of the health of an unknown cluster as a request below `proxy`.
fn unknown(resource: &GroupVersionResource, name: &str, is_health: bool) -> Refusal {
    let (resource, name) = (resource.clone(), name.to_owned());
    match is_health {
        true => ClusterRefusal::NotInSystem { system: SYSTEM, name }.into(),
        false => ClusterRefusal::NotFound { resource, name, warnings: Vec::new() }.into(),
    }
}

/// Returns all objects of a kind, in the order in which a list shows them.
fn objects(kind: GatewayKind, router: &Router, configuration: &ConfigurationSnapshot) -> Vec<Value> {
    let members = configuration.foreign.of_system(SYSTEM);
    match kind {
        GatewayKind::ClusterGateway => {
            members.map(|member| gateway_object(member, &health_of(router, member))).collect()
        }
        GatewayKind::VirtualCluster => virtual_clusters(members.map(|member| &**member)),
    }
}

/// Returns the health of a cluster, as Tributary sees it. A cluster is healthy if it has answered discovery and is
/// reachable.
fn health_of(router: &Router, member: &ForeignMember) -> Health {
    match router.fleet.cluster(&member.cluster) {
        Some(cluster) if cluster.discovery().is_some() && !cluster.is_out_of_reach() => Health::Healthy,
        Some(cluster) => Health::Unhealthy(format!("Unknown:{}", cluster.failure().cause)),
        None => Health::Unhealthy("ClusterGatewayNotRegistered".to_owned()),
    }
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Object,
    Table,
}

/// Chooses between the object and a Table, by the header `Accept`. cluster-gateway's objects have no other forms.
///
/// # Errors
/// 406 for a client that accepts neither JSON nor a Table in JSON.
fn shape(headers: &HeaderMap) -> Result<Shape, Refusal> {
    const JSON: &str = "application/json";
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok(Shape::Object);
    }
    let clauses = Clause::parse_all(accept);
    let mut known = clauses.iter().filter(|clause| clause.names(JSON)).filter_map(|clause| {
        let parameter = |key: &str| clause.parameters().find(|(own, _)| *own == key).map(|(_, value)| value);
        match (parameter("as"), parameter("v"), parameter("g")) {
            (None, ..) => Some(Shape::Object),
            (Some("Table"), Some("v1"), Some("meta.k8s.io")) => Some(Shape::Table),
            _ => None,
        }
    });
    let unavailable = || RequestRefusal::NotAcceptable(NotAcceptable::Unavailable { available: vec![JSON] }).into();
    known.next().ok_or_else(unavailable)
}

fn write_one(
    kind: GatewayKind,
    headers: &HeaderMap,
    query: Option<&str>,
    object: Value,
) -> Result<Response<Body>, Refusal> {
    let text = match shape(headers)? {
        Shape::Object => object,
        Shape::Table => Table::new(kind, [object], included(query)?).into_json(),
    };
    Ok(answer::json(StatusCode::OK, text.to_string()))
}

fn write_list(
    kind: GatewayKind,
    headers: &HeaderMap,
    query: Option<&str>,
    items: Vec<Value>,
) -> Result<Response<Body>, Refusal> {
    let text = match shape(headers)? {
        Shape::Object => serde_json::json!({
            "kind": format!("{}List", kind.as_str()),
            "apiVersion": api_version(),
            "metadata": {},
            "items": items,
        }),
        Shape::Table => Table::new(kind, items, included(query)?).into_json(),
    };
    Ok(answer::json(StatusCode::OK, text.to_string()))
}

/// Returns the value of `includeObject`: the part of the object that each row of a Table contains.
///
/// # Errors
/// 400 for an unknown value of the parameter.
fn included(query: Option<&str>) -> Result<IncludeObject, Refusal> {
    let query = Query::parse(query);
    let value = query.get("includeObject").unwrap_or_default();
    Ok(IncludeObject::parse(value).ok_or_else(|| RequestRefusal::IncludeObject { value: value.to_owned() })?)
}

/// Fields of a ClusterGateway that an update of its health reads.
#[derive(Deserialize)]
struct UpdatedGateway {
    #[serde(default)]
    metadata: UpdatedMetadata,
    #[serde(default)]
    status: UpdatedStatus,
}

#[derive(Default, Deserialize)]
struct UpdatedMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UpdatedStatus {
    healthy: bool,
    healthy_reason: String,
}

/// Maximum length of a reason in bytes, so that no client fills the annotations of a Secret. Tributary stores the
/// reason in an annotation.
const REASON_BYTES_MAX: usize = 1024;

async fn update_health(
    router: &Router,
    caller: &Caller,
    message: Request<Body>,
    member: &Arc<ForeignMember>,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = message.into_parts();
    let mut portion = router.held_bytes().acquire(caller.share_key, 0)?;
    let text = read_whole_within(body, WHOLE_BODY_BYTES_MAX, &mut portion).await.map_err(unreadable)?;
    let UpdatedGateway { metadata, status } = serde_json::from_slice(&text)
        .map_err(|error| Refusal::malformed(Status::bad_request(format!("the body is no ClusterGateway: {error}"))))?;
    if !metadata.name.is_empty() && metadata.name != member.name {
        let message =
            format!("the name of the object ({}) does not match the name on the URL ({})", metadata.name, member.name);
        return Err(Refusal::malformed(Status::bad_request(message)));
    }
    if status.healthy_reason.len() > REASON_BYTES_MAX {
        let message = format!("status.healthyReason is longer than {REASON_BYTES_MAX} bytes");
        return Err(Refusal::malformed(Status::bad_request(message)));
    }
    let health = GatewayHealth { is_healthy: status.healthy, reason: status.healthy_reason };
    if Query::parse(head.uri.query()).get("dryRun").is_none_or(str::is_empty) {
        let namespace = member.gateway.as_ref().map(|facts| facts.namespace.clone()).unwrap_or_default();
        let place = SecretPlace { namespace, name: member.name.clone() };
        let writer = router.gateway_health.get().ok_or(Refusal::NoRoute)?;
        writer.write(place, health.clone()).await.map_err(Refusal::malformed)?;
    }
    let health = if health.is_healthy { Health::Healthy } else { Health::Unhealthy(health.reason) };
    write_one(GatewayKind::ClusterGateway, &head.headers, head.uri.query(), gateway_object(member, &health))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_chooses_an_object_or_a_table() {
        const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
        const OLD_TABLE: &str = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        for (accept, expected) in [
            ("", Some(Shape::Object)),
            ("*/*", Some(Shape::Object)),
            ("application/json", Some(Shape::Object)),
            (&*format!("{TABLE},{OLD_TABLE},application/json"), Some(Shape::Table)),
            (&*format!("{OLD_TABLE},application/json"), Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf", None),
            (OLD_TABLE, None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(shape(&headers).ok(), expected, "{accept}");
        }
    }

    #[test]
    fn resources_of_cluster_gateway_are_recognized_by_group_and_shape() {
        let mut doors = ForeignDoors::default();
        doors.open(SYSTEM, [].into());
        for (path, expected) in [
            ("/apis/cluster.core.oam.dev/v1alpha1/clustergateways", true),
            ("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/eu", true),
            ("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/eu/health", true),
            ("/apis/cluster.core.oam.dev/v1alpha1/virtualclusters/eu", true),
            ("/apis/cluster.core.oam.dev/v1alpha1/virtualclusters/eu/health", false),
            ("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/eu/health/x", false),
            ("/apis/cluster.core.oam.dev/v1alpha1/namespaces/n/clustergateways", false),
            ("/apis/cluster.core.oam.dev/v1/clustergateways", false),
            ("/apis/cluster.core.oam.dev/v1alpha1/others", false),
            ("/apis/apps/v1alpha1/clustergateways", false),
        ] {
            let info = RequestInfo::parse("GET", path, None).unwrap();
            assert_eq!(is_served(&info, &doors), expected, "{path}");
            assert!(!is_served(&info, &ForeignDoors::default()), "{path}");
        }
    }
}
