//! Answers: objects, lists and watch streams in the form that the client asked for.

pub mod compression;
pub mod indent;
pub mod list;
pub mod object_writer;
pub mod protobuf;
pub mod watch;

pub use object_writer::{IncludeObject, ObjectWriter, Place, ResourceKind};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tributary_apimachinery::Status;

use crate::body::{self, Body};
use crate::negotiate::{Encoding, Form};

/// The size from which frames are given to the connection, in bytes.
///
/// HTTP/2 carries 400-byte frames at 144 MB/s and 64 KiB ones at 2.4 GB/s, over one connection with TLS on two cores.
pub const FRAME_BYTES: usize = 64 << 10;

/// An answer of JSON text with the headers that kube-apiserver sets on every answer.
pub fn json(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_content_type(status, Encoding::Json.content_type(), body::full(text.into()))
}

/// An answer with the headers that kube-apiserver sets on every answer.
pub fn with_content_type(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A Status as an answer.
pub fn status(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, status.to_json());
    if let Some(seconds) = status.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// JSON text in the encoding and layout that the client asked for; what was written in protobuf stays as it is. Only for
/// answers that are held whole.
pub fn whole(status: StatusCode, form: Form, text: Vec<u8>) -> Response<Body> {
    let reformatted = match form {
        Form { encoding: Encoding::Protobuf, .. } => {
            return with_content_type(status, form.encoding.content_type(), body::full(text));
        }
        Form { encoding: Encoding::Yaml, .. } => as_yaml(&text).map(String::into_bytes),
        Form { pretty: true, .. } => Some(pretty(&text)),
        _ => None,
    };
    match reformatted {
        Some(text) => with_content_type(status, form.encoding.content_type(), body::full(text)),
        None => json(status, text),
    }
}

fn as_yaml(text: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    serde_saphyr::to_string(&value).ok()
}

fn pretty(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() * 2);
    indent::Indent::default().push(text, &mut out);
    out
}

/// Whether the client takes gzip. Only the plain coding is looked for; `q=0` refuses it.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| {
            let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
            name.trim() == "gzip" && !matches!(parameters.trim(), "q=0" | "q=0.0")
        })
}
