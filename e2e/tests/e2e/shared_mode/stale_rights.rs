//! Tributary receives no roles and bindings of a member, while it still receives all other objects. The tests check the
//! responses to users over time.
//!
//! Tributary's promises:
//!
//! * Tributary applies the loss of a right within 2 s of the member's event.
//! * Tributary treats a watch without events as broken after 90 s.
//! * If Tributary cannot read roles and bindings but can read other objects, the last known rights are valid for 5
//!   minutes. Afterwards Tributary shows no object of the member.
//! * After a loss of contact with the whole member, Tributary reads no object before it has read roles and bindings
//!   again.

use super::races::{APART, CUT_OFF, Reader, cut, regain};
use super::{SOON, config_maps, grant};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};
use tributary_e2e::{EventStream, HttpClient, RightsGate, RightsPassage, TestCluster, namespace};
use tributary_simulator::{Relay, RelayMode};

/// Time without events after which Tributary treats a watch as broken (`ReflectorTuning::watch_silence`).
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Time for which the last known rights are valid while Tributary cannot read roles and bindings (`BEHIND_MAX`).
const BEHIND_MAX: Duration = Duration::from_secs(300);

/// Additional time that two requests and a watch may take on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

/// Longest time until Tributary applies the loss of a right while it receives roles and bindings. The promise is 2 s,
/// but the machine may be busy.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

/// Time for which the test checks that an object stays hidden, and interval of the checks.
const A_WHILE: Duration = Duration::from_secs(15);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Time without an event after which the test concludes that a watch has no more events.
const QUIET: Duration = Duration::from_secs(3);

/// Longest duration of a test that waits until rights expire.
const PATIENCE: Duration = Duration::from_secs(900);

pub(super) fn cases() -> Vec<Case> {
    let cases = cases!["shared_mode::stale_rights";
        status_reports_stale_rights_while_reads_of_rbac_are_refused,
        objects_are_not_read_while_reads_of_rbac_are_refused,
        proof_right_revoked_behind_a_silent_rbac_watch_is_lost_after_the_timeout,
        proof_objects_are_not_read_while_rbac_watches_are_silent, proof_rights_expire_while_reads_of_rbac_are_refused,
        proof_list_is_429_under_partial_deny_after_rights_expire, proof_rights_expire_while_rbac_watches_are_silent,
        proof_watch_sends_no_new_objects_while_rbac_watches_are_silent,
    ];
    cases.into_iter().map(|case| case.patience(PATIENCE)).collect()
}

/// User that may read the ConfigMaps of two namespaces of a member, with one object in each. The member is behind a
/// gate that can stop RBAC objects, and behind a relay.
struct Scene {
    reader: Reader,
    /// Gate between the relay and the member.
    gate: RightsGate,
    /// Relay between Tributary and the gate.
    wire: Relay,
    /// Client of a user that may read `/tributary/status`.
    observer: HttpClient,
}

impl Scene {
    async fn start(context: &TestContext, arguments: &[&str]) -> anyhow::Result<Self> {
        let member = Arc::new(TestCluster::builder(APART).start(context.fixture.tools().await?).await?);
        let gate = RightsGate::start(&member).await?;
        let wire = Relay::start(gate.port(), 0).await?;
        let mut entries = member.access().entries();
        entries.cluster["server"] = json!(format!("https://127.0.0.1:{}", wire.port()));
        entries.cluster["certificate-authority-data"] = json!(STANDARD.encode(gate.authority()));
        let reader = Reader::beside(context, member, entries, arguments).await?;
        let name = namespace::unique_name("observer");
        for member in &reader.shared.members {
            let rules = json!([{"nonResourceURLs": ["/tributary/status"], "verbs": ["get"]}]);
            grant(member, "", &name, &name, rules).await?;
        }
        let observer = reader.shared.http(&name, &[]).await?;
        reader.make(&reader.kept, &["one"]).await?;
        reader.make(&reader.lost, &["two"]).await?;
        reader.lists(&[(reader.kept.as_str(), "one"), (reader.lost.as_str(), "two")]).await?;
        let scene = Self { reader, gate, wire, observer };
        scene.rights_are("Current").await?;
        Ok(scene)
    }

