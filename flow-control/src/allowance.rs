//! What one key has used of its limit: slots, or tokens.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::Instant;

use crate::schema::{MaxRequestsInflight, TokenBucket};

/// What is used of a limit. The two kinds differ in what brings back what is taken: that it is given back, or time.
pub(crate) trait Allowance: Default + Debug + Send + 'static {
    /// How much there is.
    type Limit: Copy + Debug + PartialEq + Send;

    /// Whether what a request takes is its own until it ends.
    const HELD: bool;

    /// How much a request of this width takes: all there is, if it is wider. `None` where there is nothing.
    fn seats(limit: Self::Limit, width: u32) -> Option<u32>;

    /// Takes so much, if it is there.
    fn try_spend(&mut self, limit: Self::Limit, seats: u32, now: Instant) -> bool;

    /// Gives back so much of what was taken at that time, without what time has brought back of it meanwhile.
    fn give_back(&mut self, limit: Self::Limit, seats: u32, taken: Instant, now: Instant);

    /// When time alone will have brought so much; `None` where it never does.
    fn due(&self, limit: Self::Limit, seats: u32, now: Instant) -> Option<Instant>;

    /// Whether nothing is used, so that forgetting it changes nothing.
    fn is_at_rest(&self, limit: Self::Limit, now: Instant) -> bool;

    /// The limit was the one until now, and is the other from now on: what was used stays used, but where time alone
    /// brings it back no more than the other limit allows.
    fn change(&mut self, from: Self::Limit, to: Self::Limit, now: Instant);
}

/// Slots in use.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    taken: u32,
}

impl Allowance for Slots {
    type Limit = MaxRequestsInflight;

    const HELD: bool = true;

    fn seats(limit: Self::Limit, width: u32) -> Option<u32> {
        (limit.max > 0).then(|| width.clamp(1, limit.max))
    }

    fn try_spend(&mut self, limit: Self::Limit, seats: u32, _: Instant) -> bool {
        let taken = self.taken.saturating_add(seats);
        let fits = taken <= limit.max;
        if fits {
            self.taken = taken;
        }
        fits
    }

    fn give_back(&mut self, _: Self::Limit, seats: u32, _: Instant, _: Instant) {
        self.taken = self.taken.saturating_sub(seats);
    }

    fn due(&self, _: Self::Limit, _: u32, _: Instant) -> Option<Instant> {
        None
    }

    fn is_at_rest(&self, _: Self::Limit, _: Instant) -> bool {
        self.taken == 0
    }

    /// Whoever has a slot gives it back.
    fn change(&mut self, _: Self::Limit, _: Self::Limit, _: Instant) {}
}

/// How many parts a token has, so that a nanosecond brings a whole number of them at any rate.
const TOKEN: u64 = 1_000_000_000;

/// Tokens spent: the leaky bucket as a meter (ITU-T I.371; decides as the generic cell rate algorithm does, which
/// `governor` implements: `tests/flow_control/against_governor.rs`). It keeps what is spent and not when the next is
/// due, which would mean something else under another rate.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    /// In parts, at `at`. With a burst of 2^32 tokens they are less than 2^62.
    spent: u64,
    /// `None` before the first.
    at: Option<Instant>,
}

impl Tokens {
    /// What is still spent at this time.
    fn spent(&self, limit: TokenBucket, now: Instant) -> u64 {
        self.spent.saturating_sub(self.at.map_or(0, |at| brought(limit, at, now)))
    }
}

/// What time has brought since then, in parts.
fn brought(limit: TokenBucket, since: Instant, now: Instant) -> u64 {
    let elapsed = now.saturating_duration_since(since).as_nanos();
    u64::try_from(elapsed.saturating_mul(u128::from(limit.qps.get()))).unwrap_or(u64::MAX)
}

fn parts(tokens: u32) -> u64 {
    u64::from(tokens) * TOKEN
}

impl Allowance for Tokens {
    type Limit = TokenBucket;

    const HELD: bool = false;

    fn seats(limit: Self::Limit, width: u32) -> Option<u32> {
        Some(width.clamp(1, limit.burst.get()))
    }

    fn try_spend(&mut self, limit: Self::Limit, seats: u32, now: Instant) -> bool {
        let spent = self.spent(limit, now) + parts(seats);
        let fits = spent <= parts(limit.burst.get());
        if fits {
            (self.spent, self.at) = (spent, self.at.max(Some(now)));
        }
        fits
    }

    /// What time brings is taken to be this one's first: others may have spent it, and it is not there twice.
    fn give_back(&mut self, limit: Self::Limit, seats: u32, taken: Instant, now: Instant) {
        let missing = parts(seats).saturating_sub(brought(limit, taken, now));
        self.spent = self.spent.saturating_sub(missing);
    }

    fn due(&self, limit: Self::Limit, seats: u32, now: Instant) -> Option<Instant> {
        let missing = (self.spent(limit, now) + parts(seats)).saturating_sub(parts(limit.burst.get()));
        let nanoseconds = missing.div_ceil(u64::from(limit.qps.get()));
        now.checked_add(Duration::from_nanos(nanoseconds))
    }

    fn is_at_rest(&self, limit: Self::Limit, now: Instant) -> bool {
        self.spent(limit, now) == 0
    }

    /// What a larger bucket gave would take a small one minutes to bring back: Go's buckets, too, are empty at most
    /// (`SetBurst` and `SetLimit` of `golang.org/x/time/rate`).
    fn change(&mut self, from: Self::Limit, to: Self::Limit, now: Instant) {
        self.spent = self.spent(from, now).min(parts(to.burst.get()));
        self.at = self.at.max(Some(now));
    }
}
