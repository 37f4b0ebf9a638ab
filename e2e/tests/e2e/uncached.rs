//! Tests collections that Tributary cannot cache: of an aggregated API server whose versions are not numbers, and of a
//! context without the right to list.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::ensure;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tributary_e2e::{AggregatedServer, TestCluster, Tributary, kubeconfig};

const SOON: Duration = Duration::from_secs(60);

/// Longest duration of a kubectl command. Before a repeated request, kubectl waits at least a second, so the limit
/// shows that it repeats none.
const AT_ONCE: Duration = Duration::from_secs(3);

pub(crate) fn cases() -> Vec<Case> {
    cases!["uncached";
        calico_kinds_without_numeric_versions_work_in_the_merged_view,
        object_is_read_by_name_without_the_right_to_list,
    ]
}

/// Makes a NetworkPolicy in the form of Calico's API server.
fn policy(namespace: &str, name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "resourceVersion": version},
        "spec": {"selector": "all()"},
    })
}

/// Starts an aggregated API server that behaves like Calico's and has one policy, and registers it with the member.
async fn calico(member: &TestCluster, namespace: &str) -> anyhow::Result<AggregatedServer> {
    let server = AggregatedServer::start().await?;
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    server.set_resources(
        "projectcalico.org/v3",
        &json!([{"name": "networkpolicies", "singularName": "networkpolicy", "namespaced": true,
            "kind": "NetworkPolicy", "shortNames": ["caliconetworkpolicy"], "verbs": verbs}]),
    );
    let list = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicyList", "metadata": {"resourceVersion": "100/107"},
        "items": [policy(namespace, "a", "100/")],
    });
    let root = "/apis/projectcalico.org/v3";
    server.set(&format!("{root}/networkpolicies"), list.clone());
    server.set(&format!("{root}/namespaces/{namespace}/networkpolicies/a"), policy(namespace, "a", "100/"));
    server.echo("108/");
    server.register(member, "projectcalico.org", "v3").await?;
    eventually(SOON, async || {
        member.http().get(&format!("{root}/networkpolicies")).send().await?.expect(200)?;
        Ok(())
    })
    .await?;
    Ok(server)
}

