//! Tests discovery of real kube-apiservers: their aggregated servers, and kinds that appear while Tributary runs.

use crate::conformance::target::{revision, vector};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tributary_e2e::{AggregatedServer, HttpClient, TestCluster, Tributary, kubeconfig};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Longest time until a member notices that an aggregated API server appears or disappears.
const SEEN: Duration = Duration::from_secs(180);

/// Longest time until Tributary serves a new kind. It usually takes a second. Without the watch of
/// CustomResourceDefinitions, it would take at least 8 s, so this limit shows that the watch works.
const KNOWN: Duration = Duration::from_secs(5);

pub(crate) fn cases() -> Vec<Case> {
    cases!["kinds";
        new_kind_of_a_second_cluster_is_never_missing_without_a_warning,
        failure_of_an_aggregated_server_affects_only_its_group,
    ]
    .into_iter()
    .map(|case| case.patience(Duration::from_secs(600)))
    .collect()
}

async fn define(member: &TestCluster, group: &str) -> anyhow::Result<()> {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
        },
    });
    member.http().post(DEFINITIONS, &definition).send().await?.expect(201).map(drop)
}

/// Creates an object in a member as soon as the member serves its kind. Returns the revision of the creation.
async fn make(http: &HttpClient, group: &str, namespace: &str, name: &str) -> anyhow::Result<u64> {
    let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}});
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/things");
    let made = eventually(SEEN, async || http.post(&path, &object).send().await?.expect(201)?.json()).await?;
    revision(made["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?)
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// Returns whether a list shows a member at a revision before `created`, so that the object may be missing. A list
/// without a resourceVersion may be this late, because it does not wait for writes of other clients. Returns false if
/// the list's version does not contain the member, or contains it with component 0.
fn is_before(list: &Value, member: &str, created: u64) -> anyhow::Result<bool> {
    let components = vector(list["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?)?;
    components.get(member).map_or(Ok(false), |component| Ok((1..created).contains(&revision(component)?)))
}

/// As soon as the member has an object of the new kind, each list must have the object, or a Warning with the cluster's
/// name, or a version of the cluster from before the object.
async fn new_kind_of_a_second_cluster_is_never_missing_without_a_warning(context: TestContext) -> anyhow::Result<()> {
    let tributary = context.fixture.over_two().await?;
    let [one, two] = context.fixture.pair().await?;
    let namespace = context.namespace("kinds", &[one.clone(), two.clone()]).await?;
    let group = format!("{namespace}.example.com");
    let merged = tributary.http().await?;
    let things = format!("/apis/{group}/v1/things");
    define(one, &group).await?;
    make(one.http(), &group, &namespace, "of-one").await?;
    let list = eventually(SEEN, async || {
        let list = merged.get(&things).send().await?.expect(200)?.json()?;
        ensure!(names(&list) == ["of-one"], "{list}");
        Ok(list)
    })
    .await?;
    ensure!(!is_before(&list, "member2", u64::MAX)?, "a list without the kind of a cluster has its version: {list}");
    // The test creates the definition in the second cluster some seconds later than in the first cluster.
    tokio::time::sleep(Duration::from_secs(3)).await;
    define(two, &group).await?;
    let created = make(two.http(), &group, &namespace, "of-two").await?;
    let made = Instant::now();
    let known = loop {
        let answer = merged.get(&things).send().await?.expect(200)?;
        let list = answer.json()?;
        if names(&list) == ["of-one", "of-two"] {
            break made.elapsed();
        }
        let is_named = answer.header("warning").contains("cluster member2");
        ensure!(is_named || is_before(&list, "member2", created)?, "{created}: {:?} {list}", answer.headers);
        ensure!(made.elapsed() < KNOWN, "not after {KNOWN:?}: {:?} {list}", answer.headers);
    };
    println!("the new kind was known {known:?} after its first object");
    // Gets, and the deletion of the collection, must now reach the objects of both clusters.
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/things");
    merged.get(&format!("{path}/of-two")).send().await?.expect(200)?;
    merged.delete(&path).send().await?.expect(200)?;
    for member in [one, two] {
        let left = member.http().get(&path).send().await?.expect(200)?.json()?;
        ensure!(names(&left).is_empty(), "{left}");
        member.http().delete(&format!("{DEFINITIONS}/things.{group}")).send().await?.expect(200)?;
    }
    Ok(())
}

/// One member has three aggregated servers: one lists only a subresource, one lists no resource, and one goes down.
/// Other groups must work.
async fn failure_of_an_aggregated_server_affects_only_its_group(context: TestContext) -> anyhow::Result<()> {
    let _turn = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let (east, west) =
        tokio::try_join!(TestCluster::builder("east").start(tools), TestCluster::builder("west").start(tools))?;
    let server = AggregatedServer::start().await?;
    let metrics = json!([{"name": "pods/http_requests", "singularName": "", "namespaced": true,
        "kind": "MetricValueList", "verbs": ["get"]}]);
    let policies = json!([{"name": "policies", "singularName": "policy", "namespaced": true, "kind": "Policy",
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]);
    let list = |kind: &str| json!({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": []});
    let value = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/http_requests";
    let queue = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/s0-queue";
    server.set_resources("custom.metrics.k8s.io/v1beta1", &metrics);
    server.set(value, list("MetricValueList"));
    server.set_resources("external.metrics.k8s.io/v1beta1", &json!([]));
    server.set(queue, list("ExternalMetricValueList"));
    let (odd, other) = (AggregatedServer::start().await?, AggregatedServer::start().await?);
    for own in [&odd, &other] {
        own.set_resources("odd.example/v1", &policies);
        own.set("/apis/odd.example/v1/policies", list("PolicyList"));
    }
    for group in ["custom.metrics.k8s.io", "external.metrics.k8s.io"] {
        server.register(&east, group, "v1beta1").await?;
    }
    odd.register(&east, "odd.example", "v1").await?;
    other.register(&west, "odd.example", "v1").await?;
    for (member, path) in [(&east, value), (&east, queue), (&east, ODD), (&west, ODD)] {
        eventually(SEEN, async || member.http().get(path).send().await?.expect(200).map(drop)).await?;
    }
    let path = east.folder().join("both.kubeconfig");
    kubeconfig::write(&path, &[&east.access(), &west.access()])?;
    let tributary = Tributary::builder(&path, ["east", "west"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let merged = tributary.http().await?;
    let maps = merged.get("/api/v1/configmaps").send().await?.expect(200)?;
    ensure!(maps.header("warning").is_empty(), "{:?}", maps.headers);
    for path in [value, queue] {
        eventually(SEEN, async || merged.get(path).send().await?.expect(200).map(drop)).await?;
    }
    // The age in a Warning must be the age of the failure, and not the age of the process.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stopped = Instant::now();
    odd.stop();
    eventually(SEEN, async || {
        let document = east.http().get("/apis").accept(AGGREGATED).send().await?.json()?;
        let mut groups = document["items"].as_array().into_iter().flatten();
        let group = groups.find(|group| group["metadata"]["name"] == "odd.example").context("no such group")?;
        ensure!(group["versions"][0]["freshness"] == "Stale", "{group}");
        Ok(())
    })
    .await?;
    eventually(SEEN, async || {
        let answer = merged.get(ODD).send().await?.expect(200)?;
        let warning = answer.header("warning").to_owned();
        ensure!(warning.contains("cluster east") && warning.contains("does not answer"), "{warning:?}");
        let (_, age) = warning.split_once("waiting for ").context("no age")?;
        let age: u64 = age.split(' ').next().unwrap_or_default().parse()?;
        ensure!(age <= stopped.elapsed().as_secs(), "{age} s, and stopped for {:?}", stopped.elapsed());
        Ok(())
    })
    .await?;
    let maps = merged.get("/api/v1/configmaps").send().await?.expect(200)?;
    ensure!(maps.header("warning").is_empty(), "{:?}", maps.headers);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "made", "annotations": {"tributary.dev/cluster": "east"}}});
    merged.post("/api/v1/namespaces/default/configmaps", &map).send().await?.expect(201)?;
    merged.get("/api/v1/namespaces/default/configmaps/made").send().await?.expect(200).map(drop)
}

const ODD: &str = "/apis/odd.example/v1/policies";
