//! Shuffle sharding: which few of many queues a flow may use.
//!
//! Each flow is dealt a hand of queues by its hash, and uses the best of it. So a flow that floods its queue shares it
//! only with those all of whose hand is as bad: with 64 queues and hands of 8, and 8 floods, one newcomer in 4 billion.
//!
//! Source: KEP-1040 (API Priority and Fairness), and C. MacCárthaigh, "Workload isolation using shuffle-sharding" (The
//! Amazon Builders' Library). As in `k8s.io/apiserver/pkg/util/shufflesharding` the digits of the hash to falling bases
//! are the cards, so that hands are as uniform as hashes are.

/// How many queues a hand has at most: there are 2^59 hands of 10 out of 64.
pub const HAND_MAX: usize = 10;

/// How many bits of a hash are spent on a hand: with 4 left of 64, no hand is more likely than another by more than a
/// 16th.
const ENTROPY_BITS_MAX: f64 = 60.0;

/// So many queues, of which each flow is dealt so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deck {
    queues: u16,
    hand: u8,
}

/// Why there is no such deck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeckError {
    /// There is nothing to deal.
    #[error(
        "a hand of {hand} out of {queues} queues: a hand has from one queue to all of them, and at most {HAND_MAX}"
    )]
    Size {
        /// How many queues.
        queues: u16,
        /// How many of them in a hand.
        hand: u8,
    },
    /// More hands than a hash can tell apart evenly.
    #[error("a hand of {hand} out of {queues} queues: there are more than 2^60 of them; make the hand smaller")]
    Entropy {
        /// How many queues.
        queues: u16,
        /// How many of them in a hand.
        hand: u8,
    },
}

impl Default for Deck {
    /// 64 queues and hands of 8: kube-apiserver's defaults.
    fn default() -> Self {
        Self { queues: 64, hand: 8 }
    }
}

impl Deck {
    /// A deck of so many queues and hands of so many.
    ///
    /// # Errors
    /// [`DeckError`].
    pub fn new(queues: u16, hand: u8) -> Result<Self, DeckError> {
        if hand == 0 || usize::from(hand) > HAND_MAX || u16::from(hand) > queues {
            return Err(DeckError::Size { queues, hand });
        }
        let bits: f64 = (0..u16::from(hand)).map(|dealt| f64::from(queues - dealt).log2()).sum();
        if bits > ENTROPY_BITS_MAX {
            return Err(DeckError::Entropy { queues, hand });
        }
        Ok(Self { queues, hand })
    }

    /// How many queues there are.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// The hand of a hash, in the order of dealing: different queues. No allocation.
    pub(crate) fn deal(self, hash: u64) -> impl Iterator<Item = usize> {
        // What was dealt, ascending.
        let mut dealt = [0_u16; HAND_MAX];
        let mut rest = hash;
        (0..self.hand).map(move |count| {
            let count = usize::from(count);
            let base = u64::from(self.queues) - count as u64;
            // The card is the so-manyth of those that are left.
            let mut card = u16::try_from(rest % base).unwrap_or(u16::MAX);
            rest /= base;
            let mut at = 0;
            while at < count && dealt[at] <= card {
                card += 1;
                at += 1;
            }
            dealt.copy_within(at..count, at + 1);
            dealt[at] = card;
            usize::from(card)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Of so many hashes as there are hands each deals another: no hand is dealt twice and none is left out.
    #[test]
    fn every_hand_is_dealt_once_for_each_round_of_hashes() {
        for (queues, hand) in [(1, 1), (5, 1), (4, 4), (6, 3), (9, 4), (7, 6)] {
            let deck = Deck::new(queues, hand).unwrap();
            let hands: u64 = (0..u64::from(hand)).map(|dealt| u64::from(queues) - dealt).product();
            let mut seen = BTreeMap::new();
            for hash in 0..2 * hands {
                *seen.entry(deck.deal(hash).collect::<Vec<_>>()).or_insert(0) += 1;
            }
            assert_eq!(seen.len() as u64, hands, "{queues} {hand}");
            assert!(seen.values().all(|count| *count == 2), "{queues} {hand}");
        }
    }

    #[test]
    fn digits_of_the_hash_are_the_cards() {
        let deck = Deck::new(10, 3).unwrap();
        // 7 of ten; then 7 of the nine that are left, which is 8; then 0 of eight.
        assert_eq!(deck.deal(7 + 7 * 10).collect::<Vec<_>>(), [7, 8, 0]);
        // 0; then 0 of what is left, 1; then 0 of that, 2.
        assert_eq!(deck.deal(0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(deck.deal(719).collect::<Vec<_>>(), [9, 8, 7], "the last of 720 hands");
    }

    #[test]
    fn what_cannot_be_dealt_is_no_deck() {
        for (queues, hand) in [(0, 0), (0, 1), (5, 0), (5, 6), (100, 11)] {
            assert_eq!(Deck::new(queues, hand), Err(DeckError::Size { queues, hand }));
        }
        assert_eq!(Deck::new(u16::MAX, 4), Err(DeckError::Entropy { queues: u16::MAX, hand: 4 }));
        assert_eq!(Deck::new(64, 8), Ok(Deck::default()));
        assert!(Deck::new(64, 10).is_ok() && Deck::new(72, 10).is_err());
    }

    proptest! {
        #[test]
        fn a_hand_has_different_queues_of_the_deck(queues in 1_u16..2000, hand in 1_u8..11, hash: u64) {
            let Ok(deck) = Deck::new(queues, hand) else { return Ok(()) };
            let cards: BTreeSet<_> = deck.deal(hash).collect();
            prop_assert_eq!(cards.len(), usize::from(hand));
            prop_assert!(cards.iter().all(|card| *card < usize::from(queues)));
        }
    }
}