    /// Path of the ConfigMaps to which the user loses the right.
    fn lost(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.reader.lost)
    }

    /// Watches the ConfigMaps to which the user loses the right, without initial events.
    async fn watch_lost(&self) -> anyhow::Result<EventStream> {
        let news = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        self.reader.http.watch(&format!("{}?{news}", self.lost())).await
    }

    /// Returns the member's entry in `/tributary/status`.
    async fn reported(&self) -> anyhow::Result<Value> {
        let report = self.observer.get("/tributary/status").send().await?.expect(200)?.json()?;
        let own = report["clusters"].as_array().into_iter().flatten().find(|cluster| cluster["name"] == APART);
        own.cloned().with_context(|| format!("it is not reported: {report}"))
    }

    /// Waits until `/tributary/status` shows this state of the member's rights.
    async fn rights_are(&self, expected: &str) -> anyhow::Result<()> {
        eventually(CUT_OFF, async || {
            let own = self.reported().await?;
            ensure!(own["rights"] == expected, "not {expected}: {own}");
            Ok(())
        })
        .await
    }

    /// Checks that the user still receives other changes of the member: a new object must be listed.
    async fn others_come(&self, name: &str) -> anyhow::Result<()> {
        self.reader.make(&self.reader.kept, &[name]).await?;
        eventually(SOON, async || {
            let list = self.reader.list().await?;
            ensure!(of(&list, &self.reader.kept).contains(name), "{name} is not shown: {list}");
            Ok(())
        })
        .await
    }

    /// Waits until the objects of the revoked right are hidden, but other objects are still shown.
    async fn loss_is_followed(&self, patience: Duration) -> anyhow::Result<()> {
        eventually(patience, async || {
            let list = self.reader.list().await?;
            ensure!(of(&list, &self.reader.lost).is_empty(), "what was lost is shown: {list}");
            ensure!(of(&list, &self.reader.kept).contains("one"), "what is kept is not shown: {list}");
            self.reader.http.get(&self.lost()).send().await?.expect(403).map(drop)
        })
        .await
    }

    /// Waits until no object of the revoked right is listed.
    async fn nothing_lost_is_shown(&self, patience: Duration) -> anyhow::Result<()> {
        eventually(patience, async || {
            let list = self.reader.http.get("/api/v1/configmaps").send().await?;
            ensure!(of(&list.json()?, &self.reader.lost).is_empty(), "what was lost is shown: {}", list.text());
            Ok(())
        })
        .await
    }

    /// Waits until no object of the member behind the gate is shown.
    async fn nothing_is_shown(&self, patience: Duration) -> anyhow::Result<()> {
        eventually(patience, async || {
            let list = self.reader.http.get("/api/v1/configmaps").send().await?;
            let shown = list.json()?;
            let names = [&self.reader.kept, &self.reader.lost].map(|own| of(&shown, own));
            ensure!(names.iter().all(BTreeSet::is_empty), "it is still shown: {shown}");
            Ok(())
        })
        .await
    }

    /// Creates an object in the namespace of the revoked right. Checks for [`A_WHILE`] that no list and no open watch
    /// shows the object.
    async fn stays_hidden(&self, name: &str, open: &mut EventStream) -> anyhow::Result<()> {
        self.reader.make(&self.reader.lost, &[name]).await?;
        self.is_hidden().await?;
        let (events, _has_ended) = open.drain(QUIET).await?;
        let shown = events.iter().find(|event| event["object"]["metadata"]["name"] == name);
        ensure!(shown.is_none(), "a watch shows what was lost: {shown:?}");
        Ok(())
    }

    /// Checks for [`A_WHILE`] that no object of the revoked right is listed.
    async fn is_hidden(&self) -> anyhow::Result<()> {
        let until = Instant::now() + A_WHILE;
        while Instant::now() < until {
            let list = self.reader.http.get("/api/v1/configmaps").send().await?;
            ensure!(of(&list.json()?, &self.reader.lost).is_empty(), "what was lost is shown: {}", list.text());
            let own = self.reader.http.get(&self.lost()).send().await?;
            ensure!(!own.status.is_success(), "what was lost is listed: {}", own.text());
            sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Opens the gate, and checks that Tributary follows roles and bindings again. The test grants a right, opens a
    /// watch with this right, and revokes the right. The watch must then end.
    async fn is_followed_again(&self) -> anyhow::Result<()> {
        self.gate.set(RightsPassage::Clear);
        self.loss_is_followed(CUT_OFF).await?;
        self.rights_are("Current").await?;
        self.others_come("last").await?;
        regain(&self.reader).await?;
        let mut open = self.watch_lost().await?;
        let since = Instant::now();
        self.reader.loses().await?;
        let end = open.expect(SOON).await?;
        let took = since.elapsed();
        ensure!(end["type"] == "ERROR" && end["object"]["code"] == 410, "{end}");
        ensure!(took < FOLLOWED_WITHIN, "the loss was followed after {took:?}");
        self.loss_is_followed(FOLLOWED_WITHIN).await
    }
}

/// Returns the names in a list that belong to this namespace of the member behind the gate.
fn of(list: &Value, namespace: &str) -> BTreeSet<String> {
    let shown = config_maps(list).into_iter().filter(|(cluster, own, _)| cluster == APART && own == namespace);
    shown.map(|(.., name)| name).collect()
}

/// Open watches of roles and bindings receive no more events, but new watches work. Tributary can notice this fault
/// only by the lack of events. It must then read roles and bindings again.
async fn proof_right_revoked_behind_a_silent_rbac_watch_is_lost_after_the_timeout(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = Scene::start(&context, &[]).await?;
    let mut open = scene.watch_lost().await?;
    scene.gate.set(RightsPassage::OpenSilent);
    let since = Instant::now();
    scene.reader.loses().await?;
    scene.others_come("three").await?;
    sleep_until(since + SILENCE_MAX).await;
    scene.loss_is_followed(SLACK).await?;
    let (events, has_ended) = open.drain(QUIET).await?;
    let end = events.last().context("the watch says why it ends")?;
    ensure!(has_ended && end["object"]["code"] == 410, "what was opened with the right goes on: {events:?}");
    scene.reader.make(&scene.reader.lost, &["hidden"]).await?;
    scene.is_hidden().await?;
    scene.is_followed_again().await
}

/// The member refuses reads of roles and bindings for a time, but not until the last known rights expire.
async fn status_reports_stale_rights_while_reads_of_rbac_are_refused(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = Scene::start(&context, &[]).await?;
    scene.gate.set(RightsPassage::Refused);
    scene.reader.loses().await?;
    scene.rights_are("Behind").await?;
    scene.others_come("three").await?;
    scene.is_followed_again().await
}

async fn objects_are_not_read_while_reads_of_rbac_are_refused(context: TestContext) -> anyhow::Result<()> {
    objects_wait(&context, RightsPassage::Refused).await
}

async fn proof_objects_are_not_read_while_rbac_watches_are_silent(context: TestContext) -> anyhow::Result<()> {
    objects_wait(&context, RightsPassage::Silent).await
}

/// While a member is unreachable, a user loses a right in this member, and the objects change. Then the member is
/// reachable again, but Tributary cannot read its roles and bindings. Tributary must not read the member's objects
/// before it has read the roles and bindings.
async fn objects_wait(context: &TestContext, passage: RightsPassage) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = Scene::start(context, &[]).await?;
    let reader = &scene.reader;
    cut(&scene.wire);
    eventually(CUT_OFF, async || warned(reader).await.map(drop)).await?;
    reader.loses().await?;
    reader.make(&reader.lost, &["hidden"]).await?;
    reader.make(&reader.kept, &["later"]).await?;
    scene.gate.set(passage);
    scene.wire.set(RelayMode::Clear);
    // Waits until the member answers again. Tributary still cannot read its roles and bindings.
    let own = reader.http.below(&format!("/clusters/{APART}"));
    let later = format!("/api/v1/namespaces/{}/configmaps/later", reader.kept);
    eventually(CUT_OFF, async || own.get(&later).send().await?.expect(200).map(drop)).await?;
    let until = Instant::now() + A_WHILE;
    while Instant::now() < until {
        let list = warned(reader).await?;
        ensure!(!of(&list, &reader.lost).contains("hidden"), "what was made after the loss is shown: {list}");
        let of_lost = reader.http.get(&scene.lost()).send().await?;
        ensure!(!of_lost.text().contains("hidden"), "what was made after the loss is shown: {}", of_lost.text());
        sleep(LOOK_INTERVAL).await;
    }
    scene.gate.set(RightsPassage::Clear);
    eventually(CUT_OFF, async || {
        let list = reader.list().await?;
        if of(&list, &reader.lost).contains("hidden") {
            panic!("what was made after the loss is shown: {list}");
        }
        ensure!(of(&list, &reader.kept).contains("later"), "objects do not come: {list}");
        Ok(())
    })
    .await?;
    scene.is_followed_again().await
}

