//! Tests the objects in the hub with which controllers find the members: ClusterProfiles, kubeconfig Secrets of
//! multicluster-runtime and cluster Secrets of Argo CD.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use tributary_e2e::kubeconfig::{ContextParts, write_entries};
use tributary_e2e::{HttpClient, Kubectl, TestCluster, Tributary, TributaryBuilder, ports};

use super::{CLUSTERS, Hub, NAMESPACE, SOON, logs, secrets};
use crate::clients::follower::Follower;
use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::pod;
use crate::shared_mode::{grant, make_config_map};

/// Namespace of the published objects in `deploy/hub/publish.yaml`.
const FLEET: &str = "fleet";

const ARGO_CD: &str = "argocd";

/// Issuer of the tokens of the hub's ServiceAccounts.
const ISSUER: &str = "https://kubernetes.default.svc";

/// User name of the published token in members.
const READER: &str = "hub:system:serviceaccount:fleet:tributary-reader";

/// Longest time until Tributary repeats a refused write and the write takes effect.
const AFTER_REFUSAL: Duration = Duration::from_secs(120);

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::publish";
        published_objects_in_the_hub_are_updated_with_the_members,
        controllers_reach_members_with_the_published_secrets,
    ]
}

/// Hub with a Tributary account that has only the RBAC rights of the manifests in `deploy/hub`.
struct Publishing {
    hub: Hub,
    kubectl: Kubectl,
    address: String,
}

impl Publishing {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        // The discovery document for the hub's tokens names this host. Without the flag, it names an external address
        // of the machine.
        let server = TestCluster::builder("hub").apiserver_argument("--external-hostname=127.0.0.1");
        let hub = Hub::start_as(context, server).await?;
        let kubectl = Kubectl::new(context.fixture.tools().await?, &hub.server.kubeconfig())?;
        let deploy = |file: &str| format!("{}/../deploy/hub/{file}", env!("CARGO_MANIFEST_DIR"));
        for namespace in [FLEET, ARGO_CD] {
            kubectl.ok(&["create", "namespace", namespace]).await?;
        }
        kubectl.ok(&["apply", "-f", &deploy("rbac.yaml"), "-f", &deploy("publish.yaml")]).await?;
        // Tributary reads the public keys for the hub's tokens without credentials, so anonymous clients need this
        // right.
        let discovery = "--clusterrole=system:service-account-issuer-discovery";
        let anonymous = "--group=system:unauthenticated";
        kubectl.ok(&["create", "clusterrolebinding", "anonymous-keys", discovery, anonymous]).await?;
        Ok(Self { hub, kubectl, address: format!("127.0.0.1:{}", ports::free_port()?) })
    }

    /// Configures a Tributary that publishes objects of all kinds and accepts the published token.
    async fn builder(&self) -> anyhow::Result<TributaryBuilder> {
        let folder = self.hub.folder.path();
        let access = self.hub.server.access();
        let issuer = json!({
            "url": ISSUER,
            "discoveryURL": format!("{}/.well-known/openid-configuration", access.server),
            "certificateAuthority": access.certificate_authority,
            "audiences": ["tributary"],
        });
        let jwt = json!([{"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": "hub:"}}}]);
        let kind = "AuthenticationConfiguration";
        let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "jwt": jwt});
        let file = folder.join("authentication.json");
        fs::write(&file, configuration.to_string())?;
        let token = self.kubectl.ok(&["-n", NAMESPACE, "create", "token", "tributary-server"]).await?;
        let account = folder.join("account.kubeconfig");
        let entries = ContextParts { user: json!({"token": token.trim()}), ..access.entries() };
        write_entries(&account, &[entries])?;
        let builder = self.hub.builder_as(&account).argument("--partial=Allow").folder(folder);
        Ok(builder.listen(self.address.clone()).arguments([
            format!("--authentication-config={}", file.display()).as_str(),
            "--publish-cluster-profiles=fleet",
            "--publish-kubeconfig-secrets=fleet",
            "--publish-argo-cd-secrets=argocd",
            format!("--publish-address=https://{}", self.address).as_str(),
            "--publish-service-account=fleet/tributary-reader",
            "--publish-token-audiences=tributary",
        ]))
    }

    /// Reads an object of the hub. Returns `None` if the object does not exist.
    async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.hub.server.http().get(path).send().await?;
        if answer.status == StatusCode::NOT_FOUND { Ok(None) } else { answer.expect(200)?.json().map(Some) }
    }

    /// Waits until an object of the hub exists and satisfies `check`, and returns the object.
    async fn becomes(&self, path: &str, check: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        self.becomes_within(SOON, path, check).await
    }

    async fn becomes_within(
        &self,
        limit: Duration,
        path: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(limit, async || {
            let object = self.find(path).await?.with_context(|| format!("{path} does not exist"))?;
            ensure!(check(&object), "{object}");
            Ok(())
        })
        .await?;
        self.find(path).await?.context("the object is gone")
    }

    async fn goes(&self, path: &str) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let object = self.find(path).await?;
            ensure!(object.is_none(), "{object:?}");
            Ok(())
        })
        .await
    }
}

