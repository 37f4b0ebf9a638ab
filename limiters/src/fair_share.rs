//! A rule by which holders (for example users or connections) share a bounded total of requests in flight, bytes,
//! connections or waiting requests.
//!
//! A holder may take as much as it leaves free for other holders (dynamic thresholds by Choudhury and Hahne, with a
//! factor of one). The first holder can take half of the total, and each later holder half of the remainder. The rule
//! needs no configuration, and holders may use everything that other holders leave free. The rule never takes an amount
//! back, so a dozen greedy holders could together take nearly the whole total. Therefore most totals have a reserve,
//! which only holders of small amounts may use.
//!
//! The rule alone does not limit a person with the right to create users. So holders may belong to a group, for example
//! all users that one member authenticates. A holder in a group must pass two checks: the rule for the total and all
//! holders, and the same rule for the share of the group and the holders of the group. The share of a group is as much
//! as the group leaves free for other groups. All groups together leave a quarter of the total to holders without a
//! group.

use std::hash::Hash;

use hashbrown::HashMap;

/// Divisor of the total: [`FairShare::with_reserve`] reserves one quarter for holders of small amounts.
const RESERVE_PART: usize = 4;

/// Divisor of the total: an amount of at most a 256th is small and may come from the reserve, for example 15 of 4,000
/// requests, or 512 KiB of 128 MiB. People and controllers usually have fewer requests in flight. The reserve suffices
/// for 64 holders with such amounts.
const SMALL_PART: usize = 256;

/// Divisor of the total: all groups together leave one quarter to holders without a group. This is 1,000 of 4,000
/// requests, enough for 64 holders of small amounts. A larger part would waste capacity on platforms where nearly all
/// clients are ServiceAccounts in groups. A single group can take half of the other three quarters, as much as a single
/// holder without a group.
const UNGROUPED_PART: usize = 4;

/// A bounded total, with the rule by which holders share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    max: usize,
    unit: usize,
    reserve: Reserve,
}

/// The part of the total that only holders of small amounts may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    /// No reserve: a holder with an amount of 0 may take the last unit.
    None,
    /// A reserve of one quarter of the total. A holder with at most a 256th of the total may use the reserve.
    Quarter,
}

impl FairShare {
    /// Creates a total without a reserve. Holders may take any amount.
    pub fn without_reserve(max: usize) -> Self {
        Self { max, unit: 1, reserve: Reserve::None }
    }

    /// Creates an amount with a reserve: the last quarter is only for holders of at most a 256th. Holders take
    /// multiples of `unit`, and one unit always counts as a small amount. The amount has at least two units, one for
    /// holders in groups and one for other holders.
    pub fn with_reserve(max: usize, unit: usize) -> Self {
        Self { max: max.max(unit.saturating_mul(2)), unit, reserve: Reserve::Quarter }
    }

    /// Returns the total that all holders share, in the units of the caller (requests, bytes or connections).
    pub fn max(self) -> usize {
        self.max
    }

    /// Returns the maximum for one holder while all other holders together have `others`. The maximum is half of the
    /// total that `others` and the reserve leave free, or a small amount from the reserve if that is more.
    pub fn capacity(self, others: usize) -> usize {
        let shared = (self.max - self.reserved()).saturating_sub(others);
        (shared / 2).max(self.small_amount().min(self.max.saturating_sub(others)))
    }

    fn reserved(self) -> usize {
        match self.reserve {
            Reserve::None => 0,
            Reserve::Quarter => self.max / RESERVE_PART,
        }
    }

    fn small_amount(self) -> usize {
        let small_amount = match self.reserve {
            Reserve::None => 0,
            Reserve::Quarter => self.max / SMALL_PART,
        };
        small_amount.max(self.unit)
    }

    /// Returns the share of a group while all other groups together have `other_groups`. The share is half of the total
    /// that other groups and the quarter for holders without a group leave free, and at least a small amount.
    fn group_share(self, other_groups: usize) -> Self {
        // An amount of less than two units reserves nothing for holders without a group.
        let ungrouped = if self.max < 2 * self.unit { 0 } else { self.max.div_ceil(UNGROUPED_PART) };
        let free = (self.max - ungrouped).saturating_sub(other_groups);
        Self { max: (free / 2).max(self.small_amount().min(free)), ..self }
    }
}

/// Key of a holder in a shared total, for example of a user or a connection.
pub trait GroupedShareKey: Copy + Eq + Hash {
    /// The group whose share also limits this holder. `None` if a person cannot create many such holders.
    fn group(self) -> Option<u64>;
}

/// The amounts that all holders have now.
///
/// A single client request changes amounts in three totals. Each change looks up the holder four times, under a lock
/// that all requests share. So the hash function of the maps is fast. It does not resist an attacker with chosen keys,
/// and this is safe because a client cannot choose keys: they are keyed hashes or connections.
#[derive(Clone, Debug)]
pub struct Shares<H> {
    in_use: usize,
    by_share_key: HashMap<H, usize>,
    grouped: usize,
    by_group: HashMap<u64, usize>,
}

