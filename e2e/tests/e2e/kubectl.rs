//! The real kubectl against Tributary over two members. What a kubelet answers (logs, exec, attach, port-forward) is also
//! asked of a member directly, to know that the fixture is right.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tributary_e2e::{Kubectl, Member, Tributary, kubeconfig, kubectl::Output, ports};

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    cases!["kubectl";
        kubelet_of_a_member, get_all_namespaces_shows_clusters, get_output_forms, get_watch, get_by_name_and_selector,
        describe, logs, logs_follow, exec, exec_with_input, attach, port_forward, scale, edit, apply_creates_and_changes,
        apply_server_side, delete, delete_by_selector, annotate_and_label, patch, rollout, create_with_annotation,
        create_without_target_is_explained, create_in_flag, ambiguous_names, per_cluster_context, api_resources, explain,
        version, sort_and_columns, diff, wait, can_i, events, cluster_info,
    ]
}

/// kubectl, a namespace in both members, and the members.
struct Setup {
    kubectl: Kubectl,
    namespace: String,
    members: [Arc<Member>; 2],
    _tributary: Option<Arc<Tributary>>,
}

impl Setup {
    async fn new(context: &TestContext) -> anyhow::Result<Self> {
        let tributary = context.fixture.over_two().await?;
        let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
        let members = context.fixture.pair().await?.clone();
        let namespace = context.namespace("kubectl", &members).await?;
        Ok(Self { kubectl, namespace, members, _tributary: Some(tributary) })
    }

    /// The same without Tributary: the first member itself.
    async fn of_a_member(context: &TestContext) -> anyhow::Result<Self> {
        let members = context.fixture.pair().await?.clone();
        let kubectl = Kubectl::new(context.fixture.tools().await?, &members[0].kubeconfig())?;
        let namespace = context.namespace("kubectl", &members).await?;
        Ok(Self { kubectl, namespace, members, _tributary: None })
    }

    fn arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [&["-n", self.namespace.as_str()], arguments].concat()
    }

    /// kubectl in the namespace; its standard output.
    async fn ok(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl.ok(&self.arguments(arguments)).await
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.kubectl.run(&self.arguments(arguments)).await
    }

    /// Creates an object directly in a member.
    async fn put(&self, member: usize, path: &str, object: &Value) -> anyhow::Result<()> {
        self.members[member].http().post(path, object).send().await?.expect(201)?;
        Ok(())
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// A pod on the node of a member, and waits until kwok runs it and kubectl sees so.
    async fn running_pod(&self, member: usize, name: &str) -> anyhow::Result<()> {
        let node = format!("{}-node-0", self.members[member].name());
        self.put(member, &self.path("pods"), &pod(name, &node)).await?;
        self.phase_is(name, "Running").await
    }

    async fn phase_is(&self, name: &str, phase: &str) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let shown = self.ok(&["get", "pod", name, "-o", "jsonpath={.status.phase}"]).await?;
            ensure!(shown == phase, "pod {name} is {shown}");
            Ok(())
        })
        .await
    }

    /// A config map directly in a member, and waits until kubectl sees it.
    async fn map(&self, member: usize, name: &str) -> anyhow::Result<()> {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"step": "0"}});
        self.put(member, &self.path("configmaps"), &object).await?;
        eventually(SOON, async || {
            let shown = self.ok(&["get", "configmaps", "-o", "name"]).await?;
            ensure!(shown.contains(&format!("configmap/{name}\n")), "{shown}");
            Ok(())
        })
        .await
    }

    /// An object as a member stores it.
    async fn stored(&self, member: usize, resource: &str, name: &str) -> anyhow::Result<Value> {
        let path = self.path(&format!("{resource}/{name}"));
        self.members[member].http().get(&path).send().await?.expect(200)?.json()
    }
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.test/main:1"}]},
    })
}

/// The cells of the line of a table that begins with these words.
fn line<'a>(table: &'a str, words: &[&str]) -> anyhow::Result<Vec<&'a str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|cells| cells.starts_with(words))
        .with_context(|| format!("no line {words:?} in\n{table}"))
}

async fn kubelet_of_a_member(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::of_a_member(&context).await?;
    setup.running_pod(0, "one").await?;
    check_logs(&setup, "one", 0).await?;
    check_exec(&setup, "one", 0).await?;
    check_exec_with_input(&setup, "one").await?;
    check_attach(&setup, "one", 0).await?;
    check_port_forward(&setup, "one").await
}

