//! Tests bearer tokens over two real members: tokens of an OIDC issuer, tokens of ServiceAccounts, and tokens that
//! clusters review.

use super::{SOON, config_maps, grant, make_config_map, reads_config_maps};
use crate::{
    authentication::issuer::{Change, TestIssuer},
    context::{Case, TestContext, cases, eventually},
    kubectl::pod,
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tributary_e2e::{HttpClient, Kubectl, TestCluster, Tributary, guard, kubeconfig, namespace};

/// Longest time until Tributary accepts a new key of a member. If a token names a key that Tributary does not have,
/// Tributary reads the keys at most every 30 s.
pub(super) const KEYS_PATIENCE: Duration = Duration::from_secs(90);
/// Longest time until Tributary reviews the token of a long-running request again. It does so every minute.
const REVIEWED_AGAIN: Duration = Duration::from_secs(100);
const UNAUTHORIZED: u16 = 401;

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::tokens";
        oidc_token_authenticates_the_user_in_its_claims, service_account_token_is_valid_only_in_the_cluster_that_issued_it,
        token_is_authenticated_by_the_token_review_of_a_cluster, documented_rbac_rules_suffice_for_token_reviews,
        token_pass_through_forwards_the_token_of_the_user_to_the_cluster, proof_streams_of_a_deleted_service_account_end,
        tokens_are_invalid_after_their_cluster_is_replaced,
    ]
}

/// Endpoint that accepts only tokens as credentials. `member1` reviews tokens that belong to no configured issuer.
/// `member2` reviews the tokens of requests to its path at the endpoint.
pub(super) struct Endpoint {
    tributary: Arc<Tributary>,
    issuer: TestIssuer,
    issuers: PathBuf,
    pub(super) members: [Arc<TestCluster>; 2],
    folder: tempfile::TempDir,
}

impl Endpoint {
    pub(super) async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let token = context.fixture.pair().await?[1].access().token;
        Self::start_as(context, &token, &json!({})).await
    }

    /// Starts the endpoint. Tributary connects to `member2` with this token, and the UpstreamCluster has these
    /// additional fields.
    async fn start_as(context: &TestContext, own_token: &str, further: &Value) -> anyhow::Result<Self> {
        let members = context.fixture.pair().await?.clone();
        let folder = guard::temporary_folder("tokens")?;
        let issuer = TestIssuer::start().await?;
        let file = |name: &str| folder.path().join(name);
        let (own, config, issuers) = (file("kubeconfig"), file("clusters.json"), file("authentication.yaml"));
        kubeconfig::write(&own, &[&members[0].access()])?;
        let member2 = (members[1].name(), &*members[1]);
        fs::write(&config, reviewing(member2, &file("member2.ca"), own_token, further)?)?;
        fs::write(&issuers, issuer.configuration())?;
        let tributary = Tributary::builder(&own, [members[0].name()])
            .in_shared_mode()
            // Even the most verbose log must not contain tokens.
            .argument("--log-level=trace")
            .argument(format!("--config={}", config.display()))
            .argument(format!("--authentication-config={}", issuers.display()))
            .argument(format!("--token-review-cluster={}", members[0].name()))
            .start()
            .await?;
        let tributary = context.fixture.watch_log(tributary).await;
        Ok(Self { tributary, issuer, issuers, members, folder })
    }

    fn kubeconfig(&self, user: &Value) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(namespace::unique_name("person"));
        self.tributary.kubeconfig_of(&path, user, &["member1", "member2"])?;
        Ok(path)
    }

    pub(super) async fn http(&self, token: &str) -> anyhow::Result<HttpClient> {
        HttpClient::from_kubeconfig(&self.kubeconfig(&json!({"token": token}))?, None).await
    }

    async fn kubectl(&self, context: &TestContext, user: &Value) -> anyhow::Result<Kubectl> {
        Kubectl::new(context.fixture.tools().await?, &self.kubeconfig(user)?)
    }

    /// Sends a request with a token on a new connection, and returns the status.
    async fn status(&self, token: &str, path: &str) -> anyhow::Result<u16> {
        Ok(self.http(token).await?.get(path).send().await?.status.as_u16())
    }

    /// Checks that the log contains no part of these tokens.
    fn log_holds_none_of(&self, tokens: &[&str]) -> anyhow::Result<()> {
        let log = self.tributary.log();
        let quoted = tokens.iter().flat_map(|token| token.split('.')).filter(|part| part.len() > 8);
        let quoted: Vec<_> = quoted.filter(|part| log.contains(part)).collect();
        ensure!(quoted.is_empty(), "the log has {quoted:?}");
        Ok(())
    }
}

