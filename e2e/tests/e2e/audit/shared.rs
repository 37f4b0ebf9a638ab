//! Compares the audit log of an endpoint in the shared mode with the log of a real kube-apiserver with the same policy.
//! The same users send each request to both servers with the same credentials. The test compares the events field by
//! field.

use super::events;
use crate::{
    authentication::issuer::TestIssuer,
    context::{TestContext, eventually},
    shared_mode::grant,
};
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tributary_e2e::{HttpClient, PeopleAuthority, TestCluster, Tributary, guard, kubeconfig, namespace};

/// Longest time until rights, issuer keys and log lines take effect.
const SOON: Duration = Duration::from_secs(60);
const AT_ONCE: usize = 8;
/// Smallest number of compared request bodies. Also the smallest number of compared requests that the endpoint
/// forwarded to the member.
const BODIES_MIN: usize = 8;
const THROUGH_MIN: usize = 12;
const MAPS: &str = "/api/v1/namespaces/one/configmaps";
/// Path prefix of the member `audited` at the endpoint.
const CLUSTER: &str = "/clusters/audited";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const SCOPES: &str = "Impersonate-Extra-scopes.example.com%2fa";

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
omitStages: [Panic]
rules:
- {level: None, users: [left-out]}
- {level: None, userGroups: [system:unauthenticated], nonResourceURLs: [/livez]}
- {level: Metadata, users: [system:anonymous], nonResourceURLs: ["/*"], omitStages: [RequestReceived]}
- {level: RequestResponse, userGroups: [system:masters]}
- {level: Request, users: [system:kube-proxy]}
- {level: RequestResponse, userGroups: ["team:dev"], omitStages: [ResponseStarted]}
- {level: Request, namespaces: [two], resources: [{group: "", resources: [configmaps]}]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps], resourceNames: [kept]}], omitManagedFields: false}
- {level: RequestResponse, namespaces: [one, ""], resources: [{group: ""}, {group: authorization.k8s.io}]}
- {level: Metadata, nonResourceURLs: [/version, "/api*"]}
- {level: None, nonResourceURLs: ["/openapi*"]}
- {level: Metadata, omitStages: [RequestReceived]}
"#;

/// Fields that may differ for a request that both servers refuse with different messages.
const WORDS: &[&str] = &["/responseObject", "/responseStatus/message"];
/// Fields that may differ for a request that the two servers answer differently.
const ANSWER: &[&str] = &["/responseObject", "/responseStatus"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Ann,
    /// User whose requests the audit policy excludes.
    LeftOut,
    /// User with a certificate of a group that only the member accepts, because the endpoint refuses it.
    Master,
    /// User with a certificate of a system user that the endpoint and the member refuse.
    KubeProxy,
    /// User with a token of an external issuer.
    OfIssuer,
    Robot,
    Nobody,
    Guesser,
}

impl Who {
    const ALL: [Self; 8] = [
        Self::Ann,
        Self::LeftOut,
        Self::Master,
        Self::KubeProxy,
        Self::OfIssuer,
        Self::Robot,
        Self::Nobody,
        Self::Guesser,
    ];
}

#[derive(Clone, Debug)]
struct AuditCase {
    who: Who,
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// True if the request goes to the path of the member at the endpoint (`/clusters/audited`). The endpoint forwards
    /// the response from this path unchanged.
    below_cluster: bool,
    /// Fields of the audit events that may differ between the two servers.
    unlike: &'static [&'static str],
}

impl AuditCase {
    fn but(self, unlike: &'static [&'static str]) -> Self {
        Self { unlike, ..self }
    }

    fn below_cluster(self) -> Self {
        Self { below_cluster: true, ..self }
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn body(self, content_type: &str, body: impl Into<String>) -> Self {
        Self { body: body.into(), ..self }.header("content-type", content_type)
    }

    async fn send(&self, http: &HttpClient, id: &str) -> anyhow::Result<()> {
        let mut request = http.request(self.method.clone(), &self.target);
        if !self.body.is_empty() {
            request = request.body(JSON, self.body.clone());
        }
        for (name, value) in &self.headers {
            let is_repeated = name.eq_ignore_ascii_case("impersonate-group");
            request = if is_repeated { request.header_beside(name, value) } else { request.header(name, value) };
        }
        request.header("audit-id", id).send().await.map(drop)
    }

    fn acts_as_another(&self) -> bool {
        self.headers.iter().any(|(name, _)| *name == "Impersonate-User")
    }
}

