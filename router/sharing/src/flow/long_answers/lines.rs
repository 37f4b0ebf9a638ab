//! Waiting requests, in one queue for each holder. Holders take turns.

use std::collections::VecDeque;

use crate::flow::holder::Holder;

/// Queues of holders, the next one first. No queue is empty.
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
    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a request at the end of the queue of its holder. Cost: a look at each queue.
    pub(crate) fn push(&mut self, holder: Holder, place: T) {
        self.waiting += 1;
        match self.lines.iter_mut().find(|line| line.holder == holder) {
            Some(line) => line.places.push_back(place),
            None => self.lines.push_back(HolderQueue { holder, places: VecDeque::from([place]) }),
        }
    }

    /// Takes the next who waits, of the holders that may be served now.
    /// Its holder goes to the end of the round.
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

    /// Takes those out of the lines who are not kept. Cost: a look at each.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.lines.retain_mut(|line| {
            line.places.retain(&keep);
            !line.places.is_empty()
        });
        self.waiting = self.lines.iter().map(|line| line.places.len()).sum();
    }
}
