//! Tests of lists over a connection that is too slow for the member's time limit.

mod common;

use std::io::Write;
use std::time::Duration;

use common::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::time::{Instant, sleep};
use tributary_cacher::{CacherState, ReflectorTuning, StaleReason, Update};

/// The time after which a kube-apiserver ends a list by default (`--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The response of a kube-apiserver of 1.34 or later to a continue token, if its watch cache does not reach the token's
/// version within 3 s (`waitUntilFreshAndBlock` in apiserver's `pkg/storage/cacher/watch_cache.go`). Either the watch
/// cache lags, or the member was restored to an older state.
const TOO_LARGE: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Timeout: Too large resource version: 1000, current: 500","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#;

/// A member without WatchList, behind a connection of limited bandwidth.
struct SlowMember {
    objects: Vec<String>,
    bytes_per_second: usize,
    /// Whether the member compresses lists on request, like a kube-apiserver.
    compresses: bool,
    /// The time after which the member, or a proxy in front, cuts off a list.
    request_timeout: Duration,
}

/// The parameters of a list request, and whether its response was complete.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    from: usize,
    limit: usize,
    compressed: bool,
    is_complete: bool,
}

impl SlowMember {
    /// Answers requests until the cacher opens a watch. Returns the requested lists and the watch.
    async fn serve(&self, member: &mut Member) -> (Vec<Page>, Feed) {
        let began = Instant::now();
        let mut pages = Vec::new();
        loop {
            assert!(began.elapsed() < Duration::from_secs(3600), "the list does not complete: {pages:?}");
            let request = member.next_request().await;
            let uri = request.uri.clone();
            let value = |name: &str| {
                let pair = uri.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
                pair.map(|text| text.parse::<usize>().expect("a number"))
            };
            if uri.contains("sendInitialEvents") {
                request.status(422, r#"{"code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}"#);
                continue;
            }
            if uri.contains("watch=1") {
                return (pages, request.stream());
            }
            if uri.ends_with("?limit=1") {
                request.text(list(&self.objects[..1], 5, None));
                continue;
            }
            let (from, limit) = (value("continue").unwrap_or(0), value("limit").expect("a limit"));
            let end = (from + limit).min(self.objects.len());
            let more = (end < self.objects.len()).then(|| end.to_string());
            let text = list(&self.objects[from..end], 5, more.as_deref());
            let compressed = self.compresses && request.headers["accept-encoding"] == "gzip" && text.len() > 128 << 10;
            let is_complete = self.send(request, text, compressed).await;
            pages.push(Page { from, limit, compressed, is_complete });
        }
    }

    /// Sends a list at the bandwidth of the connection, and cuts it off at the time limit. Returns whether the list was
    /// complete.
    async fn send(&self, request: PendingRequest, text: String, compressed: bool) -> bool {
        let began = request.at;
        let (feed, bytes) = match compressed {
            false => (request.stream(), text.into_bytes()),
            true => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text.as_bytes()).expect("memory");
                (
                    request.stream_with_head(http::Response::builder().header("Content-Encoding", "gzip")),
                    encoder.finish().expect("memory"),
                )
            }
        };
        for second in bytes.chunks(self.bytes_per_second) {
            sleep(Duration::from_secs(1)).await;
            if began.elapsed() >= self.request_timeout {
                feed.cut();
                return false;
            }
            feed.send(second);
        }
        true
    }
}

