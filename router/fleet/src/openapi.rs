//! OpenAPI documents of the clusters. A document is forwarded if all clusters have the same document, and joined if the
//! documents differ.
//!
//! ```text
//! /openapi/v3            members' indexes ── joined by path ──▶ path → hash, known without reading a document
//! /openapi/v3/apis/x/v1  all have one hash ─▶ that document, as it is      kept, by hash and form, within 32 MiB
//!                        hashes differ ─────▶ the union of paths and schemas, the newest server's preferred
//! /openapi/v2            by the same rules, with entity tags as hashes
//! ```
//!
//! Tributary requests documents from clusters only because of a client's request. Documents of an unreachable cluster
//! stay available, within 16 MiB, even after a restart (`last_heard.rs`). Missing documents are omitted, and clients
//! notice the omission by a different hash. A `Warning` would be wrong: clients store these responses on disk while
//! their tags stay equal, and would repeat the Warning when the cluster is back.
//!
//! Source: kube-openapi `pkg/handler3/handler.go` and `pkg/handler/handler.go`, kube-aggregator
//! `pkg/controllers/openapiv3/aggregator`.

mod cache;
mod fetch;
mod hash_mismatches;
pub mod join;
mod known;
mod last;
mod members;
mod own;
mod sources;

pub(crate) use cache::DocumentKey;
pub(crate) use known::KnownMember;
pub(crate) use known::KnownOpenApi;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::{Timestamp, ToSpan};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tributary_answers::answer;
use tributary_answers::negotiate::{Clause, NotAcceptable, accepts_gzip};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, Door, ForeignDoors, Query};
use tributary_sharing::body::{self, Body};

use crate::topology::Fleet;
use cache::EncodedDocument;
use join::SchemaVersion;
pub(crate) use join::Spelling;
use members::{Documents, OpenApiDocument, OpenApiForm, V2_PATH};
use own::{EntryDocuments, OwnDocument};
use sources::{DocumentSources, digest};

const SPELLINGS: [Spelling; 2] = [Spelling::Json, Spelling::Protobuf];

/// Path of the index of v3 documents.
pub const V3_PATH: &str = "/openapi/v3";

const fn content_type(schema: SchemaVersion, spelling: Spelling) -> &'static str {
    match (schema, spelling) {
        (_, Spelling::Json) => "application/json",
        (SchemaVersion::V2, Spelling::Protobuf) => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        (SchemaVersion::V3, Spelling::Protobuf) => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
    }
}

/// A GET below `/openapi`.
#[derive(Clone, Copy)]
pub struct OpenApiRequest<'a> {
    /// Path of the request, relative to the root of the merged view.
    pub path: &'a str,
    /// Query of the request.
    pub query: Option<&'a str>,
    /// Headers of the request.
    pub headers: &'a HeaderMap,
    /// Way by which the client reaches the merged view. A request with an old hash gets a redirect to the current hash,
    /// or the current document if the door does not allow redirects.
    pub door: Door,
}

/// OpenAPI documents of all members, joined for clients.
pub struct OpenApi {
    documents: Documents,
}

impl OpenApi {
    /// Creates the store of the documents of the clusters in this fleet. Sends no request. `known` is the stored state
    /// of an earlier process.
    pub fn new(fleet: Arc<Fleet>, known: KnownOpenApi) -> Self {
        Self { documents: Documents::new(fleet, known) }
    }

    /// Removes the documents of a cluster whose name now belongs to a different cluster.
    pub fn forget(&self, cluster: &ClusterName) {
        self.documents.forget(cluster);
    }

    /// Returns the last known documents of the clusters.
    pub fn known_documents(&self) -> KnownOpenApi {
        self.documents.known_documents()
    }

    /// Returns a `Notify` that wakes when the last known documents change.
    pub fn news(&self) -> Arc<Notify> {
        self.documents.news()
    }

