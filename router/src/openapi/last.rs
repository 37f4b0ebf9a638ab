//! What members said last of their OpenAPI documents, for the time when they do not answer.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::ask;
use super::cache::{Cache, DocumentKey, EncodedDocument};
use super::join::Spelling;
use super::sources::Index;
use crate::response::compression;
use crate::topology::Cluster;

/// What a member says, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said<T> {
    /// It answered a moment ago.
    Now(T),
    /// It does not answer; this is what it said before.
    Before(T),
}

/// What a member said last, and which cluster it was then.
pub(super) struct LastAnswer<T>(Mutex<Option<(Option<Arc<String>>, T)>>);

impl<T> Default for LastAnswer<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> LastAnswer<T> {
    /// Remembers what it said, or that it gives nothing any more.
    pub(super) fn set(&self, cluster: &Cluster, said: Option<T>) {
        *self.0.lock() = said.map(|said| (cluster.uid(), said));
    }

    /// What it said, unless another cluster has taken its place since.
    pub(super) fn get(&self, cluster: &Cluster) -> Option<T> {
        let last = self.0.lock();
        let (uid, said) = last.as_ref()?;
        (*uid == cluster.uid()).then(|| said.clone())
    }
}

/// The documents that members gave last, compressed, within a bound of bytes.
pub(super) struct LastDocuments(Cache);

impl LastDocuments {
    /// None yet.
    pub(super) fn new() -> Self {
        Self(Cache::of_last_words())
    }

    /// Keeps a document. Compressing it takes milliseconds: not the work of a thread that answers requests.
    pub(super) async fn keep(&self, path: &str, tag: &str, spelling: Spelling, bytes: Bytes) {
        let key = key(path, tag, spelling);
        if self.0.has(&key) {
            return;
        }
        // It fails only where the runtime ends.
        if let Ok(packed) = tokio::task::spawn_blocking(move || compression::whole(&bytes)).await {
            self.0.keep(key, EncodedDocument { bytes: packed.into(), gzip: true });
        }
    }

    /// A document that is kept.
    pub(super) async fn find(&self, path: &str, tag: &str, spelling: Spelling) -> Option<Bytes> {
        let packed = self.0.find(&key(path, tag, spelling))?.bytes;
        tokio::task::spawn_blocking(move || ask::unpack(&packed)).await.ok()?.ok()
    }

    /// Whether a document is kept in one of these spellings.
    pub(super) fn has(&self, path: &str, tag: &str, spellings: &[Spelling]) -> bool {
        spellings.iter().any(|spelling| self.0.has(&key(path, tag, *spelling)))
    }

    /// What of an index can be given without asking: the documents that are kept in one of these spellings.
    pub(super) fn of_index(&self, index: &Index, spellings: &[Spelling]) -> Index {
        let is_kept = |path: &str, tag: &Option<String>| {
            tag.as_ref().is_some_and(|tag| self.has(&format!("/openapi/v3/{path}"), tag, spellings))
        };
        let kept = index.0.iter().filter(|(path, tag)| is_kept(path, tag));
        Index(kept.map(|(path, tag)| (path.clone(), tag.clone())).collect())
    }
}

fn key(path: &str, tag: &str, spelling: Spelling) -> DocumentKey {
    DocumentKey { path: path.to_owned(), tag: tag.to_owned(), spelling, gzip: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_index_is_reduced_to_what_is_kept_in_the_spelling_that_is_asked_for() {
        let documents = LastDocuments::new();
        let text = Bytes::from_static(b"{\"openapi\":\"3.0.0\"}");
        documents.keep("/openapi/v3/apis/x/v1", "X", Spelling::Json, text.clone()).await;
        assert_eq!(documents.find("/openapi/v3/apis/x/v1", "X", Spelling::Json).await, Some(text));
        assert_eq!(documents.find("/openapi/v3/apis/x/v1", "Y", Spelling::Json).await, None);
        let entry = |path: &str, tag: Option<&str>| (path.to_owned(), tag.map(str::to_owned));
        let index =
            Index([entry("apis/x/v1", Some("X")), entry("apis/y/v1", Some("X")), entry("apis/z/v1", None)].into());
        let kept = Index([entry("apis/x/v1", Some("X"))].into());
        assert_eq!(documents.of_index(&index, &[Spelling::Json, Spelling::Protobuf]), kept);
        assert_eq!(documents.of_index(&index, &[Spelling::Protobuf]), Index::default());
    }
}
