//! Tests ClusterSources, which make members from Secrets of cluster-gateway and from Clusters of Karmada.

use std::collections::BTreeMap;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_e2e::{Kubectl, TestCluster, tributary};

use super::{Hub, SOON, logs};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::make_config_map;

pub(super) const SOURCES: &str = "/apis/tributary.dev/v1alpha1/clustersources";
const GATEWAY_SECRETS: &str = "/api/v1/namespaces/vela-system/secrets";
const KARMADA_SECRETS: &str = "/api/v1/namespaces/karmada-cluster/secrets";
const KARMADA_CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::sources";
        clusters_in_secrets_of_cluster_gateway_become_members,
        secret_of_cluster_gateway_cannot_replace_an_existing_member,
        clusters_of_karmada_become_members_once_their_crd_exists,
    ]
}

/// Helpers that create the namespaces and objects of cluster-gateway and Karmada.
impl Hub {
    /// Starts a hub with a source of cluster-gateway's Secrets, and with the Secret `eu` of the first member.
    async fn start_with_gateway_secret(context: &TestContext) -> anyhow::Result<Self> {
        let hub = Self::start(context).await?;
        hub.create_namespace("vela-system").await?;
        hub.create_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "vela-system"}})).await?;
        let [first, _] = &hub.members;
        hub.create_gateway_secret("eu", &first.access().server, first).await?;
        Ok(hub)
    }

    pub(super) async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.server.http().post(path, object).send().await?.expect(201)?.json()
    }

    pub(super) async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create("/api/v1/namespaces", &object).await.map(drop)
    }

    pub(super) async fn create_source(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "ClusterSource", "metadata": {"name": name}, "spec": spec});
        self.create(SOURCES, &object).await.map(drop)
    }

    pub(super) async fn create_gateway_secret(
        &self,
        name: &str,
        server: &str,
        member: &TestCluster,
    ) -> anyhow::Result<()> {
        let access = member.access();
        // KubeVela writes endpoints that may end with a newline.
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": {"cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken"}},
            "data": {
                "endpoint": STANDARD.encode(format!("{server}\n")),
                "token": STANDARD.encode(&access.token),
                "ca.crt": STANDARD.encode(&access.certificate_authority),
            },
        });
        self.create(GATEWAY_SECRETS, &secret).await.map(drop)
    }

    /// Waits until the status of a ClusterSource has these numbers of found and accepted members. Returns the refused
    /// members with their reasons.
    pub(super) async fn counts(
        &self,
        source: &str,
        found: u64,
        accepted: u64,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let read = async || {
            let object = self.server.http().get(&format!("{SOURCES}/{source}")).send().await?.expect(200)?.json()?;
            anyhow::Ok(object["status"].clone())
        };
        eventually(SOON, async || {
            let status = read().await?;
            ensure!((&status["found"], &status["accepted"]) == (&json!(found), &json!(accepted)), "{status}");
            Ok(())
        })
        .await?;
        let status = read().await?;
        let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
        let items = status["refused"].as_array().into_iter().flatten();
        Ok(items.map(|item| (text(item, "name"), text(item, "reason"))).collect())
    }

    /// Waits until a condition of a ClusterSource has this reason.
    pub(super) async fn condition(&self, source: &str, name: &str, reason: &str) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let object = self.server.http().get(&format!("{SOURCES}/{source}")).send().await?.expect(200)?.json()?;
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let own = conditions.clone().find(|condition| condition["type"] == name);
            ensure!(own.is_some_and(|own| own["reason"] == reason), "{:?}", conditions.collect::<Vec<_>>());
            Ok(())
        })
        .await
    }
}

