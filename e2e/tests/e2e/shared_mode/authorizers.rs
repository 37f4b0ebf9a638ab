//! Members whose decisions do not depend only on RBAC. One member has a denying webhook, which is added while the
//! member runs. One has a policy file (ABAC), and one has an authorizer that allows every request (AlwaysAllow). The
//! endpoint must show a user the same objects as the members do.

use super::{SOON, Shared, config_maps, grant, make_config_map, reads_config_maps};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path, sync::Arc, time::Duration};
use tokio::net::TcpListener;
use tributary_e2e::{HttpClient, TestCluster, guard, kubeconfig, namespace};

/// Longest time until the endpoint applies a change of an authorizer. A member reads its authorization configuration
/// every minute, Tributary probes the cluster's authorizers every minute, and Tributary caches decisions for a minute.
const FOUND_OUT: Duration = Duration::from_secs(200);

pub(super) fn cases() -> Vec<Case> {
    let cases = cases!["shared_mode::authorizers";
        rights_follow_the_decisions_of_webhook_and_abac_authorizers, always_allow_member_shows_all_objects_to_unbound_users,
    ];
    cases.into_iter().map(|case| case.patience(Duration::from_secs(600))).collect()
}

/// Webhook authorizer that denies some requests for resources. It decides by the `spec` of a SubjectAccessReview, and
/// has no opinion about other requests. Dropping it stops the server.
pub(super) struct DenyingWebhook {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl DenyingWebhook {
    pub(super) async fn start(denies: impl Fn(&Value) -> bool + Send + Sync + 'static) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let (port, denies) = (listener.local_addr()?.port(), Arc::new(denies));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let denies = Arc::clone(&denies);
                connections.spawn(async move {
                    let service = service_fn(|request| review(request, &*denies));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ended = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { port, task })
    }

    /// Writes the authorization configuration with which a kube-apiserver calls the webhook before RBAC. Returns its
    /// path.
    pub(super) fn configuration(&self, folder: &Path) -> anyhow::Result<String> {
        let kubeconfig = folder.join("webhook.kubeconfig");
        let server = format!("http://127.0.0.1:{}", self.port);
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "webhook",
            "clusters": [{"name": "webhook", "cluster": {"server": server}}],
            "users": [{"name": "webhook", "user": {}}],
            "contexts": [{"name": "webhook", "context": {"cluster": "webhook", "user": "webhook"}}]});
        fs::write(&kubeconfig, text.to_string())?;
        let webhook = json!({"type": "Webhook", "name": "denies", "webhook": {
            "timeout": "3s", "authorizedTTL": "1s", "unauthorizedTTL": "1s", "failurePolicy": "Deny",
            "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}}});
        Ok(configuration(&[webhook, roles()]))
    }
}

impl Drop for DenyingWebhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts an endpoint over two members. Each member asks a webhook before RBAC. `denies` returns the decision function
/// of a member's webhook for the member's name. The caller must not drop the webhooks.
pub(super) async fn behind_webhooks<D: Fn(&Value) -> bool + Send + Sync + 'static>(
    context: &TestContext,
    denies: impl Fn(&'static str) -> D,
) -> anyhow::Result<(Shared, Vec<(DenyingWebhook, tempfile::TempDir)>)> {
    let tools = context.fixture.tools().await?;
    let (mut members, mut webhooks) = (Vec::new(), Vec::new());
    for name in ["member1", "member2"] {
        let (folder, webhook) = (guard::temporary_folder("webhook")?, DenyingWebhook::start(denies(name)).await?);
        let config = folder.path().join("authorizers.json");
        fs::write(&config, webhook.configuration(folder.path())?)?;
        let flag = format!("--authorization-config={}", config.display());
        members.push(TestCluster::builder(name).authorization(&[flag]).controllers(true).start(tools).await?);
        webhooks.push((webhook, folder));
    }
    let members: [_; 2] = members.try_into().ok().context("two members")?;
    let members = members.map(Arc::new);
    let path = webhooks[0].1.path().join("kubeconfig");
    kubeconfig::write(&path, &[&members[0].access(), &members[1].access()])?;
    Ok((Shared::over(context, members, &path, &[]).await?, webhooks))
}

async fn review(
    request: Request<Incoming>,
    denies: &(impl Fn(&Value) -> bool + Send + Sync),
) -> anyhow::Result<Response<Full<Bytes>>> {
    let mut review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let denied = denies(&review["spec"]);
    review["status"] = json!({"allowed": false, "denied": denied, "reason": "of a test"});
    let answer = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(answer.body(Full::from(review.to_string()))?)
}

fn roles() -> Value {
    json!({"type": "RBAC", "name": "rbac"})
}

fn configuration(authorizers: &[Value]) -> String {
    let kind = "AuthorizationConfiguration";
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "authorizers": authorizers}).to_string()
}

/// Makes the lines of an ABAC policy file. Each user may read ConfigMaps in one namespace, or in all (`*`).
fn policies(readers: &[(&str, &str)]) -> String {
    let line = |(user, namespace): &(&str, &str)| {
        json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
            "spec": {"user": user, "namespace": namespace, "resource": "configmaps", "apiGroup": "", "readonly": true}})
    };
    readers.iter().map(|reader| format!("{}\n", line(reader))).collect()
}

