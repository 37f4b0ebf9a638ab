//! Answers in the form that the client requests: objects, lists and watch streams.

pub(crate) mod discovery;
pub(crate) mod indent;
pub(crate) mod list;
pub(crate) mod object_writer;
pub(crate) mod watch;
pub(crate) mod yaml;

pub(crate) use object_writer::{Columns, ObjectContext, ObjectWriter};

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tributary_apimachinery::Status;
use tributary_sharing::body::{self, Body};

use tributary_answers::answer::with_content_type;
use tributary_answers::compression;
use tributary_answers::negotiate::{AnswerForm, Encoding};

/// Returns kube-apiserver's answer for a path without a route: Go's `http.NotFound`.
pub(crate) fn page_not_found() -> Response<Body> {
    plain_text(StatusCode::NOT_FOUND, "404 page not found")
}

/// Returns an error as plain text, as Go's `http.Error`.
pub(crate) fn plain_text(code: StatusCode, text: &str) -> Response<Body> {
    let text = body::full(format!("{text}\n"));
    let mut response = with_content_type(code, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(crate) fn status(status: &Status, form: AnswerForm) -> Response<Body> {
    let code = code_of(status);
    let mut text = status.to_json();
    text.push(b'\n');
    let mut response = whole(code, form, text);
    if let Some(seconds) = status.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns the HTTP status code of a Status.
pub(crate) fn code_of(status: &Status) -> StatusCode {
    StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns an answer with JSON text in the requested encoding and layout. Large text is compressed if the client
/// accepts gzip. Protobuf stays unchanged. Only for answers that are complete in memory.
pub(crate) fn whole(status: StatusCode, form: AnswerForm, text: Vec<u8>) -> Response<Body> {
    let text = match form {
        AnswerForm { encoding: Encoding::Protobuf, .. } => text,
        AnswerForm { encoding: Encoding::Yaml, .. } => yaml::of_json(&text).map_or(text, String::into_bytes),
        AnswerForm { pretty: true, .. } => pretty(&text),
        _ => text,
    };
    let gzip = form.gzip && text.len() > compression::THRESHOLD_BYTES;
    let text = if gzip { compression::whole(&text) } else { text };
    let mut response = with_content_type(status, form.encoding.content_type(), body::full(text));
    if gzip {
        mark_compressed(response.headers_mut());
    }
    response
}

/// Adds the headers of a compressed body.
pub(crate) fn mark_compressed(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

fn pretty(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() * 2);
    indent::Indent::default().push(text, &mut out);
    out
}