async fn clusters_in_secrets_of_cluster_gateway_become_members(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start_with_gateway_secret(&context).await?;
    let [first, second] = &hub.members;
    let tributary = hub.builder().start().await?;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu"]).await?;
    hub.create_gateway_secret("us.west", &second.access().server, second).await?;
    hub.serves(&http, &["eu", "us-west-cfc4a3c5c6"]).await?;
    // An annotation renames the member.
    let patch = json!({"metadata": {"annotations": {"tributary.dev/cluster-name": "us"}}});
    let path = format!("{GATEWAY_SECRETS}/us.west");
    hub.server.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    hub.serves(&http, &["eu", "us"]).await?;
    hub.create_gateway_secret("old", "https://192.0.2.1", first).await?;
    let patch = json!({"data": {"ca.crt": null}});
    let path = format!("{GATEWAY_SECRETS}/old");
    hub.server.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    let refused = hub.counts("kubevela", 3, 2).await?;
    ensure!(refused == [("old".to_owned(), "MissingCA".to_owned())].into(), "{refused:?}");
    let kubectl = Kubectl::new(context.fixture.tools().await?, &hub.server.kubeconfig())?;
    let table = kubectl.ok(&["get", "clustersources"]).await?.to_string();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(lines[0] == ["NAME", "LIST", "FOUND", "ACCEPTED", "AGE"], "{table}");
    ensure!(lines[1][..4] == ["kubevela", "clusterGatewaySecrets", "3", "2"], "{table}");
    let kubeconfig = hub.server.kubeconfig().display().to_string();
    let arguments = ["check", "--hub-kubeconfig", &kubeconfig, "--hub-allow-cidr=127.0.0.0/8"];
    let checked = tributary::run(&arguments).await?;
    for line in ["    eu: accepted as member eu", "    old: refused; MissingCA: ", "    us.west: accepted as member us"]
    {
        ensure!(checked.code == Some(1) && checked.stdout.contains(line), "{line:?} in {checked:?}");
    }

    // If the hub is down, a restarted Tributary must use its stored copy of the hub's objects.
    tributary.stop().await?;
    hub.server.kill9().await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu", "us"]).await?;
    hub.server.start_again().await?;
    logs(&tributary, &["changes of the hub arrive again"]).await?;
    hub.server.http().delete(&format!("{GATEWAY_SECRETS}/us.west")).send().await?.expect(200)?;
    hub.serves(&http, &["eu"]).await?;
    hub.server.http().delete(&format!("{SOURCES}/kubevela")).send().await?.expect(200)?;
    hub.serves(&http, &[]).await
}

async fn secret_of_cluster_gateway_cannot_replace_an_existing_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start_with_gateway_secret(&context).await?;
    let [first, second] = &hub.members;
    hub.add("own", second).await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu", "own"]).await?;
    // The Secret changes to a forbidden address of this machine. A second Secret has the name of a member that a
    // different object already defines.
    let patch = json!({"data": {"endpoint": STANDARD.encode("https://0.0.0.0:6443")}});
    let path = format!("{GATEWAY_SECRETS}/eu");
    hub.server.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    hub.create_gateway_secret("second-name", &second.access().server, second).await?;
    hub.create_gateway_secret("own", &first.access().server, first).await?;
    let refused = hub.counts("kubevela", 3, 1).await?;
    let expected = [("eu", "RefusedAddress"), ("own", "NameConflict")];
    ensure!(refused == expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())).into(), "{refused:?}");
    // Tributary must refuse a second member for the same cluster, and must keep the member that it accepted first.
    logs(&tributary, &["the cluster is refused", "second-name"]).await?;
    make_config_map(first, &hub.namespace, "after-the-attack", 1).await?;
    eventually(SOON, async || {
        let path = format!("/clusters/eu/api/v1/namespaces/{}/configmaps/after-the-attack", hub.namespace);
        http.get(&path).send().await?.expect(200).map(drop)
    })
    .await?;
    hub.serves(&http, &["eu", "own"]).await
}

/// Returns a CustomResourceDefinition of Karmada's Clusters that allows all fields.
fn karmada_definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1alpha1", "served": true, "storage": true, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.karmada.io"},
        "spec": {
            "group": "cluster.karmada.io", "scope": "Cluster", "versions": [version],
            "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
        },
    })
}

async fn clusters_of_karmada_become_members_once_their_crd_exists(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    hub.create_namespace("karmada-cluster").await?;
    let [member, _] = &hub.members;
    hub.create_source("karmada", json!({"karmadaClusters": {}})).await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.condition("karmada", "Synced", "NotFound").await?;
    hub.condition("karmada", "Accepted", "Accepted").await?;
    logs(&tributary, &["install the CustomResourceDefinition clusters.cluster.karmada.io"]).await?;
    hub.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &karmada_definition()).await?;
    hub.condition("karmada", "Synced", "Synced").await?;

    let access = member.access();
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "eu"},
        "spec": {
            "syncMode": "Push", "apiEndpoint": access.server, "region": "eu-1",
            "secretRef": {"namespace": "karmada-cluster", "name": "eu"},
        },
    });
    let cluster = hub.create(KARMADA_CLUSTERS, &cluster).await?;
    let owner = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "eu", "uid": cluster["metadata"]["uid"],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "eu", "ownerReferences": [owner]},
        "data": {
            "token": STANDARD.encode(&access.token), "caBundle": STANDARD.encode(&access.certificate_authority),
        },
    });
    ensure!(hub.counts("karmada", 1, 0).await? == [("eu".to_owned(), "SecretNotFound".to_owned())].into());
    hub.create(KARMADA_SECRETS, &secret).await?;
    hub.serves(&http, &["eu"]).await?;
    ensure!(hub.counts("karmada", 1, 1).await?.is_empty());
    // The deletion of the definition also deletes all Clusters.
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.cluster.karmada.io";
    hub.server.http().delete(definition).send().await?.expect(200)?;
    hub.serves(&http, &[]).await?;
    hub.condition("karmada", "Synced", "NotFound").await
}