pub(super) async fn audit_events_of_many_users_equal_those_of_kube_apiserver(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let audited = Audited::start(&context).await?;
    let audit_cases = audit_cases();
    let asked = audit_cases.iter().enumerate().map(|(at, case)| audited.ask(at, case));
    stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let unlike = eventually(SOON, async || {
        let unlike = audited.compare(&audit_cases)?;
        ensure!(unlike.is_empty(), "{}", unlike.join("\n"));
        Ok(())
    });
    unlike.await
}

struct Audited {
    /// For each sender, a client of the endpoint and a client of the member.
    clients: BTreeMap<Who, [HttpClient; 2]>,
    member: Arc<TestCluster>,
    _tributary: Arc<Tributary>,
    _issuer: TestIssuer,
    folder: tempfile::TempDir,
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn kubeconfig_of(folder: &Path, who: Who, name: &str) -> PathBuf {
    folder.join(format!("{who:?}-{name}.kubeconfig"))
}

impl Audited {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let (folder, issuer) = (guard::temporary_folder("audited")?, TestIssuer::start().await?);
        let people = PeopleAuthority::new("the people's authority")?;
        let file = |name: &str| folder.path().join(name);
        let (policy, authority, issuers) = (file("policy.yaml"), file("people.crt"), file("issuers.json"));
        fs::write(&policy, POLICY)?;
        fs::write(&authority, people.pem())?;
        fs::write(&issuers, issuer.configuration())?;
        let arguments = |name: &str| {
            [
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", log(folder.path(), name).display()),
                format!("--authentication-config={}", issuers.display()),
            ]
        };
        let client_ca = format!("--client-ca-file={}", authority.display());
        let builder = TestCluster::builder("audited").apiserver_argument(&client_ca);
        let builder = arguments("theirs").iter().fold(builder, |builder, own| builder.apiserver_argument(own));
        let member = Arc::new(builder.start(context.fixture.tools().await?).await?);
        let own = arguments("ours");
        let builder = Tributary::builder(&member.kubeconfig(), [member.name()]).shared(&authority);
        let tributary = builder.arguments(own.iter().map(String::as_str)).start().await?;
        let tributary = context.fixture.watch_log(tributary).await;
        furnish(&member).await?;
        let robot = token_of_robot(&member).await?;
        let mut clients = BTreeMap::new();
        for who in Who::ALL {
            let user = match who {
                Who::Ann => people.user("ann", &["dev"])?,
                Who::LeftOut => people.user("left-out", &[])?,
                Who::Master => people.user("max", &["system:masters"])?,
                Who::KubeProxy => people.user("system:kube-proxy", &["dev"])?,
                Who::OfIssuer => json!({"token": issuer.token("a", &[])?}),
                Who::Robot => json!({"token": robot}),
                Who::Nobody => json!({}),
                Who::Guesser => json!({"token": "guessed"}),
            };
            let here = kubeconfig_of(folder.path(), who, "ours");
            tributary.kubeconfig_of(&here, &user, &[])?;
            let there = kubeconfig_of(folder.path(), who, "theirs");
            kubeconfig::write_entries(&there, &[kubeconfig::ContextParts { user, ..member.access().entries() }])?;
            let [here, there] = [here, there].map(async |path| HttpClient::from_kubeconfig(&path, None).await);
            clients.insert(who, [here.await?, there.await?]);
        }
        let audited = Self { clients, member, _tributary: tributary, _issuer: issuer, folder };
        eventually(SOON, async || audited.is_known().await).await?;
        Ok(audited)
    }

    /// Checks that both servers accept the credentials of all users and apply the users' rights.
    async fn is_known(&self) -> anyhow::Result<()> {
        for who in [Who::Ann, Who::OfIssuer, Who::Robot] {
            for http in &self.clients[&who] {
                http.get(&format!("{MAPS}/made")).send().await?.expect(200).with_context(|| format!("{who:?}"))?;
            }
        }
        let [here, _] = &self.clients[&Who::Ann];
        here.get(MAPS).header("Impersonate-User", "bob").send().await?.expect(200).map(drop)
    }

