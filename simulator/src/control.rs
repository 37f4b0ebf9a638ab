//! Faults on command, and counters of what clients asked.

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

/// What a request asks, as counters and rejections tell requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// A list of a collection.
    List,
    /// A watch.
    Watch,
    /// One object or subresource is read.
    Get,
    /// Create, update, patch, delete.
    Write,
    /// `/api`, `/apis`, `/openapi`.
    Discovery,
    /// Anything else: `/version`, `/healthz`, `/readyz`, unknown paths.
    Other,
}

/// A refusal that takes the place of an answer.
#[derive(Clone, Debug)]
pub struct Rejection {
    /// The HTTP status code: 401, 403, 429, 500, 503.
    pub code: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<Duration>,
    /// The kinds of requests that are refused; empty for all.
    pub kinds: Vec<RequestKind>,
    /// Whether only requests for all namespaces are refused, as for a user who may list in single namespaces only.
    pub cluster_wide_only: bool,
    /// The resources (`pods`, `deployments.apps`) whose requests are refused;
    /// empty for all, and for what is of no resource.
    pub resources: Vec<String>,
}

impl Rejection {
    /// Refuses every request with this code.
    pub fn all(code: u16) -> Self {
        Self { code, retry_after: None, kinds: Vec::new(), cluster_wide_only: false, resources: Vec::new() }
    }

    fn meets(&self, kind: RequestKind, resource: &str, cluster_wide: bool) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.resources.is_empty() || self.resources.iter().any(|own| own == resource))
            && (cluster_wide || !self.cluster_wide_only)
    }
}

/// What becomes of the answer to a write that was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteAnswers {
    /// It arrives whole.
    #[default]
    Whole,
    /// It breaks off after so many bytes of its body.
    BrokenAfter(usize),
    /// After so many bytes of its body nothing more comes.
    SilentAfter(usize),
}

/// Judges what may be done in a member, by the headers that say who does it.
pub trait Authorizer: Send + Sync {
    /// Why a request is refused: a 403. `target` is its path and query.
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status>;

    /// Whether a SelfSubjectAccessReview of these `resourceAttributes` says yes.
    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool;

    /// The status of a SelfSubjectRulesReview in a namespace; `None` for one in which everything is allowed.
    fn rules(&self, _headers: &HeaderMap, _namespace: &str) -> Option<Value> {
        None
    }

    /// Whether a SubjectAccessReview with this `spec` says yes; `None` where nobody may create one.
    fn reviewed(&self, _spec: &Value) -> Option<bool> {
        Some(true)
    }
}

/// The switches and counters that a member's connections and streams look at.
pub(crate) struct Faults {
    pub(crate) line: Arc<MemberLink>,
    /// Each new value ends every open stream with an error.
    pub(crate) cut: watch::Sender<u64>,
    /// Each new value ends every open watch with an in-stream ERROR 410.
    pub(crate) expire: watch::Sender<u64>,
    /// Each new value closes every connection.
    pub(crate) disconnect: watch::Sender<u64>,
    /// Whether the port is served.
    pub(crate) listening: watch::Sender<bool>,
    /// Whether the listener has followed `listening`.
    pub(crate) listens: watch::Sender<bool>,
    /// The resources that are not served, as if they were not installed.
    pub(crate) hidden: watch::Sender<BTreeSet<String>>,
    /// The groups whose aggregated server does not answer.
    pub(crate) silent: Mutex<BTreeSet<String>>,
    /// Additional groups of the aggregated discovery document.
    pub(crate) described: Mutex<Vec<Value>>,
    /// The resources whose watches get no bookmarks, but for the one that ends initial events.
    unmarked: Mutex<BTreeSet<String>>,
    /// The resources whose versions are not numbers, with the suffix of their versions.
    opaque: Mutex<BTreeMap<String, String>>,
    /// By how many milliseconds watches lag behind writes.
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
    /// The kind of requests whose answers never end, if any.
    endless: Mutex<Option<RequestKind>>,
    rejection: Mutex<Option<Rejection>>,
    authorizer: Mutex<Option<Arc<dyn Authorizer>>>,
    /// How many milliseconds a SubjectAccessReview takes.
    review_lag: AtomicU64,
    /// Whether writes are refused, whatever else is.
    read_only: AtomicBool,
    /// Tokens that are accepted besides the member's own, and what requests with them meet.
    tokens: Mutex<BTreeMap<String, Option<Rejection>>>,
    /// Whether lists and initial events wait.
    pub(crate) lists_held: watch::Sender<bool>,
    /// Whether `/readyz` waits.
    pub(crate) readyz_held: watch::Sender<bool>,
    /// Whether every request waits.
    pub(crate) requests_held: watch::Sender<bool>,
    requests: Mutex<BTreeMap<(RequestKind, String), u64>>,
    log: Mutex<Vec<String>>,
    listed: Mutex<Vec<Listed>>,
    open_watches: AtomicI64,
    open_connections: AtomicI64,
}

