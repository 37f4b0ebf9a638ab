//! A member rejects Tributary's user, or revokes its RBAC rights. Later the member accepts the user again or restores
//! the rights.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{fs, sync::Arc, time::Duration};
use tributary_e2e::{Access, HttpClient, HttpResponse, TestCluster, Tributary, guard, kubeconfig, namespace};
use tributary_simulator::Relay;

/// Longest time until Tributary notices a change of rights. Tributary retries within seconds, but the machine may be
/// busy.
const SOON: Duration = Duration::from_secs(60);

/// Time in which the log must not repeat a line.
const A_WHILE: Duration = Duration::from_secs(10);

/// The name of Tributary's user in the member.
const READER: &str = "reader";

pub(crate) fn cases() -> Vec<Case> {
    cases!["rights";
        member_that_forbids_tributary_is_served_again_after_a_grant,
        member_that_rejects_the_token_is_served_again_after_acceptance,
    ]
    .into_iter()
    .map(|case| case.patience(Duration::from_secs(420)))
    .collect()
}

/// Two members. Tributary connects to the first member (the victim) through a relay, as a separate user. kube-apiserver
/// checks rights only at the start of a watch, so the test cuts the relay to make Tributary open its watches again.
struct Pair {
    victim: TestCluster,
    other: Arc<TestCluster>,
    relay: Relay,
    tributary: Arc<Tributary>,
    http: HttpClient,
    namespace: String,
    token: String,
    _folder: tempfile::TempDir,
}

impl Pair {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let victim = TestCluster::builder("victim").start(context.fixture.tools().await?).await?;
        let other = Arc::clone(&context.fixture.pair().await?[1]);
        let token = format!("{:032x}", rand::random::<u128>());
        let namespace = namespace::unique_name("rights");
        namespace::create(&namespace, &[&victim, &other]).await?;
        let relay = Relay::start(victim.apiserver_port(), 0).await?;
        let server = format!("https://127.0.0.1:{}", relay.port());
        let access = Access { server, token: token.clone(), ..victim.access() };
        let folder = guard::temporary_folder("rights")?;
        let path = folder.path().join("kubeconfig");
        kubeconfig::write(&path, &[&access, &other.access()])?;
        know(&victim, Some(&token)).await?;
        allow(&victim).await?;
        let tributary = Tributary::builder(&path, ["victim", "member2"]).start().await?;
        let tributary = context.fixture.watch_log(tributary).await;
        let http = tributary.http().await?;
        let pair = Self { victim, other, relay, tributary, http, namespace, token, _folder: folder };
        for (member, name) in [(&pair.victim, "kept"), (&pair.victim, "doomed"), (&*pair.other, "elsewhere")] {
            pair.create(member, name).await?;
        }
        pair.shows(&["doomed", "elsewhere", "kept"], "").await?;
        Ok(pair)
    }

    fn maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace)
    }

    async fn create(&self, member: &TestCluster, name: &str) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        member.http().post(&self.maps(), &object).send().await?.expect(201)?;
        Ok(())
    }

    /// Waits until a list has these names, and a Warning about the victim with this reason. If the reason is empty, the
    /// list must have no Warning.
    async fn shows(&self, names: &[&str], reason: &str) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let answer = self.http.get(&self.maps()).send().await?.expect(200)?;
            let mut shown = names_of(&answer)?;
            shown.sort();
            ensure!(shown == names, "{shown:?} instead of {names:?}");
            warns(&answer, reason)
        })
        .await
    }

    /// While the victim refuses requests, Tributary must serve the victim's last objects with a Warning that has this
    /// reason, and the current objects of `member2`.
    async fn serves_the_rest(&self, reason: &str) -> anyhow::Result<()> {
        self.victim.http().delete(&format!("{}/doomed", self.maps())).send().await?.expect(200)?;
        self.create(&self.other, "meanwhile").await?;
        self.shows(&["doomed", "elsewhere", "kept", "meanwhile"], reason).await?;
        // A list of a collection that Tributary has never listed must have a Warning that the victim's part is missing.
        // For a moment, the reason may be a closed connection.
        let never_read = format!("/api/v1/namespaces/{}/endpoints", self.namespace);
        eventually(SOON, async || warns(&self.http.get(&never_read).send().await?.expect(200)?, reason)).await?;
        eventually(SOON, async || {
            let health = self.http.get("/readyz?verbose").send().await?.expect(200)?.text();
            let line = health.lines().find(|line| line.contains("cluster/victim")).context("no line")?.to_owned();
            ensure!(line.starts_with("[-]") && line.contains(reason), "{line}");
            ensure!(health.contains("[+]cluster/member2 ok"), "{health}");
            Ok(())
        })
        .await?;
        // The log has one line per outage of the cluster, with the first reason. This reason may be a closed
        // connection.
        let is_one = |line: &&str| line.contains("victim") && (line.contains(reason) || line.contains("is in trouble"));
        let lines = |log: &str| log.lines().filter(is_one).count();
        let before = lines(&self.tributary.log());
        tokio::time::sleep(A_WHILE).await;
        let log = self.tributary.log();
        let after = lines(&log);
        // The number of lines must not grow. There may be one line for each collection, one for their namespace, one
        // for the cluster, and one each for CustomResourceDefinitions and APIServices.
        ensure!((1..=8).contains(&after) && after == before, "{before} lines, {A_WHILE:?} later {after}:\n{log}");
        Ok(())
    }

    /// When the victim accepts requests again, Tributary must serve its current objects without a Warning.
    async fn recovers(&self) -> anyhow::Result<()> {
        self.create(&self.victim, "after").await?;
        self.shows(&["after", "elsewhere", "kept", "meanwhile"], "").await?;
        eventually(SOON, async || {
            let health = self.http.get("/readyz?verbose").send().await?.expect(200)?.text();
            ensure!(health.contains("[+]cluster/victim ok"), "{health}");
            let answer = self.http.get(&format!("/api/v1/namespaces/{}/endpoints", self.namespace)).send().await?;
            warns(&answer.expect(200)?, "")
        })
        .await
    }
}

