//! Tests invalid input and faults. The error message must name the cause, and no data may be lost.

use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::pod;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{fs, net::TcpListener, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tributary_e2e::{
    Access, HttpClient, TestCluster, Tools, Tributary, certificates::TestCertificates, guard, kubeconfig, tributary,
};
use tributary_simulator::{RequestKind, Simulator, SimulatorConfig, WriteAnswers};

const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    cases!["faults";
        serve_error_names_an_unknown_context, serve_error_names_a_missing_kubeconfig,
        serve_error_names_a_malformed_kubeconfig, serve_error_names_a_missing_file_of_the_kubeconfig,
        serve_error_names_an_address_in_use, personal_mode_refuses_a_public_address, serve_refuses_an_unknown_flag,
        serve_refuses_two_contexts_of_one_cluster, unreachable_member_at_start_leaves_other_members_served,
        member_with_an_untrusted_certificate_leaves_other_members_served,
        member_with_a_wrong_token_leaves_other_members_served, failing_exec_plugin_leaves_other_members_served,
        exec_plugin_provides_the_token_of_a_member, watch_survives_a_killed_and_restarted_member,
        frozen_member_leaves_the_other_member_writable, client_that_reads_no_watch_events_is_disconnected,
        open_watch_sends_the_objects_of_a_cluster_that_joins_and_leaves, malformed_requests_do_not_stop_the_server,
        request_without_credentials_is_refused, sigterm_ends_watches_and_the_process_cleanly,
        single_connection_carries_300_watches, k9s_view_requests_succeed_while_a_member_is_down,
        kubectl_explains_the_kinds_of_a_member_that_is_down, request_to_a_dead_member_is_refused_at_once,
        kubectl_does_not_repeat_a_write_with_a_broken_answer,
    ]
}

/// Writes a kubeconfig with the shared members and these additional invalid entries.
async fn kubeconfig_with(
    context: &TestContext,
    more: &[kubeconfig::ContextParts],
) -> anyhow::Result<(tempfile::TempDir, PathBuf)> {
    let folder = guard::temporary_folder("fault")?;
    let path = folder.path().join("kubeconfig");
    let [one, _] = context.fixture.pair().await?;
    let mut entries = vec![one.access().entries()];
    entries.extend_from_slice(more);
    kubeconfig::write_entries(&path, &entries)?;
    Ok((folder, path))
}

/// Runs `serve` with invalid flags, and checks that the process fails. Returns its standard error.
async fn serve_fails(arguments: &[&str]) -> anyhow::Result<String> {
    let output = tributary::run(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat()).await?;
    ensure!(output.code.is_some(), "ended by a signal: {output:?}");
    let text = output.failure()?;
    ensure!(!text.contains("panicked"), "{text}");
    Ok(text)
}

fn text_of(path: &std::path::Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).context("a path is not UTF-8")
}

async fn serve_error_names_an_unknown_context(context: TestContext) -> anyhow::Result<()> {
    let (_folder, path) = kubeconfig_with(&context, &[]).await?;
    let text = serve_fails(&["--kubeconfig", &text_of(&path)?, "--contexts", "member1,nowhere"]).await?;
    ensure!(text.contains("nowhere") && text.contains("member1"), "{text}");
    Ok(())
}

async fn serve_error_names_a_missing_kubeconfig(_: TestContext) -> anyhow::Result<()> {
    let text = serve_fails(&["--kubeconfig", "/there/is/none", "--contexts", "a"]).await?;
    ensure!(text.contains("/there/is/none"), "{text}");
    Ok(())
}

async fn serve_error_names_a_malformed_kubeconfig(_: TestContext) -> anyhow::Result<()> {
    let folder = guard::temporary_folder("fault")?;
    let path = folder.path().join("broken.kubeconfig");
    fs::write(&path, "clusters: [name: {").context("write")?;
    let text = serve_fails(&["--kubeconfig", &text_of(&path)?, "--contexts", "a"]).await?;
    ensure!(text.contains("broken.kubeconfig"), "{text}");
    Ok(())
}

