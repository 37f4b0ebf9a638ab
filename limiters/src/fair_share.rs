//! The rule by which holders share a bounded amount: requests in flight, bytes, connections, places to wait in.
//!
//! A holder may have as much as it leaves to others (Choudhury and Hahne's dynamic thresholds, with a factor of one): a
//! holder alone gets half, and each later one half of the rest. Nothing has to be configured per holder, and a holder
//! may use what no other uses. Nobody is made to give back, so a dozen greedy holders leave nothing: therefore the end
//! of most amounts is for holders of little.
//!
//! The rule alone does not bound a person who can create users. So holders may form groups: the users for whom one
//! member cluster alone vouches, for instance. A holder of a group is bounded twice: among all holders, and by the same
//! rule in the part of its group. Such a part is as much as the group leaves to other groups, and all groups together
//! leave a quarter to holders without a group.

use std::hash::Hash;

use hashbrown::HashMap;

/// The part of an amount that a [`FairShare::with_reserve`] keeps for holders of little: a quarter.
const RESERVE_PART: usize = 4;

/// The part of an amount that is little there: a 256th, 15 requests of 4,000 and 512 KiB of 128 MiB. People and
/// controllers have fewer requests under way; the reserve has room for 64 holders of little.
const LITTLE_PART: usize = 256;

/// The part of an amount that groups leave to holders without a group: a quarter, 1,000 requests of 4,000. That is room
/// for 64 such holders with little each. Not more: where the programs of a platform run as ServiceAccounts, groups hold
/// nearly everything. One group alone has half of the other three quarters, as much as one holder without a group.
const UNGROUPED_PART: usize = 4;

/// A bounded amount, and the rule by which holders share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    max: usize,
    piece: usize,
    reserve: Reserve,
}

/// The end of an amount, which only holders of little may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    /// No reserve: a holder of nothing may take the last piece.
    None,
    /// A quarter, of which each holder may have a 256th.
    Quarter,
}

impl FairShare {
    /// Holders share all of `max`. The smallest amount that a holder takes is 1.
    pub fn without_reserve(max: usize) -> Self {
        Self { max, piece: 1, reserve: Reserve::None }
    }

    /// Holders share three quarters of `max`; the last quarter is for those that hold a 256th at most. Holders take
    /// `piece` at a time, so that one piece is little, and there are two pieces at least: with fewer, either holders in
    /// groups or the others would find none.
    pub fn with_reserve(max: usize, piece: usize) -> Self {
        Self { max: max.max(piece.saturating_mul(2)), piece, reserve: Reserve::Quarter }
    }

    /// The whole amount, in units of the caller.
    pub fn max(self) -> usize {
        self.max
    }

    /// The most that a holder may have while other holders have `others`: half of the rest, or little.
    pub fn room(self, others: usize) -> usize {
        let shared = (self.max - self.reserved()).saturating_sub(others);
        (shared / 2).max(self.little().min(self.max.saturating_sub(others)))
    }

    fn reserved(self) -> usize {
        match self.reserve {
            Reserve::None => 0,
            Reserve::Quarter => self.max / RESERVE_PART,
        }
    }

    fn little(self) -> usize {
        let little = match self.reserve {
            Reserve::None => 0,
            Reserve::Quarter => self.max / LITTLE_PART,
        };
        little.max(self.piece)
    }

    /// The part that the holders of a group share while the other groups hold `other_groups`: half of the rest, and at
    /// least little.
    fn part_of_group(self, other_groups: usize) -> Self {
        // A single piece is for whoever comes first.
        let ungrouped = if self.max < 2 * self.piece { 0 } else { self.max.div_ceil(UNGROUPED_PART) };
        let free = (self.max - ungrouped).saturating_sub(other_groups);
        Self { max: (free / 2).max(self.little().min(free)), ..self }
    }
}

/// A holder of a part of a shared amount.
pub trait ShareHolder: Copy + Eq + Hash {
    /// The group with which this holder shares a part. `None` for holders that nobody can create in numbers.
    fn group(self) -> Option<u64>;
}

/// The amounts of all holders.
///
/// A request takes of three amounts and gives back, and looks for its holder four times in each, under a lock that all
/// requests share. So the hash is quick rather than safe against chosen keys: keys are keyed hashes, or connections of
/// one person.
#[derive(Clone, Debug)]
pub struct Shares<H> {
    held: usize,
    by_holder: HashMap<H, usize>,
    /// The amount of all groups.
    grouped: usize,
    by_group: HashMap<u64, usize>,
}

