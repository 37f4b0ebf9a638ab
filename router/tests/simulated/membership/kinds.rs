//! Tests of kinds that a cluster may serve although its discovery lacks them, and of invalid discovery documents.

use std::time::Duration;

use serde_json::{Value, json};
use tributary_apimachinery::Partial;
use tributary_router::{Policies, ResourcePolicy, SharedMode};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{CONFIG_MAPS, Fixture, allow, cluster, config, pass, until};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(name: &str) -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name, "namespace": "default"}})
}

/// Starts two members with a Deployment each, `of-a` and `of-b`. Only the discovery of `a` contains Deployments.
async fn second_without_deployments(policies: Policies) -> Fixture {
    let mut fixture = Fixture::with(["a", "b"].map(config), policies.clone()).await;
    for member in &fixture.members {
        member.apply(deployment(&format!("of-{}", member.name()))).unwrap();
    }
    fixture.member("b").control().serve("deployments.apps", false);
    fixture.router = fixture.restarted(policies).await.router;
    fixture.get(DEPLOYMENTS).await.ok();
    fixture
}

fn clusters(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(cluster).collect()
}

/// Makes a member refuse discovery, and waits until Tributary detects the refusal.
async fn refuse_discovery(fixture: &Fixture, member: &str) {
    let rejection = Rejection { kinds: vec![RequestKind::Discovery], ..Rejection::all(403) };
    fixture.member(member).control().reject(Some(rejection));
    fixture.get("/apis/unknown.io/v1").await;
    fixture.out_of_reach(member).await;
}

#[tokio::test]
async fn cluster_without_discovery_causes_a_warning_about_its_kinds() {
    let deny = Policies {
        default: ResourcePolicy { partial: Partial::Deny, ..ResourcePolicy::default() },
        ..Policies::default()
    };
    let live = Policies { registered: Some(Vec::new()), ..allow() };
    for policies in [allow(), deny, live] {
        let fixture = second_without_deployments(policies).await;
        assert_eq!(fixture.get(DEPLOYMENTS).await.warnings(), [""; 0], "a cluster that serves none is no failure");
        refuse_discovery(&fixture, "b").await;
        fixture.member("b").control().serve("deployments.apps", true);
        let list = fixture.get(DEPLOYMENTS).await;
        assert_eq!(clusters(&list.ok()), ["a"]);
        let [warning] = &list.warnings()[..] else { panic!("{list:?}") };
        assert!(
            warning.contains("cluster b: deployments.apps may be missing, the cluster last reported "),
            "{warning}"
        );
        assert!(warning.contains("discovery of /api"), "{warning}");
        fixture.get(&format!("{DEPLOYMENTS}/of-a")).await.ok();
        for method in ["GET", "DELETE"] {
            let answer = fixture.client().send(method, &format!("{DEPLOYMENTS}/of-b"), &[], "").await;
            assert!(answer.refused(503).contains("b (for "), "{answer:?}");
        }
        for method in ["DELETE", "PATCH"] {
            let headers = [("content-type", "application/merge-patch+json")];
            let path = format!("{DEPLOYMENTS}{}", if method == "PATCH" { "/of-a" } else { "" });
            fixture.client().send(method, &path, &headers, "{}").await.refused(503);
        }
        let message = fixture.write("POST", DEPLOYMENTS, &deployment("new")).await.refused(503);
        assert!(message.contains("b may serve deployments.apps, too, and cannot be queried"), "{message}");
        // The discovery of `b` is unknown, so `b` may serve any kind.
        fixture.get("/apis/unknown.io/v1/namespaces/default/things/x").await.refused(503);
        fixture.member("b").control().reject(None);
        until(async || fixture.get(&format!("{DEPLOYMENTS}/of-b")).await.code == 200).await;
        assert_eq!(clusters(&fixture.get(DEPLOYMENTS).await.ok()), ["a", "b"]);
    }
}

