//! Cache of encoded watch events, shared by all watches at the same log position.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use tributary_answers::negotiate::AnswerForm;
use tributary_answers::negotiate::IncludeObject;
use tributary_apimachinery::ItemResourceVersions;
use tributary_merge::SharedKey;

/// Key of an encoded event: the event, the format of the object and of its resourceVersion, the options of a Table row,
/// and the hash of the audience (the users that may list the same objects). The hash is `None` for users who may see
/// all clusters.
pub type EncodingKey = (SharedKey, AnswerForm, ItemResourceVersions, Option<RowOptions>, Option<[u8; 16]>);

/// Options with which a Table row is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowOptions {
    /// Part of the object that the row contains.
    pub include: IncludeObject,
    /// Current time for the ages in the row, in seconds since 1970.
    pub second: i64,
}

/// Cache of the newest encoded events. Each event is encoded once for all watches.
pub struct Encodings {
    bytes_max: usize,
    cached: Mutex<CachedEncodings>,
}

#[derive(Default)]
struct CachedEncodings {
    bytes: usize,
    by_key: HashMap<EncodingKey, Bytes>,
    order: VecDeque<EncodingKey>,
}

impl Encodings {
    /// Creates a cache with a maximum size in bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, cached: Mutex::default() }
    }

    /// Returns the size of the cached encodings in bytes.
    pub fn bytes(&self) -> usize {
        self.cached.lock().bytes
    }

    /// Returns the cached encoding of an event.
    pub fn get(&self, key: &EncodingKey) -> Option<Bytes> {
        self.cached.lock().by_key.get(key).cloned()
    }

    /// Caches an encoded event. Two watches may encode the same event at the same time, which is rare. Both results are
    /// equal.
    pub fn insert(&self, key: EncodingKey, made: Bytes) {
        self.cached.lock().insert(key, made, self.bytes_max);
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
