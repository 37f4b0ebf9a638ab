//! Commands for faults, and counters of requests.

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
    /// `/api`, `/apis`, `/openapi`.
    Discovery,
    /// Any other request: `/version`, `/healthz`, `/readyz`, unknown paths.
    Other,
}

/// A refusal in place of a response.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The HTTP status code: 401, 403, 429, 500, 503.
    pub code: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<Duration>,
    /// The kinds of refused requests; empty for all.
    pub kinds: Vec<RequestKind>,
    /// Whether only requests for all namespaces are refused, like for a user who may list only in single namespaces.
    pub cluster_wide_only: bool,
    /// The resources (`pods`, `deployments.apps`) whose requests are refused; empty for all requests, including those
    /// without a resource.
    pub resources: Vec<String>,
}

impl Rejection {
    /// Refuses all requests with this code.
    pub fn all(code: u16) -> Self {
        Self { code, retry_after: None, kinds: Vec::new(), cluster_wide_only: false, resources: Vec::new() }
    }

    fn applies_to(&self, kind: RequestKind, resource: &str, cluster_wide: bool) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.resources.is_empty() || self.resources.iter().any(|own| own == resource))
            && (cluster_wide || !self.cluster_wide_only)
    }
}

/// The treatment of the response to a write that was processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteAnswers {
    /// The response is complete.
    #[default]
    Whole,
    /// The response breaks off after this number of bytes of its body.
    BrokenAfter(usize),
    /// The response becomes silent after this number of bytes of its body.
    SilentAfter(usize),
}

/// Decides on the requests to a member, from the headers with the user.
pub trait Authorizer: Send + Sync {
    /// Returns the 403 of a refused request. `target` is its path and query.
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status>;

    /// Returns whether a SelfSubjectAccessReview of these `resourceAttributes` is allowed.
    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool;

    /// Returns the status of a SelfSubjectRulesReview in a namespace; `None` if everything is allowed there.
    fn rules(&self, _headers: &HeaderMap, _namespace: &str) -> Option<Value> {
        None
    }

    /// Returns whether a SubjectAccessReview with this `spec` is allowed; `None` if no user may create one.
    fn reviewed(&self, _spec: &Value) -> Option<bool> {
        Some(true)
    }
}

/// The switches and counters for a member's connections and streams.
pub(crate) struct Faults {
    pub(crate) line: Arc<MemberLink>,
    /// A new value ends all open streams with an error.
    pub(crate) cut: watch::Sender<u64>,
    /// A new value ends all open watches with an in-stream ERROR 410.
    pub(crate) expire: watch::Sender<u64>,
    /// A new value closes all connections.
    pub(crate) disconnect: watch::Sender<u64>,
    /// Whether the port is open.
    pub(crate) listening: watch::Sender<bool>,
    /// Whether the listener has applied `listening`.
    pub(crate) listens: watch::Sender<bool>,
    /// The resources that are not served, like resources without a definition.
    pub(crate) hidden: watch::Sender<BTreeSet<String>>,
    /// The groups whose aggregated server does not answer.
    pub(crate) silent: Mutex<BTreeSet<String>>,
    /// Additional groups of the aggregated discovery document.
    pub(crate) described: Mutex<Vec<Value>>,
    /// The resources whose watches get no bookmarks, except the one that ends initial events.
    unmarked: Mutex<BTreeSet<String>>,
    /// The resources whose versions are not numbers, with the suffix of their versions.
    opaque: Mutex<BTreeMap<String, String>>,
    /// The delay of watches behind writes, in milliseconds.
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
    /// The kind of requests with endless responses, if any.
    endless: Mutex<Option<RequestKind>>,
    rejection: Mutex<Option<Rejection>>,
    authorizer: Mutex<Option<Arc<dyn Authorizer>>>,
    /// The duration of a SubjectAccessReview, in milliseconds.
    review_lag: AtomicU64,
    /// Whether writes are refused, independent of other rejections.
    read_only: AtomicBool,
    /// The accepted tokens besides the member's own, with the rejection of their requests.
    tokens: Mutex<BTreeMap<String, Option<Rejection>>>,
    /// Whether lists and initial events wait.
    pub(crate) lists_held: watch::Sender<bool>,
    /// Whether `/readyz` waits.
    pub(crate) readyz_held: watch::Sender<bool>,
    /// Whether all requests wait.
    pub(crate) requests_held: watch::Sender<bool>,
    requests: Mutex<BTreeMap<(RequestKind, String), u64>>,
    log: Mutex<Vec<String>>,
    listed: Mutex<Vec<Listed>>,
    open_watches: AtomicI64,
    open_connections: AtomicI64,
}

