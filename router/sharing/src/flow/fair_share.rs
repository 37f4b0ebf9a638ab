//! What is bounded for all clients together and shared among them: requests in flight, bytes that are held for them.
//!
//! Of three quarters a client may hold as much as it leaves to others (Choudhury and Hahne's dynamic thresholds, with a
//! factor of one): one alone gets half of them, and each that comes later half of what is left. Nothing has to be
//! configured per client, and what nobody uses is anybody's. A dozen greedy clients leave nothing of them, because
//! nobody is made to give back; so the last quarter is for those who hold little: up to a 256th of the bound each.
//!
//! None of this bounds whoever can make users. Those for whom a member alone vouches, its ServiceAccounts, are bounded
//! twice: as each client, and in the part of all users of that member, which they share by the same rule. Such a part
//! is as much as it leaves to those of other members, and all of them together leave a quarter of the bound to others.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::flow::holder::Holder;

/// Which part of the bound a client may hold where the others have taken all that is shared: a 256th, 15 requests of
/// 4,000 and 512 KiB of 128 MiB. People and controllers have fewer under way;
/// 64 clients have room for as much in the last quarter.
const SMALL: usize = 256;

/// Which part of the bound is never held by users for whom members alone vouch, of however many members: one in so
/// many, a quarter, 1,000 requests of 4,000. Somebody who may make ServiceAccounts in one namespace makes as many users
/// as they like, and so does whoever has a member's keys. A quarter has room for 64 configured users with little each.
/// Not more: where the programs of a platform run as ServiceAccounts nearly all that is held is theirs. The users of
/// one member have half of the other three quarters together where those of other members hold nothing, 1,500 of 4,000,
/// which is what one configured user has alone; and one of them has three eighths of that, 562.
const KEPT_FOR_CONFIGURED: usize = 4;

/// Whose bound it is that such a user has reached, as they are told.
const OF_ONE_MEMBER: &str = " for all users for whom the same cluster alone vouches";

/// What is counted of a bound.
#[derive(Clone, Debug, Default)]
pub struct ShareMetrics {
    /// What is held now.
    pub used: Gauge,
    /// Requests that were refused.
    pub refused: Counter,
}

/// A bounded amount. One per process and bound, or one per cluster, counted together.
#[derive(Debug)]
pub struct FairShare {
    /// What it is of, as a client is told: `requests in flight (--max-requests-inflight)`.
    what: &'static str,
    max: AtomicUsize,
    /// What is taken at once. Whoever holds little may have one of these, however small the bound is.
    piece: usize,
    metrics: ShareMetrics,
    state: Mutex<ShareUsage>,
}

/// What is held. A request takes of three bounds and gives back, and looks for its holder four times in each, under a
/// lock that is everybody's. So the hash is quick rather than safe against whoever chooses what is looked for: users
/// are found by a keyed hash of their own ([`Holder::User`]), and connections are those of one person.
#[derive(Debug, Default)]
struct ShareUsage {
    held: usize,
    by_holder: HashMap<Holder, usize>,
    /// What all users hold together for whom members alone vouch.
    vouched: usize,
    /// What such users hold, by member.
    by_member: HashMap<u64, usize>,
}

/// What one request holds. Given back when dropped. It grows and shrinks meanwhile, which a `Permit` does not: a body
/// that only keeps it carries it in one.
pub struct Portion {
    share: Arc<FairShare>,
    holder: Holder,
    amount: usize,
}

/// There is not so much left for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many {what}: of {max}{whose}, other clients hold {others} and this one holds {own}; a client may hold at most half of what others do not hold"
)]
pub struct Exceeded {
    what: &'static str,
    max: usize,
    /// Whose bound it is, where it is not everybody's.
    whose: &'static str,
    own: usize,
    others: usize,
}

