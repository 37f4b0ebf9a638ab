//! Open Cluster Management: members behind its user-server, and the door with the paths of the user-server.

use std::path::PathBuf;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_e2e::kubeconfig::{self, ContextParts};
use tributary_e2e::user_server::{SERVICE, UserServer};
use tributary_e2e::{HttpClient, Kubectl, TestCluster, Tributary, namespace, ports};

use super::aggregated::create_account;
use super::{Hub, NAMESPACE, SOON, logs};
use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::{Setup, pods};
use crate::shared_mode::{grant, make_config_map, reads_config_maps};

const CLUSTERS: &str = "/apis/cluster.open-cluster-management.io/v1/managedclusters";

/// The name of the ManagedServiceAccount, and of its Secret in the namespace of each cluster.
const ACCOUNT: &str = "tributary";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::ocm";
        kubectl_uses_the_door_of_open_cluster_management,
    ]
}

/// Defines ManagedClusters in the hub, and joins both members as `eu` and `us`.
async fn join_members(hub: &Hub) -> anyhow::Result<()> {
    let http = hub.server.http();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "managedclusters.cluster.open-cluster-management.io"},
        "spec": {
            "group": "cluster.open-cluster-management.io", "scope": "Cluster",
            "names": {"kind": "ManagedCluster", "plural": "managedclusters", "singular": "managedcluster"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    http.post(path, &definition).send().await?.expect(201)?;
    eventually(SOON, async || http.get(CLUSTERS).send().await?.expect(200).map(drop)).await?;
    for (name, member) in ["eu", "us"].into_iter().zip(&hub.members) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        http.post("/api/v1/namespaces", &object).send().await?.expect(201)?;
        let label = json!({"authentication.open-cluster-management.io/is-managed-serviceaccount": "true"});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": ACCOUNT, "labels": label},
            "data": {"token": STANDARD.encode(&member.access().token)},
        });
        http.post(&format!("/api/v1/namespaces/{name}/secrets"), &secret).send().await?.expect(201)?;
        let cluster = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": name}, "spec": {"hubAcceptsClient": true},
        });
        http.post(CLUSTERS, &cluster).send().await?.expect(201)?;
    }
    Ok(())
}

/// Returns a new token of a member's ServiceAccount, which managed-serviceaccount stores in its Secret after a
/// rotation.
async fn make_account(member: &TestCluster, namespace: &str, name: &str) -> anyhow::Result<String> {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    member.http().post(&accounts, &account).send().await?.expect(201)?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = member.http().post(&format!("{accounts}/{name}/token"), &request).send().await?.expect(201)?.json()?;
    Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
}

/// Writes a kubeconfig for a path of the door.
fn at_door(hub: &Hub, tributary: &Tributary, port: u16, path: &str, token: &str) -> anyhow::Result<PathBuf> {
    let file = hub.folder.path().join(namespace::unique_name("ocm"));
    let authority = std::fs::read(tributary.folder().join("data/ca.crt"))?;
    let cluster = json!({
        "server": format!("https://127.0.0.1:{port}{path}"),
        "certificate-authority-data": STANDARD.encode(authority),
    });
    kubeconfig::write_entries(
        &file,
        &[ContextParts { name: "ocm".to_owned(), cluster, user: json!({"token": token}) }],
    )?;
    Ok(file)
}

