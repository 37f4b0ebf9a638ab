//! The commands of the pages for users of Argo CD, Open Cluster Management, Rancher and KubeGateway. The hub has real
//! objects of these systems, and their members are real kube-apiservers.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_e2e::kubeconfig::{ContextParts, write_entries};
use tributary_e2e::{Kubectl, TestCluster, Tools, tributary};

use super::{Hub, SOON, USER};
use crate::context::{Case, TestContext, cases, eventually};
use crate::deployment::documented_hub::code_block;
use crate::shared_mode::grant;

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::documented";
        documented_sources_yield_members,
        documented_conversion_of_kubegateway_is_valid,
        documented_path_of_rancher_leads_to_a_member,
    ]
}

fn page(name: &str) -> anyhow::Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// Runs commands of a page with kubectl, the contexts of a kubeconfig, and the program under test.
async fn run(tools: &Tools, kubectl: &Kubectl, kubeconfig: &Path, commands: &str) -> anyhow::Result<String> {
    let programs = [tools.server("kubectl"), tributary::binary()?];
    let programs = programs.iter().filter_map(|program| program.parent()).map(ToOwned::to_owned);
    let path = env::join_paths(programs.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())))?;
    let mut command = Command::new("bash");
    command.args(["-ec", commands]).current_dir(kubeconfig.parent().context("no folder")?);
    command.env("KUBECONFIG", kubeconfig).env("PATH", path);
    kubectl.run_with(command, None).await?.success()
}

/// Returns the commands of a block that shows a terminal.
fn typed(block: &str) -> String {
    block.lines().filter_map(|line| line.strip_prefix("$ ")).collect::<Vec<_>>().join("\n")
}

/// Defines a resource that keeps all fields of its objects.
async fn define(hub: &TestCluster, (group, version): (&str, &str), kind: &str) -> anyhow::Result<()> {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Cluster", "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    hub.http().post(path, &definition).send().await?.expect(201)?;
    let path = format!("/apis/{group}/{version}/{plural}");
    eventually(SOON, async || hub.http().get(&path).send().await?.expect(200).map(drop)).await
}

fn secret(name: &str, labels: &Value, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> =
        data.iter().map(|(key, text)| ((*key).to_owned(), json!(STANDARD.encode(text)))).collect();
    let metadata = json!({"name": name, "labels": labels});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

/// A cluster Secret of Argo CD.
async fn add_to_argo_cd(hub: &Hub, member: &TestCluster) -> anyhow::Result<()> {
    hub.create_namespace("argocd").await?;
    let access = member.access();
    let config = json!({
        "bearerToken": access.token,
        "tlsClientConfig": {"caData": STANDARD.encode(&access.certificate_authority)},
    });
    let labels = json!({"argocd.argoproj.io/secret-type": "cluster"});
    let data: [(&str, &str); 3] = [("name", "eu"), ("server", &access.server), ("config", &config.to_string())];
    let path = "/api/v1/namespaces/argocd/secrets";
    hub.server.http().post(path, &secret("eu", &labels, &data)).send().await?.expect(201).map(drop)
}

/// A ManagedCluster, and the Secret of its ManagedServiceAccount.
async fn add_to_open_cluster_management(hub: &Hub, member: &TestCluster) -> anyhow::Result<()> {
    define(&hub.server, ("cluster.open-cluster-management.io", "v1"), "ManagedCluster").await?;
    hub.create_namespace("eu").await?;
    let access = member.access();
    let authority = STANDARD.encode(&access.certificate_authority);
    let cluster = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": "eu"},
        "spec": {
            "hubAcceptsClient": true,
            "managedClusterClientConfigs": [{"url": access.server, "caBundle": authority}],
        },
    });
    let path = "/apis/cluster.open-cluster-management.io/v1/managedclusters";
    hub.server.http().post(path, &cluster).send().await?.expect(201)?;
    let data: [(&str, &str); 2] = [("token", &access.token), ("ca.crt", &access.certificate_authority)];
    let label = json!({"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"});
    let secret = secret("tributary", &label, &data);
    hub.server.http().post("/api/v1/namespaces/eu/secrets", &secret).send().await?.expect(201).map(drop)
}

