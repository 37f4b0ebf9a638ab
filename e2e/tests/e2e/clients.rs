//! Checks clients that store the objects of a cluster while writers change both members: client-go informers (with and
//! without WatchList), a controller-runtime cache and a kube-rs reflector. A generated client also writes protobuf.
//!
//! Each kind of client also runs with a bare member, to show that the test itself is right.

use crate::{
    clients::follower::Follower,
    context::{Case, TestContext, cases, eventually},
};
use anyhow::{Context, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tributary_e2e::TestCluster;

pub(crate) mod follower;

/// Duration of the random writes while a client follows the objects.
const CHURN: Duration = Duration::from_secs(20);

/// Longest time after the last write until a client has the final state.
const SETTLE: Duration = Duration::from_secs(60);

/// Pause between two writes to a member. The resulting rate is low for a server, because the test is about the order
/// and the loss of events, not about speed.
const WRITE_PAUSE: Duration = Duration::from_millis(15);

pub(crate) fn cases() -> Vec<Case> {
    cases!["clients";
        informer_follows_a_member_without_tributary, informer_with_watch_list_follows_both_members,
        informer_with_list_and_watch_follows_both_members, informer_passes_the_watch_list_inconsistency_detector,
        controller_runtime_cache_follows_both_members, kube_rs_reflector_follows_both_members,
        kube_rs_streaming_reflector_follows_both_members, typed_client_calls_have_the_same_results_as_at_a_member,
        typed_client_write_goes_to_the_cluster_in_the_annotation, retry_watcher_follows_both_members,
        informer_loses_no_change_over_a_restart,
    ]
}

/// Server that a client uses, and the objects that the client follows.
pub(crate) struct Followed {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) members: Vec<Arc<TestCluster>>,
    pub(crate) namespace: String,
}

pub(crate) async fn of_a_member(context: &TestContext) -> anyhow::Result<Followed> {
    let member = context.fixture.bare().await?;
    let members = vec![Arc::clone(&member)];
    let namespace = context.namespace("client", &members).await?;
    Ok(Followed { kubeconfig: member.kubeconfig(), members, namespace })
}

async fn of_all(context: &TestContext) -> anyhow::Result<Followed> {
    let tributary = context.fixture.over_two().await?;
    let members = context.fixture.pair().await?.to_vec();
    let namespace = context.namespace("client", &members).await?;
    Ok(Followed { kubeconfig: tributary.kubeconfig().to_owned(), members, namespace })
}

/// The outcomes of calls by step: code, reason and value.
pub(crate) type Outcomes = BTreeMap<String, (i64, String, String)>;

/// Objects that a client must have. Maps the name of each object to its uid and label `generation`.
type State = BTreeMap<String, (String, String)>;

async fn state_of(member: &TestCluster, namespace: &str, resource: &str) -> anyhow::Result<State> {
    let list =
        member.http().get(&format!("/api/v1/namespaces/{namespace}/{resource}")).send().await?.expect(200)?.json()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| {
            let metadata = &item["metadata"];
            let key = format!("{namespace}/{}", text(&metadata["name"]));
            (key, (text(&metadata["uid"]), text(&metadata["labels"]["generation"])))
        })
        .collect())
}

impl Followed {
    /// Checks that a client has the objects of all members. If several members have an object of the same name, the
    /// client may have any of these objects.
    async fn check(&self, resource: &str, held: &State) -> anyhow::Result<()> {
        let mut names: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for member in &self.members {
            for (key, state) in state_of(member, &self.namespace, resource).await? {
                names.entry(key).or_default().push(state);
            }
        }
        for (key, states) in &names {
            let ours = held.get(key).with_context(|| format!("{resource} {key} is missing"))?;
            ensure!(states.contains(ours), "{resource} {key} is {ours:?} instead of {states:?}");
        }
        for key in held.keys() {
            ensure!(names.contains_key(key), "{resource} {key} is gone and still held");
        }
        Ok(())
    }

