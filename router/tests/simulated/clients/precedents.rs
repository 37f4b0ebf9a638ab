//! Failures that similar projects had. Each test has the name of a failure and covers the router's part.
//! `docs/precedents.md` lists all failures.

use serde_json::json;
use tributary_router::Policies;

use crate::harness::{
    CONFIG_MAPS, Fixture, allow, brief, cluster, config, config_map, items, name, setup, until, version,
};

/// Returns the requests to all members that contain this text, since the last reset of the counters.
fn asked(fixture: &Fixture, part: &str) -> Vec<String> {
    let all = fixture.members.iter().flat_map(|member| member.control().request_log());
    all.filter(|line| line.contains(part)).collect()
}

#[tokio::test]
async fn request_that_has_passed_too_many_servers_is_refused() {
    let fixture = Fixture::start(["a"]).await;
    let passed = |count: usize| vec!["0123456789abcdef"; count].join(", ");
    for (count, status) in [(1, 200), (15, 200), (16, 508)] {
        for path in ["/clusters/a/api", "/api/v1/pods"] {
            let answer = fixture.client().send("GET", path, &[("tributary-via", &passed(count))], "").await;
            assert_eq!(answer.code, status, "{path} after {count} servers");
        }
    }
}

#[tokio::test]
async fn karmada_5485_unserved_path_reaches_no_member() {
    let fixture = Fixture::start(["a", "b"]).await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        for path in [
            "/stolen",
            "/stolen/api/v1/pods",
            "/logs/stolen",
            "/debug/pprof/stolen",
            "/.well-known/stolen",
            "/api/stolen",
            "/api/v1/stolen",
            "/api/v1/namespaces/default/stolen/x",
            "/api/v1/namespaces/default/configmaps/x/stolen",
            "/apis/stolen.io/v1/things",
            "/apis/apps/v9/stolen",
            "/clusters/nowhere/stolen",
            "/clusters/nowhere/api/v1/namespaces/default/configmaps/stolen",
        ] {
            let answer = fixture.client().send(method, path, &[("content-type", "application/json")], "").await;
            assert!(matches!(answer.code, 404 | 405), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(asked(&fixture, "stolen"), Vec::<String>::new());
}

#[tokio::test]
async fn cve_2022_3162_no_spelling_of_a_path_reads_another_resource() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "shown").await;
    for member in &fixture.members {
        member.control().reset_counters();
    }
    for path in [
        "/api/v1/namespaces/default/configmaps/../pods/stolen",
        "/api/v1/namespaces/default/configmaps/..%2Fpods%2Fstolen",
        "/api/v1/namespaces/default/configmaps/%2e%2e/pods/stolen",
        "/api/v1/namespaces/default/configmaps/x%2F..%2F..%2Fpods%2Fstolen",
        "/api/v1/namespaces/default%2Fpods/stolen/x",
        "/api/v1/namespaces/default//configmaps/stolen",
        "/api/v1/namespaces/default/configmaps/stolen%00",
        "/api/v1/namespaces/default/configmaps/stolen%0d%0aX:%20y",
        "/apis/apps%2Fv1/deployments/stolen/x",
        "/clusters/a/../b/api/v1/stolen",
        "/clusters/a%2F..%2Fb/api/v1/stolen",
        "/clusters/a/%2e%2e/b/api/v1/stolen",
    ] {
        for method in ["GET", "DELETE"] {
            let answer = fixture.client().send(method, path, &[], "").await;
            assert!(matches!(answer.code, 400 | 404), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(asked(&fixture, "stolen"), Vec::<String>::new());
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok()["data"]["v"], "shown");
}

/// As in kube-apiserver, the first of two parameters with the same name is used. If a gateway checked one and forwarded
/// the other, a user could see too many objects.
#[tokio::test]
async fn capsule_proxy_5_second_selector_shows_no_additional_objects() {
    let only_pods = Policies { registered: Some(vec!["pods".parse().unwrap()]), ..allow() };
    for policies in [allow(), only_pods] {
        let fixture = Fixture::with(["a", "b"].map(config), policies.clone()).await;
        for member in ["a", "b"] {
            for (object, app) in [("web", "web"), ("other", "other")] {
                let mut object = config_map(&format!("{object}-{member}"), "");
                object["metadata"]["labels"] = json!({"app": app});
                fixture.member(member).apply(object).unwrap();
            }
        }
        let wanted = ["a/web-a", "b/web-b"];
        for second in [
            "labelSelector=",
            "labelSelector=app%3Dother",
            "labelSelector=app",
            "labelSelector=tributary.dev%2Fcluster%3Da",
        ] {
            let selected = format!("{CONFIG_MAPS}?labelSelector=app%3Dweb&{second}");
            until(|| async { items(&fixture.get(&selected).await.ok()) == wanted }).await;
            if policies.registered.is_none() {
                let mut events = fixture.watch(&format!("{selected}&watch=1")).await;
                let mut told = [events.brief().await, events.brief().await];
                told.sort();
                assert_eq!(told, wanted.map(|object| format!("ADDED {object}")));
                events.nothing().await;
            }
        }
        let by_name =
            format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dweb-a&fieldSelector=metadata.name%3Dother-b");
        assert_eq!(items(&fixture.get(&by_name).await.ok()), ["a/web-a"]);
        // The first selector decides which objects are deleted, and in which clusters.
        let deleted = "labelSelector=app%3Dweb,tributary.dev%2Fcluster%3Da&labelSelector=&labelSelector=app";
        fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?{deleted}"), &[], "").await.ok();
        let left = fixture.members.iter().flat_map(|member| member.list("configmaps"));
        let mut left: Vec<_> = left.map(|object| name(&object)).filter(|name| !name.starts_with("kube-")).collect();
        left.sort();
        assert_eq!(left, ["other-a", "other-b", "web-b"]);
    }
}

/// No selector shows a user more than the user's rights allow. Ann may read all of `a`, the namespace `shop` of `b`,
/// and nothing of `c`.
#[tokio::test]
async fn capsule_proxy_5_selector_shows_no_forbidden_objects() {
    const ALL: &str = "/api/v1/configmaps";
    let fixture = crate::access::rights::ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    until(async || items(&root.get(ALL).await.ok()).len() == 12).await;
    let of_shop_in_b = &["b/one-b", "b/two-b"][..];
    let cluster = |name: &str| format!("labelSelector=tributary.dev%2Fcluster%3D{name}");
    for (query, expected) in [
        (
            "labelSelector=&labelSelector=!x".to_owned(),
            &["a/one-a", "a/two-a", "a/one-a", "a/two-a", "b/one-b", "b/two-b"][..],
        ),
        ("fieldSelector=metadata.namespace%3Dbank".to_owned(), &["a/one-a", "a/two-a"]),
        (
            "fieldSelector=metadata.namespace%3Dshop&fieldSelector=metadata.namespace%3Dbank".to_owned(),
            &["a/one-a", "a/two-a", "b/one-b", "b/two-b"],
        ),
        (cluster("b"), of_shop_in_b),
        (format!("{}&{}", cluster("b"), cluster("c")), of_shop_in_b),
        (format!("{}&fieldSelector=metadata.namespace%3Dbank", cluster("b")), &[]),
        ("fieldSelector=metadata.name%3Done-c".to_owned(), &[]),
    ] {
        let answer = ann.get(&format!("{ALL}?{query}")).await;
        assert_eq!(items(&answer.ok()), expected, "{query}");
    }
    for query in [cluster("c"), format!("{}&{}", cluster("c"), cluster("a"))] {
        let (of_c, of_none) =
            (ann.get(&format!("{ALL}?{query}")).await, ann.get(&format!("{ALL}?{}", cluster("none"))).await);
        let shown = String::from_utf8_lossy(&of_c.body);
        assert!(of_c.code == of_none.code && !shown.contains("one-c") && !shown.contains("two-c"), "{query}: {shown}");
    }
}

/// Open watches receive deletions of a removed cluster's objects, and no earlier version or continue token shows these
/// objects.
#[tokio::test]
async fn removed_member_disappears_from_watches_and_reads() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "kept", "");
    fixture.put_and_see("b", "revoked", "").await;
    let own = "fieldSelector=metadata.name!=kube-root-ca.crt";
    let list = fixture.get(&format!("{CONFIG_MAPS}?{own}")).await.ok();
    let page = fixture.get(&format!("{CONFIG_MAPS}?{own}&limit=1")).await.ok();
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{own}&watch=1&resourceVersion={}", version(&list))).await;
    fixture.router.set_clusters(vec![setup(fixture.member("a"), "a").await]);
    assert_eq!(brief(&events.soon().await), "DELETED b/revoked");
    fixture.put("b", "later", "");
    events.nothing().await;
    fixture.member("b").control().reset_counters();
    assert_eq!(items(&fixture.get(&format!("{CONFIG_MAPS}?{own}")).await.ok()), ["a/kept"]);
    fixture.get(&format!("{CONFIG_MAPS}/revoked")).await.refused(404);
    fixture.get(&format!("/clusters/b{CONFIG_MAPS}/revoked")).await.refused(404);
    let written = fixture.patch(&format!("{CONFIG_MAPS}/revoked"), "merge-patch+json", &json!({"data": {}})).await;
    written.refused(404);
    let rest = fixture
        .get(&format!("{CONFIG_MAPS}?{own}&limit=1&continue={}", page["metadata"]["continue"].as_str().unwrap()))
        .await;
    match rest.code {
        // A list that began before the removal may finish at an earlier state of the remaining cluster.
        200 => assert!(rest.ok()["items"].as_array().unwrap().iter().all(|item| cluster(item) == "b")),
        410 => {}
        _ => panic!("{rest:?}"),
    }
    let log = fixture.member("b").control().request_log();
    assert!(log.iter().all(|line| !line.contains(CONFIG_MAPS)), "{log:?}");
}
