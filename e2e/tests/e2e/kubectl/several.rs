//! Tests kubectl commands whose requests depend on earlier responses, over two members.

use super::{SOON, Setup, deployment, line, pod};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tributary_e2e::{Access, Tributary, kubeconfig, ports};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubectl_get_all_has_objects_of_both_members, get_of_several_kinds_has_objects_of_both_members,
        get_in_chunks_has_objects_of_both_members, kubectl_describe_prints_only_events_with_the_uid_of_the_object,
        kubectl_wait_supports_create_condition_and_jsonpath, kubectl_rollout_works_in_the_second_cluster,
        apply_prune_deletes_objects_in_both_clusters, kubectl_replace_keeps_the_cluster_of_the_object,
        kubectl_expose_creates_in_the_default_or_context_cluster,
        apply_of_several_kinds_writes_each_object_to_its_cluster,
        unreachable_cluster_fails_only_in_its_own_context, kubectl_auth_can_i_list_prints_the_same_rules_as_at_a_member,
        kubectl_auth_can_i_names_the_cluster_that_denies,
    ]
}

/// Creates a Deployment in a member, whose pods run on the member's node.
async fn deploy(setup: &Setup, member: usize, name: &str) -> anyhow::Result<()> {
    let node = format!("{}-node-0", setup.members[member].name());
    let text = deployment(name).replace("member1-node-0", &node);
    let object: Value = serde_json::from_str(&text).context("read the deployment")?;
    setup.put(member, &format!("/apis/apps/v1/namespaces/{}/deployments", setup.namespace), &object).await
}

