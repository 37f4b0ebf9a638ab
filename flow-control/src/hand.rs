//! Shuffle sharding: of many queues, each flow may use only a few. These queues are the flow's hand.
//!
//! The hash of a flow selects ("deals") the hand, and the flow uses the best queue in it. So a flow that floods its
//! queue delays only flows whose hands consist of flooded queues alone. With 64 queues, hands of 8 queues and 8 floods,
//! this affects one new flow in 4 billion.
//!
//! Sources: KEP-1040 (API Priority and Fairness), and C. MacCárthaigh, "Workload isolation using shuffle-sharding" (The
//! Amazon Builders' Library). As in `k8s.io/apiserver/pkg/util/shufflesharding`, the digits of the hash in falling
//! bases are the cards (indices of queues). So uniformly distributed hashes give uniformly distributed hands.

/// Maximal number of queues in a hand. There are 2^59 ordered hands of 10 out of 64 queues.
pub const HAND_MAX: usize = 10;

/// Maximal number of bits of the hash that select a hand. The other 4 of 64 bits make the selection even: the
/// probabilities of two hands differ by at most one sixteenth.
const ENTROPY_BITS_MAX: f64 = 60.0;

/// The deck for shuffle sharding: the number of queues, and the number of queues that one flow may use (its hand).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deck {
    queues: u16,
    hand: u8,
}

/// Error: the size of a deck or of its hands is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeckError {
    /// The hand is empty, larger than the deck, or larger than [`HAND_MAX`].
    #[error(
        "handSize {hand} is invalid with {queues} queues; give at least 1, and at most the number of queues and \
         {HAND_MAX}"
    )]
    Size {
        /// Number of queues in the deck.
        queues: u16,
        /// Number of queues in a hand.
        hand: u8,
    },
    /// The number of possible hands is too large for an even selection by a hash of 64 bits.
    #[error("handSize {hand} with {queues} queues has more than 2^60 combinations; give a lower handSize")]
    Entropy {
        /// Number of queues in the deck.
        queues: u16,
        /// Number of queues in a hand.
        hand: u8,
    },
}

impl Default for Deck {
    /// 64 queues and hands of 8 queues, the defaults of kube-apiserver.
    fn default() -> Self {
        Self { queues: 64, hand: 8 }
    }
}

impl Deck {
    /// Creates a deck of `queues` queues, with `hand` queues for each flow.
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

    /// Returns the number of queues in the deck.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// Returns the distinct queues in a flow's hand, from the flow's hash. Allocates nothing.
    pub(crate) fn deal(self, hash: u64) -> impl Iterator<Item = usize> {
        let mut dealt = [0_u16; HAND_MAX];
        let mut rest = hash;
        (0..self.hand).map(move |count| {
            let count = usize::from(count);
            let base = u64::from(self.queues) - count as u64;
            // The digit of the hash is an index into the queues that are not in the hand yet.
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

    #[test]
    fn consecutive_flow_hashes_select_each_ordered_set_of_queues_equally_often() {
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
    fn digits_of_the_flow_hash_select_the_candidate_queues_of_the_flow() {
        let deck = Deck::new(10, 3).unwrap();
        // The first digit selects queue 7 of ten. The second digit selects index 7 of the remaining nine queues, which
        // is queue 8. The third digit selects index 0.
        assert_eq!(deck.deal(7 + 7 * 10).collect::<Vec<_>>(), [7, 8, 0]);
        // Each digit selects index 0 of the remaining queues: queue 0, then queue 1, then queue 2.
        assert_eq!(deck.deal(0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(deck.deal(719).collect::<Vec<_>>(), [9, 8, 7], "the last of 720 hands");
    }

    #[test]
    fn queue_configuration_with_an_invalid_number_of_queues_is_refused() {
        for (queues, hand) in [(0, 0), (0, 1), (5, 0), (5, 6), (100, 11)] {
            assert_eq!(Deck::new(queues, hand), Err(DeckError::Size { queues, hand }));
        }
        assert_eq!(Deck::new(u16::MAX, 4), Err(DeckError::Entropy { queues: u16::MAX, hand: 4 }));
        assert_eq!(Deck::new(64, 8), Ok(Deck::default()));
        assert!(Deck::new(64, 10).is_ok() && Deck::new(72, 10).is_err());
    }

    proptest! {
        #[test]
        fn candidate_queues_of_a_flow_are_distinct_and_exist(queues in 1_u16..2000, hand in 1_u8..11, hash: u64) {
            let Ok(deck) = Deck::new(queues, hand) else { return Ok(()) };
            let cards: BTreeSet<_> = deck.deal(hash).collect();
            prop_assert_eq!(cards.len(), usize::from(hand));
            prop_assert!(cards.iter().all(|card| *card < usize::from(queues)));
        }
    }
}
