//! The configuration of a cacher.

use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder};

use crate::list_permits::ListPermits;
use crate::memory_limit::ObjectMemoryLimit;
use crate::precedence::Precedence;

/// The configuration of a cacher.
#[derive(Clone, Debug)]
pub struct CacherConfig {
    /// The member's name, for logs and errors.
    pub cluster: ClusterName,
    /// The resource of the collection.
    pub resource: GroupVersionResource,
    /// The namespace of the collection, or `None` for all namespaces (and for cluster-scoped resources).
    pub namespace: Option<String>,
    /// Decodes the member's objects, and names their kind and selectable fields.
    pub decoder: ObjectDecoder,
    /// The limit on concurrent lists that all collections of the member share.
    pub list_permits: ListPermits,
    /// The memory limit that all collections of the process share.
    pub object_memory: ObjectMemoryLimit,
    /// Makes this collection wait, after a loss of contact, until the member's RBAC objects are current again.
    pub precedence: Precedence,
    /// The time for which objects stay in memory.
    pub retention: ObjectRetention,
    /// The timeouts and sizes. Only tests and measurements change the defaults.
    pub tuning: ReflectorTuning,
}

/// The time for which objects stay in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectRetention {
    /// Until the object is deleted.
    #[default]
    UntilDeleted,
    /// Until the observer has received the object. Afterwards the cacher stores only a hash of the key, the version and
    /// the size, in about 40 bytes.
    ///
    /// A snapshot contains only the objects of the update to which it belongs. So the snapshot of
    /// [`Synced`](crate::Update::Synced) contains all objects, and so does `after` of a relist or reset.
    /// [`Cacher::snapshot`](crate::Cacher::snapshot) has no objects, so readers cannot wait for a deletion. The size
    /// limit of the collection includes the sizes of the dropped objects.
    UntilPublished,
    /// Like [`UntilPublished`](Self::UntilPublished), but the cacher requests only metadata from the member.
    MetadataUntilPublished,
}

impl ObjectRetention {
    pub(crate) fn is_until_published(self) -> bool {
        match self {
            Self::UntilDeleted => false,
            Self::UntilPublished | Self::MetadataUntilPublished => true,
        }
    }
}

impl CacherConfig {
    pub(crate) fn path(&self) -> String {
        self.resource.path(self.namespace.as_deref())
    }
}

