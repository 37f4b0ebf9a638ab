//! Members in the process of the test, two routers over these members, and their true histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context as _;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, timeout};
use tributary_apimachinery::body::{self, Body};
use tributary_apimachinery::{ClusterName, Consistency, ItemResourceVersions, Partial};
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, Connector};
use tributary_router::{
    ClusterAddress, ClusterAuthorization, ClusterSetup, KeepEpochs, MemberRules, Policies, RequestContext,
    ResourcePolicy, Router, RouterConfig, User,
};
use tributary_simulator::compact;
use tributary_simulator::{HistoryEvent, Listed, SimulatedCluster, Simulator, SimulatorConfig};

use crate::follower::{Change as Shown, Event, Expectations, Follower, Version};
use crate::ledger::{Change, Ledger, Outcome, Settled, Write};
use crate::schedule::Profile;
use crate::truth::{Component, History, Lie, State, Truth, Vector};

pub(crate) const MEMBERS: usize = 3;

pub(crate) const REPLICAS: usize = 2;

/// The two possible cluster names of each member. The second names have another sort order than the first.
pub(crate) const NAMES: [[&str; 2]; MEMBERS] = [["ap", "zz"], ["eu", "e"], ["us", "a-us"]];

/// The resource of all requests: Services, because they are small and have a selectable field.
pub(crate) const RESOURCE: &str = "services";

/// The maximum time for a response. The router waits for 30 s at most, and the connection to a member for 75 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(150);

/// The maximum time until a change of the configuration reaches every router.
const LEARNT_WITHIN: Duration = Duration::from_secs(2);

/// The creation time of generated objects, in seconds since 1970. The value has no meaning.
pub(crate) const EPOCH: i64 = 1_700_000_000;

pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) expected: Expectations,
    pub(crate) members: Vec<Arc<SimulatedCluster>>,
    routers: Mutex<Vec<Arc<Router>>>,
    /// The content of each router's data directory.
    disks: [Arc<Mutex<Value>>; REPLICAS],
    /// The number of configuration changes, and the configured members by cluster name.
    configured: Mutex<(u64, BTreeMap<String, usize>)>,
    /// The number of configuration changes that have not reached all routers.
    changing: AtomicU64,
    /// The clusters that every router has.
    settled: Mutex<Settled>,
    /// The last time at which the configuration had no cluster, or was about to lose its last cluster.
    bare: Mutex<Option<Instant>>,
    truth: Mutex<Known>,
    ledger: Mutex<Ledger>,
    /// The members that receive no writes until all routers and clients have detected their restore.
    pub(crate) frozen: Mutex<BTreeSet<usize>>,
    /// The number of restores that all routers and clients have detected. A version that a client received before a
    /// restore may stand for another state afterwards.
    pub(crate) restores: AtomicU64,
    pub(crate) followers: Mutex<Vec<Arc<Mutex<Option<Follower>>>>>,
    newest: Mutex<Newest>,
    /// The composite versions that clients received, each with the time of receipt.
    pub(crate) vectors: Mutex<Vec<(Instant, Vector)>>,
    /// Whether the faults have ended. Clients then no longer close their streams.
    pub(crate) quiet: AtomicBool,
    values: AtomicU64,
    fingerprints: AtomicU64,
    started: Instant,
    trace: Mutex<Vec<String>>,
    failure: Mutex<Option<String>>,
}

impl Truth {
    /// Records an event of a member. Returns the change of an object, if the event is a change.
    fn take(&mut self, number: usize, event: &HistoryEvent) -> Option<Change> {
        let mut changed = None;
        for name in NAMES[number] {
            let Some(history) = self.clusters.get_mut(name) else { continue };
            match event {
                HistoryEvent::Changed { revision, key, object } => {
                    let object = object.as_ref().and_then(|object| serde_json::from_slice(object.json()).ok());
                    let (before, after) = (history.state(key).cloned(), object.as_ref().map(state));
                    history.changed(*revision, key, after.clone());
                    changed = Some(Change { member: number, key: key.clone(), before, after });
                }
                HistoryEvent::Restored { from, revision } => history.restored(*from, *revision),
                HistoryEvent::Replaced { from, uid } => history.replaced(*from, uid.clone()),
            }
        }
        changed
    }
}

