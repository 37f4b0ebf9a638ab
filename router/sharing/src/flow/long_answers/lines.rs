//! Round-robin queues of waiting requests: one queue for each holder (connection or user).

use std::collections::VecDeque;

use crate::flow::holder::Holder;

/// Queues by holder, in round-robin order. No queue is empty.
#[derive(Debug)]
pub(crate) struct HolderQueues<T> {
    lines: VecDeque<HolderQueue<T>>,
    waiting: usize,
}

#[derive(Debug)]
struct HolderQueue<T> {
    holder: Holder,
    places: VecDeque<T>,
}

impl<T> Default for HolderQueues<T> {
    fn default() -> Self {
        Self { lines: VecDeque::new(), waiting: 0 }
    }
}

impl<T> HolderQueues<T> {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Appends a request to the queue of its holder. Cost: linear in the number of queues.
    pub(crate) fn push(&mut self, holder: Holder, place: T) {
        self.waiting += 1;
        match self.lines.iter_mut().find(|line| line.holder == holder) {
            Some(line) => line.places.push_back(place),
            None => self.lines.push_back(HolderQueue { holder, places: VecDeque::from([place]) }),
        }
    }

    /// Takes the first request of the first holder that satisfies `may`. The holder moves to the end of the round.
    pub(crate) fn next(&mut self, may: impl Fn(Holder) -> bool) -> Option<(Holder, T)> {
        let at = self.lines.iter().position(|line| may(line.holder))?;
        let mut line = self.lines.remove(at)?;
        let place = line.places.pop_front()?;
        self.waiting -= 1;
        let holder = line.holder;
        if !line.places.is_empty() {
            self.lines.push_back(line);
        }
        Some((holder, place))
    }

    /// Removes requests that do not satisfy `keep`. Cost: linear in the number of requests.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.lines.retain_mut(|line| {
            line.places.retain(&keep);
            !line.places.is_empty()
        });
        self.waiting = self.lines.iter().map(|line| line.places.len()).sum();
    }
}
