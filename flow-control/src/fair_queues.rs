//! Fair queues: the waiting requests of one key, and the order in which the queues are served.
//!
//! The hash of a flow selects a few candidate queues ([`Deck`]). All waiting requests of a flow are in one queue: the
//! candidate with the fewest requests of other flows. (In kube-apiserver, the requests of a flow spread over all
//! candidate queues.)
//!
//! The queue with the least usage is served next. The algorithm is start-time fair queueing (Goyal, Vin and Cheng,
//! SIGCOMM 1996) for several servers (Jin, Chase and Kaur, SFQ(D), SIGMETRICS 2004), as in KEP-1040. A queue that was
//! empty starts with the least usage of all queues with waiting requests, so a flow cannot save up usage. The usage of
//! tokens is their number. The usage of slots is the time for which requests occupy the slots. Each occupied slot
//! counts one second in advance. So flows whose requests have unknown durations get equally many requests in flight.
//!
//! [`Queue`] decides the order within a queue.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::attributes::Flow;
use crate::hand::Deck;
use crate::queue::{Queue, Waiter};

/// Usage of an occupied slot that is counted in advance, and usage of one token, in nanoseconds. One second, because
/// nearly all requests take less than one second.
const ADVANCE_USAGE: u128 = 1_000_000_000;

/// Queues of one key. The queues exist only while requests of the key wait.
#[derive(Debug)]
pub(crate) struct FairQueues<W> {
    /// Distinguishes these queues from earlier and later queues of the same key.
    pub(crate) generation: u64,
    deck: Deck,
    origin: Instant,
    /// Queues by index: those with waiting requests, those whose requests occupy slots, and empty queues whose usage is
    /// above the minimum. A new queue starts with the minimum usage, so all other empty queues can be absent. A map,
    /// because most keys have one flow and few queues.
    queues: HashMap<usize, QueueWithUsage<W>>,
    waiting: usize,
    /// The queue to serve next. The choice is fixed until the first request of the queue is admitted or cancelled.
    /// Usage grows with time, so without the fixed choice the next queue could change between two events.
    selected: Option<usize>,
}

#[derive(Debug)]
struct QueueWithUsage<W> {
    used: QueueUsage,
    waiters: Queue<W>,
}

impl<W> Default for QueueWithUsage<W> {
    fn default() -> Self {
        Self { used: QueueUsage::default(), waiters: Queue::default() }
    }
}

/// Usage of a queue. The usage of slots is measured by time, in nanoseconds.
#[derive(Debug, Default)]
struct QueueUsage {
    settled: u128,
    seats: u128,
    /// Sum of the start times of all occupied slots, in nanoseconds since `origin`.
    since: u128,
}

impl QueueUsage {
    fn until(&self, now: u128) -> u128 {
        self.settled + (self.seats * now).saturating_sub(self.since)
    }

    /// Returns the usage, including the seconds that occupied slots count in advance. The queue with the smallest
    /// result is served next.
    fn with_advance(&self, now: u128) -> u128 {
        self.until(now) + self.seats * ADVANCE_USAGE
    }
}