/// The part of the members' histories that the run has read.
#[derive(Default)]
struct Known {
    truth: Truth,
    read: [usize; MEMBERS],
}

/// Returns the highest revision at which a router relisted the member. The first list of each router is no relist, and
/// neither is a list of one object, with which a router gets the latest revision.
fn listed_anew(lists: &[Listed]) -> Option<u64> {
    let lists = lists.iter().filter(|list| list.resource == RESOURCE && list.limit != 1);
    lists.skip(REPLICAS).map(|list| list.revision).max()
}

/// For each router and cluster name: the newest cluster that the router has shown, as the number of replacements before
/// it.
pub(crate) type Newest = BTreeMap<(usize, String), usize>;

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: String,
    pub(crate) json: Value,
}

impl World {
    /// Starts members and routers. Returns when the routers have read the resource.
    pub(crate) async fn start(profile: Profile) -> anyhow::Result<Arc<Self>> {
        let mut members = Vec::new();
        for (number, names) in NAMES.iter().enumerate() {
            let mut config = SimulatorConfig {
                name: names[0].to_owned(),
                pods: 0,
                namespaces: 1,
                nodes: 1,
                ..SimulatorConfig::default()
            };
            config.seed = number as u64;
            config.epoch = EPOCH;
            config.keep_history = true;
            config.watch_window = profile.window;
            config.watch_list = profile.watch_list;
            config.bookmark_interval = profile.bookmark_interval;
            let member = Simulator::start_in_process(config)?;
            member.control().bookmarks(RESOURCE, !profile.unmarked);
            members.push(Arc::new(member));
        }
        let configured: BTreeMap<_, _> =
            NAMES.iter().enumerate().map(|(number, names)| (names[0].to_owned(), number)).collect();
        let world = Arc::new(Self {
            expected: profile.expectations(),
            profile,
            members,
            routers: Mutex::default(),
            disks: Default::default(),
            changing: AtomicU64::new(0),
            settled: Mutex::new(configured.keys().map(|name| (name.clone(), 0)).collect()),
            configured: Mutex::new((0, configured)),
            bare: Mutex::default(),
            truth: Mutex::default(),
            ledger: Mutex::default(),
            frozen: Mutex::default(),
            restores: AtomicU64::new(0),
            followers: Mutex::default(),
            newest: Mutex::default(),
            vectors: Mutex::default(),
            quiet: AtomicBool::new(false),
            values: AtomicU64::new(0),
            fingerprints: AtomicU64::new(0),
            started: Instant::now(),
            trace: Mutex::default(),
            failure: Mutex::default(),
        });
        for (number, member) in world.members.iter().enumerate() {
            let mut history = History::new(0, &world.uid(number).context("a member without kube-system")?);
            let mut objects: Vec<_> = member.list(RESOURCE).iter().map(place).collect();
            objects.sort_by_key(|(_, _, revision)| *revision);
            for (key, state, revision) in objects {
                history.changed(revision, &key, Some(state));
            }
            let mut known = world.truth.lock();
            for name in NAMES[number] {
                known.truth.clusters.insert(name.to_owned(), history.clone());
            }
            known.read[number] = member.history(RESOURCE, 0).len();
        }
        for replica in 0..REPLICAS {
            let router = world.new_router(replica).await?;
            world.routers.lock().push(router);
            anyhow::ensure!(world.get(replica, &format!("/api/v1/{RESOURCE}")).await?.code == 200, "the first list");
        }
        Ok(world)
    }

