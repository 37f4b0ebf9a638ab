//! Printer columns and selectable fields of a resource. Built-in resources have constant columns and fields. For a
//! custom resource, the columns and fields come from the CRD in a cluster.
//!
//! Tributary uses only one CRD: the CRD of the first cluster by name that serves the resource and lets Tributary read
//! the CRD. The first read does not wait until a thousand clusters have refused reads of the CRD. Without the CRD, it
//! shows names and ages only. When a CRD is found later, the view is started again.
//!
//! If no cluster lets Tributary read the CRD, the columns come from a Table and the selectable fields from the OpenAPI
//! document. A kube-apiserver gives both to users without rights to CRDs. The description of a Table's column contains
//! the JSONPath of the column, unless the CRD has its own description of the column. Columns without a JSONPath are
//! omitted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use http::{Request, StatusCode, header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::timeout;
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{ClusterName, GroupVersion, GroupVersionResource, SelectableField, selectable_fields};
use tributary_printers::{ColumnDefinition, Printer};
use tributary_sharing::body;

use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Fleet;

/// Timeout for one member's answer with its CRD. 1 s is many round trips around the world, and half of the time for
/// which a first read waits.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Maximum number of concurrent requests for the CRD of one resource.
const PARALLEL_LOOKUPS_MAX: usize = 8;

/// Time for which the first read of a custom resource waits for its CRD.
pub(super) const DEFINITION_TIMEOUT: Duration = Duration::from_secs(2);

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

const METADATA_ALONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";

pub(super) struct Description {
    pub(super) printer: Printer,
    pub(super) fields: Arc<[SelectableField]>,
}

/// Origin of a view's columns and selectable fields in one cluster: the CRD, or a Table in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    cluster: ClusterName,
    source: DefinitionSource,
    version: DefinitionVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DefinitionSource {
    /// A stored CRD with this uid and generation. Each change of the CRD's spec changes them.
    Stored(DefinitionState),
    /// A Table. If Tributary's account may not list all namespaces, the Table is of this namespace.
    Shown { namespace: Option<String> },
}

pub(super) enum DefinitionChange {
    /// The definition is unchanged, or no cluster answered.
    None,
    /// The CRD changed, or Tributary now uses the CRD of a different cluster, but the columns and selectable fields are
    /// equal.
    Elsewhere(Definition),
    /// The columns or selectable fields changed, so the view must be replaced by a new one.
    Changed,
}

/// Returns whether a CRD may define a resource. An API group that contains a dot and is not built in belongs to CRDs.
pub(super) fn is_custom(resource: &GroupVersionResource) -> bool {
    Printer::for_resource(resource).is_none() && resource.group.contains('.')
}

/// Returns the columns and selectable fields of a resource, from its CRD if one was found.
pub(super) fn describe(resource: &GroupVersionResource, definition: Option<&Definition>) -> Description {
    match (Printer::for_resource(resource), definition) {
        (None, Some(Definition { version, .. })) => {
            Description { printer: version.printer(), fields: version.fields() }
        }
        (printer, _) => Description {
            printer: printer.unwrap_or_else(Printer::default_columns),
            fields: selectable_fields(resource),
        },
    }
}

impl Definition {
    /// Returns whether the definition adds no columns and no selectable fields to the defaults.
    pub(super) fn is_empty(&self) -> bool {
        self.version.additional_printer_columns.is_empty() && self.version.selectable_fields.is_empty()
    }
}

pub(super) async fn changed(fleet: &Arc<Fleet>, served: &Arc<ServedResource>, before: &Definition) -> DefinitionChange {
    if served.clusters.contains(&before.cluster) {
        let has_changed = timeout(ANSWER_WITHIN, has_changed(fleet, served, before));
        if !has_changed.await.unwrap_or_default() {
            return DefinitionChange::None;
        }
    }
    let namespace = match &before.source {
        DefinitionSource::Shown { namespace } => namespace.clone(),
        DefinitionSource::Stored(_) => None,
    };
    match find(fleet, served, namespace).await {
        Some(now) if now.version != before.version => DefinitionChange::Changed,
        Some(now) if now != *before => DefinitionChange::Elsewhere(now),
        _ => DefinitionChange::None,
    }
}

