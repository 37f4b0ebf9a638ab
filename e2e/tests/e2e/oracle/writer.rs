//! Writers that change one member at a steady rate, also while it is faulty. The sequence number of a name increases by
//! one with each write that takes effect, even if the writer gets no answer.

use crate::context::TestContext;
use anyhow::{Context, ensure};
use http::StatusCode;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tributary_e2e::{HttpClient, TestCluster};

/// Annotation with the number of writes to the object's name. The number starts at 1, and continues after a deletion of
/// the object.
pub(crate) const SEQUENCE: &str = "oracle.tributary.dev/sequence";

/// Annotation `<sequence>:<length>:<letters>`. It reveals an object that mixes parts of two states.
pub(crate) const PAYLOAD: &str = "oracle.tributary.dev/payload";

/// Number of writers per member. Each writer waits for its answers. Together the writers reach the intended rate as
/// long as answers take at most 100 ms.
const WRITERS: u32 = 20;

/// Number of writes per second and member on an idle machine.
pub(crate) const PACE: u32 = 200;

/// Number of names per writer.
const NAMES: usize = 6;

/// Pause after a write that the member did not answer, or answered with "unavailable".
const DOWN: Duration = Duration::from_millis(100);

/// Namespace in which the writers write, and the kind of names that they use.
#[derive(Clone)]
pub(crate) struct WriterNamespace {
    pub(crate) namespace: String,
    /// True if the writers use the same names in all members.
    pub(crate) has_duplicates: bool,
}

pub(crate) struct Writers {
    stop: watch::Sender<bool>,
    tasks: JoinSet<anyhow::Result<Writer>>,
    written: Arc<AtomicU64>,
}

impl Writers {
    pub(crate) fn start(writers: Vec<Writer>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let written = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for writer in writers {
            tasks.spawn(writer.run(stopped.clone(), Arc::clone(&written)));
        }
        Self { stop, tasks, written }
    }

    /// Number of writes that have taken effect.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Stops each writer after its current write. Returns the writers, which can start again.
    pub(crate) async fn stop(mut self) -> anyhow::Result<Vec<Writer>> {
        self.stop.send_replace(true);
        let mut writers = Vec::new();
        while let Some(writer) = self.tasks.join_next().await {
            writers.push(writer.context("a writer panicked")??);
        }
        Ok(writers)
    }
}

/// Makes writers for these members. No earlier writer has used their names. `pace` is the number of writes per second
/// and member.
pub(crate) fn writers(members: &[Arc<TestCluster>], place: &WriterNamespace, seed: u64, pace: u32) -> Vec<Writer> {
    let mut writers = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let owner = if place.has_duplicates { "twin" } else { member.name() };
        for writer in 0..WRITERS {
            let slots = (0..NAMES).map(|number| {
                // A third of the objects are pods.
                let resource = if number % 3 == 2 { "pods" } else { "configmaps" };
                Slot::new(resource, format!("{owner}-{writer}-{number}"))
            });
            writers.push(Writer {
                http: member.http().clone(),
                namespace: place.namespace.clone(),
                period: Duration::from_secs(1) * WRITERS / pace,
                random: StdRng::seed_from_u64(seed ^ (u64::from(writer) << 32 | index as u64)),
                slots: slots.collect(),
            });
        }
    }
    writers
}

/// Writer for a single member. No name is used by two writers.
pub(crate) struct Writer {
    http: HttpClient,
    namespace: String,
    period: Duration,
    random: StdRng,
    slots: Vec<Slot>,
}

impl Writer {
    async fn run(mut self, mut stopped: watch::Receiver<bool>, written: Arc<AtomicU64>) -> anyhow::Result<Self> {
        let mut pace = interval(self.period);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return Ok(self),
                _ = pace.tick() => {}
            }
            let index = self.random.random_range(0..self.slots.len());
            match self.write(index).await? {
                Outcome::Written => {
                    written.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Refused => {}
                Outcome::Down => tokio::time::sleep(DOWN).await,
            }
        }
    }

    async fn write(&mut self, index: usize) -> anyhow::Result<Outcome> {
        let delete = self.random.random_bool(0.2);
        let length = self.random.random_range(0..600);
        let (Some(slot), http) = (self.slots.get_mut(index), &self.http) else { return Ok(Outcome::Refused) };
        let collection = format!("/api/v1/namespaces/{}/{}", self.namespace, slot.resource);
        let path = format!("{collection}/{}", slot.name);
        match slot.state.clone() {
            State::Uncertain => slot.look(http, &path).await,
            State::Absent => slot.create(http, &collection, length).await,
            State::Present { uid, version } if delete => slot.delete(http, &path, &uid, &version).await,
            State::Present { version, .. } => slot.change(http, &path, &version, length).await,
        }
    }
}

