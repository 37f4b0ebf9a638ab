//! How often lists of events are sent: a token bucket, as kube-apiserver's (client-go `NewTokenBucketRateLimiter`).

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// So many in a second on average, and some at once where few were sent before.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_second: f64,
    burst: f64,
    /// How many may be sent at once.
    left: f64,
    /// When that was counted.
    at: Instant,
}

impl Throttle {
    /// With all that may be sent at once.
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second, burst, left: burst, at: Instant::now() }
    }

    /// Waits until one more may be sent. Cancelling is safe.
    pub(crate) async fn wait_for_token(&mut self) {
        self.refill();
        while self.left < 1.0 {
            let wait = Duration::try_from_secs_f64((1.0 - self.left) / self.per_second).unwrap_or(Duration::MAX);
            // A clock of milliseconds wakes a moment early.
            sleep(wait.saturating_add(Duration::from_millis(1))).await;
            self.refill();
        }
        self.left -= 1.0;
    }

    fn refill(&mut self) {
        let now = Instant::now();
        self.left = (self.left + now.duration_since(self.at).as_secs_f64() * self.per_second).min(self.burst);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn some_are_sent_at_once_and_the_others_in_time() {
        let mut throttle = Throttle::new(10.0, 3);
        let begin = Instant::now();
        for _ in 0..3 {
            throttle.wait_for_token().await;
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            throttle.wait_for_token().await;
        }
        let elapsed = begin.elapsed().as_secs_f64();
        assert!((1.9..2.2).contains(&elapsed), "{elapsed}");
        // What was not sent for long is no more than that.
        sleep(Duration::from_secs(60)).await;
        let begin = Instant::now();
        for _ in 0..4 {
            throttle.wait_for_token().await;
        }
        assert!(begin.elapsed() >= Duration::from_millis(99));
    }
}
