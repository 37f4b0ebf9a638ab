//! The part of a limit that one key has used: slots, or tokens.

use std::fmt::Debug;
use std::num::NonZeroU32;

use tokio::time::Instant;
use tributary_limiters::{SpentTokens, TokenRate};

use crate::schema::{MaxRequestsInflight, TokenBucket};

/// The used part of a limit. Requests give slots back; time brings tokens back.
pub(crate) trait Allowance: Default + Debug + Send + 'static {
    /// Size of the limit.
    type Limit: Copy + Debug + PartialEq + Send;

    /// Whether a request gives its seats back when it ends.
    const HELD: bool;

    /// Seats of a request of this width: the whole limit for a wider request. `None` where the limit is 0.
    fn seats(limit: Self::Limit, width: u32) -> Option<u32>;

    /// Takes seats if enough are free.
    fn try_spend(&mut self, limit: Self::Limit, seats: u32, now: Instant) -> bool;

    /// Gives back seats taken at the time `taken`, without the tokens that time has brought back since.
    fn give_back(&mut self, limit: Self::Limit, seats: u32, taken: Instant, now: Instant);

    /// Time at which enough tokens are back; `None` for slots.
    fn due(&self, limit: Self::Limit, seats: u32, now: Instant) -> Option<Instant>;

    /// Whether the limit is unused, so that the account may be forgotten.
    fn is_at_rest(&self, now: Instant) -> bool;

    /// Adapts to a new limit. Taken slots stay taken; a token bucket starts full.
    fn change_limit(&mut self);
}

/// Number of slots in use.
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

    fn is_at_rest(&self, _: Instant) -> bool {
        self.taken == 0
    }

    fn change_limit(&mut self) {}
}

impl From<TokenBucket> for TokenRate {
    fn from(limit: TokenBucket) -> Self {
        Self::per_second(limit.qps, limit.burst)
    }
}

fn tokens(seats: u32) -> NonZeroU32 {
    NonZeroU32::new(seats).unwrap_or(NonZeroU32::MIN)
}

impl Allowance for SpentTokens {
    type Limit = TokenBucket;

    const HELD: bool = false;

    fn seats(limit: Self::Limit, width: u32) -> Option<u32> {
        Some(width.clamp(1, limit.burst.get()))
    }

    fn try_spend(&mut self, limit: Self::Limit, seats: u32, now: Instant) -> bool {
        self.try_spend(limit.into(), tokens(seats), now).is_ok()
    }

    fn give_back(&mut self, limit: Self::Limit, seats: u32, taken: Instant, now: Instant) {
        self.give_back(limit.into(), tokens(seats), now.saturating_duration_since(taken));
    }

    fn due(&self, limit: Self::Limit, seats: u32, now: Instant) -> Option<Instant> {
        now.checked_add(self.wait_for(limit.into(), tokens(seats), now))
    }

    fn is_at_rest(&self, now: Instant) -> bool {
        self.is_full(now)
    }

    fn change_limit(&mut self) {
        *self = Self::default();
    }
}
