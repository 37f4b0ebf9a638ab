//! Answers with discovery documents.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tributary_answers::answer;
use tributary_answers::negotiate::{AnswerForm, Encoding};
use tributary_sharing::body::{self, Body};

use tributary_fleet::discovery::document::Document;
use tributary_fleet::discovery::documents::DiscoveryForm;
use tributary_fleet::discovery::model::AGGREGATED_PARAMETERS;

/// Answers with a discovery document, or 304 if the client already has the document.
pub(crate) fn answer_document(headers: &HeaderMap, document: Document, wish: DiscoveryForm) -> Response<Body> {
    if !wish.aggregated {
        // Legacy documents have no ETag, and no cache headers.
        let form = AnswerForm { encoding: wish.encoding, ..AnswerForm::JSON };
        return match wish.encoding {
            Encoding::Json => answer::json(StatusCode::OK, document.json),
            _ => super::whole(StatusCode::OK, form, document.json.to_vec()),
        };
    }
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    let unchanged = known.flat_map(|tags| tags.split(',')).any(|tag| tag.trim() == document.etag);
    let mut response = if unchanged {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let form = AnswerForm { encoding: wish.encoding, ..AnswerForm::JSON };
        let mut response = if wish.encoding == Encoding::Json {
            answer::json(StatusCode::OK, document.json)
        } else {
            super::whole(StatusCode::OK, form, document.json.to_vec())
        };
        let content_type = format!("{}{AGGREGATED_PARAMETERS}", wish.encoding.content_type());
        if let Ok(content_type) = HeaderValue::from_str(&content_type) {
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        }
        response
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&document.etag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}
