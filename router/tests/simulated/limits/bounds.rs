//! Limits for the size of requests. Each row is one limit, with a request that just fits and a larger request.

use tributary_router::limits::{NAME_BYTES, QUERY_PARAMETERS, SELECTOR};
use tributary_router::{ClusterAddress, ClusterSetup, Limits, RouterConfig};
use tributary_simulator::SimulatorConfig;

use crate::harness::{CONFIG_MAPS, Fixture, SOON, allow, config, items, setup, until};
use crate::membership::renewal::lists;

fn times<T: std::fmt::Display>(count: usize, text: impl Fn(usize) -> T, between: &str) -> String {
    (0..count).map(|number| text(number).to_string()).collect::<Vec<_>>().join(between)
}

#[tokio::test]
async fn request_above_a_size_limit_is_refused_and_names_the_limit() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "").await;
    let path = |query: &str| format!("{CONFIG_MAPS}?{query}");
    let labels = |count: usize| path(&format!("labelSelector={}", times(count, |number| format!("!k{number}"), ",")));
    let values = |count| path(&format!("labelSelector=k+notin+({})", times(count, |number| number, ",")));
    let fields =
        |count| path(&format!("fieldSelector={}", times(count, |number| format!("metadata.name!%3Dn{number}"), ",")));
    let parameters = |count: usize| path(&times(count, |number| format!("p{number}=1"), "&"));
    let name = |bytes: usize| format!("{CONFIG_MAPS}/{}", "n".repeat(bytes));
    let namespace = |bytes: usize| format!("/api/v1/namespaces/{}/configmaps", "n".repeat(bytes));
    let watch = |query: String| query.replacen('?', "?watch=1&timeoutSeconds=-1&", 1);
    let requirements_text = format!("too many requirements: a selector may have {} at most", SELECTOR.requirements);
    let values_text = format!("too many values: a selector may have {} at most", SELECTOR.values);
    let parameters_text = format!("too many parameters: a query may have {QUERY_PARAMETERS} at most");
    let long = |what: &str| format!("the {what} is too long: it may have {NAME_BYTES} bytes at most");
    let rows: Vec<(&str, String, u16, String, String)> = vec![
        (
            "label requirements",
            labels(SELECTOR.requirements),
            200,
            labels(SELECTOR.requirements + 1),
            requirements_text.clone(),
        ),
        ("label values", values(SELECTOR.values), 200, values(SELECTOR.values + 1), values_text),
        (
            "field requirements",
            fields(SELECTOR.requirements),
            200,
            fields(SELECTOR.requirements + 1),
            requirements_text.clone(),
        ),
        (
            "of a watch",
            watch(labels(SELECTOR.requirements)),
            200,
            watch(labels(SELECTOR.requirements + 1)),
            requirements_text,
        ),
        ("parameters", parameters(QUERY_PARAMETERS), 200, parameters(QUERY_PARAMETERS + 1), parameters_text),
        ("name", name(NAME_BYTES), 404, name(NAME_BYTES + 1), long("name")),
        ("namespace", namespace(NAME_BYTES), 200, namespace(NAME_BYTES + 1), long("namespace")),
        (
            "timeout of a watch",
            path("watch=1&timeoutSeconds=-9223372036854775808"),
            200,
            path("watch=1&timeoutSeconds=9223372036854775808"),
            "strconv.ParseInt: parsing \"9223372036854775808\": value out of range".to_owned(),
        ),
        (
            "timeout of a request",
            path("timeout=9223372036s"),
            200,
            path("timeout=9223372037s"),
            "invalid timeout specified in the request URL - time: invalid duration \"9223372037s\"".to_owned(),
        ),
        (
            "limit",
            path("limit=9223372036854775807"),
            200,
            path("limit=9223372036854775808"),
            "strconv.ParseInt: parsing \"9223372036854775808\": value out of range".to_owned(),
        ),
    ];
    for (what, at, code, above, message) in rows {
        let answer = fixture.get(&at).await;
        assert_eq!(answer.code, code, "{what}, at the bound: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(fixture.get(&above).await.refused(400), message, "{what}");
    }
    // A request to a workload has no limit of query parameters. The member's 404 shows that the router has forwarded
    // the request.
    let many = times(QUERY_PARAMETERS + 1, |number| format!("p{number}=1"), "&");
    fixture.get(&format!("/api/v1/namespaces/default/services/s/proxy/?{many}")).await.refused(404);
}

/// In kube-apiserver, the conversion of these seconds to nanoseconds overflows, but the answer is 200.
#[tokio::test]
async fn watch_with_the_longest_timeout_opens() {
    let fixture = Fixture::start(["a"]).await;
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=9223372036854775807")).await;
    fixture.put("a", "x", "");
    loop {
        if events.brief().await == "ADDED a/x" {
            break;
        }
    }
}