async fn kubectl_get_all_has_objects_of_both_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    deploy(&setup, 0, "one").await?;
    deploy(&setup, 1, "two").await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "two"}, "spec": {"ports": [{"port": 80}]},
    });
    setup.put(1, &setup.path("services"), &service).await?;
    for arguments in [&["get", "all"][..], &["get", "all", "-A"]] {
        eventually(SOON, async || {
            let text = setup.ok(arguments).await?;
            let rows: Vec<Vec<&str>> = text
                .lines()
                .filter(|line| arguments.len() == 2 || line.starts_with(&setup.namespace))
                .map(|line| line.split_whitespace().skip(arguments.len() - 2).collect())
                .collect();
            for (name, cluster, of_the_name) in [
                ("deployment.apps/one", "member1", 1),
                ("deployment.apps/two", "member2", 1),
                ("replicaset.apps/one-", "member1", 1),
                ("replicaset.apps/two-", "member2", 1),
                ("pod/one-", "member1", 1),
                ("pod/two-", "member2", 1),
                ("service/two", "member2", 1),
            ] {
                let found: Vec<_> =
                    rows.iter().filter(|row| row.first().is_some_and(|cell| cell.starts_with(name))).collect();
                ensure!(found.len() == of_the_name && found[0][1] == cluster, "{name} in {cluster}?\n{text}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn get_of_several_kinds_has_objects_of_both_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "one").await?;
    setup.map(1, "two").await?;
    deploy(&setup, 1, "two").await?;
    eventually(SOON, async || {
        let names = setup.ok(&["get", "configmaps,deployments", "-o", "name"]).await?;
        ensure!(names == "configmap/one\nconfigmap/two\ndeployment.apps/two\n", "{names}");
        Ok(())
    })
    .await?;
    let text = setup.ok(&["get", "configmap/two", "configmap/one", "deployment/two"]).await?;
    for (name, cluster) in
        [("configmap/one", "member1"), ("configmap/two", "member2"), ("deployment.apps/two", "member2")]
    {
        ensure!(line(&text, &[name])?[1] == cluster, "{text}");
    }
    let partly = setup.run(&["get", "configmap/two", "configmap/three"]).await?;
    ensure!(partly.stdout.contains("two") && partly.stderr.contains("\"three\" not found"), "{partly:?}");
    Ok(())
}

async fn get_in_chunks_has_objects_of_both_members(context: TestContext) -> anyhow::Result<()> {
    const EACH: usize = 12;
    let setup = Setup::new(&context).await?;
    for (member, prefix) in [(0, "b"), (1, "a")] {
        for index in 0..EACH {
            let name = format!("{prefix}-{index:02}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            setup.put(member, &setup.path("configmaps"), &object).await?;
        }
    }
    let in_order = |prefix: &'static str| (0..EACH).map(move |index| format!("configmap/{prefix}-{index:02}\n"));
    let by_cluster: String = in_order("b").chain(in_order("a")).collect();
    eventually(SOON, async || {
        // The third of five pages must have objects of both clusters.
        let output = setup.run(&["get", "configmaps", "--chunk-size=5", "-o", "name", "-v=6"]).await?;
        ensure!(output.stdout == by_cluster, "{}", output.stdout);
        let pages = output.stderr.lines().filter(|line| line.contains("limit=5")).count();
        ensure!(pages == 5, "{pages} pages: {}", output.stderr);
        Ok(())
    })
    .await?;
    let sorted = setup.ok(&["get", "configmaps", "--chunk-size=5", "--sort-by=.metadata.name", "-o", "name"]).await?;
    ensure!(sorted == in_order("a").chain(in_order("b")).collect::<String>(), "{sorted}");
    Ok(())
}

fn event(name: &str, pod: &str, uid: &Value, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid},
        "reason": "Told", "message": message, "type": "Normal", "lastTimestamp": "2026-01-01T00:00:00Z",
    })
}

/// kubectl lists the events of an object by its uid. Events of an object with the same name in a different cluster must
/// not appear.
async fn kubectl_describe_prints_only_events_with_the_uid_of_the_object(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let uid = setup.stored(1, "pods", "two").await?["metadata"]["uid"].clone();
    let mut own = event("own", "two", &uid, "the owner said this");
    let mut other = event("other", "two", &json!("not-that-uid"), "somebody else said this");
    for (member, event) in [(1, &mut own), (0, &mut other)] {
        event["involvedObject"]["namespace"] = json!(setup.namespace);
        setup.put(member, &setup.path("events"), event).await?;
    }
    eventually(SOON, async || {
        let text = setup.ok(&["describe", "pod", "two"]).await?;
        ensure!(text.contains("the owner said this") && !text.contains("somebody else"), "{text}");
        Ok(())
    })
    .await
}

async fn kubectl_wait_supports_create_condition_and_jsonpath(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    for condition in ["create", "condition=Ready", "jsonpath={.status.phase}=Running"] {
        let name = format!("p{}", condition.len());
        let (pod_name, condition) = (format!("pod/{name}"), format!("--for={condition}"));
        let arguments = setup.arguments(&["wait", &pod_name, &condition, "--timeout=60s"]);
        // Only `--for=create` waits for an object that does not exist yet.
        let waits_for_nothing = condition == "--for=create";
        let object = pod(&name, "member2-node-0");
        if !waits_for_nothing {
            setup.put(1, &setup.path("pods"), &object).await?;
            eventually(SOON, async || setup.ok(&["get", &pod_name]).await.map(drop)).await?;
        }
        let mut waiting = setup.kubectl.spawn(&arguments)?;
        if waits_for_nothing {
            setup.put(1, &setup.path("pods"), &object).await?;
        }
        let status = waiting.wait(SOON).await?;
        ensure!(status.success(), "{condition}: {}", waiting.errors());
    }
    // The command selects pods by label, and must wait for pods in both clusters.
    setup.running_pod(0, "one").await?;
    setup.ok(&["wait", "--for=condition=Ready", "pods", "--all", "--timeout=60s"]).await?;
    let gone = setup.arguments(&["wait", "--for=delete", "pods", "--all", "--timeout=60s"]);
    let mut waiting = setup.kubectl.spawn(&gone)?;
    setup.ok(&["delete", "pods", "--all", "--wait=false"]).await?;
    let status = waiting.wait(SOON).await?;
    ensure!(status.success(), "{}", waiting.errors());
    eventually(SOON, async || {
        let left = setup.ok(&["get", "pods", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}

async fn kubectl_rollout_works_in_the_second_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    deploy(&setup, 1, "app").await?;
    eventually(SOON, async || setup.ok(&["get", "deployment", "app"]).await.map(drop)).await?;
    let status = ["rollout", "status", "deployment/app", "--timeout=60s"];
    setup.ok(&status).await?;
    setup.ok(&["wait", "--for=condition=Available", "deployment/app", "--timeout=60s"]).await?;
    setup.ok(&["set", "image", "deployment/app", "main=example.test/main:2"]).await?;
    setup.ok(&status).await?;
    setup.ok(&["rollout", "undo", "deployment/app"]).await?;
    setup.ok(&status).await?;
    setup.ok(&["rollout", "restart", "deployment/app"]).await?;
    setup.ok(&status).await?;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/app", setup.namespace);
    let stored = setup.members[1].http().get(&path).send().await?.expect(200)?.json()?;
    let template = &stored["spec"]["template"];
    ensure!(template["spec"]["containers"][0]["image"] == "example.test/main:1", "{stored}");
    ensure!(template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string(), "{stored}");
    setup.members[0].http().get(&path).send().await?.expect(404)?;
    Ok(())
}

fn map(name: &str, cluster: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "pruned"}, "annotations": {"tributary.dev/cluster": cluster}},
    })
    .to_string()
}

async fn apply_prune_deletes_objects_in_both_clusters(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let all = [map("a", "member1"), map("b", "member1"), map("c", "member2"), map("d", "member2")].join("\n");
    let all = setup.kubectl.file("all.json", &all)?;
    let some = setup.kubectl.file("some.json", &[map("a", "member1"), map("c", "member2")].join("\n"))?;
    setup.ok(&["apply", "-f", &all]).await?;
    let prune = ["apply", "-f", &some, "--prune", "-l", "app=pruned", "--prune-allowlist=core/v1/ConfigMap"];
    let text = setup.ok(&prune).await?;
    for line in ["configmap/a unchanged", "configmap/c unchanged", "configmap/b pruned", "configmap/d pruned"] {
        ensure!(text.contains(line), "{text}");
    }
    for (member, kept, pruned) in [(0, "a", "b"), (1, "c", "d")] {
        setup.stored(member, "configmaps", kept).await?;
        let path = setup.path(&format!("configmaps/{pruned}"));
        setup.members[member].http().get(&path).send().await?.expect(404)?;
    }
    Ok(())
}

/// An object from the merged view has an annotation with its cluster. A forced replace deletes the object, and must
/// create it again in the same cluster.
async fn kubectl_replace_keeps_the_cluster_of_the_object(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    let read = setup.ok(&["get", "configmap", "two", "-o", "json"]).await?;
    let file = setup.kubectl.file("two.json", &read.replace("\"step\": \"0\"", "\"step\": \"1\""))?;
    setup.ok(&["replace", "-f", &file]).await?;
    ensure!(setup.stored(1, "configmaps", "two").await?["data"]["step"] == "1", "not replaced");
    let stale = setup.run(&["replace", "-f", &file]).await?.failure()?;
    ensure!(stale.contains("(Conflict)") && stale.contains("modified"), "{stale}");
    setup.ok(&["replace", "--force", "-f", &file]).await?;
    let stored = setup.stored(1, "configmaps", "two").await?;
    ensure!(stored["data"]["step"] == "1" && stored["metadata"]["annotations"].is_null(), "{stored}");
    setup.members[0].http().get(&setup.path("configmaps/two")).send().await?.expect(404)?;
    Ok(())
}

/// The Service that `expose` creates has no annotation, so it goes to the default cluster or to the cluster of the
/// kubeconfig context.
async fn kubectl_expose_creates_in_the_default_or_context_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    deploy(&setup, 1, "app").await?;
    eventually(SOON, async || setup.ok(&["get", "deployment", "app"]).await.map(drop)).await?;
    setup.ok(&["expose", "deployment", "app", "--port=80"]).await?;
    setup.stored(0, "services", "app").await?;
    setup.ok(&["--context", "member2", "expose", "deployment", "app", "--port=80", "--name=beside"]).await?;
    setup.stored(1, "services", "beside").await?;
    Ok(())
}

