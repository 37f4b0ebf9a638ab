//! A simulated member that answers as the test decides, and an observer that records updates.

#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::body::{Body, BoxError};
use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder, Snapshot};
use tributary_cacher::{
    Cacher, CacherConfig, CacherState, ListPermits, ObjectMemoryLimit, Precedence, ReflectorTuning, Transport, Update,
    UpdateObserver,
};

/// The simulated member: a test receives the cacher's requests and sends the responses.
pub struct Member {
    requests: mpsc::UnboundedReceiver<PendingRequest>,
}

/// A request that the test has not answered yet.
pub struct PendingRequest {
    pub uri: String,
    pub headers: HeaderMap,
    pub at: Instant,
    answer: oneshot::Sender<Result<Response<Body>, BoxError>>,
}

/// The body of a response, which the test writes. Dropping this value ends the body without an error.
pub struct Feed(mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>);

impl Member {
    /// Waits for the next request, while the paused clock advances, and returns the request.
    pub async fn next_request(&mut self) -> PendingRequest {
        tokio::time::timeout(Duration::from_secs(3600), self.requests.recv())
            .await
            .expect("no request within an hour")
            .expect("the cacher has ended")
    }

    /// Returns the next request, whose URI must contain each of the parts. A part that ends with `&` is a whole
    /// parameter, even at the end of the URI: `timeoutSeconds=3&` does not match `timeoutSeconds=300`.
    pub async fn expect(&mut self, parts: &[&str]) -> PendingRequest {
        let request = self.next_request().await;
        for part in parts {
            assert!(request.has(part), "{} should contain {part}", request.uri);
        }
        request
    }

    /// Returns whether a request has arrived, without advancing time.
    pub fn has_request(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Answers the cacher's next request, a WatchList, with these objects at `version`. The returned body continues as
    /// the watch after the initial events.
    pub async fn sync(&mut self, objects: &[String], version: u64) -> Feed {
        let feed = self.expect(&["sendInitialEvents=true"]).await.stream();
        let events: String = objects.iter().map(|object| event("ADDED", object)).collect();
        feed.send(events + &end_bookmark(version));
        feed
    }
}

impl PendingRequest {
    /// Returns whether the URI contains a part; `&` is the end of a parameter.
    pub fn has(&self, part: &str) -> bool {
        format!("{}&", self.uri).contains(part)
    }

    pub fn stream(self) -> Feed {
        self.stream_with(200)
    }

    pub fn stream_with(self, code: u16) -> Feed {
        self.stream_with_head(Response::builder().status(code))
    }

    pub fn stream_with_head(self, head: http::response::Builder) -> Feed {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let body = StreamBody::new(futures::stream::poll_fn(move |cx| receiver.poll_recv(cx))).boxed_unsync();
        self.answer.send(Ok(head.body(body).expect("a head"))).expect("the request was cancelled");
        Feed(sender)
    }

    pub fn text(self, text: impl AsRef<[u8]>) {
        self.stream().send(text);
    }

    pub fn status(self, code: u16, text: &str) {
        self.respond(Response::builder().status(code), text);
    }

    pub fn respond(self, head: http::response::Builder, text: &str) {
        let body = http_body_util::Full::new(Bytes::copy_from_slice(text.as_bytes()))
            .map_err(|never| match never {})
            .boxed_unsync();
        self.answer.send(Ok(head.body(body).expect("a head"))).expect("the request was cancelled");
    }

    pub fn refuse_connection(self) {
        self.answer.send(Err("connection refused".into())).expect("the request was cancelled");
    }

    pub async fn cancelled(mut self) {
        self.answer.closed().await;
    }
}

impl Feed {
    pub fn send(&self, text: impl AsRef<[u8]>) {
        self.0.send(Ok(Frame::data(Bytes::copy_from_slice(text.as_ref())))).expect("the request was cancelled");
    }

    pub fn cut(self) {
        self.0.send(Err("connection reset".into())).expect("the request was cancelled");
    }

    pub fn is_dropped(&self) -> bool {
        self.0.is_closed()
    }

    pub async fn dropped(&self) {
        self.0.closed().await;
    }
}

/// Receives the cacher's updates, in order.
pub struct Updates(mpsc::UnboundedReceiver<Update>);

impl Updates {
    pub async fn next(&mut self) -> Update {
        tokio::time::timeout(Duration::from_secs(3600), self.0.recv())
            .await
            .expect("no update within an hour")
            .expect("the cacher has ended")
    }

