//! Tests many users of one Tributary endpoint over two real members, each with a client certificate: reads, writes and
//! refusals.

mod authorizers;
mod churn;
mod cluster_hosts;
mod constrained_impersonation;
mod impersonation_headers;
mod informers;
mod join;
mod many_users;
mod matrix;
mod races;
mod rate_limits;
mod refusal_messages;
mod stale_rights;
mod streams;
mod tokens;

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tributary_e2e::{
    HttpClient, Kubectl, PeopleAuthority, TestCluster, Tributary, TributaryBuilder, guard, kubeconfig, namespace,
};

/// Longest time until a change of rights or of a file takes effect, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        "shared_mode";
        user_reads_and_writes_only_with_the_rights_of_that_user, client_certificate_authorities_are_reloaded,
        x509_version_1_certificate_names_its_user,
    ];
    cases.extend(impersonation_headers::cases());
    cases.extend(authorizers::cases());
    cases.extend(churn::cases());
    cases.extend(many_users::cases());
    cases.extend(rate_limits::cases());
    cases.extend(cluster_hosts::cases());
    cases.extend(constrained_impersonation::cases());
    cases.extend(informers::cases());
    cases.extend(join::cases());
    cases.extend(matrix::cases());
    cases.extend(races::cases());
    cases.extend(stale_rights::cases());
    cases.extend(streams::cases());
    cases.extend(tokens::cases());
    cases.extend(refusal_messages::cases());
    cases
}

/// Endpoint in shared mode, and the certificate authority of its users.
struct Shared {
    tributary: Arc<Tributary>,
    people: PeopleAuthority,
    client_ca: PathBuf,
    members: [Arc<TestCluster>; 2],
    folder: tempfile::TempDir,
}

impl Shared {
    /// Starts the endpoint over `member1` and `member2`.
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let kubeconfig = context.fixture.pair_kubeconfig().await?;
        Self::over(context, context.fixture.pair().await?.clone(), &kubeconfig, &[]).await
    }

    /// Starts the endpoint over these members, with additional arguments. The members are contexts of the kubeconfig.
    async fn over(
        context: &TestContext,
        members: [Arc<TestCluster>; 2],
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        Self::of(
            context,
            members.clone(),
            Tributary::builder(kubeconfig, [members[0].name(), members[1].name()]),
            arguments,
        )
        .await
    }

    /// Starts the endpoint with a builder that already has the members' configuration.
    async fn of(
        context: &TestContext,
        members: [Arc<TestCluster>; 2],
        builder: TributaryBuilder,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = guard::temporary_folder("shared")?;
        let people = PeopleAuthority::new("the people's authority")?;
        let client_ca = folder.path().join("clients.crt");
        fs::write(&client_ca, people.pem())?;
        let tributary = builder.shared(&client_ca).arguments(arguments.iter().copied()).start().await?;
        let tributary = context.fixture.watch_log(tributary).await;
        let shared = Self { tributary, people, client_ca, members, folder };
        eventually(SOON, async || shared.knows_all()).await?;
        Ok(shared)
    }

    /// Checks that the endpoint has read the RBAC objects of each member. Until then, it answers requests that need
    /// rights with 503.
    fn knows_all(&self) -> anyhow::Result<()> {
        let log = self.tributary.log();
        let is_of =
            |line: &str, name: &str| line.contains(&format!("cluster={name}")) || line.contains(&format!("{name:?}"));
        for member in &self.members {
            let mut known = log.lines().filter(|line| line.contains("the rights of users in the cluster are known"));
            ensure!(known.any(|line| is_of(line, member.name())), "the rights in {} are not known", member.name());
        }
        Ok(())
    }

    /// Writes a kubeconfig for a user with a new client certificate.
    fn kubeconfig(&self, name: &str, groups: &[&str]) -> anyhow::Result<PathBuf> {
        self.kubeconfig_with(&self.people.user(name, groups)?)
    }

    /// Writes a kubeconfig with this `user` entry.
    fn kubeconfig_with(&self, user: &Value) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(namespace::unique_name("person"));
        let clusters = [self.members[0].name(), self.members[1].name()];
        self.tributary.kubeconfig_of(&path, user, &clusters)?;
        Ok(path)
    }

    async fn http(&self, name: &str, groups: &[&str]) -> anyhow::Result<HttpClient> {
        HttpClient::from_kubeconfig(&self.kubeconfig(name, groups)?, None).await
    }

    async fn kubectl(&self, context: &TestContext, name: &str, groups: &[&str]) -> anyhow::Result<Kubectl> {
        Kubectl::new(context.fixture.tools().await?, &self.kubeconfig(name, groups)?)
    }
}