    /// Creates a router with an empty cache over the configured clusters, and with the data directory of its
    /// predecessor.
    async fn new_router(&self, replica: usize) -> anyhow::Result<Arc<Router>> {
        let Profile { deny, integer, quorum, alone, placement, .. } = self.profile;
        let default = ResourcePolicy {
            partial: if deny { Partial::Deny } else { Partial::Allow },
            item_resource_versions: if integer {
                ItemResourceVersions::Integer
            } else {
                ItemResourceVersions::Composite
            },
            consistency: if quorum { Consistency::Quorum } else { Consistency::Cached },
            placement: placement.map(ClusterName::new).transpose()?,
            ..ResourcePolicy::default()
        };
        let policies = Policies { default, ..Policies::default() };
        let disk = Arc::clone(&self.disks[replica]);
        let epochs = serde_json::from_value(disk.lock().clone()).unwrap_or_default();
        let keep: KeepEpochs = Box::new(move |epochs| *disk.lock() = json!(epochs));
        let router =
            Router::new(RouterConfig { policies, alone, epochs, keep_epochs: Some(keep), ..RouterConfig::default() });
        router.set_clusters(self.setups().await?);
        router.asked_once(Duration::from_secs(20)).await;
        Ok(router)
    }

    async fn setups(&self) -> anyhow::Result<Vec<ClusterSetup>> {
        let (configured, mut setups) = (self.configured().1, Vec::new());
        for (name, member) in configured {
            let salt = self.fingerprints.load(Ordering::Relaxed);
            setups.push(connect(&name, &self.members[member], salt).await?);
        }
        Ok(setups)
    }

    /// Returns whether a relist explains the refusal of a version. After a relist, a router lacks earlier changes,
    /// which another router may have sent. A relist needs no fault: if no bookmark shows that a revision is complete,
    /// the router relists.
    pub(crate) fn is_explained(&self, code: u64, version: &Vector) -> bool {
        let mut components = version.iter();
        code == 410
            && components.any(|(cluster, own)| {
                let member = NAMES.iter().position(|names| names.contains(&&**cluster));
                let lists = member.map(|member| self.members[member].control().lists()).unwrap_or_default();
                listed_anew(&lists).is_some_and(|listed| *own < listed.into())
            })
    }

    /// Returns whether a router that keeps changes for `kept_for` may have dropped a part of the version's revision. A
    /// router keeps a change for this time after receipt. In an idle cluster, a bookmark may send the revision of the
    /// change long afterwards.
    pub(crate) fn may_have_forgotten(&self, version: &Vector, kept_for: Duration) -> bool {
        let is_part = |truth: &Truth| {
            let mut components = version.iter();
            components.any(|(name, own)| truth.history(name).is_ok_and(|history| history.is_some_of_several(*own)))
        };
        self.started.elapsed() > kept_for && self.with_truth(is_part)
    }

    pub(crate) fn router(&self, replica: usize) -> Arc<Router> {
        Arc::clone(&self.routers.lock()[replica])
    }

    /// Returns the number of configuration changes, and the configured members by cluster name.
    pub(crate) fn configured(&self) -> (u64, BTreeMap<String, usize>) {
        self.configured.lock().clone()
    }

