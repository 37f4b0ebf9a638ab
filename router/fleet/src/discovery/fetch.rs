//! Requests for a cluster's discovery documents.
//!
//! A fleet of any size has a handful of distinct documents: one for each combination of a Kubernetes version and a set
//! of CustomResourceDefinitions. Equal documents are parsed and stored once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use http::{Request, StatusCode, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::printable;
use tributary_proxy::Transport;
use tributary_sharing::body::{self, Body, BoxError};
use tributary_sharing::flow::large_bodies::at_once;

use super::intake::{Root, limit_document};
use super::merged_discovery::MemberDiscovery;
use super::model::{AGGREGATED_ACCEPT, GroupList};
use super::not_merged::Undescribed;
use super::read::{NamelessGroups, read};

/// Reason why Tributary could not read a member's discovery documents.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The member did not answer.
    #[error("discovery of {path} failed")]
    Send {
        path: &'static str,
        #[source]
        source: BoxError,
    },
    /// The member answered with an error.
    #[error("discovery of {path} was answered with {status}{}", message.as_ref().map(|message| format!(": {message}")).unwrap_or_default())]
    Status {
        path: &'static str,
        status: StatusCode,
        /// The message in the body of the answer, if the body has one.
        message: Option<String>,
    },
    /// The member's port expects TLS, but its URL begins with `http://`.
    #[error(
        "the port of the cluster uses TLS, write https:// in its URL: discovery of {path} was answered with 400 Bad \
         Request: {message}"
    )]
    PlainHttp {
        path: &'static str,
        /// The member's error message from the 400 answer.
        message: String,
    },
    /// The member's answer is not an aggregated discovery document.
    #[error("discovery of {path} is not an APIGroupDiscoveryList; Kubernetes 1.30 or newer is needed")]
    Document {
        path: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl FetchError {
    /// Returns whether the member will give the same answer until an administrator repairs a fault. A 404 may be
    /// temporary: a load balancer answers 404 while its API server starts.
    pub(crate) fn lasts(&self) -> bool {
        match self {
            Self::Send { .. } => false,
            Self::Status { status, .. } => {
                matches!(*status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED)
            }
            Self::PlainHttp { .. } | Self::Document { .. } => true,
        }
    }
}

/// Last discovery documents of a cluster with their entity tags. Tributary sends the tags, so that the cluster answers
/// 304 for an unchanged document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fetched {
    /// Resources of the cluster.
    pub discovery: Arc<MemberDiscovery>,
    core_tag: Option<String>,
    named_tag: Option<String>,
}

/// Root path of a document, and a digest of the document's text.
type TextKey = (Root, [u8; 32]);

/// Discovery documents of all clusters. Each distinct document is stored once, while at least one cluster has the
/// document.
#[derive(Debug, Default)]
pub struct MemberDocuments {
    /// Documents by path and by digest of their text. The entity tag would not be a safe key: a hostile member could
    /// send the tag of a different member's document.
    by_digest: Mutex<HashMap<TextKey, Weak<GroupList>>>,
}

impl MemberDocuments {
    /// Parses a document. If a document with the same text was parsed before, returns that document. Otherwise logs the
    /// parts of the document that exceed a limit. Costs a digest of the text, and for a new document also a pass over
    /// all distinct documents.
    fn read(&self, root: Root, text: &[u8]) -> Result<Arc<GroupList>, serde_json::Error> {
        let digest: TextKey = (root, Sha256::digest(text).into());
        if let Some(known) = self.by_digest.lock().get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let (document, nameless) = read(text)?;
        if let Some(NamelessGroups { count, first_error }) = nameless {
            tracing::warn!(
                path = root.path(),
                count,
                first_error,
                "some API groups of the cluster have no readable name; discovery omits them"
            );
        }
        let (document, left_out) = limit_document(document, root);
        for (version, why) in document.undescribed() {
            if let Undescribed::Unreadable(error) = why {
                tracing::warn!(path = root.path(), %version, error,
                    "the cluster's discovery of an API version cannot be read");
            }
        }
        if let Some(left_out) = left_out {
            tracing::warn!(path = root.path(), %left_out,
                "the discovery of the cluster exceeds the limits; the rest is omitted");
        }
        let document = Arc::new(document);
        let mut by_digest = self.by_digest.lock();
        // Another cluster may have sent the same document while this call parsed its text.
        if let Some(known) = by_digest.get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        by_digest.retain(|_, document| document.strong_count() > 0);
        by_digest.insert(digest, Arc::downgrade(&document));
        Ok(document)
    }
}

