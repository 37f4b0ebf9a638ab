//! Tests the doors of Karmada. kubectl uses them like karmadactl (it gets the Cluster, and then uses the path
//! `clusters/NAME/proxy`), and uses the search proxy through the hub.

use std::path::PathBuf;

use anyhow::ensure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_e2e::kubeconfig::{self, ContextParts};
use tributary_e2e::{Kubectl, TestCluster, namespace};

use super::aggregated::Aggregated;
use super::{NAMESPACE, SOON};
use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::{Setup, pods};
use crate::shared_mode::{grant, make_config_map};

pub(super) const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

const SEARCH: &str = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy";

/// Namespace of the Secrets to which Karmada's Clusters refer.
const SECRETS: &str = "karmada-cluster";

/// Group of the user. The members' impersonator accounts may impersonate this group.
pub(super) const USERS: &str = "karmada-users";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::karmada";
        kubectl_reaches_clusters_by_the_proxy_paths_of_karmada,
    ]
}

/// Creates a CustomResourceDefinition of Karmada's Clusters in the hub. In a real control plane, an aggregated
/// apiserver of Karmada serves this kind.
pub(super) async fn define_clusters(server: &TestCluster) -> anyhow::Result<()> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.karmada.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
        "spec": {
            "group": "cluster.karmada.io", "scope": "Cluster",
            "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    server.http().post(path, &definition).send().await?.expect(201)?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SECRETS}});
    server.http().post("/api/v1/namespaces", &namespace).send().await?.expect(201)?;
    eventually(SOON, async || server.http().get(CLUSTERS).send().await?.expect(200).map(drop)).await
}

/// Creates a ServiceAccount in a member that may impersonate exactly one user and one group, as Karmada's unified
/// authentication does. Returns the account's token.
async fn impersonator(member: &TestCluster, namespace: &str, user: &str) -> anyhow::Result<String> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": user}});
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    member.http().post(&accounts, &account).send().await?.expect(201)?;
    let rules = json!([
        {"apiGroups": [""], "resources": ["users"], "resourceNames": [user], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": [USERS], "verbs": ["impersonate"]},
    ]);
    let name = namespace::unique_name("impersonator");
    grant(member, "", &name, &format!("system:serviceaccount:{namespace}:{user}"), rules).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = member.http().post(&format!("{accounts}/{user}/token"), &request).send().await?.expect(201)?.json()?;
    Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
}

/// Creates the Cluster of a member, and its Secrets. The Secrets have the Cluster as owner, as in Karmada.
pub(super) async fn join(aggregated: &Aggregated, name: &str, member: &TestCluster, user: &str) -> anyhow::Result<()> {
    let (http, access) = (aggregated.hub.server.http(), member.access());
    let secret = |name: &str| json!({"namespace": SECRETS, "name": name});
    let cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "syncMode": "Push", "apiEndpoint": access.server, "secretRef": secret(name),
            "impersonatorSecretRef": secret(&format!("{name}-impersonator")),
        },
    });
    let cluster = http.post(CLUSTERS, &cluster).send().await?.expect(201)?.json()?;
    let owner = json!([{
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": name, "uid": cluster["metadata"]["uid"],
    }]);
    let token = impersonator(member, &aggregated.hub.namespace, user).await?;
    for (name, token) in [(name.to_owned(), &access.token), (format!("{name}-impersonator"), &token)] {
        let authority = STANDARD.encode(&access.certificate_authority);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": owner},
            "data": {"token": STANDARD.encode(token), "caBundle": authority},
        });
        http.post(&format!("/api/v1/namespaces/{SECRETS}/secrets"), &secret).send().await?.expect(201)?;
    }
    Ok(())
}

/// Registers Tributary as the server of Karmada's search API group.
async fn serve_search(aggregated: &Aggregated) -> anyhow::Result<()> {
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1alpha1.search.karmada.io"},
        "spec": {
            "group": "search.karmada.io", "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 10,
            "service": {"namespace": NAMESPACE, "name": "tributary", "port": aggregated.port},
            "caBundle": STANDARD.encode(aggregated.authority.pem()),
        },
    });
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    aggregated.hub.server.http().post(path, &api_service).send().await?.expect(201).map(drop)
}

/// Writes a kubeconfig for a path of Tributary's own address, with a login of the hub.
pub(super) fn kubeconfig_at_address(aggregated: &Aggregated, user: &Value, path: &str) -> anyhow::Result<PathBuf> {
    let file = aggregated.hub.folder.path().join(namespace::unique_name("door"));
    let cluster = json!({
        "server": format!("https://127.0.0.1:{}{path}", aggregated.port),
        "certificate-authority-data": STANDARD.encode(aggregated.authority.pem()),
    });
    kubeconfig::write_entries(&file, &[ContextParts { name: "door".to_owned(), cluster, user: user.clone() }])?;
    Ok(file)
}

