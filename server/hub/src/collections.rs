//! The collections of the hub, kept in memory by list and watch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder, Snapshot};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ListPermits, ObjectMemoryLimit, ObjectRetention, Precedence, ReflectorTuning,
    StaleReason, Transport, Update, UpdateObserver,
};
use tributary_cluster_sources::{SourceCollection, SourceList};
use tributary_crds::{API_VERSION, GROUP, VERSION};

use crate::placement_decisions::ListedDecisions;
use crate::source_items::ListedSource;
use crate::verdict::shorten;
use crate::{ConditionState, ConditionStatus, HubClient, HubKind, ObjectReference};

/// Label that a Secret needs so that an UpstreamCluster can refer to it. Of the Secrets for UpstreamClusters, Tributary
/// lists only Secrets with this label.
pub const CREDENTIAL_LABEL: &str = "tributary.dev/credential";

/// Changes of the hub are applied when no other change has arrived for this time, so that a manifest with several
/// objects is applied as a whole.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// Maximum time from a change to its application, even if other changes keep arriving.
const GATHER_TIME_MAX: Duration = Duration::from_secs(1);

/// Interval of checks whether all collections are listed.
const LISTED_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum size of a collection in bytes: 10,000 members with 10 KB each fit twice.
const COLLECTION_BYTES_MAX: u64 = 200 << 20;

/// Time without data after which a watch of the hub is checked by requests. 5 min: pings detect a broken connection
/// within 15 s, and a calm hub gets few requests.
const WATCH_SILENCE: Duration = Duration::from_secs(300);

/// The part of an object that the writer of status reads.
#[derive(Deserialize)]
struct StatusPart {
    #[serde(default)]
    status: Value,
}

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
    /// The sources that the hub has listed, by the name of the ClusterSource.
    pub(crate) sources: BTreeMap<String, ListedSource>,
    /// The PlacementDecisions of the namespaces that registries name.
    pub(crate) decisions: ListedDecisions,
    /// Whether the lists of all kinds are up to date.
    pub is_current: bool,
}

impl HubSnapshot {
    /// Returns the objects of a kind.
    pub fn objects(&self, kind: HubKind) -> Option<&Snapshot> {
        self.objects[kind as usize].as_ref()
    }

    /// Returns the names that the list of a kind lacks; none until the hub has listed the kind. `names` are sorted.
    pub(crate) fn absent<'a>(&self, kind: HubKind, names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
        let Some(objects) = self.objects(kind) else { return Vec::new() };
        // The list has the order of names, so one walk finds all.
        let mut listed = objects.iter().map(|object| object.name()).peekable();
        let is_absent = |name: &&String| {
            while listed.next_if(|listed| *listed < name.as_str()).is_some() {}
            listed.peek().is_none_or(|listed| *listed != name.as_str())
        };
        names.filter(is_absent).collect()
    }
}

/// The number of changes, with the times that decide when the changes are applied.
#[derive(Clone, Copy, Debug)]
struct Revision {
    count: u64,
    /// Time of the first change that no snapshot includes; `None` if a snapshot includes all changes.
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

/// Starts the cachers of the hub.
struct CacherStarter {
    cluster: ClusterName,
    permits: ListPermits,
    transport: Transport,
    /// The transports to servers that serve an API group in the place of the hub.
    of_groups: BTreeMap<String, Transport>,
    observer: Arc<Changes>,
}

impl CacherStarter {
    fn start(&self, collection: SourceCollection) -> Cacher {
        let SourceCollection { resource, api_version, kind, namespace, label_selector } = collection;
        let transport = self.of_groups.get(&*resource.group).unwrap_or(&self.transport).clone();
        let config = CacherConfig {
            cluster: self.cluster.clone(),
            resource,
            namespace,
            decoder: ObjectDecoder::new(&api_version, kind, Arc::default()),
            list_permits: self.permits.clone(),
            object_memory: ObjectMemoryLimit::unbounded(),
            precedence: Precedence::default(),
            retention: ObjectRetention::UntilDeleted,
            tuning: ReflectorTuning {
                collection_size_max: COLLECTION_BYTES_MAX,
                watch_silence: WATCH_SILENCE,
                ..ReflectorTuning::default()
            },
        };
        let transport = match label_selector.as_str() {
            "" => transport,
            selector => selected(transport, selector),
        };
        Cacher::start(config, transport, Arc::clone(&self.observer) as Arc<dyn UpdateObserver>)
    }
}

/// The collections of a source.
struct FollowedSource {
    list: SourceList,
    items: Cacher,
    secrets: Option<Cacher>,
    /// Karmada's ResourceRegistries, which karmada-search defines. Without them, the source is complete.
    registries: Option<Cacher>,
}

impl FollowedSource {
    fn start(starter: &CacherStarter, list: SourceList) -> Self {
        let (items, secrets) = (starter.start(list.items()), list.secrets().map(|secrets| starter.start(secrets)));
        let registries = list.registries().map(|registries| starter.start(registries));
        Self { list, items, secrets, registries }
    }

