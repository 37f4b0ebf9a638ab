//! Tests of a member that becomes silent or stops, and recovers. They check when the Warning begins, the age in the
//! Warning, and when all collections are fresh again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::Instant;
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{CONFIG_MAPS, Fixture, SOON, pass, quiet_without_time, until};

const COLLECTIONS: [&str; 6] =
    ["/api/v1/configmaps", "/api/v1/pods", "/api/v1/services", "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/events"];

/// Maximum time after a member becomes silent until responses have a Warning.
const WARNED_WITHIN: Duration = Duration::from_secs(10);

/// Maximum time between two events or probe responses of a healthy member. The age in a Warning may be higher than the
/// duration of the silence by this time.
const SAYS_SOMETHING_EACH: Duration = Duration::from_secs(5);

/// Starts members `a` and `b`, and waits until the router has read all their collections.
async fn held() -> Fixture {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("b", "x", "1").await;
    assert!(all_are_fresh(&fixture).await);
    fixture
}

async fn warnings(fixture: &Fixture) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for collection in COLLECTIONS {
        let answer = fixture.get(&format!("{collection}?limit=1")).await;
        answer.ok();
        all.push(answer.warnings());
    }
    all
}

async fn all_are_fresh(fixture: &Fixture) -> bool {
    warnings(fixture).await.iter().all(Vec::is_empty)
}

/// Returns the age in a Warning about `b`, in seconds.
fn age(warnings: &[String]) -> u64 {
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let (before, rest) = warnings[0].split_once(" may be stale, last updated ").expect("an age");
    assert!(before.starts_with("299 - \"cluster b: "), "{warnings:?}");
    rest.split_once(" s ago: ").expect("seconds").0.parse().unwrap()
}

#[tokio::test]
async fn silent_member_causes_warnings_within_ten_seconds() {
    let fixture = held().await;
    let frozen = Instant::now();
    fixture.member("b").control().half_open(true);
    pass(WARNED_WITHIN).await;
    quiet_without_time().await;
    for elapsed in [WARNED_WITHIN, Duration::from_secs(90)] {
        pass(elapsed.saturating_sub(frozen.elapsed())).await;
        let least = frozen.elapsed();
        for warnings in warnings(&fixture).await {
            let (age, most) = (Duration::from_secs(age(&warnings)), frozen.elapsed() + SAYS_SOMETHING_EACH);
            assert!(age >= Duration::from_secs(least.as_secs()) && age <= most, "{least:?} to {most:?}: {warnings:?}");
            // A few seconds later, the reason in the Warning is that the member does not answer `/readyz`.
            let is_silent = warnings[0].contains("is silent: no answer to /readyz within 4 s");
            assert!(is_silent || elapsed > WARNED_WITHIN, "{warnings:?}");
            assert_eq!(warnings[0].matches("cluster b").count(), 1, "{warnings:?}");
        }
    }
}

