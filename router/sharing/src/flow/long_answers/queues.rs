//! Round-robin queues of waiting requests: one queue for each holder (connection or user).

use std::collections::VecDeque;

use crate::flow::share_key::ShareKey;

/// Queues by holder, in round-robin order. A holder without waiting requests has no queue.
#[derive(Debug)]
pub(crate) struct RoundRobinQueues<T> {
    queues: VecDeque<ClientQueue<T>>,
    waiting: usize,
}

#[derive(Debug)]
struct ClientQueue<T> {
    share_key: ShareKey,
    entries: VecDeque<T>,
}

impl<T> Default for RoundRobinQueues<T> {
    fn default() -> Self {
        Self { queues: VecDeque::new(), waiting: 0 }
    }
}

impl<T> RoundRobinQueues<T> {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Appends a request to the queue of its holder. Cost: linear in the number of queues.
    pub(crate) fn push(&mut self, share_key: ShareKey, entry: T) {
        self.waiting += 1;
        match self.queues.iter_mut().find(|line| line.share_key == share_key) {
            Some(line) => line.entries.push_back(entry),
            None => self.queues.push_back(ClientQueue { share_key, entries: VecDeque::from([entry]) }),
        }
    }

    /// Takes the first request of the first holder for which `may` is true. The holder moves to the end of the round.
    pub(crate) fn next(&mut self, may: impl Fn(ShareKey) -> bool) -> Option<(ShareKey, T)> {
        let at = self.queues.iter().position(|line| may(line.share_key))?;
        let mut line = self.queues.remove(at)?;
        let entry = line.entries.pop_front()?;
        self.waiting -= 1;
        let share_key = line.share_key;
        if !line.entries.is_empty() {
            self.queues.push_back(line);
        }
        Some((share_key, entry))
    }

    /// Removes requests that do not satisfy `keep`. Cost: linear in the number of requests.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.queues.retain_mut(|line| {
            line.entries.retain(&keep);
            !line.entries.is_empty()
        });
        self.waiting = self.queues.iter().map(|line| line.entries.len()).sum();
    }
}