impl<H> Default for Shares<H> {
    fn default() -> Self {
        Self { in_use: 0, by_share_key: HashMap::default(), grouped: 0, by_group: HashMap::default() }
    }
}

/// Error: a holder may not take the requested amount. The fields contain the exceeded limit and the amounts in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The exceeded limit: the total for all holders, or the share of the holder's group.
    pub max: usize,
    /// Whether `max` is the share of the holder's group.
    pub is_group_limit: bool,
    /// Amount in use by this holder.
    pub own: usize,
    /// The amount that all other holders have: all other holders of the group if `is_group_limit` is true, else all
    /// other holders.
    pub others: usize,
}

impl<H: GroupedShareKey> Shares<H> {
    /// Returns the sum of the amounts of all holders.
    pub fn total(&self) -> usize {
        self.in_use
    }

    /// Returns the amount that a holder has.
    pub fn amount_for(&self, share_key: H) -> usize {
        self.by_share_key.get(&share_key).copied().unwrap_or(0)
    }

    /// Returns whether no holder has an amount.
    pub fn is_empty(&self) -> bool {
        self.in_use == 0 && self.by_share_key.is_empty() && self.grouped == 0 && self.by_group.is_empty()
    }

    /// Checks whether a holder may take `more` units. Does not change the amounts.
    ///
    /// # Errors
    /// [`Shortage`] if the holder may not take `more`.
    pub fn check(&self, share: FairShare, share_key: H, more: usize) -> Result<(), Shortage> {
        let own = self.amount_for(share_key);
        let (wanted, others) = (own.saturating_add(more), self.in_use - own);
        if wanted > share.capacity(others) {
            return Err(Shortage { max: share.max, is_group_limit: false, own, others });
        }
        let Some(group) = share_key.group() else { return Ok(()) };
        let of_group = self.by_group.get(&group).copied().unwrap_or(0);
        let (part, others) = (share.group_share(self.grouped - of_group), of_group - own);
        if wanted > part.capacity(others) {
            return Err(Shortage { max: part.max, is_group_limit: true, own, others });
        }
        Ok(())
    }

    /// Adds `more` to the amount of a holder.
    pub fn add(&mut self, share_key: H, more: usize) {
        if more == 0 {
            return;
        }
        self.in_use += more;
        *self.by_share_key.entry(share_key).or_default() += more;
        if let Some(group) = share_key.group() {
            self.grouped += more;
            *self.by_group.entry(group).or_default() += more;
        }
    }

    /// Subtracts `less` from the amount of a holder. `less` must not exceed the amount.
    pub fn remove(&mut self, share_key: H, less: usize) {
        self.in_use -= less;
        lower(&mut self.by_share_key, share_key, less);
        if let Some(group) = share_key.group() {
            self.grouped -= less;
            lower(&mut self.by_group, group, less);
        }
    }
}