    /// Creates, changes and deletes objects in all members at random for [`CHURN`]. Some names are in several members.
    async fn churn(&self, seed: u64) -> anyhow::Result<()> {
        let writers = self.members.iter().enumerate().map(|(index, member)| {
            let writer = Writer {
                member: Arc::clone(member),
                namespace: self.namespace.clone(),
                random: StdRng::seed_from_u64(seed + index as u64),
                generation: 0,
            };
            tokio::spawn(writer.run(CHURN))
        });
        for writer in futures::future::join_all(writers).await {
            writer.context("a writer panicked")??;
        }
        Ok(())
    }
}

struct Writer {
    member: Arc<TestCluster>,
    namespace: String,
    random: StdRng,
    /// Number of writes. Each write stores the number in the object's label `generation`, so that a later state has a
    /// greater number.
    generation: u64,
}

impl Writer {
    async fn run(mut self, duration: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            self.write().await?;
            tokio::time::sleep(WRITE_PAUSE).await;
        }
        Ok(())
    }

    async fn write(&mut self) -> anyhow::Result<()> {
        self.generation += 1;
        let resource = if self.random.random_bool(0.5) { "configmaps" } else { "pods" };
        let number = self.random.random_range(0..12);
        // A third of the names are the same in every member.
        let name = if number < 4 { format!("twin-{number}") } else { format!("{}-{number}", self.member.name()) };
        let collection = format!("/api/v1/namespaces/{}/{resource}", self.namespace);
        let path = format!("{collection}/{name}");
        let http = self.member.http();
        let generation = self.generation.to_string();
        let answer = match self.random.random_range(0..10) {
            0..=1 => http.delete(&format!("{path}?gracePeriodSeconds=0")).send().await?,
            _ => {
                let patch = json!({"metadata": {"labels": {"generation": generation}}});
                let changed = http.patch(&path, "merge-patch+json", &patch).send().await?;
                if changed.status != 404 {
                    changed
                } else {
                    http.post(&collection, &new_object(resource, &name, &generation)).send().await?
                }
            }
        };
        // The member's controllers also write. A write can therefore get 404, or 409 for an object that is still being
        // deleted.
        let expected = answer.status.is_success() || [404, 409].contains(&answer.status.as_u16());
        ensure!(expected, "{}: {}", answer.request, answer.text());
        Ok(())
    }
}

fn new_object(resource: &str, name: &str, generation: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"generation": generation}});
    match resource {
        "pods" => json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": "no-such-node", "containers": [{"name": "main", "image": "example.test/main:1"}]},
        }),
        _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
    }
}

/// Ways in which a client-go program gets its initial objects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists {
    Paged,
    /// The program opens a watch with initial events (`WatchListClient`).
    Streamed,
    /// The program opens a watch with initial events and compares the result with a list. A difference causes a panic.
    StreamedAndCompared,
}

/// A Go client follows all members during random writes. At the end the client must have the objects of all members.
pub(crate) async fn follow(
    context: &TestContext,
    followed: Followed,
    subcommand: &str,
    lists: Lists,
) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let environment = [
        ("KUBE_FEATURE_WatchListClient", if lists == Lists::Paged { "false" } else { "true" }),
        ("KUBE_WATCHLIST_INCONSISTENCY_DETECTOR", if lists == Lists::StreamedAndCompared { "true" } else { "false" }),
    ];
    let arguments = [subcommand, "--namespace", &followed.namespace];
    let mut follower = Follower::start(&tools.clients(), &followed.kubeconfig, &arguments, &environment)?;
    follower.wait_for("synced", SETTLE).await?;
    followed.churn(7).await?;
    let end = Instant::now() + SETTLE;
    loop {
        let dump = follower.dump().await?;
        match check_dump(&followed, &dump).await {
            Ok(()) => break,
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
    let dump = follower.dump().await?;
    ensure!(dump["wentBack"] == json!([]), "objects went back: {}", dump["wentBack"]);
    ensure!(dump["updated"].as_u64().is_some_and(|count| count > 100), "hardly anything changed: {dump}");
    follower.exit().await
}

async fn check_dump(followed: &Followed, dump: &Value) -> anyhow::Result<()> {
    for resource in ["pods", "configmaps"] {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let held: State = dump["objects"][resource]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, object)| (key.clone(), (text(&object["uid"]), text(&object["generation"]))))
            .collect();
        followed.check(resource, &held).await?;
    }
    Ok(())
}