/// Creates a role with these rules and binds it to a user. The role is for one namespace, or for the whole cluster if
/// `namespace` is empty.
pub(crate) async fn grant(
    member: &TestCluster,
    namespace: &str,
    name: &str,
    user: &str,
    rules: Value,
) -> anyhow::Result<()> {
    let (kind, place) = match namespace {
        "" => ("ClusterRole", String::new()),
        namespace => ("Role", format!("/namespaces/{namespace}")),
    };
    let api = "rbac.authorization.k8s.io";
    let plural = |suffix: &str| format!("/apis/{api}/v1{place}/{}{suffix}", kind.to_lowercase());
    let role = json!({"apiVersion": format!("{api}/v1"), "kind": kind, "metadata": {"name": name}, "rules": rules});
    member.http().post(&plural("s"), &role).send().await?.expect(201)?;
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": {"name": name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": api, "kind": kind, "name": name},
    });
    member.http().post(&plural("bindings"), &binding).send().await?.expect(201)?;
    Ok(())
}

/// Deletes the binding that [`grant`] created in a namespace.
async fn revoke(member: &TestCluster, namespace: &str, name: &str) -> anyhow::Result<()> {
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{name}");
    member.http().delete(&path).send().await?.expect(200).map(drop)
}

pub(crate) fn reads_config_maps() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}])
}

/// Creates a ConfigMap with a text of this many bytes.
pub(crate) async fn make_config_map(
    member: &TestCluster,
    namespace: &str,
    name: &str,
    bytes: usize,
) -> anyhow::Result<()> {
    let metadata = json!({"name": name});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x".repeat(bytes)}});
    member.http().post(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map).send().await?.expect(201).map(drop)
}

/// Returns the ConfigMaps in a list by cluster, namespace and name. `kube-root-ca.crt` is left out, because every
/// namespace has it.
fn config_maps(list: &Value) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |metadata: &Value| {
        let cluster = text(&metadata["annotations"]["tributary.dev/cluster"]);
        (cluster, text(&metadata["namespace"]), text(&metadata["name"]))
    };
    let items = list["items"].as_array().into_iter().flatten().map(|item| of(&item["metadata"]));
    items.filter(|(.., name)| name != "kube-root-ca.crt").collect()
}

