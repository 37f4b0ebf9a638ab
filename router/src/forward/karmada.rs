//! Requests at the doors of Karmada that Karmada's own servers answer: its control plane, which is the hub, and the old
//! servers of its aggregated API groups.
//!
//! In Karmada itself, such requests have Karmada's rights (karmada-io/karmada#5485). Tributary impersonates the caller
//! instead, so that the caller's rights in the server decide.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tributary_answers::refusal::{MemberRefusal, Refusal, RequestRefusal};
use tributary_answers::warnings::warning_header;
use tributary_apimachinery::permit::RequestPermit;
use tributary_apimachinery::{RequestInfo, Status, StatusReason};
use tributary_fleet::discovery::document::Document;
use tributary_fleet::discovery::{DiscoveryPath, documents};
use tributary_fleet::openapi::{self, OpenApiRequest, V3_PATH};
use tributary_proxy::{ClusterClient, ForwardContext};
use tributary_sharing::body::{self, Body};
use tributary_sharing::flow::buffered_body::read_whole_within;

use super::long_running::LongRunningRequest;
use super::send::target;
use crate::Router;
use crate::caller::Caller;
use crate::received::ReceivedRequest;
use crate::response::discovery::answer_document;

/// Maximal size of a discovery document or of an index, in bytes. Aggregated discovery of a kube-apiserver with a
/// thousand custom resources has about 2 MB.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Time for which a discovery document of the control plane is reused for all callers: the members' documents, which
/// are the same for all users, do not change faster.
const DOCUMENT_TTL: Duration = Duration::from_secs(10);

/// Clients of Karmada's own servers. The account of each client must be allowed to impersonate users and groups.
pub struct KarmadaServers {
    /// Karmada's control plane, which is the hub.
    control_plane: ClusterClient,
    /// The old servers of aggregated API groups, by group.
    by_group: BTreeMap<String, ClusterClient>,
    /// Discovery documents of the control plane, by path and whether they are aggregated. Tributary asks only for paths
    /// with a document of the members, so their number is bounded.
    documents: Mutex<HashMap<(String, bool), CachedDocument>>,
}

/// Discovery document of the control plane.
#[derive(Clone)]
struct CachedDocument {
    read_at: Instant,
    document: Arc<Value>,
}

impl KarmadaServers {
    /// Creates the clients' owner. `control_plane` is the hub; `by_group` has the old servers of aggregated API groups.
    pub fn new(control_plane: ClusterClient, by_group: BTreeMap<String, ClusterClient>) -> Self {
        Self { control_plane, by_group, documents: Mutex::default() }
    }

    /// Returns the server that answers a request: the old server of its API group, or else the control plane. The
    /// control plane can send the requests of such a group to Tributary, so they would come back.
    fn server_of(&self, info: &RequestInfo) -> &ClusterClient {
        self.old_server_of(info).unwrap_or(&self.control_plane)
    }

    fn old_server_of(&self, info: &RequestInfo) -> Option<&ClusterClient> {
        self.by_group.get(group_of(info)?)
    }
}

/// Returns the API group of a request's resource or document.
fn group_of(info: &RequestInfo) -> Option<&str> {
    if let Some(request) = info.resource() {
        return Some(&request.resource.group);
    }
    let path = info.path.strip_prefix(V3_PATH).unwrap_or(&info.path);
    path.strip_prefix("/apis/")?.split('/').next()
}

const AGGREGATED: HeaderValue =
    HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Sends a request as the caller to the control plane, or to the old server of its API group, and streams the answer.
///
/// # Errors
/// 403 for a caller that the control plane may not see; the cause of a missing answer.
pub(crate) async fn forward(
    router: &Router,
    caller: &Caller,
    request: Request<Body>,
    (info, query): (&RequestInfo, Option<&str>),
) -> Result<Response<Body>, Refusal> {
    let servers = router.karmada().ok_or(Refusal::NoRoute)?;
    follow(servers.server_of(info), caller, request, (info, query)).await
}