enum Outcome {
    Written,
    Refused,
    /// The server did not answer, or answered with "unavailable".
    Down,
}

/// State of an object according to the answers that the writer has received.
#[derive(Clone)]
enum State {
    Absent,
    Present {
        uid: String,
        version: String,
    },
    /// The last write had no answer. It may have taken effect, or may take effect later.
    Uncertain,
}

struct Slot {
    resource: &'static str,
    base: String,
    name: String,
    /// Number of names that the writer no longer uses for this object, because a create of the name had no answer.
    retired: u32,
    sequence: u64,
    state: State,
}

impl Slot {
    fn new(resource: &'static str, base: String) -> Self {
        Self { resource, name: base.clone(), base, retired: 0, sequence: 0, state: State::Absent }
    }

    /// Sends a request. Returns the answer only if it shows whether the request took effect.
    async fn ask(request: tributary_e2e::http::RequestBuilder) -> Option<tributary_e2e::HttpResponse> {
        let answer = request.send().await.ok()?;
        let undecided = answer.status.is_server_error()
            || matches!(
                answer.status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            );
        (!undecided).then_some(answer)
    }

    /// Every write except a create has the object's version as a precondition. Therefore a write without an answer
    /// cannot take effect after a later write.
    async fn change(&mut self, http: &HttpClient, path: &str, version: &str, length: usize) -> anyhow::Result<Outcome> {
        let mut annotations = annotations(self.sequence + 1, length);
        annotations["resourceVersion"] = json!(version);
        let patch = json!({"metadata": annotations});
        let answer = Self::ask(http.patch(path, "merge-patch+json", &patch)).await;
        self.take(answer)
    }

    async fn create(&mut self, http: &HttpClient, collection: &str, length: usize) -> anyhow::Result<Outcome> {
        let mut metadata = annotations(self.sequence + 1, length);
        metadata["name"] = json!(self.name);
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        if self.resource == "pods" {
            object["kind"] = json!("Pod");
            object["spec"] = json!({
                "nodeName": "no-such-node", "containers": [{"name": "main", "image": "example.test/main:1"}],
            });
        }
        match Self::ask(http.post(collection, &object)).await {
            Some(answer) => self.take(Some(answer)),
            None => {
                // A create without an answer may take effect at any later time, and no precondition can prevent this.
                // The writer therefore uses a new name.
                self.retired += 1;
                self.name = format!("{}-r{}", self.base, self.retired);
                self.sequence = 0;
                Ok(Outcome::Down)
            }
        }
    }