#[derive(Clone, Default)]
struct LogText(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for LogText {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LogText {
    fn of(&self, cluster: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(&format!("cluster={cluster} "))).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn outage_is_logged_once_at_its_begin_and_end() {
    let log = LogText::default();
    // `tracing` caches for each log statement whether it is enabled. With only one subscriber, the first thread that
    // reaches the statement decides for all threads, and it may belong to a test without a log. A second subscriber
    // prevents this.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_ansi(false);
    let _guard = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
    let fixture = held().await;
    let control = fixture.member("b").control();
    let failures = |log: &LogText| log.of("b").into_iter().filter(|line| line.contains("the cluster is "));
    let stop = || async {
        control.half_open(true);
        pass(WARNED_WITHIN).await;
        control.half_open(false);
        control.stop_listening().await;
    };
    for times in 1..=2 {
        stop().await;
        pass(Duration::from_secs(60)).await;
        quiet_without_time().await;
        let said: Vec<_> = failures(&log).collect();
        assert_eq!(said.len(), 2 * times - 1, "{said:#?}");
        let begun = said.last().unwrap();
        assert!(begun.contains(" WARN ") && begun.contains("is silent") && begun.contains("age_seconds="), "{begun}");
        control.start_listening().await;
        until(|| async {
            pass(Duration::from_millis(250)).await;
            failures(&log).count() == 2 * times
        })
        .await;
        let ended = failures(&log).next_back().unwrap();
        assert!(ended.contains(" INFO ") && ended.contains("trouble_seconds="), "{ended}");
        pass(Duration::from_secs(60)).await;
        quiet_without_time().await;
        assert_eq!(failures(&log).count(), 2 * times);
    }
    let others: Vec<_> = log.of("b").into_iter().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(others.len(), 2, "nobody else warns of it: {others:#?}");
}

#[tokio::test]
async fn killed_member_causes_warnings_immediately() {
    let fixture = held().await;
    fixture.member("b").control().stop_listening().await;
    pass(Duration::from_secs(1)).await;
    quiet_without_time().await;
    for warnings in warnings(&fixture).await {
        assert!(age(&warnings) <= 6 && warnings[0].contains("Connection refused"), "{warnings:?}");
    }
}

#[tokio::test]
async fn collections_become_fresh_soon_after_an_outage() {
    let fixture = held().await;
    let control = fixture.member("b").control();
    for silent in [true, false] {
        if silent {
            control.half_open(true)
        } else {
            control.stop_listening().await
        }
        // After this pause, the router's next regular attempt to read a collection could be half a minute away. The
        // recovery must cause an earlier attempt.
        pass(Duration::from_secs(120)).await;
        quiet_without_time().await;
        assert!(warnings(&fixture).await.iter().all(|warnings| age(warnings) >= 120));
        if silent {
            control.half_open(false)
        } else {
            control.start_listening().await
        }
        become_fresh_soon(&fixture).await;
    }
}

async fn become_fresh_soon(fixture: &Fixture) {
    let back = Instant::now();
    until(|| async {
        pass(Duration::from_millis(250)).await;
        all_are_fresh(fixture).await
    })
    .await;
    // The router promises half of this time. Busy machines need more.
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
}

/// A load balancer that has lost its backend keeps its connections and answers PING. It answers requests with an error
/// or not at all. It may close the streams to the backend or keep them open.
#[tokio::test]
async fn cluster_behind_an_empty_load_balancer_is_stale() {
    for (code, breaks_off) in [(Some(503), false), (Some(502), false), (Some(504), true), (None, false), (None, true)] {
        let fixture = held().await;
        let control = fixture.member("b").control();
        control.reject(code.map(Rejection::all));
        control.hold_requests(code.is_none());
        if breaks_off {
            control.cut_streams();
        }
        pass(WARNED_WITHIN).await;
        quiet_without_time().await;
        let reason = code.map_or("no answer".to_owned(), |code| code.to_string());
        for warnings in warnings(&fixture).await {
            assert!(age(&warnings) <= 15, "{code:?}: {warnings:?}");
            // If the watch broke, the Warning first names this reason.
            assert!(breaks_off || warnings[0].contains(&reason), "{code:?}: {warnings:?}");
        }
        pass(Duration::from_secs(120)).await;
        quiet_without_time().await;
        assert!(warnings(&fixture).await.iter().all(|warnings| age(warnings) >= 120));
        control.reject(None);
        control.hold_requests(false);
        become_fresh_soon(&fixture).await;
    }
}

/// `/readyz` may succeed although the credentials are rejected: some load balancers answer it themselves, and some
/// members allow it without credentials.
#[tokio::test]
async fn member_that_rejects_credentials_gets_few_requests() {
    let fixture = held().await;
    let control = fixture.member("b").control();
    let kinds = vec![RequestKind::List, RequestKind::Watch, RequestKind::Get, RequestKind::Discovery];
    control.reject(Some(Rejection { kinds, ..Rejection::all(401) }));
    control.cut_streams();
    pass(Duration::from_secs(120)).await;
    quiet_without_time().await;
    assert!(warnings(&fixture).await.iter().all(|warnings| age(warnings) >= 120));
    let asked = || control.requests(RequestKind::Discovery) + control.requests(RequestKind::List);
    let before = asked();
    pass(Duration::from_secs(120)).await;
    quiet_without_time().await;
    // Expected requests: one for each collection every 15 to 30 s, and one for discovery every 10 s. Each 401 causes
    // one additional request.
    let count = asked() - before;
    assert!(count <= 2 * (8 * COLLECTIONS.len() as u64 + 15), "{count}");
    control.reject(None);
    // Nothing announces that the credentials are valid again. The router detects it with its next regular request.
    until(|| async {
        pass(Duration::from_millis(250)).await;
        all_are_fresh(&fixture).await
    })
    .await;
}

#[tokio::test]
async fn member_that_forbids_readyz_is_not_stale() {
    let fixture = held().await;
    let control = fixture.member("b").control();
    let asked = || control.requests(RequestKind::Other);
    for code in [403, 404] {
        control.reject(Some(Rejection { kinds: vec![RequestKind::Other], ..Rejection::all(code) }));
        let before = asked();
        pass(Duration::from_secs(30)).await;
        quiet_without_time().await;
        assert!(asked() >= before + 5, "it was asked {} times", asked() - before);
        assert!(all_are_fresh(&fixture).await, "{code}");
    }
}

/// The member has lost its etcd, or `/readyz` hangs, because two checks of a kube-apiserver wait 2 s each for etcd. The
/// member still answers PING, but the objects in memory may be outdated. Streams stay open, because logs and tunnels
/// need no etcd.
#[tokio::test]
async fn member_that_is_not_ready_is_stale_until_it_sends_events() {
    for hangs in [false, true] {
        let fixture = held().await;
        let control = fixture.member("b").control();
        let followed = format!("/clusters/b{CONFIG_MAPS}?watch=1&resourceVersion=0");
        let mut followed = fixture.client().call("GET", &followed, &[], "").await.into_body();
        followed.frame().await.expect("a frame").expect("data");
        let asked = || control.request_log().iter().filter(|it| it.contains("/livez/ping")).count();
        if hangs {
            control.hold_readyz(true);
        } else {
            control.ready(false);
        }
        pass(Duration::from_secs(5)).await;
        quiet_without_time().await;
        assert!(all_are_fresh(&fixture).await, "it may be ready in a moment");
        pass(Duration::from_secs(25)).await;
        quiet_without_time().await;
        assert_eq!(asked() > 1, hangs, "{:?}", control.request_log());
        for warnings in warnings(&fixture).await {
            assert!(warnings.len() == 1 && warnings[0].contains("is not ready"), "{warnings:?}");
            assert!((20..=40).contains(&age(&warnings)), "{warnings:?}");
        }
        let report = fixture.get("/readyz?verbose").await;
        let report = String::from_utf8_lossy(&report.body);
        assert!(report.contains("/readyz reports that it is not ready"), "{report}");
        // The router still forwards reads and writes. An event of the member makes the collection fresh.
        assert_eq!(fixture.get(&format!("/clusters/b{CONFIG_MAPS}")).await.code, 200);
        fixture.put_and_see("b", "x", "2").await;
        followed.frame().await.expect("it goes on").expect("data");
        assert_eq!(fixture.get(CONFIG_MAPS).await.warnings(), Vec::<String>::new());
        control.hold_readyz(false);
        control.ready(true);
        become_fresh_soon(&fixture).await;
    }
}

/// A slow client reads data that arrived some time ago. This is no proof that the cluster is alive.
#[tokio::test]
async fn slow_reader_does_not_hide_a_dead_cluster() {
    let fixture = held().await;
    let value = "v".repeat(8 << 10);
    for number in 0..100 {
        fixture.put("b", &format!("large-{number}"), &value);
    }
    fixture.put_and_see("b", "last", "1").await;
    let followed = format!("/clusters/b{CONFIG_MAPS}?watch=1&resourceVersion=0");
    let mut followed = fixture.client().call("GET", &followed, &[], "").await.into_body();
    followed.frame().await.expect("a frame").expect("data");
    quiet_without_time().await;
    fixture.member("b").control().half_open(true);
    // The router's buffers are full of data from the member, so the slow client can read for some seconds without new
    // data.
    let seconds = 8;
    for _ in 0..seconds {
        pass(Duration::from_secs(1)).await;
        quiet_without_time().await;
    }
    let waited = followed.frame().await.expect("what waited").expect("it is whole");
    assert!(waited.data_ref().is_some_and(|waited| waited.len() > 1 << 10), "{waited:?}");
    for warnings in warnings(&fixture).await {
        assert!(age(&warnings) + 2 >= seconds, "after {seconds} s: {warnings:?}");
    }
}

#[tokio::test]
async fn watch_at_a_clusters_path_breaks_when_the_cluster_is_silent() {
    let fixture = held().await;
    let followed = format!("/clusters/b{CONFIG_MAPS}?watch=1&resourceVersion=0");
    let mut followed = fixture.client().call("GET", &followed, &[], "").await.into_body();
    followed.frame().await.expect("a frame").expect("data");
    fixture.member("b").control().half_open(true);
    pass(WARNED_WITHIN).await;
    let ended = tokio::time::timeout(SOON, async {
        loop {
            if let Err(error) = followed.frame().await.expect("no end as if all were there") {
                return error.to_string();
            }
        }
    });
    let error = ended.await.expect("an end");
    assert!(error.contains("cluster b"), "{error}");
    let metrics = fixture.router.metrics().expose();
    let broken = metrics.lines().find(|line| line.starts_with("tributary_endpoint_broken_total{cluster=\"b\""));
    assert!(broken.is_some_and(|line| line.ends_with(" 1")), "{broken:?}");
}
