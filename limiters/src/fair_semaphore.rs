//! A counting semaphore that its holders (users or connections) share fairly. The units are requests, bytes or
//! connections. A holder never waits: a request for more than the holder's fair share fails at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::fair_share::{FairShare, GroupedShareKey, Shares, Shortage};

/// Prometheus metrics of a semaphore. Several semaphores may share one value, which then shows their sum.
#[derive(Clone, Debug, Default)]
pub struct ShareMetrics {
    /// Sum of the amounts of all permits now.
    pub used: Gauge,
    /// Number of requests for a permit that the semaphore has refused.
    pub refused: Counter,
}

/// A semaphore whose holders share the maximum by the fair-share rule of [`FairShare::with_reserve`].
#[derive(Debug)]
pub struct FairSemaphore<H> {
    /// Name of the counted units in the error message, for example `requests in flight (--max-requests-inflight)`.
    what: &'static str,
    max: AtomicUsize,
    unit: usize,
    metrics: ShareMetrics,
    shares: Mutex<Shares<H>>,
}

/// A permit of one holder, with an amount that can grow and shrink. Dropping the permit returns the whole amount to the
/// semaphore.
pub struct FairPermit<H: GroupedShareKey> {
    semaphore: Arc<FairSemaphore<H>>,
    share_key: H,
    amount: usize,
}

/// Error: a holder requested more than its fair share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many {what}: of the limit {}{}, other clients use {} and this client uses {}; a client may use at most half \
     of the limit that other clients do not use",
    .shortage.max,
    format_group_limit(.shortage),
    .shortage.others,
    .shortage.own
)]
pub struct Exceeded {
    what: &'static str,
    shortage: Shortage,
}

fn format_group_limit(shortage: &Shortage) -> &'static str {
    if shortage.is_group_limit { " for all users that only the same cluster authenticates" } else { "" }
}

impl<H: GroupedShareKey> FairSemaphore<H> {
    /// Creates a semaphore for at most `max` units, which must be at least 2.
    pub fn new(what: &'static str, max: usize, metrics: ShareMetrics) -> Arc<Self> {
        Self::with_unit(what, max, 1, metrics)
    }

    /// Creates a semaphore whose holders take multiples of `unit`. `max` must be at least two units.
    pub fn with_unit(what: &'static str, max: usize, unit: usize, metrics: ShareMetrics) -> Arc<Self> {
        Arc::new(Self { what, max: AtomicUsize::new(max), unit, metrics, shares: Mutex::default() })
    }

    /// Changes the maximum for later requests. Existing permits keep their amounts, even if the sum exceeds the new
    /// maximum.
    pub fn resize(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    fn share(&self) -> FairShare {
        FairShare::with_reserve(self.max.load(Ordering::Relaxed), self.unit)
    }

    /// Returns the maximum of the sum of all permits.
    pub fn max(&self) -> usize {
        self.share().max()
    }

    /// Returns the sum of the amounts of all permits.
    pub fn used(&self) -> usize {
        self.shares.lock().total()
    }

    /// Returns the number of refusals since the start of the process, summed over all semaphores with the same metrics.
    pub fn refused(&self) -> u64 {
        self.metrics.refused.get()
    }

    /// Creates a permit with an amount for a holder, without waiting. The amount may be 0 for a permit that grows
    /// later.
    ///
    /// # Errors
    /// [`Exceeded`] if the amount exceeds the fair share of the holder.
    pub fn acquire(self: &Arc<Self>, share_key: H, amount: usize) -> Result<FairPermit<H>, Exceeded> {
        let mut permit = FairPermit { semaphore: Arc::clone(self), share_key, amount: 0 };
        permit.grow(amount)?;
        Ok(permit)
    }
}

impl<H: GroupedShareKey> FairPermit<H> {
    /// Returns the holder of this permit.
    pub fn share_key(&self) -> H {
        self.share_key
    }

    /// Returns the amount of this permit: a number of requests, bytes or connections.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Increases the amount by `more`. After an error, the permit keeps its old amount.
    ///
    /// # Errors
    /// [`Exceeded`] if the new amount exceeds the fair share of the holder.
    pub fn grow(&mut self, more: usize) -> Result<(), Exceeded> {
        self.try_grow(more).inspect_err(|_| {
            self.semaphore.metrics.refused.inc();
        })
    }

    /// Like [`grow`](Self::grow), for a caller that can continue without the increase: an error does not raise the
    /// metric of refused requests.
    ///
    /// # Errors
    /// [`Exceeded`] if the new amount exceeds the fair share of the holder.
    pub fn try_grow(&mut self, more: usize) -> Result<(), Exceeded> {
        if more == 0 {
            return Ok(());
        }
        let FairSemaphore { what, metrics, shares, .. } = &*self.semaphore;
        let mut shares = shares.lock();
        let checked = shares.check(self.semaphore.share(), self.share_key, more);
        checked.map_err(|shortage| Exceeded { what, shortage })?;
        shares.add(self.share_key, more);
        metrics.used.inc_by(to_gauge(more));
        self.amount += more;
        Ok(())
    }

