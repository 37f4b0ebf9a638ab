//! Collections that cannot be held in memory (metrics, or what is not registered): asked of every cluster now, and joined.

use std::sync::Arc;

use futures::future::join_all;
use http::{HeaderValue, Request, Response, StatusCode, header};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tributary_apimachinery::object::CLUSTER_ANNOTATION;
use tributary_apimachinery::{ClusterName, ListOptions, ResourceVersion, Status};
use tributary_merge::CompositeResourceVersion;
use tributary_printers::{Printer, Row, column};

use super::{Asked, include_object, warn_left_out};
use crate::Router;
use crate::body::{self, Body};
use crate::discovery::ServedResource;
use crate::negotiate::{Answer, Encoding, MetaVersion, Shape};
use crate::policy::ItemResourceVersions;
use crate::response::{self, IncludeObject, protobuf};
use crate::topology::Cluster;
use crate::view::{KNOWN_WITHIN, Partial, Standing, standing};
use crate::write::forward::forward;

/// Answers a list by asking each cluster now. Pages are not kept: the whole list is given.
///
/// # Errors
/// 429 naming a cluster that does not answer, where a partial answer is denied; 400 and 406.
pub async fn list(router: &Router, asked: Asked<'_>, served: &ServedResource) -> Result<Response<Body>, Status> {
    let form = asked.form(Answer::List, served)?;
    let _checked = ListOptions::parse(asked.query)?;
    let include = include_object(form, asked.query)?;
    let form_of_items = router.items(&served.resource);
    let policy = router.policy(&served.resource);
    let selected = served.clusters.iter().filter(|name| policy.selects(name));
    let clusters: Vec<_> = selected.filter_map(|name| router.fleet().cluster(name)).collect();
    let query = member_query(asked.query);
    let asked_at = Instant::now();
    let lists = clusters.iter().map(|cluster| async {
        let list = tokio::time::timeout(KNOWN_WITHIN, ask(cluster, &asked.info.path, query.as_deref())).await;
        list.unwrap_or_else(|_| Err(Status::cluster_unavailable(cluster.name(), "it did not give its list in time")))
    });
    let lists = join_all(lists).await;
    let (mut items, mut standings, mut version) = (Vec::new(), Vec::new(), CompositeResourceVersion::new());
    for (cluster, list) in clusters.iter().zip(lists) {
        let standing = match list {
            Ok(list) => {
                add(cluster, list, form_of_items, &mut items, &mut version);
                Standing::Fresh
            }
            Err(status) if status.code == 404 => continue,
            Err(status) => {
                let (age, forbidden) = (asked_at.elapsed(), status.code == 403);
                Standing::Unknown { age, reason: Some(status.message), forbidden }
            }
        };
        standings.push((cluster.name().clone(), standing));
    }
    for cluster in router.fleet().undiscovered().iter().filter(|cluster| policy.selects(cluster.name())) {
        standings.push((cluster.name().clone(), Standing::of_undiscovered(cluster)));
    }
    if let (Partial::Deny, Some(refusal)) = (policy.partial, standing::refusal(&served.resource, &standings)) {
        return Err(refusal);
    }
    let version = if version.is_empty() { String::new() } else { version.encode(&router.epochs()) };
    let text = match form.shape {
        Shape::PartialMetadata(_) if form.encoding == Encoding::Protobuf => in_protobuf(&items, &version),
        Shape::Table(meta) => table(served, &items, &version, include, meta),
        Shape::Object | Shape::PartialMetadata(_) => objects(served, form.shape, items, &version),
    };
    let mut response = response::whole(StatusCode::OK, form, text);
    for warning in
        standing::warnings(&served.resource, &standings).iter().filter_map(|text| standing::warning_header(text))
    {
        response.headers_mut().append(header::WARNING, warning);
    }
    warn_left_out(&mut response, &served.resource, &router.left_out(served));
    Ok(response)
}