fn profile(name: &str) -> String {
    format!("/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{FLEET}/clusterprofiles/{name}")
}

fn secret(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

/// Returns the decoded value of a key in a Secret.
fn value(secret: &Value, key: &str) -> String {
    let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn has_condition(profile: &Value, name: &str, status: &str) -> bool {
    let mut conditions = profile["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == name && condition["status"] == status)
}

/// The CustomResourceDefinition of ClusterProfile, with the fields of cluster-inventory-api that Tributary writes or
/// reads.
pub(super) fn definition() -> Value {
    let text = || json!({"type": "string"});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "reason": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {"type": "string", "maxLength": 316},
        },
    });
    let provider = json!({"type": "object", "required": ["name"], "properties": {"name": text(), "cluster": open}});
    let manager = json!({
        "type": "object",
        "required": ["name"],
        "properties": {"name": text()},
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "ClusterManager is immutable"}],
    });
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["clusterManager"],
                "properties": {"displayName": text(), "clusterManager": manager},
            },
            "status": {
                "type": "object",
                "properties": {
                    "conditions": {"type": "array", "items": condition},
                    "version": {"type": "object", "properties": {"kubernetes": text()}},
                    "accessProviders": {"type": "array", "items": provider.clone()},
                    "credentialProviders": {"type": "array", "items": provider},
                },
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterprofiles.multicluster.x-k8s.io"},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ClusterProfile", "plural": "clusterprofiles", "singular": "clusterprofile"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

async fn published_objects_in_the_hub_are_updated_with_the_members(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let publishing = Publishing::start(&context).await?;
    let hub = &publishing.hub;
    let http = hub.server.http();
    let foreign_secret = json!({"metadata": {"name": "us"}, "data": {"kubeconfig": STANDARD.encode("foreign")}});
    http.post(&format!("/api/v1/namespaces/{FLEET}/secrets"), &foreign_secret).send().await?.expect(201)?;
    hub.add("eu", &hub.members[0]).await?;
    hub.add("us", &hub.members[1]).await?;
    let tributary = context.fixture.watch_log(publishing.builder().await?.start().await?).await;
    let server = |name: &str| format!("https://{}/clusters/{name}", publishing.address);

    // Tributary must publish Secrets even if the definition of ClusterProfiles is missing.
    let eu = publishing.becomes(&secret(FLEET, "eu"), |secret| !value(secret, "kubeconfig").is_empty()).await?;
    let published = value(&eu, "kubeconfig");
    let kubeconfig: Value = serde_json::from_str(&published)?;
    ensure!(kubeconfig["clusters"][0]["cluster"]["server"] == server("eu"), "{kubeconfig}");
    for name in ["eu", "us"] {
        let path = secret(ARGO_CD, &format!("tributary-{name}"));
        let argo_cd = publishing.becomes(&path, |secret| value(secret, "server") == server(name)).await?;
        ensure!(value(&argo_cd, "name") == name, "{argo_cd}");
    }
    let all = http.get(&format!("/api/v1/namespaces/{ARGO_CD}/secrets")).send().await?.expect(200)?.json()?;
    ensure!(all["items"].as_array().is_some_and(|items| items.len() == 2), "the merged view is published: {all}");
    logs(&tributary, &["not published", "install the CustomResourceDefinition clusterprofiles"]).await?;

    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    http.post(definitions, &definition()).send().await?.expect(201)?;
    let is_healthy = |profile: &Value| {
        ["ControlPlaneHealthy", "tributary.dev/Synced"].into_iter().all(|name| has_condition(profile, name, "True"))
    };
    let eu = publishing.becomes_within(AFTER_REFUSAL, &profile("eu"), is_healthy).await?;
    ensure!(eu["metadata"]["labels"]["x-k8s.io/cluster-manager"] == "tributary", "{eu}");
    ensure!(eu["spec"]["clusterManager"]["name"] == "tributary", "{eu}");
    ensure!(eu["status"]["version"]["kubernetes"].as_str().is_some_and(|text| text.starts_with("v1.")), "{eu}");
    let provider = &eu["status"]["accessProviders"][0];
    ensure!(provider["name"] == "tributary" && provider["cluster"]["server"] == server("eu"), "{eu}");

    // While nothing changes, Tributary must not write.
    let unhealthy = |profile: &Value| has_condition(profile, "ControlPlaneHealthy", "False");
    let before = publishing.becomes(&profile("us"), is_healthy).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let after = publishing.find(&profile("us")).await?.context("no profile of us")?;
    ensure!(before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"], "{before} {after}");

    // Tributary must undo a change by another client, and must show the health of the member.
    let patch = json!({"data": {"kubeconfig": STANDARD.encode("wrong")}});
    http.patch(&secret(FLEET, "eu"), "merge-patch+json", &patch).send().await?.expect(200)?;
    publishing.becomes(&secret(FLEET, "eu"), |secret| value(secret, "kubeconfig") == published).await?;
    let endpoints = json!({"endpoints": ["https://127.0.0.1:1"]});
    hub.patch_member("eu", endpoints).await?;
    publishing.becomes(&profile("eu"), unhealthy).await?;

    // Tributary must not overwrite an object of this name that it has not created.
    logs(&tributary, &["KubeconfigSecret fleet/us", "has not published"]).await?;
    let us = publishing.find(&secret(FLEET, "us")).await?.context("no Secret us")?;
    ensure!(value(&us, "kubeconfig") == "foreign" && us["metadata"]["labels"] == Value::Null, "{us}");
    http.delete(&secret(FLEET, "us")).send().await?.expect(200)?;
    let is_own = |secret: &Value| secret["metadata"]["labels"]["tributary.dev/published-by"] == NAMESPACE;
    publishing.becomes_within(AFTER_REFUSAL, &secret(FLEET, "us"), is_own).await?;

    // After the deletion of the Secret with the stored token, Tributary must publish a new token.
    http.delete(&secrets("/tributary-published-token")).send().await?.expect(200)?;
    publishing.becomes(&secret(FLEET, "eu"), |secret| value(secret, "kubeconfig") != published).await?;

    // Tributary must delete the published objects of a removed member.
    http.delete(&format!("{CLUSTERS}/eu")).send().await?.expect(200)?;
    for path in [profile("eu"), secret(FLEET, "eu"), secret(ARGO_CD, "tributary-eu")] {
        publishing.goes(&path).await?;
    }
    for path in [profile("us"), secret(FLEET, "us"), secret(ARGO_CD, "tributary-us")] {
        ensure!(publishing.find(&path).await?.is_some(), "{path} is gone");
    }
    ensure!(!tributary.log().contains(&token_of(&kubeconfig)), "the log has a published token");
    Ok(())
}

fn token_of(kubeconfig: &Value) -> String {
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap_or("no token").to_owned()
}

async fn controllers_reach_members_with_the_published_secrets(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let publishing = Publishing::start(&context).await?;
    let hub = &publishing.hub;
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]},
    ]);
    for (member, name) in hub.members.iter().zip(["eu", "us"]) {
        hub.add(name, member).await?;
        grant(member, &hub.namespace, "published-reader", READER, rules.clone()).await?;
        let pods = format!("/api/v1/namespaces/{}/pods", hub.namespace);
        let object = pod(&format!("pod-of-{name}"), &format!("{}-node-0", member.name()));
        member.http().post(&pods, &object).send().await?.expect(201)?;
        // Both members have an object of this name.
        make_config_map(member, &hub.namespace, "twin", 1).await?;
    }
    let tributary = context.fixture.watch_log(publishing.builder().await?.start().await?).await;
    for name in ["eu", "us"] {
        let published = publishing.becomes(&secret(FLEET, name), |_| true).await?;
        serves_published(&hub.namespace, name, &tributary, &value(&published, "kubeconfig")).await?;
    }
    let program = context.fixture.tools().await?.clients();
    let arguments = ["published", "--secrets", FLEET, "--namespace", &hub.namespace];
    let mut controllers = Follower::start(&program, &hub.server.kubeconfig(), &arguments, &[])?;
    for name in ["eu", "us"] {
        let pods = controllers.wait_for("pods", SOON).await?;
        let expected = json!([format!("pod-of-{name}")]);
        ensure!(pods["cluster"] == name && pods["pods"] == expected, "{pods}");
    }
    for (member, name) in hub.members.iter().zip(["eu", "us"]) {
        let path = format!("/api/v1/namespaces/{}/configmaps/twin", hub.namespace);
        let reconciled = eventually(SOON, async || {
            let twin = member.http().get(&path).send().await?.expect(200)?.json()?;
            ensure!(twin["metadata"]["labels"]["reconciled-by"] == name, "{twin}");
            Ok(())
        });
        reconciled.await.with_context(|| controllers.log_tail(20))?;
    }
    Ok(())
}

/// Waits until the published kubeconfig of a member works.
async fn serves_published(namespace: &str, name: &str, tributary: &Tributary, kubeconfig: &str) -> anyhow::Result<()> {
    let folder = tributary_e2e::guard::temporary_folder("published")?;
    let path = folder.path().join(name);
    fs::write(&path, kubeconfig)?;
    let http = HttpClient::from_kubeconfig(&path, None).await?;
    ensure!(http.origin().starts_with(tributary.url()), "{}", http.origin());
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps/twin");
    eventually(SOON, async || http.get(&maps).send().await?.expect(200).map(drop)).await
}