/// Lists the ConfigMaps. The response must have a Warning that the member's objects may be stale.
async fn warned(reader: &Reader) -> anyhow::Result<Value> {
    let list = reader.http.get("/api/v1/configmaps").send().await?.expect(200)?;
    ensure!(warnings(&list.headers).contains(APART), "no Warning of the member: {:?}", list.headers);
    list.json()
}

async fn proof_rights_expire_while_reads_of_rbac_are_refused(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = refused_for_long(&context, &[]).await?;
    let list = scene.reader.http.get("/api/v1/configmaps").send().await?.expect(200)?;
    let told = warnings(&list.headers);
    ensure!(
        told.contains("your rights in some clusters are not known, and the objects of these clusters are missing"),
        "{told}"
    );
    ensure!(!told.contains(APART), "who may not know of it is told its name: {told}");
    scene.is_followed_again().await
}

async fn proof_list_is_429_under_partial_deny_after_rights_expire(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = refused_for_long(&context, &["--partial=deny"]).await?;
    let refused = scene.reader.http.get("/api/v1/configmaps").send().await?.expect(429)?.text();
    ensure!(refused.contains("your rights in some clusters are unknown until an administrator"), "{refused}");
    ensure!(!refused.contains(APART), "who may not know of it is told its name: {refused}");
    scene.is_followed_again().await
}

