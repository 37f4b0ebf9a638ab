//! Tests in which clients send twice as many requests as the limit admits.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinSet, LocalSet};
use tributary_flow_control::SchemaKind;

use super::{from, one, slots, tenants, tokens, waiting};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Simulates users for some seconds. `offered` has for each user the number of requests per millisecond, and the
/// duration of a request. Returns for each user the number of admitted requests per second, in the second half of the
/// time.
async fn let_in(
    kind: SchemaKind,
    offered: &[(&'static str, u32, Duration)],
    seconds: u32,
) -> BTreeMap<&'static str, f64> {
    let control = one(kind);
    let schema = tenants(&control);
    let counts: Rc<RefCell<BTreeMap<&'static str, u32>>> = Rc::default();
    let half = seconds * 1000 / 2;
    LocalSet::new()
        .run_until(async {
            let mut requests = JoinSet::new();
            for clock in 0..2 * half {
                for (name, count, lasts) in offered.iter().copied() {
                    for _ in 0..count {
                        let (schema, counts) = (schema.clone(), Rc::clone(&counts));
                        requests.spawn_local(async move {
                            let Ok(permit) = schema.admit(&from(name)).await else { return };
                            if clock >= half {
                                *counts.borrow_mut().entry(name).or_default() += 1;
                            }
                            if !lasts.is_zero() {
                                tokio::time::sleep(lasts).await;
                            }
                            drop(permit);
                        });
                    }
                }
                tokio::time::sleep(MILLISECOND).await;
                while requests.try_join_next().is_some() {}
            }
            requests.abort_all();
        })
        .await;
    let counts = counts.borrow();
    counts.iter().map(|(name, count)| (*name, f64::from(*count) * 1000.0 / f64::from(half))).collect()
}

fn within(part: f64, wanted: f64, tolerance: f64) -> bool {
    (part - wanted).abs() <= wanted * tolerance
}

#[tokio::test(start_paused = true)]
async fn token_bucket_under_twice_its_rate_admits_requests_at_its_rate() {
    let ten_thousand = tokens(10_000, 1_000, &[], None);
    let alone = let_in(ten_thousand, &[("ann", 20, Duration::ZERO)], 2).await;
    assert!(within(alone["ann"], 10_000.0, 0.05), "{alone:?}");
}

/// Four users send 20,000 requests per second, and the limit is 10,000. Three users exceed their fair share. They get
/// equal parts of the tokens that the fourth user leaves.
#[tokio::test(start_paused = true)]
async fn users_of_one_token_bucket_get_equal_shares_within_10_percent() {
    let ten_thousand = tokens(10_000, 1_000, &[], Some(waiting(Duration::from_millis(200))));
    let offered = [
        ("ann", 11, Duration::ZERO),
        ("bob", 4, Duration::ZERO),
        ("eve", 4, Duration::ZERO),
        ("kim", 1, Duration::ZERO),
    ];
    let counts = let_in(ten_thousand, &offered, 2).await;
    assert!(within(counts.values().sum(), 10_000.0, 0.05), "{counts:?}");
    for name in ["ann", "bob", "eve"] {
        assert!(within(counts[name], 3_000.0, 0.10), "{counts:?}");
    }
    assert!(within(counts["kim"], 1_000.0, 0.05), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn users_with_long_and_short_requests_use_equal_slot_time_within_10_percent() {
    // Ten slots can be occupied for 10 s in each second. Half of this time suffices for 25 requests of 200 ms, or for
    // 500 requests of 10 ms.
    let ten = slots(10, &[], Some(waiting(Duration::from_millis(400))));
    let offered = [("lists", 1, 200 * MILLISECOND), ("gets", 1, 10 * MILLISECOND)];
    let counts = let_in(ten, &offered, 20).await;
    assert!(within(counts["gets"], 500.0, 0.10), "{counts:?}");
    assert!(within(counts["lists"], 25.0, 0.10), "{counts:?}");
}
