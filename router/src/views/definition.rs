//! What describes a resource: built in, or the CRD of a cluster that has one.
//!
//! One cluster's CRD counts, the first by name that gives it, for as long as that cluster serves the resource.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use serde::Deserialize;
use tributary_apimachinery::{ClusterName, SelectableField, selectable_fields};
use tributary_printers::{ColumnDefinition, Printer};

use crate::body;
use crate::discovery::ServedResource;
use crate::topology::Fleet;

/// How long a member may take to give a CRD before another is asked.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

const METADATA_ALONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";

/// How a resource is shown and selected.
pub(super) struct Description {
    pub(super) printer: Printer,
    pub(super) fields: Arc<[SelectableField]>,
    /// Where it comes from; `None` if it is built in, or no cluster gives its CRD.
    pub(super) definition: Option<Definition>,
}

/// The part of one cluster's CRD that a view was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    cluster: ClusterName,
    /// Tells one state of the CRD's spec from another.
    state: State,
    version: Version,
}

/// What has become of a [`Definition`].
pub(super) enum Change {
    /// Nothing that matters, or nothing is known.
    None,
    /// The CRD has changed, or another cluster's counts, but it says the same.
    Elsewhere(Definition),
    /// The columns or fields are others.
    Described,
}

/// Describes a resource.
pub(super) async fn describe(fleet: &Fleet, served: &ServedResource) -> Description {
    if let Some(printer) = Printer::for_resource(&served.resource) {
        return Description { printer, fields: selectable_fields(&served.resource), definition: None };
    }
    match find(fleet, served).await {
        Some(definition) => Description {
            printer: definition.version.printer(),
            fields: definition.version.fields(),
            definition: Some(definition),
        },
        None => Description {
            printer: Printer::default_columns(),
            fields: selectable_fields(&served.resource),
            definition: None,
        },
    }
}

/// What has become of a definition.
pub(super) async fn changed(fleet: &Fleet, served: &ServedResource, before: &Definition) -> Change {
    if served.clusters.contains(&before.cluster) {
        let Some(text) = get(fleet, &before.cluster, served, METADATA_ALONE).await else { return Change::None };
        match serde_json::from_slice::<Whole<serde::de::IgnoredAny>>(&text) {
            Ok(known) if known.metadata != before.state => {}
            _ => return Change::None,
        }
    }
    match find(fleet, served).await {
        Some(now) if now.version != before.version => Change::Described,
        Some(now) if now != *before => Change::Elsewhere(now),
        _ => Change::None,
    }
}

/// The CRD of the first cluster that gives it.
async fn find(fleet: &Fleet, served: &ServedResource) -> Option<Definition> {
    // Only the groups of CRDs have a dot that are not built in.
    if !served.resource.group.contains('.') {
        return None;
    }
    for cluster in &served.clusters {
        let Some(text) = get(fleet, cluster, served, "application/json").await else { continue };
        let Ok(definition) = serde_json::from_slice::<Whole<Spec>>(&text) else { continue };
        let mut versions = definition.spec.into_iter().flat_map(|spec| spec.versions);
        let version = versions.find(|version| *version.name == *served.resource.version)?;
        return Some(Definition { cluster: cluster.clone(), state: definition.metadata, version });
    }
    None
}

async fn get(fleet: &Fleet, cluster: &ClusterName, served: &ServedResource, accept: &'static str) -> Option<Bytes> {
    let cluster = fleet.cluster(cluster).filter(|cluster| cluster.problem().is_none())?;
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}",
        served.resource.resource, served.resource.group
    );
    let request = Request::get(&path).header(header::ACCEPT, accept).body(body::empty()).ok()?;
    let answered = async {
        let answer = body::send(cluster.transport().ok()?, request).await.ok()?;
        if answer.status() != StatusCode::OK {
            return None;
        }
        body::whole(answer.into_body()).await.ok()
    };
    tokio::time::timeout(ANSWER_WITHIN, answered).await.ok()?
}

/// The part of a CustomResourceDefinition that reading needs (apiextensions `types.go`).
#[derive(Deserialize)]
struct Whole<S> {
    metadata: State,
    // Metadata alone has none.
    spec: Option<S>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct State {
    uid: String,
    generation: u64,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: String,
    #[serde(default)]
    additional_printer_columns: Vec<ColumnDefinition>,
    #[serde(default)]
    selectable_fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Field {
    json_path: String,
}

impl Version {
    fn printer(&self) -> Printer {
        Printer::custom(&self.additional_printer_columns).unwrap_or_else(|error| {
            tracing::warn!(%error, "the CRD's printer columns cannot be read; names and ages are printed");
            Printer::default_columns()
        })
    }

    fn fields(&self) -> Arc<[SelectableField]> {
        let paths = self.selectable_fields.iter().map(|field| field.json_path.trim_start_matches('.'));
        paths.map(SelectableField::dotted).collect()
    }
}
