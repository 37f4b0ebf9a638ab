//! ClusterSources whose credentials a command prints: ClusterProfiles, also of PlacementDecisions, and Secrets of
//! cluster-gateway and Argo CD.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_e2e::{Kubectl, TestCluster, Tributary, tributary};

use super::publish::definition;
use super::{Hub, SOON};
use crate::context::{Case, TestContext, cases, eventually};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PROFILES: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/clusterprofiles";

const DECISIONS: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet/placementdecisions";
const REGISTRIES: &str = "/apis/tributary.dev/v1alpha1/resourceregistries";

/// The version of the exec protocol.
const PROTOCOL: &str = "client.authentication.k8s.io/v1";

/// A provider that prints the token of the cluster whose name is in the configuration of client-go's exec protocol, or
/// in the first argument. It records its environment.
const PROVIDER: &str = r#"#!/bin/sh
/usr/bin/env > "$0.env"
name=$(echo "$KUBERNETES_EXEC_INFO" | sed -n 's/.*"clusterName":"\([a-z]*\)".*/\1/p')
token=$(cat "$0.${name:-$1}") || exit 1
echo "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\","
echo "\"status\":{\"token\":\"$token\"}}"
"#;

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::source_commands";
        profiles_are_members_by_the_provider_of_the_local_file,
        commands_of_secrets_need_the_flag,
        last_complete_decision_selects_the_clusters_of_a_registry,
    ]
}

/// A provider with the tokens of both members, `eu` and `us`.
struct Provider {
    path: PathBuf,
}

impl Provider {
    fn write(hub: &Hub) -> anyhow::Result<Self> {
        let path = hub.folder.path().join("provider");
        fs::write(&path, PROVIDER)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        for (name, member) in ["eu", "us"].iter().zip(&hub.members) {
            fs::write(format!("{}.{name}", path.display()), member.access().token)?;
        }
        Ok(Self { path })
    }

    fn text(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the flag that allows the present file.
    fn flag(&self) -> anyhow::Result<String> {
        let printed = String::from_utf8(Command::new("sha256sum").arg(&self.path).output()?.stdout)?;
        let digest = printed.split_whitespace().next().unwrap_or_default();
        Ok(format!("--exec-allow={}@sha256:{digest}", self.text()))
    }

    /// Returns the flags for ClusterProfiles, and writes the file of the providers.
    fn flags_for_profiles(&self, hub: &Hub) -> anyhow::Result<[String; 2]> {
        let exec = json!({"apiVersion": PROTOCOL, "command": self.text(), "provideClusterInfo": true});
        let file = hub.folder.path().join("providers.json");
        fs::write(&file, json!({"providers": [{"name": "provider", "execConfig": exec}]}).to_string())?;
        Ok([self.flag()?, format!("--cluster-profile-providers={}", file.display())])
    }

    /// Returns the names of the variables in the last run, without those that a shell sets.
    fn variables(&self) -> anyhow::Result<Vec<String>> {
        let text = fs::read_to_string(format!("{}.env", self.text()))?;
        let names = text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.to_owned());
        Ok(names.filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str())).collect())
    }
}

/// Makes the cluster of an access provider. An argument and a variable of a profile are not allowed.
fn cluster_of(name: &str, member: &TestCluster) -> Value {
    let access = member.access();
    json!({
        "server": access.server,
        "certificate-authority-data": STANDARD.encode(&access.certificate_authority),
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": name}},
            {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": ["--other"]},
            {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": {"EVIL": "1"}},
        ],
    })
}

impl Hub {
    /// Starts Tributary with a source of two profiles, `eu` and `us`, which have no status.
    async fn serve_profiles(&self, context: &TestContext, flags: &[String]) -> anyhow::Result<Arc<Tributary>> {
        self.create_namespace("fleet").await?;
        self.create(DEFINITIONS, &definition()).await?;
        self.create_source("fleet", json!({"clusterProfiles": {"namespace": "fleet"}})).await?;
        let tributary = flags.iter().fold(self.builder(), |builder, flag| builder.argument(flag)).start().await?;
        let tributary = context.fixture.watch_log(tributary).await;
        eventually(SOON, async || self.create_profile("eu").await).await?;
        self.create_profile("us").await?;
        Ok(tributary)
    }

    /// Creates a slice of the decision `batch` with one profile.
    async fn create_slice(&self, index: usize, profile: &str) -> anyhow::Result<()> {
        let labels = json!({
            "multicluster.x-k8s.io/decision-key": "batch",
            "multicluster.x-k8s.io/decision-index": index.to_string(),
        });
        let slice = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "PlacementDecision",
            "metadata": {"name": format!("batch-{index}"), "labels": labels},
            "decisions": [{"clusterProfileRef": {"name": profile}}],
        });
        self.create(DECISIONS, &slice).await.map(drop)
    }

    /// Waits until the condition `ResolvedRefs` of the registry `maps` has this reason.
    async fn registry_refers(&self, reason: &str) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let registry = self.server.http().get(&format!("{REGISTRIES}/maps")).send().await?.expect(200)?.json()?;
            let conditions = registry["status"]["conditions"].as_array().into_iter().flatten();
            let own = conditions.clone().find(|condition| condition["type"] == "ResolvedRefs");
            ensure!(own.is_some_and(|own| own["reason"] == reason), "{:?}", conditions.collect::<Vec<_>>());
            Ok(())
        })
        .await
    }

    async fn create_profile(&self, name: &str) -> anyhow::Result<()> {
        let profile = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": {"name": name, "annotations": {"tributary.dev/cluster-name": name}},
            "spec": {"displayName": name, "clusterManager": {"name": "manager"}},
        });
        self.create(PROFILES, &profile).await.map(drop)
    }

    async fn set_profile(&self, name: &str, healthy: &str, field: &str, cluster: &Value) -> anyhow::Result<()> {
        let condition = json!({
            "type": "ControlPlaneHealthy", "status": healthy, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"conditions": [condition], field: [
            {"name": "unknown", "cluster": {"server": "https://192.0.2.1"}},
            {"name": "provider", "cluster": cluster},
        ]});
        let path = format!("{PROFILES}/{name}/status");
        let patch = json!({ "status": status });
        self.server.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200).map(drop)
    }
}

