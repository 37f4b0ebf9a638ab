//! How many of a schema's places to wait in each flow holds.
//!
//! A flow may hold as many as it leaves to others (Choudhury and Hahne's dynamic thresholds, with a factor of one):
//! half of them where nobody else waits. One that holds none may have the last. Each key has queues of its own, but the
//! places are those of all keys together: without this, somebody with enough keys (resources, say) would leave nobody
//! else a place to wait in. Those who have one turn together share what their flow may hold by the same rule.

use std::collections::HashMap;

use crate::attributes::Flow;

/// The places to wait in that are taken, of all keys of a schema together.
#[derive(Debug, Default)]
pub(crate) struct WaitingPlaces {
    taken: usize,
    /// By flow, and where several have one turn by each of them as well. None of nothing.
    by_flow: HashMap<Flow, usize>,
}

/// Whether whoever holds `own` of the places that are `taken` may have one more.
fn may_have_more(max: usize, taken: usize, own: usize) -> bool {
    let free = max.saturating_sub(taken);
    free > 0 && (own == 0 || own + 1 < free)
}

impl WaitingPlaces {
    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Whether one more of a flow may wait, where so many may in all.
    pub(crate) fn have_room(&self, max: usize, flow: Flow) -> bool {
        let of_all = self.waiters_of(flow.all());
        if !may_have_more(max, self.taken, of_all) {
            return false;
        }
        // What the flow may hold in all, where others hold what they do.
        let part = max.saturating_sub(self.taken - of_all).div_ceil(2);
        !flow.is_shared() || may_have_more(part, of_all, self.waiters_of(flow))
    }

    /// One more waits.
    pub(crate) fn add_waiter(&mut self, flow: Flow) {
        self.taken += 1;
        *self.by_flow.entry(flow.all()).or_default() += 1;
        if flow.is_shared() {
            *self.by_flow.entry(flow).or_default() += 1;
        }
    }

    /// One waits no longer.
    pub(crate) fn give_back(&mut self, flow: Flow) {
        self.taken = self.taken.saturating_sub(1);
        self.lower(flow.all());
        if flow.is_shared() {
            self.lower(flow);
        }
    }

    fn waiters_of(&self, flow: Flow) -> usize {
        self.by_flow.get(&flow).copied().unwrap_or(0)
    }

    fn lower(&mut self, flow: Flow) {
        if let Some(held) = self.by_flow.get_mut(&flow) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.by_flow.remove(&flow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many more of a flow may wait.
    fn fill(places: &mut WaitingPlaces, max: usize, flow: Flow) -> usize {
        let mut taken = 0;
        while places.have_room(max, flow) {
            places.add_waiter(flow);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_flow_holds_as_many_as_it_leaves_and_the_last_is_for_who_has_none() {
        let mut places = WaitingPlaces::default();
        let flow = |who: u64| Flow::from_identity(&who);
        assert_eq!([1, 2, 3, 4].map(|who| fill(&mut places, 200, flow(who))), [100, 50, 25, 12]);
        let last: usize = (5..100).map(|who| fill(&mut places, 200, flow(who))).sum();
        assert_eq!((last, places.taken()), (13, 200));
        assert!(!places.have_room(200, flow(1_000)));
        places.give_back(flow(1));
        assert!(places.have_room(200, flow(1_000)) && !places.have_room(200, flow(1)));
        // Fewer than are taken may be configured meanwhile.
        assert!(!places.have_room(10, flow(1_000)));
        for (who, held) in [(1, 99), (2, 50), (3, 25), (4, 12)] {
            (0..held).for_each(|_| places.give_back(flow(who)));
        }
        (5..100).for_each(|who| {
            while places.waiters_of(flow(who)) > 0 {
                places.give_back(flow(who));
            }
        });
        assert_eq!((places.taken(), places.by_flow.len()), (0, 0));
    }

    #[test]
    fn of_one_place_there_is_one() {
        for (max, alone) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
            assert_eq!(fill(&mut WaitingPlaces::default(), max, Flow::from_identity(&"ann")), alone, "{max}");
        }
    }

    #[test]
    fn those_who_have_one_turn_hold_together_what_one_alone_may() {
        let mut places = WaitingPlaces::default();
        let of_eu = |who: u64| Flow::of_one_among(&"eu", &who);
        assert_eq!(fill(&mut places, 200, of_eu(0)), 50, "it leaves as much to others of its member");
        let others: usize = (1..100).map(|who| fill(&mut places, 200, of_eu(who))).sum();
        assert_eq!(others, 50);
        assert_eq!(fill(&mut places, 200, Flow::from_identity(&"ann")), 50);
    }
}
