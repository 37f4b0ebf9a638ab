//! Simulates faults of a member on command, and counts requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tributary_apimachinery::{Permit, Status};

use crate::catalog::CUSTOM_RESOURCE;
use crate::line::MemberLink;
use crate::store::MemberStore;

/// The kind of a request, for counters and rejections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// A list of a collection.
    List,
    /// A watch of a collection or object.
    Watch,
    /// A read of an object or subresource.
    Get,
    /// A create, update, patch or delete.
    Write,
    /// A request for a discovery or OpenAPI document: `/api`, `/apis`, `/openapi` and their documents.
    Discovery,
    /// Any other request: `/version`, `/healthz`, `/readyz`, unknown paths.
    Other,
}

/// An error response that the member sends instead of processing a request.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The HTTP status code of the error, for example 401, 403, 429, 500 or 503.
    pub code: u16,
    /// The duration in the `Retry-After` header; `None` for no header.
    pub retry_after: Option<Duration>,
    /// The kinds of requests that are rejected. An empty list means all kinds.
    pub kinds: Vec<RequestKind>,
    /// Whether only requests for all namespaces are rejected. This simulates a user who may list only in single
    /// namespaces.
    pub cluster_wide_only: bool,
    /// The resources (`pods`, `deployments.apps`) whose requests are rejected. An empty list means all requests,
    /// including requests for other paths.
    pub resources: Vec<String>,
}

impl Rejection {
    /// Rejects all requests with this status code.
    pub fn all(code: u16) -> Self {
        Self { code, retry_after: None, kinds: Vec::new(), cluster_wide_only: false, resources: Vec::new() }
    }

    fn applies_to(&self, kind: RequestKind, resource: &str, cluster_wide: bool) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.resources.is_empty() || self.resources.iter().any(|own| own == resource))
            && (cluster_wide || !self.cluster_wide_only)
    }
}

/// The simulated fault of the response to a write. The write itself is processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteAnswers {
    /// The response is complete, without a fault.
    #[default]
    Whole,
    /// The connection breaks after this number of bytes of the response's body.
    BrokenAfter(usize),
    /// The member sends no bytes after this number of bytes of the response's body.
    SilentAfter(usize),
}

/// Authorizes the requests to a member by the user in their headers.
pub trait Authorizer: Send + Sync {
    /// Returns the 403 Status for a forbidden request. `target` is the path and query of the request.
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status>;

    /// Returns whether a SelfSubjectAccessReview with these `resourceAttributes` is allowed.
    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool;

    /// Returns the status of a SelfSubjectRulesReview for a namespace; `None` if everything is allowed in the
    /// namespace.
    fn rules(&self, _headers: &HeaderMap, _namespace: &str) -> Option<Value> {
        None
    }

    /// Returns whether a SubjectAccessReview with this `spec` is allowed; `None` if no user may create a
    /// SubjectAccessReview.
    fn reviewed(&self, _spec: &Value) -> Option<bool> {
        Some(true)
    }
}