/// Runs `serve` with `member1` and a broken context. Tributary must serve `member1`, and the log must name the broken
/// context once, with this reason.
async fn serves_the_rest(context: &TestContext, broken: kubeconfig::ContextParts, reason: &str) -> anyhow::Result<()> {
    let name = broken.name.clone();
    let (_folder, path) = kubeconfig_with(context, &[broken]).await?;
    let tributary = Tributary::builder(&path, ["member1", &name]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;
    let answer = http.get("/api/v1/nodes").send().await?.expect(200)?;
    ensure!(answer.text().contains("member1-node-0"), "{}", answer.text());
    let warnings: Vec<&str> =
        answer.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).collect();
    ensure!(warnings.iter().any(|warning| warning.starts_with("299 ") && warning.contains(&name)), "{warnings:?}");
    // Tributary must not answer 404, because the unreachable cluster may have a node with this name.
    let answer = http.get("/api/v1/nodes/somewhere").send().await?;
    ensure!(answer.status == 503 && answer.text().contains(&name), "{}: {}", answer.status, answer.text());
    let health = http.get("/readyz?verbose").send().await?.text();
    ensure!(health.lines().any(|line| line.contains(&name)), "{health}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let log = tributary.log();
    let named = log.lines().filter(|line| line.contains(&name) && line.contains(reason)).count();
    ensure!((1..=3).contains(&named), "{named} lines of the log name {name} and {reason:?}:\n{log}");
    Ok(())
}

async fn unreachable_member_at_start_leaves_other_members_served(context: TestContext) -> anyhow::Result<()> {
    let port = tributary_e2e::ports::free_port()?;
    let mut entries = context.fixture.bare().await?.access().entries();
    entries.name = "gone".to_owned();
    entries.cluster["server"] = json!(format!("https://127.0.0.1:{port}"));
    serves_the_rest(&context, entries, "").await
}

async fn member_with_an_untrusted_certificate_leaves_other_members_served(context: TestContext) -> anyhow::Result<()> {
    let access = context.fixture.bare().await?.access();
    let other = TestCertificates::generate("another")?.authority;
    let entries = Access { name: "untrusted".to_owned(), certificate_authority: other, ..access }.entries();
    serves_the_rest(&context, entries, "ertificate").await
}

async fn member_with_a_wrong_token_leaves_other_members_served(context: TestContext) -> anyhow::Result<()> {
    let access = context.fixture.bare().await?.access();
    let entries = Access { name: "unknown-user".to_owned(), token: "wrong".to_owned(), ..access }.entries();
    serves_the_rest(&context, entries, "401").await
}

fn exec_plugin(name: &str, access: &Access, script: &str) -> kubeconfig::ContextParts {
    let mut entries = access.entries();
    entries.name = name.to_owned();
    entries.user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never",
    }});
    entries
}

async fn failing_exec_plugin_leaves_other_members_served(context: TestContext) -> anyhow::Result<()> {
    let access = context.fixture.bare().await?.access();
    serves_the_rest(&context, exec_plugin("plugged", &access, "echo no luck >&2; exit 7"), "").await
}

async fn exec_plugin_provides_the_token_of_a_member(context: TestContext) -> anyhow::Result<()> {
    let access = context.fixture.bare().await?.access();
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": access.token},
    });
    let (_folder, path) =
        kubeconfig_with(&context, &[exec_plugin("plugged", &access, &format!("echo '{credential}'"))]).await?;
    let tributary = Tributary::builder(&path, ["member1", "plugged"]).start().await?;
    let http = tributary.http().await?;
    eventually(SOON, async || {
        let list = http.get("/api/v1/namespaces").send().await?.expect(200)?.json()?;
        let clusters: Vec<&Value> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| &item["metadata"]["annotations"]["tributary.dev/cluster"])
            .collect();
        ensure!(clusters.contains(&&json!("plugged")) && clusters.contains(&&json!("member1")), "{clusters:?}");
        Ok(())
    })
    .await
}

async fn serve_error_names_a_missing_file_of_the_kubeconfig(context: TestContext) -> anyhow::Result<()> {
    let mut entries = context.fixture.bare().await?.access().entries();
    entries.name = "fileless".to_owned();
    entries.user = json!({"client-certificate": "/there/is/none.crt", "client-key": "/there/is/none.key"});
    let (_folder, path) = kubeconfig_with(&context, &[entries]).await?;
    // `serve` may refuse to start, or may serve without the cluster. In both cases the error must name the file.
    let start = Tributary::builder(&path, ["member1", "fileless"]).start().await;
    let text = match start {
        Ok(tributary) => {
            tributary.http().await?.get("/api/v1/nodes").send().await?.expect(200)?;
            tributary.log()
        }
        Err(error) => format!("{error:#}"),
    };
    ensure!(text.contains("none.crt"), "{text}");
    Ok(())
}

