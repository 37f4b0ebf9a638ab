//! Our token bucket decides as the crate `governor` does. It is not that crate's because its level must survive a
//! change of its rate, and `governor` keeps when the next token is due, which means another number of tokens under
//! another rate.

use std::num::NonZeroU32;
use std::time::Duration;

use futures::FutureExt;
use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;

use super::{from, one, tenants, tokens};

/// Rates of which a token takes a whole number of nanoseconds: `governor` rounds the others.
const RATES: [u32; 8] = [1, 2, 5, 10, 64, 1_000, 10_000, 1_000_000];

proptest! {
    #[test]
    fn the_same_requests_are_let_in(
        rate in 0..RATES.len(),
        burst in 1_u32..20,
        gaps in proptest::collection::vec(0.0_f64..3.0, 1..200),
    ) {
        let qps = RATES[rate];
        let clock = FakeRelativeClock::default();
        let [of_second, of_burst] = [qps, burst].map(|number| NonZeroU32::new(number).unwrap());
        let quota = Quota::per_second(of_second).allow_burst(of_burst);
        let theirs = RateLimiter::direct_with_clock(quota, clock.clone());
        let control = one(tokens(qps, burst, &[], None));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            for gap in gaps {
                // Some tokens' time, to the nanosecond.
                let gap = Duration::from_secs_f64(gap / f64::from(qps));
                clock.advance(gap);
                tokio::time::advance(gap).await;
                let ours = tenants(&control).admit(&from("ann")).now_or_never();
                let is_let_in = ours.is_some_and(|admitted| admitted.is_ok());
                prop_assert_eq!(is_let_in, theirs.check().is_ok());
            }
            Ok(())
        })?;
    }
}