/// The state of a member's simulated faults, and the counters of its connections and requests.
pub(crate) struct Faults {
    pub(crate) line: Arc<MemberLink>,
    /// Each new value makes all open streams end with an error.
    pub(crate) cut: watch::Sender<u64>,
    /// Each new value makes all open watches end with an ERROR event 410.
    pub(crate) expire: watch::Sender<u64>,
    /// Each new value closes all connections.
    pub(crate) disconnect: watch::Sender<u64>,
    /// Whether the port should be open.
    pub(crate) listening: watch::Sender<bool>,
    /// Whether the port is open. The listener updates this value after a change of `listening`.
    pub(crate) listens: watch::Sender<bool>,
    /// The resources that are not served, like custom resources without a definition.
    pub(crate) unserved: watch::Sender<BTreeSet<String>>,
    /// The API groups whose aggregated API server does not answer.
    pub(crate) silent: Mutex<BTreeSet<String>>,
    /// Additional groups of the aggregated discovery document.
    pub(crate) extra_groups: Mutex<Vec<Value>>,
    /// The resources whose watches get no bookmarks, except the bookmark at the end of the initial events.
    without_bookmarks: Mutex<BTreeSet<String>>,
    /// The resources whose resourceVersions are not numbers. The value is the suffix after the number.
    opaque: Mutex<BTreeMap<String, String>>,
    /// The delay of watch events after a write, in milliseconds.
    watch_lag: AtomicU64,
    ready: AtomicBool,
    pub(crate) broken_openapi: AtomicBool,
    pub(crate) forged_openapi: AtomicBool,
    cut_after: AtomicU64,
    bytes_per_second: AtomicU64,
    request_timeout: Mutex<Option<Duration>>,
    gzip_watches: AtomicBool,
    write_answers: Mutex<WriteAnswers>,
    kubelets_refuse: AtomicBool,
    /// The kind of requests with an endless response body; `None` for no fault.
    endless: Mutex<Option<RequestKind>>,
    rejection: Mutex<Option<Rejection>>,
    authorizer: Mutex<Option<Arc<dyn Authorizer>>>,
    /// The duration of a SubjectAccessReview, in milliseconds.
    review_lag: AtomicU64,
    /// Whether writes are rejected, independently of `rejection`.
    read_only: AtomicBool,
    /// The bearer tokens that are accepted besides the member's own token, each with the rejection of its requests.
    tokens: Mutex<BTreeMap<String, Option<Rejection>>>,
    /// Whether the member delays responses to lists and to watches with initial events until the value is false.
    pub(crate) lists_delayed: watch::Sender<bool>,
    /// Whether the member delays responses to `/readyz` until the value is false.
    pub(crate) readyz_delayed: watch::Sender<bool>,
    /// Whether the member delays all requests until the value is false.
    pub(crate) requests_delayed: watch::Sender<bool>,
    requests: Mutex<BTreeMap<(RequestKind, String), u64>>,
    log: Mutex<Vec<String>>,
    listed: Mutex<Vec<Listed>>,
    open_watches: AtomicI64,
    open_connections: AtomicI64,
}

/// A logged request that read all objects of a resource. Either the first page of a list of all namespaces at the
/// current state, or a watch with initial events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The resource (`pods`, `deployments.apps`).
    pub resource: String,
    /// The `limit` of the request; 0 for no limit.
    pub limit: usize,
    /// The resourceVersion of the response, as a number.
    pub revision: u64,
}

/// The maximum number of logged requests. It is enough for any test, and limits the memory of a demo that runs for
/// days.
const LOG_MAX: usize = 10_000;

impl Faults {
    pub(crate) fn new() -> Self {
        Self {
            line: Arc::default(),
            cut: watch::Sender::new(0),
            expire: watch::Sender::new(0),
            disconnect: watch::Sender::new(0),
            listening: watch::Sender::new(true),
            listens: watch::Sender::new(false),
            unserved: watch::Sender::new(BTreeSet::from([CUSTOM_RESOURCE.to_owned()])),
            silent: Mutex::default(),
            extra_groups: Mutex::default(),
            // kube-apiserver's watch cache excludes Events (`DefaultWatchCacheSizes`). Watches of Events get no
            // bookmarks, because bookmarks come from the watch cache.
            without_bookmarks: Mutex::new(["events".to_owned()].into()),
            opaque: Mutex::default(),
            watch_lag: AtomicU64::new(0),
            review_lag: AtomicU64::new(0),
            ready: AtomicBool::new(true),
            broken_openapi: AtomicBool::new(false),
            forged_openapi: AtomicBool::new(false),
            cut_after: AtomicU64::new(u64::MAX),
            bytes_per_second: AtomicU64::new(0),
            request_timeout: Mutex::default(),
            gzip_watches: AtomicBool::new(false),
            write_answers: Mutex::default(),
            kubelets_refuse: AtomicBool::new(false),
            endless: Mutex::default(),
            rejection: Mutex::default(),
            authorizer: Mutex::default(),
            read_only: AtomicBool::new(false),
            tokens: Mutex::default(),
            lists_delayed: watch::Sender::new(false),
            readyz_delayed: watch::Sender::new(false),
            requests_delayed: watch::Sender::new(false),
            requests: Mutex::default(),
            log: Mutex::default(),
            listed: Mutex::default(),
            open_watches: AtomicI64::new(0),
            open_connections: AtomicI64::new(0),
        }
    }

