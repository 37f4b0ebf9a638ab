//! Recognizes the deliberate differences in the answers to generated requests. Each entry of
//! `conformance/differences.rs` has a condition here.

use super::request::Request;
use crate::conformance::differences::{
    AGGREGATED_AT_A_SLASH, BOOKMARK_OBJECT, CONTENT_TYPE_OF_A_READ, Difference, EMPTY_SEGMENT, FORM_OF_A_WRITE,
    LAST_PAGE_OF_A_SELECTION, NO_INDEX_PAGE, NO_TOKEN_ISSUER, ROOT_PATHS, SERVER_ADDRESS, TOKEN_BEFORE_FIELDS,
    UNDECODABLE_QUERY, VERB_WITHOUT_RESOURCE, WARNING_OF_A_DELETE, WATCH_OF_LIST_METADATA, WRITE_TO_A_DOCUMENT,
    WRITE_TO_NOTHING,
};
use serde_json::Value;
use tributary_e2e::HttpResponse;

/// Returns a deliberate difference that affects the whole answers. `None` if the answers must be equal.
pub(super) fn of_answers(request: &Request, own: &HttpResponse, shown: &HttpResponse) -> Option<&'static Difference> {
    let path = request.path.as_str();
    let (method, codes) = (request.method.as_str(), (own.status.as_u16(), shown.status.as_u16()));
    let is_read = matches!(method, "GET" | "HEAD" | "OPTIONS");
    let is_document = is_document(path);
    let asks = |text: &str| request.query.iter().any(|option| option.contains(text));
    let accepts = |text: &str| request.header("accept").is_some_and(|accept| accept.contains(text));
    match codes {
        (_, 400) if asks(";") || asks("%zz") => Some(&UNDECODABLE_QUERY),
        (_, 404) if path.contains("//") => Some(&EMPTY_SEGMENT),
        (200 | 405 | 406 | 415, 404) if path == "/.well-known/openid-configuration" || path == "/openid/v1/jwks" => {
            Some(&NO_TOKEN_ISSUER)
        }
        (200, 404) if path == "/index.html" => Some(&NO_INDEX_PAGE),
        (500, 404) if matches!(path.trim_end_matches('/'), "/api/v1/watch" | "/api/v1/proxy") => {
            Some(&VERB_WITHOUT_RESOURCE)
        }
        (200 | 404 | 406, 405) if !is_read && is_document => Some(&WRITE_TO_A_DOCUMENT),
        (415, 200 | 406) if is_read && is_document && request.header("content-type").is_some() => {
            Some(&CONTENT_TYPE_OF_A_READ)
        }
        (400, 400) if asks("fieldSelector=") && asks("continue=") && own.text().contains("field") => {
            Some(&TOKEN_BEFORE_FIELDS).filter(|_| shown.text().contains("invalid continue token"))
        }
        (400 | 422, 400 | 404) if method == "PUT" && path.contains("/nothing") => Some(&WRITE_TO_NOTHING),
        (400 | 422, 404) if method == "DELETE" && path.contains("/nothing") => Some(&WRITE_TO_NOTHING),
        (404, 404) if method == "DELETE" && path.contains("/jobs/nothing") => Some(&WARNING_OF_A_DELETE),
        (400 | 404 | 422, 406) if !is_read && accepts("as=PartialObjectMetadataList") => Some(&FORM_OF_A_WRITE),
        (200 | 406, 200) if path == "/apis/" && accepts("APIGroupDiscoveryList") => Some(&AGGREGATED_AT_A_SLASH),
        (200, 406) if request.is_watch() && accepts("as=PartialObjectMetadataList") => Some(&WATCH_OF_LIST_METADATA),
        _ => None,
    }
}

/// Returns whether a path is a non-resource path, for example `/version`, `/apis/apps/v1` or `/openapi/v3/api/v1`.
fn is_document(path: &str) -> bool {
    let depth = path.split('/').filter(|part| !part.is_empty()).count();
    let of_group = if path.starts_with("/apis/") { 3 } else { 2 };
    depth <= of_group || path.starts_with("/openapi/") || path.starts_with("/nothing/")
}

/// Removes the parts of a body in which the servers deliberately differ.
pub(super) fn take_out(request: &Request, body: &mut Value) {
    let taken = match request.path.as_str() {
        "/" => body.get_mut("paths").and_then(Value::as_array_mut).map(|paths| {
            // The root path lists all paths of the server. Only the discovery paths are the same at both servers.
            paths.retain(|path| path.as_str().is_some_and(|path| path.starts_with("/api") && !path.ends_with('/')));
            ROOT_PATHS
        }),
        "/api" | "/api/" => body.pointer_mut("/serverAddressByClientCIDRs/0/serverAddress").map(|address| {
            *address = Value::Null;
            SERVER_ADDRESS
        }),
        _ => None,
    };
    if let Some(difference) = taken {
        tracing::debug!(?difference, "{request}");
    }
}

/// Removes the member's continue token if only the member sent a token for the last page of a selection.
pub(super) fn take_out_last_token(request: &Request, own: &mut Value, shown: &Value) {
    let selects = request.query.iter().any(|option| option.contains("Selector="));
    let has_token = |page: &Value| page["metadata"]["continue"].is_string();
    if selects
        && has_token(own)
        && !has_token(shown)
        && let Some(metadata) = own["metadata"].as_object_mut()
    {
        tracing::debug!(difference = ?LAST_PAGE_OF_A_SELECTION, "{request}");
        metadata.remove("continue");
    }
}

pub(super) fn take_out_of_bookmark(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        tracing::trace!(difference = ?BOOKMARK_OBJECT);
        object.retain(|name, _| matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
    }
}
