//! Encoded watch events, shared by all watchers that are at the same place.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use tributary_merge::SharedKey;

use crate::negotiate::Shape;

/// How many bytes of encoded events are kept, per resource. 8 MiB: a second of 1,000 events of 8 KB, and a watcher that is
/// further behind encodes for itself.
const BYTES_MAX: usize = 8 << 20;

/// Names one encoding: the event and the shape of its object.
pub type Key = (SharedKey, Shape);

/// The newest encoded events. Each event is encoded once however many watch it.
#[derive(Default)]
pub struct Encodings {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    by_key: HashMap<Key, Bytes>,
    order: VecDeque<Key>,
}

impl Encodings {
    /// The encoding of this event, if somebody has made it.
    pub fn get(&self, key: &Key) -> Option<Bytes> {
        self.kept.lock().by_key.get(key).cloned()
    }

    /// Keeps an encoding for others. Two watchers may rarely make one twice; both are equal.
    pub fn keep(&self, key: Key, made: Bytes) {
        self.kept.lock().keep(key, made);
    }
}

impl Kept {
    fn keep(&mut self, key: Key, made: Bytes) {
        if made.len() > BYTES_MAX / 2 {
            return;
        }
        self.bytes += made.len();
        match self.by_key.insert(key, made) {
            Some(before) => self.bytes -= before.len(),
            None => self.order.push_back(key),
        }
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.by_key.remove(&oldest).map_or(0, |bytes| bytes.len());
        }
    }
}
