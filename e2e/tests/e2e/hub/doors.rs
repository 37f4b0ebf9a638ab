//! The doors of foreign systems with real programs, and changes of sources while their members are in use.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tributary_e2e::{EventStream, Kubectl, MetricsServer, TestCluster, Tributary};

use super::aggregated::{Aggregated, MERGED};
use super::clients::{HelmPlace, create_pod, follow_pods_with_k9s};
use super::cluster_gateway::{self, GATEWAYS, VELA};
use super::karmada::{self, CLUSTERS, USERS, kubeconfig_at_address};
use super::sources::SOURCES;
use super::{Hub, SOON};
use crate::clients::{of_a_member, same_outcomes, typed};
use crate::context::{Case, TestContext, cases, eventually};
use crate::deployment::rolling::{ReplicaResults, reads};
use crate::shared_mode::{grant, make_config_map};

/// The name of the first member in cluster-gateway.
const EU: &str = "eu";

/// The name of the second member in Karmada.
const US: &str = "us";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::doors";
        helm_and_k9s_work_at_the_doors_of_one_member,
        client_go_with_the_paths_of_cluster_gateway_has_the_results_of_a_member,
        kubectl_as_karmadactl_uses_it_shows_metrics_of_a_member,
        sources_come_and_go_while_other_members_are_used,
    ]
}

/// Tributary with the doors of cluster-gateway and Karmada. Each system has a different member.
struct Doors {
    aggregated: Aggregated,
    /// A login of the hub that may use all doors.
    login: Value,
    user: String,
    _tributary: Arc<Tributary>,
}

impl Doors {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let aggregated = Aggregated::start(context).await?;
        let hub = &aggregated.hub;
        hub.create_namespace(VELA).await?;
        karmada::define_clusters(&hub.server).await?;
        let user = aggregated.user_of_all_members().await?;
        let rules = json!([
            {"apiGroups": ["cluster.core.oam.dev"], "resources": ["clustergateways/proxy"], "verbs": ["*"]},
            {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters", "clusters/proxy"], "verbs": ["*"]},
            {"apiGroups": ["search.karmada.io"], "resources": ["proxying/proxy"], "verbs": ["*"]},
        ]);
        grant(&hub.server, "", &format!("{user}-doors"), &user, rules).await?;
        let access = hub.members[0].access();
        let data: [(&str, &str); 3] =
            [("endpoint", &access.server), ("ca.crt", &access.certificate_authority), ("token", &access.token)];
        cluster_gateway::join(&hub.server, EU, "ServiceAccountToken", &data).await?;
        karmada::join(&aggregated, US, &hub.members[1], &user).await?;
        hub.create_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": VELA}})).await?;
        hub.create_source("karmada", json!({"karmadaClusters": {}})).await?;
        let builder = aggregated.builder().arguments(["--door=cluster-gateway", "--door=karmada"]);
        let tributary = context.fixture.watch_log(builder.start().await?).await;
        let login = hub.server.people().user(&user, &[USERS])?;
        let doors = Self { aggregated, login, user, _tributary: tributary };
        for path in [doors.of_gateway(), doors.of_karmada()] {
            let http = doors.aggregated.direct(&doors.login).await?;
            let maps = format!("{path}/api/v1/namespaces/{}/configmaps", doors.aggregated.hub.namespace);
            eventually(SOON, async || http.get(&maps).send().await?.expect(200).map(drop)).await?;
        }
        Ok(doors)
    }

    fn of_gateway(&self) -> String {
        format!("{GATEWAYS}/{EU}/proxy")
    }

    fn of_karmada(&self) -> String {
        format!("{CLUSTERS}/{US}/proxy")
    }

    fn kubeconfig(&self, path: &str) -> anyhow::Result<PathBuf> {
        kubeconfig_at_address(&self.aggregated, &self.login, path)
    }
}

async fn helm_and_k9s_work_at_the_doors_of_one_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let doors = Doors::start(&context).await?;
    let hub = &doors.aggregated.hub;
    for (owner, path) in [(0, doors.of_gateway()), (1, doors.of_karmada())] {
        // At the search proxy, Karmada's control plane has the Secrets of releases, unless a registry names Secrets.
        let (native, merged) = (doors.kubeconfig(&path)?, doors.kubeconfig(MERGED)?);
        let place = HelmPlace { hub, native, merged, owner };
        for version in [3, 4] {
            let release = format!("web{version}-{owner}");
            place.check(&context, &release, version).await.with_context(|| format!("Helm {version} at {path}"))?;
        }
    }
    create_pod(hub, 0, "pod-of-eu").await?;
    create_pod(hub, 1, "pod-of-us").await?;
    for (path, shown, member) in [(doors.of_gateway(), &["pod-of-eu"][..], 0), (doors.of_karmada(), &["pod-of-us"], 1)]
    {
        let kubeconfig = doors.kubeconfig(&path)?;
        follow_pods_with_k9s(&context, hub, kubeconfig, (shown, member))
            .await
            .with_context(|| format!("k9s at {path}"))?;
    }
    Ok(())
}

