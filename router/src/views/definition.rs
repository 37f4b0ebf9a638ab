//! What describes a resource: built in, or the CRD of a cluster that has one.
//!
//! One cluster's CRD counts, the first by name that gives it, for as long as that cluster serves the resource. Where a
//! thousand clusters do not let us read theirs, the first read does not wait for all of them: it begins with names and
//! ages, and the resource is cached anew with its columns should they be found.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use http::{Request, StatusCode, header};
use serde::Deserialize;
use tokio::time::timeout;
use tributary_apimachinery::{ClusterName, GroupVersionResource, SelectableField, selectable_fields};
use tributary_printers::{ColumnDefinition, Printer};

use crate::body;
use crate::discovery::ServedResource;
use crate::topology::Fleet;

/// How long a member may take to give a CRD before it is passed over. 1 s: many round trips to the other end of the
/// world, and half of what a first read waits.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How many members are asked for a CRD at once.
const ASKED_AT_ONCE: usize = 8;

/// How long the first read of a custom resource waits for its CRD.
pub(super) const DESCRIBED_WITHIN: Duration = Duration::from_secs(2);

const METADATA_ALONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";

/// How a resource is shown and selected.
pub(super) struct Description {
    pub(super) printer: Printer,
    pub(super) fields: Arc<[SelectableField]>,
}

/// The part of one cluster's CRD that a view was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    cluster: ClusterName,
    /// Tells one state of the CRD's spec from another.
    state: DefinitionState,
    version: DefinitionVersion,
}

/// What has become of a [`Definition`].
pub(super) enum DefinitionChange {
    /// Nothing that matters, or nothing is known.
    None,
    /// The CRD has changed, or another cluster's counts, but it says the same.
    Elsewhere(Definition),
    /// The columns or fields are others.
    Described,
}

/// Whether a resource is described by a CRD, if by anything. Only the groups of CRDs have a dot that are not built in.
pub(super) fn is_custom(resource: &GroupVersionResource) -> bool {
    Printer::for_resource(resource).is_none() && resource.group.contains('.')
}

/// Describes a resource: as its CRD does, if one was found.
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
    /// Whether a view that was started without it shows and selects as it says.
    pub(super) fn says_nothing(&self) -> bool {
        self.version.additional_printer_columns.is_empty() && self.version.selectable_fields.is_empty()
    }
}

/// What has become of a definition.
pub(super) async fn changed(fleet: &Arc<Fleet>, served: &Arc<ServedResource>, before: &Definition) -> DefinitionChange {
    if served.clusters.contains(&before.cluster) {
        let asked = timeout(ANSWER_WITHIN, get(fleet, &before.cluster, served, METADATA_ALONE));
        let Some(text) = asked.await.ok().flatten() else { return DefinitionChange::None };
        match serde_json::from_slice::<DefinitionObject<serde::de::IgnoredAny>>(&text) {
            Ok(known) if known.metadata != before.state => {}
            _ => return DefinitionChange::None,
        }
    }
    match find(fleet, served).await {
        Some(now) if now.version != before.version => DefinitionChange::Described,
        Some(now) if now != *before => DefinitionChange::Elsewhere(now),
        _ => DefinitionChange::None,
    }
}

/// The CRD of the first cluster, by name, that gives it. Takes as long as it takes; cancelling is safe.
pub(super) async fn find(fleet: &Arc<Fleet>, served: &Arc<ServedResource>) -> Option<Definition> {
    let ask = |cluster: &ClusterName| {
        let (fleet, served, cluster) = (Arc::clone(fleet), Arc::clone(served), cluster.clone());
        async move { given_by(&fleet, cluster, &served).await }.boxed()
    };
    first(served.clusters.iter().map(ask).collect()).await
}

async fn given_by(fleet: &Fleet, cluster: ClusterName, served: &ServedResource) -> Option<Definition> {
    let text = get(fleet, &cluster, served, "application/json").await?;
    let definition = serde_json::from_slice::<DefinitionObject<DefinitionSpec>>(&text).ok()?;
    let mut versions = definition.spec.into_iter().flat_map(|spec| spec.versions);
    let version = versions.find(|version| *version.name == *served.resource.version)?;
    Some(Definition { cluster, state: definition.metadata, version })
}

/// The first answer that there is, in the order of the questions. A handful is put at once,
/// and each passed over after its time.
async fn first<T: Send + 'static>(questions: Vec<BoxFuture<'static, Option<T>>>) -> Option<T> {
    let asked: Vec<BoxFuture<'static, Option<T>>> = questions.into_iter().map(in_time).collect();
    let mut given = std::pin::pin!(stream::iter(asked).buffered(ASKED_AT_ONCE).filter_map(std::future::ready));
    given.next().await
}

fn in_time<T: Send + 'static>(question: BoxFuture<'static, Option<T>>) -> BoxFuture<'static, Option<T>> {
    async move { timeout(ANSWER_WITHIN, question).await.ok().flatten() }.boxed()
}

async fn get(fleet: &Fleet, cluster: &ClusterName, served: &ServedResource, accept: &'static str) -> Option<Bytes> {
    let cluster = fleet.cluster(cluster).filter(|cluster| cluster.problem().is_none())?;
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}",
        served.resource.resource, served.resource.group
    );
    let request = Request::get(&path).header(header::ACCEPT, accept).body(body::empty()).ok()?;
    let answer = body::send(cluster.transport().ok()?, request).await.ok()?;
    if answer.status() != StatusCode::OK {
        return None;
    }
    body::whole(answer.into_body()).await.ok()
}

/// The part of a CustomResourceDefinition that reading needs (apiextensions `types.go`).
#[derive(Deserialize)]
struct DefinitionObject<S> {
    metadata: DefinitionState,
    // Metadata alone has none.
    spec: Option<S>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct DefinitionState {
    uid: String,
    generation: u64,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    name: String,
    #[serde(default)]
    additional_printer_columns: Vec<ColumnDefinition>,
    #[serde(default)]
    selectable_fields: Vec<SelectableFieldPath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableFieldPath {
    json_path: String,
}

impl DefinitionVersion {
    fn printer(&self) -> Printer {
        let (printer, invalid) = Printer::custom(&self.additional_printer_columns);
        if let Some(error) = invalid {
            tracing::warn!(%error, "a printer column of the CRD cannot be used; the columns before it are printed");
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

    /// Clusters that answer after so many milliseconds, and what.
    fn questions(count: u64, ask: impl Fn(u64) -> (Option<u64>, Option<u64>)) -> Vec<BoxFuture<'static, Option<u64>>> {
        let question = |number| {
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
        (0..count).map(question).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_handful_of_clusters_is_asked_at_once_and_the_first_by_name_counts() {
        let begun = Instant::now();
        // The one behind it answers sooner.
        let ask = |number| (Some(if number == 804 { 40 } else { 20 }), (number >= 804).then_some(number));
        assert_eq!(first(questions(1000, ask)).await, Some(804));
        assert!(begun.elapsed() < Duration::from_millis(804 * 20 / 7), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_that_hang_are_passed_over_together() {
        let begun = Instant::now();
        let ask = |number| ((number >= 7).then_some(0), Some(number));
        assert_eq!(first(questions(20, ask)).await, Some(7));
        assert!(begun.elapsed() >= ANSWER_WITHIN && begun.elapsed() < ANSWER_WITHIN * 2, "{:?}", begun.elapsed());
    }
}
