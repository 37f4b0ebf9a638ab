//! Tests programs that reach members with the address and the credentials of the hub: Helm, the Python client, k9s,
//! client-go informers and a controller-runtime manager.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tributary_e2e::{HttpClient, Kubectl, Process, guard, namespace};

use super::aggregated::{API, Aggregated, MERGED};
use super::{Hub, SOON};
use crate::clients::{Followed, Lists, follow};
use crate::conformance::target::pod;
use crate::context::{Case, TestContext, cases, eventually};
use crate::deployment::balancer::Balancer;
use crate::deployment::rolling::{ReplicaResults, reads};
use crate::helm::chart::Chart;
use crate::k9s::{Opened, VIEWS, next};
use crate::kubectl::Setup;
use crate::shared_mode::{grant, make_config_map};

/// Annotation of the bookmark that ends the initial events of a watch.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Terminal code of Ctrl-C, which ends k9s.
const CONTROL_C: u8 = 3;

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::clients";
        helm_k9s_and_python_work_through_the_hub, k9s_lists_and_follows_pods_through_the_hub,
        informers_follow_members_through_the_hub_despite_goaway_frames,
    ]
}

async fn helm_k9s_and_python_work_through_the_hub(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let _tributary = aggregated.serve(&context).await?;
    let user = aggregated.user_of_all_members().await?;
    aggregated.add_members(&user).await?;
    let login = aggregated.hub.server.people().user(&user, &[])?;
    let place = HelmPlace {
        hub: &aggregated.hub,
        native: aggregated.kubeconfig(&login, &format!("{API}/clusters/us/proxy"))?,
        merged: aggregated.kubeconfig(&login, MERGED)?,
        owner: 1,
    };
    for version in [3, 4] {
        place.check(&context, &format!("web{version}"), version).await.with_context(|| format!("Helm {version}"))?;
    }
    check_k9s(&aggregated, &user).await.context("k9s")?;
    check_python(&context, &aggregated, &user).await.context("the Python client")
}

/// Kubeconfigs of a member's own API and of the merged view.
pub(super) struct HelmPlace<'h> {
    pub(super) hub: &'h Hub,
    pub(super) native: PathBuf,
    pub(super) merged: PathBuf,
    /// The index of the member.
    pub(super) owner: usize,
}

impl HelmPlace<'_> {
    /// Installs a release in the member, and upgrades and uninstalls it in the merged view.
    pub(super) async fn check(&self, context: &TestContext, release: &str, version: u8) -> anyhow::Result<()> {
        let (tools, chart) = (context.fixture.tools().await?, Chart::write()?);
        let namespace = &self.hub.namespace;
        let (native, merged) =
            (Kubectl::helm(tools, version, &self.native)?, Kubectl::helm(tools, version, &self.merged)?);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{release}-map");
        let (owner, other) = (&self.hub.members[self.owner], &self.hub.members[1 - self.owner]);
        for (helm, verb, step) in [(&native, "install", "1"), (&merged, "upgrade", "2")] {
            let values = format!("node={}-node-0,step={step}", owner.name());
            let words = [verb, release, chart.path(), "-n", namespace, "--wait", "--timeout", "60s", "--set", &values];
            helm.ok(&words).await?;
            let map = owner.http().get(&path).send().await?.expect(200)?.json()?;
            ensure!(map["data"]["step"] == step, "{verb}: {map}");
            other.http().get(&path).send().await?.expect(404)?;
            let listed: Value = serde_json::from_str(&helm.ok(&["list", "-n", namespace, "-o", "json"]).await?)?;
            let status = listed.as_array().into_iter().flatten().find(|one| one["name"] == *release);
            ensure!(status.is_some_and(|one| one["status"] == "deployed" && one["revision"] == step), "{listed}");
        }
        merged.ok(&["uninstall", release, "-n", namespace, "--wait", "--timeout", "60s"]).await?;
        owner.http().get(&path).send().await?.expect(404).map(drop)
    }
}

