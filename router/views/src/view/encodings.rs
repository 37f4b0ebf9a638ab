//! Encoded watch events, shared by all watchers that are at the same place.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use tributary_answers::negotiate::AnswerForm;
use tributary_answers::negotiate::IncludeObject;
use tributary_apimachinery::ItemResourceVersions;
use tributary_merge::SharedKey;

/// Names one encoding: the event, the form of its object and that of its version, what a Table's row depends on
/// besides, and the key of the audience that may read it (`None` for everybody).
pub type EncodingKey = (SharedKey, AnswerForm, ItemResourceVersions, Option<RowOptions>, Option<[u8; 16]>);

/// What a Table's row depends on besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowOptions {
    /// How much of the object stands in it.
    pub include: IncludeObject,
    /// The second at which its ages are right, since 1970.
    pub second: i64,
}

/// The newest encoded events. Each event is encoded once however many watch it.
pub struct Encodings {
    bytes_max: usize,
    kept: Mutex<CachedEncodings>,
}

#[derive(Default)]
struct CachedEncodings {
    bytes: usize,
    by_key: HashMap<EncodingKey, Bytes>,
    order: VecDeque<EncodingKey>,
}

impl Encodings {
    /// Keeps at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// How many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// The encoding of this event, if somebody has made it.
    pub fn get(&self, key: &EncodingKey) -> Option<Bytes> {
        self.kept.lock().by_key.get(key).cloned()
    }

    /// Keeps an encoding for others. Two watchers may rarely make one twice; both are equal.
    pub fn insert(&self, key: EncodingKey, made: Bytes) {
        self.kept.lock().insert(key, made, self.bytes_max);
    }
}

impl CachedEncodings {
    fn insert(&mut self, key: EncodingKey, made: Bytes, bytes_max: usize) {
        if made.len() > bytes_max / 2 {
            return;
        }
        self.bytes += made.len();
        match self.by_key.insert(key, made) {
            Some(before) => self.bytes -= before.len(),
            None => self.order.push_back(key),
        }
        while self.bytes > bytes_max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.by_key.remove(&oldest).map_or(0, |bytes| bytes.len());
        }
    }
}
