//! Tests to which cluster a write goes. The file names the cluster, or the write refers to objects that determine it.
//! Tributary never guesses the cluster.

use super::{SOON, Setup};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::ensure;
use serde_json::json;
use std::sync::Arc;
use tributary_e2e::{Access, Kubectl, Tributary, kubeconfig, namespace, ports};

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl";
        annotated_file_is_applied_repeatedly_to_its_cluster, file_from_the_merged_view_is_accepted_only_by_its_cluster,
        name_is_not_written_before_all_clusters_are_listed, new_object_goes_to_the_only_cluster_with_its_namespace,
        binding_and_ephemeral_container_are_written_to_the_cluster_of_their_pod,
    ]
}

/// A ConfigMap with the annotation for `member2`.
fn of_member2(name: &str, step: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"step": step},
        "metadata": {"name": name, "annotations": {"tributary.dev/cluster": "member2"}},
    })
    .to_string()
}

async fn annotated_file_is_applied_repeatedly_to_its_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "twin").await?;
    setup.map(1, "twin").await?;
    setup.map(0, "only").await?;
    for name in ["twin", "only", "new"] {
        for step in ["1", "2", "2"] {
            let file = setup.kubectl.file(&format!("{name}.json"), &of_member2(name, step))?;
            let arguments = ["apply", "--server-side", "--force-conflicts", "-f", &file];
            setup.ok(&arguments).await?;
            ensure!(setup.stored(1, "configmaps", name).await?["data"]["step"] == *step, "{name} is not at {step}");
        }
        if name != "new" {
            ensure!(setup.stored(0, "configmaps", name).await?["data"]["step"] == "0", "{name} of member1 was changed");
        }
    }
    setup.members[0].http().get(&setup.path("configmaps/new")).send().await?.expect(404)?;
    Ok(())
}

/// Users often read an object from the merged view, and then write it with the context of one cluster.
async fn file_from_the_merged_view_is_accepted_only_by_its_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let mut file = String::new();
    for command in ["replace", "apply"] {
        setup.map(0, command).await?;
        let given = setup.ok(&["get", "configmap", command, "-o", "yaml"]).await?;
        ensure!(given.contains("tributary.dev/cluster: member1"), "{given}");
        file = setup.kubectl.file("given.yaml", &given.replace("step: \"0\"", "step: \"1\""))?;
        setup.ok(&["--context", "member1", command, "-f", &file]).await?;
        let stored = setup.stored(0, "configmaps", command).await?;
        ensure!(stored["data"]["step"] == "1", "{command}: {stored}");
        ensure!(stored["metadata"]["annotations"]["tributary.dev/cluster"].is_null(), "{command}: {stored}");
    }
    // `kubectl replace` reads the object first, so it may also fail because the object does not exist in this cluster.
    for (command, may_be_missing) in [("create", false), ("apply", false), ("replace", true)] {
        let refused = setup.run(&["--context", "member2", command, "-f", &file]).await?.failure()?;
        let is_refused = ["member1", "member2"].iter().all(|name| refused.contains(name));
        ensure!(is_refused || may_be_missing && refused.contains("NotFound"), "{command}: {refused}");
    }
    setup.members[1].http().get(&setup.path("configmaps/apply")).send().await?.expect(404)?;
    Ok(())
}

async fn name_is_not_written_before_all_clusters_are_listed(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let namespace = context.namespace("kubectl", &members).await?;
    let folder = tributary_e2e::guard::temporary_folder("unseen")?;
    let path = folder.path().join("kubeconfig");
    let server = format!("https://127.0.0.1:{}", ports::free_port()?);
    let unseen = Access { name: "unseen".into(), server, ..members[0].access() };
    kubeconfig::write(&path, &[&members[1].access(), &unseen])?;
    let tributary = Tributary::builder(&path, ["member2", "unseen"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"step": "0"}});
    members[1].http().post(&maps, &object).send().await?.expect(201)?;
    let run = async |arguments: &[&str]| kubectl.run(&[&["-n", &namespace], arguments].concat()).await;
    eventually(SOON, async || {
        let shown = run(&["get", "configmap", "web"]).await?;
        ensure!(shown.stdout.contains("web") && shown.stderr.contains("unseen"), "{shown:?}");
        Ok(())
    })
    .await?;
    for arguments in [
        &["label", "configmap", "web", "a=b"][..],
        &["patch", "configmap", "web", "-p", r#"{"data":{"step":"1"}}"#],
        &["delete", "configmap", "web"],
    ] {
        let refused = run(arguments).await?.failure()?;
        ensure!(
            refused.contains("kubectl --context member2") && refused.contains("unseen"),
            "{arguments:?}: {refused}"
        );
    }
    let stored = members[1].http().get(&format!("{maps}/web")).send().await?.expect(200)?.json()?;
    ensure!(stored["data"]["step"] == "0" && stored["metadata"]["labels"].is_null(), "it was changed: {stored}");
    // A file with the annotation of the right cluster must be accepted.
    let file = kubectl.file("web.json", &of_member2("web", "2"))?;
    run(&["apply", "--server-side", "--force-conflicts", "-f", &file]).await?.success()?;
    run(&["--context", "member2", "label", "configmap", "web", "a=b"]).await?.success()?;
    let stored = members[1].http().get(&format!("{maps}/web")).send().await?.expect(200)?.json()?;
    ensure!(stored["data"]["step"] == "2" && stored["metadata"]["labels"]["a"] == "b", "{stored}");
    Ok(())
}

