//! Tests many concurrent users over shared connections. No request may be executed as a different user.

use super::{SOON, Shared};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use tributary_e2e::{EventStream, HttpClient, PeopleAuthority, TestCluster, guard, namespace};

const USERS: usize = 200;

/// Number of rounds per user.
const ROUNDS: usize = 3;

const AT_ONCE: usize = 40;

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::many_users";
        cve_2021_25320_requests_of_200_users_keep_their_identity, connections_of_one_user_are_limited_to_a_part_of_max_connections,
        kubectl_gets_its_client_certificate_from_an_exec_plugin,
    ]
}

/// The server allows eight connections. Users share three quarters of them (six), and one of the six is a reserve.
/// Therefore a single user may have two connections, and a request on a third connection gets 429.
async fn connections_of_one_user_are_limited_to_a_part_of_max_connections(context: TestContext) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let members = context.fixture.pair().await?.clone();
    let shared = Shared::over(&context, members, &kubeconfig, &["--max-connections=8"]).await?;
    let user = shared.kubeconfig("ann", &[])?;
    let ask = async |http: &HttpClient, code| http.get("/version").send().await?.expect(code);
    // Each client opens a separate connection, so two clients use two permits.
    let client = || HttpClient::from_kubeconfig(&user, None);
    let clients = [client().await?, client().await?];
    for client in &clients {
        ask(client, 200).await?;
    }
    let third = client().await?;
    let refused = ask(&third, 429).await?.text().to_owned();
    ensure!(refused.contains("--max-connections"), "{refused}");
    ask(&shared.http("bob", &[]).await?, 200).await?;
    for client in &clients {
        ask(client, 200).await?;
    }
    // A closed connection frees its permit.
    drop(clients);
    eventually(SOON, async || ask(&client().await?, 200).await.map(drop)).await
}

/// Creates the RBAC rights of the users in a member. In its home member, a user may read and change the ConfigMap with
/// the user's name, and may create certificate requests. Both members have ConfigMaps with the names of all users.
async fn prepare(member: &TestCluster, own: &str, prefix: &str, is_home: impl Fn(usize) -> bool) -> anyhow::Result<()> {
    let api = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": {"name": prefix},
        "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}],
    });
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": prefix},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": prefix}],
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": prefix},
    });
    member.http().post(&format!("/apis/{api}/v1/clusterroles"), &role).send().await?.expect(201)?;
    member.http().post(&format!("/apis/{api}/v1/clusterrolebindings"), &binding).send().await?.expect(201)?;
    let each: Vec<_> = (0..USERS).map(|at| one_of_them(member, own, format!("{prefix}-{at}"), is_home(at))).collect();
    stream::iter(each).buffer_unordered(16).try_collect::<()>().await
}

async fn one_of_them(member: &TestCluster, own: &str, name: String, is_home: bool) -> anyhow::Result<()> {
    let data = json!({"owner": name, "home": member.name()});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    member.http().post(&format!("/api/v1/namespaces/{own}/configmaps"), &map).send().await?.expect(201)?;
    if !is_home {
        return Ok(());
    }
    let verbs = ["get", "list", "watch", "patch"];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": [name]}]);
    super::grant(member, own, &name, &name, rules).await
}

/// Starts an endpoint behind a front proxy, which sends the requests of all users over one connection.
async fn front_proxy(context: &TestContext) -> anyhow::Result<(Shared, HttpClient)> {
    let proxies = PeopleAuthority::new("the proxies' authority")?;
    let folder = guard::temporary_folder("proxies")?;
    let file = folder.path().join("proxies.crt");
    fs::write(&file, proxies.pem())?;
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let file = format!("--requestheader-client-ca-file={}", file.display());
    let arguments = [&*file, "--requestheader-allowed-names=front"];
    let shared = Shared::over(context, context.fixture.pair().await?.clone(), &kubeconfig, &arguments).await?;
    let http = HttpClient::from_kubeconfig(&shared.kubeconfig_with(&proxies.user("front", &[])?)?, None).await?;
    Ok((shared, http))
}