/// Requests the discovery documents of a cluster. `last` is the previous result. Unless `all` is set, the document of
/// the core group comes from `last` without a request.
///
/// # Errors
/// [`FetchError`] names the document whose request failed, and the cause.
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

/// Requests a document. Returns the document and its entity tag, or `None` if the document has not changed.
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
        status => return Err(refusal_error(path, status, read_error_message(answer).await)),
    }
    let tag = head.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let text = body::whole(answer).await.map_err(|source| FetchError::Send { path, source })?;
    let read = at_once(text.len(), || documents.read(root, &text));
    let document = read.map_err(|source| FetchError::Document { path, source })?;
    Ok(Some((document, tag)))
}

/// Start of a Go server's answer to plain HTTP on a TLS port (`badRequestError` in Go's `net/http/server.go`).
const IS_HTTPS: &str = "Client sent an HTTP request to an HTTPS server";

fn refusal_error(path: &'static str, status: StatusCode, message: Option<String>) -> FetchError {
    match message {
        Some(message) if status == StatusCode::BAD_REQUEST && message.starts_with(IS_HTTPS) => {
            FetchError::PlainHttp { path, message }
        }
        message => FetchError::Status { path, status, message },
    }
}

/// Maximum number of bytes that Tributary reads from the body of an error response. A Status object has its message
/// within this size.
const ERROR_BYTES_MAX: usize = 16 << 10;
/// Maximum length, in characters, of a member's message that Tributary quotes in an error: a few lines of a terminal.
const MESSAGE_CHARS_MAX: usize = 200;

/// Reads the message from the body of an error response: the message of a Status object, or else the first line.
async fn read_error_message(body: Body) -> Option<String> {
    let bytes = body::whole_up_to(body, ERROR_BYTES_MAX).await.ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let status: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
    let message = status.as_ref().and_then(|status| status["message"].as_str());
    let line = message.unwrap_or(&text).lines().next()?.trim();
    let shown: String = printable(line).chars().take(MESSAGE_CHARS_MAX).collect();
    // HTML or JSON would be no useful message.
    (!shown.is_empty() && !shown.starts_with('<') && !shown.starts_with('{')).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn discovery_error_quotes_the_message_of_the_member() {
        let https = "Client sent an HTTP request to an HTTPS server.\n";
        let status = r#"{"kind":"Status","message":"Unauthorized","code":401}"#;
        for (code, body, expected) in [
            (400, https, "answered with 400 Bad Request: Client sent an HTTP request to an HTTPS server."),
            (401, status, "answered with 401 Unauthorized: Unauthorized"),
            (502, "no healthy upstream", "answered with 502 Bad Gateway: no healthy upstream"),
            (502, "<html>\n<body>", "answered with 502 Bad Gateway"),
            (500, "", "answered with 500 Internal Server Error"),
            (500, "\u{1b}[31mred", "answered with 500 Internal Server Error: "),
        ] {
            let message = read_error_message(tributary_sharing::body::full(body.to_owned())).await;
            let error = refusal_error("/api", StatusCode::from_u16(code).unwrap(), message).to_string();
            let (begin, rest) = error.split_at(error.find("answered").unwrap());
            assert!(begin.ends_with("discovery of /api was "), "{error}");
            assert_eq!(begin.starts_with("the port of the cluster uses TLS, write https://"), body == https, "{error}");
            assert!(rest.starts_with(expected) && !rest.contains('\u{1b}'), "{rest}");
            assert_eq!(rest.len() > expected.len(), expected.ends_with(' '), "{rest}");
        }
        let long = read_error_message(tributary_sharing::body::full("x".repeat(1_000))).await.unwrap();
        assert_eq!(long.len(), MESSAGE_CHARS_MAX);
    }

    #[test]
    fn equal_discovery_documents_are_stored_once_while_in_use() {
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