async fn get_all_namespaces_shows_clusters(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    let table = setup.kubectl.ok(&["get", "pods", "-A"]).await?;
    let header = line(&table, &["NAMESPACE"])?;
    ensure!(header == ["NAMESPACE", "NAME", "CLUSTER", "READY", "STATUS", "RESTARTS", "AGE"], "{header:?}");
    for (name, cluster) in [("one", "member1"), ("two", "member2")] {
        let cells = line(&table, &[&setup.namespace, name])?;
        ensure!(cells[2..6] == [cluster, "1/1", "Running", "0"], "{cells:?}");
    }
    Ok(())
}

async fn get_output_forms(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    let names = setup.ok(&["get", "pods", "-o", "name"]).await?;
    ensure!(names == "pod/one\npod/two\n", "{names}");
    let json: Value = serde_json::from_str(&setup.ok(&["get", "pods", "-o", "json"]).await?).context("read -o json")?;
    let clusters: Vec<&Value> = json["items"]
        .as_array()
        .context("no items")?
        .iter()
        .map(|item| &item["metadata"]["annotations"]["tributary.dev/cluster"])
        .collect();
    ensure!(clusters == [&json!("member1"), &json!("member2")], "{clusters:?}");
    let yaml = setup.ok(&["get", "pod", "two", "-o", "yaml"]).await?;
    ensure!(yaml.contains("kind: Pod") && yaml.contains("tributary.dev/cluster: member2"), "{yaml}");
    let wide = setup.ok(&["get", "pods", "-o", "wide"]).await?;
    ensure!(line(&wide, &["NAME"])?.contains(&"NODE"), "{wide}");
    ensure!(line(&wide, &["two", "member2"])?.contains(&"member2-node-0"), "{wide}");
    Ok(())
}

