//! Time of the last read of a view.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Time of the last use, in milliseconds. Every read updates the time without a lock. The time changes at most once in
/// a millisecond, so that other cores rarely have to reload the value from memory.
pub(super) struct LastUse {
    start: Instant,
    /// Milliseconds since `start`.
    used: AtomicU64,
}

impl LastUse {
    pub(super) fn now() -> Self {
        Self { start: Instant::now(), used: AtomicU64::new(0) }
    }

    pub(super) fn record_use(&self) {
        let now = self.milliseconds();
        if self.used.load(Ordering::Relaxed) < now {
            // Of two concurrent uses, the later time is stored.
            self.used.fetch_max(now, Ordering::Relaxed);
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.milliseconds().saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_of_a_view_counts_from_its_last_use() {
        let used = LastUse::now();
        assert_eq!(used.elapsed(), Duration::ZERO);
        for (after, is_used) in [(5, true), (60_000, false), (1, true), (0, true)] {
            let before = used.elapsed();
            advance(Duration::from_millis(after)).await;
            assert_eq!(used.elapsed(), before + Duration::from_millis(after));
            if is_used {
                used.record_use();
                assert_eq!(used.elapsed(), Duration::ZERO);
            }
        }
    }
}
