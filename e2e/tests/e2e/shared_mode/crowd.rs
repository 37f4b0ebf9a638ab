//! Many users at once, over connections that they share with each other: nobody is taken for somebody else.

use super::{SOON, Shared};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt, TryStreamExt, stream};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::fs;
use tributary_e2e::{HttpClient, PeopleAuthority, TestCluster, guard, namespace};

/// How many users there are.
const USERS: usize = 200;

/// How often each of them asks.
const ROUNDS: usize = 3;

/// How many requests are on their way at once.
const AT_ONCE: usize = 40;

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::crowd"; two_hundred_users_are_never_crossed, one_user_leaves_connections_to_others, kubectl_takes_certificates_from_a_plugin]
}

/// A user has a quarter of all connections, and one more is told so and closed.
async fn one_user_leaves_connections_to_others(context: TestContext) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let members = context.fixture.pair().await?.clone();
    let shared = Shared::over(&context, members, &kubeconfig, &["--max-connections=8"]).await?;
    let user = shared.kubeconfig("ann", &[])?;
    let ask = async |http: &HttpClient, code| http.get("/version").send().await?.expect(code);
    // Each client has connections of its own.
    let clients = [HttpClient::from_kubeconfig(&user, None).await?, HttpClient::from_kubeconfig(&user, None).await?];
    for client in &clients {
        ask(client, 200).await?;
    }
    let third = HttpClient::from_kubeconfig(&user, None).await?;
    let refused = ask(&third, 429).await?.text().to_owned();
    ensure!(refused.contains("--max-connections"), "{refused}");
    ask(&shared.http("bob", &[]).await?, 200).await?;
    for client in &clients {
        ask(client, 200).await?;
    }
    // What is given back can be had again.
    drop(clients);
    eventually(SOON, async || ask(&HttpClient::from_kubeconfig(&user, None).await?, 200).await.map(drop)).await
}

/// What all of them may do in a member: each may read a ConfigMap of their own, and ask for a certificate.
async fn prepare(member: &TestCluster, own: &str, prefix: &str) -> anyhow::Result<()> {
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
    let each: Vec<_> = (0..USERS).map(|at| one_of_them(member, own, prefix, at)).collect();
    stream::iter(each).buffer_unordered(16).try_collect::<()>().await
}

async fn one_of_them(member: &TestCluster, own: &str, prefix: &str, at: usize) -> anyhow::Result<()> {
    let name = format!("{prefix}-{at}");
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [name]},
    ]);
    super::grant(member, own, &name, &name, rules).await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"owner": name}});
    member.http().post(&format!("/api/v1/namespaces/{own}/configmaps"), &map).send().await?.expect(201).map(drop)
}

/// A proxy in front, through whose one connection all of them come.
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

async fn two_hundred_users_are_never_crossed(context: TestContext) -> anyhow::Result<()> {
    let (shared, http) = front_proxy(&context).await?;
    let own = context.namespace("crowd", &shared.members).await?;
    let prefix = namespace::unique_name("user");
    prepare(&shared.members[0], &own, &prefix).await?;
    let request = CertificateParams::new(Vec::<String>::new())?.serialize_request(&KeyPair::generate()?)?.pem()?;
    let crowd = Crowd { http, own, prefix, request: STANDARD.encode(request) };
    eventually(SOON, async || crowd.reads(USERS - 1).await).await?;
    let asked = (0..USERS * ROUNDS).map(|at| {
        let crowd = &crowd;
        async move {
            let at = at % USERS;
            tokio::try_join!(crowd.reads(at), crowd.is_seen(at), crowd.says(at)).map(drop)
        }
    });
    let asked: Vec<_> = asked.collect();
    stream::iter(asked).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

struct Crowd {
    http: HttpClient,
    own: String,
    prefix: String,
    /// A request for a certificate.
    request: String,
}

impl Crowd {
    fn by(&self, at: usize, request: tributary_e2e::http::RequestBuilder) -> tributary_e2e::http::RequestBuilder {
        let name = format!("{}-{at}", self.prefix);
        request.header("x-remote-user", &name).header("x-remote-group", &self.prefix)
    }

    /// What memory answers: their own object, and not that of the next.
    async fn reads(&self, at: usize) -> anyhow::Result<()> {
        let path = |at: usize| format!("/api/v1/namespaces/{}/configmaps/{}-{at}", self.own, self.prefix);
        let own = self.by(at, self.http.get(&path(at))).send().await?.expect(200)?.json()?;
        ensure!(own["data"]["owner"] == json!(format!("{}-{at}", self.prefix)), "{own}");
        self.by(at, self.http.get(&path((at + 1) % USERS))).send().await?.expect(403).map(drop)
    }

    /// Whom a member sees: it writes who asked for a certificate into the object.
    async fn is_seen(&self, at: usize) -> anyhow::Result<()> {
        let group = "certificates.k8s.io";
        let spec = json!({
            "request": self.request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
        });
        let body = json!({
            "apiVersion": format!("{group}/v1"), "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("{}-{at}", self.prefix)}, "spec": spec,
        });
        let path = format!("/clusters/member1/apis/{group}/v1/certificatesigningrequests?dryRun=All");
        let made = self.by(at, self.http.post(&path, &body)).send().await?.expect(201)?.json()?;
        self.is(at, &made["spec"]["username"], &made["spec"]["groups"])
    }

    /// Whom the endpoint sees.
    async fn says(&self, at: usize) -> anyhow::Result<()> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let said = self.by(at, self.http.post(path, &review)).send().await?.expect(201)?.json()?;
        let info = &said["status"]["userInfo"];
        self.is(at, &info["username"], &info["groups"])
    }

    fn is(&self, at: usize, name: &Value, groups: &Value) -> anyhow::Result<()> {
        ensure!(*name == json!(format!("{}-{at}", self.prefix)), "{name} instead of {at}");
        ensure!(*groups == json!([self.prefix, "system:authenticated"]), "{groups}");
        Ok(())
    }
}

/// kubectl runs a program that gives it a certificate, as people do whose certificates live for minutes.
async fn kubectl_takes_certificates_from_a_plugin(context: TestContext) -> anyhow::Result<()> {
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