async fn informer_follows_a_member_without_tributary(context: TestContext) -> anyhow::Result<()> {
    let followed = of_a_member(&context).await?;
    follow(&context, followed, "informer", Lists::Streamed).await
}

async fn informer_with_watch_list_follows_both_members(context: TestContext) -> anyhow::Result<()> {
    let followed = of_all(&context).await?;
    follow(&context, followed, "informer", Lists::Streamed).await
}

async fn informer_with_list_and_watch_follows_both_members(context: TestContext) -> anyhow::Result<()> {
    let followed = of_all(&context).await?;
    follow(&context, followed, "informer", Lists::Paged).await
}

/// client-go's detector compares the initial events of a watch with a list at the version of the last bookmark. A
/// difference causes a panic.
async fn informer_passes_the_watch_list_inconsistency_detector(context: TestContext) -> anyhow::Result<()> {
    let followed = of_all(&context).await?;
    follow(&context, followed, "informer", Lists::StreamedAndCompared).await
}

async fn controller_runtime_cache_follows_both_members(context: TestContext) -> anyhow::Result<()> {
    let followed = of_all(&context).await?;
    follow(&context, followed, "controller-runtime", Lists::Streamed).await
}

async fn kube_rs_reflector_follows_both_members(context: TestContext) -> anyhow::Result<()> {
    reflect(&context, kube::runtime::watcher::Config::default()).await
}

async fn kube_rs_streaming_reflector_follows_both_members(context: TestContext) -> anyhow::Result<()> {
    reflect(&context, kube::runtime::watcher::Config::default().streaming_lists()).await
}

/// A kube-rs reflector follows all members during random writes.
async fn reflect(context: &TestContext, config: kube::runtime::watcher::Config) -> anyhow::Result<()> {
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{WatchStreamExt, reflector, watcher};
    let followed = of_all(context).await?;
    let config_of = tributary_e2e::kubeconfig::config(&followed.kubeconfig, None).await?;
    let client = kube::Client::try_from(config_of).context("make a client")?;
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client, &followed.namespace);
    let (store, writer) = reflector::store();
    let events = watcher(maps, config).default_backoff().reflect(writer).for_each(|event| async move {
        if let Err(error) = event {
            tracing::warn!(%error, "the reflector met an error");
        }
    });
    let reflecting = tokio::spawn(events);
    tokio::time::timeout(SETTLE, store.wait_until_ready())
        .await
        .context("the reflector did not sync")?
        .context("ended")?;
    followed.churn(11).await?;
    let outcome = eventually(SETTLE, async || {
        let held: State = store
            .state()
            .iter()
            .map(|map| {
                let metadata = &map.metadata;
                let key = format!("{}/{}", followed.namespace, metadata.name.clone().unwrap_or_default());
                let generation = metadata.labels.as_ref().and_then(|labels| labels.get("generation").cloned());
                (key, (metadata.uid.clone().unwrap_or_default(), generation.unwrap_or_default()))
            })
            .collect();
        followed.check("configmaps", &held).await
    })
    .await;
    reflecting.abort();
    outcome
}

/// Runs each call of the typed client. Returns the status code, reason and value of each call by step.
pub(crate) async fn typed(
    context: &TestContext,
    kubeconfig: &Path,
    namespace: &str,
    more: &[&str],
) -> anyhow::Result<Outcomes> {
    let tools = context.fixture.tools().await?;
    let arguments = [&["typed", "--namespace", namespace], more].concat();
    let mut client = Follower::start(&tools.clients(), kubeconfig, &arguments, &[])?;
    let lines = client.all_lines(Duration::from_secs(120)).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let outcomes = lines.iter().map(|line| {
        (text(&line["step"]), (line["code"].as_i64().unwrap_or(-2), text(&line["reason"]), text(&line["value"])))
    });
    Ok(outcomes.collect())
}

async fn typed_client_calls_have_the_same_results_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let (member, all) = (of_a_member(&context).await?, of_all(&context).await?);
    let expected = typed(&context, &member.kubeconfig, &member.namespace, &[]).await?;
    ensure!(expected.len() >= 24, "the typed client stopped early: {expected:?}");
    ensure!(expected["update-stale"].0 == 409 && expected["delete-fresh"].0 == 0, "{expected:?}");
    let shown = typed(&context, &all.kubeconfig, &all.namespace, &[]).await?;
    same_outcomes(&shown, &expected)
}