/// Makes an UpstreamCluster that reviews the tokens of requests to its path at the endpoint.
fn reviewing(
    (name, member): (&str, &TestCluster),
    authority: &Path,
    own_token: &str,
    further: &Value,
) -> anyhow::Result<String> {
    let access = member.access();
    fs::write(authority, &access.certificate_authority)?;
    let mut spec = json!({
        "endpoints": [access.server], "caFile": authority, "credentials": {"token": own_token}, "tokenReview": true,
    });
    let fields = further.as_object().context("fields")?.clone();
    spec.as_object_mut().context("a spec")?.extend(fields);
    let metadata = json!({"name": name});
    let kind = "UpstreamCluster";
    Ok(json!({"apiVersion": "tributary.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}).to_string())
}

/// Returns the user and groups that the endpoint recognizes for a client.
async fn who(kubectl: &Kubectl) -> anyhow::Result<(String, Value)> {
    let answer: Value = serde_json::from_str(&kubectl.ok(&["auth", "whoami", "-o", "json"]).await?)?;
    let info = &answer["status"]["userInfo"];
    Ok((info["username"].as_str().unwrap_or_default().to_owned(), info["groups"].clone()))
}

/// Requests a token of a ServiceAccount. Without audiences, the token is valid at the member itself.
pub(super) async fn token_of(
    member: &TestCluster,
    namespace: &str,
    name: &str,
    audiences: &[&str],
) -> anyhow::Result<String> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
    let spec = json!({"audiences": audiences, "expirationSeconds": 600});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let answer = member.http().post(&path, &request).send().await?.expect(201)?.json()?;
    Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
}

async fn oidc_token_authenticates_the_user_in_its_claims(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let own = context.namespace("tokens", &endpoint.members).await?;
    grant(&endpoint.members[0], &own, "ann", "oidc:ann", reads_config_maps()).await?;
    make_config_map(&endpoint.members[0], &own, "hers", 10).await?;
    make_config_map(&endpoint.members[1], &own, "hidden", 10).await?;
    let token = endpoint.issuer.token("a", &[])?;
    let kubectl = endpoint.kubectl(&context, &json!({"token": token})).await?;
    let expected = ("oidc:ann".to_owned(), json!(["team:dev", "team:ops", "system:authenticated"]));
    ensure!(who(&kubectl).await? == expected, "{:?}", who(&kubectl).await?);
    eventually(SOON, async || {
        let listed = kubectl.ok(&["get", "configmaps", "-n", &own, "-o", "name"]).await?;
        ensure!(listed.contains("configmap/hers") && !listed.contains("hidden"), "{listed}");
        Ok(())
    })
    .await?;
    let refused = kubectl.run(&["get", "pods", "-n", &own]).await?;
    ensure!(refused.stderr.contains("User \"oidc:ann\" cannot list resource \"pods\""), "{}", refused.stderr);

    // kubectl gets the token from an exec plugin.
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    let path = endpoint.folder.path().join("credential.json");
    fs::write(&path, credential.to_string())?;
    let exec = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [path], "interactiveMode": "Never",
    }});
    ensure!(who(&endpoint.kubectl(&context, &exec).await?).await? == expected);

    let bad = |changes: &[Change]| endpoint.issuer.token("a", changes);
    for (name, token) in [
        ("expired", bad(&[Change::Expires(-5)])?),
        ("for others", bad(&[Change::Claim("aud", json!("other"))])?),
        ("signed by another key than it says", bad(&[Change::Header("kid", json!("p384"))])?),
        ("of no issuer", bad(&[Change::Claim("iss", json!("https://127.0.0.1/a"))])?),
        ("a guess", "guessed".to_owned()),
    ] {
        let status = endpoint.status(&token, "/api/v1/configmaps").await?;
        ensure!(status == UNAUTHORIZED, "{name}: {status}");
        let refused = endpoint.kubectl(&context, &json!({"token": token})).await?.run(&["get", "configmaps"]).await?;
        ensure!(refused.stderr.contains("You must be logged in to the server"), "{name}: {}", refused.stderr);
        endpoint.log_holds_none_of(&[&token])?;
    }
    lasts_until_the_token_ends(&endpoint, &own).await?;
    issuers_are_exchanged(&endpoint, &token, &own).await?;
    endpoint.log_holds_none_of(&[&token])
}