async fn serve_error_names_an_address_in_use(context: TestContext) -> anyhow::Result<()> {
    let (_folder, path) = kubeconfig_with(&context, &[]).await?;
    let taken = TcpListener::bind("127.0.0.1:0").context("bind")?;
    let address = taken.local_addr().context("address")?.to_string();
    let arguments = ["serve", "--kubeconfig", &text_of(&path)?, "--contexts", "member1", "--listen", &address];
    let text = tributary::run(&arguments).await?.failure()?;
    ensure!(text.contains(&address) && !text.contains("panicked"), "{text}");
    Ok(())
}

async fn personal_mode_refuses_a_public_address(context: TestContext) -> anyhow::Result<()> {
    let (_folder, path) = kubeconfig_with(&context, &[]).await?;
    let arguments = ["serve", "--kubeconfig", &text_of(&path)?, "--contexts", "member1", "--listen", "0.0.0.0:0"];
    let text = tributary::run(&arguments).await?.failure()?;
    ensure!(text.contains("0.0.0.0"), "{text}");
    Ok(())
}

async fn serve_refuses_an_unknown_flag(_: TestContext) -> anyhow::Result<()> {
    let output = tributary::run(&["serve", "--nonsense"]).await?;
    ensure!(output.code == Some(2) && output.stderr.contains("--nonsense"), "{output:?}");
    Ok(())
}

async fn serve_refuses_two_contexts_of_one_cluster(context: TestContext) -> anyhow::Result<()> {
    let mut twin = context.fixture.pair().await?[0].access();
    twin.name = "twin".to_owned();
    let (_folder, path) = kubeconfig_with(&context, &[twin.entries()]).await?;
    let text = serve_fails(&["--kubeconfig", &text_of(&path)?, "--contexts", "member1,twin"]).await?;
    ensure!(text.contains("member1") && text.contains("twin"), "{text}");
    Ok(())
}

/// Member that this test may harm (the victim), `member2`, Tributary over both, and a namespace in each.
struct Own {
    victim: Arc<TestCluster>,
    other: Arc<TestCluster>,
    /// Held so that the process runs until the end, and its log can be printed after a failure.
    tributary: Arc<Tributary>,
    http: HttpClient,
    namespace: String,
}

impl Own {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let (victim, other, tributary) = context.fixture.over_a_victim().await?;
        let namespace = context.namespace("fault", &[Arc::clone(&victim), Arc::clone(&other)]).await?;
        let http = tributary.http().await?;
        Ok(Self { victim, other, tributary, http, namespace })
    }

    fn maps(&self, query: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps{query}", self.namespace)
    }

    async fn create(&self, member: &TestCluster, name: &str) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        member.http().post(&self.maps(""), &object).send().await?.expect(201)?;
        Ok(())
    }

    async fn names(&self) -> anyhow::Result<Vec<String>> {
        let list = self.http.get(&self.maps("")).send().await?.expect(200)?.json()?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect())
    }

    async fn warnings(&self) -> anyhow::Result<Vec<String>> {
        let answer = self.http.get(&self.maps("")).send().await?.expect(200)?;
        let texts = answer.headers.get_all("warning").iter();
        Ok(texts.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect())
    }

    /// Waits for a Warning, and compares the age in the Warning with the time since the victim was frozen. The age may
    /// be up to 5 s too large, because Tributary probes clusters every 5 s.
    async fn age_is_true(&self, frozen: Instant) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let least = frozen.elapsed().as_secs();
            let warnings = self.warnings().await?;
            let age = warnings.iter().find_map(|text| text.split_once("last updated ")?.1.split_once(" s ago"));
            let age: u64 = age.with_context(|| format!("no age in {warnings:?}"))?.0.parse()?;
            let most = frozen.elapsed().as_secs() + 6;
            ensure!((least..=most).contains(&age), "an age of {age} s, {least} to {most} s after it was frozen");
            Ok(())
        })
        .await
    }

    async fn names_are(&self, expected: &[&str]) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let mut names = self.names().await?;
            names.sort();
            ensure!(names == expected, "{names:?} instead of {expected:?}");
            Ok(())
        })
        .await
    }
}