/// Opens the first views of k9s, and follows the events of one view.
async fn check_k9s(aggregated: &Aggregated, user: &str) -> anyhow::Result<()> {
    let (hub, namespace) = (&aggregated.hub, &aggregated.hub.namespace);
    for member in &hub.members {
        let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
        grant(member, "", user, user, all).await?;
    }
    let http = aggregated.http(&hub.server.people().user(user, &[])?, MERGED).await?;
    for (group, resource, is_namespaced) in VIEWS {
        let view = Opened { http: &http, group, resource, namespace: is_namespaced.then_some(namespace.as_str()) };
        eventually(SOON, async || view.open(None).await.map(drop)).await?;
    }
    let view = Opened { http: &http, group: "", resource: "configmaps", namespace: Some(namespace) };
    let (rows, mut stream) = view.open(None).await?;
    ensure!(rows == ["of-member1", "of-member2"], "{rows:?}");
    make_config_map(&hub.members[1], namespace, "new-in-k9s", 1).await?;
    let event = next(&mut stream).await?;
    ensure!(event == ("ADDED".to_owned(), "new-in-k9s".to_owned()), "{event:?}");
    Ok(())
}

/// k9s connects only to the hub. It must show the pods of both members, and a pod that is created later.
async fn k9s_lists_and_follows_pods_through_the_hub(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let _tributary = aggregated.serve(&context).await?;
    let user = aggregated.user_of_all_members().await?;
    aggregated.add_members(&user).await?;
    let hub = &aggregated.hub;
    for (index, name) in ["pod-of-eu", "pod-of-us"].into_iter().enumerate() {
        create_pod(hub, index, name).await?;
    }
    let kubeconfig = aggregated.kubeconfig(&hub.server.people().user(&user, &[])?, MERGED)?;
    follow_pods_with_k9s(&context, hub, kubeconfig, (&["pod-of-eu", "pod-of-us"], 1)).await
}

/// Creates a pod that no kubelet runs.
pub(super) async fn create_pod(hub: &Hub, member: usize, name: &str) -> anyhow::Result<()> {
    let pods = format!("/api/v1/namespaces/{}/pods", hub.namespace);
    hub.members[member].http().post(&pods, &pod(name)).send().await?.expect(201).map(drop)
}

/// Starts k9s, which must show these pods, and a pod that appears later in the member.
pub(super) async fn follow_pods_with_k9s(
    context: &TestContext,
    hub: &Hub,
    kubeconfig: PathBuf,
    (shown, member): (&[&str], usize),
) -> anyhow::Result<()> {
    let home = guard::temporary_folder("k9s")?;
    // Without this setting, k9s looks up its newest release on the internet.
    fs::write(home.path().join("config.yaml"), "k9s:\n  skipLatestRevCheck: true\n")?;
    // k9s needs a terminal. The program `script` provides one, and prints its output.
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--flush", "--return", "/dev/null", "--command"])
        .arg("stty rows 50 cols 200; exec \"$K9S\" --headless --splashless --namespace \"$NAMESPACE\" --command pods")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TERM", "xterm-256color")
        .env("HOME", home.path())
        .env("K9S_CONFIG_DIR", home.path())
        .env("K9S", context.fixture.tools().await?.k9s().await?)
        .env("KUBECONFIG", kubeconfig)
        .env("NAMESPACE", &hub.namespace);
    let (screen, errors) = (home.path().join("screen"), home.path().join("errors"));
    let mut k9s = Process::spawn_with("k9s", command, &screen, &errors, Stdio::piped())?;
    let mut keyboard = k9s.take_input().context("no keyboard")?;
    k9s.wait_for_output(SOON, |screen| shown.iter().all(|name| screen.contains(name))).await?;
    let later = namespace::unique_name("later");
    create_pod(hub, member, &later).await?;
    k9s.wait_for_output(SOON, |screen| screen.contains(&later)).await?;
    keyboard.write_all(&[CONTROL_C])?;
    let status = k9s.wait(SOON).await?;
    ensure!(status.success(), "k9s ended with {status}");
    Ok(())
}