/// Sends a request to the old server of an API group as the caller, and streams the answer.
///
/// # Errors
/// 404 for a group without a server; those of [`forward`].
pub(crate) async fn relay(
    router: &Router,
    caller: &Caller,
    request: Request<Body>,
    (info, query): (&RequestInfo, Option<&str>),
) -> Result<Response<Body>, Refusal> {
    match router.karmada().is_some_and(|servers| servers.old_server_of(info).is_some()) {
        true => forward(router, caller, request, (info, query)).await,
        false => Err(Refusal::NoRoute),
    }
}

/// Sends a request. Ends a long-running request once the caller's credentials expire, or the caller is denied.
async fn follow(
    client: &ClusterClient,
    caller: &Caller,
    request: Request<Body>,
    (info, query): (&RequestInfo, Option<&str>),
) -> Result<Response<Body>, Refusal> {
    let long_running = LongRunningRequest::at_karmada(caller, info);
    let answer = pin!(send(client, caller, request, (info, query)));
    match long_running {
        None => answer.await,
        Some(mut long_running) => {
            let answer = long_running.wait_for_answer(answer).await?;
            Ok(long_running.follow(answer))
        }
    }
}

async fn send(
    client: &ClusterClient,
    caller: &Caller,
    mut request: Request<Body>,
    (info, query): (&RequestInfo, Option<&str>),
) -> Result<Response<Body>, Refusal> {
    let mut context = ForwardContext::from(caller.identity_at_control_plane()?);
    context.class = info.class();
    context.peer = caller.connection;
    context.permit = caller.admitted.get().map(|held| RequestPermit::from_guard(Arc::clone(held)));
    *request.uri_mut() = Uri::try_from(target(&info.path, query)).map_err(|_| RequestRefusal::Path)?;
    let trace = caller.trace.as_ref();
    let mut stage =
        trace.map(|trace| trace.begin_cluster_request(client.name(), request.headers_mut())).unwrap_or_default();
    let answer = client.forward(request, context).await.map_err(|error| MemberRefusal::Forward {
        error,
        is_out_of_reach: false,
        silent_for: client.since_last_answer().unwrap_or_default(),
    })?;
    stage.record_status(answer.status().as_u16());
    match answer.status() {
        StatusCode::LOOP_DETECTED => Err(returned(info)),
        _ => Ok(answer),
    }
}

/// The control plane sends the requests of a group to Tributary, and Tributary sends them to the control plane.
fn returned(info: &RequestInfo) -> Refusal {
    let group = group_of(info).filter(|group| !group.is_empty()).unwrap_or("GROUP");
    let message = format!(
        "the request returns from Karmada's control plane to Tributary; start Tributary with --karmada-server \
         {group}=KUBECONFIG, where the kubeconfig has the address of the group's old server, not of karmada-apiserver"
    );
    MemberRefusal::MemberStatus(Status::new(508, StatusReason::Unknown, message)).into()
}

/// Answers with a discovery document that joins the documents of the members and of the control plane. If the control
/// plane does not answer, the answer has a Warning, and the document of the members.
///
/// # Errors
/// Those of the members' document.
pub(crate) async fn discover(
    router: &Router,
    caller: &Caller,
    mut head: Parts,
    received: ReceivedRequest<'_>,
    path: &DiscoveryPath<'_>,
) -> Result<Response<Body>, Refusal> {
    let accept = head.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let wish = documents::negotiate(accept, path)?;
    let asked = std::mem::take(&mut head.headers);
    head.headers.extend(asked.get(header::HOST).map(|host| (header::HOST, host.clone())));
    head.headers.insert(header::ACCEPT, accepted(wish.aggregated));
    let own = router.discover(&head, path).await?;
    let mut joined = parse(&read_whole(router, caller, own).await?);
    let warning = match control_planes_document(router, caller, received.info, wish.aggregated).await {
        Ok(theirs) => {
            join_documents(&mut joined, &theirs);
            None
        }
        Err(refusal) => Some(refusal),
    };
    Ok(with_warning(answer_document(&asked, Document::new(&joined), wish), warning.as_ref()))
}

