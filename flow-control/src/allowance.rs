//! The used part of a key's limit: slots of requests in flight, or spent tokens.

use std::fmt::Debug;
use std::num::NonZeroU32;

use tokio::time::Instant;
use tributary_limiters::{SpentTokens, TokenRate};

use crate::schema::{MaxRequestsInflight, TokenBucket};

/// The used part of a limit, counted in seats: slots or tokens. Slots become free when requests end; tokens refill with
/// time.
pub(crate) trait Allowance: Default + Debug + Send + 'static {
    type Limit: Copy + Debug + PartialEq + Send;

    /// Whether a request occupies its seats until the request ends. True for slots, false for tokens.
    const IS_FREED_AT_END: bool;

    /// Returns the number of seats that a request of this width takes. A request wider than the limit takes the whole
    /// limit. `None` if the limit is 0.
    fn seats(limit: Self::Limit, width: u32) -> Option<u32>;

    fn try_spend(&mut self, limit: Self::Limit, seats: u32, now: Instant) -> bool;

    /// Returns the seats that a request took at the time `admitted_at` to the key. Tokens that have refilled since
    /// `admitted_at` are not added again.
    fn give_back(&mut self, limit: Self::Limit, seats: u32, admitted_at: Instant, now: Instant);

    /// Returns the time at which the bucket has enough tokens for `seats`. Returns `None` for slots, because they
    /// become free when requests end, and not at a known time.
    fn due(&self, limit: Self::Limit, seats: u32, now: Instant) -> Option<Instant>;

    /// Returns whether no slot or token of the limit is in use, so that the account can be removed.
    fn is_unused(&self, now: Instant) -> bool;

    /// Adapts the used part to a new limit. Slots in use stay in use; a token bucket becomes full.
    fn change_limit(&mut self);
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    in_use: u32,
}

impl Allowance for Slots {
    type Limit = MaxRequestsInflight;

    const IS_FREED_AT_END: bool = true;

    fn seats(limit: Self::Limit, width: u32) -> Option<u32> {
        (limit.max > 0).then(|| width.clamp(1, limit.max))
    }

    fn try_spend(&mut self, limit: Self::Limit, seats: u32, _: Instant) -> bool {
        let in_use = self.in_use.saturating_add(seats);
        let fits = in_use <= limit.max;
        if fits {
            self.in_use = in_use;
        }
        fits
    }

    fn give_back(&mut self, _: Self::Limit, seats: u32, _: Instant, _: Instant) {
        self.in_use = self.in_use.saturating_sub(seats);
    }

    fn due(&self, _: Self::Limit, _: u32, _: Instant) -> Option<Instant> {
        None
    }

    fn is_unused(&self, _: Instant) -> bool {
        self.in_use == 0
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

    const IS_FREED_AT_END: bool = false;

    fn seats(limit: Self::Limit, width: u32) -> Option<u32> {
        Some(width.clamp(1, limit.burst.get()))
    }

    fn try_spend(&mut self, limit: Self::Limit, seats: u32, now: Instant) -> bool {
        self.try_spend(limit.into(), tokens(seats), now).is_ok()
    }

    fn give_back(&mut self, limit: Self::Limit, seats: u32, admitted_at: Instant, now: Instant) {
        self.give_back(limit.into(), tokens(seats), now.saturating_duration_since(admitted_at));
    }

    fn due(&self, limit: Self::Limit, seats: u32, now: Instant) -> Option<Instant> {
        now.checked_add(self.wait_for(limit.into(), tokens(seats), now))
    }

    fn is_unused(&self, now: Instant) -> bool {
        self.is_full(now)
    }

    fn change_limit(&mut self) {
        *self = Self::default();
    }
}