/// With Retry-After, client-go repeats a request ten times, and kubectl prints nothing meanwhile. So the response has
/// Retry-After only if the fault may end within seconds.
#[tokio::test]
async fn only_a_passing_fault_of_discovery_gets_retry_after() {
    for (code, passes) in [(403, false), (404, true), (429, true), (503, true)] {
        let fixture = second_without_deployments(Policies::default()).await;
        let rejection = Rejection { kinds: vec![RequestKind::Discovery], ..Rejection::all(code) };
        fixture.member("b").control().reject(Some(rejection));
        fixture.get("/apis/unknown.io/v1").await;
        fixture.out_of_reach("b").await;
        let name = format!("{DEPLOYMENTS}/of-b");
        // A kube-apiserver that is starting also answers 403. So the router treats a 403 as lasting only after half a
        // minute.
        pass(Duration::from_secs(31)).await;
        let (unknown, advice) = ("/apis/unknown.io/v1/namespaces/default/things", |after| passes.then_some(after));
        for (method, path, refused, seconds) in [
            ("GET", &*name, 503, "1"),
            ("DELETE", &*name, 503, "1"),
            ("DELETE", DEPLOYMENTS, 503, "1"),
            ("GET", &*format!("{unknown}/x"), 503, "1"),
            ("GET", unknown, 429, "5"),
        ] {
            let answer = fixture.client().send(method, path, &[], "").await;
            let message = answer.refused(refused);
            let expected = advice(seconds);
            let told = answer.headers.get("retry-after").map(|value| value.to_str().unwrap());
            assert_eq!(told, expected, "{code} {method} {path}: {message}");
        }
    }
}

/// A complete list waits for the discovery of a cluster. It does not wait if an administrator must first repair the
/// cluster.
#[tokio::test]
async fn complete_list_is_refused_at_once_while_a_cluster_needs_a_repair() {
    let fixture = Fixture::start(["a", "b"]).await;
    let discovery = Rejection { kinds: vec![RequestKind::Discovery], ..Rejection::all(403) };
    for rejection in [discovery, Rejection::all(401)] {
        let code = rejection.code;
        fixture.member("b").control().reject(Some(rejection));
        let restarted = fixture.restarted(Policies::default()).await;
        pass(Duration::from_secs(31)).await;
        let begun = tokio::time::Instant::now();
        let answer = restarted.get(CONFIG_MAPS).await;
        let message = answer.refused(429);
        assert!(message.contains("have not been read yet: b"), "{code}: {message}");
        assert_eq!(answer.headers.get("retry-after"), None, "{code}: {message}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{code}: {:?}", begun.elapsed());
    }
}

/// The placement of a new object uses the last discovery document of an unreachable cluster.
#[tokio::test]
async fn placement_uses_the_last_discovery_of_an_unreachable_cluster() {
    let fixture = second_without_deployments(allow()).await;
    fixture.member("b").control().stop_listening().await;
    fixture.out_of_reach("b").await;
    let list = fixture.get(DEPLOYMENTS).await;
    assert!(list.warnings()[0].contains("cluster b: deployments.apps may be missing"), "{list:?}");
    let get = fixture.get(&format!("{DEPLOYMENTS}/of-b")).await;
    assert!(get.warnings()[0].contains("cluster b: deployments.apps may be missing"), "{get:?}");
    get.refused(404);
    assert_eq!(cluster(&fixture.write("POST", DEPLOYMENTS, &deployment("new")).await.ok()), "a");
    let apply = format!("{DEPLOYMENTS}/applied?fieldManager=t");
    assert_eq!(cluster(&fixture.patch(&apply, "apply-patch+yaml", &deployment("applied")).await.ok()), "a");
}