/// The timeouts, delays and sizes of a reflector. Each field's comment gives the reason for its default.
#[derive(Clone, Debug)]
pub struct ReflectorTuning {
    /// The number of objects per page of a list. 10,000: a kube-apiserver reads at most 10,000 objects from etcd at
    /// once. Larger pages gain nothing, and smaller pages add round trips. A page is decoded while its bytes arrive,
    /// and is never stored. After a slow page, the reflector requests fewer objects.
    pub page_size: u32,
    /// The time limit of a page. After a page that is complete sooner, the next page has twice the size. A page that is
    /// cut off after the limit is requested again with half of the received objects. After a list was cut off, the
    /// limit is shorter (`PageTimeTarget`). 10 s: a kube-apiserver ends a list after 60 s (`--request-timeout`), and a
    /// page with twice as many objects takes far less than 60 s.
    pub page_time: Duration,
    /// The delay before the first retry. Jitter reduces the delay, at most to half. 200 ms: clients do not notice a
    /// member that only restarts its listener.
    pub backoff_min: Duration,
    /// The longest delay between retries. 30 s, as in client-go's reflector: a failing member gets few requests, and
    /// the objects of a recovered member are soon fresh.
    pub backoff_max: Duration,
    /// The longest Retry-After that the cacher respects. 60 s: a kube-apiserver never asks for more than 30 s.
    pub retry_after_max: Duration,
    /// The time limit for the head of a response. Also the time limit for each next chunk of a list. 30 s: twice the
    /// maximum time for which API Priority and Fairness queues a request.
    pub answer_timeout: Duration,
    /// The time without data after which a watch is dropped and resumed, because its connection may be half-open. 90 s:
    /// members send a bookmark about each minute, and half a minute is added for slow members.
    ///
    /// A member sends a bookmark only if its version has advanced. So the reflector also resumes the healthy watch of
    /// an unchanged member. The cost is a list of one object, which detects a restored member, and a short watch. The
    /// bookmark or the end of the short watch shows that the member is alive.
    pub watch_silence: Duration,
    /// The time without data after which an incomplete WatchList is replaced by a paginated list. 10 s: client-go warns
    /// after the same time that a server may ignore `sendInitialEvents`. A healthy kube-apiserver waits at most 3 s for
    /// a consistent read.
    pub initial_events_silence: Duration,
    /// The range of `timeoutSeconds`, drawn at random for each watch so that the watches of a member do not end at the
    /// same time. 5 to 10 minutes as in client-go's reflector.
    pub watch_timeout: (Duration, Duration),
    /// The range of `timeoutSeconds` for a WatchList. 1 to 2 hours: the timeout starts with the first byte, and a
    /// collection of 1 GB over a connection of 2 Mbit/s takes more than an hour. A WatchList that ends before its
    /// initial events are complete must start again.
    pub watch_list_timeout: (Duration, Duration),
    /// The time from a loss of contact until the state is [`Stale`](crate::CacherState::Stale). 5 s: long enough for
    /// the end and resumption of a watch, or the restart of a load balancer. After a silent watch, the time is 15 s.
    pub stale_after: Duration,
    /// The time after which an open watch without events proves that contact is restored. 1 s: a member that accepts a
    /// watch only to end or fail it does so at once. If the previous watch was silent, an event or bookmark is required
    /// instead, provided that the member sends bookmarks.
    pub settled_after: Duration,
    /// The time for which a reader waits for a version before the cacher requests the member's latest version. 200 ms:
    /// if a client reads after a write of its own, the event of the write usually arrives sooner. The request and the
    /// short watch that follows take 1.3 s of the 3 s for which a reader waits.
    pub progress_after: Duration,
    /// The time after which the member's latest version is requested again, if the member had not reached the version
    /// of a waiter. 1 s: a version that never exists causes one request per second.
    pub progress_interval: Duration,
    /// The `timeoutSeconds` of the short watch whose bookmark raises the collection's version for waiters. 3 s: a
    /// kube-apiserver sends a bookmark about 2 s before the end of a watch, so the bookmark arrives after about 1 s.
    pub progress_timeout: Duration,
    /// The largest object, watch frame or list item, in bytes. 16 MiB: ten times etcd's default limit of 1.5 MiB. A
    /// larger item indicates a broken stream.
    pub object_size_max: usize,
    /// The largest collection that is cached, in bytes of text and index
    /// ([`Stats::object_bytes`](crate::Stats::object_bytes)). 4 GiB: 600,000 pods of 7 KB. The limit prevents one
    /// member from using up the memory of all members.
    pub collection_size_max: u64,
}

impl Default for ReflectorTuning {
    fn default() -> Self {
        Self {
            page_size: 10_000,
            page_time: Duration::from_secs(10),
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(60),
            answer_timeout: Duration::from_secs(30),
            watch_silence: Duration::from_secs(90),
            initial_events_silence: Duration::from_secs(10),
            watch_timeout: (Duration::from_secs(300), Duration::from_secs(600)),
            watch_list_timeout: (Duration::from_secs(3600), Duration::from_secs(7200)),
            stale_after: Duration::from_secs(5),
            settled_after: Duration::from_secs(1),
            progress_after: Duration::from_millis(200),
            progress_interval: Duration::from_secs(1),
            progress_timeout: Duration::from_secs(3),
            object_size_max: 16 << 20,
            collection_size_max: 4 << 30,
        }
    }
}