/// A list of a collection in all namespaces, from its beginning and of the present state, or such a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The resource (`pods`, `deployments.apps`).
    pub resource: String,
    /// The maximum number of objects in the request; 0 for all.
    pub limit: usize,
    /// The revision of the response.
    pub revision: u64,
}

/// The maximum number of logged requests. Enough for any test; bounded for a demo that runs for days.
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
            hidden: watch::Sender::new(BTreeSet::from([CUSTOM_RESOURCE.to_owned()])),
            silent: Mutex::default(),
            described: Mutex::default(),
            // kube-apiserver has no watch cache for Events (`DefaultWatchCacheSizes`), and bookmarks come from that
            // cache.
            unmarked: Mutex::new(["events".to_owned()].into()),
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
            lists_held: watch::Sender::new(false),
            readyz_held: watch::Sender::new(false),
            requests_held: watch::Sender::new(false),
            requests: Mutex::default(),
            log: Mutex::default(),
            listed: Mutex::default(),
            open_watches: AtomicI64::new(0),
            open_connections: AtomicI64::new(0),
        }
    }

    /// Returns the number of bytes after which a new stream is cut.
    pub(crate) fn cut_after(&self) -> Option<u64> {
        Some(self.cut_after.load(Ordering::SeqCst)).filter(|&bytes| bytes != u64::MAX)
    }

    /// Returns whether a resource (`pods`, `deployments.apps`) is not served.
    pub(crate) fn is_hidden(&self, resource: &str) -> bool {
        self.hidden.borrow().contains(resource)
    }

    /// Returns whether the server of a resource (`deployments.apps`) does not answer.
    pub(crate) fn is_silent(&self, resource: &str) -> bool {
        resource.split_once('.').is_some_and(|(_, group)| self.silent.lock().contains(group))
    }

    /// Returns whether watches of a resource (`pods`, `deployments.apps`) get bookmarks.
    pub(crate) fn has_bookmarks(&self, resource: &str) -> bool {
        !self.unmarked.lock().contains(resource)
    }

    /// Returns the suffix of a resource's versions; `None` for plain numbers.
    pub(crate) fn opaque_suffix(&self, resource: &str) -> Option<String> {
        self.opaque.lock().get(resource).cloned()
    }

    /// Returns the delay of watches behind writes.
    pub(crate) fn watch_lag(&self) -> Duration {
        Duration::from_millis(self.watch_lag.load(Ordering::SeqCst))
    }

    /// Waits until a switch is off.
    pub(crate) async fn released(&self, held: &watch::Sender<bool>) {
        // The member owns the sender, so the channel stays open.
        let _ = held.subscribe().wait_for(|held| !held).await;
    }

    /// Returns whether `/readyz` reports success.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    /// Returns the speed limit of streams.
    pub(crate) fn bytes_per_second(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Ordering::SeqCst)).filter(|&speed| speed != 0)
    }

    /// Returns the time limit of a list.
    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        *self.request_timeout.lock()
    }

    /// Returns whether watches are compressed for clients that accept gzip.
    pub(crate) fn gzip_watches(&self) -> bool {
        self.gzip_watches.load(Ordering::SeqCst)
    }

    /// Returns the treatment of responses to writes.
    pub(crate) fn write_answers(&self) -> WriteAnswers {
        *self.write_answers.lock()
    }

    /// Returns whether kubelets reject the member's own credentials.
    pub(crate) fn kubelets_refuse(&self) -> bool {
        self.kubelets_refuse.load(Ordering::SeqCst)
    }

    /// Returns whether the responses to this kind of request are endless.
    pub(crate) fn is_endless(&self, kind: RequestKind) -> bool {
        *self.endless.lock() == Some(kind)
    }

    /// Returns the rejection of a request of this kind, for this resource.
    pub(crate) fn rejection(&self, kind: RequestKind, resource: &str, cluster_wide: bool) -> Option<Rejection> {
        let read_only = kind == RequestKind::Write && self.read_only.load(Ordering::SeqCst);
        let rejection = || self.rejection.lock().clone().filter(|own| own.applies_to(kind, resource, cluster_wide));
        if read_only { Some(Rejection::all(503)) } else { rejection() }
    }

    /// Returns the duration of a SubjectAccessReview.
    pub(crate) fn review_lag(&self) -> Duration {
        Duration::from_millis(self.review_lag.load(Ordering::SeqCst))
    }

    /// Returns the authorizer of a member with users.
    pub(crate) fn authorizer(&self) -> Option<Arc<dyn Authorizer>> {
        self.authorizer.lock().clone()
    }

    /// Returns whether a token is accepted, and the rejection of a request of this kind, for this resource, with it.
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

    /// Counts a request of a kind for a resource.
    pub(crate) fn count(&self, kind: RequestKind, resource: &str, line: String) {
        *self.requests.lock().entry((kind, resource.to_owned())).or_default() += 1;
        let mut log = self.log.lock();
        if log.len() < LOG_MAX {
            log.push(line);
        }
    }

    /// Logs a list of a collection.
    pub(crate) fn log_list(&self, list: Listed) {
        let mut listed = self.listed.lock();
        if listed.len() < LOG_MAX {
            listed.push(list);
        }
    }

    /// Counts an open watch until the permit is dropped.
    pub(crate) fn watch_opened(self: &Arc<Self>) -> Permit {
        self.counted(|faults| &faults.open_watches)
    }

    /// Counts an open connection until the permit is dropped.
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