/// The members do not serve CustomResourceDefinitions, so Tributary cannot watch them for new kinds.
#[tokio::test]
async fn kind_is_asked_for_each_second_where_definitions_cannot_be_watched() {
    let group = json!({"metadata": {"name": "late.example"}, "versions": [{"version": "v1", "freshness": "Current",
        "resources": [{"resource": "things", "scope": "Namespaced", "verbs": ["get", "list", "watch"],
            "responseKind": {"group": "late.example", "version": "v1", "kind": "Thing"}}]}]});
    let things = "/apis/late.example/v1/things";
    let live = Policies { registered: Some(Vec::new()), ..allow() };
    for (policies, path) in
        [(allow(), things.to_owned()), (allow(), format!("{things}?watch=1")), (live, things.into())]
    {
        let mut fixture = Fixture::start(["a", "b"]).await;
        fixture.member("a").control().describe(vec![group.clone()]);
        fixture.router = fixture.restarted(policies).await.router;
        let read = async || fixture.client().call("GET", &path, &[], "").await;
        let b = fixture.member("b").control();
        let asked = || b.request_log().iter().filter(|line| **line == "GET /apis").count();
        let asked_meanwhile = async || {
            let before = asked();
            tokio::time::sleep(Duration::from_secs(4)).await;
            asked() - before
        };
        // A read of a built-in kind causes no discovery request.
        fixture.get(DEPLOYMENTS).await.ok();
        assert!(asked_meanwhile().await <= 1, "{path}");
        read().await;
        b.describe(vec![group.clone()]);
        until(async || {
            read().await;
            b.request_log().iter().any(|line| line.contains(things))
        })
        .await;
        b.describe(Vec::new());
        let polled = asked_meanwhile().await;
        assert!((3..=6).contains(&polled), "{path}: {polled}");
    }
}

/// A user without rights must not make Tributary send requests to clusters.
#[tokio::test]
async fn refused_list_does_not_cause_discovery_each_second() {
    let group = json!({"metadata": {"name": "late.example"}, "versions": [{"version": "v1", "freshness": "Current",
        "resources": [{"resource": "things", "scope": "Namespaced", "verbs": ["get", "list", "watch"],
            "responseKind": {"group": "late.example", "version": "v1", "kind": "Thing"}}]}]});
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    fixture.member("a").control().describe(vec![group]);
    let eve = fixture.user("eve", &[]);
    let list = "/apis/late.example/v1/things";
    until(async || eve.get(list).await.code == 403).await;
    let b = fixture.member("b").control();
    let asked = || b.request_log().iter().filter(|line| **line == "GET /apis").count();
    let before = asked();
    eve.get(list).await.refused(403);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(asked() - before <= 1, "{}", asked() - before);
}

#[tokio::test]
async fn discovery_is_read_again_before_a_404() {
    for registered in [None, Some(Vec::new())] {
        let fixture = second_without_deployments(Policies { registered, ..allow() }).await;
        fixture.member("b").control().serve("deployments.apps", true);
        assert_eq!(cluster(&fixture.get(&format!("{DEPLOYMENTS}/of-b")).await.ok()), "b");
        assert_eq!(clusters(&fixture.get(DEPLOYMENTS).await.ok()), ["a", "b"]);
    }
    let fixture = second_without_deployments(allow()).await;
    fixture.member("b").control().serve("deployments.apps", true);
    let patch = json!({"metadata": {"labels": {"l": "1"}}});
    let patched = fixture.patch(&format!("{DEPLOYMENTS}/of-b"), "merge-patch+json", &patch).await.ok();
    assert_eq!(cluster(&patched), "b");
}

#[tokio::test]
async fn discovery_is_read_again_before_a_collection_is_deleted() {
    let fixture = second_without_deployments(allow()).await;
    fixture.member("b").control().serve("deployments.apps", true);
    fixture.client().send("DELETE", DEPLOYMENTS, &[], "").await.ok();
    for member in &fixture.members {
        let name = format!("of-{}", member.name());
        assert_eq!(member.get("deployments.apps", "default", &name), None, "{name}");
    }
}

#[tokio::test]
async fn discovery_is_read_again_before_a_kind_places_a_new_object() {
    let fixture = second_without_deployments(allow()).await;
    fixture.member("b").control().serve("deployments.apps", true);
    let message = fixture.write("POST", DEPLOYMENTS, &deployment("new")).await.refused(400);
    assert!(message.starts_with("kubectl --context a … (or b): no rule selects the cluster"), "{message}");
    let fixture = second_without_deployments(allow()).await;
    fixture.member("b").control().serve("deployments.apps", true);
    let mut annotated = deployment("new");
    annotated["metadata"]["annotations"] = json!({"tributary.dev/cluster": "b"});
    assert_eq!(cluster(&fixture.write("POST", DEPLOYMENTS, &annotated).await.ok()), "b");
}