/// Answers with an OpenAPI document of the members. To the index and to the document of a group, adds the parts of the
/// control plane that no member has.
///
/// # Errors
/// Errors of the members' document; the cause of a missing answer of the control plane.
pub(crate) async fn openapi(
    router: &Router,
    caller: &Caller,
    message: Request<Body>,
    received: ReceivedRequest<'_>,
) -> Result<Response<Body>, Refusal> {
    let ReceivedRequest { info, query, door, .. } = received;
    let ask = |headers| router.openapi.answer_request(OpenApiRequest { path: &info.path, query, headers, door });
    if info.path == V3_PATH {
        let own = ask(&HeaderMap::new()).await?;
        let mut joined = paths_of(parse(&read_whole(router, caller, own).await?));
        let theirs = control_planes_document(router, caller, info, false).await;
        let warning = match theirs {
            Ok(theirs) => {
                for (path, entry) in theirs["paths"].as_object().into_iter().flatten() {
                    joined.entry(path).or_insert_with(|| entry.clone());
                }
                None
            }
            Err(refusal) => Some(refusal),
        };
        return Ok(with_warning(openapi::answer_with_index(message.headers(), &joined), warning.as_ref()));
    }
    match ask(message.headers()).await {
        Err(Refusal::NoRoute) => {}
        Ok(answer) if answer.status() == StatusCode::NOT_FOUND => {}
        answer => return answer,
    }
    let mut present = Request::new(body::empty());
    present.headers_mut().clone_from(message.headers());
    match forward(router, caller, message, (info, query)).await {
        // For an old hash, the control plane redirects to the present hash. Doors allow no redirects, so Tributary
        // fetches the document by the present hash.
        Err(refusal) if refusal.is_redirect() => forward(router, caller, present, (info, None)).await,
        answer => answer,
    }
}

/// Returns a document of the control plane, which it has sent to this or a different caller recently.
async fn control_planes_document(
    router: &Router,
    caller: &Caller,
    info: &RequestInfo,
    is_aggregated: bool,
) -> Result<Arc<Value>, Refusal> {
    let servers = router.karmada().ok_or(Refusal::NoRoute)?;
    // A caller who may not be sent to the control plane gets no document of it.
    caller.identity_at_control_plane()?;
    let key = (info.path.clone(), is_aggregated);
    let cached = servers.documents.lock().get(&key).filter(|cached| cached.read_at.elapsed() < DOCUMENT_TTL).cloned();
    if let Some(cached) = cached {
        return Ok(cached.document);
    }
    let document = Arc::new(fetch_document(router, caller, info, is_aggregated).await?);
    let cached = CachedDocument { read_at: Instant::now(), document: Arc::clone(&document) };
    let mut documents = servers.documents.lock();
    documents.retain(|_, cached| cached.read_at.elapsed() < DOCUMENT_TTL);
    documents.insert(key, cached);
    drop(documents);
    Ok(document)
}

async fn fetch_document(
    router: &Router,
    caller: &Caller,
    info: &RequestInfo,
    is_aggregated: bool,
) -> Result<Value, Refusal> {
    let mut request = Request::new(body::empty());
    request.headers_mut().insert(header::ACCEPT, accepted(is_aggregated));
    let answer = forward(router, caller, request, (info, None)).await?;
    let status = answer.status();
    let text = read_whole(router, caller, answer).await?;
    match status {
        StatusCode::OK => Ok(parse(&text)),
        // The control plane lacks the group, so the document has nothing to add.
        StatusCode::NOT_FOUND => Ok(Value::Null),
        status => Err(Refusal::from_member_answer(status, &text)),
    }
}

/// Returns the media type of a discovery document.
fn accepted(is_aggregated: bool) -> HeaderValue {
    if is_aggregated { AGGREGATED } else { JSON }
}

async fn read_whole(router: &Router, caller: &Caller, answer: Response<Body>) -> Result<Bytes, Refusal> {
    let cluster = router.karmada().ok_or(Refusal::NoRoute)?.control_plane.name().clone();
    let mut permit = router.held_bytes().acquire(caller.share_key, 0)?;
    let whole = read_whole_within(answer.into_body(), DOCUMENT_BYTES_MAX, &mut permit).await;
    whole.map_err(|error| MemberRefusal::Interrupted { cluster, cause: error.to_string() }.into())
}

fn parse(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_default()
}

fn paths_of(index: Value) -> Map<String, Value> {
    match index {
        Value::Object(mut index) => match index.remove("paths") {
            Some(Value::Object(paths)) => paths,
            _ => Map::new(),
        },
        _ => Map::new(),
    }
}