async fn get_watch(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "before").await?;
    let arguments = setup.arguments(&["get", "configmaps", "-w"]);
    let mut watching = setup.kubectl.spawn(&arguments)?;
    watching.wait_for_output(SOON, |text| text.contains("before")).await?;
    setup.map(0, "in-one").await?;
    setup.map(1, "in-two").await?;
    let text = watching.wait_for_output(SOON, |text| text.contains("in-one") && text.contains("in-two")).await?;
    ensure!(line(&text, &["in-two"])?[1] == "member2", "{text}");
    // By name: kubectl watches with a field selector.
    let arguments = setup.arguments(&["get", "configmap", "in-two", "-w", "-o", "jsonpath={.data.step};"]);
    let mut watching = setup.kubectl.spawn(&arguments)?;
    watching.wait_for_output(SOON, |text| text.contains("0;")).await?;
    setup.ok(&["patch", "configmap", "in-two", "--type=merge", "-p", r#"{"data":{"step":"1"}}"#]).await?;
    watching.wait_for_output(SOON, |text| text.contains("1;")).await?;
    Ok(())
}

async fn get_by_name_and_selector(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    let one = setup.ok(&["get", "pod", "two"]).await?;
    ensure!(line(&one, &["two", "member2"]).is_ok() && one.lines().count() == 2, "{one}");
    let selected = setup.ok(&["get", "pods", "-l", "app=two", "-o", "name"]).await?;
    ensure!(selected == "pod/two\n", "{selected}");
    let on_node = setup.ok(&["get", "pods", "--field-selector=spec.nodeName=member1-node-0", "-o", "name"]).await?;
    ensure!(on_node == "pod/one\n", "{on_node}");
    let missing = setup.run(&["get", "pod", "three"]).await?.failure()?;
    ensure!(missing.contains("(NotFound)") && missing.contains("pods \"three\" not found"), "{missing}");
    Ok(())
}

async fn describe(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let text = setup.ok(&["describe", "pod", "two"]).await?;
    ensure!(text.contains("member2-node-0") && text.contains("example.test/main:1"), "{text}");
    let text = setup.kubectl.ok(&["describe", "node", "member2-node-0"]).await?;
    ensure!(text.contains("Ready") && text.contains("member2-node-0"), "{text}");
    Ok(())
}

async fn check_logs(setup: &Setup, pod: &str, member: usize) -> anyhow::Result<()> {
    let text = setup.ok(&["logs", pod]).await?;
    let expected = format!("hello from {}", setup.members[member].name());
    ensure!(text.contains(&expected), "{text:?}");
    Ok(())
}

async fn logs(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    check_logs(&setup, "one", 0).await?;
    check_logs(&setup, "two", 1).await
}

async fn logs_follow(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let mut following = setup.kubectl.spawn(&setup.arguments(&["logs", "-f", "two"]))?;
    following.wait_for_output(SOON, |text| text.contains("hello from member2")).await?;
    let line = format!("later {}", setup.namespace);
    setup.members[1].append_container_log(&line)?;
    following.wait_for_output(SOON, |text| text.contains(&line)).await?;
    Ok(())
}

async fn check_exec(setup: &Setup, pod: &str, member: usize) -> anyhow::Result<()> {
    let text = setup.ok(&["exec", pod, "--", "sh", "-c", "echo $MEMBER; echo trouble >&2"]).await?;
    ensure!(text.trim() == setup.members[member].name(), "{text:?}");
    let failed = setup.run(&["exec", pod, "--", "sh", "-c", "exit 3"]).await?;
    // kwok tells a failed command as an error of its own, not as an exit code.
    ensure!(failed.code != Some(0) && failed.stderr.contains("exit status 3"), "{failed:?}");
    Ok(())
}

async fn exec(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(0, "one").await?;
    setup.running_pod(1, "two").await?;
    check_exec(&setup, "one", 0).await?;
    check_exec(&setup, "two", 1).await
}

/// Sends bytes through and reads them back. The command ends by itself after the last line: kwok does not tell it that
/// the input has ended.
async fn check_exec_with_input(setup: &Setup, pod: &str) -> anyhow::Result<()> {
    let text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    let command = setup.kubectl.command(&setup.arguments(&["exec", "-i", pod, "--", "head", "-n", "20000"]));
    let output = setup.kubectl.run_with(command, Some(&text)).await?.success()?;
    ensure!(output == text, "{} of {} bytes came back", output.len(), text.len());
    Ok(())
}

async fn exec_with_input(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_exec_with_input(&setup, "two").await
}

async fn check_attach(setup: &Setup, pod: &str, member: usize) -> anyhow::Result<()> {
    let attached = setup.kubectl.spawn(&setup.arguments(&["attach", pod]))?;
    // Attaching shows what is written from then on; when that is, nobody says, so it is written again and again.
    let expected = format!("attached {}", setup.namespace);
    eventually(SOON, async || {
        setup.members[member].append_container_log(&expected)?;
        let text = attached.output();
        ensure!(text.contains(&expected), "{text:?} {}", attached.errors());
        Ok(())
    })
    .await
}

async fn attach(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_attach(&setup, "two", 1).await
}

async fn check_port_forward(setup: &Setup, pod: &str) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let port = ports::free_port()?;
    let mapping = format!("{port}:8080");
    let mut forwarding = setup.kubectl.spawn(&setup.arguments(&["port-forward", pod, &mapping]))?;
    forwarding.wait_for_output(SOON, |text| text.contains("Forwarding from 127.0.0.1")).await?;
    for _ in 0..3 {
        let mut connection = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.context("connect")?;
        let request = b"GET /health HTTP/1.1\r\nHost: etcd\r\n\r\n";
        connection.write_all(request).await.context("write")?;
        // Until the body is there, not until the end: kwok keeps its half of the connection open.
        let mut answer = Vec::new();
        let whole = async {
            while !String::from_utf8_lossy(&answer).contains("\"health\"") {
                ensure!(connection.read_buf(&mut answer).await.context("read")? > 0, "the connection ended");
            }
            Ok(())
        };
        tokio::time::timeout(SOON, whole).await.context("no answer")??;
        ensure!(answer.starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

async fn port_forward(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    check_port_forward(&setup, "two").await
}

fn deployment(name: &str) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeName": "member1-node-0", "containers": [{"name": "main", "image": "example.test/main:1"}]},
            },
        },
    })
    .to_string()
}

async fn scale(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let object: Value = serde_json::from_str(&deployment("app")).context("read the deployment")?;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", setup.namespace);
    setup.put(1, &path, &object).await?;
    eventually(SOON, async || setup.ok(&["get", "deployment", "app"]).await.map(|_| ())).await?;
    setup.ok(&["scale", "deployment", "app", "--replicas=3"]).await?;
    let stored = setup.members[1].http().get(&format!("{path}/app")).send().await?.expect(200)?.json()?;
    ensure!(stored["spec"]["replicas"] == 3, "{stored}");
    let wrong = setup.run(&["scale", "deployment", "app", "--replicas=1", "--current-replicas=7"]).await?;
    wrong.failure()?;
    Ok(())
}