    pub fn try_next(&mut self) -> Option<Update> {
        self.0.try_recv().ok()
    }

    /// Returns the types, names and versions of the next update's changes, and its snapshot. Panics for any other
    /// update.
    pub async fn changes(&mut self) -> (Vec<(&'static str, String, u64)>, Snapshot) {
        match self.next().await {
            Update::Changes { changes, snapshot } => (
                changes
                    .iter()
                    .map(|c| (c.change_type.as_str(), c.object.name().to_owned(), c.resource_version().0))
                    .collect(),
                snapshot,
            ),
            other => panic!("not changes: {other:?}"),
        }
    }

    pub async fn synced(&mut self) -> Snapshot {
        match self.next().await {
            Update::Synced { snapshot } => snapshot,
            other => panic!("not synced: {other:?}"),
        }
    }
}

struct Forward(mpsc::UnboundedSender<Update>);

impl UpdateObserver for Forward {
    fn update(&self, update: Update) {
        let _ = self.0.send(update);
    }
}

pub fn config(tuning: ReflectorTuning) -> CacherConfig {
    CacherConfig {
        cluster: ClusterName::new("member1").expect("a name"),
        resource: GroupVersionResource::new("", "v1", "pods"),
        namespace: None,
        decoder: ObjectDecoder::new("v1", "Pod", [].into()),
        list_permits: ListPermits::default(),
        object_memory: ObjectMemoryLimit::unbounded(),
        precedence: Precedence::default(),
        retention: tributary_cacher::ObjectRetention::default(),
        tuning,
    }
}

pub fn transport() -> (Transport, Member) {
    let (sender, requests) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (answer, answered) = oneshot::channel();
        let (uri, headers) = (request.uri().to_string(), request.headers().clone());
        let _ = sender.send(PendingRequest { uri, headers, at: Instant::now(), answer });
        async move { answered.await.unwrap_or_else(|_| Err("the member is gone".into())) }
    });
    (BoxCloneSyncService::new(service), Member { requests })
}

pub fn start() -> (Cacher, Member, Updates) {
    start_with(ReflectorTuning::default())
}

pub fn start_with(tuning: ReflectorTuning) -> (Cacher, Member, Updates) {
    start_with_config(config(tuning))
}

pub fn start_with_config(config: CacherConfig) -> (Cacher, Member, Updates) {
    start_after(None, config)
}

/// Starts a cacher. With `before`, the new cacher is the successor that replaces this cacher.
pub fn start_after(before: Option<&Cacher>, config: CacherConfig) -> (Cacher, Member, Updates) {
    let (sender, updates) = mpsc::unbounded_channel();
    let (transport, member) = transport();
    (Cacher::start_after(before, config, transport, Arc::new(Forward(sender))), member, Updates(updates))
}

/// Waits until the cacher has a state for which `wanted` is true. The paused clock advances meanwhile.
pub async fn state(cacher: &Cacher, wanted: impl Fn(&CacherState) -> bool) -> CacherState {
    let mut states = cacher.states();
    let found = tokio::time::timeout(Duration::from_secs(3600), states.wait_for(|state| wanted(state))).await;
    found.unwrap_or_else(|_| panic!("still {:?}", cacher.state())).expect("the cacher has ended").clone()
}

pub fn pod(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns","uid":"uid-{name}","resourceVersion":"{version}"}}}}"#
    )
}

pub fn event(event_type: &str, object: &str) -> String {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n")
}

pub fn bookmark(version: u64) -> String {
    event("BOOKMARK", &format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}}}}"#))
}

pub fn end_bookmark(version: u64) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"Pod","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
        ),
    )
}

pub fn expired() -> String {
    event("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 5 (100)"}"#)
}

pub fn list(objects: &[String], version: u64, more: Option<&str>) -> String {
    let more = more.map(|token| format!(r#","continue":"{token}""#)).unwrap_or_default();
    format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{more}}},"items":[{}]}}"#,
        objects.join(",")
    )
}

pub fn contents(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    snapshot.iter().map(|object| (object.name().to_owned(), object.resource_version().0)).collect()
}

pub fn names(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
}
