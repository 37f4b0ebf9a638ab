//! Those who wait, in one line for each connection. Connections are served in turn.

use std::collections::VecDeque;

use tributary_proxy::Peer;

/// The lines, the next one first. Nobody has an empty one.
#[derive(Debug)]
pub(crate) struct ConnectionQueues<T> {
    lines: VecDeque<ConnectionQueue<T>>,
    waiting: usize,
}

#[derive(Debug)]
struct ConnectionQueue<T> {
    peer: Option<Peer>,
    places: VecDeque<T>,
}

impl<T> Default for ConnectionQueues<T> {
    fn default() -> Self {
        Self { lines: VecDeque::new(), waiting: 0 }
    }
}

impl<T> ConnectionQueues<T> {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets somebody wait at the end of its connection's line. Cost: a look at each line.
    pub(crate) fn push(&mut self, peer: Option<Peer>, place: T) {
        self.waiting += 1;
        match self.lines.iter_mut().find(|line| line.peer == peer) {
            Some(line) => line.places.push_back(place),
            None => self.lines.push_back(ConnectionQueue { peer, places: VecDeque::from([place]) }),
        }
    }

    /// Takes the next who waits, of the connections that may be served now.
    /// Its connection goes to the end of the round.
    pub(crate) fn next(&mut self, may: impl Fn(Option<Peer>) -> bool) -> Option<(Option<Peer>, T)> {
        let at = self.lines.iter().position(|line| may(line.peer))?;
        let mut line = self.lines.remove(at)?;
        let place = line.places.pop_front()?;
        self.waiting -= 1;
        let peer = line.peer;
        if !line.places.is_empty() {
            self.lines.push_back(line);
        }
        Some((peer, place))
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