async fn typed_client_write_goes_to_the_cluster_in_the_annotation(context: TestContext) -> anyhow::Result<()> {
    let (member, all) = (of_a_member(&context).await?, of_all(&context).await?);
    let expected = typed(&context, &member.kubeconfig, &member.namespace, &[]).await?;
    let shown = typed(&context, &all.kubeconfig, &all.namespace, &["--cluster", "member2"]).await?;
    same_outcomes(&shown, &expected)?;
    let gone = format!("/api/v1/namespaces/{}/configmaps/typed", all.namespace);
    all.members[0].http().get(&gone).send().await?.expect(404)?;
    Ok(())
}

pub(crate) fn same_outcomes(shown: &Outcomes, expected: &Outcomes) -> anyhow::Result<()> {
    for (step, outcome) in expected {
        let ours = shown.get(step).with_context(|| format!("no step {step} in {shown:?}"))?;
        ensure!(ours == outcome, "{step}: {ours:?} instead of {outcome:?}");
    }
    ensure!(shown.len() == expected.len(), "{:?} instead of {:?}", shown.keys(), expected.keys());
    Ok(())
}

async fn retry_watcher_follows_both_members(context: TestContext) -> anyhow::Result<()> {
    let followed = of_all(&context).await?;
    let tools = context.fixture.tools().await?;
    let arguments = ["retrywatch", "--namespace", &followed.namespace];
    let mut watcher = Follower::start(&tools.clients(), &followed.kubeconfig, &arguments, &[])?;
    watcher.wait_for("synced", SETTLE).await?;
    for (index, member) in followed.members.iter().enumerate() {
        let path = format!("/api/v1/namespaces/{}/configmaps", followed.namespace);
        let object = new_object("configmaps", &format!("map-{index}"), "1");
        member.http().post(&path, &object).send().await?.expect(201)?;
        let event = watcher.wait_for("ADDED", SETTLE).await?;
        ensure!(event["name"] == format!("map-{index}"), "{event}");
    }
    // The server refuses this version. The client must end the watch, and must not try again in a loop.
    let arguments = ["retrywatch", "--namespace", &followed.namespace, "--resource-version", "5"];
    let mut watcher = Follower::start(&tools.clients(), &followed.kubeconfig, &arguments, &[])?;
    let event = watcher.wait_for("ERROR", SETTLE).await?;
    ensure!(event["object"]["code"] == 410, "{event}");
    watcher.wait_for("ended", SETTLE).await?;
    Ok(())
}

/// Tributary restarts while an informer runs. The informer must miss no change and must not see an older version again.
async fn informer_loses_no_change_over_a_restart(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.to_vec();
    let namespace = context.namespace("client", &members).await?;
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let folder = tributary_e2e::guard::temporary_folder("restart")?;
    let port = tributary_e2e::ports::free_port()?;
    let start = async || {
        tributary_e2e::Tributary::builder(&kubeconfig, ["member1", "member2"])
            .folder(folder.path())
            .listen(format!("127.0.0.1:{port}"))
            .start()
            .await
    };
    let tributary = start().await?;
    let followed = Followed { kubeconfig: tributary.kubeconfig().to_owned(), members, namespace };
    let tools = context.fixture.tools().await?;
    let arguments = ["informer", "--namespace", &followed.namespace];
    let mut follower = Follower::start(&tools.clients(), &followed.kubeconfig, &arguments, &[])?;
    follower.wait_for("synced", SETTLE).await?;
    let restart = async {
        tokio::time::sleep(CHURN / 3).await;
        tributary.stop().await?;
        start().await
    };
    let (churned, restarted) = tokio::join!(followed.churn(13), restart);
    churned?;
    let _tributary = context.fixture.watch_log(restarted?).await;
    let end = Instant::now() + SETTLE;
    loop {
        match check_dump(&followed, &follower.dump().await?).await {
            Ok(()) => break,
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(300)).await,
        }
    }
    let dump = follower.dump().await?;
    ensure!(dump["wentBack"] == json!([]), "objects went back: {}", dump["wentBack"]);
    follower.exit().await
}