impl<H> Default for Shares<H> {
    fn default() -> Self {
        Self { held: 0, by_holder: HashMap::default(), grouped: 0, by_group: HashMap::default() }
    }
}

/// The reason why a holder may not take more: so much is held, of this bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The bound: that of all holders, or the part of a group.
    pub max: usize,
    /// Whether it is the part of a group.
    pub is_of_group: bool,
    /// The amount of this holder.
    pub own: usize,
    /// The amount of all other holders that share the bound.
    pub others: usize,
}

impl<H: ShareHolder> Shares<H> {
    /// The amount of all holders.
    pub fn total(&self) -> usize {
        self.held
    }

    /// The amount of one holder.
    pub fn held_by(&self, holder: H) -> usize {
        self.by_holder.get(&holder).copied().unwrap_or(0)
    }

    /// Whether nobody holds anything.
    pub fn is_empty(&self) -> bool {
        self.held == 0 && self.by_holder.is_empty() && self.grouped == 0 && self.by_group.is_empty()
    }

    /// Checks that a holder may take `more`.
    ///
    /// # Errors
    /// [`Shortage`].
    pub fn check(&self, share: FairShare, holder: H, more: usize) -> Result<(), Shortage> {
        let own = self.held_by(holder);
        let (wanted, others) = (own.saturating_add(more), self.held - own);
        if wanted > share.room(others) {
            return Err(Shortage { max: share.max, is_of_group: false, own, others });
        }
        let Some(group) = holder.group() else { return Ok(()) };
        let of_group = self.by_group.get(&group).copied().unwrap_or(0);
        let (part, others) = (share.part_of_group(self.grouped - of_group), of_group - own);
        if wanted > part.room(others) {
            return Err(Shortage { max: part.max, is_of_group: true, own, others });
        }
        Ok(())
    }

    /// Adds `more` to the amount of a holder.
    pub fn add(&mut self, holder: H, more: usize) {
        if more == 0 {
            return;
        }
        self.held += more;
        *self.by_holder.entry(holder).or_default() += more;
        if let Some(group) = holder.group() {
            self.grouped += more;
            *self.by_group.entry(group).or_default() += more;
        }
    }

    /// Removes `less` from the amount of a holder, which is not smaller.
    pub fn remove(&mut self, holder: H, less: usize) {
        self.held -= less;
        lower(&mut self.by_holder, holder, less);
        if let Some(group) = holder.group() {
            self.grouped -= less;
            lower(&mut self.by_group, group, less);
        }
    }
}

