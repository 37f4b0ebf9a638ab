//! Tests constrained impersonation (KEP-5284), with which a user may impersonate a different user for only some
//! requests. The test sends the same requests with the same token and headers to the member and to the endpoint. The
//! endpoint must allow and refuse the same requests as the member.

use super::tokens::{Endpoint, KEYS_PATIENCE, token_of};
use super::{SOON, grant, make_config_map};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::ensure;
use http::Method;
use serde_json::{Value, json};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use tributary_e2e::{HttpClient, TestCluster, namespace};

const DIFFERING_MAX: usize = 12;
const AUTHENTICATION: &str = "authentication.k8s.io";

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::constrained_impersonation"; constrained_impersonation_is_allowed_exactly_if_the_member_allows_it]
}

fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "resourceNames": names})
}

/// Sends a request. Returns the parts of the response that the test compares: its code, the message of a refusal, and
/// the names in a list.
async fn comparable_decision(
    http: &HttpClient,
    (method, path): (&Method, &str),
    headers: &[(&str, &str)],
) -> anyhow::Result<Value> {
    let mut request = http.request(method.clone(), path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if *method == Method::POST {
        request = request.json(&json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}));
    }
    let answer = request.send().await?;
    let body: Value = answer.json().unwrap_or_default();
    let names: Vec<_> = body["items"].as_array().into_iter().flatten().map(|item| &item["metadata"]["name"]).collect();
    Ok(match answer.status.as_u16() {
        code @ 403 => json!({"code": code, "message": body["message"], "details": body["details"]}),
        code => json!({"code": code, "names": names, "user": body["status"]["userInfo"]["username"]}),
    })
}

/// Creates a ServiceAccount with these RBAC rules in all namespaces, and returns its token.
async fn account(member: &TestCluster, within: &str, name: &str, rules: Value) -> anyhow::Result<String> {
    let made = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    member.http().post(&format!("/api/v1/namespaces/{within}/serviceaccounts"), &made).send().await?.expect(201)?;
    let user = format!("system:serviceaccount:{within}:{name}");
    grant(member, "", &namespace::unique_name(name), &user, rules).await?;
    token_of(member, within, name, &[]).await
}