/// Returns the ConfigMaps in a user's list, or the status of the refusal.
async fn shown(http: &HttpClient, path: &str) -> anyhow::Result<Result<BTreeSet<(String, String)>, u16>> {
    let answer = http.get(path).send().await?;
    if answer.status != 200 {
        return Ok(Err(answer.status.as_u16()));
    }
    let all = config_maps(&answer.json()?);
    // The comparison leaves out kube-system, because each member has different ConfigMaps there.
    let own = all.into_iter().filter(|(_, namespace, _)| namespace != "kube-system");
    Ok(Ok(own.map(|(cluster, namespace, _)| (cluster, namespace)).collect()))
}

/// Returns whether a member itself allows a user to list ConfigMaps at a path.
async fn is_let(member: &TestCluster, user: &str, path: &str) -> anyhow::Result<bool> {
    let answer = member.http().get(path).header("impersonate-user", user).send().await?;
    Ok(answer.status == 200)
}

async fn rights_follow_the_decisions_of_webhook_and_abac_authorizers(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let (folder, tools) = (guard::temporary_folder("authorizers")?, context.fixture.tools().await?);
    let [kept, denied] = ["kept", "denied"].map(namespace::unique_name);
    let (ann, bob, carol) = ("ann", "bob", "carol");
    let (config, policy) = (folder.path().join("authorizers.json"), folder.path().join("policies.jsonl"));
    fs::write(&config, configuration(&[roles()]))?;
    fs::write(&policy, policies(&[(ann, "*"), (carol, &kept)]))?;
    let by_config = [format!("--authorization-config={}", config.display())];
    let by_file = ["--authorization-mode=ABAC".to_owned(), format!("--authorization-policy-file={}", policy.display())];
    let hooked = TestCluster::builder("hooked").authorization(&by_config).start(tools);
    let policed = TestCluster::builder("policed").authorization(&by_file).start(tools);
    let (hooked, policed) = tokio::try_join!(hooked, policed)?;
    let members = [Arc::new(hooked), Arc::new(policed)];
    let [hooked, policed] = &members;
    for member in &members {
        for namespace in [&kept, &denied] {
            namespace::create(namespace, &[member]).await?;
            make_config_map(member, namespace, "one", 10).await?;
        }
    }
    grant(hooked, "", "ann", ann, reads_config_maps()).await?;
    for namespace in [&kept, &denied] {
        grant(hooked, namespace, "bob", bob, reads_config_maps()).await?;
    }
    // The member stores this binding, but its authorizer does not use RBAC, so the binding must grant no right.
    grant(policed, "", "bob", bob, reads_config_maps()).await?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &[&hooked.access(), &policed.access()])?;
    let shared = Shared::over(&context, members.clone(), &path, &[]).await?;

    let all = "/api/v1/configmaps".to_owned();
    let [in_kept, in_denied] = [&kept, &denied].map(|namespace| format!("/api/v1/namespaces/{namespace}/configmaps"));
    let pairs = |clusters: &[&str], namespaces: &[&String]| -> BTreeSet<(String, String)> {
        let pair = |cluster: &&str| namespaces.iter().map(|own| ((*cluster).to_owned(), (*own).clone())).collect();
        clusters.iter().flat_map(|cluster| -> Vec<_> { pair(cluster) }).collect()
    };
    let both = ["hooked", "policed"];
    let before = [
        (ann, &all, Ok(pairs(&both, &[&kept, &denied]))),
        (ann, &in_denied, Ok(pairs(&both, &[&denied]))),
        (bob, &all, Ok(pairs(&["hooked"], &[&kept, &denied]))),
        (bob, &in_denied, Ok(pairs(&["hooked"], &[&denied]))),
        (carol, &in_kept, Ok(pairs(&["policed"], &[&kept]))),
        (carol, &in_denied, Err(403)),
    ];
    check(&shared, &before, FOUND_OUT).await?;
    agrees(&shared, &before).await?;
    let log = shared.tributary.log();
    let said = log.lines().filter(|line| line.contains("roles and bindings alone do not decide the rights"));
    ensure!(said.clone().count() == 1 && said.clone().all(|line| line.contains("policed")), "{log}");

    // A running kube-apiserver reloads its authorization configuration, so the member calls the new webhook without a
    // restart.
    let hidden = denied.clone();
    let webhook = DenyingWebhook::start(move |asked| asked["resourceAttributes"]["namespace"] == hidden).await?;
    fs::write(&config, webhook.configuration(folder.path())?)?;
    let after = [
        (ann, &in_denied, Ok(pairs(&["policed"], &[&denied]))),
        (ann, &in_kept, Ok(pairs(&both, &[&kept]))),
        (bob, &all, Ok(pairs(&["hooked"], &[&kept]))),
        (bob, &in_denied, Err(403)),
        (carol, &in_kept, Ok(pairs(&["policed"], &[&kept]))),
    ];
    check(&shared, &after, FOUND_OUT).await?;
    agrees(&shared, &after).await
}

