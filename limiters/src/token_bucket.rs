//! A token bucket: the generic cell rate algorithm of the crate `governor`. The caller passes the current time as an
//! argument.
//!
//! The state of a bucket is the time at which the bucket will be full. A full bucket equals a new one, so callers can
//! keep buckets in maps and drop full buckets. The state depends on the rate: after a change of the rate, a caller must
//! begin with a new bucket.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use tokio::time::{Instant, sleep};

/// Maximum time in which an empty bucket fills: 146 years, a quarter of the range of `governor`'s nanoseconds, so that
/// sums do not overflow.
const FILL_TIME_MAX: Duration = Duration::from_nanos(u64::MAX / 4);

/// The refill rate of a token bucket, and the size of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRate(Quota);

impl TokenRate {
    /// Creates a rate that refills one token per interval (at least 1 ns), up to `burst` tokens.
    pub fn with_interval(interval: Duration, burst: NonZeroU32) -> Self {
        let interval = interval.clamp(Duration::from_nanos(1), FILL_TIME_MAX / burst.get());
        Self(Quota::with_period(interval).unwrap_or(Quota::per_second(burst)).allow_burst(burst))
    }

    /// Creates a rate that refills `tokens` per second, up to `burst` tokens. The interval between two tokens is
    /// rounded to nanoseconds. Up to a million tokens per second, the rate is exact to a thousandth.
    pub fn per_second(tokens: NonZeroU32, burst: NonZeroU32) -> Self {
        Self::with_interval(Quota::per_second(tokens).replenish_interval(), burst)
    }

    fn fill_time(self, tokens: NonZeroU32) -> Duration {
        self.0.replenish_interval() * tokens.get()
    }
}

/// State of a token bucket. A new bucket is full.
#[derive(Clone, Debug, Default)]
pub struct SpentTokens {
    /// The time at which the bucket will be full. `None` for a new bucket, which is full already.
    full_at: Option<Instant>,
}

impl SpentTokens {
    /// Spends `tokens` if the bucket has enough. If `tokens` exceeds the size of the bucket, a full bucket is enough,
    /// and becomes empty.
    ///
    /// # Errors
    /// The time until the bucket has enough tokens.
    pub fn try_spend(&mut self, rate: TokenRate, tokens: NonZeroU32, now: Instant) -> Result<(), Duration> {
        let tokens = tokens.min(rate.0.burst_size());
        let limiter = RateLimiter::<_, _, _, NoOpMiddleware<Duration>>::new(rate.0, self.time_to_full(now), Now);
        match limiter.check_n(tokens) {
            Ok(Ok(())) => {
                let TimeToFull(left) = limiter.into_state_store();
                self.full_at = now.checked_add(left.get().into());
                Ok(())
            }
            Ok(Err(until)) => Err(until.wait_time_from(Duration::ZERO)),
            // This case cannot occur, because `tokens` is at most the size of the bucket.
            Err(_) => Err(rate.fill_time(tokens)),
        }
    }

    /// Waits for a token, then spends the token. Cancellation is safe: a dropped future has spent no token.
    pub async fn spend_one(&mut self, rate: TokenRate) {
        while let Err(wait) = self.try_spend(rate, NonZeroU32::MIN, Instant::now()) {
            sleep(wait).await;
        }
    }

    /// Returns the time until the bucket has enough tokens, without spending them. 0 if the bucket has enough now.
    pub fn wait_for(&self, rate: TokenRate, tokens: NonZeroU32, now: Instant) -> Duration {
        self.clone().try_spend(rate, tokens, now).err().unwrap_or_default()
    }

    /// Returns unused `tokens` to the bucket. `since_spent` is the time since they were spent: the bucket has refilled
    /// some tokens in this time, and does not get them a second time.
    pub fn give_back(&mut self, rate: TokenRate, tokens: NonZeroU32, since_spent: Duration) {
        let missing = rate.fill_time(tokens).saturating_sub(since_spent);
        self.full_at = self.full_at.and_then(|full_at| full_at.checked_sub(missing));
    }