async fn user_reads_and_writes_only_with_the_rights_of_that_user(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    let [one, two] = &shared.members;
    let own = context.namespace("shared", &shared.members).await?;
    let (ann, eve) = (namespace::unique_name("ann"), namespace::unique_name("eve"));
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    ]);
    grant(one, &own, &ann, &ann, rules.clone()).await?;
    grant(two, "", &ann, &ann, json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])).await?;
    let kubectl = shared.kubectl(&context, &ann, &["dev"]).await?;

    // The members and the endpoint must recognize the same user in the certificate.
    let who = kubectl.run(&["auth", "whoami", "-o", "json"]).await?;
    ensure!(who.code == Some(0) && who.stderr.is_empty(), "{who:?}");
    let who: Value = serde_json::from_str(&who.stdout)?;
    let info = &who["status"]["userInfo"];
    ensure!(info["username"] == json!(ann) && info["groups"] == json!(["dev", "system:authenticated"]), "{who}");
    eventually(SOON, async || {
        let answer = kubectl.run(&["auth", "can-i", "list", "configmaps", "-n", &own]).await?;
        ensure!(answer.stdout.trim() == "yes", "{} {}", answer.stdout, answer.stderr);
        Ok(())
    })
    .await?;

    // The write must go to the only cluster in which the user has rights, and the cluster must record the user's name.
    kubectl.ok(&["create", "configmap", "hers", "-n", &own]).await?;
    let made = one.http().get(&format!("/api/v1/namespaces/{own}/configmaps/hers")).send().await?.expect(200)?;
    ensure!(!made.text().contains("tributary"), "{}", made.text());
    two.http().get(&format!("/api/v1/namespaces/{own}/configmaps/hers")).send().await?.expect(404)?;
    // The user must not learn that the other cluster, in which the user has no rights, has an object of this name.
    let hidden = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hidden"}});
    two.http().post(&format!("/api/v1/namespaces/{own}/configmaps"), &hidden).send().await?.expect(201)?;
    eventually(SOON, async || {
        let listed = kubectl.ok(&["get", "configmaps", "-n", &own, "-o", "name"]).await?;
        ensure!(listed.lines().any(|line| line == "configmap/hers"), "{listed}");
        ensure!(!listed.contains("hidden"), "{listed}");
        Ok(())
    })
    .await?;
    let refused = kubectl.run(&["get", "configmap", "hidden", "-n", &own]).await?;
    ensure!(refused.stderr.contains("NotFound") && !refused.stderr.contains("member2"), "{}", refused.stderr);
    let refused = kubectl.run(&["get", "pods", "-n", &own]).await?;
    let words = format!("User \"{ann}\" cannot list resource \"pods\" in API group \"\" in the namespace \"{own}\"");
    ensure!(refused.stderr.contains(&words), "{}", refused.stderr);
    kubectl.ok(&["delete", "configmap", "hers", "-n", &own]).await?;

    // A user must not be able to become a different user by headers, or by a certificate with system groups.
    let refused = kubectl.run(&["get", "configmaps", "-n", &own, "--as", &eve]).await?;
    ensure!(refused.code != Some(0) && refused.stderr.contains("cannot impersonate"), "{}", refused.stderr);
    let masters = shared.http(&eve, &["system:masters", "system:nodes"]).await?;
    masters.get("/api/v1/nodes").send().await?.expect(403)?;
    masters.get(&format!("/api/v1/namespaces/{own}/configmaps")).send().await?.expect(403)?;
    masters.get("/clusters/member1/api/v1/nodes").send().await?.expect(403)?;
    let system = shared.http("system:kube-controller-manager", &[]).await?;
    system.get("/api/v1/nodes").send().await?.expect(403)?;
    check_unauthenticated_clients(&shared).await?;
    check_fleet_paths(&shared, &ann, &[one, two]).await
}

/// A client without a certificate of the endpoint's certificate authority is unauthenticated, and may read only the
/// health path.
async fn check_unauthenticated_clients(shared: &Shared) -> anyhow::Result<()> {
    let elsewhere = PeopleAuthority::new("the people's authority")?;
    for user in [json!({}), elsewhere.user("ann", &["system:masters"])?, json!({"token": "guessed"})] {
        let path = shared.folder.path().join("stranger");
        shared.tributary.kubeconfig_of(&path, &user, &[])?;
        for target in ["/api/v1/pods", "/version", "/metrics", "/readyz?verbose"] {
            // The server closes an unauthenticated connection after its response, so each request uses a new client.
            HttpClient::from_kubeconfig(&path, None).await?.get(target).send().await?.expect(401)?;
        }
        let http = HttpClient::from_kubeconfig(&path, None).await?;
        ensure!(http.get("/readyz").send().await?.expect(200)?.text() == "ok");
    }
    let token = shared.tributary.folder().join("data/token");
    ensure!(!token.exists(), "no credential is made for one person");
    Ok(())
}