/// Creates a pod with 1,000 bytes that are incompressible or all equal.
fn large_pod(number: usize, random: bool) -> String {
    let name = format!("pod-{number:05}");
    let byte = |_| if random { char::from(rand::random_range(b'a'..=b'z')) } else { 'x' };
    let padding: String = (0..1000).map(byte).collect();
    pod(&name, 1).replacen(r#""uid""#, &format!(r#""labels":{{"padding":"{padding}"}},"uid""#), 1)
}

#[tokio::test(start_paused = true)]
async fn list_above_the_members_time_limit_completes_in_smaller_pages() {
    let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
    let (cacher, mut member, mut updates) = start_with(tuning);
    // A page of 1,000 objects takes five minutes at this bandwidth.
    let objects = (0..2000).map(|number| large_pod(number, true)).collect();
    let slow = SlowMember { objects, bytes_per_second: 4_000, compresses: true, request_timeout: REQUEST_TIMEOUT };
    let began = Instant::now();
    let (pages, _watch) = slow.serve(&mut member).await;
    assert_eq!(updates.synced().await.len(), 2000);
    assert_eq!(cacher.state(), CacherState::Synced);
    let cut = pages.iter().filter(|page| !page.is_complete).count();
    assert!(cut <= 2, "{cut} were cut: {pages:?}");
    // 2 MB at 4 kB per second take 500 s.
    assert!(began.elapsed() < Duration::from_secs(800), "{:?}", began.elapsed());
    let mut from = 0;
    for page in pages.iter().filter(|page| page.is_complete) {
        assert_eq!(page.from, from, "complete pages are not requested again: {pages:?}");
        from += page.limit;
    }
}

#[tokio::test(start_paused = true)]
async fn list_that_is_cut_off_is_requested_with_gzip() {
    let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let objects = (0..2000).map(|number| large_pod(number, false)).collect();
    let slow = SlowMember { objects, bytes_per_second: 10_000, compresses: true, request_timeout: REQUEST_TIMEOUT };
    let (pages, _watch) = slow.serve(&mut member).await;
    let synced = updates.synced().await;
    assert_eq!(synced.len(), 2000);
    assert!(synced.iter().all(|object| String::from_utf8_lossy(object.json()).contains(&"x".repeat(1000))));
    assert!(!pages[0].compressed && !pages[0].is_complete, "{pages:?}");
    assert!(pages[1..].iter().all(|page| page.compressed && page.is_complete), "{pages:?}");
}

#[tokio::test(start_paused = true)]
async fn fast_member_is_listed_in_large_uncompressed_pages() {
    let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let objects = (0..2000).map(|number| large_pod(number, false)).collect();
    let near = SlowMember { objects, bytes_per_second: 1_000_000, compresses: true, request_timeout: REQUEST_TIMEOUT };
    let (pages, _watch) = near.serve(&mut member).await;
    updates.synced().await;
    let page = |from| Page { from, limit: 1000, compressed: false, is_complete: true };
    assert_eq!(pages, [page(0), page(1000)]);
}

#[tokio::test(start_paused = true)]
async fn pages_before_a_cut_off_page_are_kept() {
    let (_cacher, mut member, mut updates) = start();
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422}"#);
    member.expect(&["limit=10000"]).await.text(list(&[pod("a", 1), pod("b", 2)], 5, Some("t1")));
    let feed = member.expect(&["limit=10000", "continue=t1"]).await.stream();
    feed.send(list(&[pod("c", 3), pod("d", 4)], 5, None).split_at(200).0);
    feed.cut();
    expect_latest(&mut member).await.text(list(&[pod("a", 1)], 5, None));
    let again = member.expect(&["limit=10000", "continue=t1"]).await;
    assert_eq!(again.headers["accept-encoding"], "identity", "the page broke off soon");
    again.status(504, "");
    expect_latest(&mut member).await.text(list(&[pod("a", 1)], 5, None));
    member.expect(&["limit=5000", "continue=t1"]).await.text(list(&[pod("c", 3), pod("d", 4)], 5, None));
    assert_eq!(contents(&updates.synced().await), names(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]));
    member.expect(&["watch=1", "resourceVersion=5"]).await;
}

/// Returns the next request, which must be a list of one object, for the member's latest version.
async fn expect_latest(member: &mut Member) -> PendingRequest {
    let request = member.next_request().await;
    assert!(request.uri.ends_with("?limit=1"), "{}", request.uri);
    request
}

/// Answers the list request with a first page of version 1000. Returns the request for the second page.
async fn second_page(member: &mut Member) -> PendingRequest {
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422}"#);
    member.expect(&["limit=10000"]).await.text(list(&[pod("a", 900)], 1000, Some("t1")));
    member.expect(&["limit=10000", "continue=t1"]).await
}

/// Expects a new list, serves it with version 500, and checks that the cacher publishes its objects.
async fn expect_relist(member: &mut Member, mut updates: Updates) {
    let first = member.expect(&["limit="]).await;
    assert!(!first.uri.contains("continue"), "{}", first.uri);
    first.text(list(&[pod("b", 400)], 500, None));
    assert_eq!(contents(&updates.synced().await), names(&[("b", 400)]));
    member.expect(&["watch=1", "resourceVersion=500"]).await;
}

#[tokio::test(start_paused = true)]
async fn page_refused_by_a_restored_member_restarts_the_list() {
    let (_cacher, mut member, updates) = start();
    second_page(&mut member).await.status(504, TOO_LARGE);
    expect_latest(&mut member).await.text(list(&[pod("b", 400)], 500, None));
    expect_relist(&mut member, updates).await;
}

#[tokio::test(start_paused = true)]
async fn page_refused_by_a_lagging_apiserver_is_requested_again() {
    let (cacher, mut member, mut updates) = start();
    let page = second_page(&mut member).await;
    let refused_at = Instant::now();
    page.status(504, TOO_LARGE);
    let question = expect_latest(&mut member).await;
    assert!(question.at - refused_at >= Duration::from_secs(1), "the request respects Retry-After");
    assert_ne!(cacher.state().reason(), Some(&StaleReason::Reset), "no answer showed that revisions went back");
    question.text(list(&[pod("a", 900)], 1000, None));
    // The member refused the page because of its version, not because the page was too slow. So the page size is
    // unchanged.
    member.expect(&["limit=10000", "continue=t1"]).await.text(list(&[pod("b", 950)], 1000, None));
    assert_eq!(contents(&updates.synced().await), names(&[("a", 900), ("b", 950)]));
    member.expect(&["watch=1", "resourceVersion=1000"]).await;
}