/// Opens a watch with a token, and checks that the watch ends when the token expires.
async fn lasts_until_the_token_ends(endpoint: &Endpoint, own: &str) -> anyhow::Result<()> {
    let http = endpoint.http(&endpoint.issuer.token("a", &[Change::Expires(8)])?).await?;
    let mut events = http.watch(&format!("/api/v1/namespaces/{own}/configmaps?watch=1")).await?;
    let (told, ended) = events.drain(SOON).await?;
    ensure!(ended, "{told:?}");
    ensure!(told.iter().any(|event| event["object"]["metadata"]["name"] == "hers"), "{told:?}");
    Ok(())
}

/// Checks that Tributary reloads the file of issuers. An invalid file must change nothing. Requests with tokens of a
/// removed issuer must end.
async fn issuers_are_exchanged(endpoint: &Endpoint, token: &str, own: &str) -> anyhow::Result<()> {
    let configuration = endpoint.issuer.configuration();
    let http = endpoint.http(token).await?;
    let mut events = http.watch(&format!("/api/v1/namespaces/{own}/configmaps?watch=1")).await?;
    fs::write(&endpoint.issuers, "jwt: nothing")?;
    eventually(SOON, async || {
        let log = endpoint.tributary.log();
        ensure!(log.contains("--authentication-config") && log.contains("the previous ones stay in use"), "{log}");
        Ok(())
    })
    .await?;
    ensure!(endpoint.status(token, "/version").await? == 200);
    let mut without: Value = serde_json::from_str(&configuration)?;
    without["jwt"].as_array_mut().context("no issuers")?.remove(0);
    fs::write(&endpoint.issuers, without.to_string())?;
    eventually(SOON, async || {
        let status = endpoint.status(token, "/version").await?;
        ensure!(status == UNAUTHORIZED, "{status}");
        Ok(())
    })
    .await?;
    let (told, ended) = events.drain(SOON).await?;
    ensure!(ended && told.last().is_some_and(|event| event["object"]["code"] == 401), "{told:?}");
    let other = endpoint.issuer.token("b", &[])?;
    ensure!(endpoint.status(&other, "/version").await? == 200);
    fs::write(&endpoint.issuers, configuration)?;
    eventually(SOON, async || {
        let status = endpoint.status(token, "/version").await?;
        ensure!(status == 200, "{status}");
        Ok(())
    })
    .await
}