#[tokio::test]
async fn invalid_discovery_of_one_version_affects_only_this_version() {
    let resource = |verbs: Value| {
        json!({"resource": "policies", "scope": "Namespaced", "verbs": verbs,
            "responseKind": {"group": "", "version": "", "kind": "Policy"}})
    };
    let group = |resource: Value| {
        json!({"metadata": {"name": "odd.example"},
            "versions": [{"version": "v1", "freshness": "Current", "resources": [resource]}]})
    };
    let mut fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.member("a").control().describe(vec![group(resource(json!({"get": true})))]);
    fixture.member("b").control().describe(vec![group(resource(json!(["get", "list", "watch"])))]);
    fixture.router = fixture.restarted(allow()).await.router;
    assert_eq!(fixture.get(&format!("{CONFIG_MAPS}/x")).await.warnings(), [""; 0]);
    assert!(fixture.get("/readyz?verbose").await.body.windows(12).any(|text| text == b"cluster/a ok"));
    let policies = "/apis/odd.example/v1/namespaces/default/policies";
    let list = fixture.get(policies).await;
    let said = format!("{:?} {}", list.warnings(), String::from_utf8_lossy(&list.body));
    assert!(said.contains("cluster a") && said.contains("the discovery of odd.example/v1 cannot be read"), "{said}");
    let answer = fixture.get(&format!("{policies}/x")).await;
    let message = answer.refused(503);
    assert!(message.contains("the discovery of odd.example/v1 cannot be read"), "{message}");
    assert_eq!(answer.headers.get("retry-after"), None);
    fixture.router.set_policies(Policies::default());
    let answer = fixture.get(policies).await;
    let message = answer.refused(429);
    assert_eq!(answer.headers.get("retry-after"), None, "{message}");
    fixture.router.set_policies(allow());
    // When the document is valid again, the list contains the cluster again.
    fixture.member("a").control().describe(vec![group(resource(Value::Null))]);
    pass(Duration::from_secs(15)).await;
    let list = fixture.get(policies).await;
    assert!(!format!("{:?}", list.warnings()).contains("cluster a"), "{list:?}");
}

/// The Warning contains the time since the last discovery document with this API version.
#[tokio::test]
async fn warning_age_counts_from_the_last_discovery_with_the_version() {
    let fixture = Fixture::start(["a", "b"]).await;
    pass(Duration::from_secs(300)).await;
    fixture.member("b").control().serve_group("apps", false);
    pass(Duration::from_secs(30)).await;
    let ages = |text: String| -> Vec<u64> {
        let words: Vec<_> = text.split(' ').collect();
        let seconds = words.windows(2).filter(|pair| pair[1].starts_with("s:") || pair[1] == "s");
        seconds.filter_map(|pair| pair[0].parse().ok()).collect()
    };
    let warnings = fixture.get(DEPLOYMENTS).await.warnings();
    let refused = fixture.client().send("DELETE", DEPLOYMENTS, &[], "").await.refused(503);
    let named = fixture.get(&format!("{DEPLOYMENTS}/x")).await;
    assert_eq!(named.headers.get("retry-after"), None, "the server may stay silent for long");
    for text in [warnings[0].clone(), refused, named.refused(503)] {
        let ages = ages(text.clone());
        assert!(!ages.is_empty() && ages.iter().all(|age| (15..60).contains(age)), "{ages:?}: {text}");
    }
}

