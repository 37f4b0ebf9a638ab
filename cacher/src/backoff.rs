//! Computes how long a cacher waits after failures before its next request. Pure: the caller passes the random value.

use std::time::Duration;

/// Returns the delay after the `failures`-th failure in a row. The base is `min`, doubled with each further failure up
/// to `max`. The result is a random part of the base, at least half of it. So the cachers of a recovered member do not
/// send their requests all at the same time. The result is never shorter than `at_least`, the member's Retry-After.
/// `chance` is the random value, from 0.0 to 1.0.
pub(crate) fn delay(min: Duration, max: Duration, failures: u32, at_least: Option<Duration>, chance: f64) -> Duration {
    let doubled = min.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX)).min(max);
    doubled.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0)).max(at_least.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_delay_grows_to_its_maximum_and_respects_retry_after() {
        let (min, max) = (Duration::from_millis(200), Duration::from_secs(30));
        let full = |failures| delay(min, max, failures, None, 1.0);
        assert_eq!(full(1), min);
        assert_eq!(full(2), Duration::from_millis(400));
        assert_eq!(full(8), Duration::from_millis(25_600));
        for failures in [9, 31, 32, 33, 34, u32::MAX] {
            assert_eq!(full(failures), max, "{failures}");
        }
        assert_eq!(delay(min, max, 1, None, 0.0), Duration::from_millis(100));
        assert_eq!(delay(min, max, 1, Some(Duration::from_secs(7)), 0.5), Duration::from_secs(7));
    }
}