/// A collection that was listed in all namespaces, from its beginning and as it was at that moment, or streamed so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The resource (`pods`, `deployments.apps`).
    pub resource: String,
    /// How many objects were asked for at most; 0 for all.
    pub limit: usize,
    /// The revision of the answer.
    pub revision: u64,
}

/// The most requests that are remembered by path. Enough for any test; bounded for a demo that runs for days.
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
            // kube-apiserver keeps no watch cache of them (`DefaultWatchCacheSizes`), and bookmarks are the cache's.
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

    /// After how many bytes a stream that starts now is cut.
    pub(crate) fn cut_after(&self) -> Option<u64> {
        Some(self.cut_after.load(Ordering::SeqCst)).filter(|&bytes| bytes != u64::MAX)
    }

    /// Whether a resource (`pods`, `deployments.apps`) is not served.
    pub(crate) fn is_hidden(&self, resource: &str) -> bool {
        self.hidden.borrow().contains(resource)
    }

    /// Whether the server behind a resource (`deployments.apps`) does not answer.
    pub(crate) fn is_silent(&self, resource: &str) -> bool {
        resource.split_once('.').is_some_and(|(_, group)| self.silent.lock().contains(group))
    }

    /// Whether watches of a resource (`pods`, `deployments.apps`) get bookmarks.
    pub(crate) fn has_bookmarks(&self, resource: &str) -> bool {
        !self.unmarked.lock().contains(resource)
    }

    /// The suffix of a resource's versions; `None` for plain numbers.
    pub(crate) fn opaque_suffix(&self, resource: &str) -> Option<String> {
        self.opaque.lock().get(resource).cloned()
    }

    /// How long after a write watches tell of it.
    pub(crate) fn watch_lag(&self) -> Duration {
        Duration::from_millis(self.watch_lag.load(Ordering::SeqCst))
    }

    /// Waits until something is held no more.
    pub(crate) async fn released(&self, held: &watch::Sender<bool>) {
        // The sender lives as long as the member.
        let _ = held.subscribe().wait_for(|held| !held).await;
    }

    /// Whether `/readyz` says ok.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    /// The speed that streams are held to.
    pub(crate) fn bytes_per_second(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Ordering::SeqCst)).filter(|&speed| speed != 0)
    }

    /// How long a list may take.
    pub(crate) fn request_timeout(&self) -> Option<Duration> {
        *self.request_timeout.lock()
    }

    /// Whether watches are compressed for clients that accept gzip.
    pub(crate) fn gzip_watches(&self) -> bool {
        self.gzip_watches.load(Ordering::SeqCst)
    }

    /// What becomes of the answers to writes.
    pub(crate) fn write_answers(&self) -> WriteAnswers {
        *self.write_answers.lock()
    }

    /// Whether kubelets reject the member's own credentials.
    pub(crate) fn kubelets_refuse(&self) -> bool {
        self.kubelets_refuse.load(Ordering::SeqCst)
    }

    /// Whether the answer to a request of this kind never ends.
    pub(crate) fn is_endless(&self, kind: RequestKind) -> bool {
        *self.endless.lock() == Some(kind)
    }

    /// The refusal that a request of this kind, for this resource, meets.
    pub(crate) fn rejection(&self, kind: RequestKind, resource: &str, cluster_wide: bool) -> Option<Rejection> {
        let read_only = kind == RequestKind::Write && self.read_only.load(Ordering::SeqCst);
        let rejection = || self.rejection.lock().clone().filter(|own| own.meets(kind, resource, cluster_wide));
        if read_only { Some(Rejection::all(503)) } else { rejection() }
    }

    /// How long a SubjectAccessReview takes.
    pub(crate) fn review_lag(&self) -> Duration {
        Duration::from_millis(self.review_lag.load(Ordering::SeqCst))
    }

    /// Who judges what may be done, if anybody does.
    pub(crate) fn authorizer(&self) -> Option<Arc<dyn Authorizer>> {
        self.authorizer.lock().clone()
    }

    /// Whether a token is accepted, and the refusal that a request of this kind, for this resource, with it meets.
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
                (true, rejection.clone().filter(|rejection| rejection.meets(kind, resource, cluster_wide)))
            }
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, kind: RequestKind, resource: &str, line: String) {
        *self.requests.lock().entry((kind, resource.to_owned())).or_default() += 1;
        let mut log = self.log.lock();
        if log.len() < LOG_MAX {
            log.push(line);
        }
    }

    /// Notes that a collection was listed.
    pub(crate) fn note_list(&self, list: Listed) {
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

/// Plays faults in a running member and tells what was asked of it. Cheap to clone; effects are at once.
#[derive(Clone)]
pub struct Control {
    pub(crate) faults: Arc<Faults>,
    pub(crate) store: Arc<MemberStore>,
}

impl Control {
    /// Ends every open stream (watches, lists and logs in flight) with an error:
    /// HTTP/2 RST_STREAM, a broken chunked body in HTTP/1.1.
    pub fn cut_streams(&self) {
        self.faults.cut.send_modify(|count| *count += 1);
    }

    /// Cuts each list, watch or log that starts from now on after exactly `bytes` bytes of its body;
    /// `None` stops doing so.
    pub fn cut_streams_after(&self, bytes: Option<u64>) {
        self.faults.cut_after.store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Closes every connection without a word (no GOAWAY). New ones are accepted.
    pub fn disconnect(&self) {
        self.faults.disconnect.send_modify(|count| *count += 1);
    }

    /// Forgets the watch window: a later watch from before now gets an in-stream ERROR 410. Continue tokens and exact
    /// versions from before now are too old as well. Open watches go on.
    pub fn compact(&self) {
        self.store.compact();
    }

    /// [`compact`](Self::compact)s and ends every open watch with an in-stream ERROR 410.
    pub fn expire_watches(&self) {
        self.store.compact();
        self.faults.expire.send_modify(|count| *count += 1);
    }

    /// Holds each stream to this many bytes per second, in pieces of a tenth of that; `None` lifts it.
    pub fn slow(&self, bytes_per_second: Option<u64>) {
        self.faults.bytes_per_second.store(bytes_per_second.unwrap_or(0), Ordering::SeqCst);
    }

    /// Cuts each list that starts from now on, pages included, when so much time is over, as a kube-apiserver does
    /// after its `--request-timeout`; `None` stops doing so. Meanwhile pages keep to [`slow`](Self::slow), too.
    pub fn request_timeout(&self, limit: Option<Duration>) {
        *self.faults.request_timeout.lock() = limit;
    }

    /// Goes back to an older revision, as an etcd restored from a snapshot does: later changes are undone and their
    /// revisions are given again. Streams are cut and the watch window is forgotten. False if `revision` is not within
    /// the watch window.
    pub fn restore(&self, revision: u64) -> bool {
        let restored = self.store.restore(revision);
        if restored {
            self.cut_streams();
        }
        restored
    }

    /// Gives the namespace kube-system a new uid, as a cluster created anew under the same address has.
    pub fn new_incarnation(&self) {
        self.store.new_incarnation();
    }

    /// Serves a resource (`pods`, `deployments.apps`) or not, as if it were installed or removed: discovery leaves it
    /// out, its paths are 404 (503 while the member is not [`ready`](Self::ready)) and its watches end. Its objects
    /// stay. `networksets.projectcalico.org` is the only resource that is not served from the start.
    pub fn serve(&self, resource: &str, on: bool) {
        self.faults.hidden.send_modify(|hidden| {
            if on {
                hidden.remove(resource);
            } else {
                hidden.insert(resource.to_owned());
            }
        });
    }

    /// Has the server behind a group (`apps`), as if it were an aggregated one, answer or not: without it discovery
    /// says that what it knows of the group is stale, and requests for its resources are 503. Its watches go on.
    pub fn serve_group(&self, group: &str, on: bool) {
        let mut silent = self.faults.silent.lock();
        if on {
            silent.remove(group);
        } else {
            silent.insert(group.to_owned());
        }
    }

    /// Adds groups to the aggregated document of `/apis`, without a check. Their paths are 404.
    pub fn describe(&self, groups: Vec<Value>) {
        *self.faults.described.lock() = groups;
    }

    /// Whether watches of a resource (`pods`, `deployments.apps`) get bookmarks. Events get none from the start, as
    /// from a kube-apiserver that has no watch cache of them; the bookmark that ends initial events comes all the same.
    pub fn bookmarks(&self, resource: &str, on: bool) {
        let mut unmarked = self.faults.unmarked.lock();
        if on {
            unmarked.remove(resource);
        } else {
            unmarked.insert(resource.to_owned());
        }
    }

    /// Appends a suffix to the versions of a resource (`pods`, `deployments.apps`), as an aggregated API server may. An
    /// empty suffix removes the versions; `None` restores plain numbers.
    pub fn opaque_versions(&self, resource: &str, suffix: Option<&str>) {
        let mut opaque = self.faults.opaque.lock();
        match suffix {
            Some(suffix) => opaque.insert(resource.to_owned(), suffix.to_owned()),
            None => opaque.remove(resource),
        };
    }

    /// Has every watch tell of a write so long after it; zero ends that. Lists are not late:
    /// they wait for what was written.
    pub fn lag_watches(&self, lag: Duration) {
        self.faults.watch_lag.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Whether `/readyz` says ok. A member that is not ready still answers everything else.
    pub fn ready(&self, on: bool) {
        self.faults.ready.store(on, Ordering::SeqCst);
    }

    /// Breaks the OpenAPI v3 documents off in the middle; their hashes change with them.
    pub fn break_openapi(&self, on: bool) {
        self.faults.broken_openapi.store(on, Ordering::SeqCst);
    }

    /// Serves other OpenAPI v3 documents than everybody else, under the hashes of theirs.
    pub fn forge_openapi(&self, on: bool) {
        self.faults.forged_openapi.store(on, Ordering::SeqCst);
    }

    /// Compresses watches for clients that accept gzip, one gzip member per flush (Kubernetes ≥ 1.37).
    /// Watches that start from now on.
    pub fn gzip_watches(&self, on: bool) {
        self.faults.gzip_watches.store(on, Ordering::SeqCst);
    }

    /// Has the answers to writes break off or stay away. The writes are carried out.
    pub fn answer_writes(&self, answers: WriteAnswers) {
        *self.faults.write_answers.lock() = answers;
    }

    /// Answers requests of this kind 200 with blanks without an end; `None` stops doing so.
    /// What is asked for is not done.
    pub fn answer_endlessly(&self, kind: Option<RequestKind>) {
        *self.faults.endless.lock() = kind;
    }

    /// Has kubelets reject the member's own credentials: logs are answered 401, as a kube-apiserver passes that on.
    pub fn refuse_at_kubelets(&self, on: bool) {
        self.faults.kubelets_refuse.store(on, Ordering::SeqCst);
    }

    /// Refuses requests; `None` stops doing so.
    pub fn reject(&self, rejection: Option<Rejection>) {
        *self.faults.rejection.lock() = rejection;
    }

    /// Has somebody judge what may be done; `None` lets everybody do everything.
    pub fn authorize(&self, authorizer: Option<Arc<dyn Authorizer>>) {
        *self.faults.authorizer.lock() = authorizer;
    }

    /// Has each SubjectAccessReview take so long from now on, as a webhook does.
    pub fn lag_reviews(&self, lag: Duration) {
        self.faults.review_lag.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Refuses every write with 503, whatever else is refused, or takes writes again. What is done to the member itself
    /// is no request.
    pub fn read_only(&self, on: bool) {
        self.faults.read_only.store(on, Ordering::SeqCst);
    }

    /// Accepts another token besides the member's own; requests with it meet this refusal, as those of a user with
    /// lesser rights. Rights are asked for at the beginning of a request alone: open watches go on whatever changes.
    pub fn accept(&self, token: &str, rejection: Option<Rejection>) {
        self.faults.tokens.lock().insert(token.to_owned(), rejection);
    }

    /// Lets `/readyz` wait, as kube-apiserver's does for an etcd that hangs. Everything else is answered.
    pub fn hold_readyz(&self, on: bool) {
        self.faults.readyz_held.send_replace(on);
    }

    /// Lets every request wait, as a load balancer does whose server is gone: connections are made and kept, and PING
    /// is answered. Open watches go on.
    pub fn hold_requests(&self, on: bool) {
        self.faults.requests_held.send_replace(on);
    }

    /// Lets lists and watches with initial events wait before they are answered, or go on.
    pub fn hold_lists(&self, on: bool) {
        self.faults.lists_held.send_replace(on);
    }

    /// Falls silent or speaks again: connections stay open and new ones are accepted, but no byte is read or written,
    /// TLS handshakes and HTTP/2 PING included.
    pub fn half_open(&self, on: bool) {
        self.faults.line.set_silent(on);
    }

    /// Closes the port and every connection. Returns when connections are refused.
    pub async fn stop_listening(&self) {
        self.set_listening(false).await;
    }

    /// Opens the same port again. Returns when connections are accepted.
    pub async fn start_listening(&self) {
        self.set_listening(true).await;
    }

    async fn set_listening(&self, on: bool) {
        self.faults.listening.send_replace(on);
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.faults.listens.subscribe().wait_for(|&listens| listens == on).await;
    }

    /// Sends `frame` and a line feed as it is into every watch of the resource (`pods`, `deployments.apps`): malformed
    /// JSON, an object without a name. It takes a revision of its own. False if the resource is not served.
    pub fn inject(&self, resource: &str, frame: &str) -> bool {
        self.store.inject(resource, frame)
    }

    /// The revision that the member has reached.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// How many requests of this kind came in for any resource since start or [`reset_counters`](Self::reset_counters).
    pub fn requests(&self, kind: RequestKind) -> u64 {
        self.faults.requests.lock().iter().filter(|((k, _), _)| *k == kind).map(|(_, count)| count).sum()
    }

    /// How many requests of this kind came in for this resource (`pods`, `deployments.apps`).
    pub fn requests_of(&self, kind: RequestKind, resource: &str) -> u64 {
        self.faults.requests.lock().get(&(kind, resource.to_owned())).copied().unwrap_or(0)
    }

    /// The first 10,000 requests since start or reset, each as `METHOD path?query`.
    pub fn request_log(&self) -> Vec<String> {
        self.faults.log.lock().clone()
    }

    /// The first 10,000 lists since start or reset, and streams that began with all objects.
    pub fn lists(&self) -> Vec<Listed> {
        self.faults.listed.lock().clone()
    }

    /// Sets counters and logs to nothing. Gauges are not touched.
    pub fn reset_counters(&self) {
        self.faults.requests.lock().clear();
        self.faults.log.lock().clear();
        self.faults.listed.lock().clear();
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> u64 {
        u64::try_from(self.faults.open_watches.load(Ordering::SeqCst)).unwrap_or(0)
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> u64 {
        u64::try_from(self.faults.open_connections.load(Ordering::SeqCst)).unwrap_or(0)
    }
}
