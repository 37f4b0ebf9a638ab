//! Cases for a client that has rights to one resource and no rights to another resource.

use super::{
    Conformance, conformance,
    differences::COLLECTIONS_AS_ANOTHER,
    target::{SOON, Target, assert_status, config_map},
};
use crate::context::eventually;
use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};
use tributary_e2e::{HttpClient, HttpResponse};

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["rights"; client_with_rights_to_config_maps_sees_no_secret]
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// A user who may get, list, watch and create ConfigMaps of the case's namespace.
struct User(String);

impl User {
    /// Creates the user's role and binding in every member.
    async fn of(target: &Target) -> anyhow::Result<Self> {
        let user = Self(format!("user-of-{}", target.namespace));
        let rules =
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]}]);
        let role =
            json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": {"name": "maps"}, "rules": rules});
        let binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": "maps"},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "maps"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user.0}]});
        for member in &target.members {
            for (resource, object) in [("roles", &role), ("rolebindings", &binding)] {
                let path = format!("/apis/{RBAC}/v1/namespaces/{}/{resource}", target.namespace);
                member.http().post(&path, object).send().await?.expect(201)?;
            }
            // The members' authorizers receive new bindings with a delay. The test waits until the bindings have taken
            // effect.
            eventually(SOON, async || {
                let answer = user.asks(member.http(), &Method::GET, &target.map("nowhere"), None).await?;
                ensure!(answer.status == 404, "{}: {}", answer.status, answer.text());
                Ok(())
            })
            .await?;
        }
        Ok(user)
    }

    async fn asks(
        &self,
        http: &HttpClient,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<HttpResponse> {
        let request = http.request(method.clone(), path).header("impersonate-user", &self.0);
        let request = match body {
            Some(body) if method == Method::PATCH => request.body("application/merge-patch+json", body.to_string()),
            Some(body) => request.json(body),
            None => request,
        };
        request.send().await
    }
}

async fn client_with_rights_to_config_maps_sees_no_secret(target: Target) -> anyhow::Result<()> {
    let user = User::of(&target).await?;
    let owner = target.members.last().context("no member")?;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "stringData": {"a": "hidden"}});
    let map = config_map("x", &[]);
    for (resource, object) in [("secrets", &secret), ("configmaps", &map)] {
        owner.http().post(&target.core(resource, ""), object).send().await?.expect(201)?;
        eventually(SOON, async || target.read(&target.core(resource, "/x")).await.map(drop)).await?;
    }

    // Requests that the user's role allows must succeed.
    let made = config_map("made", &[]);
    user.asks(&target.http, &Method::POST, &target.maps(""), Some(&made)).await?.expect(201)?;
    user.asks(&target.http, &Method::GET, &target.map("made"), None).await?.expect(200)?;

    // The message of a forbidden request comes from the cluster that has the object. For a new object, the message
    // comes from the cluster in which the object would be created.
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let (secrets, one_secret, no_secret) =
        (target.core("secrets", ""), target.core("secrets", "/x"), target.core("secrets", "/nowhere"));
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other"}});
    for (method, path, body) in [
        (Method::GET, &one_secret, None),
        (Method::GET, &no_secret, None),
        (Method::POST, &secrets, Some(&other)),
        (Method::PUT, &one_secret, Some(&secret)),
        (Method::PATCH, &one_secret, Some(&change)),
        (Method::DELETE, &one_secret, None),
        (Method::PATCH, &target.map("x"), Some(&change)),
        (Method::DELETE, &target.map("x"), None),
    ] {
        let shown = user.asks(&target.http, &method, path, body).await?;
        let own = user.asks(owner.http(), &method, path, body).await?;
        assert_status(&own, 403, Some("Forbidden"), &user.0)?;
        let (shown, own) = (assert_status(&shown, 403, Some("Forbidden"), &user.0)?, own.json()?);
        ensure!(shown == own, "{method} {path}: {shown}\ninstead of\n{own}");
    }

    // The test also sends lists and watches of both resources.
    for (path, may) in [(target.maps(""), true), (target.maps("?watch=true&timeoutSeconds=1"), true), (secrets, false)]
    {
        let answer = user.asks(&target.http, &Method::GET, &path, None).await?;
        if target.differs(&COLLECTIONS_AS_ANOTHER) {
            assert_status(
                &answer,
                403,
                Some("Forbidden"),
                "impersonate a user; send the request to one cluster (kubectl --context <name>",
            )?;
        } else if may {
            answer.expect(200)?;
        } else {
            assert_status(&answer, 403, Some("Forbidden"), &user.0)?;
        }
    }
    Ok(())
}
