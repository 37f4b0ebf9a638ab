//! Encoded watch events, shared by all watchers at the same position.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use tributary_answers::negotiate::AnswerForm;
use tributary_answers::negotiate::IncludeObject;
use tributary_apimachinery::ItemResourceVersions;
use tributary_merge::SharedKey;

/// The key of an encoding: the event, the format of its object and its version, further options of a Table's row, and
/// the key of the audience that may read it (`None` for all).
pub type EncodingKey = (SharedKey, AnswerForm, ItemResourceVersions, Option<RowOptions>, Option<[u8; 16]>);

/// Further options of a Table's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowOptions {
    /// The part of the object in the row.
    pub include: IncludeObject,
    /// The time at which the ages in the row are correct, in seconds since 1970.
    pub second: i64,
}

/// A cache of the newest encoded events. Each event is encoded once, however many watchers there are.
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
    /// A cache with a maximum size in bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// The size of the cached encodings in bytes.
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// The cached encoding of an event.
    pub fn get(&self, key: &EncodingKey) -> Option<Bytes> {
        self.kept.lock().by_key.get(key).cloned()
    }

    /// Caches an encoding. Two watchers may rarely encode the same event at once; the results are equal.
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
