//! Tests `kubectl auth can-i`, and access reviews about other users. Only one member has the namespace of the reviews.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{SOON, Setup};
use crate::context::{Case, TestContext, cases, eventually};

/// Longest duration of a review. The limit shows that Tributary sends the reviews to many members at the same time.
const AT_ONCE: Duration = Duration::from_secs(20);

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl"; can_i_equals_the_reviews_of_clusters_with_the_namespace]
}

/// The user `dev` and a ServiceAccount have rights in a namespace that only the first member has.
async fn can_i_equals_the_reviews_of_clusters_with_the_namespace(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let member = &setup.members[..1];
    let namespace = context.namespace("reviewed", member).await?;
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "delete"]});
    let post = async |path: String, object: Value| member[0].http().post(&path, &object).send().await?.expect(201);
    let of_core = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    post(of_core("serviceaccounts"), json!({"metadata": {"name": "app"}})).await?;
    post(of_core("configmaps"), json!({"metadata": {"name": "map"}})).await?;
    post(format!("{rbac}/roles"), json!({"metadata": {"name": "dev"}, "rules": [rule]})).await?;
    let subjects = json!([
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "dev"},
        {"kind": "ServiceAccount", "name": "app", "namespace": namespace},
    ]);
    let role = json!({"kind": "Role", "apiGroup": "rbac.authorization.k8s.io", "name": "dev"});
    post(format!("{rbac}/rolebindings"), json!({"metadata": {"name": "dev"}, "roleRef": role, "subjects": subjects}))
        .await?;
    let account = format!("system:serviceaccount:{namespace}:app");
    eventually(SOON, async || {
        let known = setup.kubectl.run(&["get", "serviceaccount", "app", "-n", &namespace]).await?;
        ensure!(known.code == Some(0), "{}", known.stderr);
        Ok(())
    })
    .await?;
    for user in ["dev", &account] {
        for (verb, expected) in [("list", "yes"), ("create", "yes"), ("delete", "yes"), ("update", "no")] {
            eventually(AT_ONCE, async || {
                let asked = ["auth", "can-i", verb, "configmaps", "-n", &namespace, "--as", user];
                let said = setup.kubectl.run(&asked).await?;
                ensure!(said.stdout.starts_with(expected), "{verb} as {user}: {} {}", said.stdout, said.stderr);
                Ok(())
            })
            .await?;
            let attributes = json!({"verb": verb, "resource": "configmaps", "namespace": namespace});
            let spec = json!({"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes});
            for kind in ["SubjectAccessReview", "LocalSubjectAccessReview"] {
                let metadata = if kind.starts_with("Local") { json!({"namespace": namespace}) } else { json!({}) };
                let review =
                    json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
                let file = setup.kubectl.file("review.json", &review.to_string())?;
                let said = setup.kubectl.ok(&["create", "-f", &file, "-o", "jsonpath={.status}"]).await?;
                let status: Value = serde_json::from_str(&said)?;
                ensure!(status["allowed"] == (expected == "yes"), "{kind} of {verb} by {user}: {status}");
            }
        }
        let listed = setup.kubectl.ok(&["auth", "can-i", "--list", "-n", &namespace, "--as", user]).await?;
        ensure!(listed.lines().any(|line| line.starts_with("configmaps ")), "{listed}");
    }
    setup.kubectl.ok(&["delete", "configmap", "map", "-n", &namespace, "--as", "dev"]).await?;
    Ok(())
}
