//! One queue, and the order of its requests.
//!
//! The queue serves its flows alternately, and also the users of one flow. So a ServiceAccount does not wait until all
//! earlier requests of a second ServiceAccount of the same member are served.
//!
//! Each round serves one request of each flow. A new request joins the current round if this round has no request of
//! the flow yet. So clients that send their next request immediately cannot delay other clients without end.

use std::collections::{HashMap, VecDeque};

use crate::attributes::Flow;

#[derive(Debug)]
pub(crate) struct Waiter<W> {
    /// Number of the request. Later requests have higher numbers.
    pub(crate) ticket: u64,
    pub(crate) flow: Flow,
    pub(crate) seats: u32,
    pub(crate) waker: W,
}

/// Waiting requests of one or several flows, in the order in which they are served.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    queued: VecDeque<Queued<W>>,
    /// Number of the round after the last served round.
    next_round: u64,
    /// Number of the next round among the users of a shared flow, by the hash of the flow.
    next_within: HashMap<u64, u64>,
}

#[derive(Debug)]
struct Queued<W> {
    /// Round in which the queue serves the request.
    round: u64,
    /// Round in which the shared flow serves the user of the request. A flow that several users share serves its users
    /// round-robin.
    within: u64,
    waiter: Waiter<W>,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self { queued: VecDeque::new(), next_round: 0, next_within: HashMap::new() }
    }
}

impl<W> Queue<W> {
    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Returns whether a request of this flow waits.
    pub(crate) fn has(&self, flow: Flow) -> bool {
        self.queued.iter().any(|one| one.waiter.flow.is_same_flow(flow))
    }

    /// Returns the number of requests that are compared with the maximal length of the queue when a request of this
    /// flow arrives: requests of the same user, and requests of flows with a single user. Other requests of flows with
    /// several users are ignored, because the limit of all waiting requests bounds their number.
    pub(crate) fn length_for(&self, flow: Flow) -> usize {
        let counts = |one: &&Queued<W>| one.waiter.flow == flow || !one.waiter.flow.is_shared();
        self.queued.iter().filter(counts).count()
    }

    pub(crate) fn first(&self) -> Option<&Waiter<W>> {
        self.queued.front().map(|one| &one.waiter)
    }

    /// Adds a request. The first request of the queue stays first. Cost: linear in the length of the queue.
    pub(crate) fn push(&mut self, waiter: Waiter<W>) {
        let flow = waiter.flow;
        let of_flow = |one: &&Queued<W>| one.waiter.flow.is_same_flow(flow);
        let own = |one: &&Queued<W>| one.waiter.flow == flow;
        let queued = &self.queued;
        let first = queued.front().map(|one| one.round);
        let last = queued.iter().rev().find(of_flow).map(|one| one.round + 1);
        let round = self.next_round.max(first.unwrap_or(0)).max(last.unwrap_or(0));
        let next = self.next_within.get(&flow.flow_hash()).copied();
        let first = queued.iter().find(of_flow).map(|one| one.within);
        let last = queued.iter().rev().find(own).map(|one| one.within + 1);
        let within = [next, first, last].into_iter().flatten().max().unwrap_or(0);
        let at = queued.partition_point(|one| one.round <= round);
        self.queued.insert(at, Queued { round, within, waiter });
        self.advance_within_flow(at);
    }