#[tokio::test]
async fn path_missing_in_discovery_goes_to_the_versions_only_cluster() {
    let group =
        |name: &str| json!({"metadata": {"name": name}, "versions": [{"version": "v1beta1", "freshness": "Current"}]});
    let mut fixture = Fixture::start(["a", "b"]).await;
    fixture.member("a").control().describe(vec![group("external.example"), group("shared.example")]);
    fixture.member("b").control().describe(vec![group("shared.example")]);
    fixture.router = fixture.restarted(allow()).await.router;
    let asked = |member: &str, path: &str| {
        let log = fixture.member(member).control().request_log();
        log.iter().filter(|line| line.contains(path)).count()
    };
    let path = |group: &str| format!("/apis/{group}/v1beta1/namespaces/default/s0-queue");
    let external = path("external.example");
    for (method, body) in [("GET", ""), ("POST", "{}")] {
        let before = asked("a", &external);
        fixture.client().send(method, &external, &[("content-type", "application/json")], body).await;
        assert_eq!((asked("a", &external) - before, asked("b", &external)), (1, 0), "{method}");
    }
    fixture.get(&path("shared.example")).await.refused(404);
    assert_eq!((asked("a", "s0-queue"), asked("b", "s0-queue")), (2, 0), "several have the version");
    // The discovery of `b` is unknown now, so `b` may serve the path. The router still answers a read, and refuses a
    // write.
    refuse_discovery(&fixture, "b").await;
    fixture.write("POST", &external, &json!({})).await.refused(503);
    assert_eq!(asked("a", &external), 2);
    fixture.get(&external).await;
    assert_eq!(asked("a", &external), 3);
}

/// The discovery of custom metrics contains a subresource, and a parent resource without verbs.
#[tokio::test]
async fn subresource_without_a_readable_parent_is_forwarded() {
    let described = json!({"metadata": {"name": "custom.metrics.k8s.io"}, "versions": [{"version": "v1beta1",
        "freshness": "Current", "resources": [{"resource": "pods", "scope": "Namespaced", "verbs": null,
            "responseKind": {"group": "", "version": "", "kind": ""}, "singularResource": "",
            "subresources": [{"subresource": "http_requests", "verbs": ["get"],
                "responseKind": {"group": "", "version": "", "kind": "MetricValueList"}}]}]}]});
    let mut fixture = Fixture::start(["a", "b"]).await;
    fixture.member("a").control().describe(vec![described.clone()]);
    fixture.router = fixture.restarted(allow()).await.router;
    let path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/http_requests";
    let asked = |member: &str| {
        let log = fixture.member(member).control().request_log();
        log.iter().filter(|line| line.contains("/http_requests")).count()
    };
    fixture.get(path).await;
    assert_eq!((asked("a"), asked("b")), (1, 0));
    fixture.member("b").control().describe(vec![described]);
    let both = fixture.restarted(allow()).await;
    both.get(path).await.refused(404);
    assert_eq!((asked("a"), asked("b")), (2, 1), "each is asked");
}

/// A slow member lacks the kind. The first 404 for the kind waits for the member's answer. Later 404s wait only a short
/// time.
#[tokio::test]
async fn slow_cluster_without_the_kind_delays_only_the_first_404() {
    let fixture = second_without_deployments(allow()).await;
    let slow = fixture.member("b").control();
    let nowhere = format!("{DEPLOYMENTS}/nowhere");
    let requests = [
        ("GET", nowhere.clone(), Value::Null, 404),
        ("GET", nowhere.clone(), Value::Null, 404),
        ("DELETE", nowhere, Value::Null, 404),
        ("POST", DEPLOYMENTS.to_owned(), deployment("new"), 201),
    ];
    let mut waited = Vec::new();
    for (method, path, body, code) in requests {
        // Tributary reads the discovery of a member at most once in 2 s. After this pause, it may read it again.
        pass(Duration::from_millis(2500)).await;
        slow.hold_requests(true);
        let begun = tokio::time::Instant::now();
        let answer = fixture.write(method, &path, &body).await;
        waited.push(begun.elapsed());
        slow.hold_requests(false);
        assert_eq!(answer.code, code, "{method} {waited:?}: {}", String::from_utf8_lossy(&answer.body));
    }
    assert!(waited[0] >= Duration::from_secs(2), "{waited:?}");
    assert!(waited[1..].iter().all(|waited| *waited < Duration::from_secs(2)), "{waited:?}");
}
