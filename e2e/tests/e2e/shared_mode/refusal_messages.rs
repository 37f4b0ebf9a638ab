//! Tests that a refusal has the message of the member. The test sends the same request to the member and to the
//! endpoint.

use super::Shared;
use crate::context::{Case, TestContext, cases};
use anyhow::ensure;
use serde_json::{Value, json};
use tributary_e2e::{HttpClient, namespace};

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::refusal_messages";
        forbidden_request_gets_the_members_message, binding_to_a_missing_role_gets_the_members_message,
        unauthenticated_request_gets_the_members_message,
    ]
}

/// Returns the parts of a refusal that clients use.
fn client_fields(code: u16, status: &Value) -> Value {
    json!({"code": code, "kind": status["kind"], "reason": status["reason"], "message": status["message"],
        "details": status["details"], "status": status["status"]})
}

async fn forbidden_request_gets_the_members_message(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    // The user name contains HTML characters, because JSON escapes them in a refusal.
    let (member, name) = (&shared.members[0], format!("{}<b>&amp", namespace::unique_name("eve")));
    let own = context.namespace("words", &shared.members).await?;
    let through = shared.http(&name, &["dev"]).await?;
    let pods = format!("/api/v1/namespaces/{own}/pods");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let mut differing = Vec::new();
    for (method, path) in [
        ("GET", "/api/v1/pods".to_owned()),
        ("GET", pods.clone()),
        ("GET", format!("{pods}?watch=1")),
        ("GET", format!("{pods}?fieldSelector=metadata.name%3Dx")),
        ("GET", format!("{pods}/x")),
        ("GET", format!("{pods}/x/log")),
        ("GET", format!("{pods}/x/status")),
        ("GET", "/api/v1/nodes".to_owned()),
        ("GET", "/api/v1/nodes/x".to_owned()),
        ("GET", format!("/api/v1/namespaces/{own}")),
        ("GET", format!("/apis/apps/v1/namespaces/{own}/deployments/x")),
        ("GET", format!("/apis/apps/v1/namespaces/{own}/deployments/x/scale")),
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned()),
        ("GET", "/metrics".to_owned()),
        ("POST", format!("/api/v1/namespaces/{own}/configmaps")),
        ("POST", format!("{pods}/x/eviction")),
        ("POST", format!("{pods}/x/exec?command=ls&stdout=true")),
        ("PUT", format!("/api/v1/namespaces/{own}/configmaps/x")),
        ("DELETE", format!("/api/v1/namespaces/{own}/configmaps/x")),
        ("DELETE", format!("/api/v1/namespaces/{own}/configmaps")),
        ("DELETE", "/api/v1/nodes/x".to_owned()),
    ] {
        let ask = async |http: &HttpClient, headers: &[(&str, &str)]| {
            let mut request = match method {
                "POST" => http.post(&path, &object),
                "PUT" => http.put(&path, &object),
                "DELETE" => http.delete(&path),
                _ => http.get(&path),
            };
            for (header, value) in headers {
                request = request.header(header, value);
            }
            let answer = request.send().await?;
            anyhow::Ok(client_fields(answer.status.as_u16(), &answer.json().unwrap_or_default()))
        };
        let directly = ask(member.http(), &[("impersonate-user", &name), ("impersonate-group", "dev")]).await?;
        ensure!(directly["code"] == 403, "{method} {path}: {directly}");
        let merged = ask(&through, &[]).await?;
        if merged != directly {
            differing.push(format!("{method} {path}:\n  member    {directly}\n  tributary {merged}"));
        }
    }
    ensure!(differing.is_empty(), "{}", differing.join("\n"));
    Ok(())
}

/// A binding refers to a missing role, and the member's refusal mentions the role. Tributary's refusal must have the
/// same message.
async fn binding_to_a_missing_role_gets_the_members_message(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    let (member, name) = (&shared.members[0], namespace::unique_name("eve"));
    let own = context.namespace("words", &shared.members).await?;
    let (rbac, of_role) = ("rbac.authorization.k8s.io", namespace::unique_name("no-such"));
    for (kind, role, place) in
        [("ClusterRoleBinding", "ClusterRole", String::new()), ("RoleBinding", "Role", format!("/namespaces/{own}"))]
    {
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": {"name": of_role},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
            "roleRef": {"apiGroup": rbac, "kind": role, "name": of_role}});
        let path = format!("/apis/{rbac}/v1{place}/{}s", kind.to_lowercase());
        member.http().post(&path, &binding).send().await?.expect(201)?;
    }
    let through = shared.http(&name, &[]).await?;
    let pods = format!("/api/v1/namespaces/{own}/pods");
    for (path, missing) in [
        ("/api/v1/pods".to_owned(), 1),
        (pods.clone(), 2),
        (format!("{pods}/x"), 2),
        ("/api/v1/namespaces/default/pods".to_owned(), 1),
        ("/metrics".to_owned(), 1),
        (format!("/clusters/{}{pods}", member.name()), 2),
    ] {
        crate::context::eventually(super::SOON, async || {
            let own = path.strip_prefix(&format!("/clusters/{}", member.name())).unwrap_or(&path);
            let directly = member.http().get(own).header("impersonate-user", &name).send().await?;
            let directly = client_fields(directly.status.as_u16(), &directly.json().unwrap_or_default());
            let merged = through.get(&path).send().await?;
            let merged = client_fields(merged.status.as_u16(), &merged.json().unwrap_or_default());
            let said = directly["message"].as_str().unwrap_or_default();
            ensure!(said.matches(&format!("{of_role:?} not found")).count() == missing, "{said}");
            ensure!(merged == directly, "{path}:\n  member    {directly}\n  tributary {merged}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn unauthenticated_request_gets_the_members_message(context: TestContext) -> anyhow::Result<()> {
    let shared = Shared::start(&context).await?;
    let path = shared.folder.path().join("nobody");
    shared.tributary.kubeconfig_of(&path, &json!({"token": "guessed"}), &[])?;
    let through = HttpClient::from_kubeconfig(&path, None).await?;
    let directly =
        shared.members[0].http().get("/api/v1/pods").header("authorization", "Bearer guessed").send().await?;
    let merged = through.get("/api/v1/pods").send().await?;
    let [own, theirs] =
        [&merged, &directly].map(|answer| client_fields(answer.status.as_u16(), &answer.json().unwrap_or_default()));
    ensure!(own["code"] == 401 && own == theirs, "{own}\n{theirs}");
    Ok(())
}