/// An open watch must survive the restart of a member without false DELETED events, and must then have the final state.
async fn watch_survives_a_killed_and_restarted_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Own::start(&context).await?;
    own.create(&own.victim, "kept").await?;
    own.create(&own.victim, "doomed").await?;
    own.create(&own.other, "elsewhere").await?;
    own.names_are(&["doomed", "elsewhere", "kept"]).await?;
    let list = own.http.get(&own.maps("")).send().await?.expect(200)?.json()?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let mut stream = own.http.watch(&own.maps(&format!("?watch=true&resourceVersion={version}"))).await?;

    own.victim.kill9().await?;
    // Tributary must still serve the last objects that it received from the victim, with a Warning that they are stale.
    tokio::time::sleep(Duration::from_secs(1)).await;
    own.create(&own.other, "meanwhile").await?;
    own.names_are(&["doomed", "elsewhere", "kept", "meanwhile"]).await?;
    eventually(SOON, async || {
        let answer = own.http.get(&own.maps("")).send().await?.expect(200)?;
        ensure!(answer.header("warning").contains("victim"), "no warning: {:?}", answer.headers);
        Ok(())
    })
    .await?;

    own.victim.start_again().await?;
    let path = own.maps("/doomed");
    own.victim.http().delete(&path).send().await?.expect(200)?;
    own.create(&own.victim, "after").await?;
    own.names_are(&["after", "elsewhere", "kept", "meanwhile"]).await?;
    let mut shown = Vec::new();
    while shown.len() < 3 {
        let event = stream.expect(SOON).await?;
        if event["type"] != "BOOKMARK" {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            shown.push((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
        }
    }
    shown.sort();
    let expected = [("ADDED", "after"), ("ADDED", "meanwhile"), ("DELETED", "doomed")];
    ensure!(shown == expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())), "{shown:?}");
    let (more, ended) = stream.drain(Duration::from_secs(1)).await?;
    ensure!(!ended && more.iter().all(|event| event["type"] == "BOOKMARK"), "{more:?}");
    Ok(())
}