    fn all(&self) -> impl Iterator<Item = &Cacher> {
        [Some(&self.items), self.secrets.as_ref()].into_iter().flatten()
    }

    /// Returns the collections; `None` until all of them are listed.
    fn snapshot(&self) -> Option<ListedSource> {
        let secrets = match &self.secrets {
            Some(secrets) => Some(secrets.snapshot()?),
            None => None,
        };
        let is_current = self.all().all(|cacher| cacher.state() == CacherState::Synced);
        let registries = self.registries.as_ref().and_then(Cacher::snapshot);
        Some(ListedSource { items: self.items.snapshot()?, secrets, registries, is_current })
    }

    /// Returns whether the wait for this source can end: the hub has listed the source, or cannot list it, because the
    /// CustomResourceDefinition or Tributary's right is missing.
    fn is_decided(&self) -> bool {
        self.snapshot().is_some() || self.all().any(is_refused)
    }

    /// Returns the state of the condition `Synced`.
    fn condition(&self) -> ConditionState {
        let (mut problems, mut is_complete) = (self.all().filter_map(problem_of_source), self.snapshot().is_some());
        match problems.next() {
            Some((reason, message)) => ConditionState::failed(reason, shorten(message)),
            None => {
                is_complete &= self.all().all(|cacher| cacher.state() == CacherState::Synced);
                match is_complete {
                    true => ConditionState::fulfilled("Synced", "The list is up to date."),
                    false => ConditionState::unknown("Pending", "Tributary has not read the list yet."),
                }
            }
        }
    }
}

/// Returns whether a collection cannot be listed: its definition or Tributary's right is absent.
fn is_refused(cacher: &Cacher) -> bool {
    matches!(cacher.state().reason(), Some(StaleReason::NotFound | StaleReason::Forbidden))
}

/// The collections of the hub. Dropping the value ends all watches.
pub struct HubCollections {
    cachers: [Cacher; HubKind::ALL.len()],
    secrets: Cacher,
    starter: CacherStarter,
    /// The collections of sources, by the name of the ClusterSource.
    sources: Mutex<BTreeMap<String, FollowedSource>>,
    /// The PlacementDecisions of each namespace that a registry names.
    decisions: Mutex<BTreeMap<String, Cacher>>,
    revisions: watch::Sender<Revision>,
}

impl HubCollections {
    /// Starts to list and watch all collections. The Secrets are those of `namespace`. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// The hub's name in logs is invalid.
    pub fn start(client: &HubClient, namespace: &str) -> anyhow::Result<Self> {
        let (revisions, _) = watch::channel(Revision { count: 0, first: None, last: Instant::now() });
        let starter = CacherStarter {
            cluster: ClusterName::new(crate::client::NAME)?,
            permits: ListPermits::default(),
            transport: client.transport(),
            of_groups: client.servers().iter().map(|(group, server)| (group.clone(), server.transport())).collect(),
            observer: Arc::new(Changes(revisions.clone())),
        };
        let cachers = HubKind::ALL.map(|kind| {
            starter.start(SourceCollection {
                resource: GroupVersionResource::new(GROUP, VERSION, kind.plural()),
                api_version: API_VERSION.to_owned(),
                kind: kind.as_str(),
                namespace: None,
                label_selector: String::new(),
            })
        });
        let secrets = starter.start(SourceCollection {
            resource: GroupVersionResource::new("", "v1", "secrets"),
            api_version: "v1".to_owned(),
            kind: "Secret",
            namespace: Some(namespace.to_owned()),
            label_selector: format!("{CREDENTIAL_LABEL}=true"),
        });
        Ok(Self { cachers, secrets, starter, sources: Mutex::default(), decisions: Mutex::default(), revisions })
    }

    /// Lists and watches the collections of these sources, and ends the watches of other sources. Collections of an
    /// unchanged list continue. Returns whether the collections of a source have started.
    pub(crate) fn follow_sources<'a>(&self, lists: impl Iterator<Item = (&'a String, &'a SourceList)>) -> bool {
        let mut sources = self.sources.lock();
        let mut before = std::mem::take(&mut *sources);
        let mut has_started = false;
        for (name, list) in lists {
            let same = before.remove(name).filter(|own| own.list == *list);
            has_started |= same.is_none();
            let own = same.unwrap_or_else(|| FollowedSource::start(&self.starter, list.clone()));
            sources.insert(name.clone(), own);
        }
        has_started
    }

    /// Lists and watches the PlacementDecisions of these namespaces, and ends the watches of other namespaces. Returns
    /// whether the collection of a namespace has started.
    pub(crate) fn follow_decisions(&self, namespaces: BTreeSet<&str>) -> bool {
        let mut decisions = self.decisions.lock();
        decisions.retain(|namespace, _| namespaces.contains(namespace.as_str()));
        let before = decisions.len();
        for namespace in namespaces {
            let start = || {
                self.starter.start(SourceCollection {
                    resource: GroupVersionResource::new("multicluster.x-k8s.io", "v1alpha1", "placementdecisions"),
                    api_version: "multicluster.x-k8s.io/v1alpha1".to_owned(),
                    kind: "PlacementDecision",
                    namespace: Some(namespace.to_owned()),
                    label_selector: String::new(),
                })
            };
            decisions.entry(namespace.to_owned()).or_insert_with(start);
        }
        decisions.len() > before
    }

