//! Tests policies that affect endpoint selection and logging. Requests that the first policy matches must go to one of
//! two kube-apiservers, appear in the access log, and be audited at a higher level. Requests that the second policy
//! matches must use both servers and appear in no log. In the merged view, all requests must be logged except those
//! that one policy matches.

use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::pod;
use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};
use tributary_e2e::{Access, HttpClient, Kubectl, TestCluster, Tributary, guard, namespace};

/// Longest time until a server starts, an answer arrives, or a log line is written.
const SOON: Duration = Duration::from_secs(60);

/// Number of lists, and number of creates, that the test sends.
const SHORT: usize = 12;

/// Number of open watches, and number of open exec sessions. With so many, all of them rarely reach the same server by
/// chance.
const LONG_RUNNING: usize = 6;

/// Audit policy that records no request, so that only the dispatch policy can raise the audit level.
const AUDIT_POLICY: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}";

/// Metrics of a kube-apiserver: number of answered requests, and number of open long-running requests.
const ANSWERED: &str = "apiserver_request_total{";
const OPEN: &str = "apiserver_longrunning_requests{";

pub(super) fn cases() -> Vec<Case> {
    cases!["endpoints::by_policy"; dispatch_policy_selects_the_endpoints_and_logging_of_its_requests]
}

/// Client that connects directly to a kube-apiserver.
struct Apiserver(HttpClient);

impl Apiserver {
    async fn at(member: &TestCluster, port: u16) -> anyhow::Result<Self> {
        let access = Access { server: format!("https://127.0.0.1:{port}"), ..member.access() };
        Ok(Self(HttpClient::from_access(&access).await?))
    }

    /// Returns the sum of a metric over all series with these labels.
    async fn sum(&self, metric: &str, labels: &[&str]) -> anyhow::Result<usize> {
        let metrics = self.0.get("/metrics").send().await?.expect(200)?.text();
        let series = metrics.lines().filter(|line| line.starts_with(metric));
        let values = series
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .map(|line| line.rsplit_once(' ').context("a value")?.1.parse::<f64>().with_context(|| line.to_owned()));
        let sum: f64 = values.sum::<anyhow::Result<f64>>()?;
        Ok(sum as usize)
    }
}

/// Returns the sum of a metric at each kube-apiserver.
async fn of_each(apiservers: &[Apiserver; 2], metric: &str, labels: &[&str]) -> anyhow::Result<[usize; 2]> {
    Ok([apiservers[0].sum(metric, labels).await?, apiservers[1].sum(metric, labels).await?])
}

/// Writes a configuration whose first policy sends requests for Secrets and exec requests in the namespace to the
/// second endpoint. In the merged view, lists of LimitRanges are not logged.
fn configure(folder: &Path, member: &TestCluster, ports: [u16; 2], namespace: &str) -> anyhow::Result<()> {
    let authority = folder.join("chosen.ca");
    fs::write(&authority, member.access().certificate_authority)?;
    let endpoints = ports.map(|port| format!("https://127.0.0.1:{port}"));
    let taken = json!({
        "verbs": ["*"], "apiGroups": [""], "resources": ["secrets", "pods/exec"], "namespaces": [namespace],
    });
    let others = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]});
    let object = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": member.name()},
        "spec": {
            "endpoints": endpoints, "caFile": authority, "credentials": {"token": member.access().token},
            "dispatchPolicies": [
                {"rules": [taken], "endpoints": [endpoints[1]], "logMode": "Enabled", "auditLevel": "Metadata"},
                {"rules": [&others]},
            ],
        },
    });
    fs::write(folder.join("chosen.yaml"), object.to_string())?;
    let untold = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["limitranges"], "namespaces": [namespace]});
    let merged = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "MergedEndpoint", "metadata": {"name": "all"},
        "spec": {
            "logging": {"mode": "Enabled"},
            "dispatchPolicies": [{"rules": [untold], "logMode": "Disabled"}, {"rules": [&others]}],
        },
    });
    fs::write(folder.join("all.yaml"), merged.to_string())?;
    Ok(())
}