    /// Answers a GET below `/openapi`.
    ///
    /// # Errors
    /// 406 if the document is not available in an accepted media type, 503 if no member answers.
    pub async fn answer_request(&self, request: OpenApiRequest<'_>) -> Result<Response<Body>, Refusal> {
        let OpenApiRequest { path, headers, .. } = request;
        if path == V3_PATH {
            return Ok(self.index(headers).await);
        }
        let v3 = path.strip_prefix(V3_PATH).and_then(|rest| rest.strip_prefix('/'));
        let schema = match v3 {
            Some(_) => SchemaVersion::V3,
            None if path == V2_PATH => SchemaVersion::V2,
            None => return Err(Refusal::NoRoute),
        };
        if v3.is_some_and(|path| path == OwnDocument::path()) {
            return answer_with_own(request, OwnDocument::v3());
        }
        let spelling = match (spelling(schema, headers), v3) {
            (Err(_), Some(path)) if !self.documents.index(&SPELLINGS).await.contains_key(path) => return Ok(nothing()),
            (spelling, _) => spelling?,
        };
        let wish = OpenApiForm { schema, spelling, gzip: accepts_gzip(headers) };
        let document = match v3 {
            Some(path) => match self.documents.v3(path, wish).await? {
                Some(document) => document,
                None => return Ok(nothing()),
            },
            None => self.documents.v2(wish).await?,
        };
        let content_type = content_type(schema, spelling);
        Ok(match v3 {
            Some(_) => answer_with_v3(request, document, content_type),
            None => answer_with_document(headers, document, content_type, false),
        })
    }

    async fn index(&self, headers: &HeaderMap) -> Response<Body> {
        let url = |(path, sources): (String, DocumentSources)| {
            let query = sources.tag().map(|hash| format!("?hash={hash}")).unwrap_or_default();
            let entry = json!({ "serverRelativeURL": format!("{V3_PATH}/{path}{query}") });
            (path, entry)
        };
        let mut paths: Map<String, Value> = self.documents.index(&SPELLINGS).await.into_iter().map(url).collect();
        let (path, entry) = index_entry(&OwnDocument::path(), OwnDocument::v3());
        paths.insert(path, entry);
        answer_with_index(headers, &paths)
    }
}

/// Answers a GET below `/openapi` at the aggregated entry, which has documents of Tributary's own group and of the
/// groups of open doors. The documents do not depend on clusters.
///
/// # Errors
/// 404 if the entry lacks the path, 406 if the document is not available in an accepted media type.
pub fn answer_at_entry(request: OpenApiRequest<'_>, doors: &ForeignDoors) -> Result<Response<Body>, Refusal> {
    let documents = EntryDocuments::for_doors(doors);
    match request.path {
        V2_PATH => answer_with_own(request, &documents.v2),
        V3_PATH => {
            let entries = documents.v3.iter().map(|(path, document)| index_entry(path, document));
            Ok(answer_with_index(request.headers, &entries.collect()))
        }
        path => {
            let path = path.strip_prefix(V3_PATH).and_then(|rest| rest.strip_prefix('/'));
            let found = documents.v3.iter().find(|(own, _)| path == Some(own));
            answer_with_own(request, &found.ok_or(Refusal::NoRoute)?.1)
        }
    }
}

/// Returns the entry of a document in the index of v3 documents.
fn index_entry(path: &str, document: &OwnDocument) -> (String, Value) {
    let entry = json!({ "serverRelativeURL": format!("{V3_PATH}/{path}?hash={}", document.tag) });
    (path.to_owned(), entry)
}

/// Answers with an index of v3 documents, or 304 if the client already has the index.
pub fn answer_with_index(headers: &HeaderMap, paths: &Map<String, Value>) -> Response<Body> {
    let text = serde_json::to_vec(&json!({ "paths": paths })).unwrap_or_default();
    let tag = digest(&text);
    if is_known(headers, &tag) {
        return with_tag(not_modified(), &tag);
    }
    with_tag(answer::json(StatusCode::OK, text), &tag)
}

fn spelling(schema: SchemaVersion, headers: &HeaderMap) -> Result<Spelling, NotAcceptable> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let accept = if accept.trim().is_empty() { "*/*" } else { accept };
    let protobuf = content_type(schema, Spelling::Protobuf);
    // client-go requests protobuf by a media type with `@`, which is not valid in HTTP. The response has the valid
    // media type with `.`.
    let of_old = protobuf.replacen(".v1.0", "@v1.0", 1);
    let spellings =
        [("application/json", Spelling::Json), (protobuf, Spelling::Protobuf), (&of_old, Spelling::Protobuf)];
    let clauses = Clause::parse_all(accept);
    let mut found = clauses.iter().flat_map(|clause| spellings.iter().filter(|(named, _)| clause.names(named)));
    let unavailable = || NotAcceptable::Unavailable { available: vec!["application/json", protobuf] };
    found.next().map(|(_, spelling)| *spelling).ok_or_else(unavailable)
}