/// Sends the requests of k9s before it shows a view: an access review, a list as a Table, and a watch.
async fn k9s_view_requests_succeed_while_a_member_is_down(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Own::start(&context).await?;
    own.create(&own.victim, "kept").await?;
    own.names_are(&["kept"]).await?;
    own.victim.kill9().await?;
    let kubectl = own.tributary.kubectl(context.fixture.tools().await?)?;
    eventually(SOON, async || {
        let output = kubectl.run(&["-n", &own.namespace, "auth", "can-i", "list", "configmaps"]).await?;
        ensure!(output.stdout.trim() == "yes" && output.stderr.contains("omits cluster victim"), "{output:?}");
        Ok(())
    })
    .await?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": own.namespace, "verb": "list", "resource": "configmaps"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = own.http.post(path, &review).send().await?.expect(201)?.json()?;
    let status = &review["status"];
    ensure!(
        status["allowed"] == true && status["evaluationError"].as_str().unwrap_or_default().contains("victim"),
        "{review}"
    );
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    eventually(SOON, async || {
        let answer = own.http.get(&own.maps("")).header("accept", accept).send().await?.expect(200)?;
        ensure!(answer.header("warning").contains("victim"), "no warning: {:?}", answer.headers);
        Ok(())
    })
    .await?;
    let table = own.http.get(&own.maps("")).header("accept", accept).send().await?.expect(200)?.json()?;
    ensure!(table["rows"][0]["object"]["metadata"]["name"] == "kept", "{table}");
    let version = table["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut stream = own.http.watch(&own.maps(&format!("?watch=true&resourceVersion={version}"))).await?;
    own.create(&own.other, "meanwhile").await?;
    let event = stream.expect(SOON).await?;
    ensure!(event["object"]["metadata"]["name"] == "meanwhile", "{event}");
    // Tributary must refuse the deletion of the collection, because it would reach only one cluster.
    let refused = own.http.delete(&own.maps("")).send().await?.expect(503)?.text();
    ensure!(refused.contains("victim (for "), "{refused}");
    own.names_are(&["kept", "meanwhile"]).await
}

/// Runs `kubectl explain` and `kubectl get` for a kind that only a killed member serves. Tributary stores the kind's
/// OpenAPI documents also over a restart, and reads them again when the member is back.
async fn kubectl_explains_the_kinds_of_a_member_that_is_down(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let victim = TestCluster::builder("victim").start(context.fixture.tools().await?).await?;
    let folder = guard::temporary_folder("last-heard")?;
    let path = folder.path().join("both.kubeconfig");
    kubeconfig::write(&path, &[&victim.access(), &context.fixture.pair().await?[1].access()])?;
    let start = async || Tributary::builder(&path, ["victim", "member2"]).folder(folder.path()).start().await;
    let tools = context.fixture.tools().await?;
    let explained = async |tributary: &Tributary| {
        let text = tributary.kubectl(tools)?.ok(&["explain", "lonelies.spec"]).await?;
        ensure!(text.contains("How large it is."), "{text}");
        Ok(())
    };
    let listed = async |tributary: &Tributary| tributary.kubectl(tools)?.run(&["get", "lonelies", "-A"]).await;

    let (definition, created) = lonely();
    victim.http().post(DEFINITIONS, &definition).send().await?.expect(201)?;
    let objects = "/apis/faults.example.com/v1/namespaces/default/lonelies";
    eventually(SOON, async || victim.http().post(objects, &created).send().await?.expect(201).map(drop)).await?;
    let tributary = start().await?;
    eventually(SOON, async || explained(&tributary).await).await?;
    ensure!(listed(&tributary).await?.success()?.contains("the-one"), "the object is not listed");
    victim.kill9().await?;
    eventually(SOON, async || {
        tributary.http().await?.get("/readyz/cluster/victim").send().await?.expect(500).map(drop)
    })
    .await?;
    explained(&tributary).await?;
    tributary.stop().await?;

    let tributary = context.fixture.watch_log(start().await?).await;
    explained(&tributary).await?;
    let found = listed(&tributary).await?;
    let warned = found.stderr.contains("Warning: cluster victim: lonelies.faults.example.com are missing");
    ensure!(found.code == Some(0) && warned && !found.stdout.contains("the-one"), "{found:?}");
    // Tributary does not have the objects of the kind. It must answer 503, because clients treat a 404 as a deletion.
    let http = tributary.http().await?;
    http.get(&format!("{objects}/the-one")).send().await?.expect(503)?;

    victim.start_again().await?;
    eventually(SOON, async || {
        let text = listed(&tributary).await?.success()?;
        ensure!(text.contains("the-one"), "{text}");
        Ok(())
    })
    .await?;
    victim.http().delete(&format!("{DEFINITIONS}/lonelies.faults.example.com")).send().await?.expect(200)?;
    eventually(SOON, async || http.get(objects).send().await?.expect(404).map(drop)).await
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns a CustomResourceDefinition and an object of its kind.
fn lonely() -> (Value, Value) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "description": "How large it is."}}},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lonelies.faults.example.com"},
        "spec": {
            "group": "faults.example.com", "scope": "Namespaced",
            "names": {"plural": "lonelies", "singular": "lonely", "kind": "Lonely", "listKind": "LonelyList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let object =
        json!({"apiVersion": "faults.example.com/v1", "kind": "Lonely", "metadata": {"name": "the-one"}, "spec": {}});
    (definition, object)
}

/// The refusal must name the member. It must not have a Retry-After header, because then kubectl would repeat the
/// request ten times.
async fn request_to_a_dead_member_is_refused_at_once(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Own::start(&context).await?;
    own.create(&own.victim, "theirs").await?;
    own.names_are(&["theirs"]).await?;
    own.victim.kill9().await?;
    let kubectl = own.tributary.kubectl(context.fixture.tools().await?)?;
    for arguments in [
        &["--context", "victim", "logs", "some"][..],
        &["--context", "victim", "get", "pods"],
        &["label", "configmap", "theirs", "a=b"],
    ] {
        let refused = kubectl.run(&[&["-n", &own.namespace], arguments].concat()).await?.failure()?;
        ensure!(refused.contains("victim"), "{arguments:?}: {refused}");
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    for root in ["", "/clusters/victim"] {
        let path = format!("{root}{}", own.maps("/theirs"));
        let refused = own.http.patch(&path, "merge-patch+json", &label).send().await?.expect(503)?;
        ensure!(refused.header("retry-after").is_empty() && refused.text().contains("victim"), "{}", refused.text());
    }
    Ok(())
}

/// The frozen member keeps its connections open but sends nothing.
async fn frozen_member_leaves_the_other_member_writable(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Own::start(&context).await?;
    own.create(&own.victim, "frozen").await?;
    own.create(&own.other, "other").await?;
    own.names_are(&["frozen", "other"]).await?;
    let pods = format!("/api/v1/namespaces/{}/pods", own.namespace);
    own.victim.http().post(&pods, &pod("shell", "victim-node-0")).send().await?.expect(201)?;
    eventually(SOON, async || own.http.get(&format!("{pods}/shell")).send().await?.expect(200).map(drop)).await?;
    let mut stream =
        own.http.watch(&own.maps("?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")).await?;
    own.victim.freeze().await?;
    let frozen = Instant::now();
    let check = async {
        own.create(&own.other, "later").await?;
        let event = stream.expect(SOON).await?;
        ensure!(event["object"]["metadata"]["name"] == "later", "{event}");
        // This limit is shorter than the timeout of requests to the frozen member, but long enough for a busy machine.
        let quick = Duration::from_secs(20);
        for path in [own.maps("/other"), own.maps("/frozen"), own.maps("")] {
            let answer = tokio::time::timeout(quick, own.http.get(&path).send()).await;
            answer.with_context(|| format!("{path} takes more than {quick:?}"))??.expect(200)?;
        }
        let patch = json!({"data": {"a": "b"}});
        let request = own.http.patch(&own.maps("/other"), "merge-patch+json", &patch).send();
        tokio::time::timeout(quick, request).await.context("a write to the other is stuck")??.expect(200)?;
        own.age_is_true(frozen).await?;
        exec_into_a_silent_cluster_is_refused(&own, context.fixture.tools().await?).await
    }
    .await;
    own.victim.thaw().await?;
    check?;
    own.create(&own.victim, "thawed").await?;
    own.names_are(&["frozen", "later", "other", "thawed"]).await?;
    eventually(SOON, async || {
        let warnings = own.warnings().await?;
        ensure!(warnings.is_empty(), "it is well, but {warnings:?}");
        Ok(())
    })
    .await
}

/// Tributary answers kubectl's get of the pod from its cache. Tributary must then refuse the exec request at once, and
/// must not wait for the silent cluster.
async fn exec_into_a_silent_cluster_is_refused(own: &Own, tools: &Tools) -> anyhow::Result<()> {
    let kubectl = own.tributary.kubectl(tools)?;
    let file = kubectl.file("copied", "text")?;
    for arguments in [&["exec", "shell", "--", "true"][..], &["cp", &file, "shell:/tmp/copied"]] {
        let begun = Instant::now();
        let refused = kubectl.run(&[&["-n", &own.namespace], arguments].concat()).await?.failure()?;
        ensure!(refused.contains("victim"), "{arguments:?}: {refused}");
        ensure!(begun.elapsed() < Duration::from_secs(5), "{arguments:?} took {:?}", begun.elapsed());
    }
    Ok(())
}

/// Adds a cluster to the kubeconfig and later removes it. An open watch must report the cluster's objects, and then
/// their deletion.
async fn open_watch_sends_the_objects_of_a_cluster_that_joins_and_leaves(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.to_vec();
    let namespace = context.namespace("fault", &members).await?;
    let (_folder, path) = kubeconfig_with(&context, &[]).await?;
    let tributary = Tributary::builder(&path, ["/.*/"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for member in &members {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("of-{}", member.name())}});
        member.http().post(&maps, &object).send().await?.expect(201)?;
    }
    let mut stream = http.watch(&format!("{maps}?watch=true")).await?;
    let next = async |stream: &mut tributary_e2e::EventStream| {
        let event = stream.expect(SOON).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        anyhow::Ok((text(&event["type"]), text(&event["object"]["metadata"]["name"])))
    };
    ensure!(next(&mut stream).await? == ("ADDED".to_owned(), "of-member1".to_owned()), "not the first member's");
    let both: Vec<kubeconfig::ContextParts> = members.iter().map(|member| member.access().entries()).collect();
    kubeconfig::write_entries(&path, &both)?;
    ensure!(next(&mut stream).await? == ("ADDED".to_owned(), "of-member2".to_owned()), "not the second member's");
    kubeconfig::write_entries(&path, &both[..1])?;
    ensure!(next(&mut stream).await? == ("DELETED".to_owned(), "of-member2".to_owned()), "not its deletion");
    let list = http.get(&maps).send().await?.expect(200)?;
    ensure!(!list.text().contains("of-member2"), "{}", list.text());
    Ok(())
}

/// The client opens a watch and does not read its events. The server must close the connection, and must not delay
/// other clients.
async fn client_that_reads_no_watch_events_is_disconnected(context: TestContext) -> anyhow::Result<()> {
    let tributary = context.fixture.over_two().await?;
    let members = context.fixture.pair().await?.to_vec();
    let namespace = context.namespace("fault", &members).await?;
    let http = tributary.http().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"text": "x".repeat(200_000)},
    });
    http.post(&path, &object).send().await?.expect(201)?;
    let watch = format!("{path}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    // The streams of one HTTP/2 connection share a window, so the stalled client has a separate connection.
    let stalled_client = tributary.http().await?;
    let stalled = stalled_client.get(&watch).stream().await?;
    let mut reading = http.watch(&watch).await?;
    for step in 0..60 {
        let step = step.to_string();
        let patch = json!({"data": {"step": step}});
        http.patch(&format!("{path}/large"), "merge-patch+json", &patch).send().await?.expect(200)?;
        let event = reading.expect(SOON).await?;
        ensure!(event["object"]["data"]["step"] == step, "another event");
    }
    drop(stalled);
    Ok(())
}

