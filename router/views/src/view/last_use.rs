//! When somebody last read what is held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When something was last used, to the millisecond. Every read notes it, so that takes no lock, and writes at most
/// once in a millisecond: readers on other cores keep what they have of the same cache line.
pub(super) struct LastUse {
    start: Instant,
    /// In milliseconds since the start.
    used: AtomicU64,
}

impl LastUse {
    /// Used now for the first time.
    pub(super) fn now() -> Self {
        Self { start: Instant::now(), used: AtomicU64::new(0) }
    }

    /// Notes that it is used now.
    pub(super) fn note_use(&self) {
        let now = self.milliseconds();
        if self.used.load(Ordering::Relaxed) < now {
            // Of two at once the later one counts.
            self.used.fetch_max(now, Ordering::Relaxed);
        }
    }

    /// How long ago that was.
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.milliseconds().saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    /// How long ago the start was, in milliseconds.
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_as_long_ago_as_time_has_passed_since_the_last_note() {
        let used = LastUse::now();
        assert_eq!(used.elapsed(), Duration::ZERO);
        for (after, noted) in [(5, true), (60_000, false), (1, true), (0, true)] {
            let before = used.elapsed();
            advance(Duration::from_millis(after)).await;
            assert_eq!(used.elapsed(), before + Duration::from_millis(after));
            if noted {
                used.note_use();
                assert_eq!(used.elapsed(), Duration::ZERO);
            }
        }
    }
}