async fn calico_kinds_without_numeric_versions_work_in_the_merged_view(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let own = Arc::new(TestCluster::builder("calico").start(tools).await?);
    let other = Arc::clone(&context.fixture.pair().await?[1]);
    let namespace = context.namespace("uncached", &[Arc::clone(&own)]).await?;
    let _server = calico(&own, &namespace).await?;
    let path = own.folder().join("both.kubeconfig");
    kubeconfig::write(&path, &[&own.access(), &other.access()])?;
    let tributary = Tributary::builder(&path, ["calico", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(tools)?;
    let of = "networkpolicies.projectcalico.org";

    let listed = kubectl.ok(&["get", of, "-A"]).await?;
    ensure!(listed.contains("calico") && listed.lines().count() == 2, "{listed}");
    for arguments in [
        &["get", of, "a", "-o", "yaml"][..],
        &["label", of, "a", "x=y"],
        &["annotate", of, "a", "x=y"],
        &["delete", of, "a", "--wait=false"],
    ] {
        let begun = Instant::now();
        let arguments = [&["-n", namespace.as_str()], arguments].concat();
        let output = kubectl.run(&arguments).await?;
        ensure!(output.stderr.is_empty(), "{arguments:?}: {}", output.stderr);
        output.success()?;
        ensure!(begun.elapsed() < AT_ONCE, "{arguments:?} took {:?}", begun.elapsed());
    }
    let mut new = policy(&namespace, "w", "");
    for field in ["uid", "resourceVersion"] {
        new["metadata"].as_object_mut().unwrap().remove(field);
    }
    let file = kubectl.file("new.json", &new.to_string())?;
    for arguments in
        [&["create", "-f", &file, "-o", "json"][..], &["apply", "--server-side", "-f", &file, "-o", "json"]]
    {
        let made: Value = serde_json::from_str(&kubectl.ok(arguments).await?)?;
        ensure!(made["metadata"]["annotations"]["tributary.dev/cluster"] == "calico", "{arguments:?}: {made}");
    }
    // If the object exists, a client-side apply sends a get and then a patch.
    let mut changed = policy(&namespace, "a", "");
    for field in ["uid", "resourceVersion"] {
        changed["metadata"].as_object_mut().unwrap().remove(field);
    }
    changed["spec"]["selector"] = "has(x)".into();
    let file = kubectl.file("changed.json", &changed.to_string())?;
    let applied = kubectl.ok(&["apply", "-f", &file]).await?;
    ensure!(applied.contains("configured"), "{applied}");
    let watched = kubectl.run(&["get", of, "-A", "--watch-only"]).await?.failure()?;
    ensure!(watched.contains("kubectl --context calico …"), "{watched}");

    let http = tributary.http().await?;
    http.get("/readyz/cluster/calico").send().await?.expect(200)?;
    let report: Value = serde_json::from_slice(&http.get("/tributary/status").send().await?.expect(200)?.body)?;
    ensure!(report["clusters"][0]["condition"] == "Ready", "{report}");
    Ok(())
}

/// Creates a ServiceAccount that may get, patch and delete one ConfigMap by its name. Returns its token.
async fn limited(member: &TestCluster, namespace: &str) -> anyhow::Result<String> {
    let post = async |path: &str, body: Value| member.http().post(path, &body).send().await?.expect(201);
    let own = format!("/api/v1/namespaces/{namespace}");
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    post(&format!("{own}/configmaps"), json!({"metadata": {"name": "keep"}})).await?;
    post(&format!("{own}/serviceaccounts"), json!({"metadata": {"name": "lim"}})).await?;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["keep"],
        "verbs": ["get", "patch", "delete"]}]);
    post(&format!("{rbac}/roles"), json!({"metadata": {"name": "lim"}, "rules": rules})).await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lim"});
    let subjects = json!([{"kind": "ServiceAccount", "name": "lim", "namespace": namespace}]);
    let binding = json!({"metadata": {"name": "lim"}, "roleRef": role, "subjects": subjects});
    post(&format!("{rbac}/rolebindings"), binding).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token: Value = serde_json::from_slice(&post(&format!("{own}/serviceaccounts/lim/token"), request).await?.body)?;
    Ok(token["status"]["token"].as_str().unwrap_or_default().to_owned())
}

async fn object_is_read_by_name_without_the_right_to_list(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let [one, two] = context.fixture.pair().await?;
    let namespace = context.namespace("uncached", &[Arc::clone(one)]).await?;
    let mut access = one.access();
    access.name = "lim".to_owned();
    access.token = limited(one, &namespace).await?;
    let folder = tributary_e2e::guard::temporary_folder("uncached")?;
    let path = folder.path().join("lim.kubeconfig");
    kubeconfig::write(&path, &[&access, &two.access()])?;
    let tributary = Tributary::builder(&path, ["lim", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(tools)?;
    let run = async |arguments: &[&str]| {
        let begun = Instant::now();
        let arguments = [&["-n", namespace.as_str()], arguments].concat();
        let output = kubectl.run(&arguments).await?;
        ensure!(begun.elapsed() < AT_ONCE, "{arguments:?} took {:?}: {}", begun.elapsed(), output.stderr);
        Ok(output)
    };
    for arguments in
        [&["get", "configmap", "keep"][..], &["label", "configmap", "keep", "x=y"], &["delete", "configmap", "keep"]]
    {
        run(arguments).await?.success()?;
    }
    // The response must be the cluster's 403. After a 404, kubectl would also read the namespace.
    for arguments in [
        &["get", "secret", "x"][..],
        &["get", "namespace", &namespace],
        &["annotate", "configmap", "nope", "a=b"],
        &["delete", "configmap", "nope"],
    ] {
        let said = run(arguments).await?.failure()?;
        ensure!(said.contains("Forbidden") && said.contains("system:serviceaccount:"), "{arguments:?}: {said}");
    }
    Ok(())
}
