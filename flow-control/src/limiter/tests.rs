//! Property tests of the limiter. The schedules of requests, time and new limits are generated, and the tests check
//! invariants after each step.

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use proptest::prelude::*;
use tributary_limiters::SpentTokens;

use super::*;
use crate::allowance::Slots;
use crate::hand::Deck;
use crate::schema::{MaxRequestsInflight, TokenBucket};

/// Maximal number of keys with a separate account. All other keys share one account.
const KEYS_MAX: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit { key: u64, flow: u64, width: u32 },
    GiveBack(usize),
    Cancel(usize),
    Wait { microseconds: u64 },
    Change { limit: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u64..5, any::<u64>(), 1_u32..4).prop_map(|(key, flow, width)| Step::Admit { key, flow: flow % 4, width }),
        4 => any::<usize>().prop_map(Step::GiveBack),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => (0_u64..200_000).prop_map(|microseconds| Step::Wait { microseconds }),
        1 => (0_u32..9).prop_map(|limit| Step::Change { limit }),
    ];
    proptest::collection::vec(step, 1..200)
}

fn queueing() -> Queueing {
    let length = NonZeroU16::new(3).unwrap();
    Queueing { deck: Deck::new(4, 2).unwrap(), length, wait_max: Duration::from_secs(1) }
}

/// A limiter with simulated clients. Each waker is the number of a client.
struct Clients<A: Allowance> {
    limiter: Limiter<A, u64>,
    now: Instant,
    next: u64,
    permits: Vec<LimiterPermit>,
    waiting: BTreeMap<u64, Ticket>,
    /// Permits that were granted since the last check.
    turns: Vec<LimiterPermit>,
}

impl<A: Allowance> Clients<A> {
    fn new(limit: A::Limit) -> Self {
        let limiter = Limiter::new(limit, Some(queueing()), KEYS_MAX);
        Self { limiter, now: Instant::now(), next: 0, permits: Vec::new(), waiting: BTreeMap::new(), turns: Vec::new() }
    }

    fn act(&mut self, step: Step, limit: impl Fn(u32) -> A::Limit) {
        let mut granted = Vec::new();
        match step {
            Step::Admit { key, flow, width } => {
                self.next += 1;
                let number = self.next;
                let candidate = Candidate { key: Key(key), flow: Flow::from_hash(flow), width };
                match self.limiter.admit(candidate, self.now, || number, &mut granted) {
                    LimiterDecision::Admitted(permit) => self.turns.push(permit),
                    LimiterDecision::Waits { ticket, .. } => {
                        self.waiting.insert(number, ticket);
                    }
                    LimiterDecision::Closed | LimiterDecision::Exceeded | LimiterDecision::QueueFull => {}
                }
            }
            Step::GiveBack(at) if !self.permits.is_empty() => {
                let permit = self.permits.swap_remove(at % self.permits.len());
                self.limiter.give_back(permit, self.now, &mut granted);
            }
            Step::Cancel(at) if !self.waiting.is_empty() => {
                let number = *self.waiting.keys().nth(at % self.waiting.len()).unwrap();
                let ticket = self.waiting.remove(&number).unwrap();
                assert!(self.limiter.cancel(ticket, self.now, &mut granted), "who waits is found");
                assert!(!self.limiter.cancel(ticket, self.now, &mut granted), "and then no more");
            }
            Step::GiveBack(_) | Step::Cancel(_) => {}
            Step::Wait { microseconds } => self.now += Duration::from_micros(microseconds),
            Step::Change { limit: number } => {
                self.limiter.change(limit(number), Some(queueing()), self.now, &mut granted);
            }
        }
        self.receive_turns(granted);
    }

    /// Checks that each permit goes to a waiting request, and that no request gets two.
    fn receive_turns(&mut self, granted: Granted<u64>) {
        for (number, permit) in granted {
            let ticket = self.waiting.remove(&number).expect("only who waits is given a turn");
            assert_eq!(ticket.account, permit.account);
            self.turns.push(permit);
        }
    }

    fn check(&mut self) {
        assert_eq!(self.limiter.waiting(), self.waiting.len());
        assert!(self.waiting.len() <= queueing().waiting_max());
        assert!(self.limiter.keys() <= KEYS_MAX);
        // If a request still waits while enough seats for it are free, the limiter has lost a wake-up.
        let accounts: Vec<_> = self.waiting.values().map(|ticket| ticket.account).collect();
        for account in accounts {
            let mut lost = Vec::new();
            self.limiter.advance(account, self.now, &mut lost);
            assert!(lost.is_empty(), "{lost:?} had no turn before");
        }
    }

    fn seats_in_use(&self, account: AccountId) -> u32 {
        self.permits.iter().filter(|permit| permit.account == account).map(|permit| permit.seats).sum()
    }
}