    pub(crate) fn cut_after(&self) -> Option<u64> {
        Some(self.cut_after.load(Ordering::SeqCst)).filter(|&bytes| bytes != u64::MAX)
    }

    pub(crate) fn is_unserved(&self, resource: &str) -> bool {
        self.unserved.borrow().contains(resource)
    }

    /// Returns whether the aggregated API server of a resource (`deployments.apps`) does not answer.
    pub(crate) fn is_silent(&self, resource: &str) -> bool {
        resource.split_once('.').is_some_and(|(_, group)| self.silent.lock().contains(group))
    }

    pub(crate) fn has_bookmarks(&self, resource: &str) -> bool {
        !self.without_bookmarks.lock().contains(resource)
    }

    /// Returns the suffix of a resource's resourceVersions; `None` for plain numbers.
    pub(crate) fn opaque_suffix(&self, resource: &str) -> Option<String> {
        self.opaque.lock().get(resource).cloned()
    }

    pub(crate) fn watch_lag(&self) -> Duration {
        Duration::from_millis(self.watch_lag.load(Ordering::SeqCst))
    }

    /// Waits while `delayed` is true.
    pub(crate) async fn released(&self, delayed: &watch::Sender<bool>) {
        // The member owns the sender, so the channel stays open.
        let _ = delayed.subscribe().wait_for(|delayed| !delayed).await;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    pub(crate) fn bytes_per_second(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Ordering::SeqCst)).filter(|&speed| speed != 0)
    }

    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        *self.request_timeout.lock()
    }

    pub(crate) fn gzip_watches(&self) -> bool {
        self.gzip_watches.load(Ordering::SeqCst)
    }

    pub(crate) fn write_answers(&self) -> WriteAnswers {
        *self.write_answers.lock()
    }

    pub(crate) fn kubelets_refuse(&self) -> bool {
        self.kubelets_refuse.load(Ordering::SeqCst)
    }

    pub(crate) fn is_endless(&self, kind: RequestKind) -> bool {
        *self.endless.lock() == Some(kind)
    }

    /// Returns the configured rejection of a request of this kind, for this resource; `None` if the request is allowed.
    pub(crate) fn rejection(&self, kind: RequestKind, resource: &str, cluster_wide: bool) -> Option<Rejection> {
        let read_only = kind == RequestKind::Write && self.read_only.load(Ordering::SeqCst);
        let rejection = || self.rejection.lock().clone().filter(|own| own.applies_to(kind, resource, cluster_wide));
        if read_only { Some(Rejection::all(503)) } else { rejection() }
    }

    pub(crate) fn review_lag(&self) -> Duration {
        Duration::from_millis(self.review_lag.load(Ordering::SeqCst))
    }

    pub(crate) fn authorizer(&self) -> Option<Arc<dyn Authorizer>> {
        self.authorizer.lock().clone()
    }

    /// Returns whether the token is accepted, and the configured rejection of a request with this token.
    pub(crate) fn token(
        &self,
        token: &str,
        kind: RequestKind,
        resource: &str,
        cluster_wide: bool,
    ) -> (bool, Option<Rejection>) {
        match self.tokens.lock().get(token) {
            None => (false, None),
            Some(rejection) => {
                (true, rejection.clone().filter(|rejection| rejection.applies_to(kind, resource, cluster_wide)))
            }
        }
    }

    pub(crate) fn count(&self, kind: RequestKind, resource: &str, line: String) {
        *self.requests.lock().entry((kind, resource.to_owned())).or_default() += 1;
        let mut log = self.log.lock();
        if log.len() < LOG_MAX {
            log.push(line);
        }
    }

    pub(crate) fn log_list(&self, list: Listed) {
        let mut listed = self.listed.lock();
        if listed.len() < LOG_MAX {
            listed.push(list);
        }
    }

    pub(crate) fn watch_opened(self: &Arc<Self>) -> Permit {
        self.counted(|faults| &faults.open_watches)
    }

    pub(crate) fn connection_opened(self: &Arc<Self>) -> Permit {
        self.counted(|faults| &faults.open_connections)
    }

    fn counted(self: &Arc<Self>, gauge: fn(&Self) -> &AtomicI64) -> Permit {
        gauge(self).fetch_add(1, Ordering::SeqCst);
        let faults = self.clone();
        Permit::new(move || {
            gauge(&faults).fetch_sub(1, Ordering::SeqCst);
        })
    }
}