async fn kubectl_uses_the_door_of_open_cluster_management(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let [first, second] = &hub.members;
    join_members(&hub).await?;
    let user_server = UserServer::start(&[("eu", first.access()), ("us", second.access())]).await?;
    let port = ports::free_port()?;
    let tributary = hub.builder().argument(format!("--ocm-listen=127.0.0.1:{port}")).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let server = json!({
        "url": user_server.url(), "caData": STANDARD.encode(user_server.authority()), "tlsServerName": SERVICE,
    });
    let list = json!({"managedServiceAccount": ACCOUNT, "userServer": server, "tokenPassThrough": true});
    let source = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "ClusterSource", "metadata": {"name": "ocm"},
        "spec": {"managedClusters": list},
    });
    hub.server.http().post("/apis/tributary.dev/v1alpha1/clustersources", &source).send().await?.expect(201)?;
    let merged = hub.http(&tributary).await?;
    hub.serves(&merged, &["eu", "us"]).await?;
    ensure!(user_server.requests() > 0, "the members are reached without the user-server");

    // A ServiceAccount of the hub.
    let (ns, name) = (&hub.namespace, namespace::unique_name("robot"));
    let robot = create_account(&hub, &name).await?;
    let in_members = format!("cluster:hub:system:serviceaccount:{NAMESPACE}:{name}");
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    grant(second, ns, &name, &in_members, all).await?;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &at_door(&hub, &tributary, port, "/us", &robot)?)?;
    let setup = Setup { kubectl, namespace: ns.clone(), members: hub.members.clone(), _tributary: None };
    eventually(SOON, async || {
        let who = setup.kubectl.ok(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
        ensure!(who == in_members, "{who}");
        Ok(())
    })
    .await?;
    setup.running_pod(1, "two").await?;
    pods::check_logs(&setup, "two", 1).await?;
    let hello = setup.kubectl.ok(&setup.arguments(&["exec", "two", "--", "sh", "-c", "echo $MEMBER"])).await?;
    ensure!(hello.trim() == second.name(), "{hello}");

    // A ServiceAccount of the member, with its own token.
    let app = make_account(second, ns, "app").await?;
    let account = format!("system:serviceaccount:{ns}:app");
    grant(second, ns, &format!("{ns}-app"), &account, reads_config_maps()).await?;
    let own = Kubectl::new(context.fixture.tools().await?, &at_door(&hub, &tributary, port, "/us", &app)?)?;
    eventually(SOON, async || {
        let who = own.ok(&["auth", "whoami", "-o", "json"]).await?;
        ensure!(who.contains(&account) && who.contains("credential-id"), "{who}");
        Ok(())
    })
    .await?;
    own.ok(&["get", "configmaps", "-n", ns]).await?;

    // Errors.
    let service = format!("/us/api/v1/namespaces/{ns}/services/https:web:443/proxy-service/metrics");
    for (path, status) in [("/", 400), ("/none/api", 502), (service.as_str(), 403)] {
        // The server may close a connection between two requests.
        let http = HttpClient::from_kubeconfig(&at_door(&hub, &tributary, port, "", &robot)?, None).await?;
        let answer = http.get(path).send().await?.expect(status)?;
        let is_text = answer.header("content-type").starts_with("text/plain");
        ensure!(is_text == (status != 403), "{path}: {}", answer.text());
    }
    let guessed = HttpClient::from_kubeconfig(&at_door(&hub, &tributary, port, "", "guessed")?, None).await?;
    for path in ["/us/api", "/none/api", "/healthz"] {
        ensure!(guessed.get(path).send().await?.expect(401)?.text() == "Unauthorized\n", "{path}");
    }

    // managed-serviceaccount replaces the token.
    let rotated = make_account(second, ns, "rotated").await?;
    grant(second, "", &format!("{ns}-rotated"), &format!("system:serviceaccount:{ns}:rotated"), administrators())
        .await?;
    let patch = json!({"data": {"token": STANDARD.encode(&rotated)}});
    let path = format!("/api/v1/namespaces/us/secrets/{ACCOUNT}");
    hub.server.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    logs(&tributary, &["cluster=us", "the cluster's credentials are renewed"]).await?;
    make_config_map(second, ns, "after-the-rotation", 1).await?;
    setup.kubectl.ok(&setup.arguments(&["get", "configmap", "after-the-rotation"])).await?;
    ensure!(!tributary.log().contains(&rotated) && !tributary.log().contains(&robot), "the log has a token");
    Ok(())
}

/// The rights of the account that managed-serviceaccount makes for Tributary.
fn administrators() -> Value {
    json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ])
}
