//! Lists over a line that is too slow for what the member gives a request.

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

/// What a kube-apiserver of 1.34 or later answers to a continue token whose version its watch cache does not reach
/// within 3 s (`waitUntilFreshAndBlock` in apiserver's `pkg/storage/cacher/watch_cache.go`), whether it lags or was
/// restored to an older state.
const TOO_LARGE: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Timeout: Too large resource version: 1000, current: 500","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#;

/// A member without WatchList, behind a line of so many bytes per second.
struct SlowMember {
    objects: Vec<String>,
    bytes_per_second: usize,
    /// Whether lists are compressed for who accepts that, as a kube-apiserver does.
    compresses: bool,
    /// After how long it, or a proxy before it, ends a list.
    request_timeout: Duration,
}

/// What a list was asked for, and whether it came to its end.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    from: usize,
    limit: usize,
    compressed: bool,
    came: bool,
}

impl SlowMember {
    /// Answers until the collection is watched; the lists that were asked for.
    async fn serve(&self, member: &mut Member) -> (Vec<Page>, Feed) {
        let began = Instant::now();
        let mut pages = Vec::new();
        loop {
            assert!(began.elapsed() < Duration::from_secs(3600), "it does not come: {pages:?}");
            let asked = member.asked().await;
            let uri = asked.uri.clone();
            let value = |name: &str| {
                let pair = uri.split(['?', '&']).find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
                pair.map(|text| text.parse::<usize>().expect("a number"))
            };
            if uri.contains("sendInitialEvents") {
                asked.status(422, r#"{"code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}"#);
                continue;
            }
            if uri.contains("watch=1") {
                return (pages, asked.stream());
            }
            if uri.ends_with("?limit=1") {
                asked.text(list(&self.objects[..1], 5, None));
                continue;
            }
            let (from, limit) = (value("continue").unwrap_or(0), value("limit").expect("a limit"));
            let end = (from + limit).min(self.objects.len());
            let more = (end < self.objects.len()).then(|| end.to_string());
            let text = list(&self.objects[from..end], 5, more.as_deref());
            let compressed = self.compresses && asked.headers["accept-encoding"] == "gzip" && text.len() > 128 << 10;
            let came = self.send(asked, text, compressed).await;
            pages.push(Page { from, limit, compressed, came });
        }
    }

    /// Sends a list as fast as the line allows, and cuts it when its time is over.
    async fn send(&self, asked: Asked, text: String, compressed: bool) -> bool {
        let began = asked.at;
        let (feed, bytes) = match compressed {
            false => (asked.stream(), text.into_bytes()),
            true => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text.as_bytes()).expect("memory");
                (
                    asked.stream_of(http::Response::builder().header("Content-Encoding", "gzip")),
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

/// A pod with 1,000 bytes that no compression makes fewer, or with as many that are all the same.
fn large_pod(number: usize, random: bool) -> String {
    let name = format!("pod-{number:05}");
    let byte = |_| if random { char::from(rand::random_range(b'a'..=b'z')) } else { 'x' };
    let padding: String = (0..1000).map(byte).collect();
    pod(&name, 1).replacen(r#""uid""#, &format!(r#""labels":{{"padding":"{padding}"}},"uid""#), 1)
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_longer_than_the_member_allows_comes_in_smaller_pages() {
    let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
    let (cacher, mut member, mut updates) = start_with(tuning);
    // A page of 1,000 takes five minutes.
    let objects = (0..2000).map(|number| large_pod(number, true)).collect();
    let slow = SlowMember { objects, bytes_per_second: 4_000, compresses: true, request_timeout: REQUEST_TIMEOUT };
    let began = Instant::now();
    let (pages, _watch) = slow.serve(&mut member).await;
    assert_eq!(updates.synced().await.len(), 2000);
    assert_eq!(cacher.state(), CacherState::Synced);
    let cut = pages.iter().filter(|page| !page.came).count();
    assert!(cut <= 2, "{cut} were cut: {pages:?}");
    // 2 MB over 4 kB a second are 500 s.
    assert!(began.elapsed() < Duration::from_secs(800), "{:?}", began.elapsed());
    let mut from = 0;
    for page in pages.iter().filter(|page| page.came) {
        assert_eq!(page.from, from, "what came is not asked for again: {pages:?}");
        from += page.limit;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_broke_off_is_asked_for_compressed() {
    let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let objects = (0..2000).map(|number| large_pod(number, false)).collect();
    let slow = SlowMember { objects, bytes_per_second: 10_000, compresses: true, request_timeout: REQUEST_TIMEOUT };
    let (pages, _watch) = slow.serve(&mut member).await;
    let synced = updates.synced().await;
    assert_eq!(synced.len(), 2000);
    assert!(synced.iter().all(|object| String::from_utf8_lossy(object.json()).contains(&"x".repeat(1000))));
    assert!(!pages[0].compressed && !pages[0].came, "{pages:?}");
    assert!(pages[1..].iter().all(|page| page.compressed && page.came), "{pages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_member_nearby_is_asked_for_whole_pages_as_they_are() {
    let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let objects = (0..2000).map(|number| large_pod(number, false)).collect();
    let near = SlowMember { objects, bytes_per_second: 1_000_000, compresses: true, request_timeout: REQUEST_TIMEOUT };
    let (pages, _watch) = near.serve(&mut member).await;
    updates.synced().await;
    let page = |from| Page { from, limit: 1000, compressed: false, came: true };
    assert_eq!(pages, [page(0), page(1000)]);
}

#[tokio::test(start_paused = true)]
async fn pages_before_one_that_broke_off_are_kept() {
    let (_cacher, mut member, mut updates) = start();
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422}"#);
    member.expect(&["limit=10000"]).await.text(list(&[pod("a", 1), pod("b", 2)], 5, Some("t1")));
    let feed = member.expect(&["limit=10000", "continue=t1"]).await.stream();
    feed.send(list(&[pod("c", 3), pod("d", 4)], 5, None).split_at(200).0);
    feed.cut();
    expect_latest(&mut member).await.text(list(&[pod("a", 1)], 5, None));
    let again = member.expect(&["limit=10000", "continue=t1"]).await;
    assert_eq!(again.headers["accept-encoding"], "identity", "it broke off soon");
    again.status(504, "");
    expect_latest(&mut member).await.text(list(&[pod("a", 1)], 5, None));
    member.expect(&["limit=5000", "continue=t1"]).await.text(list(&[pod("c", 3), pod("d", 4)], 5, None));
    assert_eq!(contents(&updates.synced().await), names(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]));
    member.expect(&["watch=1", "resourceVersion=5"]).await;
}

/// The next request must be the question for the latest version: a list of one object.
async fn expect_latest(member: &mut Member) -> Asked {
    let asked = member.asked().await;
    assert!(asked.uri.ends_with("?limit=1"), "{}", asked.uri);
    asked
}

/// The member is listed in pages: the first has come, as of version 1000, and the next is asked for.
async fn second_page(member: &mut Member) -> Asked {
    member.expect(&["sendInitialEvents"]).await.status(422, r#"{"code":422}"#);
    member.expect(&["limit=10000"]).await.text(list(&[pod("a", 900)], 1000, Some("t1")));
    member.expect(&["limit=10000", "continue=t1"]).await
}

/// The member is listed anew, as of version 500, and that is what is held.
async fn listed_anew(member: &mut Member, mut updates: Updates) {
    let first = member.expect(&["limit="]).await;
    assert!(!first.uri.contains("continue"), "{}", first.uri);
    first.text(list(&[pod("b", 400)], 500, None));
    assert_eq!(contents(&updates.synced().await), names(&[("b", 400)]));
    member.expect(&["watch=1", "resourceVersion=500"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_version_that_the_member_has_not_reached_begins_the_list_anew() {
    let (_cacher, mut member, updates) = start();
    second_page(&mut member).await.status(504, TOO_LARGE);
    expect_latest(&mut member).await.text(list(&[pod("b", 400)], 500, None));
    listed_anew(&mut member, updates).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_a_lagging_apiserver_refuses_is_asked_for_again() {
    let (cacher, mut member, mut updates) = start();
    let page = second_page(&mut member).await;
    let refused_at = Instant::now();
    page.status(504, TOO_LARGE);
    let question = expect_latest(&mut member).await;
    assert!(question.at - refused_at >= Duration::from_secs(1), "it said when to come again");
    assert_ne!(cacher.state().reason(), Some(&StaleReason::Reset), "nothing says so");
    question.text(list(&[pod("a", 900)], 1000, None));
    // It was not refused for its length.
    member.expect(&["limit=10000", "continue=t1"]).await.text(list(&[pod("b", 950)], 1000, None));
    assert_eq!(contents(&updates.synced().await), names(&[("a", 900), ("b", 950)]));
    member.expect(&["watch=1", "resourceVersion=1000"]).await;
}

#[tokio::test(start_paused = true)]
async fn versions_are_kept_where_a_lagging_apiserver_refuses_a_page() {
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
async fn a_page_that_failed_is_not_asked_for_again_of_a_member_that_went_back() {
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
        listed_anew(&mut member, updates).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cuts_lists_before_long_is_asked_for_smaller_pages() {
    for seconds in [3, 8] {
        let tuning = ReflectorTuning { page_size: 1000, ..ReflectorTuning::default() };
        let (_cacher, mut member, mut updates) = start_with(tuning);
        let objects = (0..2000).map(|number| large_pod(number, true)).collect();
        let request_timeout = Duration::from_secs(seconds);
        let slow = SlowMember { objects, bytes_per_second: 20_000, compresses: true, request_timeout };
        let (pages, _watch) = slow.serve(&mut member).await;
        assert_eq!(updates.synced().await.len(), 2000);
        let cut = pages.iter().filter(|page| !page.came).count();
        assert!(cut <= 3, "{cut} were cut: {pages:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_breaks_off_twice_is_too_large_however_soon_it_does() {
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
async fn a_page_that_falls_silent_has_taken_too_long() {
    let (_cacher, mut member, _updates) = start();
    let feed = second_page(&mut member).await.stream();
    let text = list(&(0..100).map(|number| pod(&format!("pod-{number}"), 3)).collect::<Vec<_>>(), 1000, None);
    feed.send(&text[..text.len() - 2]);
    expect_latest(&mut member).await.text(list(&[pod("a", 900)], 1000, None));
    member.expect(&["limit=50&", "continue=t1"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_cut_by_chance_is_forgotten_over_those_that_come_through() {
    let tuning = ReflectorTuning { page_time: Duration::from_secs(4), ..ReflectorTuning::default() };
    let (_cacher, mut member, mut updates) = start_with(tuning);
    let text = list(&(0..100).map(|number| pod(&format!("pod-{number}"), 3)).collect::<Vec<_>>(), 5, None);
    let cut_after = async |asked: Asked, milliseconds| {
        let feed = asked.stream();
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
    assert_eq!(again.headers["accept-encoding"], "identity", "3 s are not long again");
}
