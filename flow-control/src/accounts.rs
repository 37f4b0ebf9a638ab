//! Accounts: the used part of the limit of each key, for a bounded number of keys.
//!
//! A key without use is forgotten; a key in use never is. If keys in use take all accounts, all further keys share one
//! account. So hostile keys (addresses, for instance) take neither memory nor the limit of a key in use, and share one
//! limit among themselves.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::allowance::Allowance;
use crate::attributes::Key;
use crate::fair_queues::FairQueues;

/// Accounts of one schema: some 2 MB.
pub(crate) const KEYS_MAX: usize = 16_384;

/// Accounts from which accounts at rest are looked for.
const SWEPT_FROM: usize = 64;

/// Pause between two such walks when all accounts are in use. A walk takes some 100 µs for 16,384 keys.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// Account of one key, or of all keys beyond the maximum.
#[derive(Debug)]
pub(crate) struct KeyAccount<A, W> {
    pub(crate) allowance: A,
    /// Queues while requests wait. A box, because most accounts have no queues.
    pub(crate) queues: Option<Box<FairQueues<W>>>,
}

/// Identifier of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AccountId {
    /// The account of a single key.
    Own(Key),
    /// The account of all keys beyond the maximum.
    Rest,
}

/// The accounts of a schema.
#[derive(Debug)]
pub(crate) struct Accounts<A, W> {
    max: usize,
    own: HashMap<Key, KeyAccount<A, W>>,
    rest: KeyAccount<A, W>,
    /// Number of accounts at which the next walk starts.
    sweep_at: usize,
    /// Earliest time of the next walk.
    sweep_from: Option<Instant>,
}

impl<A: Allowance, W> Default for KeyAccount<A, W> {
    fn default() -> Self {
        Self { allowance: A::default(), queues: None }
    }
}

impl<A: Allowance, W> KeyAccount<A, W> {
    /// Whether the limit is unused and the queues are empty.
    pub(crate) fn is_at_rest(&self, now: Instant) -> bool {
        self.queues.is_none() && self.allowance.is_at_rest(now)
    }
}

impl<A: Allowance, W> Accounts<A, W> {
    /// Accounts for at most `max` keys.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, own: HashMap::new(), rest: KeyAccount::default(), sweep_at: SWEPT_FROM.min(max), sweep_from: None }
    }

    /// The account that a key is counted in.
    pub(crate) fn open(&mut self, key: Key, now: Instant) -> AccountId {
        if self.own.contains_key(&key) {
            return AccountId::Own(key);
        }
        if !self.has_place(now) {
            return AccountId::Rest;
        }
        self.own.insert(key, KeyAccount::default());
        AccountId::Own(key)
    }

    /// Forgets an account at rest.
    pub(crate) fn close(&mut self, id: AccountId, now: Instant) {
        if let AccountId::Own(key) = id
            && self.own.get(&key).is_some_and(|account| account.is_at_rest(now))
        {
            self.own.remove(&key);
        }
    }

    /// An account; `None` if it was forgotten.
    pub(crate) fn get(&self, id: AccountId) -> Option<&KeyAccount<A, W>> {
        match id {
            AccountId::Own(key) => self.own.get(&key),
            AccountId::Rest => Some(&self.rest),
        }
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, id: AccountId) -> Option<&mut KeyAccount<A, W>> {
        match id {
            AccountId::Own(key) => self.own.get_mut(&key),
            AccountId::Rest => Some(&mut self.rest),
        }
    }

    /// All accounts, also the shared account.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (AccountId, &mut KeyAccount<A, W>)> {
        let own = self.own.iter_mut().map(|(key, account)| (AccountId::Own(*key), account));
        own.chain([(AccountId::Rest, &mut self.rest)])
    }

    /// Number of keys with accounts.
    pub(crate) fn keys(&self) -> usize {
        self.own.len()
    }

    /// Whether a new key finds an account. Forgets accounts at rest first, if a walk is due.
    fn has_place(&mut self, now: Instant) -> bool {
        if self.own.len() >= self.sweep_at && self.sweep_from.is_none_or(|from| now >= from) {
            self.own.retain(|_, account| !account.is_at_rest(now));
            self.sweep_at = (2 * self.own.len()).max(SWEPT_FROM).min(self.max);
            self.sweep_from = (self.own.len() >= self.max).then(|| now.checked_add(SWEPT_EVERY)).flatten();
        }
        self.own.len() < self.max
    }
}
