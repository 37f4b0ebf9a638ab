//! Compares Tributary's audit log with the logs of its members. A kubectl command must appear in both logs under one
//! audit ID, in each log at the level of that server's audit policy. Tributary's log must contain no Secret and no
//! token.

use super::events;
use crate::context::{TestContext, eventually};
use anyhow::{Context, ensure};
use base64::Engine;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
use tributary_e2e::{HttpClient, TestCluster, Tools, Tributary, guard, kubeconfig, namespace};

/// Longest time until an event appears in an audit log.
const SOON: Duration = Duration::from_secs(20);

/// A secret text that must not be in Tributary's log.
const CANARY: &str = "canary-in-a-coal-mine";

/// Audit policy that requests the bodies of all Secrets. Tributary must not write these bodies in spite of the policy.
const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["/api*", "/openapi*", "/version"]}
- level: RequestResponse
  resources: [{group: "", resources: [configmaps, secrets, serviceaccounts/token]}, {group: authentication.k8s.io}]
- {level: Metadata, verbs: [get, list, watch, create, update, patch, delete]}
"#;

struct Beside {
    members: [TestCluster; 2],
    tributary: Tributary,
    namespace: String,
    folder: tempfile::TempDir,
}

pub(super) async fn audit_events_share_their_ids_with_the_members_events(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire_many(2).await?;
    let tools = context.fixture.tools().await?;
    let beside = Beside::start(tools).await?;
    let http = beside.tributary.http().await?;
    beside.act(tools, &http).await?;
    eventually(SOON, async || beside.check_requests()).await?;
    let token = beside.send_tokens(&http).await?;
    eventually(SOON, async || {
        let ours = fs::read_to_string(beside.log("ours"))?;
        ensure!(ours.contains("\"serviceaccounts\"") && ours.contains("\"tokenreviews\""), "not all is written yet");
        let own = http.token().context("no token")?;
        let encoded = base64::engine::general_purpose::STANDARD.encode(CANARY);
        for secret in [CANARY, &encoded, &token, own] {
            ensure!(!ours.contains(secret), "{secret} is in the log");
        }
        Ok(())
    })
    .await
}