/// A cluster is replaced by a new cluster with the same member name. Tokens of the old cluster must become invalid and
/// its watches must end, because a ServiceAccount of the same name in the new cluster is a different user.
async fn tokens_are_invalid_after_their_cluster_is_replaced(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let own = context.namespace("replaced", &members).await?;
    for (member, map) in [(&members[0], "of-one"), (&members[1], "of-two")] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
        member.http().post(&format!("/api/v1/namespaces/{own}/serviceaccounts"), &account).send().await?.expect(201)?;
        let name = format!("system:serviceaccount:{own}:robot");
        let resources = ["configmaps", "pods", "pods/log", "pods/exec"];
        let rules = json!([{"apiGroups": [""], "resources": resources, "verbs": ["get", "list", "watch", "create"]}]);
        grant(member, &own, "robot", &name, rules).await?;
        make_config_map(member, &own, map, 10).await?;
        let pods = format!("/api/v1/namespaces/{own}/pods");
        let node = format!("{}-node-0", member.name());
        member.http().post(&pods, &pod("one", &node)).send().await?.expect(201)?;
        eventually(SOON, async || {
            let pod = member.http().get(&format!("{pods}/one")).send().await?.expect(200)?.json()?;
            ensure!(pod["status"]["phase"] == "Running", "{pod}");
            Ok(())
        })
        .await?;
    }
    let folder = guard::temporary_folder("replaced")?;
    let (config, issuer) = (folder.path().join("config"), TestIssuer::start().await?);
    fs::create_dir(&config)?;
    let issuers = folder.path().join("authentication.yaml");
    fs::write(&issuers, issuer.configuration())?;
    let lead_to = |member: &TestCluster| {
        let authority = folder.path().join(format!("{}.ca", member.name()));
        let described = reviewing(("prod", member), &authority, &member.access().token, &json!({}))?;
        Ok::<_, anyhow::Error>(fs::write(config.join("prod.json"), described)?)
    };
    lead_to(&members[0])?;
    let tributary = Tributary::configured(&config).in_shared_mode();
    let tributary = tributary.argument(format!("--authentication-config={}", issuers.display())).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http_with = async |token: String| {
        let path = folder.path().join(namespace::unique_name("robot"));
        tributary.kubeconfig_of(&path, &json!({"token": token}), &["prod"])?;
        HttpClient::from_kubeconfig(&path, None).await
    };
    let maps = format!("/clusters/prod/api/v1/namespaces/{own}/configmaps");
    let names = |answer: &Value| config_maps(answer).into_iter().map(|(_, _, name)| name).collect::<Vec<_>>();
    let of_one = http_with(token_of(&members[0], &own, "robot", &[]).await?).await?;
    eventually(SOON, async || {
        let answer = of_one.get(&maps).send().await?.expect(200)?.json()?;
        ensure!(names(&answer) == ["of-one"], "{answer}");
        Ok(())
    })
    .await?;
    let mut watch = of_one.watch(&format!("{maps}?watch=1")).await?;
    let first = watch.expect(SOON).await?;
    ensure!(first["type"] == "ADDED", "{first}");
    let path = folder.path().join("kubectl");
    let token = token_of(&members[0], &own, "robot", &[]).await?;
    tributary.kubeconfig_of(&path, &json!({"token": token}), &["prod"])?;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &path)?;
    let hello = format!("hello from {}", members[0].name());
    let mut open = Vec::new();
    for (command, sign) in
        [(&["logs", "-f", "one"][..], &*hello), (&["exec", "one", "--", "sh", "-c", "echo begun; sleep 600"], "begun")]
    {
        let mut process = kubectl.spawn(&[&["--context", "prod", "-n", &own], command].concat())?;
        process.wait_for_output(SOON, |text| text.contains(sign)).await?;
        open.push(process);
    }

    lead_to(&members[1])?;
    eventually(SOON, async || {
        let answer = of_one.get(&maps).send().await?;
        ensure!(answer.status != 200 || names(&answer.json()?) == ["of-one"], "{}", answer.text());
        ensure!(answer.status.as_u16() == UNAUTHORIZED, "{}: {}", answer.status, answer.text());
        Ok(())
    })
    .await?;
    make_config_map(&members[0], &own, "late", 10).await?;
    // The server may abort the stream, which `drain` returns as an error. The test treats both as the end.
    let (told, ended) = watch.drain(SOON).await.unwrap_or_else(|_| (Vec::new(), true));
    ensure!(ended, "the watch goes on: {told:?}");
    for process in &mut open {
        process.wait(SOON).await?;
    }
    let of_others =
        |event: &&Value| ["late", "of-two"].contains(&event["object"]["metadata"]["name"].as_str().unwrap_or_default());
    ensure!(!told.iter().any(|event| of_others(&event)), "{told:?}");
    let of_two = http_with(token_of(&members[1], &own, "robot", &[]).await?).await?;
    let answer = of_two.get(&maps).send().await?.expect(200)?.json()?;
    ensure!(names(&answer) == ["of-two"], "{answer}");
    ensure!(tributary.log().contains("the name now belongs to a different cluster"));
    Ok(())
}