/// Returns whether a definition has changed in its cluster. Sends one request.
async fn has_changed(fleet: &Fleet, served: &ServedResource, before: &Definition) -> bool {
    match &before.source {
        DefinitionSource::Stored(state) => {
            let text = get(fleet, &before.cluster, &definition_path(served), METADATA_ALONE).await;
            let known = text.and_then(|text| serde_json::from_slice::<DefinitionObject<IgnoredAny>>(&text).ok());
            known.is_some_and(|known| known.metadata != *state)
        }
        DefinitionSource::Shown { namespace } => {
            let columns = read_table_columns(fleet, &before.cluster, served, namespace.as_deref()).await;
            columns.is_some_and(|columns| columns != before.version.additional_printer_columns)
        }
    }
}

/// Finds the CRD of the first cluster by name that allows reads of it. If no cluster does, finds the columns and fields
/// that the first cluster shows to users without rights to the CRD. If Tributary's account may not list all namespaces,
/// reads the Table of `namespace`. The function has no time limit. Cancellation is safe.
pub(super) async fn find(
    fleet: &Arc<Fleet>,
    served: &Arc<ServedResource>,
    namespace: Option<String>,
) -> Option<Definition> {
    let stored = |cluster: &ClusterName| {
        let (fleet, served, cluster) = (Arc::clone(fleet), Arc::clone(served), cluster.clone());
        async move { read_stored_definition(&fleet, cluster, &served).await }.boxed()
    };
    if let Some(stored) = first(served.clusters.iter().map(stored).collect()).await {
        return Some(stored);
    }
    let shown = |cluster: &ClusterName| {
        let (fleet, served, cluster) = (Arc::clone(fleet), Arc::clone(served), cluster.clone());
        let namespace = namespace.clone();
        async move { read_shown_definition(&fleet, cluster, &served, namespace).await }.boxed()
    };
    let shown = first(served.clusters.iter().map(shown).collect()).await?;
    let (resource, cluster) = (&served.resource, &shown.cluster);
    tracing::info!(%resource, %cluster,
        "no cluster returns the CustomResourceDefinition; only the columns with known paths are printed");
    Some(shown)
}

/// Reads the columns and fields that a cluster shows to users without rights to its CRD.
async fn read_shown_definition(
    fleet: &Fleet,
    cluster: ClusterName,
    served: &ServedResource,
    namespace: Option<String>,
) -> Option<Definition> {
    let (columns, namespace) = match read_table_columns(fleet, &cluster, served, None).await {
        Some(columns) => (columns, None),
        None => (read_table_columns(fleet, &cluster, served, Some(namespace.as_deref()?)).await?, namespace),
    };
    let version = DefinitionVersion {
        name: served.resource.version.to_string(),
        additional_printer_columns: columns,
        selectable_fields: read_document_fields(fleet, &cluster, served).await.unwrap_or_default(),
    };
    Some(Definition { cluster, source: DefinitionSource::Shown { namespace }, version })
}

/// Returns the columns of a Table whose descriptions contain JSONPaths. `None` if no column has one.
async fn read_table_columns(
    fleet: &Fleet,
    cluster: &ClusterName,
    served: &ServedResource,
    namespace: Option<&str>,
) -> Option<Vec<ColumnDefinition>> {
    let path = format!("{}?limit=1&includeObject=None", served.resource.path(namespace));
    columns_of_table(&get(fleet, cluster, &path, TABLE).await?)
}

fn columns_of_table(text: &[u8]) -> Option<Vec<ColumnDefinition>> {
    let table: Table = serde_json::from_slice(text).ok()?;
    let columns: Vec<_> =
        table.column_definitions.into_iter().filter_map(ColumnDefinition::from_table_column).collect();
    (table.kind == "Table" && !columns.is_empty()).then_some(columns)
}

/// Reads the selectable fields from the OpenAPI document of the resource's API version.
///
/// Source: `buildSelectableFields` in `k8s.io/apiextensions-apiserver`.
async fn read_document_fields(
    fleet: &Fleet,
    cluster: &ClusterName,
    served: &ServedResource,
) -> Option<Vec<SelectableFieldPath>> {
    let GroupVersion { group, version } = served.resource.group_version();
    let path = format!("/openapi/v3/apis/{group}/{version}");
    let document = get(fleet, cluster, &path, "application/json").await?;
    fields_of_document(&document, &served.resource, served.description.kind())
}

fn fields_of_document(text: &[u8], resource: &GroupVersionResource, kind: &str) -> Option<Vec<SelectableFieldPath>> {
    let document: OpenApiDocument = serde_json::from_slice(text).ok()?;
    let is_of_kind = |schema: &OpenApiSchema| {
        let mut kinds = schema.kinds.iter();
        kinds.any(|own| own.kind == kind && own.group == *resource.group && own.version == *resource.version)
    };
    let schema = document.components.schemas.into_values().find(is_of_kind)?;
    let of_path = |field: OpenApiField| SelectableFieldPath { json_path: field.field_path };
    Some(schema.fields.into_iter().map(of_path).collect())
}