/// The query for a member: without what is only meant for the merged list.
fn member_query(query: Option<&str>) -> Option<String> {
    const OWN: [&str; 6] = ["limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty", "includeObject"];
    let kept: Vec<_> =
        query?.split('&').filter(|pair| !OWN.contains(&pair.split('=').next().unwrap_or_default())).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

async fn ask(cluster: &Arc<Cluster>, path: &str, query: Option<&str>) -> Result<Value, Status> {
    let mut request = Request::new(body::empty());
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let answer = forward(cluster, request, path, query).await?;
    let code = answer.status();
    let text = answer.into_body();
    let text = body::whole(text).await.map_err(|error| Status::cluster_unavailable(cluster.name(), error))?;
    if !code.is_success() {
        return Err(Status::from_response(code.as_u16(), &text));
    }
    serde_json::from_slice(&text)
        .map_err(|error| Status::cluster_unavailable(cluster.name(), format!("its list is not JSON: {error}")))
}

/// Adds a member's items, marked as its own.
fn add(
    cluster: &Cluster,
    mut list: Value,
    form: ItemResourceVersions,
    items: &mut Vec<(ClusterName, Value)>,
    version: &mut CompositeResourceVersion,
) {
    if let Some(own) = list["metadata"]["resourceVersion"].as_str().and_then(|own| ResourceVersion::parse(own).ok()) {
        version.set(cluster.name(), own);
    }
    let Some(own) = list.get_mut("items").and_then(Value::as_array_mut) else { return };
    for mut item in own.drain(..) {
        if let Some(metadata) = item.get_mut("metadata").and_then(Value::as_object_mut) {
            mark(cluster, form, metadata);
        }
        items.push((cluster.name().clone(), item));
    }
}

fn mark(cluster: &Cluster, form: ItemResourceVersions, metadata: &mut Map<String, Value>) {
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[CLUSTER_ANNOTATION] = json!(cluster.name().as_str());
    if let Some(own) =
        metadata.get("resourceVersion").and_then(Value::as_str).and_then(|own| ResourceVersion::parse(own).ok())
    {
        let mut text = String::new();
        cluster.mark.item_version(form, own, &mut text);
        metadata.insert("resourceVersion".into(), json!(text));
    }
}

fn objects(served: &ServedResource, shape: Shape, items: Vec<(ClusterName, Value)>, version: &str) -> Vec<u8> {
    let items: Vec<Value> = items
        .into_iter()
        .map(|(_, item)| match shape {
            Shape::PartialMetadata(version) => partial(&item, version),
            _ => item,
        })
        .collect();
    let (kind, api_version) = match shape {
        Shape::PartialMetadata(version) => ("PartialObjectMetadataList".to_owned(), version.api_version().to_owned()),
        _ => (format!("{}List", served.description.kind()), served.resource.group_version().to_string()),
    };
    let list =
        json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": version}, "items": items});
    serde_json::to_vec(&list).unwrap_or_default()
}

/// Metadata in protobuf.
fn in_protobuf(items: &[(ClusterName, Value)], version: &str) -> Vec<u8> {
    let mut list = protobuf::list_metadata(version, "", None);
    for (_, item) in items {
        protobuf::item(&serde_json::to_vec(&item["metadata"]).unwrap_or_default(), &mut list);
    }
    let mut out = Vec::with_capacity(list.len() + 64);
    protobuf::list_begin(list.len(), &mut out);
    out.extend(list);
    protobuf::list_end(&mut out);
    out
}

fn partial(item: &Value, version: MetaVersion) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": item["metadata"]})
}

fn table(
    served: &ServedResource,
    items: &[(ClusterName, Value)],
    version: &str,
    include: IncludeObject,
    meta: MetaVersion,
) -> Vec<u8> {
    let printer = Printer::for_resource(&served.resource).unwrap_or_else(Printer::default_columns);
    let (mut row, now) = (Row::new(), Timestamp::now());
    let meta_version = meta.api_version();
    let mut out = format!("{{\"kind\":\"Table\",\"apiVersion\":\"{meta_version}\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"columnDefinitions\":").into_bytes();
    column::write_columns(printer.columns(), true, &mut out);
    out.extend_from_slice(b",\"rows\":[");
    for (at, (cluster, item)) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let text = serde_json::to_vec(item).unwrap_or_default();
        if printer.print(&text, now, &mut row).is_err() {
            let _ = Printer::default_columns().print(&text, now, &mut row);
        }
        out.extend_from_slice(b"{\"cells\":");
        row.write_cells(Some(cluster.as_str()), &mut out);
        out.extend_from_slice(b",\"object\":");
        let object = match include {
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => partial(item, meta),
            IncludeObject::Object => item.clone(),
        };
        out.extend(serde_json::to_vec(&object).unwrap_or_default());
        out.push(b'}');
    }
    out.extend_from_slice(b"]}\n");
    out
}
