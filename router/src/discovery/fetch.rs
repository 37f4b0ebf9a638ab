//! Asking one member what it serves.
//!
//! A fleet has a handful of distinct documents, whatever the number of its members: one for each version of Kubernetes
//! and each set of CustomResourceDefinitions. Equal ones are read and held once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use http::{Request, StatusCode, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tributary_proxy::Transport;

use super::intake::{Root, take_in};
use super::model::{AGGREGATED_ACCEPT, GroupList};
use super::union::MemberDiscovery;
use crate::body::{self, BoxError};
use crate::flow::large_bodies::at_once;

/// Why a member's discovery is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The member did not answer.
    #[error("discovery of {path} failed")]
    Send {
        /// The path asked.
        path: &'static str,
        /// The transport's own error.
        #[source]
        source: BoxError,
    },
    /// The member answered with an error.
    #[error("discovery of {path} was answered with {status}")]
    Status {
        /// The path asked.
        path: &'static str,
        /// The status code.
        status: StatusCode,
    },
    /// The member's answer is not an aggregated discovery document.
    #[error("discovery of {path} is not an APIGroupDiscoveryList; Kubernetes 1.30 or newer is needed")]
    Document {
        /// The path asked.
        path: &'static str,
        /// What is wrong with the text.
        #[source]
        source: serde_json::Error,
    },
}

/// Documents as last fetched, with their tags, so that an unchanged one costs a 304.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fetched {
    /// What the member serves.
    pub discovery: Arc<MemberDiscovery>,
    core_tag: Option<String>,
    named_tag: Option<String>,
}

/// A root, and the digest of a text that was given there.
type DocumentKey = (Root, [u8; 32]);

/// The documents that members gave, each held once, for as long as a member has it.
#[derive(Debug, Default)]
pub(crate) struct MemberDocuments {
    /// By the root and the digest of the text. A tag would not do: a member chooses its own, and could give another's.
    by_digest: Mutex<HashMap<DocumentKey, Weak<GroupList>>>,
}

impl MemberDocuments {
    /// Reads a document, or takes the one that was read from the same text. Cost: a digest of the text, and a look at
    /// the distinct documents where it is a new one. What is left out of a new one is said in the log.
    fn read(&self, root: Root, text: &[u8]) -> Result<Arc<GroupList>, serde_json::Error> {
        let digest: DocumentKey = (root, Sha256::digest(text).into());
        if let Some(known) = self.by_digest.lock().get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let (document, left_out) = take_in(serde_json::from_slice(text)?, root);
        if let Some(left_out) = left_out {
            tracing::warn!(path = root.path(), %left_out, "the member serves more than is taken of one; it is left out");
        }
        let document = Arc::new(document);
        let mut by_digest = self.by_digest.lock();
        // Another member may have given the same meanwhile.
        if let Some(known) = by_digest.get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        by_digest.retain(|_, document| document.strong_count() > 0);
        by_digest.insert(digest, Arc::downgrade(&document));
        Ok(document)
    }
}

/// Asks a member what it serves. `last` is the answer before this one; unless `all` is set its core group is taken from
/// there.
///
/// # Errors
/// [`FetchError`] says which of the two documents failed, and how.
pub(crate) async fn fetch(
    transport: Transport,
    last: Option<Arc<Fetched>>,
    all: bool,
    documents: &MemberDocuments,
) -> Result<Fetched, FetchError> {
    let asks_core = all || last.is_none();
    let before = last.as_deref().cloned().unwrap_or_default();
    let core = match asks_core {
        true => fetch_document(transport.clone(), Root::Core, before.core_tag.clone(), documents).await?,
        false => None,
    };
    let named = fetch_document(transport, Root::Named, before.named_tag.clone(), documents).await?;
    if core.is_none() && named.is_none() {
        return Ok(before);
    }
    let (core, core_tag) = core.unwrap_or_else(|| (before.discovery.core.clone(), before.core_tag));
    let (named, named_tag) = named.unwrap_or_else(|| (before.discovery.named.clone(), before.named_tag));
    Ok(Fetched { discovery: Arc::new(MemberDiscovery { core, named }), core_tag, named_tag })
}

/// One document and its tag, or `None` if it has not changed.
async fn fetch_document(
    transport: Transport,
    root: Root,
    tag: Option<String>,
    documents: &MemberDocuments,
) -> Result<Option<(Arc<GroupList>, Option<String>)>, FetchError> {
    let path = root.path();
    let mut request = Request::get(path).header(header::ACCEPT, AGGREGATED_ACCEPT);
    if let Some(tag) = tag {
        request = request.header(header::IF_NONE_MATCH, tag);
    }
    let request = request.body(body::empty()).map_err(|source| FetchError::Send { path, source: source.into() })?;
    let answer = body::send(transport, request).await.map_err(|source| FetchError::Send { path, source })?;
    let (head, answer) = answer.into_parts();
    match head.status {
        StatusCode::OK => {}
        StatusCode::NOT_MODIFIED => return Ok(None),
        status => return Err(FetchError::Status { path, status }),
    }
    let tag = head.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let text = body::whole(answer).await.map_err(|source| FetchError::Send { path, source })?;
    let read = at_once(text.len(), || documents.read(root, &text));
    let document = read.map_err(|source| FetchError::Document { path, source })?;
    Ok(Some((document, tag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_documents_are_held_once_and_as_long_as_a_member_has_them() {
        let documents = MemberDocuments::default();
        let text = |name: &str| {
            format!(
                r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{{"metadata":{{"name":"{name}"}}}}]}}"#
            )
        };
        let one = documents.read(Root::Named, text("one").as_bytes()).unwrap();
        assert!(Arc::ptr_eq(&one, &documents.read(Root::Named, text("one").as_bytes()).unwrap()));
        let other = documents.read(Root::Named, text("other").as_bytes()).unwrap();
        assert_ne!(one, other);
        assert!(documents.read(Root::Named, b"{").is_err());
        drop((one, other));
        documents.read(Root::Named, text("third").as_bytes()).unwrap();
        assert_eq!(documents.by_digest.lock().len(), 1, "what nobody has is forgotten");
    }
}