/// Each user has RBAC rights in one of two clusters, to the object with the user's name. All users read, list, watch
/// and write concurrently over one connection. If a request were executed as a different user, it would be refused, or
/// would return an object of that user.
async fn cve_2021_25320_requests_of_200_users_keep_their_identity(context: TestContext) -> anyhow::Result<()> {
    let (shared, http) = front_proxy(&context).await?;
    let own = context.namespace("crowd", &shared.members).await?;
    let prefix = namespace::unique_name("user");
    let homes = shared.members.clone();
    let prepared =
        homes.iter().enumerate().map(|(home, member)| prepare(member, &own, &prefix, move |at| at % 2 == home));
    futures::future::try_join_all(prepared).await?;
    let request = CertificateParams::new(Vec::<String>::new())?.serialize_request(&KeyPair::generate()?)?.pem()?;
    let homes = homes.map(|member| member.name().to_owned());
    let users = TestUsers { http, own, prefix, homes, request: STANDARD.encode(request) };
    eventually(SOON, async || users.reads(USERS - 2).await).await?;
    eventually(SOON, async || users.reads(USERS - 1).await).await?;
    let watches: Vec<_> = (0..USERS).map(|at| users.watches(at)).collect();
    let watches: Vec<_> = stream::iter(watches).buffered(AT_ONCE).try_collect().await?;
    let asked = (0..USERS * ROUNDS).map(|number| {
        let (users, at, round) = (&users, number % USERS, number / USERS);
        async move {
            tokio::try_join!(users.reads(at), users.lists(at), users.is_seen(at), users.says(at))?;
            users.writes(at, round).await
        }
    });
    let asked: Vec<_> = asked.collect();
    stream::iter(asked).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    // The rounds of a user are concurrent, so their events may arrive in any order.
    for (at, mut watch) in watches.into_iter().enumerate() {
        let mut rounds = BTreeSet::new();
        while rounds.len() < ROUNDS {
            let event = watch.expect(SOON).await?;
            ensure!(event["type"] == "MODIFIED", "{event}");
            users.is_own(at, &event["object"])?;
            rounds.insert(event["object"]["data"]["round"].to_string());
        }
    }
    Ok(())
}

struct TestUsers {
    http: HttpClient,
    own: String,
    prefix: String,
    homes: [String; 2],
    request: String,
}

impl TestUsers {
    fn name(&self, at: usize) -> String {
        format!("{}-{at}", self.prefix)
    }

    fn by(&self, at: usize, request: tributary_e2e::http::RequestBuilder) -> tributary_e2e::http::RequestBuilder {
        request.header("x-remote-user", &self.name(at)).header("x-remote-group", &self.prefix)
    }