async fn edit(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    let mut command = setup.kubectl.command(&setup.arguments(&["edit", "configmap", "two"]));
    command.env("EDITOR", "sed -i 's/step: \"0\"/step: edited/'");
    setup.kubectl.run_with(command, None).await?.success()?;
    let stored = setup.stored(1, "configmaps", "two").await?;
    ensure!(stored["data"]["step"] == "edited", "{stored}");
    ensure!(stored["metadata"]["annotations"]["tributary.dev/cluster"].is_null(), "{stored}");
    Ok(())
}

async fn apply_creates_and_changes(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    let created = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(created.contains("deployment.apps/app created"), "{created}");
    let unchanged = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(unchanged.contains("unchanged"), "{unchanged}");
    setup.kubectl.file("app.json", &deployment("app").replace("main:1", "main:2"))?;
    let changed = setup.ok(&["apply", "-f", &file]).await?;
    ensure!(changed.contains("configured"), "{changed}");
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/app", setup.namespace);
    let stored = setup.members[0].http().get(&path).send().await?.expect(200)?.json()?;
    ensure!(stored.to_string().contains("main:2"), "{stored}");
    // The controllers of the member act on it and the result is seen here.
    eventually(SOON, async || {
        let ready = setup.ok(&["get", "deployment", "app", "-o", "jsonpath={.status.readyReplicas}"]).await?;
        ensure!(ready == "1", "{ready:?} ready");
        Ok(())
    })
    .await
}

async fn apply_server_side(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    setup.ok(&["apply", "--server-side", "-f", &file]).await?;
    setup.kubectl.file("app.json", &deployment("app").replace("main:1", "main:3"))?;
    setup.ok(&["apply", "--server-side", "-f", &file]).await?;
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let shown = setup.ok(&["get", "deployment", "app", "-o", image]).await?;
    ensure!(shown == "example.test/main:3", "{shown}");
    Ok(())
}

async fn delete(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.running_pod(1, "two").await?;
    let text = setup.ok(&["delete", "pod", "two", "--timeout=60s"]).await?;
    ensure!(text.contains("pod \"two\" deleted"), "{text}");
    setup.run(&["get", "pod", "two"]).await?.failure()?;
    let missing = setup.run(&["delete", "pod", "two"]).await?.failure()?;
    ensure!(missing.contains("(NotFound)"), "{missing}");
    setup.ok(&["delete", "pod", "two", "--ignore-not-found"]).await?;
    Ok(())
}