#[tokio::test(start_paused = true)]
async fn page_refusal_by_a_lagging_apiserver_causes_no_reset() {
    let (_cacher, mut member, mut updates) = start();
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422}"#);
    member.expect(&["limit=10000"]).await.text(list(&[pod("a", 5)], 10, None));
    updates.synced().await;
    member.expect(&["watch=1", "resourceVersion=10"]).await.status(410, r#"{"code":410,"reason":"Expired"}"#);
    member.expect(&["limit=10000"]).await.text(list(&[pod("a", 900)], 1000, Some("t1")));
    member.expect(&["continue=t1"]).await.status(504, TOO_LARGE);
    expect_latest(&mut member).await.text(list(&[pod("a", 900)], 1001, None));
    member.expect(&["continue=t1"]).await.text(list(&[pod("b", 950)], 1000, None));
    let Update::Relisted { after, .. } = updates.next().await else { panic!("revisions did not go back") };
    assert_eq!(contents(&after), names(&[("a", 900), ("b", 950)]));
}

#[tokio::test(start_paused = true)]
async fn page_that_fails_at_a_restored_member_restarts_the_list() {
    for timed_out in [false, true] {
        let (_cacher, mut member, updates) = start();
        let page = second_page(&mut member).await;
        if timed_out {
            page.status(504, "")
        } else {
            page.refuse_connection()
        }
        expect_latest(&mut member).await.refuse_connection();
        expect_latest(&mut member).await.text(list(&[pod("b", 400)], 500, None));
        expect_relist(&mut member, updates).await;
    }
}

#[tokio::test(start_paused = true)]
async fn member_with_a_short_time_limit_is_listed_in_smaller_pages() {
    for seconds in [3, 8] {
        let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
        let (_cacher, mut member, mut updates) = start_with(tuning);
        let objects = (0..2000).map(|number| large_pod(number, true)).collect();
        let request_timeout = Duration::from_secs(seconds);
        let slow = SlowMember { objects, bytes_per_second: 20_000, compresses: true, request_timeout };
        let (pages, _watch) = slow.serve(&mut member).await;
        assert_eq!(updates.synced().await.len(), 2000);
        let cut = pages.iter().filter(|page| !page.is_complete).count();
        assert!(cut <= 3, "{cut} were cut: {pages:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn page_that_is_cut_off_twice_becomes_smaller() {
    let (_cacher, mut member, _updates) = start();
    let text = list(&(0..100).map(|number| pod(&format!("pod-{number}"), 3)).collect::<Vec<_>>(), 1000, None);
    let mut page = second_page(&mut member).await;
    for _ in 0..2 {
        let feed = page.stream();
        feed.send(&text[..text.len() - 2]);
        feed.cut();
        expect_latest(&mut member).await.text(list(&[pod("a", 900)], 1000, None));
        page = member.expect(&["continue=t1"]).await;
    }
    assert!(page.uri.contains("limit=50&"), "{}", page.uri);
}

#[tokio::test(start_paused = true)]
async fn page_whose_body_stalls_becomes_smaller() {
    let (_cacher, mut member, _updates) = start();
    let feed = second_page(&mut member).await.stream();
    let text = list(&(0..100).map(|number| pod(&format!("pod-{number}"), 3)).collect::<Vec<_>>(), 1000, None);
    feed.send(&text[..text.len() - 2]);
    expect_latest(&mut member).await.text(list(&[pod("a", 900)], 1000, None));
    member.expect(&["limit=50&", "continue=t1"]).await;
}

#[tokio::test(start_paused = true)]
async fn page_time_limit_grows_again_after_complete_lists() {
    let tuning = ReflectorTuning { page_time: Duration::from_secs(4), ..ReflectorTuning::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let text = list(&(0..100).map(|number| pod(&format!("pod-{number}"), 3)).collect::<Vec<_>>(), 5, None);
    let cut_after = async |request: PendingRequest, milliseconds| {
        let feed = request.stream();
        feed.send(&text[..text.len() - 2]);
        sleep(Duration::from_millis(milliseconds)).await;
        feed.cut();
    };
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422}"#);
    cut_after(member.expect(&["limit=10000"]).await, 1500).await;
    for _ in 0..2 {
        member.expect(&["limit=10000"]).await.text(&text);
        updates.next().await;
        member.expect(&["watch=1"]).await.status(410, r#"{"code":410,"reason":"Expired"}"#);
    }
    cut_after(member.expect(&["limit=10000"]).await, 3000).await;
    let again = member.expect(&["limit=10000"]).await;
    assert_eq!(again.headers["accept-encoding"], "identity", "3 s do not count as late again");
}