impl<W> FairQueues<W> {
    pub(crate) fn new(generation: u64, deck: Deck, now: Instant) -> Self {
        Self { generation, deck, origin: now, queues: HashMap::new(), waiting: 0, selected: None }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the index of the queue for the next request of a flow.
    pub(crate) fn choose(&self, flow: Flow) -> usize {
        let others = |at: &usize| match self.queues.get(at) {
            // A queue in which requests of this flow already wait is preferred, even to an empty queue.
            Some(queue) if queue.waiters.has(flow) => 0,
            Some(queue) => queue.waiters.len() + 1,
            None => 1,
        };
        self.deck.deal(flow.flow_hash()).min_by_key(others).unwrap_or(0)
    }

    /// Returns the number of requests in the queue that are compared with the maximal queue length when a request of
    /// this flow arrives.
    pub(crate) fn length_for(&self, at: usize, flow: Flow) -> usize {
        self.queues.get(&at).map_or(0, |queue| queue.waiters.length_for(flow))
    }

    pub(crate) fn push(&mut self, at: usize, waiter: Waiter<W>, now: Instant) {
        if self.queues.get(&at).is_none_or(|queue| queue.waiters.is_empty()) {
            self.restart_queue(at, now);
        }
        self.queues.entry(at).or_default().waiters.push(waiter);
        self.waiting += 1;
    }

    /// Raises the usage of an empty queue to the least usage of all queues with waiting requests. Removes the empty
    /// queues whose usage is not above this minimum and whose requests occupy no slots.
    fn restart_queue(&mut self, at: usize, now: Instant) {
        let now = self.elapsed(now);
        let waiting = self.queues.values().filter(|queue| !queue.waiters.is_empty());
        let least = waiting.map(|queue| queue.used.until(now)).min().unwrap_or(0);
        self.queues
            .retain(|_, queue| !queue.waiters.is_empty() || queue.used.seats > 0 || queue.used.until(now) > least);
        let used = &mut self.queues.entry(at).or_default().used;
        used.settled += least.saturating_sub(used.until(now));
    }

    /// Returns the index of the queue to serve next, and the number of seats of its first request.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(usize, u32)> {
        self.selected = self.selected.or_else(|| self.least_used(now));
        Some((self.selected?, self.next_seats()?))
    }

    /// Returns the number of seats of the request to serve next.
    pub(crate) fn next_seats(&self) -> Option<u32> {
        Some(self.queues.get(&self.selected?)?.waiters.first()?.seats)
    }

    /// Returns the queue with the least usage. If several queues have equal usage, returns the one whose first request
    /// is the oldest.
    fn least_used(&self, now: Instant) -> Option<usize> {
        let now = self.elapsed(now);
        let waiting = self.queues.iter().filter_map(|(at, queue)| Some((*at, queue, queue.waiters.first()?)));
        let least = waiting.min_by_key(|(_, queue, first)| (queue.used.with_advance(now), first.ticket));
        least.map(|(at, ..)| at)
    }

    pub(crate) fn pop(&mut self, at: usize) -> Option<Waiter<W>> {
        let waiter = self.queues.get_mut(&at)?.waiters.pop()?;
        self.record_removal(at, true);
        Some(waiter)
    }

    /// Removes a cancelled request. Cost: linear in the length of the queue.
    pub(crate) fn remove(&mut self, at: usize, ticket: u64) -> Option<Waiter<W>> {
        let (waiter, was_first) = self.queues.get_mut(&at)?.waiters.remove(ticket)?;
        self.record_removal(at, was_first);
        Some(waiter)
    }

    /// Records that a request has left a queue. If it was the first request of the selected queue, the queue to serve
    /// next must be selected again.
    fn record_removal(&mut self, at: usize, was_first: bool) {
        self.waiting -= 1;
        if self.selected == Some(at) && was_first {
            self.selected = None;
        }
    }

    /// Records that a request from this queue was admitted and occupies slots.
    pub(crate) fn begin(&mut self, at: usize, seats: u32, now: Instant) {
        let now = self.elapsed(now);
        if let Some(QueueWithUsage { used, .. }) = self.queues.get_mut(&at) {
            used.seats += u128::from(seats);
            used.since += u128::from(seats) * now;
        }
    }

    /// Records that a request from this queue has ended and has freed its slots.
    pub(crate) fn end(&mut self, at: usize, seats: u32, since: Instant, now: Instant) {
        let (since, now) = (self.elapsed(since), self.elapsed(now));
        // The queue is still present, because a queue is not removed while its requests occupy slots.
        if let Some(QueueWithUsage { used, .. }) = self.queues.get_mut(&at) {
            used.seats -= u128::from(seats);
            used.since -= u128::from(seats) * since;
            used.settled += u128::from(seats) * now.saturating_sub(since);
        }
    }

