//! Last known OpenAPI documents, for the time during which a cluster does not answer.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tributary_answers::compression;

use super::cache::{Cache, DocumentKey, EncodedDocument};
use super::fetch;
use super::join::Spelling;
use super::known::KnownMember;
use super::sources::OpenApiIndex;
use crate::topology::Cluster;

/// An answer of a cluster, marked as current or old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Freshness<T> {
    Now(T),
    /// An old answer of a cluster that does not answer now.
    Previous(T),
}

/// Function that selects one field of a [`KnownMember`].
pub(super) type OpenApiPart<T> = fn(&mut KnownMember) -> &mut Option<T>;

/// Last answers of a cluster, with the cluster's uid and address.
pub(super) struct LastAnswers {
    known: Mutex<KnownMember>,
    news: Arc<Notify>,
}

impl LastAnswers {
    /// Creates the store from the state of an earlier process, which may be empty. `news` is notified of every change.
    pub(super) fn new(known: KnownMember, news: Arc<Notify>) -> Self {
        Self { known: Mutex::new(known), news }
    }

    /// Stores an answer, or its absence. Drops the stored answers if the name now belongs to a different cluster.
    pub(super) fn set<T: PartialEq>(&self, cluster: &Cluster, part: OpenApiPart<T>, answer: Option<T>) {
        let mut known = self.known.lock();
        known.become_of(cluster);
        let before = part(&mut known);
        if *before != answer {
            *before = answer;
            self.news.notify_one();
        }
    }

    /// Returns the last answer. `None` if the name now belongs to a different cluster.
    pub(super) fn get<T: Clone>(&self, cluster: &Cluster, part: OpenApiPart<T>) -> Option<T> {
        let mut known = self.known.lock();
        if known.is_of(cluster) { part(&mut known).clone() } else { None }
    }

    pub(super) fn snapshot(&self) -> KnownMember {
        self.known.lock().clone()
    }
}

/// Last known documents of members, compressed, with a size limit.
pub(super) struct LastDocuments {
    cache: Cache,
    news: Arc<Notify>,
}

impl LastDocuments {
    /// Creates the store from the documents of an earlier process. The most recently used document comes first. `news`
    /// is notified of every new document.
    pub(super) fn new(known: Vec<(DocumentKey, Bytes)>, news: Arc<Notify>) -> Self {
        let cache = Cache::for_last_answers();
        for (key, bytes) in known.into_iter().rev() {
            cache.insert(key, EncodedDocument { bytes, gzip: true });
        }
        Self { cache, news }
    }

    /// Stores a document. A blocking thread compresses the document, because the compression takes milliseconds.
    pub(super) async fn insert(&self, path: &str, tag: &str, spelling: Spelling, bytes: Bytes) {
        let key = key(path, tag, spelling);
        if self.cache.has(&key) {
            return;
        }
        // The task fails only when the runtime ends.
        if let Ok(packed) = tokio::task::spawn_blocking(move || compression::whole(&bytes)).await {
            self.cache.insert(key, EncodedDocument { bytes: packed.into(), gzip: true });
            self.news.notify_one();
        }
    }

    pub(super) async fn find(&self, path: &str, tag: &str, spelling: Spelling) -> Option<Bytes> {
        let packed = self.cache.find(&key(path, tag, spelling))?.bytes;
        tokio::task::spawn_blocking(move || fetch::unpack(&packed)).await.ok()?.ok()
    }

    pub(super) fn has(&self, path: &str, tag: &str, spellings: &[Spelling]) -> bool {
        spellings.iter().any(|spelling| self.cache.has(&key(path, tag, *spelling)))
    }

    /// Returns the part of a cluster's list of documents that Tributary can serve while the cluster does not answer:
    /// the documents that are stored in one of these encodings.
    pub(super) fn of_index(&self, index: &OpenApiIndex, spellings: &[Spelling]) -> OpenApiIndex {
        let is_stored = |path: &str, tag: &Option<String>| {
            tag.as_ref().is_some_and(|tag| self.has(&format!("/openapi/v3/{path}"), tag, spellings))
        };
        let stored = index.0.iter().filter(|(path, tag)| is_stored(path, tag));
        OpenApiIndex(stored.map(|(path, tag)| (path.clone(), tag.clone())).collect())
    }

    pub(super) fn snapshot(&self) -> Vec<(DocumentKey, Bytes)> {
        self.cache.by_use().into_iter().map(|(key, document)| (key, document.bytes)).collect()
    }
}

fn key(path: &str, tag: &str, spelling: Spelling) -> DocumentKey {
    DocumentKey { path: path.to_owned(), tag: tag.to_owned(), spelling, gzip: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn openapi_list_of_a_silent_cluster_contains_only_stored_documents() {
        let documents = LastDocuments::new(Vec::new(), Arc::default());
        let text = Bytes::from_static(b"{\"openapi\":\"3.0.0\"}");
        documents.insert("/openapi/v3/apis/x/v1", "X", Spelling::Json, text.clone()).await;
        assert_eq!(documents.find("/openapi/v3/apis/x/v1", "X", Spelling::Json).await, Some(text));
        assert_eq!(documents.find("/openapi/v3/apis/x/v1", "Y", Spelling::Json).await, None);
        let entry = |path: &str, tag: Option<&str>| (path.to_owned(), tag.map(str::to_owned));
        let index = OpenApiIndex(
            [entry("apis/x/v1", Some("X")), entry("apis/y/v1", Some("X")), entry("apis/z/v1", None)].into(),
        );
        let stored = OpenApiIndex([entry("apis/x/v1", Some("X"))].into());
        assert_eq!(documents.of_index(&index, &[Spelling::Json, Spelling::Protobuf]), stored);
        assert_eq!(documents.of_index(&index, &[Spelling::Protobuf]), OpenApiIndex::default());
    }

    #[tokio::test]
    async fn recently_used_openapi_documents_stay_first_after_a_restart() {
        let documents = LastDocuments::new(Vec::new(), Arc::default());
        for path in ["/a", "/b"] {
            documents.insert(path, "X", Spelling::Json, Bytes::from_static(b"{}")).await;
        }
        documents.find("/a", "X", Spelling::Json).await;
        let again = LastDocuments::new(documents.snapshot(), Arc::default());
        let paths: Vec<_> = again.snapshot().into_iter().map(|(key, _)| key.path).collect();
        assert_eq!(paths, ["/a", "/b"]);
        assert_eq!(again.find("/b", "X", Spelling::Json).await, Some(Bytes::from_static(b"{}")));
    }
}