#[tokio::test]
async fn cluster_above_the_memory_limit_is_not_cached() {
    let large = SimulatorConfig { pods: 60, namespaces: 1, ..config("a") };
    let fixture = Fixture::with([large, SimulatorConfig { pods: 3, namespaces: 1, ..config("b") }], allow()).await;
    let limits = Limits { collection_bytes: 100 << 10, ..Limits::default() };
    let router = tributary_router::Router::new(RouterConfig { policies: allow(), limits, ..RouterConfig::default() });
    router.set_clusters(vec![setup(fixture.member("a"), "a").await, setup(fixture.member("b"), "b").await]);
    router.asked_once(SOON).await;
    let bounded = Fixture { members: Vec::new(), router };
    assert_eq!(items(&bounded.get("/api/v1/pods").await.ok()).len(), 63, "the clusters are asked for the newest state");
    let list = bounded.get("/api/v1/pods?resourceVersion=0").await;
    let listed = items(&list.ok());
    assert!(listed.len() == 3 && listed.iter().all(|item| item.starts_with("b/")), "{listed:?}");
    let warnings = list.warnings().join("\n");
    assert!(
        warnings.contains("cluster a: ") && warnings.contains("the collection is larger than 102400 bytes"),
        "{warnings}"
    );
    let text = bounded.router.metrics().expose();
    let held = text.lines().find(|line| line.starts_with(r#"tributary_limit{limit="collection_bytes"}"#));
    assert!(held.is_some_and(|line| line.ends_with(" 102400")), "{held:?}");
}

/// A user with the right to create objects can fill a cluster with them. The growth of one cluster must not remove the
/// objects of other clusters from memory.
#[tokio::test]
async fn total_memory_limit_keeps_only_the_new_cluster_out_of_memory() {
    let large = SimulatorConfig { pods: 400, namespaces: 1, ..config("large") };
    let limits = Limits { total_collection_bytes: 400 << 10, ..Limits::default() };
    let small = SimulatorConfig { pods: 6, namespaces: 1, ..config("small") };
    let fixture = Fixture::within(limits, [small, large], allow()).await;
    fixture.set_clusters(&["small"]).await;
    assert_eq!(items(&fixture.get("/api/v1/pods").await.ok()).len(), 6);
    fixture.set_clusters(&["small", "large"]).await;
    let cached = "/api/v1/pods?resourceVersion=0";
    until(async || fixture.get(cached).await.warnings().join("").contains("there is no memory")).await;
    let list = fixture.get(cached).await;
    let listed = items(&list.ok());
    assert!(listed.len() == 6 && listed.iter().all(|item| item.starts_with("small/")), "{listed:?}");
    let warnings = list.warnings().join("\n");
    for part in ["cluster large: pods are missing", "409600 (--max-total-collection-bytes)", "more memory"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    assert!(!warnings.contains("cluster small"), "{warnings}");
    let text = fixture.router.metrics().expose();
    let value = |metric: &str| -> u64 {
        let start = format!("{metric}{{limit=\"total_collection_bytes\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().parse().unwrap()
    };
    assert_eq!(value("tributary_limit"), 400 << 10);
    assert!((1..400 << 10).contains(&value("tributary_limit_used")), "{text}");
    let report = fixture.router.report().await;
    assert!(report.limits.iter().any(|own| own.limit == "total_collection_bytes" && own.max == 400 << 10));
}

/// While the router lists a reconfigured cluster again, it serves the old objects. Other clusters must not get the
/// memory of the old objects.
#[tokio::test]
async fn reconfigured_cluster_keeps_its_reserved_memory() {
    let limits = Limits { total_collection_bytes: 400 << 10, ..Limits::default() };
    let fixture = Fixture::within(limits, [config("a"), config("greedy")], allow()).await;
    // The object needs a quarter of the limit. When the other cluster has filled the remaining memory, the router could
    // not reserve so much again.
    fixture.put_and_see("a", "x", &"x".repeat(100 << 10)).await;
    fixture.put_and_see("greedy", "y", "").await;
    let (a, greedy) = (fixture.member("a"), fixture.member("greedy"));
    a.control().hold_lists(true);
    // The second configuration arrives before the first list of the new view is complete.
    for address in ["another address", "a third address"] {
        a.control().reset_counters();
        let changed = ClusterSetup { address: ClusterAddress::from_description(address), ..setup(a, "a").await };
        let kept = ClusterSetup { index: Some(1), ..setup(greedy, "greedy").await };
        fixture.router.set_clusters(vec![changed, kept]);
        fixture.router.asked_once(SOON).await;
        until(async || !lists(a).is_empty()).await;
    }
    greedy.control().reset_counters();
    for number in 0..40 {
        fixture.put("greedy", &format!("y{number}"), &"y".repeat(10 << 10));
    }
    // The router relists a cluster that grows beyond the free memory.
    until(async || !lists(greedy).is_empty()).await;
    let history = async || fixture.router.report().await.resources.iter().map(|own| own.history_bytes).sum::<u64>();
    let before = history().await;
    fixture.put("a", "later", "");
    a.control().hold_lists(false);
    until(async || !fixture.get(CONFIG_MAPS).await.warnings().join("").contains("cluster a: ")).await;
    let listed = items(&fixture.get(CONFIG_MAPS).await.ok());
    assert!(listed.contains(&"a/x".to_owned()) && listed.contains(&"a/later".to_owned()), "{listed:?}");
    // The new view shares the memory of unchanged objects with the old view, so the history contains no copies of them.
    let after = history().await;
    assert!(after < before + (50 << 10), "{before}, then {after}");
}