    async fn ask(&self, at: usize, case: &AuditCase) -> anyhow::Result<()> {
        for (http, name) in self.clients[&case.who].iter().zip(["ours", "theirs"]) {
            let http = match case.who {
                // A kube-apiserver closes the connection of an unauthenticated client, so each request has a new
                // client.
                Who::Nobody | Who::Guesser => {
                    HttpClient::from_kubeconfig(&kubeconfig_of(self.folder.path(), case.who, name), None).await?
                }
                _ => http.below(if case.below_cluster && name == "ours" { CLUSTER } else { "" }),
            };
            let sent = case.send(&http, &format!("{name}-{at}")).await;
            // The server may close the connection of an unauthenticated client before the answer arrives, so an error
            // is allowed.
            if case.who != Who::Guesser {
                sent.with_context(|| format!("{case:?} of {name}"))?;
            }
        }
        Ok(())
    }

    fn compare(&self, audit_cases: &[AuditCase]) -> anyhow::Result<Vec<String>> {
        let (ours, theirs) = (self.by_id("ours")?, self.by_id("theirs")?);
        let (mut unlike, mut bodies, mut through_endpoint) = (Vec::new(), 0, 0);
        for (at, case) in audit_cases.iter().enumerate() {
            let of = |all: &BTreeMap<String, Vec<Value>>, id: &str| {
                all.get(&format!("{id}-{at}")).cloned().unwrap_or_default()
            };
            let (here, there) = (of(&ours, "ours"), of(&theirs, "theirs"));
            let stages = |events: &[Value]| events.iter().map(|event| event["stage"].clone()).collect::<Vec<_>>();
            let asked = format!("{:?} {} {} {:?}", case.who, case.method, case.target, case.headers);
            if stages(&here) != stages(&there) {
                unlike.push(format!("{asked}: {:?} here, {:?} there", stages(&here), stages(&there)));
                continue;
            }
            for (here, there) in here.iter().zip(&there) {
                // The body in Tributary's event must contain every field that the client sent. The test ignores
                // additional fields in the kube-apiserver's event.
                let sent = serde_json::from_str::<Value>(&case.body);
                if let (Some(object), Ok(sent)) = (here.get("requestObject"), sent) {
                    bodies += 1;
                    differences("/requestObject", object, &sent, &mut |_, what| {
                        unlike.push(format!("{asked} beside what was sent: {what}"));
                    });
                }
                let (here, there) = (comparable(here, Some(there)), comparable(there, None));
                differences("", &here, &there, &mut |place, what| {
                    if !case.unlike.iter().any(|unlike| place.starts_with(unlike)) {
                        unlike.push(format!("{asked} at {}: {what}", here["stage"]));
                    }
                });
            }
            // The member's log must show the same user for the forwarded request and for the direct request.
            let through = of(&theirs, "ours");
            if let (Some(through), Some(direct)) = (through.last(), there.last()) {
                through_endpoint += 1;
                let own = if case.acts_as_another() { "impersonatedUser" } else { "user" };
                let (seen, mut direct) = (as_seen(&through["impersonatedUser"]), as_seen(&direct[own]));
                if case.who == Who::OfIssuer && own == "user" {
                    // Tributary sends the uid only of users that the member itself knows, so the uid is not compared
                    // for a user of an external issuer.
                    direct.as_object_mut().map(|fields| fields.remove("uid"));
                }
                differences("", &seen, &direct, &mut |_, what| unlike.push(format!("{asked} in the member: {what}")));
            }
        }
        ensure!(bodies >= BODIES_MIN, "{bodies} bodies of requests were compared");
        ensure!(through_endpoint >= THROUGH_MIN, "{through_endpoint} requests came to the member through the endpoint");
        Ok(unlike)
    }

    /// Returns the events of a log by audit ID, in the order of the log.
    fn by_id(&self, name: &str) -> anyhow::Result<BTreeMap<String, Vec<Value>>> {
        let mut all = BTreeMap::<String, Vec<Value>>::new();
        for event in events(&log(self.folder.path(), name))? {
            all.entry(event["auditID"].as_str().context("no ID")?.to_owned()).or_default().push(event);
        }
        ensure!(!self.member.name().is_empty() && !all.is_empty(), "nothing is written");
        Ok(all)
    }
}