/// Uses a ConfigMap and a pod with the Python client, in the merged view and in one member.
async fn check_python(context: &TestContext, aggregated: &Aggregated, user: &str) -> anyhow::Result<()> {
    let Some(python) = context.fixture.tools().await?.python().await? else {
        println!("without python3, the Python client does not run");
        return Ok(());
    };
    for (path, index, cluster, pod) in
        [(MERGED.to_owned(), 0, "eu", "py-eu"), (format!("{API}/clusters/us/proxy"), 1, "us", "py-us")]
    {
        let login = aggregated.hub.server.people().user(user, &[])?;
        let kubectl = aggregated.kubectl(context, user, &path).await?;
        let (namespace, members) = (aggregated.hub.namespace.clone(), aggregated.hub.members.clone());
        let setup = Setup { kubectl, namespace, members, _tributary: None };
        setup.running_pod(index, pod).await?;
        let mut command = Command::new(&python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/objects.py"));
        command.arg("--kubeconfig").arg(aggregated.kubeconfig(&login, &path)?);
        command.args(["--namespace", &setup.namespace, "--cluster", cluster, "--pod", pod]);
        let text = setup.kubectl.run_with(command, None).await?.success()?;
        let shown: Value = serde_json::from_str(&text)?;
        ensure!(shown["made"] == "1" && shown["changed"] == "2" && shown["watched"] == "MODIFIED", "{shown}");
        ensure!(shown["listed"].as_array().is_some_and(|names| names.contains(&json!("python"))), "{shown}");
        let printed = format!("{}\na b&c=d;e\n", setup.members[index].name());
        ensure!(shown["printed"] == *printed && shown["afterDeletion"] == 404, "{shown}");
    }
    Ok(())
}

/// Watches with initial events. The initial events must have the expected names, and must end with the bookmark.
async fn check_initial_events(http: &HttpClient, namespace: &str, expected: &[&str]) -> anyhow::Result<()> {
    let options = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = http.watch(&format!("/api/v1/namespaces/{namespace}/configmaps?{options}")).await?;
    let mut names = Vec::new();
    let bookmark = loop {
        let event = watch.expect(SOON).await?;
        match event["type"].as_str() {
            Some("ADDED") => names.extend(event["object"]["metadata"]["name"].as_str().map(str::to_owned)),
            _ => break event,
        }
    };
    let annotation = &bookmark["object"]["metadata"]["annotations"][INITIAL_EVENTS_END];
    ensure!(bookmark["type"] == "BOOKMARK" && *annotation == "true", "{bookmark}");
    names.sort();
    ensure!(names == expected, "{names:?}");
    Ok(())
}

/// The hub's kube-apiserver closes its connections many times. At the end each client must have the objects of both
/// members, and no other request may be lost.
async fn informers_follow_members_through_the_hub_despite_goaway_frames(context: TestContext) -> anyhow::Result<()> {
    let _permits = context.fixture.load_on_own_member().await?;
    let aggregated = Aggregated::start(&context).await?;
    let builder = aggregated.builder().argument("--goaway-chance=0.02");
    let _tributary = context.fixture.watch_log(builder.start().await?).await;
    // The balancer counts the connections that the kube-apiserver opens to Tributary.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, aggregated.port));
    let balancer = Balancer::start(vec![(address, aggregated.direct(&json!({})).await?)]).await?;
    aggregated.register_at(balancer.port, Some(&aggregated.authority)).await?;
    let user = aggregated.user_of_all_members().await?;
    aggregated.add_members(&user).await?;
    let (hub, login) = (&aggregated.hub, aggregated.hub.server.people().user(&user, &[])?);
    for (path, expected) in
        [(MERGED.to_owned(), &["of-member1", "of-member2"][..]), (format!("{API}/clusters/us/proxy"), &["of-member2"])]
    {
        check_initial_events(&aggregated.http(&login, &path).await?, &hub.namespace, expected).await?;
    }

    let mut followers = Vec::new();
    for (program, lists) in [("informer", Lists::Streamed), ("informer", Lists::Paged), ("manager", Lists::Streamed)] {
        let namespace = context.namespace("through", &hub.members).await?;
        for member in &hub.members {
            let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
            grant(member, &namespace, &user, &user, all).await?;
        }
        let kubeconfig = aggregated.kubeconfig(&login, MERGED)?;
        followers.push(follow(
            &context,
            Followed { kubeconfig, members: hub.members.to_vec(), namespace },
            program,
            lists,
        ));
    }
    let maps = format!("/api/v1/namespaces/{}/configmaps", hub.namespace);
    let paths = [maps.clone(), format!("{maps}/of-member1"), format!("{maps}/of-member2")];
    let results = Arc::new(ReplicaResults::default());
    let before = balancer.connections(0);
    let load = tokio::spawn(reads(Arc::clone(&results), aggregated.kubeconfig(&login, MERGED)?, paths, false));
    let followed = try_join_all(followers).await;
    results.stop.store(true, Ordering::Relaxed);
    load.await??;
    followed?;
    let (answered, connections) = (results.check_none_is_lost()?, balancer.connections(0) - before);
    println!("{answered} requests through the hub were answered over {connections} connections, none lost");
    ensure!(connections >= 5, "the kube-apiserver of the hub opened only {connections} connections");
    Ok(())
}
