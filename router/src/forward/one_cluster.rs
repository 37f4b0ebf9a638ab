//! Requests to a cluster's own view. Tributary forwards them unchanged, except that versions and annotations of the
//! merged view are translated back.

mod back_translation;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use tributary_answers::answer;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::{ClusterRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::rewrite::{BodyKind, Facts, Format};
use tributary_apimachinery::{ClusterName, Door, Query, RequestClass, RequestInfo, ResourceRequest, Verb};
use tributary_fleet::openapi;
use tributary_fleet::topology::Cluster;
use tributary_rights::CallerRights;
use tributary_sharing::body::{self, Body, WHOLE_BODY_BYTES_MAX};
use tributary_sharing::flow::buffered_body::read_whole_within;
use tributary_sharing::flow::fair_semaphore::FairPermit;
use tributary_sharing::flow::large_bodies::LargeBodies;

use self::back_translation::{BackTranslation, KnownObject, body_may_hold, query_may_hold};
use super::answer::record_write;
use super::body_permits;
use super::buffered::unreadable;
use super::media_type::content_type;
use super::reservation::answer_bytes;
use super::send::send;
use super::whole::inspect_while_forwarding;
use crate::Router;
use crate::asked;
use crate::caller::Caller;
use crate::configuration::ConfigurationSnapshot;
use crate::received::ReceivedRequest;
use crate::response::watch::error;

/// Forwards a request below `/clusters/<name>`, or to the cluster's own host name, and returns the answer. Request and
/// answer stay unchanged, except that values of the merged view in the request are translated back.
///
/// # Errors
/// The cause of a missing answer; 409 and 410 for values of the merged view that belong to another cluster; 415 for an
/// object in CBOR.
pub(crate) async fn forward(
    router: &Router,
    configuration: &ConfigurationSnapshot,
    caller: &Caller,
    request: Request<Body>,
    received: ReceivedRequest<'_>,
    name: &ClusterName,
) -> Result<Response<Body>, Refusal> {
    let ReceivedRequest { info, query, preferences, door, .. } = received;
    let cluster = configuration.clusters.get(name).ok_or_else(|| ClusterRefusal::NotConfigured(name.clone()))?;
    let cluster = Arc::clone(cluster);
    if let Some(hash) = document_hash(&info.path, query) {
        // The redirect must have the path at which the client found the OpenAPI document, including the path of the
        // mount.
        let mounted = request.uri().path().strip_suffix(info.path.as_str()).unwrap_or_default().to_owned();
        let stale = StaleDocument { hash: &hash, mounted: &mounted, door };
        return Box::pin(openapi_document(&cluster, caller, request, (info, query), stale)).await;
    }
    // Bodies below `proxy`, `exec` and similar subresources are no objects of the cluster, whatever the method. A read
    // without a value to translate needs no lookup in memory. An impersonated request needs the lookup in any case:
    // only the lookup waits for the rights in a cluster that has just joined.
    let acts_as_another = caller.rights().is_some_and(CallerRights::is_impersonating);
    let may_contain = acts_as_another || writes(info.verb) || query.is_some_and(query_may_hold);
    let Some(resource) = info.resource().filter(|resource| may_contain && !resource.is_streamed()) else {
        return send(&cluster, caller, request, info, query).await;
    };
    let translation = back_translation(router, configuration, caller, name, info.verb, resource).await;
    let query = match query.map(|query| translation.query(query)).transpose() {
        Ok(changed) => changed.flatten().map(Cow::Owned).or(query.map(Cow::Borrowed)),
        // After an HTTP 410, clients repeat a watch with the same version, so the refusal is sent as an event in the
        // stream.
        Err(refusal) if info.class() == RequestClass::Watch => {
            let form = preferences.form(ResponseKind::Watch)?;
            let error = body::full(error(&refusal.status_at(door), form));
            return Ok(answer::with_content_type(StatusCode::OK, form.encoding.stream_content_type(), error));
        }
        Err(refusal) => return Err(refusal),
    };
    match writes(info.verb) {
        true => Box::pin(write(router, caller, request, &translation, &cluster, (info, query.as_deref()))).await,
        false => send(&cluster, caller, request, info, query.as_deref()).await,
    }
}

async fn back_translation<'a>(
    router: &'a Router,
    configuration: &ConfigurationSnapshot,
    caller: &Caller,
    cluster: &'a ClusterName,
    verb: Verb,
    resource: &'a ResourceRequest,
) -> BackTranslation<'a> {
    let candidates = asked::candidates_of([cluster], caller, resource, "get").await;
    let key = resource.key();
    // The cached view of all namespaces has no objects of a cluster that forbids reading all namespaces, so the view of
    // the requested namespace is searched, too.
    let namespaces = [None, resource.namespace.as_deref()].into_iter();
    let mut views = namespaces.filter_map(|namespace| router.views().get(&resource.resource, namespace));
    let known = views.find_map(|view| {
        if !candidates.has(cluster) {
            return None;
        }
        let log = view.log();
        let snapshot = log.snapshot(cluster)?;
        let version = snapshot.get(key.as_str())?.resource_version();
        Some(KnownObject { version, seen: snapshot.resource_version() })
    });
    BackTranslation { cluster, verb, resource, versions: configuration.composite_versions(), candidates, known }
}