    fn path(&self, at: usize) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{}", self.own, self.name(at))
    }

    fn collection(&self, at: usize) -> String {
        format!("/api/v1/namespaces/{}/configmaps?fieldSelector=metadata.name%3D{}", self.own, self.name(at))
    }

    /// Checks that an object has the user's name and is from the user's home cluster.
    fn is_own(&self, at: usize, object: &Value) -> anyhow::Result<()> {
        let home = &self.homes[at % 2];
        ensure!(object["data"]["owner"] == json!(self.name(at)), "{object} instead of {at}'s");
        ensure!(object["data"]["home"] == json!(home), "{object} instead of {home}'s");
        ensure!(object["metadata"]["annotations"]["tributary.dev/cluster"] == json!(home), "{object}");
        Ok(())
    }

    /// Reads the user's object from Tributary's cache. A read of a different user's object must be refused.
    async fn reads(&self, at: usize) -> anyhow::Result<()> {
        let own = self.by(at, self.http.get(&self.path(at))).send().await?.expect(200)?.json()?;
        self.is_own(at, &own)?;
        self.by(at, self.http.get(&self.path((at + 1) % USERS))).send().await?.expect(403).map(drop)
    }

    /// Lists the user's object by its name. A list of all objects must be refused.
    async fn lists(&self, at: usize) -> anyhow::Result<Value> {
        let list = self.by(at, self.http.get(&self.collection(at))).send().await?.expect(200)?.json()?;
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let [item] = items else { anyhow::bail!("{at} is shown {list}") };
        self.is_own(at, item)?;
        self.by(at, self.http.get(&self.collection((at + 2) % USERS))).send().await?.expect(403)?;
        let all = format!("/api/v1/namespaces/{}/configmaps", self.own);
        self.by(at, self.http.get(&all)).send().await?.expect(403)?;
        Ok(list)
    }

    /// Watches the user's object from its current version.
    async fn watches(&self, at: usize) -> anyhow::Result<EventStream> {
        let list = self.lists(at).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
        let path = format!("{}&watch=1&resourceVersion={version}", self.collection(at));
        self.by(at, self.http.get(&path)).stream().await?.events()
    }

    /// Changes the user's object in its home cluster. A change of a different user's object in this cluster must be
    /// refused.
    async fn writes(&self, at: usize, round: usize) -> anyhow::Result<()> {
        let change = json!({"data": {"round": round.to_string()}});
        let patch = |of: usize| self.by(at, self.http.patch(&self.path(of), "merge-patch+json", &change));
        let changed = patch(at).send().await?.expect(200)?.json()?;
        self.is_own(at, &changed)?;
        patch((at + 2) % USERS).send().await?.expect(403).map(drop)
    }

    /// Checks as which user the member executes the request. The member records this user in a certificate request.
    async fn is_seen(&self, at: usize) -> anyhow::Result<()> {
        let group = "certificates.k8s.io";
        let spec = json!({
            "request": self.request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
        });
        let body = json!({
            "apiVersion": format!("{group}/v1"), "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name(at)}, "spec": spec,
        });
        let home = &self.homes[at % 2];
        let path = format!("/clusters/{home}/apis/{group}/v1/certificatesigningrequests?dryRun=All");
        let made = self.by(at, self.http.post(&path, &body)).send().await?.expect(201)?.json()?;
        self.is(at, &made["spec"]["username"], &made["spec"]["groups"])
    }

    /// Checks which user the endpoint recognizes.
    async fn says(&self, at: usize) -> anyhow::Result<()> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let said = self.by(at, self.http.post(path, &review)).send().await?.expect(201)?.json()?;
        let info = &said["status"]["userInfo"];
        self.is(at, &info["username"], &info["groups"])
    }

    fn is(&self, at: usize, name: &Value, groups: &Value) -> anyhow::Result<()> {
        ensure!(*name == json!(self.name(at)), "{name} instead of {at}");
        ensure!(*groups == json!([self.prefix, "system:authenticated"]), "{groups}");
        Ok(())
    }
}

/// Exec plugins often provide client certificates with short lifetimes.
async fn kubectl_gets_its_client_certificate_from_an_exec_plugin(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    let name = namespace::unique_name("ann");
    let user = shared.people.user(&name, &["dev"])?;
    let decoded = |field: &str| -> anyhow::Result<String> {
        let text = user[field].as_str().with_context(|| format!("no {field}"))?;
        Ok(String::from_utf8(STANDARD.decode(text)?)?)
    };
    let version = "client.authentication.k8s.io/v1";
    let status = json!({
        "clientCertificateData": decoded("client-certificate-data")?, "clientKeyData": decoded("client-key-data")?,
    });
    let file = shared.folder.path().join("credential.json");
    fs::write(&file, json!({"apiVersion": version, "kind": "ExecCredential", "status": status}).to_string())?;
    let plugin = json!({"exec": {
        "apiVersion": version, "command": "cat", "args": [file.display().to_string()], "interactiveMode": "Never",
    }});
    let kubectl = tributary_e2e::Kubectl::new(context.fixture.tools().await?, &shared.kubeconfig_with(&plugin)?)?;
    let who: Value = serde_json::from_str(&kubectl.ok(&["auth", "whoami", "-o", "json"]).await?)?;
    ensure!(who["status"]["userInfo"]["username"] == json!(name), "{who}");
    Ok(())
}
