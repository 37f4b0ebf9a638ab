//! What is bounded for all clients together and shared among them: requests in flight, bytes that are held for them.
//!
//! Of three quarters a client may hold as much as it leaves to others (Choudhury and Hahne's dynamic thresholds, with a
//! factor of one): one alone gets half of them, and each that comes later half of what is left. Nothing has to be
//! configured per client, and what nobody uses is anybody's. A dozen greedy clients leave nothing of them, because
//! nobody is made to give back; so the last quarter is for those who hold little: up to a 256th of the bound each.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::flow::holder::Holder;

/// Which part of the bound a client may hold where the others have taken all that is shared: a 256th, 15 requests of
/// 4,000 and 512 KiB of 128 MiB. People and controllers have fewer under way;
/// 64 clients have room for as much in the last quarter.
const SMALL: usize = 256;

/// What is counted of a bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShareMetrics {
    /// What is held now.
    pub used: Gauge,
    /// Requests that were refused.
    pub refused: Counter,
}

/// A bounded amount. One per process and bound, or one per cluster, counted together.
#[derive(Debug)]
pub(crate) struct FairShare {
    /// What it is of, as a client is told: `requests in flight (--max-requests-inflight)`.
    what: &'static str,
    max: AtomicUsize,
    metrics: ShareMetrics,
    state: Mutex<ShareUsage>,
}

#[derive(Debug, Default)]
struct ShareUsage {
    held: usize,
    by_holder: HashMap<Holder, usize>,
}

/// What one request holds. Given back when dropped. It grows and shrinks meanwhile, which a `Permit` does not: a body
/// that only keeps it carries it in one.
pub(crate) struct Portion {
    share: Arc<FairShare>,
    holder: Holder,
    amount: usize,
}

/// There is not so much left for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many {what}: of {max}, other clients hold {others} and this one holds {own}; a client may hold at most half of what others do not hold"
)]
pub(crate) struct Exceeded {
    what: &'static str,
    max: usize,
    own: usize,
    others: usize,
}

/// Whether somebody who holds `own` of what all hold may hold so much more.
pub(crate) fn has_room(max: usize, held: usize, own: usize, by: usize) -> bool {
    let wanted = own.saturating_add(by);
    let kept_for_small = max / 4;
    let left = (max - kept_for_small).saturating_sub(held).saturating_sub(by);
    wanted <= left || (wanted <= small(max) && held.saturating_add(by) <= max)
}

/// How much of a bound is little: one at least.
fn small(max: usize) -> usize {
    (max / SMALL).max(1)
}

impl FairShare {
    /// A bound of `max`, at least 2: a client alone has half of three quarters of it.
    pub(crate) fn new(what: &'static str, max: usize, metrics: ShareMetrics) -> Arc<Self> {
        Arc::new(Self { what, max: AtomicUsize::new(max.max(2)), metrics, state: Mutex::default() })
    }

    /// Changes the bound, for those who come from now on. Nobody is made to give back.
    pub(crate) fn resize(&self, max: usize) {
        self.max.store(max.max(2), Ordering::Relaxed);
    }

    /// How much there is for all together.
    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// How much is held by all together.
    pub(crate) fn held(&self) -> usize {
        self.state.lock().held
    }

    /// How many requests were refused since the start, of all bounds that are counted together.
    pub(crate) fn refused(&self) -> u64 {
        self.metrics.refused.get()
    }

    /// Takes a portion of this amount; it may be nothing, to grow later.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn take(self: &Arc<Self>, holder: Holder, amount: usize) -> Result<Portion, Exceeded> {
        let mut portion = Portion { share: Arc::clone(self), holder, amount: 0 };
        portion.grow(amount)?;
        Ok(portion)
    }
}

impl Portion {
    /// Who holds it.
    pub(crate) fn holder(&self) -> Holder {
        self.holder
    }