impl Beside {
    async fn start(tools: &Tools) -> anyhow::Result<Self> {
        let folder = guard::temporary_folder("beside")?;
        let policy = folder.path().join("policy.yaml");
        fs::write(&policy, POLICY)?;
        let log = |name: &str| folder.path().join(format!("{name}.log"));
        let arguments = |name: &str| {
            [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log(name).display())]
        };
        let member = |name: &str| {
            let start = TestCluster::builder(name);
            arguments(name).iter().fold(start, |start, own| start.apiserver_argument(own)).start(tools)
        };
        let (one, two) = tokio::try_join!(member("one"), member("two"))?;
        let namespace = namespace::unique_name("audited");
        namespace::create(&namespace, &[&one, &two]).await?;
        let path = folder.path().join("both.kubeconfig");
        kubeconfig::write(&path, &[&one.access(), &two.access()])?;
        let own = arguments("ours");
        let builder = Tributary::builder(&path, ["one", "two"]).argument("--create-in=one");
        let tributary = builder.arguments(own.iter().map(String::as_str)).start().await?;
        Ok(Self { members: [one, two], tributary, namespace, folder })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// Sends many kinds of reads and writes of ConfigMaps and Secrets, most of them with kubectl.
    async fn act(&self, tools: &Tools, http: &HttpClient) -> anyhow::Result<()> {
        let kubectl = self.tributary.kubectl(tools)?;
        let namespace = self.namespace.as_str();
        let secret = format!("--from-literal=password={CANARY}");
        let file = kubectl.file("c.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}")?;
        for arguments in [
            &["create", "-f", &file][..],
            // kubectl sends this body as protobuf, whose contents the log must also not contain.
            &["create", "configmap", "d", "--from-literal=a=b"],
            &["create", "secret", "generic", "s", &secret],
            &["get", "configmaps"],
            &["get", "secret", "s", "-o", "yaml"],
            &["get", "secrets", "-o", "yaml"],
            &["patch", "configmap", "c", "-p", r#"{"data":{"a":"c"}}"#],
            &["patch", "secret", "s", "-p", &format!(r#"{{"stringData":{{"more":"{CANARY}"}}}}"#)],
            &["annotate", "secret", "s", "x=y"],
            &["delete", "configmap", "c"],
        ] {
            kubectl.ok(&[arguments, &["-n", namespace]].concat()).await?;
        }
        // An error message may quote the rejected body. Therefore this request must also leave no secret text in the
        // log.
        let wrong = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "data": {"a": CANARY}});
        http.post(&format!("/api/v1/namespaces/{namespace}/secrets"), &wrong).send().await?;
        http.get(&format!("/api/v1/namespaces/{namespace}/pods?access_token={CANARY}")).send().await?.expect(200)?;
        http.get(&format!("/clusters/two/api/v1/namespaces/{namespace}/pods/none")).send().await?.expect(404)?;
        Ok(())
    }

    /// Creates a token and a TokenReview of the token. Returns the token.
    async fn send_tokens(&self, http: &HttpClient) -> anyhow::Result<String> {
        let accounts = format!("/clusters/one/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
        http.post(&accounts, &account).send().await?.expect(201)?;
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let issued = http.post(&format!("{accounts}/robot/token"), &request).send().await?.expect(201)?.json()?;
        let token = issued["status"]["token"].as_str().context("no token")?.to_owned();
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let reviews = "/clusters/one/apis/authentication.k8s.io/v1/tokenreviews";
        http.post(reviews, &review).send().await?.expect(201)?;
        // The rejection of a body with a token, sent to the path of another kind, must also leave no token in the log.
        let maps = format!("/clusters/one/api/v1/namespaces/{}/configmaps", self.namespace);
        http.post(&maps, &review).send().await?.expect(400)?;
        Ok(token)
    }

    /// Returns the `ResponseComplete` event with this verb and resource in Tributary's log.
    fn ours(&self, verb: &str, resource: &str) -> anyhow::Result<Value> {
        let is_meant = |event: &Value| {
            event["stage"] == "ResponseComplete" && event["verb"] == verb && event["objectRef"]["resource"] == resource
        };
        let found: Vec<_> = events(&self.log("ours"))?.into_iter().filter(is_meant).collect();
        found.into_iter().next().with_context(|| format!("no {verb} of {resource}"))
    }

    fn check_requests(&self) -> anyhow::Result<()> {
        for (verb, resource, level, answered_by) in [
            ("create", "configmaps", "RequestResponse", "one"),
            ("patch", "configmaps", "RequestResponse", "one"),
            ("delete", "configmaps", "RequestResponse", "one"),
            ("create", "secrets", "Metadata", "one"),
            ("patch", "secrets", "Metadata", "one"),
            ("list", "secrets", "Metadata", "memory"),
            ("get", "secrets", "Metadata", "memory"),
            ("list", "configmaps", "RequestResponse", "memory"),
            ("get", "pods", "Metadata", "two"),
        ] {
            let ours = self.ours(verb, resource)?;
            let by = ours["annotations"]["tributary.dev/answered-by"].as_str().unwrap_or_default();
            ensure!(ours["level"] == level && by == answered_by, "{verb} {resource}: {ours}");
            let has_bodies = level == "RequestResponse";
            ensure!(ours.get("responseObject").is_some() == has_bodies, "{verb} {resource}: {ours}");
            let is_write = !matches!(verb, "get" | "list");
            ensure!(ours.get("requestObject").is_some() == (has_bodies && is_write), "{verb} {resource}: {ours}");
            if by != "memory" {
                let theirs = of_id(&self.log(answered_by), &ours)?;
                compare(&ours, &theirs)?;
            }
        }
        let created = self.ours("create", "configmaps")?;
        ensure!(created["requestObject"]["data"] == json!({"a": "b"}), "{created}");
        ensure!(created["responseObject"]["metadata"].get("managedFields").is_none(), "{created}");
        ensure!(created["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl/")), "{created}");
        let of_d = |event: &Value| event["objectRef"]["name"] == "d" && event["stage"] == "ResponseComplete";
        let in_protobuf =
            events(&self.log("ours"))?.into_iter().find(of_d).context("the name in a body of protobuf")?;
        ensure!(in_protobuf["annotations"].get("tributary.dev/request-object").is_some(), "{in_protobuf}");
        compare(&in_protobuf, &of_id(&self.log("one"), &in_protobuf)?)?;
        let text = fs::read_to_string(self.log("ours"))?;
        ensure!(text.contains("pods?access_token=REDACTED"), "the query stands without its token");
        ensure!(self.members.len() == 2 && !text.contains("\"/version"), "what is not audited is not written");
        Ok(())
    }
}

/// The last event in the member's log that has the audit ID of `ours`, Tributary's event.
fn of_id(log: &Path, ours: &Value) -> anyhow::Result<Value> {
    let own = |event: &Value| event["auditID"] == ours["auditID"] && event["stage"] == "ResponseComplete";
    events(log)?.into_iter().rfind(own).with_context(|| format!("no event of {} in {}", ours["auditID"], log.display()))
}

/// Checks that the events of Tributary and of the member describe the request in the same way.
fn compare(ours: &Value, theirs: &Value) -> anyhow::Result<()> {
    let both = |pointer: &str| (ours.pointer(pointer).cloned(), theirs.pointer(pointer).cloned());
    for pointer in [
        "/verb",
        "/userAgent",
        "/objectRef/resource",
        "/objectRef/namespace",
        "/objectRef/name",
        "/objectRef/apiVersion",
        "/objectRef/subresource",
        "/responseStatus/code",
        "/responseStatus/reason",
    ] {
        let (here, there) = both(pointer);
        ensure!(here == there, "{pointer}: {here:?} here, {there:?} there\n{ours}\n{theirs}");
    }
    Ok(())
}