    /// Returns whether the bucket is full, so that the caller may drop its state.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|full_at| full_at <= now)
    }

    fn time_to_full(&self, now: Instant) -> TimeToFull {
        let left = self.full_at.map_or(Duration::ZERO, |full_at| full_at.saturating_duration_since(now));
        TimeToFull(Cell::new(left.into()))
    }
}

/// Adapts the state of a bucket to the state that `governor` expects: the time from [`Now`] until the bucket is full.
struct TimeToFull(Cell<Nanos>);

impl StateStore for TimeToFull {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (decided, left) = decide(Some(self.0.get()))?;
        self.0.set(left);
        Ok(decided)
    }
}

/// The clock that `governor` reads. All times are relative to the time of the decision, so this clock always returns 0.
struct Now;

impl Clock for Now {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NonZeroU32 = NonZeroU32::MIN;

    fn number(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).unwrap()
    }

    #[test]
    fn token_bucket_allows_its_burst_and_then_its_rate() {
        let (rate, start) = (TokenRate::per_second(number(10), number(3)), Instant::now());
        let mut bucket = SpentTokens::default();
        assert!((0..3).all(|_| bucket.try_spend(rate, ONE, start).is_ok()));
        let interval = Duration::from_millis(100);
        assert_eq!(bucket.try_spend(rate, ONE, start), Err(interval));
        assert_eq!(bucket.wait_for(rate, number(2), start), 2 * interval);
        assert_eq!(bucket.wait_for(rate, number(9), start), 3 * interval, "a full bucket is enough");
        assert_eq!(bucket.try_spend(rate, ONE, start + interval / 2), Err(interval / 2));
        assert_eq!(bucket.try_spend(rate, ONE, start + interval), Ok(()));
        assert!(!bucket.is_full(start + 3 * interval) && bucket.is_full(start + 4 * interval));
        let late = start + Duration::from_secs(60);
        assert_eq!((0..10).filter(|_| bucket.try_spend(rate, ONE, late).is_ok()).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn spending_a_token_from_an_empty_bucket_waits_for_the_next_token() {
        let (rate, mut bucket, start) =
            (TokenRate::per_second(number(10), number(3)), SpentTokens::default(), Instant::now());
        for _ in 0..3 {
            bucket.spend_one(rate).await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            bucket.spend_one(rate).await;
        }
        let elapsed = start.elapsed().as_secs_f64();
        assert!((1.9..2.2).contains(&elapsed), "{elapsed}");
    }

    #[test]
    fn token_returned_after_its_refill_adds_no_token_to_the_bucket() {
        let (rate, start) = (TokenRate::per_second(ONE, ONE), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut bucket = SpentTokens::default();
        assert!(bucket.try_spend(rate, ONE, start).is_ok() && bucket.try_spend(rate, ONE, at(1_000)).is_ok());
        // After 1 s, the token of the first request has refilled, and the second request has spent it. So a return of
        // the first token adds nothing.
        bucket.give_back(rate, ONE, Duration::from_millis(1_100));
        assert_eq!(bucket.try_spend(rate, ONE, at(1_100)), Err(Duration::from_millis(900)));
        bucket.give_back(rate, ONE, Duration::from_millis(100));
        assert_eq!(bucket.try_spend(rate, ONE, at(1_100)), Ok(()));
        bucket.give_back(rate, ONE, Duration::ZERO);
        bucket.give_back(rate, ONE, Duration::ZERO);
        assert!(bucket.try_spend(rate, ONE, at(1_100)).is_ok() && bucket.try_spend(rate, ONE, at(1_100)).is_err());
    }

    #[test]
    fn extreme_token_rates_are_clamped() {
        let most = number(u32::MAX);
        for (rate, tokens) in [
            (TokenRate::per_second(most, most), most),
            (TokenRate::per_second(ONE, most), most),
            (TokenRate::with_interval(Duration::MAX, most), most),
            (TokenRate::with_interval(Duration::ZERO, ONE), ONE),
        ] {
            let (mut bucket, now) = (SpentTokens::default(), Instant::now());
            assert!(bucket.try_spend(rate, tokens, now).is_ok() && bucket.try_spend(rate, tokens, now).is_err());
        }
    }
}
