//! The published objects in the hub, kept in memory by list and watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};
use serde_json::Value;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{ClusterName, ObjectDecoder};
use tributary_cacher::{
    Cacher, CacherConfig, ListPermits, ObjectMemoryLimit, ObjectRetention, Precedence, ReflectorTuning, StaleReason,
    Transport, Update, UpdateObserver,
};

use super::kind::PublishedPlace;
use crate::HubClient;

/// Maximum size of a collection in bytes: 10,000 objects with 10 KB each.
const COLLECTION_BYTES_MAX: u64 = 100 << 20;

/// Time without data after which the watch is checked by requests, as for the configuration objects.
const WATCH_SILENCE: Duration = Duration::from_secs(300);

/// The objects of a kind that this Tributary has published. Dropping the value ends the watch.
pub(super) struct PublishedCollection {
    pub(super) place: PublishedPlace,
    cacher: Cacher,
}

struct NoObserver;

impl UpdateObserver for NoObserver {
    fn update(&self, _: Update) {}
}

impl PublishedCollection {
    /// Starts to list and watch. Must be called within a tokio runtime.
    pub(super) fn start(client: &HubClient, place: PublishedPlace) -> anyhow::Result<Self> {
        let (api_version, kind) = place.kind.type_names();
        let config = CacherConfig {
            cluster: ClusterName::new(crate::client::NAME)?,
            resource: place.kind.resource(),
            namespace: Some(place.namespace.clone()),
            decoder: ObjectDecoder::new(api_version, kind, Arc::default()),
            list_permits: ListPermits::default(),
            object_memory: ObjectMemoryLimit::unbounded(),
            precedence: Precedence::default(),
            retention: ObjectRetention::UntilDeleted,
            tuning: ReflectorTuning {
                collection_size_max: COLLECTION_BYTES_MAX,
                watch_silence: WATCH_SILENCE,
                ..ReflectorTuning::default()
            },
        };
        let transport = with_selector(client.transport(), &place.label_selector());
        Ok(Self { cacher: Cacher::start(config, transport, Arc::new(NoObserver)), place })
    }

    /// Returns the version of the collection in memory; `None` until the hub has listed the objects.
    pub(super) fn version(&self) -> Option<String> {
        self.cacher.snapshot().map(|snapshot| format!("{:?}", snapshot.resource_version()))
    }

    /// Returns the objects that this Tributary has published, by name; `None` until the hub has listed them.
    pub(super) fn objects(&self) -> Option<BTreeMap<String, Value>> {
        let snapshot = self.cacher.snapshot()?;
        let objects = snapshot.iter().filter_map(|object| {
            let document: Value = serde_json::from_slice(object.json()).ok()?;
            self.place.is_published(&document).then(|| (object.name().to_owned(), document))
        });
        Some(objects.collect())
    }

    /// Returns the reason why changes of the objects do not arrive, with the remedy.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.cacher.state();
        let reason = state.reason()?;
        let resource = &self.cacher.config().resource;
        let remedy = match reason {
            StaleReason::NotFound => {
                format!("; install the CustomResourceDefinition {}.{}", resource.resource, resource.group)
            }
            StaleReason::Forbidden => {
                format!(
                    "; give Tributary's account the rights of docs/publish.md in namespace {}",
                    self.place.namespace
                )
            }
            _ => String::new(),
        };
        Some(format!("{resource}: {reason}{remedy}"))
    }
}

/// Returns a transport that adds a label selector to each request.
fn with_selector(transport: Transport, selector: &str) -> Transport {
    let parameter = format!("labelSelector={}", selector.replace('/', "%2F").replace('=', "%3D").replace(',', "%2C"));
    BoxCloneSyncService::new(transport.map_request(move |mut request: Request<Body>| {
        if let Some(uri) = with_parameter(request.uri(), &parameter) {
            *request.uri_mut() = uri;
        }
        request
    }))
}

fn with_parameter(uri: &Uri, parameter: &str) -> Option<Uri> {
    let separator = if uri.query().is_some() { '&' } else { '?' };
    format!("{uri}{separator}{parameter}").parse().ok()
}
