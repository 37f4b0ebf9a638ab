//! Compares two answers and ignores deliberate differences.

use super::{known, request::Request};
use crate::conformance::differences::{WARNING_OF_A_MEMBER, without_cluster};
use anyhow::{Context, bail};
use flate2::read::GzDecoder;
use serde_json::{Map, Value};
use std::io::Read;
use tributary_e2e::HttpResponse;

/// Response headers that the test compares, because clients read them.
const HEADERS: [&str; 7] =
    ["content-type", "content-encoding", "warning", "retry-after", "cache-control", "vary", "location"];

/// Compares two answers and ignores deliberate differences.
///
/// # Errors
/// If the answers differ. The first line has only the kind of difference, so that failures of the same kind can be
/// counted.
pub(super) fn compare(request: &Request, own: &HttpResponse, shown: &HttpResponse) -> anyhow::Result<()> {
    if let Some(difference) = known::of_answers(request, own, shown) {
        tracing::debug!(?difference, "{request}");
        return Ok(());
    }
    if own.status != shown.status {
        bail!(
            "status {} instead of {}: {}\n{request}\n{}\n--- instead of\n{}",
            shown.status,
            own.status,
            class(request),
            start(shown),
            start(own)
        );
    }
    for header in HEADERS {
        let all = |answer: &HttpResponse| -> Vec<String> {
            let values = answer.headers.get_all(header).iter();
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        };
        let (own, mut shown) = (all(own), all(shown));
        if header == "warning" {
            tracing::trace!(difference = ?WARNING_OF_A_MEMBER);
            shown = shown.iter().map(|warning| without_cluster(warning)).collect();
        }
        if own != shown {
            bail!("header {header} {shown:?} instead of {own:?}: {}\n{request}", class(request));
        }
    }
    let (mut ours, mut theirs) = (Body::read(request, shown)?, Body::read(request, own)?);
    for body in [&mut ours, &mut theirs] {
        if let Body::Json(value) = body {
            known::take_out(request, value);
        }
    }
    if let (Body::Json(ours), Body::Json(theirs)) = (&ours, &mut theirs) {
        known::take_out_last_token(request, theirs, ours);
    }
    if ours != theirs {
        bail!("body: {}\n{request}\n{}\n--- instead of\n{}", class(request), ours.start(), theirs.start());
    }
    Ok(())
}

/// Describes a request without its details, so that similar requests have the same description.
fn class(request: &Request) -> String {
    let path: Vec<&str> = request.path.split('/').filter(|part| !part.starts_with("differential-")).collect();
    format!("{} {}{}", request.method, path.join("/"), if request.is_watch() { " watch" } else { "" })
}

fn start(answer: &HttpResponse) -> String {
    answer.text().chars().take(600).collect()
}

#[derive(PartialEq)]
enum Body {
    Json(Value),
    /// Events of a watch without bookmarks, because the times of bookmarks vary.
    Events(Vec<Value>),
    Text(String),
}

