//! Clients that list in every form and watch. A stream may break at any byte; the client then resumes, perhaps at
//! another router.

mod lists;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep, sleep_until};
use tributary_apimachinery::body::Body;

use crate::follower::{Change, Event, Follower, Item, Version};
use crate::schedule::{COLORS, NAMESPACES, OBJECTS, Profile, TYPES};
use crate::truth::{Clusters, History, Lie, Selection, State, Vector};
use crate::world::{NAMES, Newest, REPLICAS, RESOURCE, World, integer, vector};

/// Objects of a client, by cluster and `namespace/name`.
type Objects = BTreeMap<(String, String), State>;

pub(crate) struct Client {
    world: Arc<World>,
    name: String,
    random: StdRng,
    selection: Selection,
    follower: Arc<Mutex<Option<Follower>>>,
    told: Told,
    /// An earlier state of the client. The client sometimes returns to it, like a process that restarts with the state
    /// on its disk.
    checkpoint: Option<(Told, Follower)>,
    /// Value of `World::restores` at the client's first list. If the value has changed, the client lists again.
    born: u64,
    /// Whether the client pauses between two reads of the stream.
    slow: bool,
    /// Whether the router must refuse the version of the current watch. An event is then an error.
    refused: bool,
    /// For each router and cluster name, the newest cluster that the router had shown before the watch. An older
    /// cluster in the watch is an error.
    newest: Newest,
    /// Number of replacements of each cluster that the router had shown before the watch.
    replacements: BTreeMap<String, usize>,
    /// The client's only router in runs with `alone`; `None` if the client may use any router.
    home: Option<usize>,
}

/// The maximum time from an event to the next bookmark, in runs whose events have integer resourceVersions.
const BOOKMARK_WITHIN: Duration = Duration::from_millis(250);

/// The times at which the client last received an event or list, and last received a composite version. An event with
/// an integer resourceVersion contains no composite version.
#[derive(Clone, Copy)]
struct Told {
    last: Instant,
    vector: Instant,
}

impl Told {
    fn now() -> Self {
        Self::at(Instant::now())
    }

    fn at(time: Instant) -> Self {
        Self { last: time, vector: time }
    }
}

/// Age up to which a router must accept a version, unless a fault makes the router drop changes. A router keeps each
/// change for five minutes after receipt. The limit is lower, because a router may receive a slow member's change a
/// minute before another router or a slow client does.
const KEPT_FOR: Duration = Duration::from_secs(200);

enum End {
    /// The stream ended, or the client closed it.
    Cut,
    /// The stream ended with an ERROR event with this code.
    Error(u64),
    /// The router rejected the watch request.
    Refused,
}

impl Client {
    pub(crate) fn new(world: &Arc<World>, number: u64) -> Self {
        let mut random = StdRng::seed_from_u64(world.profile.seed.wrapping_mul(1000).wrapping_add(number));
        let mut some = |share: f64, of: &[&str]| {
            random.random_bool(share).then(|| of.choose(&mut random).map(ToString::to_string)).flatten()
        };
        let selection = Selection {
            namespace: some(0.3, &NAMESPACES),
            color: some(0.3, &COLORS),
            service_type: some(0.3, &TYPES),
            name: some(0.05, &OBJECTS),
            clusters: None,
        };
        let slow = random.random_bool(0.15);
        let clusters = random.random_bool(0.2).then(|| Clusters {
            among: random.random_bool(0.5),
            names: NAMES.iter().flatten().filter(|_| random.random_bool(0.4)).map(ToString::to_string).collect(),
        });
        let selection = Selection { clusters: clusters.filter(|clusters| !clusters.names.is_empty()), ..selection };
        let home = world.profile.alone.then_some(number as usize % REPLICAS);
        let (world, name) = (Arc::clone(world), format!("client {number}"));
        let follower = Arc::default();
        world.followers.lock().push(Arc::clone(&follower));
        world.trace(|| format!("{name}: {selection:?}, slow: {slow}"));
        Self {
            world,
            name,
            random,
            selection,
            follower,
            told: Told::now(),
            checkpoint: None,
            born: 0,
            slow,
            refused: false,
            newest: Newest::new(),
            replacements: BTreeMap::new(),
            home,
        }
    }

    pub(crate) fn follower(&self) -> Arc<Mutex<Option<Follower>>> {
        Arc::clone(&self.follower)
    }

    pub(crate) fn describe(&self) -> (String, Selection) {
        (self.name.clone(), self.selection.clone())
    }

