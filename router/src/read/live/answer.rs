//! The joined list, as objects or as a Table.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tributary_apimachinery::ResourceVersion;
use tributary_apimachinery::object::CLUSTER_ANNOTATION;
use tributary_printers::{Column, Printer, Row, column};

use super::ask::Answered;
use crate::discovery::ServedResource;
use crate::negotiate::{Encoding, Form, MetaVersion, Shape};
use crate::policy::ItemResourceVersions;
use crate::response::{IncludeObject, protobuf};
use crate::topology::Cluster;

/// How the list is written.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) form: Form,
    /// What the rows of a Table carry.
    pub(super) include: IncludeObject,
    /// The form of the objects' versions.
    pub(super) items: ItemResourceVersions,
}

/// The list's own metadata.
pub(super) struct Metadata {
    /// The vector, encoded; empty where no member has a version.
    pub(super) version: String,
    pub(super) continue_token: Option<String>,
}

impl Metadata {
    fn json(&self) -> Value {
        let mut metadata = json!({ "resourceVersion": self.version });
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        metadata
    }
}

/// The text of the joined list.
pub(super) fn write(
    served: &ServedResource,
    wish: Wish,
    answered: Vec<(Arc<Cluster>, Answered)>,
    metadata: &Metadata,
) -> Vec<u8> {
    let list = match wish.form.shape {
        Shape::PartialMetadata(_) if wish.form.encoding == Encoding::Protobuf => {
            return in_protobuf(wish, answered, metadata);
        }
        Shape::Table(version) => table(served, wish, version, answered, metadata),
        Shape::Object | Shape::PartialMetadata(_) => objects(served, wish, answered, metadata),
    };
    let mut text = serde_json::to_vec(&list).unwrap_or_default();
    text.push(b'\n');
    text
}

fn objects(served: &ServedResource, wish: Wish, answered: Vec<(Arc<Cluster>, Answered)>, metadata: &Metadata) -> Value {
    let mut items = Vec::new();
    for (cluster, answered) in answered {
        for mut item in answered.items {
            mark(&cluster, wish.items, &mut item);
            items.push(match wish.form.shape {
                Shape::PartialMetadata(version) => partial(&mut item, version),
                _ => item,
            });
        }
    }
    let (kind, api_version) = match wish.form.shape {
        Shape::PartialMetadata(version) => ("PartialObjectMetadataList".to_owned(), version.api_version().to_owned()),
        _ => (format!("{}List", served.description.kind()), served.resource.group_version().to_string()),
    };
    json!({"kind": kind, "apiVersion": api_version, "metadata": metadata.json(), "items": items})
}

fn partial(item: &mut Value, version: MetaVersion) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": item["metadata"].take()})
}

/// Metadata in protobuf.
fn in_protobuf(wish: Wish, answered: Vec<(Arc<Cluster>, Answered)>, metadata: &Metadata) -> Vec<u8> {
    let token = metadata.continue_token.as_deref().unwrap_or_default();
    let mut list = protobuf::list_metadata(&metadata.version, token, None);
    for (cluster, answered) in answered {
        for mut item in answered.items {
            mark(&cluster, wish.items, &mut item);
            protobuf::item(&serde_json::to_vec(&item["metadata"]).unwrap_or_default(), &mut list);
        }
    }
    let mut out = Vec::with_capacity(list.len() + 64);
    protobuf::list_begin(list.len(), &mut out);
    out.extend(list);
    protobuf::list_end(&mut out);
    out
}

/// Marks an object as one cluster's: its annotation, and its version in the item form.
fn mark(cluster: &Cluster, form: ItemResourceVersions, object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[CLUSTER_ANNOTATION] = json!(cluster.name().as_str());
    let own = metadata.get("resourceVersion").and_then(Value::as_str);
    if let Some(own) = own.and_then(|own| ResourceVersion::parse(own).ok()) {
        let mut text = String::new();
        cluster.mark.item_version(form, own, &mut text);
        metadata.insert("resourceVersion".into(), json!(text));
    }
}

/// The members' own rows, which they print best. Their columns are united by name, should they differ.
fn table(
    served: &ServedResource,
    wish: Wish,
    version: MetaVersion,
    answered: Vec<(Arc<Cluster>, Answered)>,
    metadata: &Metadata,
) -> Value {
    let mut columns: Vec<Value> = Vec::new();
    let mut rows = Vec::new();
    for (cluster, answered) in answered {
        let (own_columns, own_rows) = match answered.columns {
            Some(columns) => (columns, answered.items),
            None => printed(served, wish.include, version, answered.items),
        };
        let places: Vec<usize> = own_columns.iter().map(|column| place(&mut columns, column)).collect();
        for mut row in own_rows {
            let cells = row.get_mut("cells").map(Value::take);
            let mut placed = vec![Value::Null; columns.len()];
            for (place, cell) in places.iter().zip(cells.as_ref().and_then(Value::as_array).into_iter().flatten()) {
                placed[*place] = cell.clone();
            }
            if let Some(object) = row.get_mut("object") {
                mark(&cluster, wish.items, object);
            }
            rows.push((cluster.name().to_string(), placed, row));
        }
    }
    if columns.is_empty() {
        columns = definitions(&printer(served));
    }
    let width = columns.len();
    columns.insert(1.min(width), definition(&Column::CLUSTER));
    let rows: Vec<Value> = rows
        .into_iter()
        .map(|(cluster, mut cells, mut row)| {
            cells.resize(width, Value::Null);
            cells.insert(1.min(width), json!(cluster));
            row["cells"] = Value::Array(cells);
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": version.api_version(), "metadata": metadata.json(), "columnDefinitions": columns, "rows": rows,
    })
}

/// The place of a column of this name; a new one comes last.
fn place(columns: &mut Vec<Value>, column: &Value) -> usize {
    let known = columns.iter().position(|known| known["name"] == column["name"]);
    known.unwrap_or_else(|| {
        columns.push(column.clone());
        columns.len() - 1
    })
}

fn printer(served: &ServedResource) -> Printer {
    Printer::for_resource(&served.resource).unwrap_or_else(Printer::default_columns)
}

fn definition(column: &Column) -> Value {
    let mut text = Vec::new();
    column.write(&mut text);
    serde_json::from_slice(&text).unwrap_or_default()
}

fn definitions(printer: &Printer) -> Vec<Value> {
    let mut text = Vec::new();
    column::write_columns(printer.columns(), false, &mut text);
    serde_json::from_slice(&text).unwrap_or_default()
}

/// The rows of objects whose member makes no Tables.
fn printed(
    served: &ServedResource,
    include: IncludeObject,
    version: MetaVersion,
    items: Vec<Value>,
) -> (Vec<Value>, Vec<Value>) {
    let (printer, mut row, now) = (printer(served), Row::new(), Timestamp::now());
    let rows = items
        .into_iter()
        .map(|mut item| {
            let text = serde_json::to_vec(&item).unwrap_or_default();
            let mut cells = Vec::new();
            if printer.print(&text, now, &mut row).is_ok() {
                row.write_cells(None, &mut cells);
            }
            let mut row = Map::new();
            row.insert(
                "cells".into(),
                serde_json::from_slice(&cells).unwrap_or_else(|_| json!([item["metadata"]["name"]])),
            );
            let object = match include {
                IncludeObject::None => Value::Null,
                IncludeObject::Metadata => partial(&mut item, version),
                IncludeObject::Object => item,
            };
            row.insert("object".into(), object);
            Value::Object(row)
        })
        .collect();
    (definitions(&printer), rows)
}