/// Sends bytes that are not HTTP, and invalid requests. The server must answer or close the connection, and must
/// continue to run.
async fn malformed_requests_do_not_stop_the_server(context: TestContext) -> anyhow::Result<()> {
    let tributary = context.fixture.over_two().await?;
    let http = tributary.http().await?;
    let address = http.origin().trim_start_matches("https://").to_owned();
    let garbage: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xff nonsense", &[0; 4096], b"\r\n\r\n"];
    for bytes in garbage {
        let mut connection = TcpStream::connect(&address).await.context("connect")?;
        connection.write_all(bytes).await.context("write")?;
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(SOON, connection.read_to_end(&mut answer)).await;
        ensure!(closed.is_ok(), "the connection stays open after {} bytes of garbage", bytes.len());
    }
    for (path, code) in [
        ("/api/v1/configmaps?labelSelector=%zz", 400),
        ("/api/v1/configmaps?timeoutSeconds=soon", 400),
        ("/api/v1/namespaces/%ff/configmaps/x", 400),
    ] {
        let answer = http.get(path).send().await?;
        ensure!(answer.status.is_client_error(), "{path}: {} where about {code} was due", answer.status);
        ensure!(answer.json()?["kind"] == "Status", "{path}: {}", answer.text());
    }
    let long = format!("/api/v1/configmaps?labelSelector={}", "a".repeat(40_000));
    let answer = http.get(&long).send().await?;
    ensure!(answer.status.is_client_error(), "{}", answer.status);
    http.get("/readyz").send().await?.expect(200)?;
    Ok(())
}