async fn delete_by_selector(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "one").await?;
    setup.map(1, "two").await?;
    for name in ["one", "two"] {
        setup.ok(&["label", "configmap", name, "doomed=yes"]).await?;
    }
    setup.ok(&["delete", "configmaps", "-l", "doomed=yes", "--timeout=60s"]).await?;
    eventually(SOON, async || {
        let left = setup.ok(&["get", "configmaps", "-o", "name"]).await?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}

async fn annotate_and_label(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    setup.ok(&["annotate", "configmap", "two", "color=blue"]).await?;
    setup.ok(&["label", "configmap", "two", "size=large"]).await?;
    let metadata = setup.stored(1, "configmaps", "two").await?["metadata"].clone();
    ensure!(metadata["annotations"] == json!({"color": "blue"}), "{metadata}");
    ensure!(metadata["labels"] == json!({"size": "large"}), "{metadata}");
    setup.ok(&["annotate", "configmap", "two", "color-"]).await?;
    let metadata = setup.stored(1, "configmaps", "two").await?["metadata"].clone();
    ensure!(metadata["annotations"].is_null(), "{metadata}");
    Ok(())
}

async fn patch(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    for (kind, body, step) in [
        ("merge", r#"{"data":{"step":"1"}}"#, "1"),
        ("strategic", r#"{"data":{"step":"2"}}"#, "2"),
        ("json", r#"[{"op":"replace","path":"/data/step","value":"3"}]"#, "3"),
    ] {
        setup.ok(&["patch", "configmap", "two", &format!("--type={kind}"), "-p", body]).await?;
        let stored = setup.stored(1, "configmaps", "two").await?;
        ensure!(stored["data"]["step"] == step, "{stored}");
    }
    Ok(())
}

async fn rollout(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    setup.ok(&["apply", "-f", &file]).await?;
    setup.ok(&["rollout", "status", "deployment", "app", "--timeout=60s"]).await?;
    setup.ok(&["set", "image", "deployment/app", "main=example.test/main:9"]).await?;
    setup.ok(&["rollout", "status", "deployment", "app", "--timeout=60s"]).await?;
    let history = setup.ok(&["rollout", "history", "deployment", "app"]).await?;
    ensure!(history.lines().filter(|line| line.starts_with(['1', '2'])).count() == 2, "{history}");
    Ok(())
}

async fn create_with_annotation(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "placed", "annotations": {"tributary.dev/cluster": "member2"}},
    });
    let file = setup.kubectl.file("placed.json", &object.to_string())?;
    setup.ok(&["create", "-f", &file]).await?;
    let stored = setup.stored(1, "configmaps", "placed").await?;
    ensure!(stored["metadata"]["annotations"]["tributary.dev/cluster"].is_null(), "{stored}");
    let table = setup.ok(&["get", "configmaps"]).await?;
    ensure!(line(&table, &["placed"])?[1] == "member2", "{table}");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "lost", "annotations": {"tributary.dev/cluster": "nowhere"}},
    });
    let file = setup.kubectl.file("lost.json", &object.to_string())?;
    let refused = setup.run(&["create", "-f", &file]).await?.failure()?;
    ensure!(refused.contains("nowhere") && refused.contains("member1"), "{refused}");
    Ok(())
}

async fn create_without_target_is_explained(context: TestContext) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let tributary = Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let members = context.fixture.pair().await?.clone();
    let namespace = context.namespace("kubectl", &members).await?;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let refused = kubectl.run(&["-n", &namespace, "create", "configmap", "lost"]).await?.failure()?;
    for word in ["tributary.dev/cluster", "member1", "member2"] {
        ensure!(refused.contains(word), "no {word} in {refused}");
    }
    for member in &members {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/lost");
        member.http().get(&path).send().await?.expect(404)?;
    }
    Ok(())
}

async fn create_in_flag(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.ok(&["create", "configmap", "made", "--from-literal=a=b"]).await?;
    ensure!(setup.stored(0, "configmaps", "made").await?["data"]["a"] == "b", "not in member1");
    let path = setup.path("configmaps/made");
    setup.members[1].http().get(&path).send().await?.expect(404)?;
    Ok(())
}

async fn ambiguous_names(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "twin").await?;
    setup.map(1, "twin").await?;
    eventually(SOON, async || {
        let table = setup.ok(&["get", "configmaps"]).await?;
        ensure!(table.lines().filter(|line| line.starts_with("twin")).count() == 2, "{table}");
        Ok(())
    })
    .await?;
    for arguments in
        [&["get", "configmap", "twin"][..], &["delete", "configmap", "twin"], &["label", "configmap", "twin", "a=b"]]
    {
        let refused = setup.run(arguments).await?.failure()?;
        for word in ["member1", "member2", "/clusters/"] {
            ensure!(refused.contains(word), "no {word} in {refused}");
        }
    }
    // In one cluster's view it is not ambiguous.
    setup.ok(&["--context", "member2", "label", "configmap", "twin", "a=b"]).await?;
    ensure!(setup.stored(1, "configmaps", "twin").await?["metadata"]["labels"]["a"] == "b", "not in member2");
    ensure!(setup.stored(0, "configmaps", "twin").await?["metadata"]["labels"].is_null(), "in member1 too");
    Ok(())
}

async fn per_cluster_context(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let nodes = setup.kubectl.ok(&["--context", "member2", "get", "nodes"]).await?;
    ensure!(line(&nodes, &["member2-node-0"]).is_ok() && !nodes.contains("member1-node-0"), "{nodes}");
    ensure!(!nodes.contains("CLUSTER"), "{nodes}");
    let both = setup.kubectl.ok(&["get", "nodes"]).await?;
    ensure!(both.contains("member1-node-0") && both.contains("member2-node-0") && both.contains("CLUSTER"), "{both}");
    let (contexts, current) = kubeconfig::contexts(setup._tributary.as_ref().context("no tributary")?.kubeconfig())?;
    ensure!(current.as_deref() == Some("all"), "{current:?}");
    for name in ["all", "member1", "member2"] {
        ensure!(contexts.iter().any(|context| context == name), "{contexts:?}");
    }
    Ok(())
}