/// Answers with a document about Tributary's own API group, which is available in JSON only.
fn answer_with_own(request: OpenApiRequest<'_>, own: &OwnDocument) -> Result<Response<Body>, Refusal> {
    let accept = request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let json = content_type(SchemaVersion::V3, Spelling::Json);
    if !accept.trim().is_empty() && !Clause::parse_all(accept).iter().any(|clause| clause.names(json)) {
        return Err(NotAcceptable::Unavailable { available: vec![json] }.into());
    }
    let made = EncodedDocument { bytes: own.bytes.clone(), gzip: false };
    Ok(answer_with_v3(request, OpenApiDocument { made, tag: own.tag.clone() }, json))
}

/// Answers a request for a v3 document. With the current hash in the query, clients may cache the response for ever.
/// With an old hash, the response is a redirect if the door allows redirects.
fn answer_with_v3(
    request: OpenApiRequest<'_>,
    document: OpenApiDocument,
    content_type: &'static str,
) -> Response<Body> {
    let OpenApiRequest { path, headers, door, .. } = request;
    let query = Query::parse(request.query);
    match query.get("hash").filter(|hash| !hash.is_empty()) {
        Some(hash) if hash != document.tag && door.allows_redirects() => moved(path, &document.tag),
        Some(hash) if hash == document.tag => answer_with_document(headers, document, content_type, true),
        _ => answer_with_document(headers, document, content_type, false),
    }
}

fn answer_with_document(
    headers: &HeaderMap,
    document: OpenApiDocument,
    content_type: &'static str,
    named_by_hash: bool,
) -> Response<Body> {
    let OpenApiDocument { made, tag } = document;
    let mut response = if is_known(headers, &tag) {
        not_modified()
    } else {
        let mut response = answer::with_content_type(StatusCode::OK, content_type, body::full(made.bytes));
        if made.gzip {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    };
    let own = response.headers_mut();
    own.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if named_by_hash {
        // The document of a path and hash never changes, so clients may cache it for ever.
        own.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        if let Some(in_a_year) = in_a_year() {
            own.insert(header::EXPIRES, in_a_year);
        }
    }
    with_tag(response, &tag)
}

fn in_a_year() -> Option<HeaderValue> {
    let then = Timestamp::now().checked_add((365 * 24).hours()).ok()?;
    let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&then).ok()?;
    HeaderValue::from_str(&text).ok()
}

/// Returns the redirect from an old hash to the current hash of the document at this path.
pub fn moved(path: &str, tag: &str) -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("{path}?hash={tag}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    // The response must not be cached although the status is 301: the same old hash may redirect to a different
    // document tomorrow.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    with_tag(response, tag)
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    known.flat_map(|tags| tags.split(',')).any(|known| {
        let known = known.trim().trim_start_matches("W/").trim_matches('"');
        known == tag || known == "*"
    })
}

fn nothing() -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn not_modified() -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

fn with_tag(mut response: Response<Body>, tag: &str) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{tag}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openapi_encodings_are_negotiated_as_by_kube_openapi() {
        let negotiate = |schema, accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            spelling(schema, &headers).ok()
        };
        let cases = [
            (SchemaVersion::V2, "", Some(Spelling::Json)),
            (SchemaVersion::V2, "*/*", Some(Spelling::Json)),
            (SchemaVersion::V2, "application/*", Some(Spelling::Json)),
            (SchemaVersion::V2, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", Some(Spelling::Protobuf)),
            (SchemaVersion::V2, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", Some(Spelling::Protobuf)),
            (SchemaVersion::V2, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", None),
            (SchemaVersion::V3, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", Some(Spelling::Protobuf)),
            (
                SchemaVersion::V3,
                "application/json;q=0.5, application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
                Some(Spelling::Protobuf),
            ),
            (SchemaVersion::V3, "text/html, application/json", Some(Spelling::Json)),
            (SchemaVersion::V3, "text/html", None),
        ];
        for (schema, accept, expected) in cases {
            assert_eq!(negotiate(schema, accept), expected, "{accept}");
        }
    }
}
