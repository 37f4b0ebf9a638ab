//! Builds requests to the member, and decodes its refusals.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, RETRY_AFTER, WARNING};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::timeout;
use tower::ServiceExt;
use tributary_apimachinery::body::{self, Body, BoxError};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{ResourceVersion, explain};

use crate::Transport;
use crate::config::{CacherConfig, ObjectRetention};
use crate::list_stream::{ListError, ListParser};
use crate::state::StaleReason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReflectorRequest {
    /// A watch that first sends the most recent state of the collection as initial events (KEP-3157).
    WatchList,
    /// A page of the collection. The first page has the most recent version.
    Page { continue_token: Option<String>, limit: u32, compressed: bool },
    /// The whole collection in one response, with the most recent version.
    Whole { compressed: bool },
    /// A list with `limit=1`. Its resourceVersion is the member's latest version.
    Latest,
    /// Like [`Latest`](Self::Latest), sent before the page with this continue token.
    LatestThenPage { continue_token: String },
    /// A watch for the events after the current version. A short watch has a small `timeoutSeconds`. It makes the
    /// member send a bookmark soon, because a bookmark precedes the end of a watch.
    Watch { short: bool },
}

impl ReflectorRequest {
    /// Returns whether the request is a list of the collection, or a page of a list.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::Page { .. } | Self::Whole { .. })
    }

    /// Returns whether the request lists the collection from the first page on.
    pub(crate) fn begins_list(&self) -> bool {
        matches!(self, Self::WatchList | Self::Page { continue_token: None, .. } | Self::Whole { .. })
    }

    /// Returns whether the request accepts gzip. Watches do not: Kubernetes 1.37 and later compress a watch as one gzip
    /// member per event, which costs more than it saves. A kube-apiserver compresses lists of more than 128 KiB, at
    /// level 1 (`deferredResponseWriter` in apiserver's `responsewriters/writers.go`).
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self, Self::Page { compressed: true, .. } | Self::Whole { compressed: true })
    }
}

/// The characters that are percent-encoded in a query: all but the unreserved characters of RFC 3986.
const QUERY_VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The maximum number of bytes that are read of the body of a refusal. A Status has a few hundred bytes.
const REFUSAL_SIZE_MAX: usize = 64 << 10;

/// The longest text of a reason, in bytes. 300: the text appears in warnings and logs.
const REASON_LENGTH_MAX: usize = 300;

/// Builds the HTTP request for `target`. A watch starts with the events after `version`.
///
/// # Errors
/// An error if the continue token does not fit into a URI.
pub(crate) fn build(
    config: &CacherConfig,
    target: &ReflectorRequest,
    version: ResourceVersion,
) -> Result<Request<Body>, http::Error> {
    let tuning = &config.tuning;
    let timeout =
        |(shortest, longest): (Duration, Duration)| rand::random_range(shortest..=longest.max(shortest)).as_secs();
    let query = match target {
        ReflectorRequest::WatchList => format!(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={}",
            timeout(tuning.watch_list_timeout)
        ),
        ReflectorRequest::Page { continue_token: None, limit, .. } => format!("limit={limit}"),
        ReflectorRequest::Page { continue_token: Some(token), limit, .. } => {
            format!("limit={limit}&continue={}", utf8_percent_encode(token, QUERY_VALUE))
        }
        ReflectorRequest::Whole { .. } => "limit=0".to_owned(),
        ReflectorRequest::Latest | ReflectorRequest::LatestThenPage { .. } => "limit=1".to_owned(),
        ReflectorRequest::Watch { short } => {
            let seconds = if *short { tuning.progress_timeout.as_secs().max(1) } else { timeout(tuning.watch_timeout) };
            format!("watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds={seconds}")
        }
    };
    Request::get(format!("{}?{query}", config.path()))
        .header(ACCEPT, HeaderValue::from_static(accept_header(config.retention, target)))
        .header(ACCEPT_ENCODING, HeaderValue::from_static(if target.is_compressed() { "gzip" } else { "identity" }))
        .body(body::empty())
}

/// Returns the `Accept` header. A server without support for metadata-only lists answers with whole objects.
fn accept_header(retention: ObjectRetention, target: &ReflectorRequest) -> &'static str {
    match (retention, target) {
        (ObjectRetention::UntilDeleted | ObjectRetention::UntilPublished, _) => "application/json",
        (ObjectRetention::MetadataUntilPublished, ReflectorRequest::Watch { .. } | ReflectorRequest::WatchList) => {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        }
        (ObjectRetention::MetadataUntilPublished, _) => {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        }
    }
}