fn with_warning(mut answer: Response<Body>, refusal: Option<&Refusal>) -> Response<Body> {
    let text = refusal.map(|refusal| format!("the document of Karmada's control plane is missing: {refusal}"));
    let warning = text.and_then(|text| warning_header(&text));
    answer.headers_mut().extend(warning.map(|warning| (header::WARNING, warning)));
    answer
}

/// Adds the groups, versions and resources of `theirs` that `own` lacks.
fn join_documents(own: &mut Value, theirs: &Value) {
    let (Value::Object(own), Value::Object(theirs)) = (own, theirs) else { return };
    for (field, value) in theirs {
        match (field.as_str(), own.get_mut(field), value) {
            (
                "items" | "groups" | "versions" | "resources" | "paths",
                Some(Value::Array(own)),
                Value::Array(theirs),
            ) => {
                join_entries(own, theirs);
            }
            (_, None, value) => {
                own.insert(field.clone(), value.clone());
            }
            _ => {}
        }
    }
}

fn join_entries(own: &mut Vec<Value>, theirs: &[Value]) {
    for entry in theirs {
        match own.iter_mut().find(|known| name_of(known) == name_of(entry)) {
            Some(known) if is_resource(known) => {}
            Some(known) => join_documents(known, entry),
            None => own.push(entry.clone()),
        }
    }
}

/// Returns whether an entry is a resource. Resources are not merged: the description of the members replaces the
/// description of the control plane.
fn is_resource(entry: &Value) -> bool {
    entry.get("resource").is_some() || entry.get("verbs").is_some()
}

/// Returns the name of an entry: of a path, a group, a version or a resource, in legacy and aggregated documents.
fn name_of(entry: &Value) -> Option<&str> {
    let fields = ["/metadata/name", "/name", "/groupVersion", "/resource", "/version"];
    entry.as_str().or_else(|| fields.iter().find_map(|field| entry.pointer(field)?.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn joined_documents_have_the_resources_of_both_and_prefer_the_members() {
        let joined = |mut own: Value, theirs: Value| {
            join_documents(&mut own, &theirs);
            own
        };
        let version = |version: &str, resources: &[&str], scope: &str| {
            let resources: Vec<_> = resources.iter().map(|name| json!({"resource": name, "scope": scope})).collect();
            json!({"version": version, "resources": resources})
        };
        let group = |name: &str, versions: &[Value]| json!({"metadata": {"name": name}, "versions": versions});
        let list = |items: &[Value]| json!({"kind": "APIGroupDiscoveryList", "items": items});
        let members = list(&[group("apps", &[version("v1", &["deployments"], "own")])]);
        let theirs = list(&[
            group("apps", &[version("v1", &["deployments", "more"], "theirs"), version("v2", &["x"], "theirs")]),
            group("policy.karmada.io", &[version("v1alpha1", &["propagationpolicies"], "theirs")]),
        ]);
        let text = joined(members.clone(), theirs).to_string();
        assert_eq!(text.matches("\"deployments\"").count(), 1);
        for expected in ["own", "more", "v2", "propagationpolicies"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(joined(members.clone(), Value::Null), members);
        let resource = |name: &str, kind: &str| json!({"name": name, "kind": kind, "verbs": ["get"]});
        assert_eq!(
            joined(
                json!({"kind": "APIResourceList", "resources": [resource("pods", "Pod")]}),
                json!({"kind": "APIResourceList", "resources": [resource("pods", "Other"), resource("x", "X")]}),
            ),
            json!({"kind": "APIResourceList", "resources": [resource("pods", "Pod"), resource("x", "X")]}),
        );
        let versions = |versions: &[&str]| {
            let versions: Vec<_> = versions.iter().map(|own| json!({"groupVersion": own, "version": "v"})).collect();
            json!({"groups": [{"name": "apps", "versions": versions}]})
        };
        assert_eq!(
            joined(versions(&["apps/v1"]), versions(&["apps/v1", "apps/v2"])),
            versions(&["apps/v1", "apps/v2"])
        );
        assert_eq!(
            joined(json!({"paths": ["/api"]}), json!({"paths": ["/api", "/x"]})),
            json!({"paths": ["/api", "/x"]})
        );
    }
}
