//! All resources that are held in memory: started on first use, shared, ended when unused.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder, SelectableField, selectable_fields};
use tributary_printers::{ColumnDefinition, Printer};

use crate::body;
use crate::discovery::ServedResource;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::policy::Policies;
use crate::response::ResourceKind;
use crate::topology::Fleet;
use crate::view::View;

/// How often unused views and old history are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

type Key = (GroupVersionResource, Option<String>);

/// The views by resource, and by namespace where a member forbids more.
pub struct Views {
    fleet: Arc<Fleet>,
    policies: Arc<ArcSwap<Policies>>,
    metrics: Arc<Metrics>,
    limits: Limits,
    by_key: Mutex<HashMap<Key, Arc<View>>>,
}

impl Views {
    /// No views; they follow the fleet from now on. Must be called within a tokio runtime.
    pub fn new(
        fleet: Arc<Fleet>,
        policies: Arc<ArcSwap<Policies>>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Arc<Self> {
        let views = Arc::new(Self { fleet, policies, metrics, limits, by_key: Mutex::default() });
        let weak = Arc::downgrade(&views);
        let mut changes = views.fleet.changes();
        tokio::spawn(async move {
            let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { break },
                    _ = sweep.tick() => {}
                }
                let Some(views) = weak.upgrade() else { break };
                views.sweep();
                for view in views.all() {
                    view.follow_fleet();
                    view.trim();
                }
            }
        });
        views
    }

    /// All views.
    pub fn all(&self) -> Vec<Arc<View>> {
        self.by_key.lock().values().cloned().collect()
    }

    /// What clusters that answer refuse to show, and why: one collection is named, the others are counted.
    pub fn refusals(&self) -> BTreeMap<ClusterName, String> {
        let mut by_cluster: BTreeMap<ClusterName, Vec<String>> = BTreeMap::new();
        for view in self.all() {
            for (cluster, reason) in view.refusals() {
                by_cluster.entry(cluster).or_default().push(format!("{}: {reason}", view.kind.resource));
            }
        }
        let text = |(cluster, mut refusals): (ClusterName, Vec<String>)| {
            refusals.sort();
            let more = refusals.len() - 1;
            let first = refusals.swap_remove(0);
            (cluster, if more == 0 { first } else { format!("{first}; and {more} more collections") })
        };
        by_cluster.into_iter().map(text).collect()
    }

    /// The view of a resource, if it is held.
    pub fn get(&self, resource: &GroupVersionResource, namespace: Option<&str>) -> Option<Arc<View>> {
        self.by_key.lock().get(&(resource.clone(), namespace.map(str::to_owned))).cloned()
    }

    /// The view of a resource, started if it is not held yet.
    pub async fn get_or_start(&self, served: &ServedResource, namespace: Option<&str>) -> Arc<View> {
        let found = self.get(&served.resource, namespace);
        if let Some(view) = found.filter(|view| is_of_kind(view, served)) {
            view.touch();
            return view;
        }
        // Two who ask at once may both get this far; the second to have its description takes the first one's view.
        let description = self.describe(served).await;
        let kind = ResourceKind {
            resource: served.resource.clone(),
            kind: served.description.kind().into(),
            namespaced: served.description.namespaced(),
            printer: description.printer,
        };
        let api_version = served.resource.group_version().to_string();
        let decoder = ObjectDecoder::new(&api_version, &kind.kind, description.fields);
        let namespace = namespace.map(str::to_owned);
        let start = || {
            let (fleet, policies, metrics) = (&self.fleet, &self.policies, &self.metrics);
            let (fleet, policies, metrics) = (Arc::clone(fleet), Arc::clone(policies), Arc::clone(metrics));
            View::start(kind, namespace.clone(), decoder, fleet, policies, metrics, &self.limits)
        };
        match self.by_key.lock().entry((served.resource.clone(), namespace.clone())) {
            Entry::Occupied(known) if is_of_kind(known.get(), served) => Arc::clone(known.get()),
            Entry::Occupied(mut outdated) => {
                let view = start();
                outdated.insert(Arc::clone(&view));
                view
            }
            Entry::Vacant(none) => Arc::clone(none.insert(start())),
        }
    }

    fn sweep(&self) {
        // Dropped outside of the lock: the end of a view ends its cachers.
        let unused: Vec<_> = {
            let mut by_key = self.by_key.lock();
            let keys: Vec<_> = by_key
                .iter()
                .filter(|(_, view)| view.idle() > self.limits.unused_after)
                .map(|(key, _)| key.clone())
                .collect();
            keys.iter().filter_map(|key| by_key.remove(key)).collect()
        };
        drop(unused);
    }

    /// Columns and selectable fields: built in, or from the CRD of a cluster that has one.
    async fn describe(&self, served: &ServedResource) -> Description {
        if let Some(printer) = Printer::for_resource(&served.resource) {
            return Description { printer, fields: selectable_fields(&served.resource) };
        }
        match self.custom(served).await {
            Some(description) => description,
            None => Description { printer: Printer::default_columns(), fields: selectable_fields(&served.resource) },
        }
    }

    async fn custom(&self, served: &ServedResource) -> Option<Description> {
        if !served.resource.group.contains('.') {
            return None;
        }
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.{}",
            served.resource.resource, served.resource.group
        );
        for name in &served.clusters {
            let Some(transport) = self.fleet.cluster(name).and_then(|cluster| cluster.transport().ok()) else {
                continue;
            };
            let Ok(request) = Request::get(&path).body(body::empty()) else { continue };
            let answer = tokio::time::timeout(DEFINITION_WITHIN, body::send(transport, request)).await;
            let Ok(Ok(answer)) = answer else { continue };
            if answer.status() != StatusCode::OK {
                continue;
            }
            let Ok(text) = body::whole(answer.into_body()).await else { continue };
            let Ok(definition) = serde_json::from_slice::<Definition>(&text) else { continue };
            let version =
                definition.spec.versions.into_iter().find(|version| *version.name == *served.resource.version)?;
            return Some(version.describe());
        }
        None
    }
}

/// Whether a view still shows what the members serve: a CRD may be made anew with another kind or scope.
fn is_of_kind(view: &View, served: &ServedResource) -> bool {
    *view.kind.kind == *served.description.kind() && view.kind.namespaced == served.description.namespaced()
}

/// How long a member may take to give a CRD before another is asked.
const DEFINITION_WITHIN: Duration = Duration::from_secs(5);

struct Description {
    printer: Printer,
    fields: Arc<[SelectableField]>,
}

/// The part of a CustomResourceDefinition that reading needs (apiextensions `types.go`).
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionVersion {
    name: String,
    #[serde(default)]
    additional_printer_columns: Vec<ColumnDefinition>,
    #[serde(default)]
    selectable_fields: Vec<DefinitionField>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DefinitionField {
    json_path: String,
}

impl DefinitionVersion {
    fn describe(self) -> Description {
        let printer = Printer::custom(&self.additional_printer_columns).unwrap_or_else(|error| {
            tracing::warn!(%error, "the CRD's printer columns cannot be read; names and ages are printed");
            Printer::default_columns()
        });
        let fields =
            self.selectable_fields.iter().map(|field| SelectableField::dotted(field.json_path.trim_start_matches('.')));
        Description { printer, fields: fields.collect() }
    }
}