/// The member refuses reads of roles and bindings until the last known rights expire.
async fn refused_for_long(context: &TestContext, arguments: &[&str]) -> anyhow::Result<Scene> {
    let scene = Scene::start(context, arguments).await?;
    let mut open = scene.watch_lost().await?;
    let since = Instant::now();
    scene.gate.set(RightsPassage::Refused);
    scene.reader.loses().await?;
    scene.rights_are("Behind").await?;
    scene.others_come("three").await?;
    // The last known rights are valid from the last contact on. Failed attempts to read roles and bindings must not
    // extend this time.
    sleep_until(since + BEHIND_MAX).await;
    scene.nothing_is_shown(SLACK).await?;
    scene.stays_hidden("hidden", &mut open).await?;
    let own = scene.reported().await?;
    let problem = own["rightsProblem"].as_str().unwrap_or_default();
    ensure!(own["rights"] == "Outdated" && problem.contains("cannot be watched"), "{own}");
    let log = scene.reader.shared.tributary.log();
    ensure!(log.contains("the rights of users in the cluster are no longer known"), "{log}");
    Ok(scene)
}

fn warnings(headers: &http::HeaderMap) -> String {
    let all = headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
    all.collect::<Vec<_>>().join("\n")
}

/// New watches of roles and bindings open but never deliver an event. Tributary must not treat such a watch as proof
/// that its rights are current.
async fn proof_rights_expire_while_rbac_watches_are_silent(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = Scene::start(&context, &[]).await?;
    let mut open = scene.watch_lost().await?;
    scene.gate.set(RightsPassage::Silent);
    let since = Instant::now();
    scene.reader.loses().await?;
    scene.others_come("three").await?;
    sleep_until(since + SILENCE_MAX + BEHIND_MAX).await;
    scene.nothing_lost_is_shown(SLACK).await?;
    scene.stays_hidden("hidden", &mut open).await?;
    let own = scene.reported().await?;
    ensure!(own["rights"] != "Current", "rights that nothing is heard of are told as those of now: {own}");
    scene.is_followed_again().await
}

/// All open watches stop delivering events, as behind a proxy that has lost its streams. Tributary opens each watch
/// again at a different time. New watches of objects work, but new watches of roles and bindings deliver no events. An
/// object that was created after the loss of the user's right must never appear.
async fn proof_watch_sends_no_new_objects_while_rbac_watches_are_silent(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let scene = Scene::start(&context, &[]).await?;
    let reader = &scene.reader;
    scene.gate.set(RightsPassage::SilentBesideOpen);
    let since = Instant::now();
    reader.loses().await?;
    reader.make(&reader.lost, &["hidden"]).await?;
    reader.make(&reader.kept, &["later"]).await?;
    while since.elapsed() < SILENCE_MAX + SLACK {
        let list = reader.list().await?;
        ensure!(!of(&list, &reader.lost).contains("hidden"), "what was made after the loss is shown: {list}");
        sleep(LOOK_INTERVAL).await;
    }
    scene.is_followed_again().await
}