async fn read_stored_definition(fleet: &Fleet, cluster: ClusterName, served: &ServedResource) -> Option<Definition> {
    let text = get(fleet, &cluster, &definition_path(served), "application/json").await?;
    let definition = serde_json::from_slice::<DefinitionObject<DefinitionSpec>>(&text).ok()?;
    let mut versions = definition.spec.into_iter().flat_map(|spec| spec.versions);
    let version = versions.find(|version| *version.name == *served.resource.version)?;
    Some(Definition { cluster, source: DefinitionSource::Stored(definition.metadata), version })
}

/// Returns the first result that is not `None`, in the order of the requests. [`PARALLEL_LOOKUPS_MAX`] requests run
/// concurrently, each with a timeout.
async fn first<T: Send + 'static>(lookups: Vec<BoxFuture<'static, Option<T>>>) -> Option<T> {
    let timed: Vec<BoxFuture<'static, Option<T>>> = lookups.into_iter().map(in_time).collect();
    let mut results = std::pin::pin!(stream::iter(timed).buffered(PARALLEL_LOOKUPS_MAX).filter_map(std::future::ready));
    results.next().await
}

fn in_time<T: Send + 'static>(lookup: BoxFuture<'static, Option<T>>) -> BoxFuture<'static, Option<T>> {
    async move { timeout(ANSWER_WITHIN, lookup).await.ok().flatten() }.boxed()
}

fn definition_path(served: &ServedResource) -> String {
    let GroupVersionResource { group, resource, .. } = &served.resource;
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource}.{group}")
}

async fn get(fleet: &Fleet, cluster: &ClusterName, path: &str, accept: &'static str) -> Option<Bytes> {
    let cluster = fleet.cluster(cluster).filter(|cluster| cluster.problem().is_none())?;
    let request = Request::get(path).header(header::ACCEPT, accept).body(body::empty()).ok()?;
    let answer = body::send(cluster.transport().ok()?, request).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    body::whole(answer.into_body()).await.ok()
}

/// Fields of a CustomResourceDefinition that a view needs (apiextensions `types.go`).
#[derive(Deserialize)]
struct DefinitionObject<S> {
    metadata: DefinitionState,
    // The field is absent in a metadata-only object.
    spec: Option<S>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct DefinitionState {
    uid: String,
    generation: u64,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    #[serde(default, deserialize_with = "null_is_default")]
    versions: Vec<DefinitionVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    additional_printer_columns: Vec<ColumnDefinition>,
    #[serde(default, deserialize_with = "null_is_default")]
    selectable_fields: Vec<SelectableFieldPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableFieldPath {
    json_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    kind: String,
    #[serde(default, deserialize_with = "null_is_default")]
    column_definitions: Vec<ColumnDefinition>,
}

/// Part of an OpenAPI v3 document that contains the selectable fields of kinds.
#[derive(Deserialize)]
struct OpenApiDocument {
    #[serde(default, deserialize_with = "null_is_default")]
    components: OpenApiComponents,
}

#[derive(Default, Deserialize)]
struct OpenApiComponents {
    #[serde(default, deserialize_with = "null_is_default")]
    schemas: BTreeMap<String, OpenApiSchema>,
}

#[derive(Deserialize)]
struct OpenApiSchema {
    #[serde(rename = "x-kubernetes-group-version-kind", default, deserialize_with = "null_is_default")]
    kinds: Vec<OpenApiKind>,
    #[serde(rename = "x-kubernetes-selectable-fields", default, deserialize_with = "null_is_default")]
    fields: Vec<OpenApiField>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpenApiKind {
    #[serde(deserialize_with = "null_is_default")]
    group: String,
    #[serde(deserialize_with = "null_is_default")]
    version: String,
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenApiField {
    field_path: String,
}

impl DefinitionVersion {
    fn printer(&self) -> Printer {
        let (printer, invalid) = Printer::custom(&self.additional_printer_columns);
        if let Some(error) = invalid {
            tracing::warn!(%error,
                "a printer column of the CustomResourceDefinition cannot be used; only the columns before it are \
                 printed");
        }
        printer
    }

    fn fields(&self) -> Arc<[SelectableField]> {
        let paths = self.selectable_fields.iter().map(|field| field.json_path.trim_start_matches('.'));
        paths.map(SelectableField::dotted).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn printer_columns_are_parsed_from_a_table_with_json_paths() {
        let columns = |text: &str| {
            let columns = columns_of_table(text.as_bytes()).unwrap_or_default();
            columns.into_iter().map(|column| (column.name, column.json_path)).collect::<Vec<_>>()
        };
        let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","columnDefinitions":[
            {"name":"Name","type":"string","format":"name","description":"Name must be unique","priority":0},
            {"name":"Colour","type":"string","format":"","description":"Custom resource definition column (in JSONPath format): .spec.colour","priority":0},
            {"name":"Size","type":"integer","format":"","description":"How large it is","priority":0},
            {"name":"Age","type":"date","format":"","description":"How old it is","priority":0}],"rows":[{"cells":["a","red",1,"2d"]}]}"#;
        let pair = |name: &str, path: &str| (name.to_owned(), path.to_owned());
        assert_eq!(columns(table), [pair("Colour", ".spec.colour"), pair("Age", ".metadata.creationTimestamp")]);
        // Default columns of an aggregated API server, and responses without a valid Table.
        let created = r#"{"kind":"Table","columnDefinitions":[{"name":"Created At","type":"date","format":"",
            "description":"CreationTimestamp is","priority":0}]}"#;
        for none in [created, r#"{"kind":"BarList","items":[]}"#, "{", r#"{"kind":"Table","columnDefinitions":null}"#] {
            assert_eq!(columns(none), [], "{none}");
        }
    }