    /// Changes the configured members. Each router receives the change slightly later than the previous router.
    pub(crate) async fn configure(&self, change: impl FnOnce(&mut BTreeMap<String, usize>)) -> anyhow::Result<()> {
        {
            let mut configured = self.configured.lock();
            configured.0 += 1;
            let was_bare = configured.1.is_empty();
            change(&mut configured.1);
            self.changing.fetch_add(1, Ordering::Relaxed);
            self.settled.lock().retain(|name, _| configured.1.contains_key(name));
            if was_bare || configured.1.is_empty() {
                *self.bare.lock() = Some(Instant::now());
            }
        }
        for replica in 0..REPLICAS {
            let setups = self.setups().await?;
            self.router(replica).set_clusters(setups);
            tokio::time::sleep(Duration::from_millis(self.values.load(Ordering::Relaxed) % 400)).await;
        }
        let mut configured = self.configured.lock();
        configured.0 += 1;
        if self.changing.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut settled = self.settled.lock();
            for name in configured.1.keys() {
                settled.entry(name.clone()).or_insert(configured.0);
            }
        }
        Ok(())
    }

    /// Returns the clusters that all routers have and that no configuration change is removing.
    pub(crate) fn settled(&self) -> Settled {
        self.settled.lock().clone()
    }

    /// Returns whether a router may have no cluster. Such a router serves no resource.
    pub(crate) fn was_bare(&self) -> bool {
        let learning = |since: Instant| since.elapsed() < LEARNT_WITHIN;
        self.configured.lock().1.is_empty() || self.bare.lock().is_some_and(learning)
    }

    /// Configures every cluster again without a change of its members, like a change of credentials.
    pub(crate) async fn reconfigure(&self) -> anyhow::Result<()> {
        self.fingerprints.fetch_add(1, Ordering::Relaxed);
        self.configure(|_| {}).await
    }

    /// Stops a router as SIGTERM does, and replaces it by a new router.
    pub(crate) async fn restart(&self, replica: usize) -> anyhow::Result<()> {
        self.router(replica).drain();
        let mut count = self.configured().0;
        let router = self.new_router(replica).await?;
        // The old router has received the configuration changes during the start, and the new router has not.
        while self.configured().0 != count {
            count = self.configured().0;
            router.set_clusters(self.setups().await?);
        }
        self.routers.lock()[replica] = router;
        Ok(())
    }

    /// Sends a request and returns the head of the response. `object` is the body with its media type.
    pub(crate) async fn call(
        &self,
        replica: usize,
        method: &str,
        path: &str,
        object: Option<(&str, &Value)>,
    ) -> anyhow::Result<Response<Body>> {
        let request = Request::builder().method(method).uri(path);
        let request = match object {
            None => request.body(body::empty())?,
            Some((media_type, object)) => {
                request.header("content-type", media_type).body(body::full(object.to_string()))?
            }
        };
        let context = RequestContext::for_user(&User::named("test", "model"), &request);
        let router = self.router(replica);
        let answer = timeout(ANSWER_WITHIN, router.handle(request, &context)).await;
        answer
            .map(|answer| answer.response)
            .with_context(|| format!("{method} {path} at {replica} was not answered within {ANSWER_WITHIN:?}"))
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(
        &self,
        replica: usize,
        method: &str,
        path: &str,
        object: Option<(&str, &Value)>,
    ) -> anyhow::Result<Answer> {
        let newest = self.newest();
        let (head, incoming) = self.call(replica, method, path, object).await?.into_parts();
        let text = timeout(ANSWER_WITHIN, incoming.collect()).await.context("an answer without an end")?;
        let text = text.map_err(|error| anyhow::anyhow!("{method} {path}: the answer broke off: {error}"))?.to_bytes();
        let warnings = head.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
        let json =
            serde_json::from_slice(&text).with_context(|| format!("{path}: {}", String::from_utf8_lossy(&text)))?;
        let answer = Answer { code: head.status.as_u16(), warnings: warnings.collect::<Vec<_>>().join("\n"), json };
        self.trace(|| {
            let json = &answer.json;
            format!("{method} {path} at {replica}: {} {} {}", answer.code, json["metadata"], json["message"])
        });
        if let Ok(vector) = vector(&answer.json["metadata"]["resourceVersion"]) {
            self.is_of_newest(replica, &newest, &vector).with_context(|| format!("{method} {path}"))?;
        }
        Ok(answer)
    }

    pub(crate) async fn get(&self, replica: usize, path: &str) -> anyhow::Result<Answer> {
        self.send(replica, "GET", path, None).await
    }

    /// Returns the newest clusters that the routers have shown so far.
    pub(crate) fn newest(&self) -> Newest {
        self.newest.lock().clone()
    }

    /// Returns how often each cluster was replaced, as far as this router has shown.
    pub(crate) fn shown_replacements(&self, replica: usize) -> BTreeMap<String, usize> {
        let newest = self.newest.lock();
        let of_it = newest.iter().filter(|((of, _), _)| *of == replica);
        of_it.map(|((_, name), replacements)| (name.clone(), *replacements)).collect()
    }

    /// Checks that the version in a response is not of a replaced cluster, if this router has shown the successor
    /// before the request.
    pub(crate) fn is_of_newest(&self, replica: usize, before: &Newest, vector: &Vector) -> Result<(), Lie> {
        if self.names_earlier(replica, before, vector) {
            return Err(Lie(format!("{vector:?} names an earlier cluster than router {replica} has shown")));
        }
        self.with_truth(|truth| {
            let mut newest = self.newest.lock();
            for (name, component) in vector {
                let cluster = truth.history(name)?.cluster_of(*component).unwrap_or_default();
                let known = newest.entry((replica, name.clone())).or_default();
                *known = cluster.max(*known);
            }
            Ok(())
        })
    }

    /// Returns whether a version is of a replaced cluster, although the router has shown the successor before.
    pub(crate) fn names_earlier(&self, replica: usize, before: &Newest, vector: &Vector) -> bool {
        let is_earlier = |truth: &Truth, name: &String, component: Component| {
            let cluster = truth.history(name).ok().and_then(|own| own.cluster_of(component));
            cluster.is_some_and(|cluster| before.get(&(replica, name.clone())).is_some_and(|newest| cluster < *newest))
        };
        self.with_truth(|truth| vector.iter().any(|(name, component)| is_earlier(truth, name, *component)))
    }

    /// Checks that an object in an answer does not belong to a replaced cluster, as defined at [`Self::is_of_newest`].
    pub(crate) fn has_of_newest(
        &self,
        replica: usize,
        before: &Newest,
        (name, key, state): (&str, &str, &State),
    ) -> Result<(), Lie> {
        let cluster = self.with_truth(|truth| truth.history(name).map(|own| own.cluster_of_state(key, state)))?;
        let is_earlier = before.get(&(replica, name.to_owned())).is_some_and(|newest| cluster < Some(*newest));
        if is_earlier { Err(Lie(format!("{name} {key} {state:?} is of an earlier cluster {name}"))) } else { Ok(()) }
    }

    /// Checks that an event shows no replaced cluster, as defined at [`Self::is_of_newest`].
    pub(crate) fn shows_newest(&self, replica: usize, before: &Newest, event: &Event) -> Result<(), Lie> {
        match event {
            Event::Bookmark { vector, .. } => self.is_of_newest(replica, before, vector),
            Event::Object { change, cluster, key, state, version } => {
                if let Version::Vector(vector) = version {
                    self.is_of_newest(replica, before, vector)?;
                }
                if *change == Shown::Deleted {
                    return Ok(());
                }
                self.has_of_newest(replica, before, (cluster, key, state))
            }
        }
    }

    /// Returns whether a client has a higher revision of the member than the member itself, in a composite version or
    /// in the integer of a later event. A router that started after a restore cannot detect the undone revision once
    /// the member has exceeded it (`docs/consistency.md`, "Restores").
    pub(crate) fn is_followed_beyond(&self, number: usize) -> bool {
        let revision = self.members[number].control().revision();
        let is_beyond = |follower: &Follower| {
            let vector = follower.version.iter().flatten().map(|(name, own)| (name, own.revision));
            let mut versions = vector.chain(follower.item.iter().map(|item| (&item.cluster, item.revision)));
            versions.any(|(name, own)| {
                NAMES[number].contains(&name.as_str()) && follower.selection.wants(name) && own > revision
            })
        };
        self.followers.lock().iter().any(|follower| follower.lock().as_ref().is_some_and(is_beyond))
    }

    /// Calls `look` with the current histories of the members.
    pub(crate) fn with_truth<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        let mut known = self.truth.lock();
        let changes = self.take_over(&mut known);
        self.judge(&known.truth, &changes);
        look(&known.truth)
    }

    /// Runs `act`, which changes a member without a client's write. The ledger does not check these changes.
    pub(crate) fn by_itself<T>(&self, act: impl FnOnce() -> T) -> T {
        self.with_truth(|_| ());
        let done = act();
        self.take_over(&mut self.truth.lock());
        done
    }

    /// Reads the new parts of the members' histories and returns the changes.
    fn take_over(&self, known: &mut Known) -> Vec<Change> {
        let mut changes = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            let news = member.history(RESOURCE, known.read[number]);
            known.read[number] += news.len();
            let listed_anew = listed_anew(&member.control().lists());
            for name in NAMES[number] {
                let Some(history) = known.truth.clusters.get_mut(name) else { continue };
                history.listed_anew = listed_anew;
            }
            for event in news {
                changes.extend(known.truth.take(number, &event));
            }
        }
        changes
    }

    /// Passes the members' changes to the ledger, which checks them.
    fn judge(&self, truth: &Truth, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let (mut ledger, settled) = (self.ledger.lock(), self.settled());
        for change in changes {
            if let Err(lie) = ledger.changed(change, truth, &settled) {
                self.fail("a write", &lie);
            }
        }
    }

    pub(crate) fn sent(&self, write: Write) {
        self.trace(|| format!("{write:?}"));
        self.ledger.lock().sent(write);
    }

    pub(crate) fn answered(&self, marker: &str, outcome: Outcome) -> Result<(), Lie> {
        self.with_truth(|_| self.ledger.lock().answered(marker, outcome))
    }

    /// Returns the revision of each configured cluster's last change.
    pub(crate) fn latest(&self) -> Vector {
        let configured = self.configured().1;
        self.with_truth(|truth| {
            let known =
                configured.keys().filter_map(|name| Some((name.clone(), truth.clusters.get(name)?.latest().into())));
            known.collect()
        })
    }

    /// Returns the compact form of a composite version. Returns `None` if the version contains a cluster that is not
    /// configured.
    pub(crate) fn compact(&self, vector: &Vector) -> Option<String> {
        let configured = self.configured().1.into_iter();
        let uids: Option<BTreeMap<_, _>> = self.with_truth(|truth| {
            let uid = |name: &String| truth.history(name).ok()?.uid_of(*vector.get(name)?).cloned();
            configured.map(|(name, member)| Some((name.clone(), uid(&name).or_else(|| self.uid(member))?))).collect()
        });
        let vector = vector.iter().map(|(cluster, component)| (cluster.clone(), component.to_string())).collect();
        compact::encode(&vector, &uids?)
    }

    /// Returns the identity of a member: the uid of its namespace kube-system.
    fn uid(&self, member: usize) -> Option<String> {
        self.members[member].get("namespaces", "", "kube-system").map(|object| text(&object["metadata"]["uid"]))
    }

    /// Returns the cluster, key, state and version of an object in a router's response.
    pub(crate) fn shown(&self, object: &Value) -> Result<(String, String, State, Version), Lie> {
        let (key, state, _) = place(object);
        let cluster = text(&object["metadata"]["annotations"]["tributary.dev/cluster"]);
        Ok((cluster, key, state, self.version(&object["metadata"]["resourceVersion"])?))
    }

    /// Decodes the resourceVersion of an object: an integer or a composite version, depending on the run.
    pub(crate) fn version(&self, version: &Value) -> Result<Version, Lie> {
        if !self.profile.integer {
            return vector(version).map(Version::Vector);
        }
        let number: Option<u64> = version.as_str().and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| Lie(format!("{version} is no integer")))?;
        let name =
            NAMES.iter().flatten().find(|name| index_of(name).is_some_and(|index| u64::from(index) == number % 10_000));
        let name = name.ok_or_else(|| Lie(format!("{version} is of no cluster")))?;
        Ok(Version::Item((*name).to_owned(), number / 10_000))
    }

    /// Returns whether the run must not write to a member, because not all routers and clients have detected its
    /// restore.
    pub(crate) fn is_frozen(&self, member: usize) -> bool {
        self.frozen.lock().contains(&member)
    }

    pub(crate) fn value(&self) -> String {
        format!("v{}", self.values.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Adds a line to the trace, for the diagnosis of a failure.
    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        let line = format!("{:>9.3} {}", self.started.elapsed().as_secs_f64(), text());
        self.trace.lock().push(line);
    }

    pub(crate) fn traced(&self) -> Vec<String> {
        self.trace.lock().clone()
    }

    /// Records a failure. Later failures are ignored.
    pub(crate) fn fail(&self, who: &str, what: &dyn std::fmt::Display) {
        self.trace(|| format!("FAILED {who}: {what}"));
        self.failure.lock().get_or_insert_with(|| format!("{who}: {what}"));
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

/// Returns the setup of a member as the cluster `name`. Different values of `salt` make different configurations.
pub(crate) async fn connect(name: &str, member: &Arc<SimulatedCluster>, salt: u64) -> anyhow::Result<ClusterSetup> {
    let mut config = kube::Config::new(Uri::from_static("http://member.invalid"));
    config.auth_info.token = Some(member.token().to_owned().into());
    let dialed = Arc::clone(member);
    let connector = Connector::new(tower::service_fn(move |_: Uri| {
        std::future::ready(dialed.dial().map(|stream| -> BoxIo { Box::new(stream) }).map_err(Into::into))
    }));
    let cluster = ClusterName::new(name)?;
    let client = ClusterClient::connect_through(connector, cluster.clone(), config, ClientTuning::default()).await?;
    Ok(ClusterSetup {
        name: cluster,
        client: Ok(client),
        client_generation: 0,
        address: ClusterAddress::from_description(&format!("{} {salt}", member.token())),
        index: index_of(name),
        impersonation: MemberRules::default(),
        authorization: ClusterAuthorization::Rbac,
    })
}

pub(crate) fn service(namespace: &str, name: &str, value: &str, color: &str, service_type: &str) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1", "spec": {"type": service_type, "clusterIP": "10.0.0.1"},
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"color": color}, "annotations": {"value": value},
        },
    })
}