impl Body {
    fn read(request: &Request, answer: &HttpResponse) -> anyhow::Result<Self> {
        let mut bytes = answer.body.to_vec();
        if answer.header("content-encoding") == "gzip" {
            let mut plain = Vec::new();
            GzDecoder::new(&answer.body[..]).read_to_end(&mut plain).context("unzip")?;
            bytes = plain;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // A get with the parameter `watch` can be a watch of one name, so only the body shows whether the answer
        // consists of events.
        if text.starts_with("{\"type\":") {
            let events: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
            let mut events = events.with_context(|| format!("read the events of {request}"))?;
            events.retain(|event| {
                event["type"] != "BOOKMARK"
                    || event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
            });
            for event in &mut events {
                if event["type"] == "BOOKMARK" {
                    known::take_out_of_bookmark(&mut event["object"]);
                }
                normalize(&mut event["object"]);
            }
            // A watch that sent only bookmarks is treated as an empty answer.
            return Ok(if events.is_empty() { Self::Text(String::new()) } else { Self::Events(events) });
        }
        if answer.header("content-type").starts_with("application/yaml")
            && let Ok(mut value) = serde_saphyr::from_str::<Value>(&text)
        {
            normalize(&mut value);
            return Ok(Self::Json(value));
        }
        Ok(match serde_json::from_slice::<Value>(&bytes) {
            Ok(mut value) => {
                normalize(&mut value);
                Self::Json(value)
            }
            Err(_) => Self::Text(text),
        })
    }

    fn start(&self) -> String {
        let text = match self {
            Self::Json(value) => value.to_string(),
            Self::Events(events) => Value::Array(events.clone()).to_string(),
            Self::Text(text) => text.clone(),
        };
        text.chars().take(1200).collect()
    }
}

/// Media types in an error message of kube-apiserver. Tributary does not support them for whole objects, so its message
/// omits them.
const PROTOBUF: [&str; 2] =
    [", application/vnd.kubernetes.protobuf;stream=watch", ", application/vnd.kubernetes.protobuf"];

/// Removes deliberate differences: versions, continue tokens, the annotation and the column.
fn normalize(value: &mut Value) {
    if value["kind"] == "Status"
        && value["code"] == 406
        && let Some(message) = value["message"].as_str()
    {
        value["message"] = PROTOBUF.iter().fold(message.to_owned(), |text, kind| text.replace(kind, "")).into();
    }
    if value["kind"] == "Status"
        && let Some(message) = value["message"].as_str().filter(|text| text.starts_with("invalid continue token: "))
    {
        // The servers send different continue tokens, and different details in error messages about them.
        value["message"] = message.split(": ").take(1).collect::<String>().into();
    }
    if value["kind"] == "Table"
        && let Some(columns) = value["columnDefinitions"].as_array_mut()
        && columns.get(1).is_some_and(|column| column["name"] == "Cluster")
    {
        columns.remove(1);
    }
    if value["kind"] == "Table" {
        for row in value["rows"].as_array_mut().into_iter().flatten() {
            normalize(&mut row["object"]);
            if let Some(cells) = row["cells"].as_array_mut() {
                if cells.get(1).is_some_and(|cell| cell == "bare") {
                    cells.remove(1);
                }
                // The last cell of a row is the object's age, which changes between two requests.
                cells.pop();
            }
        }
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        normalize_metadata(metadata);
    }
    if value["kind"] == "PartialObjectMetadataList" && value["items"].is_null() {
        value["items"] = Value::Array(Vec::new());
    }
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        normalize(item);
    }
    remove_own_group(value);
    // Discovery lists may have any order, so the comparison sorts them.
    for list in ["groups", "resources"] {
        if let Some(list) = value.get_mut(list).and_then(Value::as_array_mut) {
            list.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned());
        }
    }
}

/// Removes the API group that only Tributary serves. A discovery document and the list of paths contain it.
fn remove_own_group(value: &mut Value) {
    const OWN_GROUP: &str = "aggregation.tributary.dev";
    if let Some(paths) = value.get_mut("paths").and_then(Value::as_array_mut) {
        paths.retain(|path| !path.as_str().unwrap_or_default().contains(OWN_GROUP));
    }
    if let Some(groups) = value.get_mut("groups").and_then(Value::as_array_mut) {
        groups.retain(|group| group["name"] != OWN_GROUP);
    }
    if value["kind"] == "APIGroupDiscoveryList"
        && let Some(groups) = value.get_mut("items").and_then(Value::as_array_mut)
    {
        groups.retain(|group| group["metadata"]["name"] != OWN_GROUP);
    }
}

fn normalize_metadata(metadata: &mut Map<String, Value>) {
    for name in ["resourceVersion", "continue"] {
        if metadata.get(name).is_some_and(|value| value != "") {
            metadata.insert(name.to_owned(), Value::from("some"));
        }
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("tributary.dev/cluster");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}
