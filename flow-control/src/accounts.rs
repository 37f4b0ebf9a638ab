//! What each key of a schema has used, for a bounded number of keys.
//!
//! A key that has used nothing is forgotten; one that has is not, whoever else comes. Where all places are taken by
//! such keys, whatever key comes then is counted in one account with all others that find no place: hostile keys
//! (addresses, say) take neither memory nor anybody's limit, and they share one among themselves.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::allowance::Allowance;
use crate::attributes::Key;
use crate::fair_queues::FairQueues;

/// How many keys of a schema have an account: some 2 MB.
pub(crate) const KEYS_MAX: usize = 16_384;

/// From how many keys on those are looked for that have used nothing.
const SWEPT_FROM: usize = 64;

/// How often that is done where it was in vain. It takes some 100 µs of 16,384 keys.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// One key's account.
#[derive(Debug)]
pub(crate) struct KeyAccount<A, W> {
    pub(crate) allowance: A,
    /// Who waits; `None` where nobody does. A box: most accounts have none.
    pub(crate) queues: Option<Box<FairQueues<W>>>,
}

/// Which account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AccountId {
    /// A key's own.
    Own(Key),
    /// That of all keys for which there was no place.
    Rest,
}

/// The accounts of a schema.
#[derive(Debug)]
pub(crate) struct Accounts<A, W> {
    max: usize,
    own: HashMap<Key, KeyAccount<A, W>>,
    rest: KeyAccount<A, W>,
    /// How many there are when those are looked for next that have used nothing.
    sweep_at: usize,
    /// And when.
    sweep_from: Option<Instant>,
}

impl<A: Allowance, W> Default for KeyAccount<A, W> {
    fn default() -> Self {
        Self { allowance: A::default(), queues: None }
    }
}

impl<A: Allowance, W> KeyAccount<A, W> {
    /// Whether nothing is used, and nobody waits.
    pub(crate) fn is_at_rest(&self, now: Instant) -> bool {
        self.queues.is_none() && self.allowance.is_at_rest(now)
    }
}

impl<A: Allowance, W> Accounts<A, W> {
    /// Accounts of so many keys at most.
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

    /// Forgets an account that has used nothing.
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

    /// All accounts.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (AccountId, &mut KeyAccount<A, W>)> {
        let own = self.own.iter_mut().map(|(key, account)| (AccountId::Own(*key), account));
        own.chain([(AccountId::Rest, &mut self.rest)])
    }

    /// How many keys have an account.
    pub(crate) fn keys(&self) -> usize {
        self.own.len()
    }

    /// Whether there is a place for one more, after those that have used nothing were forgotten if it is time for that.
    fn has_place(&mut self, now: Instant) -> bool {
        if self.own.len() >= self.sweep_at && self.sweep_from.is_none_or(|from| now >= from) {
            self.own.retain(|_, account| !account.is_at_rest(now));
            self.sweep_at = (2 * self.own.len()).max(SWEPT_FROM).min(self.max);
            self.sweep_from = (self.own.len() >= self.max).then(|| now.checked_add(SWEPT_EVERY)).flatten();
        }
        self.own.len() < self.max
    }
}