async fn client_go_with_the_paths_of_cluster_gateway_has_the_results_of_a_member(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let doors = Doors::start(&context).await?;
    let member = of_a_member(&context).await?;
    let expected = typed(&context, &member.kubeconfig, &member.namespace, &[]).await?;
    ensure!(expected.len() >= 24, "the typed client stopped early: {expected:?}");
    let namespace = &doors.aggregated.hub.namespace;
    // The client itself writes the path of the door.
    let shown = typed(&context, &doors.kubeconfig("")?, namespace, &["--gateway", EU]).await?;
    same_outcomes(&shown, &expected)?;
    let shown = typed(&context, &doors.kubeconfig(&doors.of_karmada())?, namespace, &[]).await?;
    same_outcomes(&shown, &expected)
}

/// karmadactl gets the Cluster from the control plane, and then uses kubectl's factory below the path of the member.
async fn kubectl_as_karmadactl_uses_it_shows_metrics_of_a_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let doors = Doors::start(&context).await?;
    let (hub, tools) = (&doors.aggregated.hub, context.fixture.tools().await?);
    let member = TestCluster::builder("metered").start(tools).await?;
    let metrics = MetricsServer::start().await?;
    metrics.register(&member).await?;
    metrics.set_node("metered-node-0", "500m", "1Gi");
    metrics.set_pod(&hub.namespace, "web", "250m", "64Mi");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hub.namespace}});
    member.http().post("/api/v1/namespaces", &namespace).send().await?.expect(201)?;
    let reads = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    grant(&member, "", &doors.user, &doors.user, reads).await?;
    karmada::join(&doors.aggregated, "metered", &member, &doors.user).await?;

    let control_plane = Kubectl::new(tools, &doors.aggregated.kubeconfig(&doors.login, "")?)?;
    let cluster = control_plane.ok(&["get", "--raw", &format!("{CLUSTERS}/metered")]).await?;
    let cluster: Value = serde_json::from_str(&cluster)?;
    ensure!(cluster["metadata"]["name"] == "metered", "{cluster}");
    let kubectl = Kubectl::new(tools, &doors.kubeconfig(&format!("{CLUSTERS}/metered/proxy/"))?)?;
    eventually(SOON, async || {
        let pods = kubectl.ok(&["top", "pods", "-n", &hub.namespace]).await?;
        ensure!(pods.lines().any(|line| line.split_whitespace().eq(["web", "250m", "64Mi"])), "{pods}");
        Ok(())
    })
    .await?;
    let nodes = kubectl.ok(&["top", "nodes"]).await?;
    ensure!(nodes.contains("metered-node-0") && nodes.contains("500m"), "{nodes}");
    // The caller may impersonate nobody.
    for user in ["root", "system:admin"] {
        let refused = kubectl.run(&["get", "nodes", "--as", user]).await?.failure()?;
        ensure!(refused.contains("orbidden"), "{refused}");
    }
    Ok(())
}

/// Reads the next event of the object with this name. Events of other objects, as of a member that joins, are skipped.
async fn next_value(watch: &mut EventStream, name: &str) -> anyhow::Result<Value> {
    loop {
        let event = watch.expect(SOON).await?;
        ensure!(event["type"] != "ERROR", "{event}");
        if event["object"]["metadata"]["name"] == name {
            ensure!(event["type"] == "MODIFIED" || event["type"] == "ADDED", "{event}");
            return Ok(event["object"]["data"].clone());
        }
    }
}

/// A source with one of two members comes and goes. No request to the other member fails, and its watches go on.
async fn sources_come_and_go_while_other_members_are_used(context: TestContext) -> anyhow::Result<()> {
    const ROUNDS: usize = 8;
    let _permits = context.fixture.load_on_own_member().await?;
    let hub = Hub::start(&context).await?;
    let [first, second] = &hub.members;
    hub.add("eu", first).await?;
    hub.create_namespace(VELA).await?;
    hub.create_gateway_secret("us", &second.access().server, second).await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu"]).await?;
    let maps = format!("/api/v1/namespaces/{}/configmaps", hub.namespace);
    let own = format!("/clusters/eu{maps}");
    let list = http.get(&maps).send().await?.expect(200)?.json()?;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut merged = http.watch(&format!("{maps}?watch=true&resourceVersion={from}")).await?;
    let mut native = http.watch(&format!("{own}?watch=true")).await?;

    let results = Arc::new(ReplicaResults::default());
    let path = hub.folder.path().join("user.kubeconfig");
    let paths = [maps.clone(), format!("{maps}/of-member1"), format!("{own}/of-member1")];
    let load = tokio::spawn(reads(Arc::clone(&results), path, paths, false));
    for round in 0..ROUNDS {
        hub.create_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": VELA}})).await?;
        hub.serves(&http, &["eu", "us"]).await?;
        for step in [2 * round, 2 * round + 1] {
            let name = format!("step-{step}");
            make_config_map(first, &hub.namespace, &name, 1).await?;
            next_value(&mut merged, &name).await.with_context(|| format!("the merged watch, round {round}"))?;
            next_value(&mut native, &name).await.with_context(|| format!("the watch of eu, round {round}"))?;
            if step % 2 == 0 {
                hub.server.http().delete(&format!("{SOURCES}/kubevela")).send().await?.expect(200)?;
                hub.serves(&http, &["eu"]).await?;
            }
        }
    }
    results.stop.store(true, Ordering::Relaxed);
    load.await??;
    println!("{} reads were answered during {ROUNDS} changes of the source", results.check_none_is_lost()?);
    Ok(())
}
