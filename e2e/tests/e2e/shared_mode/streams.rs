//! A long-running request must end when its user loses the right or credential with which it was opened. The requests
//! are the real kubectl's logs, exec and port-forward, and watches.

use super::{SOON, Shared, grant, reads_config_maps, revoke};
use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::pod;
use anyhow::ensure;
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};
use tokio::time::Instant;
use tributary_e2e::{PeopleAuthority, Process, guard, namespace, ports};

/// Longest time on a busy machine from a change of rights or credentials until the requests end.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// Value of `--max-stream-age`. It is longer than the start of three kubectl processes on a busy machine, and short
/// enough for a test.
const STREAM_AGE: Duration = Duration::from_secs(20);

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::streams";
        open_streams_end_when_the_right_is_revoked, open_streams_end_when_the_client_authority_is_replaced,
        open_streams_end_at_their_maximum_age, open_streams_of_a_denied_user_end,
        kubernikus_996_exec_by_http_get_requires_the_right_to_create,
    ]
}

/// User with running `kubectl logs -f`, `exec` and `port-forward` processes. Their pod is in a namespace of the first
/// member.
struct Person {
    shared: Shared,
    name: String,
    namespace: String,
    open: Vec<Process>,
    begun: Vec<Instant>,
}

impl Person {
    async fn start(context: &TestContext, shared: Shared) -> anyhow::Result<Self> {
        let (name, member) = (namespace::unique_name("ann"), &shared.members[0]);
        let namespace = context.namespace("streams", &shared.members).await?;
        let rules = what_they_may(&["get", "list", "watch", "create"]);
        grant(member, &namespace, &name, &name, rules).await?;
        let node = format!("{}-node-0", member.name());
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        member.http().post(&path, &pod("one", &node)).send().await?.expect(201)?;
        let kubectl = shared.kubectl(context, &name, &[]).await?;
        let running = ["-n", &*namespace, "get", "pod", "one", "-o", "jsonpath={.status.phase}"];
        eventually(SOON, async || {
            let shown = kubectl.ok(&running).await?;
            ensure!(shown == "Running", "the pod is {shown}");
            Ok(())
        })
        .await?;
        let port = format!("{}:8080", ports::free_port()?);
        let hello = format!("hello from {}", member.name());
        let (mut open, mut begun) = (Vec::new(), Vec::new());
        for (command, sign) in [
            (&["logs", "-f", "one"][..], &*hello),
            (&["exec", "one", "--", "sh", "-c", "echo begun; sleep 600"], "begun"),
            (&["port-forward", "one", &port], "Forwarding from 127.0.0.1"),
        ] {
            begun.push(Instant::now());
            let mut process = kubectl.spawn(&[&["-n", &*namespace], command].concat())?;
            process.wait_for_output(SOON, |text| text.contains(sign)).await?;
            open.push(process);
        }
        Ok(Self { name, namespace, open, begun, shared })
    }

    /// Waits until all processes have ended, and checks that each ended within [`ENDED_WITHIN`] after `since`.
    async fn loses_all(&mut self, since: Instant) -> anyhow::Result<()> {
        for process in &mut self.open {
            process.wait(SOON).await?;
            let took = since.elapsed();
            ensure!(took < ENDED_WITHIN, "{} took {took:?}", process.name());
        }
        Ok(())
    }
}

/// Makes RBAC rules with these verbs for the resources that the test uses.
fn what_they_may(verbs: &[&str]) -> Value {
    let resources = ["pods", "pods/log", "pods/exec", "pods/portforward", "configmaps"];
    json!([{"apiGroups": [""], "verbs": verbs, "resources": resources}])
}

/// kubectl opens an exec session with a GET, which the cluster authorizes both as `get` and as `create` (precedent 20).
async fn kubernikus_996_exec_by_http_get_requires_the_right_to_create(context: TestContext) -> anyhow::Result<()> {
    let mut person = Person::start(&context, Shared::start(&context).await?).await?;
    let Person { shared, name, namespace, open, .. } = &mut person;
    let kubectl = shared.kubectl(&context, name, &[]).await?;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}");
    let role = json!({"rules": what_they_may(&["get", "list", "watch"])});
    let since = Instant::now();
    shared.members[0].http().patch(&path, "merge-patch+json", &role).send().await?.expect(200)?;
    let [logs, others @ ..] = &mut open[..] else { anyhow::bail!("nothing is open") };
    for process in others {
        process.wait(SOON).await?;
        let took = since.elapsed();
        ensure!(took < ENDED_WITHIN, "{} took {took:?}", process.name());
    }
    // The cluster must refuse a new exec session to a user with only `get`. Logs must continue.
    let refused = kubectl.run(&["-n", namespace, "exec", "one", "--", "true"]).await?;
    ensure!(refused.code != Some(0) && refused.stderr.to_lowercase().contains("forbidden"), "{}", refused.stderr);
    ensure!(logs.exit_status().is_none(), "logs need get alone: {}", logs.errors());
    Ok(())
}