    fn listed_decisions(&self) -> ListedDecisions {
        let listed = |cacher: &Cacher| {
            cacher.snapshot().ok_or_else(|| match problem_of_source(cacher) {
                Some((_, problem)) => problem,
                None => "Tributary has not read the PlacementDecisions yet.".to_owned(),
            })
        };
        let decisions = self.decisions.lock();
        decisions.iter().map(|(namespace, cacher)| (namespace.clone(), listed(cacher))).collect()
    }

    /// Waits until the hub has listed each source and the PlacementDecisions, or has refused to. Cancel: safe.
    pub(crate) async fn sources_listed(&self) {
        let is_decided = |cacher: &Cacher| cacher.snapshot().is_some() || is_refused(cacher);
        while !self.sources.lock().values().all(FollowedSource::is_decided)
            || !self.decisions.lock().values().all(is_decided)
        {
            sleep(LISTED_CHECK_INTERVAL).await;
        }
    }

    /// Returns the state of the condition `Synced` of a source.
    pub(crate) fn source_condition(&self, name: &str) -> ConditionState {
        match self.sources.lock().get(name) {
            Some(own) => own.condition(),
            None => ConditionState::unknown("Pending", "Tributary has not read the list yet."),
        }
    }

    /// Returns the reason why changes of each source do not arrive, by the name of the ClusterSource.
    pub(crate) fn source_problems(&self) -> BTreeMap<String, String> {
        let sources = self.sources.lock();
        let problem = |(name, own): (&String, &FollowedSource)| {
            let state = own.condition();
            (state.status == ConditionStatus::False).then(|| (name.clone(), state.message))
        };
        sources.iter().filter_map(problem).collect()
    }

    /// Returns the objects at this time. Does no I/O. The result includes all changes that [`changed`](Self::changed)
    /// has reported.
    pub fn snapshot(&self) -> HubSnapshot {
        self.revisions.send_modify(|revision| revision.first = None);
        let sources = self.sources.lock();
        HubSnapshot {
            objects: std::array::from_fn(|index| self.cachers[index].snapshot()),
            secrets: self.secrets.snapshot(),
            sources: sources.iter().filter_map(|(name, own)| Some((name.clone(), own.snapshot()?))).collect(),
            decisions: self.listed_decisions(),
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
        // A reported problem comes first. A collection without a problem whose first list is missing may only be
        // waiting for its turn to send a request.
        problems.min_by_key(|(_, is_known)| !is_known).map(|(text, _)| text)
    }

    /// Returns the present status of an object, with the object's resourceVersion; `None` if the hub has no object with
    /// this uid.
    pub(crate) fn status_of(&self, reference: &ObjectReference) -> Option<PresentStatus> {
        let objects = self.cachers[reference.kind as usize].snapshot()?;
        let object = objects.get(&reference.name)?;
        if object.uid() != reference.uid {
            return None;
        }
        let StatusPart { status } = serde_json::from_slice(object.json()).ok()?;
        Some(PresentStatus { status, resource_version: object.resource_version().to_string() })
    }

    fn all(&self) -> impl Iterator<Item = &Cacher> {
        self.cachers.iter().chain([&self.secrets])
    }
}

/// Returns the reason why changes of a collection do not arrive. The `bool` is false if only the first list is missing,
/// and true if the cacher has a problem to report.
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

/// Returns the reason why changes of a source do not arrive, for programs and for people.
fn problem_of_source(cacher: &Cacher) -> Option<(&'static str, String)> {
    let (resource, state) = (&cacher.config().resource, cacher.state());
    let reason = state.reason()?;
    let remedy = match reason {
        StaleReason::NotFound => format!(
            "; install the CustomResourceDefinition {}.{} of the system, or delete the object that names it",
            resource.resource, resource.group
        ),
        StaleReason::Forbidden => {
            let place = match &cacher.config().namespace {
                Some(namespace) => format!("{resource} in namespace {namespace}"),
                None => resource.to_string(),
            };
            format!("; let Tributary's account get, list and watch {place} (docs/cluster-sources.md)")
        }
        _ => String::new(),
    };
    let earlier = if cacher.snapshot().is_some() { "; the members stay as they were read last" } else { "" };
    Some((reason.as_str(), format!("{resource}: {reason}{remedy}{earlier}.")))
}

/// Returns a transport that adds a label selector to each request.
fn selected(transport: Transport, selector: &str) -> Transport {
    let parameter = format!("labelSelector={}", utf8_percent_encode(selector, NON_ALPHANUMERIC));
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