    /// Lists and watches until a check fails or the run ends.
    pub(crate) async fn run(mut self) {
        let delay = self.random.random_range(0..2000);
        sleep(Duration::from_millis(delay)).await;
        while self.world.failure().is_none() {
            if let Err(error) = self.live().await {
                self.world.fail(&self.name, &format!("{error:#}"));
            }
            let pause = self.random.random_range(1..300);
            sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Opens one stream and follows its events. A client without a state lists first.
    async fn live(&mut self) -> anyhow::Result<()> {
        if self.born != self.world.restores.load(Ordering::Relaxed) {
            self.forget();
        }
        if self.random.random_bool(0.2)
            && let Some((told, follower)) = &self.checkpoint
            && !self.world.is_quiet()
        {
            self.told = *told;
            *self.follower.lock() = Some(follower.clone());
        }
        let replica = self.replica();
        if self.world.profile.replaces && self.random.random_bool(0.3) {
            self.get(replica).await?;
        }
        let has_state = self.follower.lock().as_ref().is_some_and(|follower| follower.version.is_some());
        if !has_state {
            self.forget();
            self.born = self.world.restores.load(Ordering::Relaxed);
            if self.random.random_bool(0.4) {
                return self.watch_from_nothing(replica).await;
            }
            let Some((objects, version)) = self.list(replica).await? else {
                sleep(Duration::from_secs(1)).await;
                return Ok(());
            };
            *self.follower.lock() = Some(Follower::listed(self.selection.clone(), objects, version));
        }
        self.resume(replica).await
    }

    fn replica(&mut self) -> usize {
        let any = self.random.random_range(0..REPLICAS);
        self.home.unwrap_or(any)
    }

    fn forget(&mut self) {
        *self.follower.lock() = None;
        self.checkpoint = None;
    }

    /// Starts a watch that begins with initial events of all objects.
    async fn watch_from_nothing(&mut self, replica: usize) -> anyhow::Result<()> {
        let mut query = self.query();
        query.push(
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        );
        *self.follower.lock() = Some(Follower::watching_from_nothing(self.selection.clone()));
        let end = self.stream(replica, query).await?;
        // The initial events contain earlier writes of the run and, with `Quorum`, the latest state of each member. The
        // router answers 504 if it cannot reach that state in time.
        let expected = matches!(end, End::Error(504));
        self.after(end, expected)
    }

    /// Starts a watch from the version of the last event or bookmark, like client-go's reflector.
    async fn resume(&mut self, replica: usize) -> anyhow::Result<()> {
        let Profile { alone, topology, hides, .. } = self.world.profile;
        let (version, item, perhaps_another) = {
            let mut locked = self.follower.lock();
            let Some(follower) = &mut *locked else { return Ok(()) };
            let item = follower.item.clone();
            let is_undone = self.world.with_truth(|truth| match item {
                Some(_) => {
                    follower.resumed_after_item();
                    false
                }
                None => {
                    follower.resumed(truth);
                    follower.is_undone(truth) || follower.is_doubtful()
                }
            });
            if is_undone {
                *locked = None;
                return Ok(());
            }
            let perhaps_another = self.world.with_truth(|truth| follower.is_perhaps_another(truth));
            (follower.version.clone().unwrap_or_default(), item, perhaps_another)
        };
        // No router knows which events other routers sent before an integer resourceVersion. So a router must refuse an
        // integer, unless the client sends all requests to this router. With `topology` or `hides`, perhaps only one
        // cluster is left. The router may then accept the integer, which is a complete version of one cluster.
        let refused = item.is_some() && !alone;
        self.refused = refused && !topology && !hides;
        let is_item = item.is_some();
        if !is_item {
            self.refused = self.world.names_earlier(replica, &self.world.newest(), &version);
        }
        let version = match item {
            Some(Item { cluster, revision, .. }) => integer(&cluster, revision),
            None => self.sent(&version),
        };
        let mut query = self.query();
        query.push(format!("watch=1&resourceVersion={version}"));
        if self.random.random_bool(0.7) {
            query.push("allowWatchBookmarks=true".to_owned());
        }
        if self.random.random_bool(0.3) {
            query.push(format!("timeoutSeconds={}", self.random.random_range(1..90)));
        }
        let forgotten = self.told.last.elapsed() > KEPT_FOR;
        // Several changes may share a revision. A client that resumes in the middle of such a revision receives events
        // that other clients already have. From that moment the router refuses earlier integer versions.
        let is_passed =
            is_item && self.world.with_truth(|truth| truth.clusters.values().any(History::shares_revisions));
        let end = self.stream(replica, query).await?;
        self.refused = false;
        self.after(end, refused || forgotten || perhaps_another || is_passed)
    }

    /// Reads an object by its name, and checks that the version's cluster had it.
    async fn get(&mut self, replica: usize) -> anyhow::Result<()> {
        let (namespace, name) = (NAMESPACES.choose(&mut self.random), OBJECTS.choose(&mut self.random));
        let (Some(namespace), Some(name)) = (namespace, name) else { return Ok(()) };
        let newest = self.world.newest();
        let path = format!("/api/v1/namespaces/{namespace}/{RESOURCE}/{name}");
        let answer = self.world.get(replica, &path).await?;
        if answer.code != 200 {
            return Ok(());
        }
        let (cluster, key, state, version) = self.world.shown(&answer.json)?;
        self.world.has_of_newest(replica, &newest, (&cluster, &key, &state))?;
        let is_own = |version| {
            let is_own = |history: &History| history.is_version_of(&key, &state, version);
            self.world.with_truth(|truth| truth.history(&cluster).is_ok_and(is_own))
        };
        let is_own = version.of_item(&cluster).is_some_and(is_own);
        anyhow::ensure!(is_own, "{cluster} {key} {state:?} does not have the version {version:?}");
        Ok(())
    }

    fn after(&mut self, end: End, expected: bool) -> anyhow::Result<()> {
        let version = self.follower.lock().as_ref().and_then(Follower::place);
        let complete = version.is_some();
        match end {
            End::Cut | End::Refused if complete => {}
            End::Cut | End::Refused => self.forget(),
            End::Error(code) => {
                anyhow::ensure!(
                    expected
                        || !self.world.expected.calm
                        || version.as_ref().is_some_and(|version| self.world.is_explained(code, version)),
                    "a watch ended with {code} though nothing was forgotten: {version:?}"
                );
                self.forget();
            }
        }
        Ok(())
    }

    /// Reads a stream until the stream ends or the client closes it.
    async fn stream(&mut self, replica: usize, query: Vec<String>) -> anyhow::Result<End> {
        let path = format!("{}?{}", self.path(), query.join("&"));
        // An integer resourceVersion does not show whether it is from before or after a replacement of the cluster. A
        // watch from an integer may therefore continue at a state before a replacement, and the client must forget the
        // replacements that it has seen.
        let is_after_item = self.follower.lock().as_ref().is_some_and(|follower| follower.item.is_some());
        (self.newest, self.replacements) = match is_after_item {
            true => (Newest::new(), BTreeMap::new()),
            false => (self.world.newest(), self.world.shown_replacements(replica)),
        };
        let response = self.world.call(replica, "GET", &path, None).await?;
        let code = response.status().as_u16();
        self.world.trace(|| format!("{}: GET {path} at {replica}: {code}", self.name));
        if code != 200 {
            let Profile { hides, forbids, .. } = self.world.profile;
            let excused = (code == 404 && (hides || self.world.was_bare())) || (code == 403 && forbids);
            anyhow::ensure!(matches!(code, 429 | 504) || excused, "a watch was refused: {code}");
            anyhow::ensure!(code != 429 || !self.world.expected.calm, "nothing is unknown, but: {code}");
            sleep(Duration::from_secs(1)).await;
            return Ok(End::Refused);
        }
        let told = self.world.profile.integer && path.contains("allowWatchBookmarks");
        let mut unmarked = Unmarked { told: told && !self.slow, since: None };
        let mut body = response.into_body();
        let mut buffer = Vec::new();
        let leave = Instant::now() + Duration::from_millis(self.random.random_range(1..20_000));
        loop {
            if self.slow && !self.world.is_quiet() {
                let pause = self.random.random_range(0..8000);
                sleep(Duration::from_millis(pause)).await;
            }
            let chunk = self.read(&mut body, leave).await?;
            unmarked.is_young()?;
            let Some(chunk) = chunk else { return Ok(End::Cut) };
            // The client closes the stream at any byte and drops an incomplete frame.
            let cut = !self.world.is_quiet() && self.random.random_bool(0.04);
            let end = if cut { self.random.random_range(0..=chunk.len()) } else { chunk.len() };
            buffer.extend_from_slice(&chunk[..end]);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                unmarked.takes(&line);
                if let Some(code) = self.take(replica, &line)? {
                    return Ok(End::Error(code));
                }
            }
            if cut {
                self.world.trace(|| format!("{}: cut", self.name));
                return Ok(End::Cut);
            }
        }
    }

    /// Reads the next bytes. Returns `None` at the end of the stream, or at the time `leave`.
    async fn read(&self, body: &mut Body, leave: Instant) -> anyhow::Result<Option<bytes::Bytes>> {
        loop {
            tokio::select! {
                biased;
                frame = body.frame() => return match frame {
                    None => Ok(None),
                    Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
                    Some(Err(error)) => anyhow::bail!("the watch broke off: {error}"),
                },
                () = sleep_until(leave), if !self.world.is_quiet() => return Ok(None),
                () = sleep(Duration::from_secs(1)), if self.world.failure().is_some() => return Ok(None),
                // The faults may end while the stream is open, so the loop checks the condition again.
                () = sleep(Duration::from_secs(5)), if !self.world.is_quiet() => {}
            }
        }
    }

    /// Applies one frame to the client's state. Returns the code of an ERROR event.
    fn take(&mut self, replica: usize, line: &[u8]) -> anyhow::Result<Option<u64>> {
        let frame: Value = serde_json::from_slice(line)?;
        let object = &frame["object"];
        let change = match frame["type"].as_str() {
            Some("ADDED") => Change::Added,
            Some("MODIFIED") => Change::Modified,
            Some("DELETED") => Change::Deleted,
            Some("BOOKMARK") => {
                let metadata = &object["metadata"];
                let initial_end = metadata["annotations"]["k8s.io/initial-events-end"] == "true";
                let mut vector = vector(&metadata["resourceVersion"])?;
                self.world.with_truth(|truth| truth.doubts(&self.replacements, &mut vector));
                let event = Event::Bookmark { vector, initial_end };
                self.observe(replica, &event)?;
                return Ok(None);
            }
            Some("ERROR") => {
                self.world.trace(|| format!("{}: {object}", self.name));
                return Ok(Some(object["code"].as_u64().unwrap_or_default()));
            }
            other => anyhow::bail!("{other:?} is no event"),
        };
        let (cluster, key, state, mut version) = self.world.shown(object)?;
        if let Version::Vector(vector) = &mut version {
            self.world.with_truth(|truth| truth.doubts(&self.replacements, vector));
        }
        self.observe(replica, &Event::Object { change, cluster, key, state, version })?;
        Ok(None)
    }

    fn observe(&mut self, replica: usize, event: &Event) -> anyhow::Result<()> {
        anyhow::ensure!(!self.refused, "a watch goes on from a version that is refused: {event:?}");
        self.world.trace(|| format!("{} at {replica}: {event:?}", self.name));
        self.world.shows_newest(replica, &self.newest, event)?;
        let mut follower = self.follower.lock();
        let Some(follower) = &mut *follower else { return Ok(()) };
        let before = follower.version.clone();
        self.world.with_truth(|truth| follower.observe(truth, &self.world.expected, event))?;
        self.told.last = Instant::now();
        if follower.version != before {
            self.told.vector = self.told.last;
        }
        if let Some(version) = &follower.version
            && self.random.random_bool(0.1)
        {
            self.checkpoint = Some((self.told, follower.clone()));
            if follower.is_doubtful() {
                return Ok(());
            }
            self.world.vectors.lock().push((self.told.vector, version.clone()));
        }
        Ok(())
    }

    fn path(&self) -> String {
        match &self.selection.namespace {
            None => format!("/api/v1/{RESOURCE}"),
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/{RESOURCE}"),
        }
    }

    fn query(&self) -> Vec<String> {
        let Selection { color, service_type, name, clusters, .. } = &self.selection;
        let color = color.iter().map(|color| format!("color%3D{color}"));
        let clusters = clusters.iter().map(|Clusters { among, names }| {
            let operator = if *among { "in" } else { "notin" };
            format!("tributary.dev%2Fcluster+{operator}+({})", names.join("%2C"))
        });
        let labels: Vec<_> = color.chain(clusters).collect();
        let labels = (!labels.is_empty()).then(|| format!("labelSelector={}", labels.join("%2C")));
        let service_type = service_type.iter().map(|value| format!("spec.type%3D{value}"));
        let name = name.iter().map(|value| format!("metadata.name%3D{value}"));
        let fields: Vec<_> = service_type.chain(name).collect();
        let fields = (!fields.is_empty()).then(|| format!("fieldSelector={}", fields.join("%2C")));
        labels.into_iter().chain(fields).collect()
    }
}

/// Time since the first event after the last bookmark. Streams with integer resourceVersions must send a bookmark soon
/// after each event.
struct Unmarked {
    told: bool,
    since: Option<Instant>,
}

impl Unmarked {
    fn takes(&mut self, line: &[u8]) {
        let is_bookmark = line.starts_with(br#"{"type":"BOOKMARK""#);
        self.since = if is_bookmark { None } else { self.since.or(Some(Instant::now())) };
    }

    fn is_young(&self) -> Result<(), Lie> {
        let age = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        if !self.told || age <= BOOKMARK_WITHIN {
            return Ok(());
        }
        Err(Lie(format!("no bookmark followed an event within {BOOKMARK_WITHIN:?}, but after {age:?}")))
    }
}

pub(crate) fn encode(vector: &Vector) -> String {
    use base64::Engine as _;
    let members: Vec<_> = vector.iter().map(|(cluster, own)| format!("{cluster:?}:\"{}\"", own.marked())).collect();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("{{{}}}", members.join(",")))
}