async fn apply_of_several_kinds_writes_each_object_to_its_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}).to_string();
    let file = setup.kubectl.file("several.json", &[account, map("two", "member2"), deployment("app")].join("\n"))?;
    let text = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(text.lines().count() == 3 && text.lines().all(|line| line.ends_with(" created")), "{text}");
    let again = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    setup.stored(0, "serviceaccounts", "robot").await?;
    setup.stored(1, "configmaps", "two").await?;
    setup.ok(&["delete", "-f", &file, "--timeout=60s"]).await?;
    setup.members[1].http().get(&setup.path("configmaps/two")).send().await?.expect(404)?;
    Ok(())
}

/// The test makes a cluster unreachable. A command with the context of this cluster must fail, and the merged view must
/// show the objects of the reachable cluster.
async fn unreachable_cluster_fails_only_in_its_own_context(context: TestContext) -> anyhow::Result<()> {
    let [one, _] = context.fixture.pair().await?;
    let folder = tributary_e2e::guard::temporary_folder("dead")?;
    let path = folder.path().join("kubeconfig");
    let server = format!("https://127.0.0.1:{}", ports::free_port()?);
    let dead = Access { name: "deadcluster".into(), server, ..one.access() };
    kubeconfig::write(&path, &[&one.access(), &dead])?;
    let tributary = Tributary::builder(&path, ["member1", "deadcluster"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    for arguments in [&["get", "pods", "-A"][..], &["get", "--raw", "/api"], &["api-resources"], &["logs", "some"]] {
        let arguments = [&["--context", "deadcluster"], arguments].concat();
        let refused = kubectl.run(&arguments).await?.failure()?;
        ensure!(refused.contains("deadcluster"), "{arguments:?}: {refused}");
    }
    let nodes = kubectl.run(&["get", "nodes"]).await?;
    ensure!(nodes.code == Some(0) && nodes.stdout.contains("member1-node-0"), "{nodes:?}");
    ensure!(nodes.stderr.contains("Warning: ") && nodes.stderr.contains("deadcluster"), "{nodes:?}");
    // Tributary cannot answer 404, because the unreachable cluster may have a node with this name.
    let unknown = kubectl.run(&["get", "node", "nowhere"]).await?.failure()?;
    ensure!(unknown.contains("deadcluster") && !unknown.contains("(NotFound)"), "{unknown}");
    let ready = kubectl.run(&["get", "--raw", "/readyz?verbose"]).await?;
    ensure!(format!("{ready:?}").contains("deadcluster"), "{ready:?}");
    Ok(())
}

async fn kubectl_auth_can_i_list_prints_the_same_rules_as_at_a_member(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let shown = setup.ok(&["auth", "can-i", "--list"]).await?;
    let own = setup.ok(&["--context", "member1", "auth", "can-i", "--list"]).await?;
    let sorted = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        lines.sort();
        lines
    };
    ensure!(sorted(&shown) == sorted(&own), "{shown}\ninstead of\n{own}");
    ensure!(line(&shown, &["*.*"]).is_ok(), "{shown}");
    Ok(())
}

/// If only one cluster allows an access, the merged view denies it. The reason must name the cluster that denies the
/// access.
async fn kubectl_auth_can_i_names_the_cluster_that_denies(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}});
    setup.put(1, &setup.path("serviceaccounts"), &account).await?;
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}", setup.namespace);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "viewer"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
    });
    setup.put(1, &format!("{rbac}/roles"), &role).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": setup.namespace}],
    });
    setup.put(1, &format!("{rbac}/rolebindings"), &binding).await?;
    let [one, two] = &setup.members;
    let viewer = ["-n", &setup.namespace, "create", "token", "viewer"];
    let token = setup.kubectl.ok(&[&["--context", "member2"][..], &viewer].concat()).await?.trim().to_owned();

    let folder = tributary_e2e::guard::temporary_folder("viewer")?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &[&one.access(), &Access { token, ..two.access() }])?;
    let tributary = Tributary::builder(&path, ["member1", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let ask =
        async |arguments: &[&str]| kubectl.run(&[&["-n", &setup.namespace, "auth", "can-i"], arguments].concat()).await;
    eventually(SOON, async || {
        let list = ask(&["list", "pods"]).await?;
        ensure!(list.stdout.trim() == "yes", "{list:?}");
        let delete = ask(&["delete", "pods"]).await?;
        ensure!(delete.code == Some(1) && delete.stdout.starts_with("no"), "{delete:?}");
        ensure!(delete.stdout.contains("member2") && !delete.stdout.contains("member1"), "{delete:?}");
        let all = ask(&["--list"]).await?;
        ensure!(line(&all.stdout, &["pods"]).is_ok() && line(&all.stdout, &["*.*"]).is_err(), "{all:?}");
        Ok(())
    })
    .await
}