/// Lowers a count, and removes it where nothing is left.
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

    /// The users of group 0 are those without a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct User {
        group: u64,
        name: u32,
    }

    impl ShareHolder for User {
        fn group(self) -> Option<u64> {
            (self.group > 0).then_some(self.group)
        }
    }

    fn user(name: u32) -> User {
        User { group: 0, name }
    }

    /// Takes pieces for a user until the rule refuses one. Returns the amount.
    fn take_all(shares: &mut Shares<User>, share: FairShare, user: User) -> usize {
        let before = shares.held_by(user);
        while shares.check(share, user, share.piece).is_ok() {
            shares.add(user, share.piece);
        }
        shares.held_by(user) - before
    }

    fn shares() -> impl Strategy<Value = FairShare> {
        prop_oneof![
            (0_usize..5_000).prop_map(FairShare::without_reserve),
            (0_usize..5_000, 1_usize..40).prop_map(|(max, piece)| FairShare::with_reserve(max, piece)),
        ]
    }

    fn users() -> impl Strategy<Value = User> {
        (0_u64..4, 0_u32..6).prop_map(|(group, name)| User { group, name })
    }

    proptest! {
        /// Users take and give back in any order.
        #[test]
        fn each_user_leaves_as_much_as_it_holds_and_newcomers_find_little(
            share in shares(),
            steps in proptest::collection::vec((users(), any::<bool>(), 1_usize..200), 1..200),
        ) {
            let mut shares = Shares::default();
            for (user, takes, pieces) in steps {
                let own = shares.held_by(user);
                if !takes {
                    shares.remove(user, own.min(pieces * share.piece));
                    continue;
                }
                let mut taken = 0;
                while taken < pieces && shares.check(share, user, share.piece).is_ok() {
                    shares.add(user, share.piece);
                    taken += 1;
                }
                if taken == 0 {
                    continue;
                }
                let (own, held) = (shares.held_by(user), shares.total());
                prop_assert!(held <= share.max);
                let left = (share.max - share.reserved()).saturating_sub(held);
                prop_assert!(own <= left || own <= share.little(), "{own} where {left} are left");
                let groups_max = share.max - share.max.div_ceil(UNGROUPED_PART);
                prop_assert!(share.max < 2 * share.piece || shares.grouped <= groups_max);
                // A new holder finds a piece while the reserve is free.
                let newcomer = User { group: 0, name: 1_000 };
                if own > share.little() {
                    prop_assert!(shares.check(share, newcomer, share.piece).is_ok());
                }
            }
            let by_holder = shares.by_holder.clone();
            for (user, own) in by_holder {
                shares.remove(user, own);
            }
            prop_assert!(shares.is_empty());
        }
    }

    #[test]
    fn a_user_alone_has_half_and_each_later_one_half_of_the_rest() {
        let (share, mut held) = (FairShare::without_reserve(200), Shares::default());
        assert_eq!([1, 2, 3, 4].map(|name| take_all(&mut held, share, user(name))), [100, 50, 25, 12]);
        let last: usize = (5..100).map(|name| take_all(&mut held, share, user(name))).sum();
        assert_eq!((last, held.total()), (13, 200), "users of nothing take the last ones");
        let (share, mut held) = (FairShare::with_reserve(1_200, 1), Shares::default());
        assert_eq!([1, 2].map(|name| take_all(&mut held, share, user(name))), [450, 225], "of three quarters");
        assert_eq!(
            [1, 2, 3, 4].map(|max| { take_all(&mut Shares::default(), FairShare::without_reserve(max), user(1)) }),
            [1, 1, 1, 2]
        );
    }

    #[test]
    fn users_of_one_group_share_a_part() {
        let (share, mut held) = (FairShare::with_reserve(4_000, 1), Shares::default());
        let grouped = |group, name| User { group, name };
        assert_eq!(take_all(&mut held, share, grouped(1, 0)), 562, "one user leaves some to its group");
        let others: usize = (1..1_000).map(|name| take_all(&mut held, share, grouped(1, name))).sum();
        assert_eq!(562 + others, 1_500, "as much as one user without a group has alone");
        assert_eq!(
            held.check(share, grouped(1, 1_000), 1),
            Err(Shortage { max: 1_500, is_of_group: true, own: 0, others: 1_500 })
        );
        assert_eq!(take_all(&mut held, share, user(1)), 750, "half of the rest of three quarters");
        assert!(take_all(&mut held, share, grouped(2, 0)) > 0);
        for max in [2, 8, 16, 4_000] {
            let (share, mut held) = (FairShare::with_reserve(max, 1), Shares::default());
            for group in 1..64 {
                let taken: usize = (0..200).map(|name| take_all(&mut held, share, grouped(group, name))).sum();
                assert!(group > 1 || taken > 0, "of {max}");
            }
            assert!(held.total() > 0 && take_all(&mut held, share, user(1)) > 0, "of {max}");
        }
    }

    #[test]
    fn users_of_groups_find_little_where_others_take_all_that_is_shared() {
        let (share, mut held) = (FairShare::with_reserve(4_000, 1), Shares::default());
        let others: usize = (0..32).map(|name| take_all(&mut held, share, user(name))).sum();
        assert!(others >= 3_000);
        assert!((0..8).all(|name| take_all(&mut held, share, User { group: 1, name }) == share.little()));
    }

    #[test]
    fn one_large_piece_counts_as_little_use() {
        const PIECE: usize = 256 << 10;
        let (share, mut held) = (FairShare::with_reserve(128 * PIECE, PIECE), Shares::default());
        assert!((1..=16).map(|name| take_all(&mut held, share, user(name))).sum::<usize>() >= 96 * PIECE);
        for newcomer in (17..=32).map(user).chain([User { group: 1, name: 0 }]) {
            assert_eq!(take_all(&mut held, share, newcomer), PIECE);
        }
        for max in [0, 1_000, PIECE - 1, PIECE, 2 * PIECE, 3 * PIECE] {
            let (share, mut held) = (FairShare::with_reserve(max, PIECE), Shares::default());
            for one in [User { group: 1, name: 0 }, user(1)] {
                assert_eq!(take_all(&mut held, share, one), PIECE, "of {max}");
            }
        }
    }
}