async fn new_object_goes_to_the_only_cluster_with_its_namespace(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let [_, second] = &setup.members;
    let only = context.namespace("only", &[Arc::clone(second)]).await?;
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let unplaced = Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await?;
    let unplaced = context.fixture.watch_log(unplaced).await;
    let unplaced = unplaced.kubectl(context.fixture.tools().await?)?;
    let create = async |kubectl: &Kubectl, name: &str| {
        eventually(SOON, async || {
            let shown = kubectl.run(&["get", "namespace", &only]).await?;
            shown.success()?;
            Ok(())
        })
        .await?;
        kubectl.ok(&["-n", &only, "create", "configmap", name]).await?;
        let path = format!("/api/v1/namespaces/{only}/configmaps/{name}");
        second.http().get(&path).send().await?.expect(200)
    };
    // The object goes to the only cluster with the namespace. `--create-in member1` has no effect, because `member1`
    // does not have the namespace.
    create(&unplaced, "unplaced").await?;
    create(&setup.kubectl, "placed").await?;
    // The annotation names a cluster without the namespace. Tributary must refuse the write and name the cluster with
    // the namespace.
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "lost", "namespace": only, "annotations": {"tributary.dev/cluster": "member1"}},
    });
    let file = setup.kubectl.file("lost.json", &object.to_string())?;
    for command in [&["create"][..], &["apply", "--server-side"]] {
        let refused = setup.kubectl.run(&[command, &["-f", &file]].concat()).await?.failure()?;
        for word in [&*only, "member1", "member2", "annotation"] {
            ensure!(refused.contains(word), "{command:?}, no {word}: {refused}");
        }
    }
    // Clients read the details in the member's refusal of a missing namespace. Tributary's refusal must have the same
    // details.
    let missing = namespace::unique_name("missing");
    let path = format!("/api/v1/namespaces/{missing}/configmaps");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lost"}});
    let of_member = second.http().post(&path, &object).send().await?.expect(404)?.json()?;
    ensure!(of_member["details"]["kind"] == "namespaces" && of_member["details"]["name"] == *missing, "{of_member}");
    let apply = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"lost"}}"#;
    let applied = second.http().patch(
        &format!("{path}/lost?fieldManager=e2e"),
        "apply-patch+yaml",
        &serde_json::from_str(apply)?,
    );
    let applied = applied.send().await?.expect(404)?.json()?;
    ensure!(applied["details"]["kind"] == "namespaces" && applied["details"]["name"] == *missing, "{applied}");
    Ok(())
}

async fn binding_and_ephemeral_container_are_written_to_the_cluster_of_their_pod(
    context: TestContext,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    for name in ["one", "two"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
        });
        setup.put(1, &setup.path("pods"), &pod).await?;
        eventually(SOON, async || setup.ok(&["get", "pod", name]).await.map(drop)).await?;
    }
    for (name, path) in [("one", "bindings"), ("two", "pods/two/binding")] {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "member2-node-0"},
        });
        let file = setup.kubectl.file(&format!("{name}.json"), &binding.to_string())?;
        let answer = setup.ok(&["create", "--raw", &setup.path(path), "-f", &file]).await?;
        ensure!(answer.contains(r#""status":"Success""#), "{answer}");
        let stored = setup.stored(1, "pods", name).await?;
        ensure!(stored["spec"]["nodeName"] == "member2-node-0", "{path}: {stored}");
        // A pod can be bound only once.
        let refused = setup.run(&["create", "--raw", &setup.path(path), "-f", &file]).await?.failure()?;
        ensure!(refused.contains("is already assigned to node"), "{path}: {refused}");
    }
    setup.ok(&["debug", "one", "--image=i", "--container=debugger", "--attach=false"]).await?;
    let stored = setup.stored(1, "pods", "one").await?;
    ensure!(stored["spec"]["ephemeralContainers"][0]["name"] == "debugger", "{stored}");
    Ok(())
}
