//! One queue, and the order of its requests.
//!
//! Flows with the same queue take turns in it, and users who share a flow take turns within the flow. So one of
//! thousands of ServiceAccounts of a member waits for a turn of the flow, and then for the accounts with as many
//! requests, and not for all earlier requests of a single account.
//!
//! A flow has one turn in each round. A new request joins a round that has not been served, so that clients who return
//! at once cannot keep out the others.

use std::collections::{HashMap, VecDeque};

use crate::attributes::Flow;

/// A request that waits for a free slot or token.
#[derive(Debug)]
pub(crate) struct Waiter<W> {
    /// Number of the request, ascending.
    pub(crate) ticket: u64,
    /// Flow of the request.
    pub(crate) flow: Flow,
    /// Seats of the request.
    pub(crate) seats: u32,
    /// Wakes the request with its turn.
    pub(crate) waker: W,
}

/// Waiting requests, the next one first.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    queued: VecDeque<Queued<W>>,
    /// Round after the round that was served last.
    next_round: u64,
    /// The same within each shared flow that waits, by the hash of its turn.
    next_within: HashMap<u64, u64>,
}

/// A waiting request with its rounds.
#[derive(Debug)]
struct Queued<W> {
    /// Round of the flow's turn.
    round: u64,
    /// Round of the user's turn within the flow.
    within: u64,
    waiter: Waiter<W>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { queued: VecDeque::new(), next_round: 0, next_within: HashMap::new() }
    }
}

impl<W> Queue<W> {
    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Whether a request of this flow's turn waits.
    pub(crate) fn has(&self, flow: Flow) -> bool {
        self.queued.iter().any(|one| one.waiter.flow.takes_turn_of(flow))
    }

    /// Number of requests that count against the length of the queue for a request of this flow: requests of the same
    /// user, and requests of unshared flows. A shared flow may have a long queue: the places to wait in bound all its
    /// requests together.
    pub(crate) fn length_for(&self, flow: Flow) -> usize {
        let counts = |one: &&Queued<W>| one.waiter.flow == flow || !one.waiter.flow.is_shared();
        self.queued.iter().filter(counts).count()
    }

    /// First request of the queue.
    pub(crate) fn first(&self) -> Option<&Waiter<W>> {
        self.queued.front().map(|one| &one.waiter)
    }

    /// Adds a request, never before the first. Cost: the length of the queue.
    pub(crate) fn push(&mut self, waiter: Waiter<W>) {
        let flow = waiter.flow;
        let of_flow = |one: &&Queued<W>| one.waiter.flow.takes_turn_of(flow);
        let own = |one: &&Queued<W>| one.waiter.flow == flow;
        let queued = &self.queued;
        let first = queued.front().map(|one| one.round);
        let last = queued.iter().rev().find(of_flow).map(|one| one.round + 1);
        let round = self.next_round.max(first.unwrap_or(0)).max(last.unwrap_or(0));
        let next = self.next_within.get(&flow.turn()).copied();
        let first = queued.iter().find(of_flow).map(|one| one.within);
        let last = queued.iter().rev().find(own).map(|one| one.within + 1);
        let within = [next, first, last].into_iter().flatten().max().unwrap_or(0);
        let at = queued.partition_point(|one| one.round <= round);
        self.queued.insert(at, Queued { round, within, waiter });
        self.advance_within_flow(at);
    }

    /// Moves the last request of a flow ahead of requests of the flow with later rounds. The requests of a flow swap
    /// places among themselves only.
    fn advance_within_flow(&mut self, last: usize) {
        let (flow, within) = (self.queued[last].waiter.flow, self.queued[last].within);
        let mut at = last;
        for before in (0..last).rev() {
            let one = &self.queued[before];
            if !one.waiter.flow.takes_turn_of(flow) {
                continue;
            }
            if one.within <= within {
                break;
            }
            let rounds = (one.round, self.queued[at].round);
            self.queued.swap(before, at);
            (self.queued[before].round, self.queued[at].round) = rounds;
            at = before;
        }
    }

    /// Takes the first request. Cost: the length of the queue for a shared flow.
    pub(crate) fn pop(&mut self) -> Option<Waiter<W>> {
        let Queued { round, within, waiter } = self.queued.pop_front()?;
        self.next_round = round + 1;
        if waiter.flow.is_shared() {
            self.next_within.insert(waiter.flow.turn(), within + 1);
            self.forget_unless_it_waits(waiter.flow);
        }
        Some(waiter)
    }