/// A kube-apiserver accepts an X.509 version 1 certificate, so the endpoint must also accept it. The endpoint must
/// refuse a certificate of an unknown authority, and must give the reason to the user and in the log.
async fn x509_version_1_certificate_names_its_user(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    let (tools, member) = (context.fixture.tools().await?, &shared.members[0]);
    let direct = shared.folder.path().join("direct");
    let user = member.people().user_of_version_one("ann")?;
    kubeconfig::write_entries(&direct, &[kubeconfig::ContextParts { user, ..member.access().entries() }])?;
    let own = shared.kubeconfig_with(&shared.people.user_of_version_one("ann")?)?;
    for path in [&direct, &own] {
        let who =
            Kubectl::new(tools, path)?.ok(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
        ensure!(who == "ann", "{}: {who}", path.display());
    }
    let stranger = PeopleAuthority::new("the people's authority")?.user_of_version_one("ann")?;
    let refused = Kubectl::new(tools, &shared.kubeconfig_with(&stranger)?)?.run(&["get", "configmaps"]).await?;
    ensure!(refused.stderr.contains("must be logged in"), "{}", refused.stderr);
    let log = shared.tributary.log();
    let line = log.lines().find(|line| line.contains("a request is answered 401")).context("no line in the log")?;
    ensure!(line.contains("X.509 version 1") && line.contains("CN=ann"), "{line}");
    Ok(())
}

/// A user may read a path that concerns all clusters, such as `/metrics`, if each cluster grants the right.
async fn check_fleet_paths(shared: &Shared, ann: &str, members: &[&Arc<TestCluster>; 2]) -> anyhow::Result<()> {
    let http = shared.http(ann, &[]).await?;
    for path in
        ["/metrics", "/tributary/status", "/tributary/policy-test?user=a", "/readyz?verbose", "/readyz/cluster/member1"]
    {
        let refused = http.get(path).send().await?.expect(403)?.text();
        ensure!(refused.contains("cannot get path") && !refused.contains("member"), "{path}: {refused}");
    }
    http.get("/readyz").send().await?.expect(200)?;
    http.get("/version").send().await?.expect(200)?;
    let rules = json!([{"nonResourceURLs": ["/metrics", "/tributary/status"], "verbs": ["get"]}]);
    grant(members[0], "", &format!("{ann}-metrics"), ann, rules).await?;
    eventually(SOON, async || http.get("/metrics").send().await?.expect(200).map(drop)).await?;
    http.get("/readyz?verbose").send().await?.expect(403)?;
    // A page of another site could make a browser send this request with the user's certificate, so the server must
    // refuse foreign origins.
    let page = http.get("/metrics").header("origin", "https://evil.example");
    page.send().await?.expect(403)?;
    Ok(())
}

async fn client_certificate_authorities_are_reloaded(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    let http = shared.http("ann", &[]).await?;
    http.get("/version").send().await?.expect(200)?;
    // If the new file with certificate authorities is invalid, the old authorities must stay in force.
    fs::write(&shared.client_ca, "no certificate")?;
    eventually(SOON, async || {
        let log = shared.tributary.log();
        ensure!(log.contains("--client-ca-file") && log.contains("the previous ones stay in use"), "{log}");
        Ok(())
    })
    .await?;
    http.get("/version").send().await?.expect(200)?;
    // A new file with certificate authorities must also affect open connections.
    let others = PeopleAuthority::new("the next authority")?;
    fs::write(&shared.client_ca, others.pem())?;
    eventually(SOON, async || http.get("/version").send().await?.expect(401).map(drop)).await?;
    let path = shared.folder.path().join("next");
    shared.tributary.kubeconfig_of(&path, &others.user("ann", &[])?, &[])?;
    HttpClient::from_kubeconfig(&path, None).await?.get("/version").send().await?.expect(200).context("the next")?;
    Ok(())
}