    async fn delete(&mut self, http: &HttpClient, path: &str, uid: &str, version: &str) -> anyhow::Result<Outcome> {
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid, "resourceVersion": version},
        });
        match Self::ask(http.delete(path).json(&options)).await {
            Some(answer) if answer.status.is_success() => {
                self.state = State::Absent;
                Ok(Outcome::Written)
            }
            answer => {
                self.state = State::Uncertain;
                Ok(if answer.is_none() { Outcome::Down } else { Outcome::Refused })
            }
        }
    }

    /// Evaluates the answer to a change or a create.
    ///
    /// A change may have deleted the object instead. A kube-apiserver deletes a pod in two writes: it sets the pod's
    /// deletion timestamp, and then deletes the pod. If the server is killed between the two writes, the next change of
    /// the pod completes the deletion. The answer is 200 with the changed pod, a state that no watch ever reports
    /// (`Delete`, `ShouldDeleteDuringUpdate` and `deleteWithoutFinalizers` in apiserver's
    /// `pkg/registry/generic/registry/store.go`).
    fn take(&mut self, answer: Option<tributary_e2e::HttpResponse>) -> anyhow::Result<Outcome> {
        match answer {
            Some(answer) if answer.status.is_success() => {
                let object = answer.json()?;
                if !object["metadata"]["deletionTimestamp"].is_null() {
                    tracing::info!(target: "e2e", "{} completed a deletion", answer.request);
                    self.state = State::Uncertain;
                    return Ok(Outcome::Written);
                }
                self.sequence += 1;
                self.read(&object)?;
                Ok(Outcome::Written)
            }
            Some(answer) => {
                let expected = matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::CONFLICT);
                ensure!(expected, "{}: {}", answer.request, answer.text());
                self.state = State::Uncertain;
                Ok(Outcome::Refused)
            }
            None => {
                self.state = State::Uncertain;
                Ok(Outcome::Down)
            }
        }
    }

    /// Reads the object's state from the member after a write without an answer.
    async fn look(&mut self, http: &HttpClient, path: &str) -> anyhow::Result<Outcome> {
        let Some(answer) = Self::ask(http.get(path)).await else { return Ok(Outcome::Down) };
        if answer.status == StatusCode::NOT_FOUND {
            self.state = State::Absent;
        } else {
            self.read(&answer.expect(200)?.json()?)?;
        }
        Ok(Outcome::Refused)
    }

    fn read(&mut self, object: &Value) -> anyhow::Result<()> {
        let metadata = &object["metadata"];
        let sequence = metadata["annotations"][SEQUENCE].as_str().and_then(|text| text.parse().ok());
        let sequence: u64 = sequence.with_context(|| format!("a member answers without a sequence: {object}"))?;
        ensure!(sequence >= self.sequence, "the member itself went back: {} then {object}", self.sequence);
        self.sequence = sequence;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.state = State::Present { uid: text(&metadata["uid"]), version: text(&metadata["resourceVersion"]) };
        Ok(())
    }
}

/// Makes the annotations that identify a write.
fn annotations(sequence: u64, length: usize) -> Value {
    json!({"annotations": {
        SEQUENCE: sequence.to_string(),
        PAYLOAD: format!("{sequence}:{length}:{}", "x".repeat(length)),
    }})
}

/// A patch that completes a deletion creates no state that a watch reports. The next write must use the sequence number
/// of the patch again, so that a client of the member receives every number.
pub(crate) async fn patch_that_deletes_an_object_adds_no_expected_state_in_the_oracle(
    context: TestContext,
) -> anyhow::Result<()> {
    let member = context.fixture.pair().await?.first().context("no member")?.clone();
    let http = member.http();
    let namespace = context.namespace("half", std::slice::from_ref(&member)).await?;
    let collection = format!("/api/v1/namespaces/{namespace}/pods");
    let list = http.get(&collection).send().await?.expect(200)?.json()?;
    let from = list["metadata"]["resourceVersion"].as_str().context("the list has no version")?.to_owned();
    let mut slot = Slot::new("pods", "half".to_owned());
    slot.create(http, &collection, 1).await?;
    let path = format!("{collection}/{}", slot.name);
    // The test needs a pod that has a deletion timestamp but still exists. A finalizer has this effect, like the grace
    // period of a kubelet.
    let patch = |metadata: Value| http.patch(&path, "merge-patch+json", &json!({"metadata": metadata}));
    patch(json!({"finalizers": ["oracle.tributary.dev/held"]})).send().await?.expect(200)?;
    http.delete(&path).json(&json!({"gracePeriodSeconds": 0})).send().await?.expect(200)?;
    slot.look(http, &path).await?;
    let mut change = annotations(slot.sequence + 1, 1);
    change["finalizers"] = Value::Null;
    let answer = patch(change).send().await?.expect(200)?;
    ensure!(
        answer.json()?["metadata"]["annotations"][SEQUENCE] == "2",
        "the answer shows what is not: {}",
        answer.text()
    );
    slot.take(Some(answer))?;
    slot.look(http, &path).await?;
    slot.create(http, &collection, 1).await?;
    let watch = format!("{collection}?watch=1&resourceVersion={from}&timeoutSeconds=2");
    let events = http.get(&watch).send().await?.expect(200)?.text();
    let mut told = Vec::new();
    for event in events.lines() {
        let event: Value = serde_json::from_str(event).context("read an event")?;
        told.push(
            format!("{} {}", event["type"], event["object"]["metadata"]["annotations"][SEQUENCE]).replace('"', ""),
        );
    }
    ensure!(told == ["ADDED 1", "MODIFIED 1", "MODIFIED 1", "DELETED 1", "ADDED 2"], "the member tells {told:?}");
    Ok(())
}
