//! Clients at random: they list in every form, watch, are cut off at any byte, move to the other router and go on.

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
use tributary_router::Body;

use crate::follower::{Change, Event, Follower};
use crate::schedule::{COLORS, NAMESPACES, OBJECTS, TYPES};
use crate::truth::{Lie, Selection, State, Vector};
use crate::world::{Answer, REPLICAS, RESOURCE, World, shown, vector};

/// What a client has, by cluster and key.
type Objects = BTreeMap<(String, String), State>;

/// One client: lists and watches for as long as the run lasts.
pub(crate) struct Client {
    world: Arc<World>,
    name: String,
    random: StdRng,
    selection: Selection,
    follower: Arc<Mutex<Option<Follower>>>,
    /// An older state of the same client that it sometimes goes back to, as a process does that kept it on disk.
    checkpoint: Option<Follower>,
    /// How often revisions had gone back when its state began.
    born: u64,
    /// Whether it takes its time between two reads.
    slow: bool,
}

/// How a stream ended.
enum End {
    /// By its end, or by our will.
    Cut,
    /// By ERROR 410, or another one.
    Error(u64),
}

impl Client {
    /// A client with a random selection.
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
        };
        let slow = random.random_bool(0.15);
        let (world, name) = (Arc::clone(world), format!("client {number}"));
        world.trace(|| format!("{name}: {selection:?}, slow: {slow}"));
        Self { world, name, random, selection, follower: Arc::default(), checkpoint: None, born: 0, slow }
    }

    /// What the client has; to be looked at from outside.
    pub(crate) fn follower(&self) -> Arc<Mutex<Option<Follower>>> {
        Arc::clone(&self.follower)
    }

    /// Its name and selection.
    pub(crate) fn describe(&self) -> (String, Selection) {
        (self.name.clone(), self.selection.clone())
    }

    /// Lists and watches until something fails.
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

    /// One stream, after a list if there is no state.
    async fn live(&mut self) -> anyhow::Result<()> {
        if self.born != self.world.restores.load(Ordering::Relaxed) {
            self.forget();
        }
        if self.random.random_bool(0.2) && self.checkpoint.is_some() && !self.world.is_quiet() {
            self.follower.lock().clone_from(&self.checkpoint);
        }
        let replica = self.random.random_range(0..REPLICAS);
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

    fn forget(&mut self) {
        *self.follower.lock() = None;
        self.checkpoint = None;
    }

    // ---- lists ----

    /// A list of a random form, checked; `None` where it was refused for a good reason.
    async fn list(&mut self, replica: usize) -> anyhow::Result<Option<(Objects, Vector)>> {
        let limit = if self.random.random_bool(0.5) { self.random.random_range(1..6) } else { 0 };
        let mut query = self.query();
        if limit > 0 {
            query.push(format!("limit={limit}"));
        }
        match self.random.random_range(0..10) {
            0..5 => {}
            5..7 => query.push("resourceVersion=0".to_owned()),
            form => {
                let known = self.world.vectors.lock().choose(&mut self.random).cloned();
                if let Some(version) = known {
                    let form = if form == 9 { "NotOlderThan" } else { "Exact" };
                    query.push(format!("resourceVersion={version}&resourceVersionMatch={form}"));
                }
            }
        }
        self.pages(replica, query).await
    }

    /// Reads all pages of a list, each at any replica.
    async fn pages(&mut self, mut replica: usize, query: Vec<String>) -> anyhow::Result<Option<(Objects, Vector)>> {
        let path = self.path();
        let (mut objects, mut version, mut left) = (Objects::new(), None, None);
        let mut page = query.clone();
        loop {
            let stable = self.world.configured();
            let answer = self.world.get(replica, &format!("{path}?{}", page.join("&"))).await?;
            if !self.is_answered(&answer)? {
                return Ok(None);
            }
            let own = vector(&answer.json["metadata"]["resourceVersion"])?;
            if let Some(first) = &version
                && *first != own
            {
                anyhow::bail!("the pages of a list have several versions: {first:?}, then {own:?}");
            }
            // A past state lacks who joined since.
            let present = !page.iter().any(|part| part.contains("continue=") || part.contains("Exact"));
            if present && stable == self.world.configured() {
                self.names_what_is_missing(&stable.1, &own, &answer)?;
            }
            let items = answer.json["items"].as_array().ok_or_else(|| Lie("a list without items".to_owned()))?;
            anyhow::ensure!(left.is_none_or(|left| left >= items.len() as u64), "more items than were left: {left:?}");
            left = left.map(|left| left - items.len() as u64);
            self.take_items(items, &mut objects)?;
            let remaining = answer.json["metadata"]["remainingItemCount"].as_u64();
            anyhow::ensure!(
                left.is_none() || remaining.is_none() || left == remaining,
                "{left:?} were left, not {remaining:?}"
            );
            left = remaining.or(left);
            version = Some(own);
            match answer.json["metadata"]["continue"].as_str() {
                Some(token) => {
                    let limit = self.random.random_range(1..6);
                    page = self.query();
                    page.push(format!("limit={limit}&continue={token}"));
                    replica = self.random.random_range(0..REPLICAS);
                    let pause = self.random.random_range(0..50);
                    sleep(Duration::from_millis(pause * pause)).await;
                }
                None => break,
            }
        }
        anyhow::ensure!(left.is_none_or(|left| left == 0), "{left:?} items were to follow");
        let version = version.unwrap_or_default();
        self.world.with_truth(|truth| truth.is_state(&self.selection, &objects, &version))?;
        self.holds_what_was_asked(&query, &version)?;
        Ok(Some((objects, version)))
    }

    /// Whether a list was given; a refusal must have a cause that this run can have.
    fn is_answered(&self, answer: &Answer) -> anyhow::Result<bool> {
        match answer.code {
            200 => Ok(true),
            410 | 429 if !self.world.expected.calm => Ok(false),
            // No member serves the resource just now.
            404 if self.world.profile.hides => Ok(false),
            // A version that another replica has reached, and this one not within 3 s.
            504 => Ok(false),
            code => anyhow::bail!("a list was refused: {code} {}", answer.json),
        }
    }

    fn take_items(&self, items: &[Value], objects: &mut Objects) -> anyhow::Result<()> {
        for item in items {
            let (cluster, key, state, version) = shown(item)?;
            anyhow::ensure!(
                version.len() == 1 && version.contains_key(&cluster),
                "{cluster} {key}: {version:?} is not the item form"
            );
            anyhow::ensure!(self.selection.matches(&key, &state), "{cluster} {key} {state:?} is not what was selected");
            if let Some((last, _)) = objects.last_key_value() {
                anyhow::ensure!((&last.0, &last.1) < (&cluster, &key), "{cluster} {key} comes after {last:?}");
            }
            objects.insert((cluster, key), state);
        }
        Ok(())
    }

    /// Never a 200 that silently lacks a cluster.
    fn names_what_is_missing(
        &self,
        configured: &BTreeMap<String, usize>,
        version: &Vector,
        answer: &Answer,
    ) -> anyhow::Result<()> {
        // A cluster that does not serve the resource is not missing.
        if self.world.profile.hides || self.world.profile.topology {
            return Ok(());
        }
        for cluster in configured.keys().filter(|cluster| !version.contains_key(*cluster)) {
            let named = answer.warnings.contains(&format!("cluster {cluster}:"));
            anyhow::ensure!(named, "cluster {cluster} is missing without a word: {version:?} {}", answer.warnings);
        }
        Ok(())
    }

    fn holds_what_was_asked(&self, query: &[String], version: &Vector) -> anyhow::Result<()> {
        let Some(asked) = query.iter().find_map(|part| part.strip_prefix("resourceVersion=")) else { return Ok(()) };
        let Some((asked, form)) = asked.split_once("&resourceVersionMatch=") else { return Ok(()) };
        let asked = vector(&asked.into())?;
        if form == "Exact" {
            anyhow::ensure!(asked == *version, "{asked:?} was asked for, and {version:?} given");
        } else if !self.world.profile.restores {
            for (cluster, component) in &asked {
                let own = version.get(cluster);
                anyhow::ensure!(own >= Some(component), "{asked:?} at least was asked for, and {version:?} given");
            }
        }
        Ok(())
    }

    // ---- watches ----

    /// A watch that begins with what there is.
    async fn watch_from_nothing(&mut self, replica: usize) -> anyhow::Result<()> {
        let mut query = self.query();
        query.push(
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        );
        *self.follower.lock() = Some(Follower::watching_from_nothing(self.selection.clone()));
        let end = self.stream(replica, query).await?;
        self.after(end)
    }

    /// A watch from the version that the client has.
    async fn resume(&mut self, replica: usize) -> anyhow::Result<()> {
        let version = {
            let mut follower = self.follower.lock();
            let Some(follower) = &mut *follower else { return Ok(()) };
            self.world.with_truth(|truth| follower.resumed(truth));
            encode(follower.version.as_ref().unwrap_or(&Vector::new()))
        };
        let mut query = self.query();
        query.push(format!("watch=1&resourceVersion={version}"));
        if self.random.random_bool(0.7) {
            query.push("allowWatchBookmarks=true".to_owned());
        }
        if self.random.random_bool(0.3) {
            query.push(format!("timeoutSeconds={}", self.random.random_range(1..90)));
        }
        let end = self.stream(replica, query).await?;
        self.after(end)
    }

    fn after(&mut self, end: End) -> anyhow::Result<()> {
        let complete = self.follower.lock().as_ref().is_some_and(|follower| follower.version.is_some());
        match end {
            End::Cut if complete => {}
            End::Cut => self.forget(),
            End::Error(code) => {
                anyhow::ensure!(!self.world.expected.calm, "a watch ended with {code} though nothing was forgotten");
                self.forget();
            }
        }
        Ok(())
    }

    /// Reads a stream until it ends or we leave it.
    async fn stream(&mut self, replica: usize, query: Vec<String>) -> anyhow::Result<End> {
        let path = format!("{}?{}", self.path(), query.join("&"));
        let response = self.world.call(replica, "GET", &path, None).await?;
        let code = response.status().as_u16();
        self.world.trace(|| format!("{}: GET {path} at {replica}: {code}", self.name));
        if code != 200 {
            let unserved = code == 404 && self.world.profile.hides;
            anyhow::ensure!(matches!(code, 429 | 504) || unserved, "a watch was refused: {code}");
            anyhow::ensure!(code != 429 || !self.world.expected.calm, "nothing is unknown, but: {code}");
            sleep(Duration::from_secs(1)).await;
            return Ok(End::Cut);
        }
        let mut body = response.into_body();
        let mut buffer = Vec::new();
        let leave = Instant::now() + Duration::from_millis(self.random.random_range(1..20_000));
        loop {
            if self.slow && !self.world.is_quiet() {
                let pause = self.random.random_range(0..8000);
                sleep(Duration::from_millis(pause)).await;
            }
            let Some(chunk) = self.read(&mut body, leave).await? else { return Ok(End::Cut) };
            // Cut off at any byte: what is left of a frame is thrown away.
            let cut = !self.world.is_quiet() && self.random.random_bool(0.04);
            let end = if cut { self.random.random_range(0..=chunk.len()) } else { chunk.len() };
            buffer.extend_from_slice(&chunk[..end]);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
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

    /// The next bytes; `None` at the end, or when it is time to leave.
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
                // The run comes to rest while the stream is open.
                () = sleep(Duration::from_secs(5)), if !self.world.is_quiet() => {}
            }
        }
    }

    /// Takes in one frame; the code of an ERROR.
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
                let event = Event::Bookmark { vector: vector(&metadata["resourceVersion"])?, initial_end };
                self.observe(replica, &event)?;
                return Ok(None);
            }
            Some("ERROR") => {
                self.world.trace(|| format!("{}: {object}", self.name));
                return Ok(Some(object["code"].as_u64().unwrap_or_default()));
            }
            other => anyhow::bail!("{other:?} is no event"),
        };
        let (cluster, key, state, vector) = shown(object)?;
        self.observe(replica, &Event::Object { change, cluster, key, state, vector })?;
        Ok(None)
    }

    fn observe(&mut self, replica: usize, event: &Event) -> anyhow::Result<()> {
        self.world.trace(|| format!("{} at {replica}: {event:?}", self.name));
        let mut follower = self.follower.lock();
        let Some(follower) = &mut *follower else { return Ok(()) };
        self.world.with_truth(|truth| follower.observe(truth, &self.world.expected, event))?;
        if let Some(version) = &follower.version
            && self.random.random_bool(0.1)
        {
            self.checkpoint = Some(follower.clone());
            self.world.vectors.lock().push(encode(version));
        }
        Ok(())
    }

    // ---- requests ----

    fn path(&self) -> String {
        match &self.selection.namespace {
            None => format!("/api/v1/{RESOURCE}"),
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/{RESOURCE}"),
        }
    }

    fn query(&self) -> Vec<String> {
        let Selection { color, service_type, name, .. } = &self.selection;
        let color = color.iter().map(|color| format!("labelSelector=color%3D{color}"));
        let service_type = service_type.iter().map(|value| format!("spec.type%3D{value}"));
        let name = name.iter().map(|value| format!("metadata.name%3D{value}"));
        let fields: Vec<_> = service_type.chain(name).collect();
        let fields = (!fields.is_empty()).then(|| format!("fieldSelector={}", fields.join("%2C")));
        color.chain(fields).collect()
    }
}

/// The text of a vector.
pub(crate) fn encode(vector: &Vector) -> String {
    use base64::Engine as _;
    let members: Vec<_> = vector.iter().map(|(cluster, revision)| format!("{cluster:?}:\"{revision}\"")).collect();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("{{{}}}", members.join(",")))
}