async fn kubectl_reaches_clusters_by_the_proxy_paths_of_karmada(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let hub = &aggregated.hub;
    define_clusters(&hub.server).await?;
    let user = aggregated.user_of_all_members().await?;
    let rules = json!([
        {"apiGroups": ["cluster.karmada.io"], "resources": ["clusters", "clusters/proxy"], "verbs": ["*"]},
        {"apiGroups": ["search.karmada.io"], "resources": ["proxying/proxy"], "verbs": ["*"]},
    ]);
    grant(&hub.server, "", &namespace::unique_name("doors"), &user, rules).await?;
    for (name, member) in ["eu", "us"].into_iter().zip(&hub.members) {
        join(&aggregated, name, member, &user).await?;
    }
    let source = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "ClusterSource", "metadata": {"name": "karmada"},
        "spec": {"karmadaClusters": {}},
    });
    hub.server.http().post("/apis/tributary.dev/v1alpha1/clustersources", &source).send().await?.expect(201)?;
    let tributary = aggregated.builder().argument("--door=karmada").start().await?;
    let _tributary = context.fixture.watch_log(tributary).await;
    aggregated.register_at(aggregated.port, Some(&aggregated.authority)).await?;
    serve_search(&aggregated).await?;
    let login = hub.server.people().user(&user, &[USERS])?;
    let ns = &hub.namespace;
    let tools = context.fixture.tools().await?;
    let kubectl = |path: &str| Kubectl::new(tools, &kubeconfig_at_address(&aggregated, &login, path)?);

    // Uses the search proxy through the hub.
    let search = Kubectl::new(tools, &aggregated.kubeconfig(&login, SEARCH)?)?;
    let origin = "-o=jsonpath={range .items[*]}{.metadata.name}={.metadata.annotations.resource\\.karmada\\.io/cached-from-cluster} {end}";
    eventually(SOON, async || {
        let shown = search.ok(&["get", "configmaps", "-n", ns, origin]).await?;
        ensure!(shown.contains("of-member1=eu") && shown.contains("of-member2=us"), "{shown}");
        Ok(())
    })
    .await?;
    let mut watching = search.spawn(&["get", "configmaps", "-n", ns, "-w", "-o", "name"])?;
    watching.wait_for_output(SOON, |text| text.contains("of-member1") && text.contains("of-member2")).await?;
    make_config_map(&hub.members[1], ns, "new", 1).await?;
    watching.wait_for_output(SOON, |text| text.contains("configmap/new")).await?;
    // No member has this kind, so Tributary forwards the request to the control plane, as the user.
    let clusters = search.ok(&["get", "clusters.cluster.karmada.io", "-o", "name"]).await?;
    ensure!(clusters.contains("cluster.karmada.io/eu") && clusters.contains("/us"), "{clusters}");
    let refused = search.run(&["get", "apiservices"]).await?.failure()?;
    ensure!(refused.contains("Forbidden") && refused.contains(&user), "{refused}");

    // Uses the path of one member, as karmadactl does.
    let path = format!("{CLUSTERS}/us/proxy");
    let native = kubectl(&path)?;
    let setup = Setup { kubectl: native, namespace: ns.clone(), members: hub.members.clone(), _tributary: None };
    setup.running_pod(1, "two").await?;
    pods::check_logs(&setup, "two", 1).await?;
    let hello = setup.kubectl.ok(&setup.arguments(&["exec", "two", "--", "sh", "-c", "echo $MEMBER"])).await?;
    ensure!(hello.trim() == hub.members[1].name(), "{hello}");
    let described = setup.kubectl.ok(&setup.arguments(&["describe", "pod", "two"])).await?;
    ensure!(described.contains("two"), "{described}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied", "namespace": ns}});
    let file = setup.kubectl.file("map.json", &map.to_string())?;
    setup.kubectl.ok(&["apply", "-f", &file]).await?;
    let path = format!("/api/v1/namespaces/{ns}/configmaps/applied");
    hub.members[1].http().get(&path).send().await?.expect(200)?;
    let refused = setup.kubectl.run(&setup.arguments(&["get", "configmaps", "--as", "root"])).await?.failure()?;
    ensure!(refused.contains("Forbidden") || refused.contains("forbidden"), "{refused}");

    // Uses the path of all members.
    let all = kubectl(&format!("{CLUSTERS}/*/proxy"))?;
    let listed = all.ok(&["get", "configmaps", "-n", ns, "-o", "name"]).await?;
    ensure!(listed.contains("of-member1") && listed.contains("of-member2"), "{listed}");
    let logs = all.ok(&["logs", "-n", ns, "two"]).await?;
    ensure!(logs.contains("hello from"), "{logs}");
    for member in &hub.members {
        make_config_map(member, ns, "both", 1).await?;
    }
    let http = aggregated.direct(&login).await?;
    let maps = format!("{CLUSTERS}/*/proxy/api/v1/namespaces/{ns}/configmaps");
    for (path, status, text) in [
        (format!("{maps}/none"), 404, "resource not found or don't have permission to get it\n"),
        (format!("{maps}/both"), 409, "conflict resource, exist in more than one cluster: eu,us\n"),
        (format!("{maps}?watch=true"), 405, "Request verb watch is not support\n"),
    ] {
        eventually(SOON, async || {
            let answer = http.get(&path).send().await?;
            let body = String::from_utf8_lossy(&answer.body);
            ensure!(answer.status == status && body == text, "{path}: {} {body}", answer.status);
            Ok(())
        })
        .await?;
    }
    all.run(&["create", "configmap", "made", "-n", ns]).await?.failure()?;
    ensure!(all.ok(&["version"]).await?.contains("Server Version"), "the control plane answers /version");
    Ok(())
}