async fn constrained_impersonation_is_allowed_exactly_if_the_member_allows_it(
    context: TestContext,
) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let member = &endpoint.members[0];
    let own = context.namespace("impersonation", &endpoint.members).await?;
    let (bob, helper) = (namespace::unique_name("bob"), format!("system:serviceaccount:{own}:helper"));
    for name in ["one", "two"] {
        make_config_map(member, &own, name, 10).await?;
    }
    let reads = json!([rule(&["get", "list", "watch", "delete"], "", &["configmaps"], &[]),
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    for user in [&bob, &helper] {
        grant(member, "", &namespace::unique_name("reads"), user, reads.clone()).await?;
    }
    // The first account may impersonate bob, with certain groups, uid and extras, to list and get ConfigMaps, and to
    // delete two ConfigMaps by name. It may also impersonate one ServiceAccount to list ConfigMaps.
    let constrained = account(
        member,
        &own,
        "constrained",
        json!([
            rule(&["impersonate:user-info"], AUTHENTICATION, &["users"], &[&bob]),
            rule(&["impersonate:user-info"], AUTHENTICATION, &["groups"], &["dev", "ops"]),
            rule(&["impersonate:user-info"], AUTHENTICATION, &["uids"], &["u1"]),
            rule(&["impersonate:user-info"], AUTHENTICATION, &["userextras/example.com/team", "userextras/team"], &["blue"]),
            rule(&["impersonate-on:user-info:list", "impersonate-on:user-info:get"], "", &["configmaps"], &[]),
            rule(&["impersonate-on:user-info:delete"], "", &["configmaps"], &["two", "gone"]),
            rule(&["impersonate-on:user-info:create"], AUTHENTICATION, &["selfsubjectreviews"], &[]),
            {"nonResourceURLs": ["/metrics"], "verbs": ["impersonate-on:user-info:get"]},
            rule(&["impersonate:serviceaccount"], AUTHENTICATION, &["serviceaccounts"], &["helper"]),
            rule(&["impersonate-on:serviceaccount:list"], "", &["configmaps"], &[]),
        ]),
    );
    let constrained = constrained.await?;
    // The second account may impersonate bob for all requests. The third account may not impersonate bob: constrained
    // impersonation needs two rights, and each of its rules grants only one of them.
    let legacy =
        account(member, &own, "legacy", json!([rule(&["impersonate"], "", &["users", "groups"], &[&bob, "dev"])]));
    let halves = json!([
        rule(&["impersonate-on:user-info:*", "impersonate-on:user-info:list"], "", &["configmaps"], &[]),
        rule(&["impersonate"], AUTHENTICATION, &["users"], &[]),
        rule(&["impersonate:user-info"], "", &["users"], &[])
    ]);
    let tokens = [constrained, legacy.await?, account(member, &own, "half", halves).await?];

    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    let (one, two, who) =
        (format!("{maps}/one"), format!("{maps}/two"), format!("/apis/{AUTHENTICATION}/v1/selfsubjectreviews"));
    let requests: [(Method, &str); 11] = [
        (Method::GET, &maps),
        (Method::GET, &one),
        (Method::GET, &format!("{maps}?fieldSelector=metadata.name%3Dtwo")),
        (Method::GET, &format!("{maps}?watch=1&timeoutSeconds=1")),
        (Method::GET, "/api/v1/namespaces/default/secrets"),
        (Method::GET, &format!("/api/v1/namespaces/{own}/pods/x/log")),
        (Method::GET, "/metrics"),
        (Method::GET, "/logs"),
        // A delete that the member allows gets 404 here, because the object does not exist, and not 403.
        (Method::DELETE, &format!("{maps}/gone")),
        (Method::DELETE, &format!("{maps}/absent")),
        (Method::POST, &who),
    ];
    let as_bob = ("impersonate-user", &*bob);
    let [team, key] = ["impersonate-extra-example.com%2fteam", "impersonate-extra-team"].map(|name| (name, "blue"));
    let groups = |names: &[&'static str]| names.iter().map(|name| ("impersonate-group", *name)).collect::<Vec<_>>();
    let identities = [
        vec![as_bob],
        vec![as_bob, ("impersonate-group", "dev"), ("impersonate-uid", "u1"), team],
        [vec![as_bob], groups(&["dev", "ops"])].concat(),
        [vec![as_bob], groups(&["dev", "qa"])].concat(),
        [vec![as_bob], groups(&["dev", "ops", "qa", "web"])].concat(),
        vec![as_bob, ("impersonate-uid", "u2")],
        vec![as_bob, ("impersonate-uid", "u2"), ("impersonate-group", "qa")],
        vec![as_bob, key],
        vec![("impersonate-user", "eve")],
        vec![("impersonate-user", &*helper)],
        vec![("impersonate-user", &*helper), ("impersonate-group", "dev")],
    ];
    let (mut differing, mut allowed, mut refused) = (Vec::new(), 0, 0);
    for (account, token) in tokens.iter().enumerate() {
        // A kube-apiserver remembers with which impersonation mode it last allowed a user to impersonate. It tries this
        // mode first, and refuses with the message of this mode. For an account with the verb `impersonate`, the
        // message therefore depends on earlier requests, and the test ignores it.
        let comparable = |mut comparable_decision: Value| {
            if account == 1 && comparable_decision["code"] == 403 {
                comparable_decision = json!({"code": 403});
            }
            comparable_decision
        };
        let through = endpoint.http(token).await?;
        let bearer = format!("Bearer {token}");
        let directly = member.http().anonymous();
        // The endpoint needs some time until it accepts the token and has read the new rights.
        eventually(KEYS_PATIENCE, async || {
            let path = format!("/clusters/{}{who}", member.name());
            let itself = comparable_decision(&through, (&Method::POST, &path), &[]).await?;
            ensure!(itself["code"] == 201, "{itself}");
            Ok(())
        })
        .await?;
        for (number, headers) in identities.iter().enumerate() {
            for (method, path) in &requests {
                let with_token = [headers.clone(), vec![("authorization", &*bearer)]].concat();
                let through_path = format!("/clusters/{}{path}", member.name());
                let was_refused = AtomicBool::new(false);
                // The rights of all accounts take effect together, so the test waits long only for the first account.
                let patience = if differing.is_empty() && number == 0 { SOON } else { Duration::from_secs(1) };
                let same = eventually(patience, async || {
                    let expected = comparable(comparable_decision(&directly, (method, path), &with_token).await?);
                    was_refused.store(expected["code"] == 403, Relaxed);
                    let found = comparable(comparable_decision(&through, (method, &through_path), headers).await?);
                    let who = format!("{account} as {number} {method} {path}");
                    ensure!(found == expected, "{who}:\n  member    {expected}\n  tributary {found}");
                    Ok(())
                });
                differing.extend(same.await.err().map(|error| format!("{error:#}")));
                if was_refused.load(Relaxed) {
                    refused += 1;
                } else {
                    allowed += 1;
                }
                ensure!(differing.len() < DIFFERING_MAX, "{}", differing.join("\n"));
            }
            // The merged view must show an account the objects of the cluster that issued its token.
            let with_token = [headers.clone(), vec![("authorization", &*bearer)]].concat();
            for path in [&maps, &one] {
                let expected = comparable(comparable_decision(&directly, (&Method::GET, path), &with_token).await?);
                let found = comparable(comparable_decision(&through, (&Method::GET, path), headers).await?);
                let words =
                    format!("{account} as {number} merged {path}:\n  member    {expected}\n  tributary {found}");
                differing.extend((found != expected).then_some(words));
            }
        }
    }
    ensure!(differing.is_empty(), "{} of {}: {}", differing.len(), allowed + refused, differing.join("\n"));
    ensure!(allowed >= 10 && refused >= 100, "{allowed} were allowed and {refused} refused");

    // A write of an object by name that the member allows must take effect.
    let through = endpoint.http(&tokens[0]).await?;
    let deleted = comparable_decision(&through, (&Method::DELETE, &two), &[as_bob]).await?;
    ensure!(deleted["code"] == 200, "{deleted}");
    member.http().get(&two).send().await?.expect(404)?;
    Ok(())
}