/// Controls the faults of a running member, and reads its counters. A clone is cheap. Changes apply immediately.
#[derive(Clone)]
pub struct Control {
    pub(crate) faults: Arc<Faults>,
    pub(crate) store: Arc<MemberStore>,
}

impl Control {
    /// Ends all open streams (watches, lists and logs) with an error: RST_STREAM in HTTP/2, an incomplete chunked body
    /// in HTTP/1.1.
    pub fn cut_streams(&self) {
        self.faults.cut.send_modify(|count| *count += 1);
    }

    /// Cuts each new list, watch or log after exactly `bytes` bytes of its body. `None` ends the fault.
    pub fn cut_streams_after(&self, bytes: Option<u64>) {
        self.faults.cut_after.store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Closes all connections without GOAWAY. The member accepts new connections.
    pub fn disconnect(&self) {
        self.faults.disconnect.send_modify(|count| *count += 1);
    }

    /// Empties the watch window. Then a new watch from an older version gets an ERROR event 410, and older continue
    /// tokens and exact versions fail as too old. Open watches continue.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// Calls [`compact`](Self::compact), and ends all open watches with an ERROR event 410.
    pub fn expire_watches(&self) {
        self.store.compact();
        self.faults.expire.send_modify(|count| *count += 1);
    }

    /// Limits each stream to this number of bytes per second, in ten chunks per second. `None` ends the fault.
    pub fn slow(&self, bytes_per_second: Option<u64>) {
        self.faults.bytes_per_second.store(bytes_per_second.unwrap_or(0), Ordering::SeqCst);
    }

    /// Cuts each new list, including pages, after this time, like a kube-apiserver after its `--request-timeout`.
    /// `None` ends the fault. With a time limit, pages are also limited by [`slow`](Self::slow).
    pub fn request_timeout(&self, limit: Option<Duration>) {
        *self.faults.request_timeout.lock() = limit;
    }

    /// Returns to an older revision, like an etcd that is restored from a snapshot. Later changes are undone, and their
    /// revisions are assigned again. Streams are cut, and the watch window is emptied. Returns false if `revision` is
    /// outside the watch window.
    pub fn restore(&self, revision: u64) -> bool {
        let restored = self.store.restore(revision);
        if restored {
            self.cut_streams();
        }
        restored
    }

    /// Gives the namespace kube-system a new uid, as if a new cluster had the old address.
    pub fn new_incarnation(&self) {
        self.store.new_incarnation();
    }

    /// Becomes a new cluster under the same address: written objects are gone, revisions begin at `revision` (at the
    /// member's first one, if that is higher), and the namespace kube-system has a new uid. Closes all connections.
    /// Requests that the member has received may still be applied: to prevent this, call
    /// [`stop_listening`](Self::stop_listening) a moment before.
    pub fn replace(&self, revision: u64) {
        self.store.replace(revision);
        self.cut_streams();
        self.disconnect();
    }

    /// Sets whether a resource (`pods`, `deployments.apps`) is served, as if its definition were created or deleted. A
    /// resource that is not served is missing in discovery, its paths return 404 (503 while the member is not
    /// [`ready`](Self::ready)), and its watches end. Its objects stay stored. `networksets.projectcalico.org` is the
    /// only resource that is not served at the start.
    pub fn serve(&self, resource: &str, on: bool) {
        self.faults.unserved.send_modify(|unserved| {
            if on {
                unserved.remove(resource);
            } else {
                unserved.insert(resource.to_owned());
            }
        });
    }

    /// Sets whether the aggregated API server of a group (`apps`) answers. While the server does not answer, discovery
    /// marks the group as stale, and requests for its resources return 503. Open watches continue.
    pub fn serve_group(&self, group: &str, on: bool) {
        let mut silent = self.faults.silent.lock();
        if on {
            silent.remove(group);
        } else {
            silent.insert(group.to_owned());
        }
    }

    /// Adds groups to the aggregated document of `/apis`, without validation. The paths of these groups return 404.
    pub fn describe(&self, groups: Vec<Value>) {
        *self.faults.extra_groups.lock() = groups;
    }

    /// Sets whether watches of a resource (`pods`, `deployments.apps`) get bookmarks. Events have no bookmarks by
    /// default, because a kube-apiserver has no watch cache for Events. The bookmark at the end of the initial events
    /// is always sent.
    pub fn bookmarks(&self, resource: &str, on: bool) {
        let mut without_bookmarks = self.faults.without_bookmarks.lock();
        if on {
            without_bookmarks.remove(resource);
        } else {
            without_bookmarks.insert(resource.to_owned());
        }
    }

    /// Appends a suffix to the resourceVersions of a resource (`pods`, `deployments.apps`), like an aggregated API
    /// server. With an empty suffix, objects have no resourceVersion. `None` restores plain numbers.
    pub fn opaque_versions(&self, resource: &str, suffix: Option<&str>) {
        let mut opaque = self.faults.opaque.lock();
        match suffix {
            Some(suffix) => opaque.insert(resource.to_owned(), suffix.to_owned()),
            None => opaque.remove(resource),
        };
    }

    /// Delays the events of each write in all watches by this time; zero ends the fault. Lists are not delayed and
    /// contain all writes.
    pub fn lag_watches(&self, lag: Duration) {
        self.faults.watch_lag.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets whether `/readyz` reports success. A member that is not ready still answers all other requests.
    pub fn ready(&self, on: bool) {
        self.faults.ready.store(on, Ordering::SeqCst);
    }

    /// Sets whether the OpenAPI v3 documents are truncated. Their hashes are those of the truncated documents.
    pub fn break_openapi(&self, on: bool) {
        self.faults.broken_openapi.store(on, Ordering::SeqCst);
    }

    /// Sets whether the member serves forged OpenAPI v3 documents under the hashes of the original documents.
    pub fn forge_openapi(&self, on: bool) {
        self.faults.forged_openapi.store(on, Ordering::SeqCst);
    }

    /// Sets whether new watches are compressed for clients that accept gzip, one gzip member per flush (Kubernetes ≥
    /// 1.37).
    pub fn gzip_watches(&self, on: bool) {
        self.faults.gzip_watches.store(on, Ordering::SeqCst);
    }

    /// Sets the fault of responses to writes. The member processes the writes.
    pub fn answer_writes(&self, answers: WriteAnswers) {
        *self.faults.write_answers.lock() = answers;
    }

    /// Answers requests of this kind with 200 and an endless body of space characters. The requests are not processed.
    /// `None` ends the fault.
    pub fn answer_endlessly(&self, kind: Option<RequestKind>) {
        *self.faults.endless.lock() = kind;
    }

    /// Sets whether kubelets reject the member's own credentials. Requests for logs then return 401, which a
    /// kube-apiserver forwards from the kubelet.
    pub fn refuse_at_kubelets(&self, on: bool) {
        self.faults.kubelets_refuse.store(on, Ordering::SeqCst);
    }

    /// Rejects all requests that `rejection` describes. `None` ends the fault.
    pub fn reject(&self, rejection: Option<Rejection>) {
        *self.faults.rejection.lock() = rejection;
    }

    /// Sets the authorizer of requests. `None` allows all requests.
    pub fn authorize(&self, authorizer: Option<Arc<dyn Authorizer>>) {
        *self.faults.authorizer.lock() = authorizer;
    }

    /// Delays the response to each SubjectAccessReview, like a slow webhook.
    pub fn lag_reviews(&self, lag: Duration) {
        self.faults.review_lag.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets whether all writes are rejected with 503, independently of other rejections. Writes through the Rust API
    /// are not affected.
    pub fn read_only(&self, on: bool) {
        self.faults.read_only.store(on, Ordering::SeqCst);
    }

    /// Accepts an additional bearer token. Requests with this token get the error `rejection`, like requests of a user
    /// with fewer rights. Open watches continue after a change of the rejection, because rights are checked only at the
    /// beginning of a request.
    pub fn accept(&self, token: &str, rejection: Option<Rejection>) {
        self.faults.tokens.lock().insert(token.to_owned(), rejection);
    }

    /// Starts (`true`) or ends (`false`) a delay of all responses to `/readyz`, as if the etcd of a kube-apiserver
    /// hung. The member answers all other requests.
    pub fn hold_readyz(&self, on: bool) {
        self.faults.readyz_delayed.send_replace(on);
    }

    /// Starts (`true`) or ends (`false`) a delay of all requests, as at a load balancer without a backend. The member
    /// accepts connections and answers PING. Open watches continue.
    pub fn hold_requests(&self, on: bool) {
        self.faults.requests_delayed.send_replace(on);
    }

    /// Starts (`true`) or ends (`false`) a delay of the responses to lists and to watches with initial events.
    pub fn hold_lists(&self, on: bool) {
        self.faults.lists_delayed.send_replace(on);
    }

    /// Sets whether the member is silent. A silent member accepts connections and closes none, but reads and writes no
    /// byte, including TLS handshakes and HTTP/2 PING.
    pub fn half_open(&self, on: bool) {
        self.faults.line.set_silent(on);
    }

    /// Closes the port and all connections. Returns when the system refuses new connections.
    pub async fn stop_listening(&self) {
        self.set_listening(false).await;
    }

    /// Opens the previous port again. Returns when the member accepts connections.
    pub async fn start_listening(&self) {
        self.set_listening(true).await;
    }

    async fn set_listening(&self, on: bool) {
        self.faults.listening.send_replace(on);
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.faults.listens.subscribe().wait_for(|&listens| listens == on).await;
    }

    /// Sends `frame` and a line feed into all watches of a resource (`pods`, `deployments.apps`), for example malformed
    /// JSON or an object without a name. The frame gets its own revision. Returns false if the resource is not served.
    pub fn inject(&self, resource: &str, frame: &str) -> bool {
        self.store.inject(resource, frame)
    }

    /// Returns the member's current revision.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Returns the number of requests of this kind, for any resource, since the start or
    /// [`reset_counters`](Self::reset_counters).
    pub fn requests(&self, kind: RequestKind) -> u64 {
        self.faults.requests.lock().iter().filter(|((k, _), _)| *k == kind).map(|(_, count)| count).sum()
    }

    /// Returns the number of requests of this kind for this resource (`pods`, `deployments.apps`).
    pub fn requests_of(&self, kind: RequestKind, resource: &str) -> u64 {
        self.faults.requests.lock().get(&(kind, resource.to_owned())).copied().unwrap_or(0)
    }

    /// Returns the first 10,000 requests since the start or [`reset_counters`](Self::reset_counters), each as `METHOD
    /// path?query`.
    pub fn request_log(&self) -> Vec<String> {
        self.faults.log.lock().clone()
    }

    /// Returns the first 10,000 lists and watches with initial events since the start or
    /// [`reset_counters`](Self::reset_counters).
    pub fn lists(&self) -> Vec<Listed> {
        self.faults.listed.lock().clone()
    }

    /// Resets the counters and logs. The numbers of open watches and connections stay.
    pub fn reset_counters(&self) {
        self.faults.requests.lock().clear();
        self.faults.log.lock().clear();
        self.faults.listed.lock().clear();
    }

    /// Returns the number of open watches.
    pub fn open_watches(&self) -> u64 {
        u64::try_from(self.faults.open_watches.load(Ordering::SeqCst)).unwrap_or(0)
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> u64 {
        u64::try_from(self.faults.open_connections.load(Ordering::SeqCst)).unwrap_or(0)
    }
}