/// Forwards a write, and records its version, so that later reads of the merged view wait for the write.
async fn write(
    router: &Router,
    caller: &Caller,
    request: Request<Body>,
    translation: &BackTranslation<'_>,
    cluster: &Arc<Cluster>,
    (info, query): (&RequestInfo, Option<&str>),
) -> Result<Response<Body>, Refusal> {
    // The body's bytes count towards the limit of body bytes until the member has answered.
    let mut portion = router.held_bytes().acquire(caller.share_key, 0)?;
    let tries_by_query = Query::parse(query).get("dryRun").is_some_and(|value| !value.is_empty());
    // Tributary does not limit an upload that is no Kubernetes object (for example a build's source for an aggregated
    // API). The server that receives the upload limits it.
    let (request, options) = match readable_format(&request)? {
        // Memory for the member's answer is reserved only after the whole body has arrived, and before the request is
        // sent.
        Some(format) => {
            let buffered = read_body(request, &mut portion).await?;
            let (request, options) =
                request_for_cluster(router.large_bodies(), &mut portion, translation, (format, buffered)).await?;
            (request.map(unchanged_body), options)
        }
        None => (request, None),
    };
    let is_dry_run = options.map_or(tries_by_query, |options| !options.dry_run.is_empty());
    // A name with its own credential can lead to a different server, whose versions are not those of the cluster.
    let is_recorded =
        !is_dry_run && translation.verb != Verb::DeleteCollection && caller.client_of_name(cluster.name()).is_none();
    let reservation = match is_recorded {
        true => Some(router.held_bytes().acquire(caller.share_key, answer_bytes(0))?),
        false => None,
    };
    let answer = send(cluster, caller, request, info, query).await?;
    drop(portion);
    match reservation {
        Some(reservation) if answer.status().is_success() && is_object(&answer) => {
            let (head, incoming) = answer.into_parts();
            let record =
                |text: &_| record_write(router, caller.writer(), cluster, translation.resource, &head.headers, text);
            let body = inspect_while_forwarding(incoming, reservation, record).await;
            let body = body.map_err(|interrupted| interrupted.refusal(cluster.name()))?;
            Ok(Response::from_parts(head, body))
        }
        _ => Ok(answer),
    }
}

/// Returns the hash in a request for an OpenAPI document; `None` for other requests.
fn document_hash(path: &str, query: Option<&str>) -> Option<String> {
    if !path.starts_with("/openapi/v3/") {
        return None;
    }
    Query::parse(query).get("hash").filter(|hash| !hash.is_empty()).map(str::to_owned)
}

/// A request for an OpenAPI document by a hash that may be old.
#[derive(Clone, Copy)]
struct StaleDocument<'a> {
    hash: &'a str,
    /// Path at which the client reaches the cluster.
    mounted: &'a str,
    door: Door,
}

