//! Accounts of a schema. An account counts the slots or tokens that one key (a user, for instance) uses. The number of
//! accounts is bounded.
//!
//! An account without slots in use and with full buckets is removed. An account in use is never removed. When accounts
//! in use reach the maximum, all new keys share one extra account. So an attacker with many addresses can neither fill
//! memory nor reset the limit of an existing key.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::allowance::Allowance;
use crate::attributes::Key;
use crate::fair_queues::FairQueues;

/// Maximal number of accounts of one schema. So many accounts take about 2 MB.
pub(crate) const KEYS_MAX: usize = 16_384;

/// Minimal number of accounts for a scan for unused accounts.
const SWEEP_MIN_ACCOUNTS: usize = 64;

/// Pause between two scans for unused accounts. A scan takes about 100 µs for 16,384 keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct KeyAccount<A, W> {
    pub(crate) allowance: A,
    /// Queues of waiting requests. In a `Box`, because most accounts have no queues.
    pub(crate) queues: Option<Box<FairQueues<W>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AccountId {
    Own(Key),
    /// The account that all keys without a separate account share.
    Rest,
}

#[derive(Debug)]
pub(crate) struct Accounts<A, W> {
    max: usize,
    own: HashMap<Key, KeyAccount<A, W>>,
    rest: KeyAccount<A, W>,
    /// Number of accounts at which the next scan starts.
    sweep_at: usize,
    /// Earliest time of the next scan.
    sweep_from: Option<Instant>,
}

impl<A: Allowance, W> Default for KeyAccount<A, W> {
    fn default() -> Self {
        Self { allowance: A::default(), queues: None }
    }
}

impl<A: Allowance, W> KeyAccount<A, W> {
    /// Returns whether the key uses no slot and no token, and no request of the key waits.
    pub(crate) fn is_unused(&self, now: Instant) -> bool {
        self.queues.is_none() && self.allowance.is_unused(now)
    }
}

impl<A: Allowance, W> Accounts<A, W> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            own: HashMap::new(),
            rest: KeyAccount::default(),
            sweep_at: SWEEP_MIN_ACCOUNTS.min(max),
            sweep_from: None,
        }
    }

    /// Returns the account of a key, and creates the account if necessary. If the maximum number of accounts is
    /// reached, returns the shared account.
    pub(crate) fn open(&mut self, key: Key, now: Instant) -> AccountId {
        if self.own.contains_key(&key) {
            return AccountId::Own(key);
        }
        if !self.may_open_account(now) {
            return AccountId::Rest;
        }
        self.own.insert(key, KeyAccount::default());
        AccountId::Own(key)
    }

    pub(crate) fn close(&mut self, id: AccountId, now: Instant) {
        if let AccountId::Own(key) = id
            && self.own.get(&key).is_some_and(|account| account.is_unused(now))
        {
            self.own.remove(&key);
        }
    }

    /// Returns the account of an identifier; `None` if the account was removed.
    pub(crate) fn get(&self, id: AccountId) -> Option<&KeyAccount<A, W>> {
        match id {
            AccountId::Own(key) => self.own.get(&key),
            AccountId::Rest => Some(&self.rest),
        }
    }

    /// Returns the account of an identifier; `None` if the account was removed.
    pub(crate) fn get_mut(&mut self, id: AccountId) -> Option<&mut KeyAccount<A, W>> {
        match id {
            AccountId::Own(key) => self.own.get_mut(&key),
            AccountId::Rest => Some(&mut self.rest),
        }
    }

    /// Returns all accounts, including the shared account.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (AccountId, &mut KeyAccount<A, W>)> {
        let own = self.own.iter_mut().map(|(key, account)| (AccountId::Own(*key), account));
        own.chain([(AccountId::Rest, &mut self.rest)])
    }

    pub(crate) fn keys(&self) -> usize {
        self.own.len()
    }

    /// Returns whether a new key can have a separate account. If a scan is due, first removes unused accounts.
    fn may_open_account(&mut self, now: Instant) -> bool {
        if self.own.len() >= self.sweep_at && self.sweep_from.is_none_or(|from| now >= from) {
            self.own.retain(|_, account| !account.is_unused(now));
            self.sweep_at = (2 * self.own.len()).max(SWEEP_MIN_ACCOUNTS).min(self.max);
            self.sweep_from = (self.own.len() >= self.max).then(|| now.checked_add(SWEEP_INTERVAL)).flatten();
        }
        self.own.len() < self.max
    }
}