async fn api_resources(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let shown = setup.kubectl.ok(&["api-resources", "--no-headers"]).await?;
    let own = setup.kubectl.ok(&["--context", "member1", "api-resources", "--no-headers"]).await?;
    let sorted = |text: &str| -> Vec<String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    ensure!(sorted(&shown) == sorted(&own), "{shown}\ninstead of\n{own}");
    Ok(())
}

async fn explain(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let text = setup.kubectl.ok(&["explain", "deployment.spec.replicas"]).await?;
    ensure!(text.contains("FIELD: replicas") && text.contains("integer"), "{text}");
    Ok(())
}

async fn version(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let text = setup.kubectl.ok(&["version"]).await?;
    ensure!(text.contains("Server Version: v1.36.3"), "{text}");
    Ok(())
}

async fn sort_and_columns(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(0, "b").await?;
    setup.map(1, "a").await?;
    let sorted = setup.ok(&["get", "configmaps", "--sort-by=.metadata.name"]).await?;
    let names: Vec<&str> = sorted.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(names == ["a", "b"], "{sorted}");
    let columns = "custom-columns=NAME:.metadata.name,CLUSTER:.metadata.annotations.tributary\\.dev/cluster";
    let custom = setup.ok(&["get", "configmaps", "-o", columns]).await?;
    ensure!(line(&custom, &["a", "member2"]).is_ok(), "{custom}");
    let labels = setup.ok(&["get", "configmaps", "--show-labels"]).await?;
    ensure!(line(&labels, &["NAME"])?.last() == Some(&"LABELS"), "{labels}");
    Ok(())
}

async fn diff(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("app.json", &deployment("app"))?;
    setup.ok(&["apply", "-f", &file]).await?;
    setup.kubectl.file("app.json", &deployment("app").replace("main:1", "main:2"))?;
    let output = setup.run(&["diff", "-f", &file]).await?;
    ensure!(output.code == Some(1) && output.stdout.contains("+      - image: example.test/main:2"), "{output:?}");
    Ok(())
}

async fn wait(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.map(1, "two").await?;
    let arguments = setup.arguments(&["wait", "configmap/two", "--for=jsonpath={.data.step}=done", "--timeout=60s"]);
    let mut waiting = setup.kubectl.spawn(&arguments)?;
    setup.ok(&["patch", "configmap", "two", "--type=merge", "-p", r#"{"data":{"step":"done"}}"#]).await?;
    let status = waiting.wait(SOON).await?;
    ensure!(status.success(), "{}", waiting.errors());
    let gone = setup.arguments(&["wait", "configmap/two", "--for=delete", "--timeout=60s"]);
    let mut waiting = setup.kubectl.spawn(&gone)?;
    setup.ok(&["delete", "configmap", "two"]).await?;
    let status = waiting.wait(SOON).await?;
    ensure!(status.success(), "{}", waiting.errors());
    Ok(())
}

async fn can_i(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let answer = setup.ok(&["auth", "can-i", "delete", "pods"]).await?;
    ensure!(answer.trim() == "yes", "{answer}");
    Ok(())
}

async fn events(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    for (member, reason) in [(0, "FromOne"), (1, "FromTwo")] {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": reason.to_lowercase(), "namespace": setup.namespace},
            "involvedObject": {"kind": "Pod", "name": "some", "namespace": setup.namespace},
            "reason": reason, "message": "seen", "type": "Normal", "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        setup.put(member, &setup.path("events"), &event).await?;
    }
    eventually(SOON, async || {
        let text = setup.ok(&["events"]).await?;
        ensure!(text.contains("FromOne") && text.contains("FromTwo"), "{text}");
        Ok(())
    })
    .await
}

async fn cluster_info(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let text = setup.kubectl.ok(&["cluster-info"]).await?;
    ensure!(text.contains("is running at"), "{text}");
    let raw = setup.kubectl.ok(&["get", "--raw", "/readyz?verbose"]).await?;
    ensure!(raw.contains("member1") && raw.contains("member2"), "{raw}");
    Ok(())
}