async fn open_streams_end_when_the_right_is_revoked(context: TestContext) -> anyhow::Result<()> {
    let mut person = Person::start(&context, Shared::start(&context).await?).await?;
    let since = Instant::now();
    revoke(&person.shared.members[0], &person.namespace, &person.name).await?;
    person.loses_all(since).await
}

async fn open_streams_end_when_the_client_authority_is_replaced(context: TestContext) -> anyhow::Result<()> {
    let mut person = Person::start(&context, Shared::start(&context).await?).await?;
    let since = Instant::now();
    fs::write(&person.shared.client_ca, PeopleAuthority::new("the next authority")?.pem())?;
    person.loses_all(since).await
}

/// A stream must end at its maximum age and not earlier, even if it has no traffic.
async fn open_streams_end_at_their_maximum_age(context: TestContext) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let members = context.fixture.pair().await?.clone();
    let age = format!("--max-stream-age={}s", STREAM_AGE.as_secs());
    let mut person = Person::start(&context, Shared::over(&context, members, &kubeconfig, &[&age]).await?).await?;
    let all_open = Instant::now();
    for (process, begun) in person.open.iter_mut().zip(&person.begun) {
        process.wait(SOON + STREAM_AGE).await?;
        let (took, since) = (begun.elapsed(), all_open.elapsed());
        ensure!(took >= STREAM_AGE, "it ended after {took:?}: {}", process.errors());
        ensure!(since < STREAM_AGE + ENDED_WITHIN, "{} took {since:?}", process.name());
    }
    Ok(())
}

/// Writes the file of denied users in the same way as an administrator.
fn deny(path: &Path, users: &[&str]) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "DeniedUsers", "deniedUsers": users});
    let next = path.with_extension("next");
    fs::write(&next, object.to_string())?;
    Ok(fs::rename(&next, path)?)
}

async fn open_streams_of_a_denied_user_end(context: TestContext) -> anyhow::Result<()> {
    let folder = guard::temporary_folder("denied")?;
    let path = folder.path().join("denied.yaml");
    deny(&path, &["nobody"])?;
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let members = context.fixture.pair().await?.clone();
    let argument = format!("--denied-users-file={}", path.display());
    let mut person = Person::start(&context, Shared::over(&context, members, &kubeconfig, &[&argument]).await?).await?;
    let (shared, namespace) = (&person.shared, &person.namespace);
    let other = namespace::unique_name("bob");
    grant(&shared.members[0], namespace, &other, &other, reads_config_maps()).await?;
    let (ann, bob) = (shared.http(&person.name, &[]).await?, shared.http(&other, &[]).await?);
    let watched = format!("/api/v1/namespaces/{namespace}/configmaps");
    eventually(SOON, async || bob.get(&watched).send().await?.expect(200).map(drop)).await?;
    let news = format!("{watched}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let (mut of_ann, mut of_bob) = (ann.watch(&news).await?, bob.watch(&news).await?);
    let since = Instant::now();
    deny(&path, &[&person.name])?;
    let end = of_ann.expect(SOON).await?;
    ensure!(end["object"]["code"] == 403, "{end}");
    ensure!(of_ann.next(SOON).await?.is_none());
    let refused: Value = ann.get("/version").send().await?.expect(403)?.json()?;
    ensure!(refused["message"].as_str().is_some_and(|text| text.contains("denies you access")), "{refused}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}});
    shared.members[0].http().post(&watched, &map).send().await?.expect(201)?;
    let event = of_bob.expect(SOON).await?;
    ensure!(event["object"]["metadata"]["name"] == "later", "{event}");
    person.loses_all(since).await?;
    deny(&path, &[])?;
    eventually(SOON, async || ann.get("/version").send().await?.expect(200).map(drop)).await
}