fn sends(who: Who, method: &str, target: impl Into<String>) -> AuditCase {
    let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
    AuditCase {
        who,
        method,
        target: target.into(),
        headers: Vec::new(),
        body: String::new(),
        below_cluster: false,
        unlike: &[],
    }
}

async fn furnish(member: &TestCluster) -> anyhow::Result<()> {
    for namespace in ["one", "two"] {
        namespace::create(namespace, &[member]).await?;
        for name in ["made", "kept"] {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
            member
                .http()
                .post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map)
                .send()
                .await?
                .expect(201)?;
        }
    }
    let everything = json!([{"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["*"]}]);
    let robot = "system:serviceaccount:one:robot";
    for (name, user) in
        [("ann", "ann"), ("bob", "bob"), ("of-issuer", "oidc:ann"), ("robot", robot), ("out", "left-out")]
    {
        grant(member, "", name, user, everything.clone()).await?;
    }
    let impersonates = json!([
        {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"], "resourceNames": ["bob", "ops", "robot"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["uids", "userextras/scopes.example.com/a"], "verbs": ["impersonate"]},
    ]);
    for (name, user) in [("ann-as", "ann"), ("of-issuer-as", "oidc:ann")] {
        grant(member, "", name, user, impersonates.clone()).await?;
    }
    Ok(())
}

async fn token_of_robot(member: &TestCluster) -> anyhow::Result<String> {
    let accounts = "/api/v1/namespaces/one/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    member.http().post(accounts, &account).send().await?.expect(201)?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = member.http().post(&format!("{accounts}/robot/token"), &request).send().await?.expect(201)?.json()?;
    Ok(issued["status"]["token"].as_str().context("no token")?.to_owned())
}

/// The requests of the test. None of these requests changes an object.
fn audit_cases() -> Vec<AuditCase> {
    let map = |name: &str| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": "c"}}).to_string()
    };
    let (made, kept) = (format!("{MAPS}/made"), format!("{MAPS}/kept"));
    let patch = r#"{"data":{"a":"d"}}"#;
    let merge = "application/merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let create = format!("{MAPS}?dryRun=All");
    let mut audit_cases = Vec::new();
    for who in [Who::Ann, Who::OfIssuer, Who::Robot] {
        audit_cases.extend([
            sends(who, "GET", &made),
            sends(who, "GET", format!("{MAPS}?limit=500&labelSelector=a%3Db&pretty=true")),
            sends(who, "GET", format!("{MAPS}/nowhere")),
            sends(who, "GET", "/api/v1/namespaces/one/pods/x"),
            sends(who, "GET", "/version"),
            // Tributary does not forward a request for an unknown path, so the member's answer differs.
            sends(who, "GET", "/nowhere").but(ANSWER),
            sends(who, "POST", &create).body(JSON, map("new")),
            sends(who, "PATCH", format!("{made}?dryRun=All")).body(merge, patch),
            sends(who, "DELETE", format!("{made}?dryRun=All")),
        ]);
    }
    let ann = Who::Ann;
    audit_cases.extend([
        sends(ann, "GET", MAPS).header("accept", TABLE).below_cluster(),
        sends(ann, "GET", format!("{MAPS}?watch=true&timeoutSeconds=1")),
        sends(ann, "GET", "/api/v1/configmaps"),
        sends(ann, "GET", "/api/v1/namespaces/one"),
        sends(ann, "GET", "/api/v1/namespaces/two/configmaps"),
        sends(ann, "GET", "/api/v1/pods?watch=true"),
        sends(ann, "GET", "/api/v1"),
        sends(ann, "GET", "/apis"),
        sends(ann, "GET", "/healthz"),
        sends(ann, "GET", "/openapi/v2"),
        sends(ann, "GET", "/apis/apps/v1/namespaces/one/deployments"),
        // A response to HEAD has no body.
        sends(ann, "HEAD", &made).but(&["/responseObject", "/responseStatus"]),
        sends(ann, "GET", format!("{MAPS}/nowhere")).header("accept", PROTOBUF).below_cluster(),
        sends(ann, "DELETE", format!("{made}?dryRun=All")).header("accept", PROTOBUF).below_cluster(),
        sends(ann, "GET", format!("{MAPS}/nowhere")).header("accept", "application/yaml"),
        sends(ann, "GET", &made).header("X-Forwarded-For", "10.1.2.3, no address, ::1").header("X-Real-Ip", "10.9.8.7"),
        sends(ann, "GET", &made).header("user-agent", "ü".repeat(600)),
        sends(ann, "POST", &create).body("application/yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: of-yaml}}"),
        sends(ann, "POST", &create).body(JSON, map("made")),
        sends(ann, "POST", &create).body(JSON, map("Not A Name")),
        sends(ann, "POST", &create).body(JSON, "{").but(WORDS),
        sends(ann, "POST", "/api/v1/namespaces/two/configmaps?dryRun=All").body(JSON, map("new")),
        sends(ann, "POST", "/api/v1/namespaces/one/pods").body(JSON, r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}"#),
        sends(ann, "PUT", format!("{made}?dryRun=All")).body(JSON, map("made")),
        sends(ann, "PUT", format!("{kept}?dryRun=All")).body(JSON, map("kept")),
        sends(ann, "PATCH", format!("{made}?dryRun=All&fieldManager=m")).body(apply, map("made")),
        sends(ann, "PATCH", format!("{made}?dryRun=All")).body("application/json-patch+json", r#"[{"op":"remove","path":"/data"}]"#),
        sends(ann, "DELETE", format!("{made}?dryRun=All")).body(JSON, r#"{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}"#),
        // In the merged view, the response to a DELETE of a collection contains the results of all clusters, so it
        // differs from a member's response.
        sends(ann, "DELETE", format!("{MAPS}?dryRun=All&labelSelector=none%3Dsuch"))
            .but(&["/responseObject", "/responseStatus/status"]),
        sends(ann, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").body(
            JSON,
            r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get","resource":"configmaps"}}}"#,
        ),
        sends(ann, "POST", "/api/v1/namespaces/one/serviceaccounts/robot/token")
            .body(JSON, "{}")
            .but(&["/level", "/responseObject", "/responseStatus/details", "/responseStatus/message"]),
        sends(Who::LeftOut, "GET", &made),
        sends(Who::Nobody, "GET", "/healthz"),
        sends(Who::Nobody, "GET", "/readyz"),
        sends(Who::Nobody, "GET", "/livez"),
        sends(Who::Guesser, "GET", &made).but(WORDS),
    ]);
    // The endpoint refuses system users and members of `system:masters`.
    let deployments = "/apis/apps/v1/namespaces/one/deployments";
    for who in [Who::Master, Who::KubeProxy] {
        audit_cases.push(sends(who, "GET", deployments).but(ANSWER));
        audit_cases.push(sends(who, "DELETE", format!("{deployments}/none?dryRun=All")).but(ANSWER));
    }
    let as_bob = |method: &str, target: &str| sends(ann, method, target).header("Impersonate-User", "bob");
    audit_cases.extend([
        as_bob("GET", &made),
        as_bob("GET", &made)
            .header("Impersonate-Group", "ops")
            .header("Impersonate-Uid", "u-1")
            .header(SCOPES, "größer"),
        as_bob("POST", &create).header("Impersonate-Group", "ops").body(JSON, map("new")),
        as_bob("DELETE", &format!("{made}?dryRun=All")).header("Impersonate-Uid", "u-1"),
        as_bob("GET", "/api/v1/namespaces/one/pods/x"),
        as_bob("GET", &made).header("Impersonate-Group", "not-let").but(ANSWER),
        sends(ann, "GET", &made).header("Impersonate-User", "eve").but(ANSWER),
        sends(ann, "GET", &made).header("Impersonate-User", "system:serviceaccount:one:robot"),
        sends(ann, "GET", &made).header("Impersonate-Group", "ops").but(WORDS),
        sends(Who::OfIssuer, "GET", &made).header("Impersonate-User", "bob"),
        sends(Who::OfIssuer, "GET", format!("{MAPS}?watch=1&timeoutSeconds=1")).header("Impersonate-User", "bob"),
    ]);
    audit_cases
}

/// Removes the ID of the credential from a user, because Tributary does not send this ID to the member.
fn as_seen(user: &Value) -> Value {
    let mut user = user.clone();
    if let Some(fields) = user.as_object_mut() {
        let mut extra = fields.remove("extra").unwrap_or_default();
        if let Some(extra) = extra.as_object_mut() {
            extra.remove("authentication.kubernetes.io/credential-id");
        }
        if extra.as_object().is_some_and(|extra| !extra.is_empty()) {
            fields.insert("extra".to_owned(), extra);
        }
    }
    user
}

/// Returns the parts of an event that must be equal in both logs. `beside` is the kube-apiserver's event if `event` is
/// Tributary's event.
fn comparable(event: &Value, beside: Option<&Value>) -> Value {
    let mut event = event.clone();
    let Some(fields) = event.as_object_mut() else { return event };
    for own in ["auditID", "requestReceivedTimestamp", "stageTimestamp", "annotations"] {
        fields.remove(own);
    }
    if let Some(object) = fields.get_mut("responseObject") {
        as_of_any_server(object);
    }
    let Some(beside) = beside else { return event };
    // Tributary writes the impersonated user in every stage, but a kube-apiserver only after it has authorized the
    // impersonation.
    if beside["impersonatedUser"].is_null() && event["stage"] == "RequestReceived" {
        event.as_object_mut().map(|fields| fields.remove("impersonatedUser"));
    }
    if let Some(uri) = event["requestURI"].as_str().and_then(|uri| uri.strip_prefix(CLUSTER)) {
        event["requestURI"] = uri.into();
    }
    // Tributary writes the object as the client sent it, but a kube-apiserver writes the decoded object with default
    // fields.
    if let Some(object) = event.get_mut("requestObject") {
        fill(object, &beside["requestObject"]);
    }
    event
}

/// Removes response fields that differ between two servers or that only the endpoint adds.
fn as_of_any_server(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for own in ["uid", "creationTimestamp", "resourceVersion"] {
            metadata.remove(own);
        }
        if metadata.get("annotations").is_some_and(|own| *own == json!({"tributary.dev/cluster": "audited"})) {
            metadata.remove("annotations");
        }
        for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            entry["time"].take();
        }
    }
    for parts in ["items", "rows"] {
        for part in object.get_mut(parts).and_then(Value::as_array_mut).into_iter().flatten() {
            as_of_any_server(part);
            // The two servers print the age in a row at different times.
            if let Some(cells) = part.get_mut("cells").and_then(Value::as_array_mut) {
                cells.retain(|cell| !cell.as_str().is_some_and(is_age_in_seconds));
            }
            if let Some(object) = part.get_mut("object") {
                as_of_any_server(object);
            }
        }
    }
}

fn is_age_in_seconds(cell: &str) -> bool {
    cell.strip_suffix('s')
        .is_some_and(|seconds| !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Adds to `here` the fields that only `there` has. An `apiVersion` is always replaced.
fn fill(here: &mut Value, there: &Value) {
    let (Some(own), Some(theirs)) = (here.as_object_mut(), there.as_object()) else { return };
    for (key, value) in theirs {
        match own.get_mut(key) {
            Some(own) if key != "apiVersion" => fill(own, value),
            // A kube-apiserver logs DeleteOptions in its internal API version, so the values differ.
            _ => drop(own.insert(key.clone(), value.clone())),
        }
    }
}

fn differences(place: &str, here: &Value, there: &Value, tell: &mut impl FnMut(&str, String)) {
    match (here, there) {
        (Value::Object(own), Value::Object(theirs)) => {
            let keys: BTreeSet<_> = own.keys().chain(theirs.keys()).collect();
            for key in keys {
                let missing = Value::Null;
                let (own, theirs) = (own.get(key).unwrap_or(&missing), theirs.get(key).unwrap_or(&missing));
                differences(&format!("{place}/{key}"), own, theirs, tell);
            }
        }
        (here, there) if here == there => {}
        (here, there) => tell(place, format!("{place}: {here} here, {there} there")),
    }
}
