//! A member's answer on its way to the client: versions become the item form, and the annotation is added.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use tributary_apimachinery::{GroupVersionResource, Object, ObjectDecoder, ObjectKey, ResourceRequest, Status, Verb};
use tributary_printers::Printer;

use crate::Router;
use crate::body::{self, Body};
use crate::negotiate::{Form, Shape};
use crate::response::{self, IncludeObject, ObjectWriter, Place, ResourceKind};
use crate::topology::Cluster;

/// What the client is to be given, and what the write means for later reads.
pub struct Wish<'a> {
    /// The form of the answer.
    pub form: Form,
    /// What a Table's row carries.
    pub include: IncludeObject,
    /// What was asked for.
    pub verb: Verb,
    /// Of what.
    pub request: &'a ResourceRequest,
    /// Whether nothing was really written.
    pub dry_run: bool,
}

impl Wish<'_> {
    /// The `Accept` header for the member: rows are printed here, so a Table is asked for as an object.
    pub fn accept(&self) -> &'static str {
        match self.form.shape {
            Shape::PartialMetadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Shape::Object | Shape::Table => "application/json",
        }
    }
}

/// Turns a member's answer into the client's. What is no object (a Status, a TokenRequest) passes as it is.
///
/// # Errors
/// 502-like Status where the member's answer breaks off.
pub async fn translate(
    router: &Router,
    cluster: &Arc<Cluster>,
    answer: Response<Body>,
    wish: &Wish<'_>,
) -> Result<Response<Body>, Status> {
    let (mut head, incoming) = answer.into_parts();
    let is_json = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/json"));
    if !is_json || !head.status.is_success() {
        return Ok(Response::from_parts(head, incoming));
    }
    let text = body::whole(incoming).await.map_err(|error| {
        Status::cluster_unavailable(
            cluster.name(),
            format!("its answer broke off: {error}; the request may have been carried out"),
        )
    })?;
    let object = ObjectDecoder::new("", "", Arc::default()).decode(&text).ok();
    if !wish.dry_run {
        remember(router, cluster, wish, object.as_ref(), &text);
    }
    let Some(object) = object else {
        head.headers.remove(header::CONTENT_LENGTH);
        return Ok(Response::from_parts(head, body::full(text)));
    };
    let mut version = String::new();
    cluster.mark.item_version(object.resource_version(), &mut version);
    let mut out = Vec::with_capacity(text.len() + 256);
    let mut writer = ObjectWriter::new(&kind(wish.request), written_form(wish.form), wish.include);
    writer.write(&object, &version, &cluster.mark, Place::Alone, true, &mut out);
    out.push(b'\n');
    let mut response = response::whole(head.status, wish.form, out);
    keep_headers(&head.headers, response.headers_mut());
    Ok(response)
}

/// The member has made partial metadata already: it is written as the object that it is.
fn written_form(form: Form) -> Form {
    if form.shape == Shape::PartialMetadata { Form { shape: Shape::Object, ..form } } else { form }
}

fn keep_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for name in [header::WARNING, header::LOCATION, header::RETRY_AFTER] {
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
    for (name, value) in from.iter().filter(|(name, _)| {
        matches!(name.as_str(), "audit-id" | "x-kubernetes-pf-flowschema-uid" | "x-kubernetes-pf-prioritylevel-uid")
    }) {
        to.append(name.clone(), value.clone());
    }
}

fn kind(request: &ResourceRequest) -> ResourceKind {
    let printer = match request.subresource.as_deref() {
        Some("scale") => Printer::scale(),
        _ => Printer::for_resource(&request.resource).unwrap_or_else(Printer::default_columns),
    };
    ResourceKind {
        resource: request.resource.clone(),
        kind: "".into(),
        namespaced: request.namespace.is_some(),
        printer,
    }
}

/// Lets later reads wait until this write is seen (read-your-writes).
fn remember(router: &Router, cluster: &Arc<Cluster>, wish: &Wish<'_>, object: Option<&Object>, text: &Bytes) {
    if wish.verb.is_read() {
        return;
    }
    written(router, cluster, wish.verb, wish.request, object, text);
}

/// Notes a write that a member has answered: for reads that follow, and for discovery where it may have changed.
pub fn written(
    router: &Router,
    cluster: &Arc<Cluster>,
    verb: Verb,
    request: &ResourceRequest,
    object: Option<&Object>,
    text: &Bytes,
) {
    if changes_discovery(&request.resource) {
        router.fleet().refresh();
    }
    let views = [
        router.views().get(&request.resource, None),
        router.views().get(&request.resource, request.namespace.as_deref()),
    ];
    for view in views.into_iter().flatten() {
        match object {
            Some(object) => view.fences.wrote(cluster.name(), object.resource_version()),
            None if verb == Verb::Delete && request.subresource.is_none() => {
                let uid = serde_json::from_slice::<Status>(text)
                    .ok()
                    .and_then(|status| status.details)
                    .map(|details| details.uid);
                if let (Some(uid), Some(name)) = (uid.filter(|uid| !uid.is_empty()), &request.name) {
                    let key = ObjectKey::new(request.namespace.as_deref().unwrap_or_default(), name);
                    view.fences.deleted(cluster.name(), key.as_str(), &uid);
                }
            }
            None => {}
        }
    }
}

fn changes_discovery(resource: &GroupVersionResource) -> bool {
    matches!(
        (&*resource.group, &*resource.resource),
        ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
    )
}