/// An UpstreamCluster of KubeGateway.
async fn add_to_kubegateway(hub: &Hub, member: &TestCluster) -> anyhow::Result<()> {
    define(&hub.server, ("proxy.kubegateway.io", "v1alpha1"), "UpstreamCluster").await?;
    let access = member.access();
    let cluster = json!({
        "apiVersion": "proxy.kubegateway.io/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "eu"},
        "spec": {
            "servers": [{"endpoint": access.server}],
            "clientConfig": {
                "bearerToken": STANDARD.encode(&access.token),
                "caData": STANDARD.encode(&access.certificate_authority),
            },
            "dispatchPolicies": [{"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}],
        },
    });
    let path = "/apis/proxy.kubegateway.io/v1alpha1/upstreamclusters";
    hub.server.http().post(path, &cluster).send().await?.expect(201).map(drop)
}

async fn documented_sources_yield_members(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let tools = context.fixture.tools().await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    let kubeconfig = hub.folder.path().join("hub.kubeconfig");
    write_entries(&kubeconfig, &[ContextParts { name: "hub".to_owned(), ..hub.server.access().entries() }])?;
    let kubectl = Kubectl::new(tools, &kubeconfig)?;
    let member = &hub.members[0];
    add_to_argo_cd(&hub, member).await?;
    add_to_open_cluster_management(&hub, member).await?;
    for name in ["from-argo-cd.md", "from-ocm.md"] {
        let document = page(name)?;
        let file = kubectl.file("source.yaml", &code_block(&document, "kind: ClusterSource")?)?;
        kubectl.ok(&["apply", "-f", &file]).await?;
        if let Err(error) = hub.serves(&http, &["eu"]).await {
            let sources = kubectl.ok(&["get", "clustersources", "-o", "yaml"]).await?;
            anyhow::bail!("{name}: {error:#}: {sources}");
        }
        eventually(SOON, async || {
            let table = run(tools, &kubectl, &kubeconfig, "kubectl --context hub get clustersources").await?;
            let row: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
            ensure!(row.get(2..4) == Some(&["1", "1"]), "{name}: {table}");
            Ok(())
        })
        .await?;
        run(tools, &kubectl, &kubeconfig, &code_block(&document, "delete clustersource")?).await?;
        hub.serves(&http, &[]).await.with_context(|| name.to_owned())?;
    }
    Ok(())
}

async fn documented_conversion_of_kubegateway_is_valid(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let tools = context.fixture.tools().await?;
    add_to_kubegateway(&hub, &hub.members[0]).await?;
    let kubeconfig = hub.folder.path().join("kubegateway.kubeconfig");
    write_entries(&kubeconfig, &[ContextParts { name: "kubegateway".to_owned(), ..hub.server.access().entries() }])?;
    let kubectl = Kubectl::new(tools, &kubeconfig)?;
    run(tools, &kubectl, &kubeconfig, &code_block(&page("from-kubegateway.md")?, "tributary convert")?).await?;
    let converted = fs::read_to_string(hub.folder.path().join("members/clusters.yaml"))?;
    ensure!(converted.contains("apiVersion: tributary.dev/v1alpha1"), "{converted}");
    ensure!(converted.contains(&hub.members[0].access().server), "{converted}");
    Ok(())
}

async fn documented_path_of_rancher_leads_to_a_member(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let tools = context.fixture.tools().await?;
    hub.add("c-m-7x2k", &hub.members[0]).await?;
    let nodes = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]);
    grant(&hub.members[0], "", &format!("{}-nodes", hub.namespace), USER, nodes).await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["c-m-7x2k"]).await?;
    let kubeconfig = hub.folder.path().join("user.kubeconfig");
    let kubectl = Kubectl::new(tools, &kubeconfig)?;
    let commands = typed(&code_block(&page("from-rancher.md")?, "/k8s/clusters/c-m-7x2k")?);
    let commands = commands.replace("https://tributary.example.com:6443", tributary.url());
    eventually(SOON, async || {
        let shown = run(tools, &kubectl, &kubeconfig, &commands).await?;
        ensure!(shown.contains("member1-node-0"), "{shown}");
        Ok(())
    })
    .await
}