    /// Increases the amount to `amount`. After an error, the permit keeps its old amount.
    ///
    /// # Errors
    /// [`Exceeded`] if `amount` exceeds the fair share of the holder.
    pub fn grow_to(&mut self, amount: usize) -> Result<(), Exceeded> {
        self.grow(amount.saturating_sub(self.amount))
    }

    /// Increases the amount to `amount`, rounded up to a multiple of `step` if the fair share of the holder allows the
    /// multiple. So a caller with many small increments takes the lock of the semaphore only once per step. After an
    /// error, the permit keeps its old amount.
    ///
    /// # Errors
    /// [`Exceeded`] if `amount` exceeds the fair share of the holder.
    pub fn grow_in_steps_to(&mut self, amount: usize, step: usize) -> Result<(), Exceeded> {
        if amount <= self.amount || self.try_grow(amount.next_multiple_of(step) - self.amount).is_ok() {
            return Ok(());
        }
        self.grow_to(amount)
    }

    /// Decreases the amount to `amount`, and returns the difference to the semaphore. Does nothing if the permit has
    /// less.
    pub fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        if less > 0 {
            let FairSemaphore { metrics, shares, .. } = &*self.semaphore;
            let mut shares = shares.lock();
            shares.remove(self.share_key, less);
            metrics.used.dec_by(to_gauge(less));
            self.amount = amount;
        }
    }
}

fn to_gauge(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl<H: GroupedShareKey> Drop for FairPermit<H> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl<H: GroupedShareKey> fmt::Debug for FairPermit<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairPermit")
            .field("of", &self.semaphore.what)
            .field("amount", &self.amount)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct User(u32);

    impl GroupedShareKey for User {
        fn group(self) -> Option<u64> {
            (self.0 >= 100).then_some(1)
        }
    }

    #[test]
    fn permit_occupies_its_amount_of_a_semaphore_until_it_is_dropped() {
        let semaphore = FairSemaphore::new("requests in flight", 16, ShareMetrics::default());
        let in_use: Vec<_> = std::iter::from_fn(|| semaphore.acquire(User(1), 1).ok()).collect();
        assert_eq!((in_use.len(), semaphore.used(), semaphore.refused()), (6, 6, 1));
        semaphore.resize(4);
        assert!(semaphore.acquire(User(9), 1).is_err(), "more than the new bound is held");
        drop(in_use);
        assert!(semaphore.acquire(User(9), 1).is_ok());
        assert!(semaphore.shares.lock().is_empty());
        assert_eq!((semaphore.metrics.used.get(), semaphore.refused()), (0, 2));
    }

    #[test]
    fn permit_grows_and_shrinks_within_the_limit_of_its_semaphore() {
        let semaphore = FairSemaphore::new("bytes", 1_024, ShareMetrics::default());
        let mut permit = semaphore.acquire(User(1), 0).unwrap();
        assert!(permit.grow_in_steps_to(5, 100).is_ok() && permit.grow_in_steps_to(70, 100).is_ok());
        assert_eq!((permit.amount(), semaphore.used()), (100, 100));
        // A full step of 1,000 exceeds the fair share of the user, but 384 does not.
        assert!(permit.grow_in_steps_to(384, 1_000).is_ok());
        assert_eq!((permit.amount(), semaphore.refused()), (384, 0));
        assert!(permit.grow_to(385).is_err() && permit.grow_to(384).is_ok());
        permit.shrink_to(10);
        permit.shrink_to(20);
        assert_eq!((permit.amount(), semaphore.used(), semaphore.metrics.used.get()), (10, 10, 10));
    }

    #[test]
    fn semaphore_refusal_names_the_limit() {
        let semaphore = FairSemaphore::new("requests in flight", 10, ShareMetrics::default());
        let mut in_use = semaphore.acquire(User(1), 4).unwrap();
        assert_eq!(
            in_use.grow(1).unwrap_err().to_string(),
            "too many requests in flight: of the limit 10, other clients use 0 and this client uses 4; a client may \
             use at most half of the limit that other clients do not use"
        );
        drop(in_use);
        let grouped: Vec<_> = std::iter::from_fn(|| semaphore.acquire(User(100), 1).ok()).collect();
        let refused = semaphore.acquire(User(100), 1).unwrap_err().to_string();
        let expected = "too many requests in flight: of the limit 3 for all users that only the same cluster \
                        authenticates, other clients use 0 and this client uses";
        assert!(refused.starts_with(expected) && !grouped.is_empty(), "{refused}");
    }
}