    #[test]
    fn selectable_fields_are_parsed_from_an_openapi_document() {
        let resource = GroupVersionResource::new("cols.example", "v1", "bars");
        let document = r#"{"openapi":"3.0.0","paths":{"/apis":{}},"components":{"schemas":{
            "example.cols.v1.Bar":{"type":"object","x-kubernetes-group-version-kind":[{"group":"cols.example","version":"v1","kind":"Bar"}],
                "x-kubernetes-selectable-fields":[{"fieldPath":"spec.colour"},{"fieldPath":"spec.size"}]},
            "example.cols.v1.BarList":{"x-kubernetes-group-version-kind":[{"group":"cols.example","version":"v1","kind":"BarList"}]},
            "nulls":{"x-kubernetes-group-version-kind":null,"x-kubernetes-selectable-fields":null},
            "null":{"x-kubernetes-group-version-kind":[{"group":null,"version":null,"kind":null}]},
            "other":{"type":"object"}}}}"#;
        let fields = |text: &str, kind: &str| {
            let fields = fields_of_document(text.as_bytes(), &resource, kind).unwrap_or_default();
            fields.into_iter().map(|field| field.json_path).collect::<Vec<_>>()
        };
        assert_eq!(fields(document, "Bar"), ["spec.colour", "spec.size"]);
        for (text, kind) in [(document, "BarList"), (document, "Foo"), ("{}", "Bar"), ("[", "Bar")] {
            assert!(fields(text, kind).is_empty(), "{kind} in {text}");
        }
        for text in [r#"{"components":null}"#, r#"{"components":{"schemas":null}}"#] {
            assert!(serde_json::from_str::<OpenApiDocument>(text).is_ok(), "{text}");
        }
    }

    /// Requests to clusters with numbers from 0. For each number, `ask` returns the delay in milliseconds (`None`:
    /// forever) and the answer.
    fn lookups(count: u64, ask: impl Fn(u64) -> (Option<u64>, Option<u64>)) -> Vec<BoxFuture<'static, Option<u64>>> {
        let lookup = |number| {
            let (wait, answer) = ask(number);
            async move {
                match wait {
                    Some(wait) => tokio::time::sleep(Duration::from_millis(wait)).await,
                    None => std::future::pending().await,
                }
                answer
            }
            .boxed()
        };
        (0..count).map(lookup).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn crd_comes_from_the_first_cluster_by_name() {
        let begun = Instant::now();
        // The next cluster answers sooner than cluster 804, but the first cluster by name decides.
        let ask = |number| (Some(if number == 804 { 40 } else { 20 }), (number >= 804).then_some(number));
        assert_eq!(first(lookups(1000, ask)).await, Some(804));
        assert!(begun.elapsed() < Duration::from_millis(804 * 20 / 7), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn crd_requests_to_hanging_clusters_time_out_in_parallel() {
        let begun = Instant::now();
        let ask = |number| ((number >= 7).then_some(0), Some(number));
        assert_eq!(first(lookups(20, ask)).await, Some(7));
        assert!(begun.elapsed() >= ANSWER_WITHIN && begun.elapsed() < ANSWER_WITHIN * 2, "{:?}", begun.elapsed());
    }
}
