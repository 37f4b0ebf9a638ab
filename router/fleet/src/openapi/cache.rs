//! Cache of recently used OpenAPI documents, with a size limit.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tributary_sharing::limits::{OPENAPI_BYTES, OPENAPI_LAST_BYTES};

use super::join::Spelling;

/// Identity and form of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// Path of the document at the server, for example `/openapi/v3/apis/apps/v1`.
    pub path: String,
    /// Entity tag of the content.
    pub tag: String,
    pub(crate) spelling: Spelling,
    /// Whether the document is compressed for a client that accepts gzip.
    pub gzip: bool,
}

#[derive(Clone, Debug)]
pub(super) struct EncodedDocument {
    pub(super) bytes: Bytes,
    pub(super) gzip: bool,
}

/// Cache of documents. Also contains a lock for each document that a caller is building, so that other callers wait for
/// the result.
pub(super) struct Cache {
    bytes_max: usize,
    cached: Mutex<CachedDocuments>,
    locks: Mutex<HashMap<DocumentKey, Weak<tokio::sync::Mutex<()>>>>,
}

#[derive(Default)]
struct CachedDocuments {
    by_key: HashMap<DocumentKey, (EncodedDocument, u64)>,
    bytes: usize,
    /// Number of uses of the cache so far. Each entry has the number of its last use, so the entry with the lowest
    /// number is the least recently used.
    uses: u64,
}

impl Cache {
    pub(super) fn for_responses() -> Self {
        Self::within(OPENAPI_BYTES)
    }

    pub(super) fn for_last_answers() -> Self {
        Self::within(OPENAPI_LAST_BYTES)
    }

    fn within(bytes_max: usize) -> Self {
        Self { bytes_max, cached: Mutex::default(), locks: Mutex::default() }
    }

    /// Returns whether the cache contains a document. Does not change the order of use.
    pub(super) fn has(&self, key: &DocumentKey) -> bool {
        self.cached.lock().by_key.contains_key(key)
    }

    /// Returns a cached document, and makes it the most recently used.
    pub(super) fn find(&self, key: &DocumentKey) -> Option<EncodedDocument> {
        let mut cached = self.cached.lock();
        cached.uses += 1;
        let now = cached.uses;
        let (made, used) = cached.by_key.get_mut(key)?;
        *used = now;
        Some(made.clone())
    }

    /// Returns all cached documents, the most recently used document first. Does not change the order of use.
    pub(super) fn by_use(&self) -> Vec<(DocumentKey, EncodedDocument)> {
        let cached = self.cached.lock();
        let mut all: Vec<_> = cached.by_key.iter().collect();
        all.sort_unstable_by_key(|(_, (_, used))| std::cmp::Reverse(*used));
        all.into_iter().map(|(key, (made, _))| (key.clone(), made.clone())).collect()
    }

    /// Adds a document. If the cache exceeds its limit, drops the least recently used documents.
    pub(super) fn insert(&self, key: DocumentKey, made: EncodedDocument) {
        if made.bytes.len() > self.bytes_max {
            return;
        }
        let mut cached = self.cached.lock();
        cached.uses += 1;
        let now = cached.uses;
        cached.bytes += made.bytes.len();
        if let Some((before, _)) = cached.by_key.insert(key, (made, now)) {
            cached.bytes -= before.bytes.len();
        }
        while cached.bytes > self.bytes_max {
            let oldest = cached.by_key.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some((evicted, _)) = oldest.and_then(|key| cached.by_key.remove(&key)) else { break };
            cached.bytes -= evicted.bytes.len();
        }
    }

    /// Returns the document of this key. If the document is missing, the first caller makes the document while later
    /// callers wait.
    ///
    /// # Errors
    /// The error of `make`. After an error, a waiting caller makes the document itself.
    pub(super) async fn get_or_make<E>(
        &self,
        key: DocumentKey,
        make: impl Future<Output = Result<EncodedDocument, E>>,
    ) -> Result<EncodedDocument, E> {
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let lock_of = self.lock_of(&key);
        let _held = lock_of.lock().await;
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let made = make.await?;
        self.insert(key, made.clone());
        Ok(made)
    }

    fn lock_of(&self, key: &DocumentKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock_of| lock_of.strong_count() > 0);
        if let Some(lock_of) = locks.get(key).and_then(Weak::upgrade) {
            return lock_of;
        }
        let lock_of = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&lock_of));
        lock_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tag: &str) -> DocumentKey {
        DocumentKey { path: "/openapi/v2".into(), tag: tag.into(), spelling: Spelling::Json, gzip: false }
    }

    fn made(bytes: usize) -> EncodedDocument {
        EncodedDocument { bytes: vec![0; bytes].into(), gzip: false }
    }

    #[test]
    fn least_recently_used_openapi_document_is_dropped_first() {
        let cache = Cache::for_responses();
        for tag in ["a", "b", "c"] {
            cache.insert(key(tag), made(OPENAPI_BYTES / 3));
        }
        assert!(cache.find(&key("a")).is_some());
        cache.insert(key("d"), made(OPENAPI_BYTES / 3));
        let remaining: Vec<_> =
            ["a", "b", "c", "d"].into_iter().filter(|tag| cache.find(&key(tag)).is_some()).collect();
        assert_eq!(remaining, ["a", "c", "d"]);
        cache.insert(key("huge"), made(OPENAPI_BYTES + 1));
        assert!(cache.find(&key("huge")).is_none());
        cache.insert(key("a"), made(1));
        assert_eq!(cache.cached.lock().bytes, OPENAPI_BYTES / 3 * 2 + 1);
    }

    #[tokio::test]
    async fn openapi_document_is_made_once_for_concurrent_requests() {
        let cache = Cache::for_responses();
        let count = std::sync::atomic::AtomicUsize::new(0);
        let make = || async {
            tokio::task::yield_now().await;
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok::<_, &str>(made(1))
        };
        let (one, two) = tokio::join!(cache.get_or_make(key("a"), make()), cache.get_or_make(key("a"), make()));
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1);
        let refused = cache.get_or_make(key("b"), async { Err("no") }).await;
        assert!(refused.is_err() && cache.find(&key("b")).is_none());
    }
}