async fn service_account_token_is_valid_only_in_the_cluster_that_issued_it(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let [one, two] = &endpoint.members;
    let own = context.namespace("accounts", &endpoint.members).await?;
    let name = format!("system:serviceaccount:{own}:app");
    // ServiceAccounts with the same name in two members are different users.
    for (member, map) in [(one, "of-one"), (two, "of-two")] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
        member.http().post(&format!("/api/v1/namespaces/{own}/serviceaccounts"), &account).send().await?.expect(201)?;
        grant(member, &own, "app", &name, reads_config_maps()).await?;
        make_config_map(member, &own, map, 10).await?;
    }
    let token = token_of(two, &own, "app", &[]).await?;
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    eventually(KEYS_PATIENCE, async || {
        let answer = endpoint.http(&token).await?.get(&maps).send().await?.expect(200)?.json()?;
        let expected = ("member2".to_owned(), own.clone(), "of-two".to_owned());
        ensure!(config_maps(&answer).into_iter().eq([expected]), "{answer}");
        Ok(())
    })
    .await?;
    let kubectl = endpoint.kubectl(&context, &json!({"token": token})).await?;
    let groups = json!(["system:serviceaccounts", format!("system:serviceaccounts:{own}"), "system:authenticated"]);
    ensure!(who(&kubectl).await? == (name.clone(), groups), "{:?}", who(&kubectl).await?);
    // The token must be valid for the path of the cluster that issued it, and invalid for the path of the other
    // cluster.
    ensure!(endpoint.status(&token, &format!("/clusters/member2{maps}/of-two")).await? == 200);
    for path in [format!("/clusters/member1{maps}"), format!("/clusters/member1{maps}/of-one")] {
        let status = endpoint.status(&token, &path).await?;
        ensure!(status == UNAUTHORIZED, "{path}: {status}");
    }
    let refused = kubectl.run(&["get", "configmap", "of-one", "-n", &own]).await?;
    ensure!(refused.stderr.contains("NotFound"), "{}", refused.stderr);

    // A token for a different audience must be invalid, although a known key signed it.
    let elsewhere = token_of(two, &own, "app", &["vault"]).await?;
    ensure!(endpoint.status(&elsewhere, &maps).await? == UNAUTHORIZED);
    // A token with a forged signature must be invalid.
    let forged = format!("{}.{}", token.rsplit_once('.').context("a JWT")?.0, "A".repeat(86));
    ensure!(endpoint.status(&forged, &maps).await? == UNAUTHORIZED);
    // The token of a deleted ServiceAccount must become invalid.
    two.http().delete(&format!("/api/v1/namespaces/{own}/serviceaccounts/app")).send().await?.expect(200)?;
    eventually(SOON, async || {
        let status = endpoint.status(&token, &maps).await?;
        ensure!(status == UNAUTHORIZED, "{status}");
        Ok(())
    })
    .await?;
    endpoint.log_holds_none_of(&[&token, &elsewhere])
}

/// When a cluster no longer accepts a token, long-running requests with this token must end: watches that Tributary
/// answers from its cache, and watches that it forwards.
async fn proof_streams_of_a_deleted_service_account_end(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let two = &endpoint.members[1];
    let own = context.namespace("accounts", &endpoint.members).await?;
    let mut open = Vec::new();
    for account in ["stays", "goes"] {
        let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
        two.http().post(&format!("/api/v1/namespaces/{own}/serviceaccounts"), &body).send().await?.expect(201)?;
        grant(two, &own, account, &format!("system:serviceaccount:{own}:{account}"), reads_config_maps()).await?;
        let http = endpoint.http(&token_of(two, &own, account, &[]).await?).await?;
        for cluster in ["", "/clusters/member2"] {
            let maps = format!("{cluster}/api/v1/namespaces/{own}/configmaps");
            eventually(KEYS_PATIENCE, async || http.get(&maps).send().await?.expect(200).map(drop)).await?;
            open.push(http.watch(&format!("{maps}?watch=1")).await?);
        }
    }
    two.http().delete(&format!("/api/v1/namespaces/{own}/serviceaccounts/goes")).send().await?.expect(200)?;
    let lost = open.split_off(2);
    for mut watch in lost {
        let (told, ended) = watch.drain(REVIEWED_AGAIN).await?;
        ensure!(ended, "it goes on: {told:?}");
    }
    make_config_map(two, &own, "later", 10).await?;
    for mut watch in open {
        while watch.expect(SOON).await?["object"]["metadata"]["name"] != "later" {}
    }
    Ok(())
}