/// Controls the faults of a running member, and reads its counters. Cheap to clone; effects are immediate.
#[derive(Clone)]
pub struct Control {
    pub(crate) faults: Arc<Faults>,
    pub(crate) store: Arc<MemberStore>,
}

impl Control {
    /// Ends all open streams (watches, lists and logs) with an error: RST_STREAM in HTTP/2, a broken chunked body in
    /// HTTP/1.1.
    pub fn cut_streams(&self) {
        self.faults.cut.send_modify(|count| *count += 1);
    }

    /// Cuts each new list, watch or log after exactly `bytes` bytes of its body; `None` ends the fault.
    pub fn cut_streams_after(&self, bytes: Option<u64>) {
        self.faults.cut_after.store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Closes all connections without GOAWAY. New connections are accepted.
    pub fn disconnect(&self) {
        self.faults.disconnect.send_modify(|count| *count += 1);
    }

    /// Empties the watch window: a later watch from before now gets an in-stream ERROR 410, and continue tokens and
    /// exact versions from before now are too old. Open watches continue.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// Calls [`compact`](Self::compact), and ends all open watches with an in-stream ERROR 410.
    pub fn expire_watches(&self) {
        self.store.compact();
        self.faults.expire.send_modify(|count| *count += 1);
    }

    /// Limits each stream to this number of bytes per second, in pieces of a tenth of it; `None` ends the limit.
    pub fn slow(&self, bytes_per_second: Option<u64>) {
        self.faults.bytes_per_second.store(bytes_per_second.unwrap_or(0), Ordering::SeqCst);
    }

    /// Cuts each new list, including pages, at a time limit, like a kube-apiserver after its `--request-timeout`;
    /// `None` ends the fault. With a limit, pages also respect [`slow`](Self::slow).
    pub fn request_timeout(&self, limit: Option<Duration>) {
        *self.faults.request_timeout.lock() = limit;
    }

    /// Returns to an older revision, like an etcd that is restored from a snapshot: later changes are undone and their
    /// revisions are assigned again. Streams are cut and the watch window is emptied. Returns false if `revision` is
    /// outside the watch window.
    pub fn restore(&self, revision: u64) -> bool {
        let restored = self.store.restore(revision);
        if restored {
            self.cut_streams();
        }
        restored
    }

    /// Gives the namespace kube-system a new uid, like a new cluster under the same address.
    pub fn new_incarnation(&self) {
        self.store.new_incarnation();
    }

    /// Serves a resource (`pods`, `deployments.apps`) or not, as if it were installed or removed. Without it, discovery
    /// omits the resource, its paths return 404 (503 while the member is not [`ready`](Self::ready)) and its watches
    /// end. Its objects stay. `networksets.projectcalico.org` is the only resource that is not served from the start.
    pub fn serve(&self, resource: &str, on: bool) {
        self.faults.hidden.send_modify(|hidden| {
            if on {
                hidden.remove(resource);
            } else {
                hidden.insert(resource.to_owned());
            }
        });
    }

    /// Lets the server of a group (`apps`), like an aggregated one, answer or not. Without an answer, discovery marks
    /// the group as stale, and requests for its resources return 503. Its watches continue.
    pub fn serve_group(&self, group: &str, on: bool) {
        let mut silent = self.faults.silent.lock();
        if on {
            silent.remove(group);
        } else {
            silent.insert(group.to_owned());
        }
    }

    /// Adds groups to the aggregated document of `/apis`, without validation. Their paths return 404.
    pub fn describe(&self, groups: Vec<Value>) {
        *self.faults.described.lock() = groups;
    }

    /// Sets whether watches of a resource (`pods`, `deployments.apps`) get bookmarks. Events have none from the start,
    /// like in a kube-apiserver without a watch cache of them; the bookmark that ends initial events is always sent.
    pub fn bookmarks(&self, resource: &str, on: bool) {
        let mut unmarked = self.faults.unmarked.lock();
        if on {
            unmarked.remove(resource);
        } else {
            unmarked.insert(resource.to_owned());
        }
    }

    /// Appends a suffix to the versions of a resource (`pods`, `deployments.apps`), like an aggregated API server. An
    /// empty suffix removes the versions; `None` restores plain numbers.
    pub fn opaque_versions(&self, resource: &str, suffix: Option<&str>) {
        let mut opaque = self.faults.opaque.lock();
        match suffix {
            Some(suffix) => opaque.insert(resource.to_owned(), suffix.to_owned()),
            None => opaque.remove(resource),
        };
    }

    /// Delays each write in all watches; zero ends the delay. Lists are not delayed: they wait for earlier writes.
    pub fn lag_watches(&self, lag: Duration) {
        self.faults.watch_lag.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets whether `/readyz` reports success. A member that is not ready still answers all other requests.
    pub fn ready(&self, on: bool) {
        self.faults.ready.store(on, Ordering::SeqCst);
    }

    /// Truncates the OpenAPI v3 documents; their hashes change with them.
    pub fn break_openapi(&self, on: bool) {
        self.faults.broken_openapi.store(on, Ordering::SeqCst);
    }

    /// Serves forged OpenAPI v3 documents under the hashes of the original documents.
    pub fn forge_openapi(&self, on: bool) {
        self.faults.forged_openapi.store(on, Ordering::SeqCst);
    }

    /// Compresses new watches for clients that accept gzip, one gzip member per flush (Kubernetes ≥ 1.37).
    pub fn gzip_watches(&self, on: bool) {
        self.faults.gzip_watches.store(on, Ordering::SeqCst);
    }

    /// Sets the fault of responses to writes. The writes are processed.
    pub fn answer_writes(&self, answers: WriteAnswers) {
        *self.faults.write_answers.lock() = answers;
    }

    /// Answers requests of this kind with 200 and an endless body of blanks, without processing them; `None` ends the
    /// fault.
    pub fn answer_endlessly(&self, kind: Option<RequestKind>) {
        *self.faults.endless.lock() = kind;
    }

    /// Lets kubelets reject the member's own credentials: logs return 401, as a kube-apiserver forwards it.
    pub fn refuse_at_kubelets(&self, on: bool) {
        self.faults.kubelets_refuse.store(on, Ordering::SeqCst);
    }

    /// Refuses requests; `None` ends the fault.
    pub fn reject(&self, rejection: Option<Rejection>) {
        *self.faults.rejection.lock() = rejection;
    }

    /// Sets the authorizer of requests; `None` allows everything.
    pub fn authorize(&self, authorizer: Option<Arc<dyn Authorizer>>) {
        *self.faults.authorizer.lock() = authorizer;
    }

    /// Sets the duration of each SubjectAccessReview, like a slow webhook.
    pub fn lag_reviews(&self, lag: Duration) {
        self.faults.review_lag.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Refuses all writes with 503, independent of other rejections, or accepts writes again. Changes from Rust are not
    /// requests.
    pub fn read_only(&self, on: bool) {
        self.faults.read_only.store(on, Ordering::SeqCst);
    }

    /// Accepts an additional token; its requests get this rejection, like those of a user with fewer rights. Rights are
    /// checked only at the beginning of a request: open watches continue after a change.
    pub fn accept(&self, token: &str, rejection: Option<Rejection>) {
        self.faults.tokens.lock().insert(token.to_owned(), rejection);
    }

    /// Delays `/readyz`, like kube-apiserver with a hanging etcd. All other requests are answered.
    pub fn hold_readyz(&self, on: bool) {
        self.faults.readyz_held.send_replace(on);
    }

    /// Delays all requests, like a load balancer without a server: connections are accepted and kept, and PING is
    /// answered. Open watches continue.
    pub fn hold_requests(&self, on: bool) {
        self.faults.requests_held.send_replace(on);
    }

    /// Delays the responses to lists and to watches with initial events, or releases them.
    pub fn hold_lists(&self, on: bool) {
        self.faults.lists_held.send_replace(on);
    }

    /// Makes the member silent or ends the silence: connections stay open and new ones are accepted, but no byte is
    /// read or written, including TLS handshakes and HTTP/2 PING.
    pub fn half_open(&self, on: bool) {
        self.faults.line.set_silent(on);
    }

    /// Closes the port and all connections. Returns when connections are refused.
    pub async fn stop_listening(&self) {
        self.set_listening(false).await;
    }

    /// Opens the same port again. Returns when connections are accepted.
    pub async fn start_listening(&self) {
        self.set_listening(true).await;
    }

    async fn set_listening(&self, on: bool) {
        self.faults.listening.send_replace(on);
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.faults.listens.subscribe().wait_for(|&listens| listens == on).await;
    }

    /// Sends `frame` and a line feed into all watches of the resource (`pods`, `deployments.apps`), for example
    /// malformed JSON or an object without a name. The frame takes a revision. Returns false if the resource is not
    /// served.
    pub fn inject(&self, resource: &str, frame: &str) -> bool {
        self.store.inject(resource, frame)
    }

    /// Returns the member's current revision.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Returns the number of requests of this kind for any resource since start or
    /// [`reset_counters`](Self::reset_counters).
    pub fn requests(&self, kind: RequestKind) -> u64 {
        self.faults.requests.lock().iter().filter(|((k, _), _)| *k == kind).map(|(_, count)| count).sum()
    }

    /// Returns the number of requests of this kind for this resource (`pods`, `deployments.apps`).
    pub fn requests_of(&self, kind: RequestKind, resource: &str) -> u64 {
        self.faults.requests.lock().get(&(kind, resource.to_owned())).copied().unwrap_or(0)
    }

    /// Returns the first 10,000 requests since start or reset, each as `METHOD path?query`.
    pub fn request_log(&self) -> Vec<String> {
        self.faults.log.lock().clone()
    }

    /// Returns the first 10,000 lists since start or reset, and streams that began with all objects.
    pub fn lists(&self) -> Vec<Listed> {
        self.faults.listed.lock().clone()
    }

    /// Resets counters and logs. Gauges stay.
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