/// Whether somebody who holds `own` of what all hold may hold so much more, where a piece is what is taken at once.
pub fn has_room(max: usize, piece: usize, held: usize, own: usize, by: usize) -> bool {
    let wanted = own.saturating_add(by);
    let kept_for_small = max / 4;
    let left = (max - kept_for_small).saturating_sub(held).saturating_sub(by);
    wanted <= left || (wanted <= small(max, piece) && held.saturating_add(by) <= max)
}

/// How much of a bound is little: one piece at least.
fn small(max: usize, piece: usize) -> usize {
    (max / SMALL).max(piece)
}

/// A bound with room for two pieces: for one of users for whom a member alone vouches, and for one of others.
fn at_least_two(max: usize, piece: usize) -> usize {
    max.max(piece.saturating_mul(2))
}

/// How much of a bound all users of one member may hold together while those of other members hold so much: as much as
/// they leave to these, and little in any case while there is some.
fn members_part(max: usize, piece: usize, others: usize) -> usize {
    let left = (max - max.div_ceil(KEPT_FOR_CONFIGURED)).saturating_sub(others);
    (left / 2).max(small(max, piece).min(left))
}

/// Lowers a count, and forgets one of nothing.
fn lower<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K, by: usize) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= by;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

impl FairShare {
    /// A bound of `max`, at least 2: a client alone has half of three quarters of it.
    pub fn new(what: &'static str, max: usize, metrics: ShareMetrics) -> Arc<Self> {
        Self::of_pieces(what, max, 1, metrics)
    }

    /// The same of something that is taken in pieces of several at once: one of these is little, and not one. There are
    /// two of them at least: of less, one that is taken would be refused for ever.
    pub fn of_pieces(what: &'static str, max: usize, piece: usize, metrics: ShareMetrics) -> Arc<Self> {
        let max = AtomicUsize::new(at_least_two(max, piece));
        Arc::new(Self { what, max, piece, metrics, state: Mutex::default() })
    }

    /// Changes the bound, for those who come from now on. Nobody is made to give back.
    pub fn resize(&self, max: usize) {
        self.max.store(at_least_two(max, self.piece), Ordering::Relaxed);
    }

    /// How much there is for all together.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// How much is held by all together.
    pub fn used(&self) -> usize {
        self.state.lock().held
    }

    /// How many requests were refused since the start, of all bounds that are counted together.
    pub fn refused(&self) -> u64 {
        self.metrics.refused.get()
    }

    /// Takes a portion of this amount; it may be nothing, to grow later.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn acquire(self: &Arc<Self>, holder: Holder, amount: usize) -> Result<Portion, Exceeded> {
        let mut portion = Portion { share: Arc::clone(self), holder, amount: 0 };
        portion.grow(amount)?;
        Ok(portion)
    }
}

impl ShareUsage {
    /// Whether somebody may hold so much more of a bound.
    ///
    /// # Errors
    /// [`Exceeded`].
    fn admits(&self, share: &FairShare, holder: Holder, by: usize) -> Result<(), Exceeded> {
        let (what, max, piece) = (share.what, share.max(), share.piece);
        let own = self.by_holder.get(&holder).copied().unwrap_or(0);
        if !has_room(max, piece, self.held, own, by) {
            return Err(Exceeded { what, max, whose: "", own, others: self.held - own });
        }
        let Some(member) = holder.member() else { return Ok(()) };
        let of_member = self.by_member.get(&member).copied().unwrap_or(0);
        let part = members_part(max, piece, self.vouched - of_member);
        if !has_room(part, piece, of_member, own, by) {
            return Err(Exceeded { what, max: part, whose: OF_ONE_MEMBER, own, others: of_member - own });
        }
        Ok(())
    }

    fn add(&mut self, holder: Holder, by: usize) {
        self.held += by;
        *self.by_holder.entry(holder).or_default() += by;
        if let Some(member) = holder.member() {
            self.vouched += by;
            *self.by_member.entry(member).or_default() += by;
        }
    }

    fn remove(&mut self, holder: Holder, by: usize) {
        self.held -= by;
        lower(&mut self.by_holder, holder, by);
        if let Some(member) = holder.member() {
            self.vouched -= by;
            lower(&mut self.by_member, member, by);
        }
    }
}

