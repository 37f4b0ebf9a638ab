//! The collections of the hub, kept in memory by list and watch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder, ObjectKey, Snapshot};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ListPermits, ObjectMemoryLimit, ObjectRetention, Precedence, ReflectorTuning,
    StaleReason, Transport, Update, UpdateObserver,
};
use tributary_crds::{API_VERSION, GROUP, VERSION};

use crate::{HubClient, HubKind, ObjectReference};

/// The label of Secrets with credentials of members. Tributary reads no other Secrets.
pub const CREDENTIAL_LABEL: &str = "tributary.dev/credential";

/// Time without a further change after which changes are applied: 100 ms, so that a manifest with several objects is
/// applied as a whole.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// The longest time from a change to its application while further changes arrive.
const GATHER_TIME_MAX: Duration = Duration::from_secs(1);

/// Interval of checks whether all collections are listed.
const LISTED_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum size of a collection in bytes: 10,000 members with 10 KB each fit twice.
const COLLECTION_BYTES_MAX: u64 = 200 << 20;

/// Time without data after which a watch of the hub is checked by requests. 5 min: pings detect a broken connection
/// within 15 s, and a calm hub gets few requests.
const WATCH_SILENCE: Duration = Duration::from_secs(300);

/// The status of an object in the hub.
pub(crate) struct PresentStatus {
    pub(crate) status: Value,
    pub(crate) resource_version: String,
}

/// The objects and Secrets of the hub at one time. A collection is `None` until the hub has listed it.
#[derive(Clone, Default)]
pub struct HubSnapshot {
    pub(crate) objects: [Option<Snapshot>; HubKind::ALL.len()],
    /// The Secrets with credentials.
    pub secrets: Option<Snapshot>,
    /// Whether the lists of all kinds are up to date.
    pub is_current: bool,
}

impl HubSnapshot {
    /// Returns the objects of a kind.
    pub fn objects(&self, kind: HubKind) -> Option<&Snapshot> {
        self.objects[kind as usize].as_ref()
    }

    /// Returns the names of the objects of a kind; `None` until the hub has listed them.
    pub(crate) fn names(&self, kind: HubKind) -> Option<BTreeSet<&str>> {
        Some(self.objects(kind)?.iter().map(|object| object.name()).collect())
    }
}

/// The number of changes, with the times that decide when the changes are applied.
#[derive(Clone, Copy, Debug)]
struct Revision {
    count: u64,
    /// Time of the first change that is not applied.
    first: Option<Instant>,
    last: Instant,
}

impl Revision {
    fn due(&self) -> Option<Instant> {
        Some((self.first? + GATHER_TIME_MAX).min(self.last + QUIET_TIME))
    }
}

struct Changes(watch::Sender<Revision>);

impl UpdateObserver for Changes {
    fn update(&self, update: Update) {
        if !matches!(update, Update::Progress { .. }) {
            record_change(&self.0);
        }
    }
}

fn record_change(revisions: &watch::Sender<Revision>) {
    let now = Instant::now();
    revisions.send_modify(|revision| {
        revision.count += 1;
        revision.first = revision.first.or(Some(now));
        revision.last = now;
    });
}

/// The collections of the hub. Dropping the value ends all watches.
pub struct HubCollections {
    cachers: [Cacher; HubKind::ALL.len()],
    secrets: Cacher,
    revisions: watch::Sender<Revision>,
}

impl HubCollections {
    /// Starts to list and watch all collections. The Secrets are those of `namespace`. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// The hub's name in logs is invalid.
    pub fn start(client: &HubClient, namespace: &str) -> anyhow::Result<Self> {
        let cluster = ClusterName::new(crate::client::NAME)?;
        let (revisions, _) = watch::channel(Revision { count: 0, first: None, last: Instant::now() });
        let observer = Arc::new(Changes(revisions.clone()));
        let permits = ListPermits::default();
        let start = |resource, decoder, namespace, transport| {
            let config = CacherConfig {
                cluster: cluster.clone(),
                resource,
                namespace,
                decoder,
                list_permits: permits.clone(),
                room: ObjectMemoryLimit::unbounded(),
                precedence: Precedence::default(),
                retention: ObjectRetention::UntilDeleted,
                tuning: ReflectorTuning {
                    collection_size_max: COLLECTION_BYTES_MAX,
                    watch_silence: WATCH_SILENCE,
                    ..ReflectorTuning::default()
                },
            };
            Cacher::start(config, transport, Arc::clone(&observer) as Arc<dyn UpdateObserver>)
        };
        let cachers = HubKind::ALL.map(|kind| {
            let resource = GroupVersionResource::new(GROUP, VERSION, kind.plural());
            let decoder = ObjectDecoder::new(API_VERSION, kind.as_str(), Arc::default());
            start(resource, decoder, None, client.transport())
        });
        let decoder = ObjectDecoder::new("v1", "Secret", Arc::default());
        let resource = GroupVersionResource::new("", "v1", "secrets");
        let secrets = start(resource, decoder, Some(namespace.to_owned()), selected(client.transport()));
        Ok(Self { cachers, secrets, revisions })
    }