fn names_of(answer: &HttpResponse) -> anyhow::Result<Vec<String>> {
    let list = answer.json()?;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(list["items"].as_array().context("no items")?.iter().map(name).collect())
}

/// Checks that a response has a Warning about the victim with this reason, and no other. If the reason is empty, it
/// must have no Warning about the victim. The members' warning that v1 Endpoints are deprecated is ignored.
fn warns(answer: &HttpResponse, reason: &str) -> anyhow::Result<()> {
    let all = answer.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
    let all: Vec<&str> = all.filter(|warning| !warning.contains("is deprecated")).collect();
    match (reason, all.as_slice()) {
        ("", []) => Ok(()),
        ("", warnings) => anyhow::bail!("{warnings:?}"),
        (reason, [warning]) if warning.contains("cluster victim") && warning.contains(reason) => Ok(()),
        (reason, warnings) => anyhow::bail!("{reason:?} was due: {warnings:?}"),
    }
}

const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Grants the user [`READER`] all rights in a member.
async fn allow(member: &TestCluster) -> anyhow::Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": READER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER}],
    });
    member.http().post(BINDING, &binding).send().await?.expect(201).map(drop)
}

/// Sets or removes the token of Tributary's user in the member's token file, and restarts the member.
async fn know(member: &TestCluster, token: Option<&str>) -> anyhow::Result<()> {
    let path = member.folder().join("tokens.csv");
    let text = fs::read_to_string(&path).context("read the token file")?;
    let mut lines: Vec<String> = text.lines().filter(|line| !line.contains(READER)).map(str::to_owned).collect();
    lines.extend(token.map(|token| format!("{token},{READER},{READER}")));
    fs::write(&path, lines.join("\n") + "\n").context("write the token file")?;
    member.kill_apiserver().await?;
    member.start_again().await
}

async fn member_that_forbids_tributary_is_served_again_after_a_grant(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let pair = Pair::start(&context).await?;
    pair.victim.http().delete(&format!("{BINDING}/{READER}")).send().await?.expect(200)?;
    pair.relay.cut();
    pair.serves_the_rest("forbidden").await?;
    allow(&pair.victim).await?;
    pair.recovers().await
}

async fn member_that_rejects_the_token_is_served_again_after_acceptance(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let pair = Pair::start(&context).await?;
    know(&pair.victim, None).await?;
    pair.serves_the_rest("401").await?;
    know(&pair.victim, Some(&pair.token)).await?;
    pair.recovers().await
}