async fn token_is_authenticated_by_the_token_review_of_a_cluster(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let own = context.namespace("reviewed", &endpoint.members).await?;
    let [of_hub, of_two] = [&endpoint.members[0], &endpoint.members[1]].map(|member| member.access().token);
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    for member in &endpoint.members {
        make_config_map(member, &own, &format!("of-{}", member.name()), 10).await?;
    }
    // The administrator has all rights in the cluster through a group. The endpoint must not grant rights by this
    // group.
    let kubectl = endpoint.kubectl(&context, &json!({"token": of_hub})).await?;
    let expected = ("admin".to_owned(), json!(["system:masters", "system:authenticated"]));
    ensure!(who(&kubectl).await? == expected, "{:?}", who(&kubectl).await?);
    ensure!(endpoint.status(&of_hub, &maps).await? == 403);
    // A token that the hub reviews is valid for both clusters. A token that the second cluster reviews is valid only
    // for requests to the path of the second cluster.
    ensure!(endpoint.status(&of_two, &maps).await? == UNAUTHORIZED);
    let addressed = format!("/clusters/member2{maps}");
    for token in [&of_hub, &of_two] {
        ensure!(endpoint.status(token, &addressed).await? == 403);
    }
    ensure!(endpoint.status(&of_two, &format!("/clusters/member1{maps}")).await? == UNAUTHORIZED);
    grant(&endpoint.members[1], &own, "admin", "admin", reads_config_maps()).await?;
    eventually(SOON, async || {
        for token in [&of_hub, &of_two] {
            let answer = endpoint.http(token).await?.get(&addressed).send().await?.expect(200)?.text();
            ensure!(answer.contains("of-member2") && !answer.contains("of-member1"), "{answer}");
        }
        Ok(())
    })
    .await?;
    // Tributary reads the cluster's RBAC objects with a delay.
    eventually(SOON, async || {
        let merged = endpoint.http(&of_hub).await?.get(&maps).send().await?.expect(200)?.json()?;
        let clusters: Vec<_> = config_maps(&merged).into_iter().map(|(cluster, ..)| cluster).collect();
        ensure!(clusters == ["member2"], "{merged}");
        Ok(())
    })
    .await?;
    ensure!(endpoint.status(&of_two, &maps).await? == UNAUTHORIZED);
    endpoint.log_holds_none_of(&[&of_hub, &of_two])
}

fn documented_roles() -> anyhow::Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/shared-mode.md");
    let text = fs::read_to_string(path)?;
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let roles = blocks.filter(|block| block.contains("kind: ClusterRole\n"));
    roles.map(|block| Ok(serde_saphyr::from_str(block)?)).collect()
}

async fn documented_rbac_rules_suffice_for_token_reviews(context: TestContext) -> anyhow::Result<()> {
    let member = Arc::clone(&context.fixture.pair().await?[1]);
    let own = context.namespace("documented", std::slice::from_ref(&member)).await?;
    make_accounts(&member, &own).await?;
    let tributary = format!("system:serviceaccount:{own}:tributary");
    let roles = documented_roles()?;
    ensure!(roles.len() >= 2, "{roles:?}");
    for role in roles {
        let name = format!("{own}-{}", role["metadata"]["name"].as_str().context("a name")?);
        grant(&member, "", &name, &tributary, role["rules"].clone()).await?;
    }
    grant(&member, "", &format!("{own}-held"), &tributary, reads_config_maps()).await?;
    let mut rules = reads_config_maps();
    rules[0]["verbs"].as_array_mut().context("verbs")?.push(json!("create"));
    grant(&member, &own, "app", &format!("system:serviceaccount:{own}:app"), rules).await?;
    make_config_map(&member, &own, "held", 10).await?;

    let endpoint = Endpoint::start_as(&context, &token_of(&member, &own, "tributary", &[]).await?, &json!({})).await?;
    let http = endpoint.http(&token_of(&member, &own, "app", &[]).await?).await?;
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    eventually(KEYS_PATIENCE, async || {
        let answer = http.get(&maps).send().await?.expect(200)?.json()?;
        ensure!(config_maps(&answer).iter().any(|(.., name)| name == "held"), "{answer}");
        Ok(())
    })
    .await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    http.post(&format!("/clusters/member2{maps}"), &map).send().await?.expect(201)?;
    http.get(&format!("/clusters/member2/api/v1/namespaces/{own}/pods")).send().await?.expect(403)?;
    Ok(())
}