    /// Moves the last request of a flow before those requests of the flow that have later rounds among its users.
    /// Requests of other flows keep their positions.
    fn advance_within_flow(&mut self, last: usize) {
        let (flow, within) = (self.queued[last].waiter.flow, self.queued[last].within);
        let mut at = last;
        for before in (0..last).rev() {
            let one = &self.queued[before];
            if !one.waiter.flow.is_same_flow(flow) {
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

    /// Removes the first request. Cost: linear in the length of the queue if several users share the flow.
    pub(crate) fn pop(&mut self) -> Option<Waiter<W>> {
        let Queued { round, within, waiter } = self.queued.pop_front()?;
        self.next_round = round + 1;
        if waiter.flow.is_shared() {
            self.next_within.insert(waiter.flow.flow_hash(), within + 1);
            self.forget_unless_it_waits(waiter.flow);
        }
        Some(waiter)
    }

    /// Removes a request. Returns the request, and whether it was the first in the queue. Cost: linear in the length of
    /// the queue.
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
            self.next_within.remove(&flow.flow_hash());
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
    fn requests_of_one_flow_are_served_in_order_of_arrival() {
        let mut queue = Queue::default();
        push(&mut queue, Flow::from_identity(&"ann"), 0..5);
        assert_eq!(queue.remove(2).map(|(waiter, was_first)| (waiter.ticket, was_first)), Some((2, false)));
        assert_eq!(queue.remove(0).map(|(waiter, was_first)| (waiter.ticket, was_first)), Some((0, true)));
        assert!(queue.remove(2).is_none());
        push(&mut queue, Flow::from_identity(&"ann"), 5..6);
        assert_eq!(order(&mut queue), [1, 3, 4, 5]);
    }

    #[test]
    fn flows_in_one_queue_are_served_alternately() {
        let mut queue = Queue::default();
        push(&mut queue, Flow::from_identity(&"eve"), 0..5);
        push(&mut queue, Flow::from_identity(&"ann"), 5..7);
        assert_eq!(order(&mut queue), [0, 5, 1, 6, 2, 3, 4]);
    }

    /// One ServiceAccount sends many requests. Two other ServiceAccounts of the same member share its flow, and a
    /// fourth user has a separate flow.
    #[test]
    fn users_of_a_shared_flow_are_served_alternately() {
        let of_eu = |user: &str| Flow::from_shared_identity(&"eu", &user);
        let mut queue = Queue::default();
        push(&mut queue, of_eu("storm"), 0..6);
        push(&mut queue, of_eu("robot"), 6..8);
        push(&mut queue, of_eu("other"), 8..9);
        push(&mut queue, Flow::from_identity(&"ann"), 9..11);
        assert_eq!(order(&mut queue), [0, 9, 6, 10, 8, 1, 7, 2, 3, 4, 5]);
        assert!(queue.next_within.is_empty());
        // All ServiceAccounts of a member share one flow. The queue serves this flow and a different user alternately.
        for user in 0..100_u64 {
            push(&mut queue, Flow::from_shared_identity(&"eu", &user), user..user + 1);
        }
        push(&mut queue, Flow::from_identity(&"ann"), 100..103);
        assert_eq!(order(&mut queue)[..7], [0, 100, 1, 101, 2, 102, 3]);
    }

    /// A client may send each request immediately after the response to the previous request. It is not served more
    /// often than a client with many waiting requests.
    #[test]
    fn client_that_repeats_requests_immediately_does_not_delay_other_clients() {
        for (eve, ann) in [
            (Flow::from_identity(&"eve"), Flow::from_identity(&"ann")),
            (Flow::from_shared_identity(&"eu", &"eve"), Flow::from_shared_identity(&"eu", &"ann")),
        ] {
            let bob = Flow::from_shared_identity(&"eu", &"bob");
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
    fn queue_length_limit_ignores_other_users_of_a_shared_flow() {
        let mut queue = Queue::default();
        push(&mut queue, Flow::from_shared_identity(&"eu", &"storm"), 0..50);
        push(&mut queue, Flow::from_identity(&"ann"), 50..53);
        let lengths = [
            queue.length_for(Flow::from_shared_identity(&"eu", &"storm")),
            queue.length_for(Flow::from_shared_identity(&"eu", &"robot")),
            queue.length_for(Flow::from_identity(&"ann")),
            queue.length_for(Flow::from_identity(&"bob")),
        ];
        assert_eq!((lengths, queue.len()), ([53, 3, 3, 3], 53));
    }
}