async fn request_without_credentials_is_refused(context: TestContext) -> anyhow::Result<()> {
    let tributary = context.fixture.over_two().await?;
    // This client trusts the serving certificate but sends no credential.
    let document = fs::read_to_string(tributary.kubeconfig()).context("read the kubeconfig")?;
    ensure!(document.contains("certificate-authority-data"), "the kubeconfig trusts anybody");
    let config = kubeconfig::config(tributary.kubeconfig(), None).await?;
    let authority = config.root_cert.context("no authority")?;
    let pem: String = authority.iter().map(|der| pem_of(der)).collect();
    let access = Access {
        name: "stranger".to_owned(),
        server: tributary.http().await?.origin().to_owned(),
        certificate_authority: pem,
        token: "wrong".to_owned(),
    };
    for path in ["/api/v1/secrets", "/clusters/member1/api/v1/secrets", "/apis"] {
        for has_token in [true, false] {
            // Each request uses a new connection. The server closes an unauthenticated connection after its answer, so
            // a second request on the connection could fail.
            let stranger = HttpClient::from_access(&access).await?;
            let stranger = if has_token { stranger } else { stranger.anonymous() };
            let answer = stranger.get(path).send().await?;
            ensure!(answer.status == 401, "{path}: {} to a stranger", answer.status);
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(tributary.kubeconfig()).context("look at the kubeconfig")?.permissions().mode();
        ensure!(mode & 0o777 == 0o600, "the kubeconfig's mode is {:o}", mode & 0o777);
    }
    Ok(())
}

fn pem_of(der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|start| &text[start..text.len().min(start + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// Watches must end with EOF, after a last bookmark for clients that requested bookmarks. The process must exit with 0.
async fn sigterm_ends_watches_and_the_process_cleanly(context: TestContext) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let tributary = Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await?;
    let http = tributary.http().await?;
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut stream = http.watch(&format!("/api/v1/nodes?{query}")).await?;
    while !stream.expect(SOON).await?["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_string() {}
    let stopping = tokio::spawn(tributary.stop());
    let (_, ended) = stream.drain(SOON).await?;
    ensure!(ended, "the watch did not end");
    let status = stopping.await.context("join")??;
    ensure!(status.code() == Some(0), "ended with {status}");
    Ok(())
}

/// One connection must carry 300 watches. A kube-apiserver allows fewer streams per connection.
async fn single_connection_carries_300_watches(context: TestContext) -> anyhow::Result<()> {
    let tributary = context.fixture.over_two().await?;
    let members = context.fixture.pair().await?.to_vec();
    let namespace = context.namespace("fault", &members).await?;
    let http = tributary.http().await?;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut streams = Vec::new();
    for _ in 0..300 {
        let watch = format!("{path}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
        streams.push(http.watch(&watch).await?);
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    members[1].http().post(&path, &object).send().await?.expect(201)?;
    for stream in &mut streams {
        let event = stream.expect(SOON).await?;
        ensure!(event["object"]["metadata"]["name"] == "one", "{event}");
    }
    Ok(())
}

/// client-go repeats a request if the answer has Retry-After, or if the connection breaks before the answer. Here the
/// answer itself breaks off. The member is simulated, because a real member cannot break off an answer on demand.
async fn kubectl_does_not_repeat_a_write_with_a_broken_answer(context: TestContext) -> anyhow::Result<()> {
    let config =
        SimulatorConfig { name: "breaking".to_owned(), pods: 0, namespaces: 1, nodes: 1, ..SimulatorConfig::default() };
    let member = Simulator::start(config).await.context("start a simulated member")?;
    let access = Access {
        name: member.name().to_owned(),
        server: member.url(),
        certificate_authority: member.ca_pem().to_owned(),
        token: member.token().to_owned(),
    };
    let folder = guard::temporary_folder("breaking")?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &[&access])?;
    let tributary =
        Tributary::builder(&path, ["breaking"]).argument("--create-in=breaking").start().await.context("start")?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
    let file = kubectl.file("map.json", &map.to_string())?;
    let create = ["create", "--validate=false", "-n", "default", "-f", &file];
    let made = || member.control().requests_of(RequestKind::Write, "configmaps");
    for arguments in [create.to_vec(), [&["--context", "breaking"][..], &create].concat()] {
        let before = made();
        kubectl.ok(&arguments).await?;
        ensure!(made() == before + 1, "{arguments:?}: {} writes where nothing breaks", made() - before);
        for bytes in [0, 20] {
            member.control().answer_writes(WriteAnswers::BrokenAfter(bytes));
            let before = made();
            let text = kubectl.run(&arguments).await?.failure()?;
            ensure!(made() == before + 1, "{arguments:?}: sent {} times: {text}", made() - before);
            ensure!(text.contains("breaking") && text.contains("may have been carried out"), "{text}");
            member.control().answer_writes(WriteAnswers::Whole);
        }
    }
    Ok(())
}
