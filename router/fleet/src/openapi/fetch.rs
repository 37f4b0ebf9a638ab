//! Requests for a cluster's OpenAPI documents.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Request, StatusCode, header};
use tributary_sharing::body;

use super::join::{SchemaVersion, Spelling};
use crate::topology::Cluster;

/// Maximum size of an OpenAPI document from a member, in bytes. 64 MiB: kube-apiserver's own v2 document has 2 MB, and
/// with thousands of CRDs with large schemas some ten times as much.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Maximum size of a member's list of documents, in bytes. 4 MiB: ten thousand entries, each with a path and a hash.
const INDEX_BYTES_MAX: usize = 4 << 20;

/// Time limit for a cluster's list of documents. A cluster that does not answer in time is omitted for the moment.
const INDEX_WITHIN: Duration = Duration::from_secs(3);

/// Time limit for a document, which may have megabytes on a slow network.
const DOCUMENT_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub(super) enum OpenApiFetchError {
    #[error("{0}")]
    Client(String),
    #[error("{0}")]
    Send(#[source] body::BoxError),
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the cluster answered {0}")]
    Status(StatusCode),
    #[error("the answer cannot be read: {0}")]
    Text(String),
}

impl OpenApiFetchError {
    /// Returns whether Tributary must use the last known documents of the cluster: the cluster did not answer, or
    /// answered with a 5xx or with a 429 of kube-apiserver's priority and fairness. Any other error response is an
    /// answer.
    pub(super) fn has_no_answer(&self) -> bool {
        match self {
            Self::Client(_) | Self::Send(_) | Self::Late(_) => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Text(_) => false,
        }
    }
}

pub(super) struct DocumentResponse {
    /// Entity tag of the document, without quotes.
    pub(super) tag: Option<String>,
    /// The document. `None` if the cluster answered 304, because the document has one of the tags in the request.
    pub(super) bytes: Option<Bytes>,
}

/// Requests the list of a member's v3 documents.
///
/// # Errors
/// [`OpenApiFetchError`] gives the cause.
pub(super) async fn index(cluster: &Arc<Cluster>) -> Result<Bytes, OpenApiFetchError> {
    let answer = get(cluster, "/openapi/v3", "application/json", &[], (INDEX_WITHIN, INDEX_BYTES_MAX)).await?;
    answer.bytes.ok_or(OpenApiFetchError::Status(StatusCode::NOT_MODIFIED))
}

/// Requests a document. The cluster sends no document if the document's entity tag is one of the `known` tags.
///
/// # Errors
/// [`OpenApiFetchError`] gives the cause.
pub(super) async fn document(
    cluster: &Arc<Cluster>,
    path: &str,
    (schema, spelling): (SchemaVersion, Spelling),
    known: &[String],
) -> Result<DocumentResponse, OpenApiFetchError> {
    // Servers before 1.27 accept only the media type with `@`, which is not valid in HTTP. Newer servers accept both
    // media types.
    let accept = match (schema, spelling) {
        (_, Spelling::Json) => "application/json",
        (SchemaVersion::V2, Spelling::Protobuf) => "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        (SchemaVersion::V3, Spelling::Protobuf) => "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
    };
    get(cluster, path, accept, known, (DOCUMENT_WITHIN, DOCUMENT_BYTES_MAX)).await
}

async fn get(
    cluster: &Arc<Cluster>,
    path: &str,
    accept: &'static str,
    known: &[String],
    (within, bytes_max): (Duration, usize),
) -> Result<DocumentResponse, OpenApiFetchError> {
    let transport = cluster.transport().map_err(OpenApiFetchError::Client)?;
    let mut request = Request::get(path).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, "gzip");
    if !known.is_empty() {
        let tags: Vec<_> = known.iter().map(|tag| format!("\"{tag}\"")).collect();
        request = request.header(header::IF_NONE_MATCH, tags.join(", "));
    }
    let request = request.body(body::empty()).map_err(|error| OpenApiFetchError::Send(error.into()))?;
    let response = async {
        let (head, incoming) = body::send(transport, request).await.map_err(OpenApiFetchError::Send)?.into_parts();
        let tag = head.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
        let tag = tag.map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        match head.status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(DocumentResponse { tag, bytes: None }),
            status => return Err(OpenApiFetchError::Status(status)),
        }
        let bytes = body::whole_up_to(incoming, bytes_max).await.map_err(OpenApiFetchError::Send)?;
        let compressed = head.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        let bytes = if compressed { unpacked(bytes, bytes_max).await? } else { bytes };
        Ok(DocumentResponse { tag, bytes: Some(bytes) })
    };
    tokio::time::timeout(within, response).await.map_err(|_| OpenApiFetchError::Late(within))?
}

async fn unpacked(packed: Bytes, bytes_max: usize) -> Result<Bytes, OpenApiFetchError> {
    let unpacked = tokio::task::spawn_blocking(move || unpack_up_to(&packed, bytes_max)).await;
    unpacked.unwrap_or_else(|error| Err(OpenApiFetchError::Text(error.to_string())))
}

/// Decompresses a document from gzip.
///
/// # Errors
/// [`OpenApiFetchError::Text`] for damaged data and for documents above the size limit.
pub(super) fn unpack(packed: &[u8]) -> Result<Bytes, OpenApiFetchError> {
    unpack_up_to(packed, DOCUMENT_BYTES_MAX)
}

fn unpack_up_to(packed: &[u8], bytes_max: usize) -> Result<Bytes, OpenApiFetchError> {
    let mut unpacked = Vec::new();
    let limit = bytes_max as u64 + 1;
    let read = GzDecoder::new(packed).take(limit).read_to_end(&mut unpacked);
    read.map_err(|error| OpenApiFetchError::Text(error.to_string()))?;
    if unpacked.len() > bytes_max {
        return Err(OpenApiFetchError::Text(format!("the document is larger than {bytes_max} bytes")));
    }
    Ok(unpacked.into())
}