async fn make_accounts(member: &TestCluster, namespace: &str) -> anyhow::Result<()> {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    for name in ["tributary", "app"] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        member.http().post(&accounts, &account).send().await?.expect(201)?;
    }
    Ok(())
}

/// With `tokenPassThrough`, Tributary sends the user's own token to the cluster. Then Tributary's account needs no
/// right to impersonate, and the cluster gets all information about the user. Tokens of other clusters, and other
/// paths, must work as without `tokenPassThrough`.
async fn token_pass_through_forwards_the_token_of_the_user_to_the_cluster(context: TestContext) -> anyhow::Result<()> {
    let member = Arc::clone(&context.fixture.pair().await?[1]);
    let own = context.namespace("passed", std::slice::from_ref(&member)).await?;
    make_accounts(&member, &own).await?;
    let reviews = json!([{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]);
    let tributary = format!("system:serviceaccount:{own}:tributary");
    grant(&member, "", &format!("{own}-reviews"), &tributary, reviews).await?;
    let ours = token_of(&member, &own, "tributary", &[]).await?;
    let endpoint = Endpoint::start_as(&context, &ours, &json!({"tokenPassThrough": true})).await?;

    let (administrator, app) = (member.access().token, token_of(&member, &own, "app", &[]).await?);
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    let theirs = format!("/clusters/member2{maps}");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}});
    // The token gives the administrator privileged groups, which Tributary never sends by impersonation.
    let http = endpoint.http(&administrator).await?;
    http.post(&theirs, &map).send().await?.expect(201)?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/clusters/member2/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who = http.post(path, &review).send().await?.expect(201)?.json()?;
    ensure!(who["status"]["userInfo"]["groups"][0] == "system:masters", "{who}");
    let (told, _) = http.watch(&format!("{theirs}?watch=1&timeoutSeconds=1")).await?.drain(SOON).await?;
    ensure!(told.iter().any(|event| event["object"]["metadata"]["name"] == "made"), "{told:?}");

    // The cluster must decide about the requests of each user, with its own messages, also about impersonation.
    let http = endpoint.http(&app).await?;
    http.get(&theirs).send().await?.expect(403)?;
    grant(&member, &own, "app", &format!("system:serviceaccount:{own}:app"), reads_config_maps()).await?;
    let bare = HttpClient::from_kubeconfig(&of_member(&endpoint, &member, &app)?, None).await?;
    eventually(SOON, async || http.get(&theirs).send().await?.expect(200).map(drop)).await?;
    let refused = |answer: tributary_e2e::HttpResponse| anyhow::Ok(answer.expect(403)?.json()?["message"].clone());
    let through = refused(http.get(&theirs).header("impersonate-user", "bob").send().await?)?;
    let direct = refused(bare.get(&maps).header("impersonate-user", "bob").send().await?)?;
    ensure!(through == direct, "{through} is not {direct}");

    // The hub accepts this token. But this cluster cannot verify a token of the hub, and Tributary's account may not
    // impersonate the user.
    let of_hub = endpoint.members[0].access().token;
    let answer = endpoint.http(&of_hub).await?.get(&theirs).send().await?.expect(503)?.text();
    ensure!(answer.contains("member2"), "{answer}");
    // Only `member2` accepts the administrator's token, so the token must be invalid for all other paths.
    ensure!(endpoint.status(&administrator, &maps).await? == UNAUTHORIZED);
    ensure!(endpoint.status(&administrator, &format!("/clusters/member1{maps}")).await? == UNAUTHORIZED);
    endpoint.log_holds_none_of(&[&administrator, &app, &of_hub])
}

/// Writes a kubeconfig that connects directly to the member with this token.
fn of_member(endpoint: &Endpoint, member: &TestCluster, token: &str) -> anyhow::Result<PathBuf> {
    let path = endpoint.folder.path().join(namespace::unique_name("bare"));
    let access = kubeconfig::Access { token: token.to_owned(), ..member.access() };
    kubeconfig::write(&path, &[&access])?;
    Ok(path)
}
