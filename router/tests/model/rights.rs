//! Runs with users whose rights change while members fail. No user may see a forbidden object, and at the end every
//! user has all permitted objects.
//!
//! These runs are separate from the runs with services and versions. They have few objects, one router, and roles and
//! bindings that are created and deleted. `truth` checks each object that a user receives; `reader` is the user's
//! client.

mod reader;
pub(crate) mod truth;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::Request;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};
use tributary_apimachinery::Partial;
use tributary_apimachinery::body::{self, Body};
use tributary_router::{Policies, RequestContext, ResourcePolicy, Router, RouterConfig, SharedMode, User};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster, Simulator, SimulatorConfig};

use self::reader::Reader;
use self::truth::MemberTruth;
use crate::world::{EPOCH, RESOURCE, connect, service};

const RBAC: &str = "rbac.authorization.k8s.io";

const MEMBERS: [&str; 2] = ["eu", "us"];
const USERS: [&str; 3] = ["ann", "ben", "eve"];
/// The namespaces in which users may get rights. An empty string means all namespaces.
const PLACES: [&str; 4] = ["", "a", "b", "c"];
const NAMES: [&str; 4] = ["w", "x", "y", "z"];

const STEPS: usize = 120;

/// Maximum number of replacements of members by other clusters. A router accepts the next replacement of a cluster only
/// after 10 s, and this pause doubles with each replacement.
const REPLACEMENTS_MAX: usize = 2;

/// The maximum time until all clients are up to date after the last fault: twice the longest delay between attempts to
/// reach a member, and the half minute for which the router batches changes of rights.
const REST_WITHIN: Duration = Duration::from_secs(240);

/// The members of a run, a router over these members, and their true objects and rights.
struct World {
    members: Vec<Arc<SimulatedCluster>>,
    router: Arc<Router>,
    truth: Mutex<Vec<MemberTruth>>,
    /// The number of active faults of each member.
    faults: [AtomicU64; MEMBERS.len()],
    quiet: AtomicBool,
    started: Instant,
    trace: Mutex<Vec<String>>,
    failure: Mutex<Option<String>>,
}

/// The value of each object of a user, by cluster, namespace and name.
type Objects = BTreeMap<(String, String, String), String>;