    /// Removes a request. Returns the request, and whether it was the first. Cost: the length of the queue.
    pub(crate) fn remove(&mut self, ticket: u64) -> Option<(Waiter<W>, bool)> {
        let at = self.queued.iter().position(|one| one.waiter.ticket == ticket)?;
        let waiter = self.queued.remove(at)?.waiter;
        if waiter.flow.is_shared() {
            self.forget_unless_it_waits(waiter.flow);
        }
        Some((waiter, at == 0))
    }

    fn forget_unless_it_waits(&mut self, flow: Flow) {
        if !self.has(flow) {
            self.next_within.remove(&flow.turn());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut Queue<()>, flow: Flow, tickets: std::ops::Range<u64>) {
        for ticket in tickets {
            let first = queue.first().map(|waiter| waiter.ticket);
            queue.push(Waiter { ticket, flow, seats: 1, waker: () });
            assert!(first.is_none() || first == queue.first().map(|waiter| waiter.ticket), "nobody is overtaken");
        }
    }

    fn order(queue: &mut Queue<()>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop()).map(|waiter| waiter.ticket).collect()
    }

    #[test]
    fn flow_is_served_in_order_of_arrival() {
        let mut queue = Queue::default();
        push(&mut queue, Flow::from_identity(&"ann"), 0..5);
        assert_eq!(queue.remove(2).map(|(waiter, was_first)| (waiter.ticket, was_first)), Some((2, false)));
        assert_eq!(queue.remove(0).map(|(waiter, was_first)| (waiter.ticket, was_first)), Some((0, true)));
        assert!(queue.remove(2).is_none());
        push(&mut queue, Flow::from_identity(&"ann"), 5..6);
        assert_eq!(order(&mut queue), [1, 3, 4, 5]);
    }

    #[test]
    fn flows_that_share_a_queue_take_turns() {
        let mut queue = Queue::default();
        push(&mut queue, Flow::from_identity(&"eve"), 0..5);
        push(&mut queue, Flow::from_identity(&"ann"), 5..7);
        assert_eq!(order(&mut queue), [0, 5, 1, 6, 2, 3, 4]);
    }

    /// A storm of one ServiceAccount, two other accounts of the member, and a user with an unshared flow.
    #[test]
    fn users_of_one_turn_take_turns_within_it() {
        let of_eu = |who: &str| Flow::of_one_among(&"eu", &who);
        let mut queue = Queue::default();
        push(&mut queue, of_eu("storm"), 0..6);
        push(&mut queue, of_eu("robot"), 6..8);
        push(&mut queue, of_eu("other"), 8..9);
        push(&mut queue, Flow::from_identity(&"ann"), 9..11);
        assert_eq!(order(&mut queue), [0, 9, 6, 10, 8, 1, 7, 2, 3, 4, 5]);
        assert!(queue.next_within.is_empty());
        // All accounts of a member together have one turn of two.
        for who in 0..100_u64 {
            push(&mut queue, Flow::of_one_among(&"eu", &who), who..who + 1);
        }
        push(&mut queue, Flow::from_identity(&"ann"), 100..103);
        assert_eq!(order(&mut queue)[..7], [0, 100, 1, 101, 2, 102, 3]);
    }

    /// A client that returns at once has no more turns than a client with many waiting requests.
    #[test]
    fn client_that_returns_at_once_keeps_no_other_out() {
        for (eve, ann) in [
            (Flow::from_identity(&"eve"), Flow::from_identity(&"ann")),
            (Flow::of_one_among(&"eu", &"eve"), Flow::of_one_among(&"eu", &"ann")),
        ] {
            let bob = Flow::of_one_among(&"eu", &"bob");
            let mut queue = Queue::default();
            push(&mut queue, ann, 0..20);
            push(&mut queue, eve, 100..101);
            push(&mut queue, bob, 200..201);
            let mut served = [0; 3];
            for ticket in 300..330 {
                let next = queue.pop().unwrap();
                let at = [ann, eve, bob].iter().position(|flow| *flow == next.flow).unwrap();
                served[at] += 1;
                if at > 0 {
                    push(&mut queue, next.flow, ticket..ticket + 1);
                }
            }
            assert_eq!(served, [10; 3]);
        }
    }

    #[test]
    fn queue_length_ignores_requests_of_others_in_a_shared_flow() {
        let mut queue = Queue::default();
        push(&mut queue, Flow::of_one_among(&"eu", &"storm"), 0..50);
        push(&mut queue, Flow::from_identity(&"ann"), 50..53);
        let lengths = [
            queue.length_for(Flow::of_one_among(&"eu", &"storm")),
            queue.length_for(Flow::of_one_among(&"eu", &"robot")),
            queue.length_for(Flow::from_identity(&"ann")),
            queue.length_for(Flow::from_identity(&"bob")),
        ];
        assert_eq!((lengths, queue.len()), ([53, 3, 3, 3], 53));
    }
}