proptest! {
    #[test]
    fn slots_in_use_never_exceed_the_limit_and_are_all_freed(max in 0_u32..6, schedule in steps()) {
        let limit = |max| MaxRequestsInflight { max, count_long_running: false };
        let mut clients: Clients<Slots> = Clients::new(limit(max));
        for step in schedule {
            clients.act(step, limit);
            for permit in std::mem::take(&mut clients.turns) {
                clients.permits.push(permit);
                prop_assert!(clients.seats_in_use(permit.account) <= clients.limiter.limit().max);
            }
            clients.check();
        }
        // Each request that still waits must be admitted after all earlier requests have ended.
        clients.act(Step::Change { limit: 3 }, limit);
        loop {
            let turns = std::mem::take(&mut clients.turns);
            clients.permits.extend(turns);
            if clients.permits.is_empty() {
                break;
            }
            clients.act(Step::GiveBack(0), limit);
            clients.check();
        }
        prop_assert_eq!((clients.waiting.len(), clients.limiter.waiting(), clients.limiter.keys()), (0, 0, 0));
    }

    #[test]
    fn token_bucket_never_grants_more_than_its_refill(burst in 1_u32..6, schedule in steps()) {
        let number = |number: u32| NonZeroU32::new(number.max(1)).unwrap();
        let limit = |size| TokenBucket { qps: number(size * 10), burst: number(size) };
        let mut clients: Clients<SpentTokens> = Clients::new(limit(burst));
        // Upper bound of the tokens that each account may have spent since the last change of the limit: the burst and
        // the refilled tokens.
        let (mut brought, mut had) = (f64::from(burst), BTreeMap::<AccountId, u32>::new());
        for step in schedule {
            let before = (clients.now, clients.limiter.limit());
            if let Step::GiveBack(_) = step {
                continue;
            }
            if let Step::Wait { microseconds } = step {
                // The test advances time as the task in `gate.rs` does: it wakes up at each `due` time.
                let until = clients.now + Duration::from_micros(microseconds);
                while let Some((due, account)) = next_due(&clients) && due <= until {
                    prop_assert!(due >= clients.now);
                    clients.now = due;
                    let mut granted = Vec::new();
                    clients.limiter.advance(account, due, &mut granted);
                    prop_assert!(!granted.is_empty(), "nobody is woken in vain");
                    clients.receive_turns(granted);
                }
                clients.now = until;
            } else {
                clients.act(step, limit);
            }
            let limit = clients.limiter.limit();
            brought += (clients.now - before.0).as_secs_f64() * f64::from(before.1.qps.get());
            if limit != before.1 {
                brought = f64::from(limit.burst.get());
                had.clear();
            }
            for permit in std::mem::take(&mut clients.turns) {
                *had.entry(permit.account).or_default() += permit.seats;
            }
            for (account, tokens) in &had {
                prop_assert!(f64::from(*tokens) <= brought + 1e-6, "{account:?}: {tokens} of {brought}");
            }
            clients.check();
        }
    }
}

/// Returns the earliest time at which refilled tokens admit a waiting request, with the account of the request.
fn next_due(clients: &Clients<SpentTokens>) -> Option<(Instant, AccountId)> {
    let due = |ticket: &Ticket| {
        let due = clients.limiter.due(ticket.account, ticket.generation, clients.now)?;
        Some((due, ticket.account))
    };
    clients.waiting.values().filter_map(due).min()
}

/// The number of keys exceeds the number of accounts. The accounts of keys without tokens stay, and all new keys share
/// one limit.
#[test]
fn limiter_with_too_many_keys_keeps_exhausted_limits_in_bounded_memory() {
    let one = NonZeroU32::MIN;
    let mut limiter: Limiter<SpentTokens, ()> = Limiter::new(TokenBucket { qps: one, burst: one }, None, 100);
    let start = Instant::now();
    let mut admitted = |key, now| {
        let decision =
            limiter.admit(Candidate { key: Key(key), flow: Flow::from_hash(0), width: 1 }, now, || (), &mut Vec::new());
        (matches!(decision, LimiterDecision::Admitted(_)), limiter.keys())
    };
    assert!(admitted(0, start).0);
    let others = (1..10_000).filter(|key| admitted(*key, start).0).count();
    assert_eq!(others, 99 + 1, "each with an account of its own, and one of all others");
    assert_eq!(admitted(0, start), (false, 100));
    // When their buckets are full, accounts are removed, and new keys can have accounts.
    let later = start + Duration::from_secs(2);
    assert_eq!((10_000..20_000).filter(|key| admitted(*key, later).0).count(), 100 + 1);
}

#[test]
fn request_for_many_seats_is_not_overtaken_by_smaller_requests() {
    let limit = MaxRequestsInflight { max: 4, count_long_running: false };
    let mut limiter: Limiter<Slots, u32> = Limiter::new(limit, Some(Queueing::default()), KEYS_MAX);
    let now = Instant::now();
    let mut granted = Vec::new();
    let mut admit = |flow, width, number| {
        let candidate = Candidate { key: Key(0), flow: Flow::from_hash(flow), width };
        limiter.admit(candidate, now, || number, &mut granted)
    };
    let LimiterDecision::Admitted(narrow) = admit(1, 1, 0) else { panic!("there is room") };
    let LimiterDecision::Waits { is_first: true, .. } = admit(2, 100, 1) else { panic!("it takes all four") };
    let LimiterDecision::Waits { is_first: false, .. } = admit(3, 1, 2) else {
        panic!("three are free, and not its turn")
    };
    limiter.give_back(narrow, now, &mut granted);
    let [(1, wide)] = granted[..] else { panic!("{granted:?}") };
    assert_eq!(wide.seats, 4);
    limiter.give_back(wide, now, &mut granted);
    assert_eq!(granted.last().map(|(number, permit)| (*number, permit.seats)), Some((2, 1)));
}