/// Runs a seed in the caller's runtime. Returns the failure, if any, and the trace.
pub(crate) async fn run(seed: u64) -> (Option<String>, Vec<String>) {
    let world = match World::start().await {
        Ok(world) => Arc::new(world),
        Err(error) => return (Some(format!("it did not start: {error:#}")), Vec::new()),
    };
    let mut random = StdRng::seed_from_u64(seed);
    let (mut readers, mut held) = (JoinSet::new(), Vec::new());
    for user in USERS {
        let reader = Reader::new(&world, user, random.random());
        held.push((user, reader.held()));
        readers.spawn(reader.run());
    }
    tokio::spawn(Arc::clone(&world).run_replacements(seed));
    for _ in 0..STEPS {
        world.step(&mut random).await;
        let pause = match random.random_range(0..10) {
            0..5 => random.random_range(0..50),
            5..9 => random.random_range(50..3000),
            _ => random.random_range(3000..40_000),
        };
        sleep(Duration::from_millis(pause)).await;
        if world.failure.lock().is_some() {
            break;
        }
    }
    world.end_of_trouble().await;
    if let Err(error) = world.rest(&held).await {
        world.fail(&format!("in the end: {error:#}"));
    }
    while let Some(ended) = readers.try_join_next() {
        if ended.is_err() {
            world.fail("a reader panicked");
        }
    }
    readers.shutdown().await;
    (world.failure.lock().clone(), world.trace.lock().clone())
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let mut members = Vec::new();
        for (number, name) in MEMBERS.into_iter().enumerate() {
            let config = SimulatorConfig {
                name: name.to_owned(),
                pods: 0,
                namespaces: 1,
                nodes: 1,
                rbac: true,
                seed: number as u64,
                epoch: EPOCH,
                ..SimulatorConfig::default()
            };
            let member = Arc::new(Simulator::start_in_process(config)?);
            member.apply(reader_role())?;
            members.push(member);
        }
        let default = ResourcePolicy { partial: Partial::Allow, ..ResourcePolicy::default() };
        let policies = Policies { default, ..Policies::default() };
        let shared = Some(SharedMode::default());
        let router = Router::new(RouterConfig { policies, shared, alone: true, ..RouterConfig::default() });
        let mut setups = Vec::new();
        for member in &members {
            setups.push(connect(member.name(), member, 0).await?);
        }
        router.set_clusters(setups);
        router.asked_once(Duration::from_secs(20)).await;
        Ok(Self {
            members,
            router,
            truth: Mutex::new(MEMBERS.map(|_| MemberTruth::default()).into()),
            faults: Default::default(),
            quiet: AtomicBool::new(false),
            started: Instant::now(),
            trace: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    async fn step(self: &Arc<Self>, random: &mut StdRng) {
        let number = random.random_range(0..MEMBERS.len());
        match random.random_range(0..10) {
            0..5 => self.write(number, random),
            5..8 => self.give_or_take(number, random),
            _ => self.failure(number, random).await,
        }
    }

    fn write(&self, number: usize, random: &mut StdRng) {
        let (member, mut truth) = (&self.members[number], self.truth.lock());
        let namespace = PLACES[random.random_range(1..PLACES.len())];
        let name = NAMES[random.random_range(0..NAMES.len())];
        if random.random_bool(0.3) {
            if let Some(revision) = member.delete(RESOURCE, namespace, name) {
                truth[number].deleted(namespace, name, revision);
                self.trace(|| format!("{}: {namespace}/{name} is deleted at {revision}", MEMBERS[number]));
            }
            return;
        }
        let value = format!("{}-{}", MEMBERS[number], truth[number].count());
        match member.apply(service(namespace, name, &value, "red", "ClusterIP")) {
            Ok(revision) => {
                self.trace(|| format!("{}: {namespace}/{name} is {value} at {revision}", MEMBERS[number]));
                truth[number].put(namespace, name, &value, revision);
            }
            Err(error) => self.fail(&format!("a write: {error}")),
        }
    }

    /// Grants a user the right to read in a namespace, or revokes the right.
    fn give_or_take(&self, number: usize, random: &mut StdRng) {
        let (member, mut truth) = (&self.members[number], self.truth.lock());
        let user = USERS[random.random_range(0..USERS.len())];
        // Rights in all namespaces are rarer than rights in one namespace.
        let place = PLACES[if random.random_bool(0.1) { 0 } else { random.random_range(1..PLACES.len()) }];
        let (kind, plural) = match place {
            "" => ("ClusterRoleBinding", format!("clusterrolebindings.{RBAC}")),
            _ => ("RoleBinding", format!("rolebindings.{RBAC}")),
        };
        if truth[number].may_read_at(user, place) {
            let Some(revision) = member.delete(&plural, place, user) else { return self.fail("a binding is gone") };
            truth[number].taken(user, place, revision, Instant::now());
            self.trace(|| format!("{}: {user} loses {place:?} at {revision}", MEMBERS[number]));
            return;
        }
        let subjects = [json!({"kind": "User", "apiGroup": RBAC, "name": user})];
        let role = json!({"kind": "ClusterRole", "apiGroup": RBAC, "name": "reader"});
        match member.apply(rbac(kind, place, user, &json!({"subjects": subjects, "roleRef": role}))) {
            Ok(revision) => {
                truth[number].given(user, place, revision);
                self.trace(|| format!("{}: {user} may read {place:?} at {revision}", MEMBERS[number]));
            }
            Err(error) => self.fail(&format!("a binding: {error}")),
        }
    }

    /// Starts one fault. A task ends the fault later. No fault affects only roles and bindings: according to the
    /// documentation, the router may then use rights that are minutes old, so the test could not judge any object.
    async fn failure(self: &Arc<Self>, number: usize, random: &mut StdRng) {
        let control = self.members[number].control().clone();
        let lasts = Duration::from_millis(match random.random_range(0..10) {
            0..7 => random.random_range(10..5000),
            _ => random.random_range(5000..60_000),
        });
        let short = lasts.min(Duration::from_secs(5));
        let kind = random.random_range(0..8);
        self.trace(|| format!("{}: fault {kind} for {lasts:?}", MEMBERS[number]));
        let world = Arc::clone(self);
        self.faults[number].fetch_add(1, Ordering::Relaxed);
        match kind {
            0 => control.cut_streams(),
            1 => control.disconnect(),
            2 => control.expire_watches(),
            3 => control.compact(),
            4 => control.half_open(true),
            5 => control.lag_watches(Duration::from_millis(random.random_range(10..2000))),
            6 => control.reject(Some(Rejection::all([429, 500, 503][random.random_range(0..3)]))),
            _ => {
                control.stop_listening().await;
                control.disconnect();
            }
        }
        tokio::spawn(async move {
            sleep(if kind == 6 { short } else { lasts }).await;
            match kind {
                4 => control.half_open(false),
                5 => control.lag_watches(Duration::ZERO),
                6 => control.reject(None),
                7 => control.start_listening().await,
                _ => {}
            }
            world.faults[number].fetch_sub(1, Ordering::Relaxed);
            world.truth.lock()[number].troubled(Instant::now());
        });
    }

    /// Replaces members by other clusters, a few times. In some of the new clusters, lists of the resource fail for a
    /// while. The function has its own random generator, so that the other random numbers of existing seeds stay the
    /// same.
    async fn run_replacements(self: Arc<Self>, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5cce5);
        for _ in 0..random.random_range(0..=REPLACEMENTS_MAX) {
            sleep(Duration::from_millis(random.random_range(500..60_000))).await;
            if self.quiet.load(Ordering::Relaxed) {
                return;
            }
            let number = random.random_range(0..MEMBERS.len());
            let control = self.members[number].control().clone();
            self.faults[number].fetch_add(1, Ordering::Relaxed);
            control.stop_listening().await;
            // In this time, the earlier cluster completes the requests that it has already received.
            sleep(Duration::from_millis(random.random_range(1..3000))).await;
            {
                let mut truth = self.truth.lock();
                let before = control.revision();
                control.replace(before.saturating_sub(random.random_range(1..60)));
                truth[number].replaced(before, Instant::now());
                self.trace(|| format!("{}: another cluster, from {before} to {}", MEMBERS[number], control.revision()));
            }
            if let Err(error) = self.members[number].apply(reader_role()) {
                self.fail(&format!("a role: {error}"));
            }
            let fails = random.random_bool(0.5).then(|| Rejection {
                resources: vec![RESOURCE.to_owned()],
                kinds: vec![RequestKind::List],
                ..Rejection::all([403, 500][random.random_range(0..2)])
            });
            control.reject(fails);
            control.start_listening().await;
            sleep(Duration::from_millis(random.random_range(0..30_000))).await;
            control.reject(None);
            self.faults[number].fetch_sub(1, Ordering::Relaxed);
            self.truth.lock()[number].troubled(Instant::now());
        }
    }

    async fn end_of_trouble(&self) {
        self.trace(|| "everything comes to rest".to_owned());
        while self.faults.iter().any(|faults| faults.load(Ordering::Relaxed) > 0) {
            sleep(Duration::from_secs(1)).await;
        }
        self.quiet.store(true, Ordering::Relaxed);
    }

    /// Waits until every user lists and watches exactly the permitted objects.
    async fn rest(&self, held: &[(&str, Arc<Mutex<Objects>>)]) -> anyhow::Result<()> {
        let step = Duration::from_secs(5);
        let mut missing = String::new();
        for _ in 0..REST_WITHIN.as_secs() / step.as_secs() {
            sleep(step).await;
            if self.failure.lock().is_some() {
                return Ok(());
            }
            match self.difference(held).await? {
                Some(difference) => missing = difference,
                None => return Ok(()),
            }
        }
        anyhow::bail!("it does not come to rest: {missing}")
    }

    async fn difference(&self, held: &[(&str, Arc<Mutex<Objects>>)]) -> anyhow::Result<Option<String>> {
        for (user, held) in held {
            let expected = self.expected(user);
            let (code, list) = self.get(user, &format!("/api/v1/{RESOURCE}")).await?;
            let listed = list.as_ref().map(objects);
            if code != if expected.is_some() { 200 } else { 403 } || (code == 200 && listed != expected) {
                return Ok(Some(format!("{user} is listed {code} {listed:?} instead of {expected:?}")));
            }
            let held = held.lock().clone();
            if expected.as_ref().is_some_and(|expected| *expected != held) {
                return Ok(Some(format!("{user} holds {held:?} instead of {expected:?}")));
            }
        }
        Ok(None)
    }

    /// Returns the objects that a user may see now, or `None` if the user may not list in any namespace.
    fn expected(&self, user: &str) -> Option<Objects> {
        let truth = self.truth.lock();
        let mut seen: Option<Objects> = None;
        for (member, truth) in MEMBERS.iter().zip(&*truth) {
            for place in PLACES {
                if truth.may_read_at(user, place) {
                    let objects = truth.objects(place).map(|(namespace, name, value)| {
                        (((*member).to_owned(), namespace.to_owned(), name.to_owned()), value.to_owned())
                    });
                    seen.get_or_insert_default().extend(objects);
                }
            }
        }
        seen
    }

    /// Records a failure if the user may not see the object, in a response that began at `begun`.
    fn shown(&self, user: &str, object: &Value, begun: Instant) {
        let (cluster, namespace, _) = place(object);
        let value = text(&object["metadata"]["annotations"]["value"]);
        let Some(number) = MEMBERS.iter().position(|name| *name == cluster) else {
            return self.fail(&format!("an object of {cluster:?}"));
        };
        let is_well = self.faults[number].load(Ordering::Relaxed) == 0;
        if let Err(lie) = self.truth.lock()[number].may_be_shown(user, &namespace, &value, begun, is_well) {
            self.fail(&format!("{user} is shown {value} of {cluster}: {lie}"));
        }
    }

    async fn call(&self, user: &str, path: &str) -> anyhow::Result<(u16, Body)> {
        let request = Request::builder().uri(path).body(body::empty())?;
        let context = RequestContext::for_user(&User::named("model", user), &request);
        let (head, body) = self.router.handle(request, &context).await.response.into_parts();
        Ok((head.status.as_u16(), body))
    }

    async fn get(&self, user: &str, path: &str) -> anyhow::Result<(u16, Option<Value>)> {
        let (code, body) = self.call(user, path).await?;
        let text = body.collect().await.map_err(|error| anyhow::anyhow!("an answer broke off: {error}"))?.to_bytes();
        Ok((code, if code == 200 { Some(serde_json::from_slice(&text)?) } else { None }))
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        self.trace.lock().push(format!("{:>9.3} {}", self.started.elapsed().as_secs_f64(), text()));
    }

    /// Records a failure. Later failures are ignored.
    fn fail(&self, what: &str) {
        self.trace(|| format!("FAILED {what}"));
        self.failure.lock().get_or_insert_with(|| what.to_owned());
    }
}

fn reader_role() -> Value {
    let rule = json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": [RESOURCE]});
    rbac("ClusterRole", "", "reader", &json!({"rules": [rule]}))
}

/// Builds a role or binding. An empty namespace makes it cluster-wide.
fn rbac(kind: &str, namespace: &str, name: &str, of: &Value) -> Value {
    let mut object = of.clone();
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{RBAC}/v1").into();
    object["metadata"] = json!({"name": name});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

fn place(object: &Value) -> (String, String, String) {
    let metadata = &object["metadata"];
    (text(&metadata["annotations"]["tributary.dev/cluster"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

/// Returns the objects of a list, except objects that the member itself created.
fn objects(list: &Value) -> Objects {
    let items = list["items"].as_array().into_iter().flatten();
    let ours = items.filter(|item| is_ours(item));
    ours.map(|item| (place(item), text(&item["metadata"]["annotations"]["value"]))).collect()
}

fn is_ours(object: &Value) -> bool {
    PLACES[1..].contains(&object["metadata"]["namespace"].as_str().unwrap_or_default())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