/// Fetches a member's OpenAPI document that the client requests by a hash. For an old hash, the member answers with a
/// redirect, and Tributary never passes on a member's redirects. So Tributary fetches the document without the hash,
/// and makes the redirect to the present hash. At a door without redirects, the client gets the present document.
async fn openapi_document(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    request: Request<Body>,
    (info, query): (&RequestInfo, Option<&str>),
    StaleDocument { hash, mounted, door }: StaleDocument<'_>,
) -> Result<Response<Body>, Refusal> {
    let mut again = Request::new(body::empty());
    again.headers_mut().clone_from(request.headers());
    again.headers_mut().remove(header::IF_NONE_MATCH);
    let refused = match send(cluster, caller, request, info, query).await {
        Err(refusal) if refusal.is_redirect() => refusal,
        answer => return answer,
    };
    let present = send(cluster, caller, again, info, None).await?;
    if !door.allows_redirects() {
        return Ok(present);
    }
    let tag = present.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
    let tag = tag.map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
    // The hash becomes a part of a URL, so any other text of the member is ignored.
    let is_hash = |tag: &String| !tag.is_empty() && tag != hash && tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match tag.filter(is_hash).filter(|_| present.status().is_success()) {
        Some(tag) => Ok(openapi::moved(&format!("{mounted}{}", info.path), &tag)),
        None => Err(refused),
    }
}

/// Returns whether Tributary reads the body of a request with this verb.
fn writes(verb: Verb) -> bool {
    matches!(verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
}

/// Returns the format of a body; `None` for a body that is no object.
///
/// # Errors
/// 415 for an object in CBOR, because Tributary could not find values of a different cluster in the object.
fn readable_format(request: &Request<Body>) -> Result<Option<Format>, Refusal> {
    let media_type = content_type(request.headers());
    let format = Format::from_content_type(media_type);
    if format.is_none() && Format::is_cbor(media_type) { Err(RequestRefusal::BodyFormat.into()) } else { Ok(format) }
}

/// Reads the body of a write. The request stays unchanged.
///
/// # Errors
/// 413 for a body of more than [`WHOLE_BODY_BYTES_MAX`], 400 for a body that breaks off, 429 at the limit of body
/// bytes.
async fn read_body(request: Request<Body>, portion: &mut FairPermit) -> Result<Request<Bytes>, Refusal> {
    let (head, incoming) = request.into_parts();
    let text = read_whole_within(incoming, WHOLE_BODY_BYTES_MAX, portion).await.map_err(unreadable)?;
    Ok(Request::from_parts(head, text))
}

fn unchanged_body(text: Bytes) -> Body {
    if text.is_empty() { body::empty() } else { body::full(text) }
}

/// Builds the request for the cluster, and reads the options of a delete from its body, which replaces the options in
/// the query. A body without values of the merged view stays unchanged.
///
/// # Errors
/// The errors of [`BackTranslation::request`].
async fn request_for_cluster(
    large_bodies: &LargeBodies,
    portion: &mut FairPermit,
    translation: &BackTranslation<'_>,
    (format, buffered): (Format, Request<Bytes>),
) -> Result<(Request<Bytes>, Option<Facts>), Refusal> {
    let has_options = translation.verb == Verb::Delete && !buffered.body().is_empty();
    let body_permit = large_bodies.body_permit(portion.share_key(), buffered.body().len()).await;
    let may_contain = body_permit.run(|| body_may_hold(format, buffered.body()));
    if !may_contain && !has_options {
        return Ok((buffered, None));
    }
    let text = (format, buffered.body().clone());
    let body = match body_permits::convert_with_permits(large_bodies, portion, text, |_| ()).await {
        Ok((body, ())) => body,
        Err(_) if !may_contain => return Ok((buffered, None)),
        Err(refusal) => return Err(refusal),
    };
    let body_permit = large_bodies.body_permit(portion.share_key(), body.readable_bytes()).await;
    body_permit.run(|| {
        let options = has_options.then(|| body.facts(BodyKind::DeleteOptions).ok()).flatten();
        let request = if may_contain { translation.request(&body, buffered)? } else { buffered };
        Ok((request, options))
    })
}

fn is_object(answer: &Response<Body>) -> bool {
    let media_type = content_type(answer.headers());
    (media_type.starts_with("application/json") || media_type.starts_with("application/vnd.kubernetes.protobuf"))
        && !answer.headers().contains_key(header::CONTENT_ENCODING)
}