async fn profiles_are_members_by_the_provider_of_the_local_file(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let provider = Provider::write(&hub)?;
    let flags = provider.flags_for_profiles(&hub)?;
    let tributary = hub.serve_profiles(&context, &flags).await?;
    let [first, second] = &hub.members;
    let http = hub.http(&tributary).await?;
    hub.condition("fleet", "Synced", "Synced").await?;
    hub.set_profile("eu", "True", "accessProviders", &cluster_of("eu", first)).await?;
    hub.serves(&http, &["eu"]).await?;
    ensure!(provider.variables()? == ["KUBERNETES_EXEC_INFO"], "{:?}", provider.variables()?);
    hub.set_profile("us", "False", "credentialProviders", &cluster_of("us", second)).await?;
    let refused = hub.counts("fleet", 2, 1).await?;
    ensure!(refused == [("us".to_owned(), "NotReady".to_owned())].into(), "{refused:?}");
    hub.set_profile("us", "True", "credentialProviders", &cluster_of("us", second)).await?;
    hub.serves(&http, &["eu", "us"]).await?;
    ensure!(hub.counts("fleet", 2, 2).await?.is_empty());

    // A member stays while its control plane is unhealthy, and while its profile is wrong.
    hub.set_profile("us", "False", "credentialProviders", &cluster_of("us", second)).await?;
    let mut with_file = cluster_of("eu", first);
    with_file["certificate-authority"] = json!("/etc/ssl/ca.pem");
    hub.set_profile("eu", "True", "accessProviders", &with_file).await?;
    let refused = hub.counts("fleet", 2, 1).await?;
    ensure!(refused == [("eu".to_owned(), "FileNotAllowed".to_owned())].into(), "{refused:?}");
    hub.serves(&http, &["eu", "us"]).await?;
    hub.set_profile("eu", "True", "accessProviders", &cluster_of("eu", first)).await?;
    let kubeconfig = hub.server.kubeconfig().display().to_string();
    let base = ["check", "--hub-kubeconfig", &kubeconfig, "--hub-allow-cidr=127.0.0.0/8"];
    let with: Vec<&str> = base.into_iter().chain(flags.iter().map(String::as_str)).collect();
    eventually(SOON, async || {
        let checked = tributary::run(&with).await?;
        ensure!(checked.stdout.contains("    eu: accepted as member eu"), "{checked:?}");
        ensure!(checked.stdout.contains("    us: refused; NotReady: "), "{checked:?}");
        Ok(())
    })
    .await?;
    let without = tributary::run(&base).await?;
    ensure!(without.stdout.contains("--cluster-profile-providers"), "{without:?}");

    client_go_runs_the_provider(&context, &hub, &provider, "us").await
}

