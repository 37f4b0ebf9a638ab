//! What a schema says: how much there is, for each of what, and who may wait.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use crate::attributes::Dimension;
use crate::hand::Deck;

/// A schema: rules of dispatch refer to it by name. The words are those of KubeGateway's `flowControlSchemas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The name, unique among the schemas.
    pub name: Arc<str>,
    /// What it limits.
    pub kind: SchemaKind,
}

/// What a schema limits. State survives a change of everything but the variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// Nothing.
    Exempt,
    /// How many requests are in flight at once.
    MaxRequestsInflight(Limited<MaxRequestsInflight>),
    /// How many requests begin in a second.
    TokenBucket(Limited<TokenBucket>),
}

impl SchemaKind {
    /// How much there is for each key: slots, or tokens in a second. `None` where nothing is limited.
    pub fn amount(&self) -> Option<u32> {
        match self {
            Self::Exempt => None,
            Self::MaxRequestsInflight(limited) => Some(limited.limit.max),
            Self::TokenBucket(limited) => Some(limited.limit.qps.get()),
        }
    }

    /// What makes a key, as [`Limited::by`]. Empty where nothing is limited.
    pub fn by(&self) -> &[Dimension] {
        match self {
            Self::Exempt => &[],
            Self::MaxRequestsInflight(limited) => &limited.by,
            Self::TokenBucket(limited) => &limited.by,
        }
    }

    /// Who may wait for how long, as [`Limited::queueing`]. `None` where nothing is limited: then nobody has to.
    pub fn queueing(&self) -> Option<Queueing> {
        match self {
            Self::Exempt => None,
            Self::MaxRequestsInflight(limited) => limited.queueing,
            Self::TokenBucket(limited) => limited.queueing,
        }
    }

    /// Whether each of several keys has the limit, and not all requests one together.
    pub fn is_of_each_key(&self) -> bool {
        !self.by().is_empty()
    }
}

/// A limit, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited<L> {
    /// How much each key has.
    pub limit: L,
    /// What makes a key: each combination of their values has a limit of its own; where there are none, all requests of
    /// the schema share one.
    pub by: Vec<Dimension>,
    /// Who may wait for how long; `None` where what finds no room is refused at once.
    pub queueing: Option<Queueing>,
}

/// How many requests may be in flight at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRequestsInflight {
    /// How many; 0 refuses all, those that last, too.
    pub max: u32,
    /// Whether what lasts takes a place like any other request. Otherwise it is let in, and counted apart.
    pub count_long_running: bool,
}

/// How many requests may begin. What lasts spends a token when it begins, like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// How many tokens come back in a second.
    pub qps: NonZeroU32,
    /// How many there are at most, and at first.
    pub burst: NonZeroU32,
}

/// Who may wait, as kube-apiserver's `LimitResponse` of type `Queue` has it (KEP-1040, API Priority and Fairness).
///
/// Each key has such queues. Those of a schema hold together no more than `queues` × `length`, however many keys it
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// Among how many queues flows are spread, and among how many of them each chooses.
    pub deck: Deck,
    /// How many requests wait in a queue at most.
    pub length: NonZeroU16,
    /// How long one waits at most.
    pub wait_max: Duration,
}

impl Queueing {
    /// How many requests of a schema wait at most.
    pub(crate) fn waiting_max(&self) -> usize {
        usize::from(self.deck.queues()) * usize::from(self.length.get())
    }
}

impl Default for Queueing {
    /// kube-apiserver's defaults for the queues (64, a hand of 8, 50 in each: `flowcontrol/v1/defaults.go`), and a
    /// second: a short wait instead of a 429, not a second place where requests pile up.
    fn default() -> Self {
        Self {
            deck: Deck::default(),
            length: const { NonZeroU16::new(50).expect("not zero") },
            wait_max: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kinds_have_in_common_is_asked_of_each_alike() {
        let by = [Dimension::User, Dimension::Cluster];
        let queueing = Some(Queueing::default());
        let slots = MaxRequestsInflight { max: 1, count_long_running: false };
        let tokens = TokenBucket { qps: NonZeroU32::MIN, burst: NonZeroU32::MIN };
        for kind in [
            SchemaKind::MaxRequestsInflight(Limited { limit: slots, by: by.to_vec(), queueing }),
            SchemaKind::TokenBucket(Limited { limit: tokens, by: by.to_vec(), queueing }),
        ] {
            assert_eq!((kind.amount(), kind.by(), kind.queueing()), (Some(1), &by[..], queueing), "{kind:?}");
            assert!(kind.is_of_each_key(), "{kind:?}");
        }
        let shared = SchemaKind::TokenBucket(Limited { limit: tokens, by: Vec::new(), queueing: None });
        for (kind, amount) in [(SchemaKind::Exempt, None), (shared, Some(1))] {
            assert_eq!((kind.amount(), kind.queueing()), (amount, None), "{kind:?}");
            assert!(kind.by().is_empty() && !kind.is_of_each_key(), "{kind:?}");
        }
    }
}