    /// Adds the tokens that a request from this queue has spent to the queue's usage.
    pub(crate) fn spend(&mut self, at: usize, seats: u32) {
        if let Some(QueueWithUsage { used, .. }) = self.queues.get_mut(&at) {
            used.settled += u128::from(seats) * ADVANCE_USAGE;
        }
    }

    fn elapsed(&self, now: Instant) -> u128 {
        now.saturating_duration_since(self.origin).as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn deck(queues: u16, hand: u8) -> Deck {
        Deck::new(queues, hand).unwrap()
    }

    fn push(queues: &mut FairQueues<()>, flow: Flow, ticket: u64, now: Instant) -> usize {
        let at = queues.choose(flow);
        queues.push(at, Waiter { ticket, flow, seats: 1, waker: () }, now);
        at
    }

    #[test]
    fn requests_of_a_flow_stay_in_one_queue_and_other_flows_avoid_that_queue() {
        let now = Instant::now();
        let mut queues = FairQueues::new(1, Deck::default(), now);
        let flood = Flow::from_hash(0x5EED_0123_4567_89AB);
        let chosen: Vec<_> = (0..20).map(|ticket| push(&mut queues, flood, ticket, now)).collect();
        assert!(chosen.iter().all(|at| *at == chosen[0]));
        // Creates a flow whose first candidate queue is that of the flood, and whose other candidates differ. The last
        // digit of the hash selects the first candidate.
        let other = Flow::from_hash(flood.flow_hash() - flood.flow_hash() % 64 + chosen[0] as u64 + 64);
        assert_eq!(Deck::default().deal(other.flow_hash()).next(), Some(chosen[0]));
        assert_ne!(push(&mut queues, other, 20, now), chosen[0]);
        assert_eq!(queues.waiting(), 21);
    }

    #[test]
    fn flows_are_served_alternately_whatever_their_queue_lengths() {
        let now = Instant::now();
        let mut queues = FairQueues::new(1, deck(8, 1), now);
        for ticket in 0..30 {
            push(&mut queues, Flow::from_hash(if ticket < 20 { 1 } else { 2 }), ticket, now);
        }
        let mut served = Vec::new();
        while let Some((at, seats)) = queues.next(now) {
            let waiter = queues.pop(at).unwrap();
            queues.spend(at, seats);
            served.push(waiter.flow.flow_hash());
        }
        assert_eq!(served.len(), 30);
        assert!(served[..20].chunks(2).all(|pair| pair[0] != pair[1]), "{served:?}");
    }

    #[test]
    fn flows_with_long_and_short_requests_occupy_slots_for_equal_times() {
        let start = Instant::now();
        let mut queues = FairQueues::new(1, deck(8, 1), start);
        let mut ticket = 0;
        let mut ends: BTreeMap<(u64, usize), (Flow, Instant)> = BTreeMap::new();
        let mut slot_time: BTreeMap<Flow, u64> = BTreeMap::new();
        let (mut free, mut clock) = (10, 0_u64);
        let takes = |flow: Flow| if flow == Flow::from_hash(1) { 1000 } else { 10 };
        while clock < 60_000 {
            let now = start + Duration::from_millis(clock);
            for flow in [Flow::from_hash(1), Flow::from_hash(2)] {
                while queues.length_for(queues.choose(flow), flow) < 20 {
                    push(&mut queues, flow, ticket, now);
                    ticket += 1;
                }
            }
            while free > 0 {
                let (at, seats) = queues.next(now).unwrap();
                let waiter = queues.pop(at).unwrap();
                queues.begin(at, seats, now);
                ends.insert((clock + takes(waiter.flow), ticket as usize), (waiter.flow, now));
                ticket += 1;
                free -= 1;
            }
            let ((end, _), (flow, since)) = ends.pop_first().unwrap();
            clock = end;
            queues.end(queues.choose(flow), 1, since, start + Duration::from_millis(clock));
            *slot_time.entry(flow).or_default() += takes(flow);
            free += 1;
        }
        let [long, short] = [slot_time[&Flow::from_hash(1)], slot_time[&Flow::from_hash(2)]];
        assert!(long.abs_diff(short) * 10 < long, "{slot_time:?}");
    }

    #[test]
    fn flow_that_was_idle_gets_no_priority_over_active_flows() {
        let now = Instant::now();
        let mut queues = FairQueues::new(1, deck(8, 1), now);
        for ticket in 0..100 {
            push(&mut queues, Flow::from_hash(1), ticket, now);
        }
        for _ in 0..50 {
            let (at, seats) = queues.next(now).unwrap();
            queues.pop(at);
            queues.spend(at, seats);
        }
        for ticket in 100..150 {
            push(&mut queues, Flow::from_hash(2), ticket, now);
        }
        let served: Vec<_> = (0..20)
            .map(|_| {
                let (at, seats) = queues.next(now).unwrap();
                queues.spend(at, seats);
                queues.pop(at).unwrap().flow.flow_hash()
            })
            .collect();
        assert_eq!(served.iter().filter(|flow| **flow == 1).count(), 10, "{served:?}");
    }

    /// Thousands of keys may have queues, so an empty queue must not take memory.
    #[test]
    fn empty_fair_queues_are_removed() {
        let now = Instant::now();
        let mut queues = FairQueues::new(1, deck(1_024, 1), now);
        for ticket in 0..1_000 {
            let at = push(&mut queues, Flow::from_hash(ticket), ticket, now);
            queues.pop(at);
            assert_eq!(queues.queues.len(), 1);
        }
        // A queue whose request occupies a slot remains until the slot is free.
        let at = push(&mut queues, Flow::from_hash(1), 1_000, now);
        queues.pop(at);
        queues.begin(at, 1, now);
        for ticket in 2..1_000 {
            let other = push(&mut queues, Flow::from_hash(ticket), 1_000 + ticket, now);
            queues.pop(other);
        }
        assert_eq!(queues.queues.len(), 2);
        queues.end(at, 1, now, now);
        push(&mut queues, Flow::from_hash(2), 3_000, now);
        assert_eq!(queues.queues.len(), 1);
    }

    /// If a queue is empty only for a moment, it keeps its usage above the minimum.
    #[test]
    fn flow_with_one_waiting_request_at_a_time_is_not_served_more_often() {
        let now = Instant::now();
        let mut queues = FairQueues::new(1, deck(8, 1), now);
        for ticket in 0..30 {
            queues.push(1, Waiter { ticket, flow: Flow::from_hash(1), seats: 1, waker: () }, now);
        }
        let mut spent = [0_u32; 2];
        for ticket in 30..60 {
            if queues.length_for(2, Flow::from_hash(2)) == 0 {
                queues.push(2, Waiter { ticket, flow: Flow::from_hash(2), seats: 3, waker: () }, now);
            }
            let (at, seats) = queues.next(now).unwrap();
            queues.pop(at);
            queues.spend(at, seats);
            spent[at - 1] += seats;
        }
        assert!(spent[0].abs_diff(spent[1]) <= 3, "{spent:?}");
    }

    #[test]
    fn cancelled_request_is_removed_from_its_queue() {
        let now = Instant::now();
        let mut queues = FairQueues::new(1, deck(8, 1), now);
        let at = push(&mut queues, Flow::from_hash(1), 3, now);
        push(&mut queues, Flow::from_hash(1), 5, now);
        assert!(queues.remove(at, 4).is_none());
        assert_eq!(queues.remove(at, 3).map(|waiter| waiter.ticket), Some(3));
        assert_eq!((queues.waiting(), queues.pop(at).map(|waiter| waiter.ticket)), (1, Some(5)));
        assert!(queues.next(now).is_none());
    }
}