    /// Returns the objects at this time. Does no I/O. The result includes all changes that [`changed`](Self::changed)
    /// has reported.
    pub fn snapshot(&self) -> HubSnapshot {
        self.revisions.send_modify(|revision| revision.first = None);
        HubSnapshot {
            objects: std::array::from_fn(|index| self.cachers[index].snapshot()),
            secrets: self.secrets.snapshot(),
            is_current: self.cachers.iter().all(|cacher| cacher.state() == CacherState::Synced),
        }
    }

    /// Waits until changes are due: 100 ms after the last change, and at most 1 s after the first change that no
    /// snapshot includes. Cancel: safe.
    pub async fn changed(&self) {
        let mut revisions = self.revisions.subscribe();
        loop {
            let due = revisions.borrow_and_update().due();
            match due {
                Some(due) if due <= Instant::now() => return,
                Some(due) => {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        _ = revisions.changed() => {}
                    }
                }
                None => {
                    // `self` owns the sender, so the channel is open.
                    let _is_open = revisions.changed().await;
                }
            }
        }
    }

    /// Waits until the hub has listed each collection. Cancel: safe.
    pub async fn listed(&self) {
        // A cacher reports its first list shortly before the snapshot has it, so the report alone is not enough.
        while self.all().any(|cacher| cacher.snapshot().is_none()) {
            sleep(LISTED_CHECK_INTERVAL).await;
        }
    }

    /// Returns the reason why changes of the hub do not arrive, with the name of the collection and the remedy.
    pub fn problem(&self) -> Option<String> {
        let problems = self.all().filter_map(|cacher| problem_of(&cacher.config().resource, &cacher.state()));
        // A collection without an answer so far may only wait for its turn.
        problems.min_by_key(|(_, is_known)| !is_known).map(|(text, _)| text)
    }

    /// Returns the present status of an object, with the object's resourceVersion; `None` if the hub has no object with
    /// this uid.
    pub(crate) fn status_of(&self, reference: &ObjectReference) -> Option<PresentStatus> {
        let objects = self.cachers[reference.kind as usize].snapshot()?;
        // Keys of cluster-scoped objects begin with an empty namespace.
        let object = objects.get(ObjectKey::new("", &reference.name).as_str())?;
        if object.uid() != reference.uid {
            return None;
        }
        let mut document: Value = serde_json::from_slice(object.json()).ok()?;
        let resource_version = document["metadata"]["resourceVersion"].as_str()?.to_owned();
        Some(PresentStatus { status: document["status"].take(), resource_version })
    }

    fn all(&self) -> impl Iterator<Item = &Cacher> {
        self.cachers.iter().chain([&self.secrets])
    }
}

/// Returns the reason why changes of a collection do not arrive, and whether the hub has answered at all.
fn problem_of(resource: &GroupVersionResource, state: &CacherState) -> Option<(String, bool)> {
    let Some(reason) = state.reason() else {
        let is_incomplete = state.is_unknown();
        return is_incomplete.then(|| (format!("{resource}: the first list is not complete"), false));
    };
    let remedy = match reason {
        StaleReason::NotFound => {
            format!("; install the CustomResourceDefinition {}.{} (deploy/crds)", resource.resource, resource.group)
        }
        StaleReason::Forbidden => "; give Tributary's account the rights in deploy/hub/rbac.yaml".to_owned(),
        _ => String::new(),
    };
    Some((format!("{resource}: {reason}{remedy}"), true))
}

/// Returns a transport that adds the selector of the Secrets to each request.
fn selected(transport: Transport) -> Transport {
    BoxCloneSyncService::new(transport.map_request(|mut request: Request<Body>| {
        if let Some(uri) = with_selector(request.uri()) {
            *request.uri_mut() = uri;
        }
        request
    }))
}

fn with_selector(uri: &Uri) -> Option<Uri> {
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let label = CREDENTIAL_LABEL.replace('/', "%2F");
    format!("{uri}{separator}labelSelector={label}%3Dtrue").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_of_a_collection_names_the_remedy() {
        let resource = GroupVersionResource::new(GROUP, VERSION, "deniedusers");
        let state = |reason| CacherState::Syncing { since: Instant::now(), reason };
        let text = |state: &CacherState| problem_of(&resource, state).map(|(text, _)| text).unwrap_or_default();
        let missing = text(&state(Some(StaleReason::NotFound)));
        assert!(missing.ends_with("install the CustomResourceDefinition deniedusers.tributary.dev (deploy/crds)"));
        assert!(text(&state(Some(StaleReason::Forbidden))).ends_with("the rights in deploy/hub/rbac.yaml"));
        assert!(text(&state(None)).contains("deniedusers"));
        assert_eq!(text(&CacherState::Synced), "");
    }
}