/// Returns the key, state and revision of an object in a member's response.
fn place(object: &Value) -> (String, State, u64) {
    let revision = text(&object["metadata"]["resourceVersion"]).parse().unwrap_or_default();
    let key = format!("{}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    (key, state(object), revision)
}

fn state(object: &Value) -> State {
    let metadata = &object["metadata"];
    State {
        uid: text(&metadata["uid"]),
        value: text(&metadata["annotations"]["value"]),
        color: text(&metadata["labels"]["color"]),
        service_type: text(&object["spec"]["type"]),
    }
}

/// Returns whether two cluster names belong to one member.
pub(crate) fn are_one_member(one: &str, other: &str) -> bool {
    one == other || NAMES.iter().any(|names| names.contains(&one) && names.contains(&other))
}

/// Returns the index of a cluster in integer resourceVersions. Each name has a different index, so a renamed cluster is
/// a new cluster.
fn index_of(name: &str) -> Option<u16> {
    let at = NAMES.iter().flatten().position(|own| *own == name)?;
    u16::try_from(at).ok().map(|at| at * 11)
}

pub(crate) fn integer(cluster: &str, revision: u64) -> String {
    (revision * 10_000 + u64::from(index_of(cluster).unwrap_or_default())).to_string()
}

pub(crate) fn vector(version: &Value) -> Result<Vector, Lie> {
    use base64::Engine as _;
    let decode = || -> Option<Vector> {
        let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(version.as_str()?).ok()?;
        let texts: BTreeMap<String, String> = serde_json::from_slice(&json).ok()?;
        texts.into_iter().map(|(cluster, text)| Some((cluster, Component::parse(&text)?))).collect()
    };
    decode().ok_or_else(|| Lie(format!("{version} is no composite resourceVersion")))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
