//! Asking one member what it serves.

use std::sync::Arc;

use http::{Request, StatusCode, header};
use tributary_proxy::Transport;

use super::model::{AGGREGATED_ACCEPT, GroupList};
use super::union::MemberDiscovery;
use crate::body::{self, BoxError};

/// Why a member's discovery is not known.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
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
pub struct Fetched {
    /// What the member serves.
    pub discovery: Arc<MemberDiscovery>,
    core_tag: Option<String>,
    named_tag: Option<String>,
}

/// Asks a member what it serves. `last` is the answer before this one.
///
/// # Errors
/// [`FetchError`] says which of the two documents failed, and how.
pub async fn fetch(transport: Transport, last: Option<Arc<Fetched>>) -> Result<Fetched, FetchError> {
    let before = last.as_deref().cloned().unwrap_or_default();
    let core = fetch_document(transport.clone(), "/api", before.core_tag.clone()).await?;
    let named = fetch_document(transport, "/apis", before.named_tag.clone()).await?;
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
    path: &'static str,
    tag: Option<String>,
) -> Result<Option<(GroupList, Option<String>)>, FetchError> {
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
    let document: GroupList = serde_json::from_slice(&text).map_err(|source| FetchError::Document { path, source })?;
    Ok(Some((document, tag)))
}
