//! Tests of the status report on a fleet, and its agreement with metrics and health checks.

use std::sync::Arc;
use std::time::Duration;

use tributary_proxy::{ClientTuning, Probe};
use tributary_router::report::{ClusterCondition, CollectionState};
use tributary_router::{Policies, Report};
use tributary_simulator::{Rejection, RequestKind, Simulator};

use crate::harness::{CONFIG_MAPS, Fixture, SOON, config, items, router, until};
use crate::membership::fleet::setup_tuned;

/// Returns the value of a metric by its name and parts of its labels.
fn metric(fixture: &Fixture, name: &str, parts: &[&str]) -> Option<u64> {
    let exposition = fixture.router.metrics().expose();
    let own = |line: &&str| line.starts_with(&format!("{name}{{")) && parts.iter().all(|part| line.contains(part));
    exposition.lines().find(own).and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

async fn verbose(fixture: &Fixture) -> String {
    String::from_utf8(fixture.get("/readyz?verbose").await.body.to_vec()).unwrap()
}

/// Starts three members: `a` is healthy, `b` forbids Services, and `c` stops after the router has read it. `a` and `c`
/// both have a ConfigMap `twin`.
async fn fleet() -> Fixture {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    fixture.member("b").control().reject(Some(Rejection {
        kinds: vec![RequestKind::List, RequestKind::Watch],
        resources: vec!["services".to_owned()],
        ..Rejection::all(403)
    }));
    for member in ["a", "c"] {
        fixture.put_and_see(member, "twin", "").await;
    }
    fixture.get("/api/v1/configmaps").await.ok();
    fixture.get("/api/v1/services").await.ok();
    fixture.member("c").control().stop_listening().await;
    fixture.out_of_reach("c").await;
    until(async || fixture.router.report().await.cluster("c").is_some_and(|cluster| cluster.behind == 2)).await;
    fixture
}

#[tokio::test]
async fn report_shows_the_problems_and_cached_objects_of_each_cluster() {
    let fixture = fleet().await;
    until(async || fixture.router.report().await.cluster("a").is_some_and(|a| a.latency_microseconds.is_some())).await;
    let report = fixture.router.report().await;
    let [a, b, c] = ["a", "b", "c"].map(|name| report.cluster(name).unwrap());
    let conditions = [a, b, c].map(|cluster| cluster.condition);
    assert_eq!(conditions, [ClusterCondition::Ready, ClusterCondition::Refusing, ClusterCondition::Unreachable]);
    assert_eq!([a, b, c].map(|cluster| (cluster.collections, cluster.behind)), [(2, 0), (2, 1), (2, 2)]);
    assert!(a.version.as_deref().is_some_and(|version| version.starts_with("v1.")), "{:?}", a.version);
    assert!(a.problem.is_none() && a.refusal.is_none() && a.age_seconds.is_some(), "{a:?}");
    assert!(b.refusal.as_deref().is_some_and(|refusal| refusal.starts_with("services: forbidden")), "{b:?}");
    assert!(c.problem.is_some() && c.problem_seconds.is_some() && c.latency_microseconds.is_none(), "{c:?}");
    assert!(c.age_seconds >= c.problem_seconds, "what is held of who has gone is as old as its last word: {c:?}");
    let listed = items(&fixture.get("/api/v1/configmaps").await.ok());
    let of = |cluster: &str| listed.iter().filter(|item| item.starts_with(&format!("{cluster}/"))).count() as u64;
    for cluster in [a, b, c] {
        assert_eq!(
            metric(&fixture, "tributary_cached_objects", &[&format!("cluster=\"{}\"", cluster.name), "configmaps"]),
            Some(of(&cluster.name))
        );
        assert!(cluster.objects >= of(&cluster.name) && (cluster.bytes > 0) == (cluster.objects > 0), "{cluster:?}");
    }
    assert_eq!((c.endpoints.len(), c.endpoints[0].problem.is_some()), (1, true));
}

#[tokio::test]
async fn report_lists_stale_collections_and_repeated_names() {
    let fixture = fleet().await;
    let report = fixture.router.report().await;
    let behind: Vec<_> =
        report.behind.iter().map(|it| (it.cluster.as_str(), it.resource.as_str(), it.state, it.refused)).collect();
    assert_eq!(
        behind,
        [
            ("b", "services", CollectionState::Unknown, true),
            ("c", "configmaps", CollectionState::Stale, false),
            ("c", "services", CollectionState::Stale, false)
        ]
    );
    assert!(report.behind.iter().all(|it| it.reason.is_some()), "{:?}", report.behind);
    let maps = report.resources.iter().find(|resource| resource.resource == "configmaps").unwrap();
    let listed = fixture.get("/api/v1/configmaps").await.ok();
    assert_eq!(maps.objects as usize, items(&listed).len());
    assert!(maps.repeated_names >= 1);
    assert_eq!(metric(&fixture, "tributary_repeated_names", &["configmaps"]), Some(maps.repeated_names));
    fixture.set_clusters(&["a"]).await;
    until(async || metric(&fixture, "tributary_repeated_names", &["configmaps"]) == Some(0)).await;
    let report = fixture.router.report().await;
    assert_eq!((report.clusters.len(), report.behind.len()), (1, 0));
    assert_eq!(metric(&fixture, "tributary_cached_objects", &["\"c\""]), None, "nothing is told of who has left");
}

#[tokio::test]
async fn health_checks_and_metrics_agree_with_the_report() {
    let fixture = fleet().await;
    let report = fixture.router.report().await;
    let text = verbose(&fixture).await;
    assert!(text.contains("[+]cluster/a ok\n"), "{text}");
    for name in ["b", "c"] {
        let cluster = report.cluster(name).unwrap();
        let wrong = cluster.problem.as_ref().or(cluster.refusal.as_ref()).unwrap();
        assert!(text.contains(&format!("[-]cluster/{name} failed: {wrong}\n")), "{wrong} in {text}");
    }
    for (cluster, resource, synced) in
        [("a", "services", 1), ("b", "services", 0), ("b", "configmaps", 1), ("c", "configmaps", 0)]
    {
        let labels = [&*format!("cluster=\"{cluster}\""), resource];
        assert_eq!(metric(&fixture, "tributary_cacher_synced", &labels), Some(synced), "{cluster} {resource}");
    }
    // Forbidden Services of a cluster are not a fault, because the router also serves clusters that allow only single
    // namespaces.
    for (name, clusters) in [("tributary_unknown_clusters", 0), ("tributary_forbidden_clusters", 1)] {
        assert_eq!(metric(&fixture, name, &["\"services\""]), Some(clusters), "{name}");
    }
}

#[tokio::test]
async fn metrics_of_a_removed_cluster_disappear_and_restart_at_zero() {
    let fixture = Fixture::start(["a", "b"]).await;
    let counted = |cluster: &str| {
        metric(&fixture, "tributary_requests_total", &[&format!("cluster=\"{cluster}\""), "resource=\"configmaps\""])
    };
    for _ in 0..2 {
        for cluster in ["a", "b"] {
            fixture.get(&format!("/clusters/{cluster}{CONFIG_MAPS}")).await.ok();
        }
    }
    assert_eq!((counted("a"), counted("b")), (Some(2), Some(2)));
    fixture.set_clusters(&["a"]).await;
    assert_eq!((counted("a"), counted("b")), (Some(2), None), "what has left takes no room");
    fixture.set_clusters(&["a", "b"]).await;
    fixture.router.asked_once(SOON).await;
    fixture.get(&format!("/clusters/b{CONFIG_MAPS}")).await.ok();
    assert_eq!(counted("b"), Some(1));
}

#[tokio::test]
async fn report_shows_the_use_of_shared_limits() {
    let fixture = Fixture::start(["a"]).await;
    let watch = fixture.watch(&format!("/clusters/a{CONFIG_MAPS}?watch=1")).await;
    let report = fixture.router.report().await;
    let used = |limit: &str| report.limits.iter().find(|it| it.limit == limit).map(|it| (it.of.as_deref(), it.used));
    assert_eq!(used("watches_to_member"), Some((Some("a"), 1)));
    assert_eq!(used("requests_in_flight"), Some((None, 0)));
    for limit in ["held_bytes", "long_answers", "short_to_member", "long_running_to_member"] {
        assert_eq!(used(limit).map(|(_, used)| used), Some(0), "{limit}");
    }
    drop(watch);
}

/// The health probe of the cluster runs once an hour. Discovery requests every 12 s still show that the cluster is
/// alive, even without events.
#[tokio::test(start_paused = true)]
async fn age_of_a_rarely_probed_clusters_collection_stays_low() {
    let member = Arc::new(Simulator::start_in_process(config("a")).unwrap());
    let probe = Probe { interval: Duration::from_secs(3600), ..Probe::default() };
    let setup = setup_tuned(&member, ClientTuning { probe, ..ClientTuning::default() }).await;
    let fixture = Fixture { members: Vec::new(), router: router(Policies::default()) };
    fixture.router.set_clusters(vec![setup]);
    fixture.router.asked_once(SOON).await;
    fixture.get(CONFIG_MAPS).await.ok();
    for second in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let age = metric(&fixture, "tributary_collection_age_seconds", &["\"configmaps\""]);
        assert!(age.is_some_and(|age| age <= 13), "{age:?} s old after {second} s");
    }
}

/// The report contains texts from members, so the test checks that they contain no credential.
#[tokio::test]
async fn report_contains_no_credential() {
    let fixture = fleet().await;
    let text = serde_json::to_string(&fixture.router.report().await).unwrap();
    for member in &fixture.members {
        assert!(!text.contains(member.token()), "{text}");
    }
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap().clusters.len(), 3);
}