/// One member allows every request, and the other uses RBAC. Both have the same RBAC objects, and both report the same
/// rights of Tributary's account. The only sign of the difference is that the first member allows requests for which
/// there is no binding.
async fn always_allow_member_shows_all_objects_to_unbound_users(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let (folder, tools) = (guard::temporary_folder("authorizers")?, context.fixture.tools().await?);
    let own = namespace::unique_name("open");
    let allows_all = ["--authorization-mode=AlwaysAllow".to_owned()];
    let open = TestCluster::builder("open").authorization(&allows_all).start(tools);
    let (open, ruled) = tokio::try_join!(open, TestCluster::builder("ruled").start(tools))?;
    let members = [Arc::new(open), Arc::new(ruled)];
    let [_, ruled] = &members;
    for member in &members {
        namespace::create(&own, &[member]).await?;
        make_config_map(member, &own, "one", 10).await?;
    }
    let (ann, carol, observer) = ("ann", "carol", "observer");
    grant(ruled, &own, ann, ann, reads_config_maps()).await?;
    let rules = json!([{"nonResourceURLs": ["/tributary/status"], "verbs": ["get"]}]);
    grant(ruled, "", observer, observer, rules).await?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &[&members[0].access(), &members[1].access()])?;
    let shared = Shared::over(&context, members.clone(), &path, &[]).await?;

    let (all, in_own) = ("/api/v1/configmaps".to_owned(), format!("/api/v1/namespaces/{own}/configmaps"));
    let of = |clusters: &[&str]| -> BTreeSet<(String, String)> {
        clusters.iter().map(|cluster| ((*cluster).to_owned(), own.clone())).collect()
    };
    let rows = [
        // No role in either member grants the user `carol` rights, so only the member that allows every request shows
        // its objects.
        (carol, &all, Ok(of(&["open"]))),
        (carol, &in_own, Ok(of(&["open"]))),
        (ann, &all, Ok(of(&["open", "ruled"]))),
        (ann, &in_own, Ok(of(&["open", "ruled"]))),
    ];
    check(&shared, &rows, FOUND_OUT).await?;
    agrees(&shared, &rows).await?;
    let log = shared.tributary.log();
    let said: Vec<_> =
        log.lines().filter(|line| line.contains("roles and bindings alone do not decide the rights")).collect();
    ensure!(!said.is_empty() && said.iter().all(|line| line.contains("open")), "{log}");
    let http = shared.http(observer, &[]).await?;
    eventually(SOON, async || {
        let report = http.get("/tributary/status").send().await?.expect(200)?.json()?;
        for (name, expected) in [("open", "Review"), ("ruled", "RBAC")] {
            let mut clusters = report["clusters"].as_array().into_iter().flatten();
            let of_name = clusters.find(|cluster| cluster["name"] == name).context("it is not reported")?;
            let has_reason = of_name["rightsReason"].as_str().is_some_and(|reason| !reason.is_empty());
            ensure!(of_name["rightsDecider"] == expected && has_reason == (name == "open"), "{of_name}");
        }
        Ok(())
    })
    .await
}

type Row<'a> = (&'a str, &'a String, Result<BTreeSet<(String, String)>, u16>);

/// Waits until every user gets the expected answer.
async fn check(shared: &Shared, rows: &[Row<'_>], within: Duration) -> anyhow::Result<()> {
    for (user, path, expected) in rows {
        let http = shared.http(user, &[]).await?;
        eventually(within, async || {
            let shown = shown(&http, path).await?;
            ensure!(shown == *expected, "{user} {path}: {shown:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Checks that the endpoint shows a user the objects of exactly the namespaces that the members allow the user to list.
async fn agrees(shared: &Shared, rows: &[Row<'_>]) -> anyhow::Result<()> {
    for (user, path, expected) in rows.iter().filter(|(_, path, _)| path.contains("/namespaces/")) {
        for member in &shared.members {
            let is_shown = expected.iter().flatten().any(|(cluster, _)| cluster == member.name());
            let is_let = || is_let(member, user, path);
            eventually(SOON, async || {
                ensure!(is_let().await? == is_shown, "{user} {path} {}", member.name());
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}