/// kubectl runs the same provider by client-go's own implementation of the protocol.
async fn client_go_runs_the_provider(
    context: &TestContext,
    hub: &Hub,
    provider: &Provider,
    name: &str,
) -> anyhow::Result<()> {
    let exec = json!({
        "apiVersion": PROTOCOL, "command": provider.text(), "provideClusterInfo": true, "interactiveMode": "Never",
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster_of(name, &hub.members[1])}],
        "users": [{"name": "a", "user": {"exec": exec}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    let path = hub.folder.path().join("exec.kubeconfig");
    fs::write(&path, kubeconfig.to_string())?;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &path)?;
    let found = kubectl.ok(&["get", "namespace", &hub.namespace, "-o", "name"]).await?;
    ensure!(found.trim() == format!("namespace/{}", hub.namespace), "{found}");
    Ok(())
}

async fn commands_of_secrets_need_the_flag(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let provider = Provider::write(&hub)?;
    hub.create_namespace("vela-system").await?;
    hub.create_namespace("argocd").await?;
    hub.create_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "vela-system"}})).await?;
    hub.create_source("argo", json!({"argoCDSecrets": {"namespace": "argocd"}})).await?;
    let changed = hub.folder.path().join("changed");
    fs::copy(&provider.path, &changed)?;
    let changed = changed.display().to_string();
    let wrong_digest = format!("--exec-allow={changed}@sha256:{}", "0".repeat(64));
    let builder = hub.builder().argument(&provider.flag()?).argument(&wrong_digest);
    let tributary = context.fixture.watch_log(builder.start().await?).await;
    let http = hub.http(&tributary).await?;
    let [first, second] = &hub.members;
    let dynamic = |name: &str, command: &str| {
        let access = first.access();
        let exec = json!({"apiVersion": PROTOCOL, "command": command, "args": ["eu"]}).to_string();
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": {"cluster.core.oam.dev/cluster-credential-type": "Dynamic"}},
            "data": {
                "endpoint": STANDARD.encode(&access.server), "exec": STANDARD.encode(exec),
                "ca.crt": STANDARD.encode(&access.certificate_authority),
            },
        })
    };
    let secrets = "/api/v1/namespaces/vela-system/secrets";
    for (name, command) in
        [("eu", provider.text().as_str()), ("relative", "provider"), ("shell", "/bin/sh"), ("changed", &changed)]
    {
        hub.create(secrets, &dynamic(name, command)).await?;
    }
    hub.serves(&http, &["eu"]).await?;
    ensure!(provider.variables()? == ["KUBERNETES_EXEC_INFO"], "{:?}", provider.variables()?);
    let refused = hub.counts("kubevela", 4, 1).await?;
    let expected = [("changed", "ExecNotAllowed"), ("relative", "InvalidExec"), ("shell", "ExecNotAllowed")];
    ensure!(refused == expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())).into(), "{refused:?}");

    let access = second.access();
    let exec = json!({"apiVersion": PROTOCOL, "command": provider.text(), "args": ["us"]});
    let tls = json!({"caData": STANDARD.encode(&access.certificate_authority)});
    let config = json!({"execProviderConfig": exec, "tlsClientConfig": tls}).to_string();
    let argo = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "us", "labels": {"argocd.argoproj.io/secret-type": "cluster"}},
        "data": {
            "name": STANDARD.encode("us"), "server": STANDARD.encode(&access.server), "config": STANDARD.encode(config),
        },
    });
    hub.create("/api/v1/namespaces/argocd/secrets", &argo).await?;
    hub.serves(&http, &["eu", "us"]).await
}

/// A definition of PlacementDecisions that keeps all fields.
fn definition_of_decisions() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1alpha1", "served": true, "storage": true, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "placementdecisions.multicluster.x-k8s.io"},
        "spec": {
            "group": "multicluster.x-k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "placementdecisions", "singular": "placementdecision", "kind": "PlacementDecision"},
        },
    })
}

async fn last_complete_decision_selects_the_clusters_of_a_registry(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let provider = Provider::write(&hub)?;
    let clusters = json!({"placementDecision": {"namespace": "fleet", "key": "batch"}});
    let registry = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "maps"},
        "spec": {"resources": ["configmaps"], "clusters": clusters},
    });
    hub.create(REGISTRIES, &registry).await?;
    let tributary = hub.serve_profiles(&context, &provider.flags_for_profiles(&hub)?).await?;
    let http = hub.http(&tributary).await?;
    for (name, member) in ["eu", "us"].iter().zip(&hub.members) {
        hub.set_profile(name, "True", "accessProviders", &cluster_of(name, member)).await?;
    }
    ensure!(hub.counts("fleet", 2, 2).await?.is_empty());
    hub.registry_refers("DecisionIncomplete").await?;
    hub.create(DEFINITIONS, &definition_of_decisions()).await?;
    eventually(SOON, async || hub.create_slice(0, "eu").await).await?;
    hub.serves(&http, &["eu"]).await?;
    hub.registry_refers("Resolved").await?;
    hub.create_slice(1, "us").await?;
    hub.serves(&http, &["eu", "us"]).await?;
    hub.server.http().delete(&format!("{DECISIONS}/batch-0")).send().await?.expect(200)?;
    hub.registry_refers("DecisionIncomplete").await?;
    hub.serves(&http, &["eu", "us"]).await
}