/// A member's refusal: an HTTP status other than 200, or a Status in an ERROR event of a watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}")]
pub struct MemberError {
    /// The HTTP status code.
    pub code: u16,
    /// The refusal, as a reason why the collection is stale.
    pub reason: StaleReason,
    /// The time to wait before the next request, from the `Retry-After` header or the Status.
    pub retry_after: Option<Duration>,
    /// Whether the requested version is newer than the member's latest version.
    pub is_ahead: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawStatus {
    #[serde(deserialize_with = "null_is_default")]
    code: u16,
    #[serde(deserialize_with = "null_is_default")]
    reason: String,
    #[serde(deserialize_with = "null_is_default")]
    message: String,
    details: Option<RawDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawDetails {
    #[serde(deserialize_with = "null_is_default")]
    retry_after_seconds: u64,
    causes: Option<Vec<RawCause>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawCause {
    #[serde(deserialize_with = "null_is_default")]
    reason: String,
}

/// The type of the cause in a Status, if the requested version is newer than the member's latest version
/// (`NewTooLargeResourceVersionError` in apiserver's `pkg/storage/errors.go`).
const AHEAD: &str = "ResourceVersionTooLarge";

impl MemberError {
    /// Decodes the Status of an ERROR event, or of a response with the HTTP status code `code`.
    ///
    /// If the body is not a Status, the reason consists of the status code alone, without the text of the body.
    pub(crate) fn from_status(text: &[u8], code: Option<u16>) -> Self {
        let raw: RawStatus = serde_json::from_slice(text).unwrap_or_default();
        let code = code.unwrap_or(raw.code);
        let reason = match code {
            401 => StaleReason::Unauthorized,
            403 => StaleReason::Forbidden,
            404 => StaleReason::NotFound,
            410 => StaleReason::Expired,
            429 => StaleReason::TooManyRequests,
            _ if matches!(&*raw.reason, "Expired" | "Gone") => StaleReason::Expired,
            _ if raw.message.is_empty() => StaleReason::Other(describe(code)),
            _ => StaleReason::Other(format!("{code}: {}", shortened(&raw.message))),
        };
        let details = raw.details.unwrap_or_default();
        let retry_after = Some(details.retry_after_seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let is_ahead = code == 504 && details.causes.iter().flatten().any(|cause| cause.reason == AHEAD);
        Self { code, reason, retry_after, is_ahead }
    }

    /// Returns whether the member does not understand or support the request. A repeated request would fail as well.
    pub(crate) fn is_unsupported(&self) -> bool {
        self.reason != StaleReason::Expired && matches!(self.code, 400 | 405 | 406 | 415 | 422 | 501)
    }
}

fn describe(code: u16) -> String {
    let reason_phrase = http::StatusCode::from_u16(code).ok().and_then(|status| status.canonical_reason());
    format!("{code}: {}", reason_phrase.unwrap_or("unknown status"))
}

/// Formats an error with its causes in one line of at most [`REASON_LENGTH_MAX`] bytes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    shortened(&explain(error))
}

fn shortened(text: &str) -> String {
    let end = (0..=text.len().min(REASON_LENGTH_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].replace(['\n', '\r'], " ")
}

/// Reads the Status of a refusal. Without a Status, the reason is the status code.
pub(crate) async fn refusal(response: Response<Body>, within: Duration) -> MemberError {
    let code = response.status().as_u16();
    let retry_after = retry_after(response.headers());
    let mut text = Vec::new();
    // A body that is late or cut off is not a Status. The reason then consists of the status code alone.
    let _ = timeout(within, read_refusal(response.into_body(), &mut text)).await;
    let refusal = MemberError::from_status(&text, Some(code));
    MemberError { retry_after: retry_after.or(refusal.retry_after), ..refusal }
}

async fn read_refusal(mut body: Body, text: &mut Vec<u8>) {
    while text.len() < REFUSAL_SIZE_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        let data = frame.into_data().unwrap_or_default();
        text.extend_from_slice(&data[..data.len().min(REFUSAL_SIZE_MAX - text.len())]);
    }
}

/// Returns Retry-After in seconds. Kubernetes never sends the form with a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Returns whether the body of a response is compressed with gzip.
///
/// # Errors
/// An error with the name of the encoding, if the request did not accept the encoding. A proxy may compress a response
/// nevertheless.
pub(crate) fn is_gzip(headers: &HeaderMap, target: &ReflectorRequest) -> Result<bool, String> {
    match headers.get(CONTENT_ENCODING) {
        None => Ok(false),
        Some(encoding) if encoding.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(false),
        Some(encoding) if encoding.as_bytes().eq_ignore_ascii_case(b"gzip") && target.is_compressed() => Ok(true),
        Some(encoding) => Err(String::from_utf8_lossy(encoding.as_bytes()).into()),
    }
}

/// The maximum number of warnings of a response that are stored. Ten: a kube-apiserver sends one or two, and each
/// response to clients repeats the warnings.
const WARNINGS_MAX: usize = 10;

/// The longest warning that is stored, in bytes. 1 KiB: ten such warnings fit into the response headers that clients
/// accept by default.
const WARNING_LENGTH_MAX: usize = 1 << 10;

/// Returns the `Warning` headers with code 299, which kube-apiserver uses for messages to people, unchanged.
pub(crate) fn warnings(headers: &HeaderMap) -> Vec<HeaderValue> {
    let for_people = |value: &&HeaderValue| value.as_bytes().starts_with(b"299 ") && value.len() <= WARNING_LENGTH_MAX;
    headers.get_all(WARNING).iter().filter(for_people).take(WARNINGS_MAX).cloned().collect()
}

/// The reason why a request for a member's latest version failed.
#[derive(Debug, thiserror::Error)]
pub enum LatestError {
    /// The connection failed, or was closed early.
    #[error("the cluster cannot be reached")]
    Unreachable(#[source] BoxError),
    /// The response took longer than this time.
    #[error("the cluster did not answer within {0:?}")]
    Timeout(Duration),
    /// The member refused the request.
    #[error("the cluster refused the list")]
    Refused(#[source] MemberError),
    /// The body of the response is not a list.
    #[error("the cluster's list cannot be read")]
    Malformed(#[source] ListError),
}

/// A future that resolves to the head of a response.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

/// Sends a request once the transport is ready. Boxed because the compiler cannot infer the lifetimes of the service's
/// future.
pub(crate) fn send(transport: &Transport, request: Request<Body>) -> ResponseFuture {
    Box::pin(transport.clone().oneshot(request))
}

/// A future that resolves to the member's latest version.
pub(crate) type LatestFuture = Pin<Box<dyn Future<Output = Result<ResourceVersion, LatestError>> + Send>>;

/// Requests the member's latest version, within the answer timeout. The request is sent at the first poll.
pub(crate) fn latest(config: &CacherConfig, transport: &Transport) -> LatestFuture {
    let (within, object_size_max) = (config.tuning.answer_timeout, config.tuning.object_size_max);
    let answer =
        build(config, &ReflectorRequest::Latest, ResourceVersion::default()).map(|request| send(transport, request));
    Box::pin(async move {
        let response = read_latest(answer, within, object_size_max);
        timeout(within, response).await.unwrap_or(Err(LatestError::Timeout(within)))
    })
}

async fn read_latest(
    answer: Result<ResponseFuture, http::Error>,
    within: Duration,
    object_size_max: usize,
) -> Result<ResourceVersion, LatestError> {
    let answer = answer.map_err(|error| LatestError::Unreachable(Box::new(error)))?;
    let response = answer.await.map_err(LatestError::Unreachable)?;
    if !response.status().is_success() {
        return Err(LatestError::Refused(refusal(response, within).await));
    }
    let mut parser = ListParser::new(object_size_max);
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(LatestError::Unreachable)?.data_ref() {
            parser.push(data, |_| {}).map_err(LatestError::Malformed)?;
        }
    }
    Ok(parser.finish().map_err(LatestError::Malformed)?.resource_version)
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder};

    use super::*;
    use crate::config::ReflectorTuning;
    use crate::list_permits::ListPermits;

    fn uri(namespace: Option<&str>, target: &ReflectorRequest) -> String {
        let config = CacherConfig {
            cluster: ClusterName::new("c").unwrap(),
            resource: GroupVersionResource::new("apps", "v1", "deployments"),
            namespace: namespace.map(str::to_owned),
            decoder: ObjectDecoder::new("apps/v1", "Deployment", [].into()),
            list_permits: ListPermits::default(),
            object_memory: crate::memory_limit::ObjectMemoryLimit::unbounded(),
            precedence: crate::precedence::Precedence::default(),
            retention: crate::config::ObjectRetention::default(),
            tuning: ReflectorTuning {
                watch_timeout: (Duration::from_secs(9), Duration::from_secs(9)),
                watch_list_timeout: (Duration::from_secs(3600), Duration::from_secs(3600)),
                ..ReflectorTuning::default()
            },
        };
        let request = build(&config, target, ResourceVersion(7)).unwrap();
        let encoding = if target.is_compressed() { "gzip" } else { "identity" };
        assert_eq!(request.headers()[ACCEPT_ENCODING], encoding);
        request.uri().to_string()
    }

    #[test]
    fn list_and_watch_uris_have_the_parameters_of_the_kubernetes_api() {
        let path = "/apis/apps/v1/deployments";
        assert_eq!(
            uri(None, &ReflectorRequest::WatchList),
            format!(
                "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=3600"
            )
        );
        assert_eq!(uri(None, &ReflectorRequest::Whole { compressed: true }), format!("{path}?limit=0"));
        assert_eq!(
            uri(None, &ReflectorRequest::Page { continue_token: None, limit: 10_000, compressed: false }),
            format!("{path}?limit=10000")
        );
        assert_eq!(
            uri(
                Some("n"),
                &ReflectorRequest::Page { continue_token: Some("a+b/=_-".to_owned()), limit: 5_000, compressed: true }
            ),
            "/apis/apps/v1/namespaces/n/deployments?limit=5000&continue=a%2Bb%2F%3D_-"
        );
        assert_eq!(uri(None, &ReflectorRequest::Latest), format!("{path}?limit=1"));
        for (short, seconds) in [(false, 9), (true, 3)] {
            assert_eq!(
                uri(None, &ReflectorRequest::Watch { short }),
                format!("{path}?watch=1&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds={seconds}")
            );
        }
    }

    #[test]
    fn response_with_an_unrequested_content_encoding_is_refused() {
        let read = |encoding: &str, compressed| {
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap())]);
            is_gzip(&headers, &ReflectorRequest::Whole { compressed })
        };
        assert_eq!(is_gzip(&HeaderMap::new(), &ReflectorRequest::Whole { compressed: true }), Ok(false));
        assert_eq!((read("Identity", true), read("GZIP", true)), (Ok(false), Ok(true)));
        assert_eq!((read("gzip", false), read("br", true)), (Err("gzip".to_owned()), Err("br".to_owned())));
    }

    #[test]
    fn status_of_a_members_refusal_determines_the_reason_for_staleness() {
        let read = |text: &str, code| MemberError::from_status(text.as_bytes(), code);
        assert_eq!(read("", Some(401)).reason, StaleReason::Unauthorized);
        assert_eq!(read("{}", Some(403)).reason, StaleReason::Forbidden);
        assert_eq!(read("404 page not found", Some(404)).reason, StaleReason::NotFound);
        let expired = read(r#"{"code":410,"reason":"Expired","message":"too old resource version: 5 (100)"}"#, None);
        assert_eq!((expired.code, &expired.reason), (410, &StaleReason::Expired));
        assert!(!expired.is_unsupported());
        assert_eq!(read(r#"{"reason":"Gone"}"#, None).reason, StaleReason::Expired);
        assert_eq!(read("<html>secret</html>", Some(502)).reason, StaleReason::Other("502: Bad Gateway".to_owned()));
        let invalid = read(r#"{"code":422,"reason":"Invalid","message":"sendInitialEvents is forbidden"}"#, Some(422));
        assert_eq!(invalid.reason, StaleReason::Other("422: sendInitialEvents is forbidden".to_owned()));
        assert!(invalid.is_unsupported());
        let busy = read(r#"{"code":429,"details":{"retryAfterSeconds":4}}"#, Some(429));
        assert_eq!((busy.reason, busy.retry_after), (StaleReason::TooManyRequests, Some(Duration::from_secs(4))));
        let ahead = r#"{"code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        assert!(read(ahead, Some(504)).is_ahead);
        assert!(!read(r#"{"code":504,"reason":"Timeout","details":{}}"#, Some(504)).is_ahead);
        let nulls = r#"{"code":null,"reason":null,"message":"broken","details":{"retryAfterSeconds":null,"causes":[{"reason":null}]}}"#;
        assert_eq!(read(nulls, Some(500)).reason, StaleReason::Other("500: broken".to_owned()));
        let long = "ä".repeat(400);
        let text = format!(r#"{{"message":"{long}"}}"#);
        let StaleReason::Other(reason) = read(&text, Some(500)).reason else { panic!("another reason") };
        assert!(reason.len() <= REASON_LENGTH_MAX + 5);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("broke off: {0}")]
    struct Quoting(#[source] std::io::Error);

    #[test]
    fn error_text_contains_each_cause_once() {
        let quoting = Quoting(std::io::Error::other("reset"));
        assert_eq!(chain(&quoting), "broke off: reset");
        let error = LatestError::Unreachable(Box::new(quoting));
        assert_eq!(chain(&error), "the cluster cannot be reached: broke off: reset");
    }
}