    /// Takes so much more. After an error it is as before.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Exceeded> {
        self.try_grow(by).inspect_err(|_| {
            self.share.metrics.refused.inc();
        })
    }

    /// As [`grow`](Self::grow), for whoever has another way: what is not there is not counted as refused.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn try_grow(&mut self, by: usize) -> Result<(), Exceeded> {
        if by == 0 {
            return Ok(());
        }
        let share = Arc::clone(&self.share);
        let mut state = share.state.lock();
        let own = state.by_holder.get(&self.holder).copied().unwrap_or(0);
        let max = share.max();
        if !has_room(max, state.held, own, by) {
            let others = state.held - own;
            return Err(Exceeded { what: share.what, max, own, others });
        }
        self.add(&mut state, by);
        Ok(())
    }

    /// Takes what is missing to this amount. After an error it is as before.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn grow_to(&mut self, amount: usize) -> Result<(), Exceeded> {
        self.grow(amount.saturating_sub(self.amount))
    }

    /// Takes what is missing to this amount, and more for what is still to come where there is more: whoever takes
    /// little at a time takes the lock, which is everybody's, once for each `step`. After an error it is as before.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(crate) fn grow_in_steps_to(&mut self, amount: usize, step: usize) -> Result<(), Exceeded> {
        if amount <= self.amount || self.try_grow(amount.next_multiple_of(step) - self.amount).is_ok() {
            return Ok(());
        }
        self.grow_to(amount)
    }

    /// How much it is.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Gives back what is above this amount.
    pub(crate) fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        if less > 0 {
            drop(Self { share: Arc::clone(&self.share), holder: self.holder, amount: less });
            self.amount = amount;
        }
    }

    fn add(&mut self, state: &mut ShareUsage, by: usize) {
        *state.by_holder.entry(self.holder).or_default() += by;
        state.held += by;
        self.amount += by;
        self.share.metrics.used.inc_by(counted(by));
    }
}

/// An amount as gauges count.
fn counted(amount: usize) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl Drop for Portion {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut state = self.share.state.lock();
        state.held -= self.amount;
        self.share.metrics.used.dec_by(counted(self.amount));
        if let Some(own) = state.by_holder.get_mut(&self.holder) {
            *own -= self.amount;
            if *own == 0 {
                state.by_holder.remove(&self.holder);
            }
        }
    }
}

impl fmt::Debug for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Portion").field("of", &self.share.what).field("amount", &self.amount).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Holder {
        Holder::Connection(([127, 0, 0, 1], port).into())
    }

    fn share(max: usize) -> Arc<FairShare> {
        FairShare::new("requests in flight", max, ShareMetrics::default())
    }

    /// How much a client gets that takes one after the other until it is refused.
    fn greedy(share: &Arc<FairShare>, holder: Holder) -> Vec<Portion> {
        std::iter::from_fn(|| share.take(holder, 1).ok()).collect()
    }

    #[test]
    fn however_greedy_the_others_are_a_new_client_finds_something() {
        let share = share(1200);
        let first = greedy(&share, peer(1));
        assert_eq!(first.len(), 450, "one alone has half of what is shared");
        let second = greedy(&share, peer(2));
        assert_eq!(second.len(), 225, "it may hold as much as it leaves");
        assert!(share.take(peer(1), 1).is_err(), "the first has more than is left");
        let others: Vec<_> = (3..8).map(|port| greedy(&share, peer(port))).collect();
        assert!(others.iter().all(|portions| !portions.is_empty()));
        drop((first, second, others));
        let state = share.state.lock();
        assert_eq!((state.held, state.by_holder.len()), (0, 0));
        assert_eq!(share.metrics.used.get(), 0);
    }

    #[test]
    fn dozens_of_greedy_clients_leave_something_to_who_wants_little() {
        let share = share(4_000);
        let greedy: Vec<_> = (1..=64).map(|port| greedy(&share, peer(port))).collect();
        assert!(greedy.iter().all(|portions| portions.len() >= small(share.max())));
        let modest = std::iter::from_fn(|| share.take(peer(65), 1).ok()).take(8);
        assert_eq!(modest.collect::<Vec<_>>().len(), 8);
        assert!(share.state.lock().held < 4_000);
    }

    #[test]
    fn of_a_small_bound_everybody_gets_something_and_it_may_change() {
        let share = share(16);
        let first = greedy(&share, peer(1));
        assert_eq!(first.len(), 6);
        let others: Vec<_> = (2..=8).map(|port| greedy(&share, peer(port)).len()).collect();
        assert!(others.iter().all(|count| *count > 0), "{others:?}");
        share.resize(4);
        assert!(share.take(peer(9), 1).is_err(), "what is held is more than there may be");
        drop(first);
        assert!(share.take(peer(9), 1).is_ok());
    }

    #[test]
    fn a_refusal_names_the_bound() {
        let share = share(10);
        let mut held = share.take(peer(1), 4).unwrap();
        assert!(held.grow(1).is_err());
        let exceeded = share.take(peer(1), 1).unwrap_err().to_string();
        assert!(
            exceeded.starts_with("too many requests in flight: of 10, other clients hold 0 and this one holds 4"),
            "{exceeded}"
        );
        assert_eq!(share.metrics.refused.get(), 2);
    }
}