impl Portion {
    /// Who holds it.
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Takes so much more. After an error it is as before.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn grow(&mut self, by: usize) -> Result<(), Exceeded> {
        self.try_grow(by).inspect_err(|_| {
            self.share.metrics.refused.inc();
        })
    }

    /// As [`grow`](Self::grow), for whoever has another way: what is not there is not counted as refused.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn try_grow(&mut self, by: usize) -> Result<(), Exceeded> {
        if by == 0 {
            return Ok(());
        }
        let share = Arc::clone(&self.share);
        let mut state = share.state.lock();
        state.admits(&share, self.holder, by)?;
        state.add(self.holder, by);
        self.amount += by;
        share.metrics.used.inc_by(counted(by));
        Ok(())
    }

    /// Takes what is missing to this amount. After an error it is as before.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn grow_to(&mut self, amount: usize) -> Result<(), Exceeded> {
        self.grow(amount.saturating_sub(self.amount))
    }

    /// Takes what is missing to this amount, and more for what is still to come where there is more: whoever takes
    /// little at a time takes the lock, which is everybody's, once for each `step`. After an error it is as before.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub fn grow_in_steps_to(&mut self, amount: usize, step: usize) -> Result<(), Exceeded> {
        if amount <= self.amount || self.try_grow(amount.next_multiple_of(step) - self.amount).is_ok() {
            return Ok(());
        }
        self.grow_to(amount)
    }

    /// How much it is.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Gives back what is above this amount.
    pub fn shrink_to(&mut self, amount: usize) {
        let less = self.amount.saturating_sub(amount);
        if less > 0 {
            drop(Self { share: Arc::clone(&self.share), holder: self.holder, amount: less });
            self.amount = amount;
        }
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
        state.remove(self.holder, self.amount);
        self.share.metrics.used.dec_by(counted(self.amount));
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
        std::iter::from_fn(|| share.acquire(holder, 1).ok()).collect()
    }

    #[test]
    fn however_greedy_the_others_are_a_new_client_finds_something() {
        let share = share(1200);
        let first = greedy(&share, peer(1));
        assert_eq!(first.len(), 450, "one alone has half of what is shared");
        let second = greedy(&share, peer(2));
        assert_eq!(second.len(), 225, "it may hold as much as it leaves");
        assert!(share.acquire(peer(1), 1).is_err(), "the first has more than is left");
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
        assert!(greedy.iter().all(|portions| portions.len() >= small(share.max(), 1)));
        let modest = std::iter::from_fn(|| share.acquire(peer(65), 1).ok()).take(8);
        assert_eq!(modest.collect::<Vec<_>>().len(), 8);
        assert!(share.state.lock().held < 4_000);
    }

    /// As of the answers of clusters on a machine with little memory: 128 pieces of 256 KiB.
    #[test]
    fn of_what_is_taken_in_large_pieces_one_is_little() {
        const PIECE: usize = 256 << 10;
        let share = FairShare::of_pieces("bytes", 128 * PIECE, PIECE, ShareMetrics::default());
        let pieces = |holder| -> Vec<_> { std::iter::from_fn(|| share.acquire(holder, PIECE).ok()).collect() };
        let greedy: Vec<_> = (1..=16).map(|port| pieces(peer(port))).collect();
        assert!(greedy.iter().map(Vec::len).sum::<usize>() >= 96);
        let modest: Vec<_> = (17..=32).map(|port| pieces(peer(port)).into_iter().next()).collect();
        assert!(modest.iter().all(Option::is_some), "whoever holds nothing finds one");
        let programs = pieces(Holder::OfMember { member: 1, user: 0 });
        assert_eq!(programs.len(), 1, "and so does a program of a member");
    }

    #[test]
    fn however_small_the_bound_there_is_room_for_a_piece_of_each_sort() {
        const PIECE: usize = 256 << 10;
        for max in [0, 1_000, PIECE - 1, PIECE, 2 * PIECE, 3 * PIECE] {
            let share = FairShare::of_pieces("bytes", max, PIECE, ShareMetrics::default());
            for _ in 0..2 {
                let program = share.acquire(Holder::OfMember { member: 1, user: 0 }, PIECE);
                assert!(program.is_ok(), "of {max}");
                assert!(share.acquire(Holder::User(1), PIECE).is_ok(), "of {max}");
                drop(program);
                share.resize(max);
            }
        }
    }

    /// What so many accounts of one member get that take one after the other until they are refused.
    fn accounts(share: &Arc<FairShare>, member: u64, accounts: u64) -> Vec<Portion> {
        (0..accounts).flat_map(|user| greedy(share, Holder::OfMember { member, user })).collect()
    }

    #[test]
    fn whoever_makes_users_in_a_member_has_one_part_with_them() {
        let share = share(4_000);
        let first = greedy(&share, Holder::OfMember { member: 1, user: 0 });
        assert_eq!(first.len(), 562, "one account leaves to the others of its member");
        let others = accounts(&share, 1, 1_000);
        assert_eq!(first.len() + others.len(), 1_500, "as much as one configured user has alone");
        let refused = share.acquire(Holder::OfMember { member: 1, user: 1_000 }, 1).unwrap_err().to_string();
        let expected = "too many requests in flight: of 1500 for all users for whom the same cluster alone vouches, \
                        other clients hold 1500 and this one holds 0";
        assert!(refused.starts_with(expected), "{refused}");
        let configured = greedy(&share, Holder::User(1));
        assert_eq!(configured.len(), 750, "half of what is left of three quarters");
        assert!(!accounts(&share, 2, 1).is_empty(), "another member's programs go on");
        drop((first, others, configured));
        let state = share.state.lock();
        assert_eq!((state.held, state.vouched, state.by_holder.len(), state.by_member.len()), (0, 0, 0, 0));
    }

    #[test]
    fn users_of_all_members_together_leave_a_quarter() {
        for max in [2, 8, 16, 4_000] {
            let share = share(max);
            let vouched: Vec<_> = (0..64).map(|member| accounts(&share, member, 200)).collect();
            assert!(vouched.iter().map(Vec::len).sum::<usize>() <= max - max.div_ceil(4), "of {max}");
            assert!(!vouched[0].is_empty() && !greedy(&share, Holder::User(1)).is_empty(), "of {max}");
        }
    }

    #[test]
    fn programs_of_a_member_go_on_where_configured_users_take_all_that_is_shared() {
        let share = share(4_000);
        let configured: Vec<_> = (0..32).map(|user| greedy(&share, Holder::User(user))).collect();
        assert!(configured.iter().map(Vec::len).sum::<usize>() >= 3_000);
        let programs: Vec<_> = (0..8).map(|user| greedy(&share, Holder::OfMember { member: 1, user })).collect();
        assert!(programs.iter().all(|portions| portions.len() == small(4_000, 1)));
    }

    #[test]
    fn of_a_small_bound_everybody_gets_something_and_it_may_change() {
        let share = share(16);
        let first = greedy(&share, peer(1));
        assert_eq!(first.len(), 6);
        let others: Vec<_> = (2..=8).map(|port| greedy(&share, peer(port)).len()).collect();
        assert!(others.iter().all(|count| *count > 0), "{others:?}");
        share.resize(4);
        assert!(share.acquire(peer(9), 1).is_err(), "what is held is more than there may be");
        drop(first);
        assert!(share.acquire(peer(9), 1).is_ok());
    }

    #[test]
    fn a_refusal_names_the_bound() {
        let share = share(10);
        let mut held = share.acquire(peer(1), 4).unwrap();
        assert!(held.grow(1).is_err());
        let exceeded = share.acquire(peer(1), 1).unwrap_err().to_string();
        assert!(
            exceeded.starts_with("too many requests in flight: of 10, other clients hold 0 and this one holds 4"),
            "{exceeded}"
        );
        assert_eq!(share.metrics.refused.get(), 2);
    }
}