/// Subtracts `less` from the entry of a key, and removes an entry of 0.
fn lower<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K, less: usize) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= less;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Users with `group` 0 belong to no group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct User {
        group: u64,
        name: u32,
    }

    impl GroupedShareKey for User {
        fn group(self) -> Option<u64> {
            (self.group > 0).then_some(self.group)
        }
    }

    fn user(name: u32) -> User {
        User { group: 0, name }
    }

    /// Takes units for a user until the rule refuses one. Returns the amount.
    fn take_all(shares: &mut Shares<User>, share: FairShare, user: User) -> usize {
        let before = shares.amount_for(user);
        while shares.check(share, user, share.unit).is_ok() {
            shares.add(user, share.unit);
        }
        shares.amount_for(user) - before
    }

    fn shares() -> impl Strategy<Value = FairShare> {
        prop_oneof![
            (0_usize..5_000).prop_map(FairShare::without_reserve),
            (0_usize..5_000, 1_usize..40).prop_map(|(max, unit)| FairShare::with_reserve(max, unit)),
        ]
    }

    fn users() -> impl Strategy<Value = User> {
        (0_u64..4, 0_u32..6).prop_map(|(group, name)| User { group, name })
    }

    proptest! {
        /// Lets users take and return random amounts in random order.
        #[test]
        fn user_never_takes_more_than_the_amount_left_for_other_users(
            share in shares(),
            steps in proptest::collection::vec((users(), any::<bool>(), 1_usize..200), 1..200),
        ) {
            let mut shares = Shares::default();
            for (user, takes, units) in steps {
                let own = shares.amount_for(user);
                if !takes {
                    shares.remove(user, own.min(units * share.unit));
                    continue;
                }
                let mut acquired = 0;
                while acquired < units && shares.check(share, user, share.unit).is_ok() {
                    shares.add(user, share.unit);
                    acquired += 1;
                }
                if acquired == 0 {
                    continue;
                }
                let (own, in_use) = (shares.amount_for(user), shares.total());
                prop_assert!(in_use <= share.max);
                let left = (share.max - share.reserved()).saturating_sub(in_use);
                prop_assert!(own <= left || own <= share.small_amount(), "{own} where {left} are left");
                let groups_max = share.max - share.max.div_ceil(UNGROUPED_PART);
                prop_assert!(share.max < 2 * share.unit || shares.grouped <= groups_max);
                // As long as the reserve is not exhausted, a new holder can take one unit.
                let newcomer = User { group: 0, name: 1_000 };
                if own > share.small_amount() {
                    prop_assert!(shares.check(share, newcomer, share.unit).is_ok());
                }
            }
            let by_share_key = shares.by_share_key.clone();
            for (user, own) in by_share_key {
                shares.remove(user, own);
            }
            prop_assert!(shares.is_empty());
        }
    }

    #[test]
    fn each_user_gets_half_of_the_remaining_amount() {
        let (share, mut in_use) = (FairShare::without_reserve(200), Shares::default());
        assert_eq!([1, 2, 3, 4].map(|name| take_all(&mut in_use, share, user(name))), [100, 50, 25, 12]);
        let last: usize = (5..100).map(|name| take_all(&mut in_use, share, user(name))).sum();
        assert_eq!((last, in_use.total()), (13, 200), "users of nothing take the last ones");
        let (share, mut in_use) = (FairShare::with_reserve(1_200, 1), Shares::default());
        assert_eq!([1, 2].map(|name| take_all(&mut in_use, share, user(name))), [450, 225], "of three quarters");
        assert_eq!(
            [1, 2, 3, 4].map(|max| { take_all(&mut Shares::default(), FairShare::without_reserve(max), user(1)) }),
            [1, 1, 1, 2]
        );
    }

    #[test]
    fn users_of_one_group_together_get_the_share_of_the_group() {
        let (share, mut in_use) = (FairShare::with_reserve(4_000, 1), Shares::default());
        let grouped = |group, name| User { group, name };
        assert_eq!(take_all(&mut in_use, share, grouped(1, 0)), 562, "one user leaves some to its group");
        let others: usize = (1..1_000).map(|name| take_all(&mut in_use, share, grouped(1, name))).sum();
        assert_eq!(562 + others, 1_500, "as much as one user without a group has alone");
        assert_eq!(
            in_use.check(share, grouped(1, 1_000), 1),
            Err(Shortage { max: 1_500, is_group_limit: true, own: 0, others: 1_500 })
        );
        assert_eq!(take_all(&mut in_use, share, user(1)), 750, "half of the rest of three quarters");
        assert!(take_all(&mut in_use, share, grouped(2, 0)) > 0);
        for max in [2, 8, 16, 4_000] {
            let (share, mut in_use) = (FairShare::with_reserve(max, 1), Shares::default());
            for group in 1..64 {
                let acquired: usize = (0..200).map(|name| take_all(&mut in_use, share, grouped(group, name))).sum();
                assert!(group > 1 || acquired > 0, "of {max}");
            }
            assert!(in_use.total() > 0 && take_all(&mut in_use, share, user(1)) > 0, "of {max}");
        }
    }

    #[test]
    fn users_in_groups_can_use_the_reserve_when_the_shared_amount_is_exhausted() {
        let (share, mut in_use) = (FairShare::with_reserve(4_000, 1), Shares::default());
        let others: usize = (0..32).map(|name| take_all(&mut in_use, share, user(name))).sum();
        assert!(others >= 3_000);
        assert!((0..8).all(|name| take_all(&mut in_use, share, User { group: 1, name }) == share.small_amount()));
    }

    #[test]
    fn single_large_unit_always_counts_as_a_small_amount() {
        const UNIT: usize = 256 << 10;
        let (share, mut in_use) = (FairShare::with_reserve(128 * UNIT, UNIT), Shares::default());
        assert!((1..=16).map(|name| take_all(&mut in_use, share, user(name))).sum::<usize>() >= 96 * UNIT);
        for newcomer in (17..=32).map(user).chain([User { group: 1, name: 0 }]) {
            assert_eq!(take_all(&mut in_use, share, newcomer), UNIT);
        }
        for max in [0, 1_000, UNIT - 1, UNIT, 2 * UNIT, 3 * UNIT] {
            let (share, mut in_use) = (FairShare::with_reserve(max, UNIT), Shares::default());
            for one in [User { group: 1, name: 0 }, user(1)] {
                assert_eq!(take_all(&mut in_use, share, one), UNIT, "of {max}");
            }
        }
    }
}