/// Parses a log with one JSON object per line. The last line may be half written.
fn lines(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

async fn dispatch_policy_selects_the_endpoints_and_logging_of_its_requests(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let member = TestCluster::builder("chosen").controllers(true).kwok(true).nodes(1).start(tools).await?;
    let ports = [member.apiserver_port(), member.start_another_apiserver().await?];
    let apiservers = [Apiserver::at(&member, ports[0]).await?, Apiserver::at(&member, ports[1]).await?];
    let namespace = namespace::unique_name("chosen");
    namespace::create(&namespace, &[&member]).await?;
    let core = format!("/api/v1/namespaces/{namespace}");
    member.http().post(&format!("{core}/pods"), &pod("one", "chosen-node-0")).send().await?.expect(201)?;
    eventually(SOON, async || {
        let one = member.http().get(&format!("{core}/pods/one")).send().await?.expect(200)?.json()?;
        ensure!(one["status"]["phase"] == "Running", "{}", one["status"]);
        Ok(())
    })
    .await?;

    let folder = guard::temporary_folder("chosen-endpoint")?;
    let file = |name: &str| folder.path().join(name);
    fs::create_dir(file("configuration"))?;
    configure(&file("configuration"), &member, ports, &namespace)?;
    fs::write(file("audit.yaml"), AUDIT_POLICY)?;
    let (access_log, audit_log) = (file("access.log"), file("audit.log"));
    let tributary = Tributary::configured(&file("configuration"))
        .argument(format!("--audit-policy-file={}", file("audit.yaml").display()))
        .argument(format!("--audit-log-path={}", audit_log.display()))
        .argument(format!("--access-log-path={}", access_log.display()))
        .start()
        .await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;
    let own = format!("/clusters/chosen{core}");

    // The test sends lists and writes to the cluster's path and to the merged view.
    for number in 0..SHORT {
        http.get(&format!("{own}/secrets")).send().await?.expect(200)?;
        http.get(&format!("{own}/replicationcontrollers")).send().await?.expect(200)?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("x{number}"), "annotations": {"tributary.dev/cluster": "chosen"}},
        });
        http.post(&format!("{core}/secrets"), &secret).send().await?.expect(201)?;
        http.get(&format!("{core}/limitranges")).send().await?.expect(200)?;
    }
    let lists = ["resource=\"secrets\"", "scope=\"namespace\"", "verb=\"LIST\""];
    let creates = ["resource=\"secrets\"", "verb=\"POST\""];
    let others = ["resource=\"replicationcontrollers\"", "scope=\"namespace\"", "verb=\"LIST\""];
    // A kube-apiserver counts a response shortly after sending it.
    eventually(SOON, async || {
        for labels in [&lists[..], &creates] {
            let counts = of_each(&apiservers, ANSWERED, labels).await?;
            ensure!(counts == [0, SHORT], "{labels:?}: {counts:?}");
        }
        let counts = of_each(&apiservers, ANSWERED, &others).await?;
        ensure!(counts[0] > 0 && counts[1] > 0 && counts[0] + counts[1] == SHORT, "what others take: {counts:?}");
        Ok(())
    })
    .await?;

    // The test opens long-running requests: watches, and exec sessions, which switch protocols.
    let follow = format!("{own}/secrets?watch=1");
    let watches = try_join_all((0..LONG_RUNNING).map(|_| http.watch(&follow))).await?;
    let kubectl = Kubectl::new(tools, tributary.kubeconfig())?;
    let shell = ["--context", "chosen", "-n", &namespace, "exec", "one", "--", "sh", "-c", "echo begun; sleep 600"];
    let mut shells = Vec::new();
    for _ in 0..LONG_RUNNING {
        shells.push(kubectl.spawn(&shell)?);
    }
    for shell in &mut shells {
        shell.wait_for_output(SOON, |text| text.contains("begun")).await?;
    }
    let (watched, opened) = (
        ["resource=\"secrets\"", "scope=\"namespace\"", "verb=\"WATCH\""],
        ["resource=\"pods\"", "subresource=\"exec\""],
    );
    for labels in [&watched[..], &opened] {
        let open = of_each(&apiservers, OPEN, labels).await?;
        ensure!(open == [0, LONG_RUNNING], "{labels:?}: {open:?}");
    }
    drop(watches);
    for shell in &mut shells {
        shell.terminate(SOON).await?;
    }

    // The access log must have a line for each of these requests, and no line for other requests to the cluster's path.
    eventually(SOON, async || {
        let lines: Vec<_> = lines(&access_log)?.into_iter().filter(|line| line["cluster"] == "chosen").collect();
        let written = |resource: &str, verb: Option<&str>| {
            let of = lines.iter().filter(|line| line["resource"] == resource);
            of.filter(|line| verb.is_none_or(|verb| line["verb"] == verb)).count()
        };
        let counts = [written("secrets", Some("list")), written("secrets", Some("watch")), written("pods/exec", None)];
        ensure!(counts == [SHORT, LONG_RUNNING, LONG_RUNNING], "{counts:?} of {lines:#?}");
        ensure!(lines.len() == counts.iter().sum::<usize>(), "others are written: {lines:#?}");
        Ok(())
    })
    .await?;
    // The access log must have a line for each request to the merged view, except requests of the policy that disables
    // logging.
    let merged: Vec<_> = lines(&access_log)?.into_iter().filter(|line| line["cluster"].is_null()).collect();
    let written = |resource: &str| merged.iter().filter(|line| line["resource"] == resource).count();
    ensure!(written("secrets") == SHORT, "not all that is to be written is: {merged:#?}");
    ensure!(written("limitranges") == 0, "what is not to be written is: {merged:#?}");
    // The audit log must have the same requests, because the dispatch policy raises their level, although the audit
    // policy records none.
    eventually(SOON, async || {
        let events = lines(&audit_log)?;
        ensure!(events.iter().all(|event| event["level"] == "Metadata"), "{events:#?}");
        let ended: Vec<_> = events.iter().filter(|event| event["stage"] == "ResponseComplete").collect();
        let of = |resource: &str, subresource: &Value| {
            let of = ended.iter().filter(|event| event["objectRef"]["resource"] == resource);
            of.filter(|event| event["objectRef"]["subresource"] == *subresource).count()
        };
        let counts = [of("secrets", &Value::Null), of("pods", &json!("exec"))];
        ensure!(
            counts == [SHORT + LONG_RUNNING, LONG_RUNNING] && ended.len() == SHORT + 2 * LONG_RUNNING,
            "{counts:?}: {ended:#?}"
        );
        Ok(())
    })
    .await
}
