//! What one cacher holds, and the times and sizes by which it works.

use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource, ObjectDecoder};

use crate::list_places::ListPlaces;
use crate::object_room::ObjectRoom;
use crate::precedence::Precedence;

/// What one cacher holds.
#[derive(Clone, Debug)]
pub struct CacherConfig {
    /// The member's name, for logs and errors.
    pub cluster: ClusterName,
    /// The resource whose collection is held.
    pub resource: GroupVersionResource,
    /// The one namespace that is held, or `None` for all (and for cluster-scoped resources).
    pub namespace: Option<String>,
    /// Makes objects of the member's text; knows the kind and the selectable fields.
    pub decoder: ObjectDecoder,
    /// What all collections of the member share.
    pub list_places: ListPlaces,
    /// What all collections of the process share.
    pub room: ObjectRoom,
    /// What is to be known of the member before this collection is read on, once contact was lost.
    pub precedence: Precedence,
    /// How long each object is held.
    pub held: HeldObjects,
    /// Times and sizes; `Tuning::default()` is right but for tests and measurements.
    pub tuning: ReflectorTuning,
}

/// How long each object is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldObjects {
    /// As long as it is there.
    #[default]
    WhileThere,
    /// Until the observer was told of it. From then on it is known that it is there, and in which version: some 40
    /// bytes. Snapshots have what is told just now alone, and so all there is in [`Synced`](crate::Update::Synced) and
    /// the `after` of a relist or reset; [`Cacher::snapshot`](crate::Cacher::snapshot) has no objects, so nobody can
    /// wait until one is gone. The bound of the collection counts the texts all the same.
    UntilTold,
    /// Like [`UntilTold`](Self::UntilTold), but the member sends metadata alone.
    MetadataUntilTold,
}

impl HeldObjects {
    /// Whether the cacher drops objects after telling its observer.
    pub(crate) fn is_until_told(self) -> bool {
        match self {
            Self::WhileThere => false,
            Self::UntilTold | Self::MetadataUntilTold => true,
        }
    }
}

impl CacherConfig {
    /// The path of the collection.
    pub(crate) fn path(&self) -> String {
        self.resource.path(self.namespace.as_deref())
    }
}

/// The times and sizes of a reflector. Each default has its reason.
#[derive(Clone, Debug)]
pub struct ReflectorTuning {
    /// Objects per page of a list. 10,000: what a kube-apiserver itself asks of etcd at once at most, so larger pages
    /// gain nothing and smaller ones only add round trips; a page is decoded as it streams and never held. Where pages
    /// take too long, they have fewer.
    pub page_size: u32,
    /// How long a page may take: after one that took less, the next is twice as large; one that breaks off after more
    /// is asked for again in half of what came. Where lists were ended sooner than such a page comes, it is less
    /// (`PageTime`). 10 s: a kube-apiserver ends a list after 60 s (`--request-timeout`), and a page twice as large as
    /// one that took 10 s is far from that.
    pub page_time: Duration,
    /// The delay before the first retry, halved at most by jitter. 200 ms: a member that was merely restarting its
    /// listener is found again before anybody notices.
    pub backoff_min: Duration,
    /// The longest delay between retries. 30 s as in client-go's reflector: long enough for a member in trouble, short
    /// enough that it is served again soon after it is back.
    pub backoff_max: Duration,
    /// The longest Retry-After that is obeyed. 60 s: a kube-apiserver never asks for more than 30 s.
    pub retry_after_max: Duration,
    /// How long an answer's head, or the next bytes of a list, may take. 30 s: twice the time that API Priority and
    /// Fairness queues a request at most.
    pub answer_timeout: Duration,
    /// How long a watch may be silent before it is taken for half-open, dropped and resumed. 90 s: members send a
    /// bookmark about each minute, and half of that again for a slow one. (A bookmark comes only if the version
    /// advanced, so on a member where nothing at all changes this resumes a good watch: a list of one object, which
    /// tells whether the member was restored meanwhile, and a short watch, whose bookmark or end tells that it lives.)
    pub watch_silence: Duration,
    /// How long a WatchList may be silent before its end; then the collection is listed in pages. 10 s: the time after
    /// which client-go suspects a server that ignores `sendInitialEvents`; a consistent read waits 3 s at most.
    pub initial_events_silence: Duration,
    /// The bounds of `timeoutSeconds`, drawn at random for each watch so that members are not hit in unison. 5 to 10
    /// minutes as in client-go's reflector.
    pub watch_timeout: (Duration, Duration),
    /// The same for a watch that streams the collection first. 1 to 2 hours: it counts from the first byte, and a
    /// collection of 1 GB over a line of 2 Mbit/s takes more than an hour;
    /// one that ends before its initial events do has to begin again.
    pub watch_list_timeout: (Duration, Duration),
    /// How long contact may be lost before the state is [`Stale`](crate::CacherState::Stale). 5 s: the end of a watch
    /// and its resumption, or the restart of a load balancer, are no news. Silence alone is none for 15 s.
    pub stale_after: Duration,
    /// How long a watch must be open to count as re-established though nothing has come. 1 s: a member that accepts and
    /// then ends or fails it does so at once. After a watch that was silent something must come, where the member sends
    /// bookmarks.
    pub settled_after: Duration,
    /// How long a waiter's version may be outstanding before the member is asked for progress. 200 ms: events of one's
    /// own writes come sooner by themselves, and of the 3 s that waiters have the asking takes 1.3 s.
    pub progress_after: Duration,
    /// How soon the member is asked again for a version that it did not yet have. 1 s: bounds the requests that one
    /// impossible version costs.
    pub progress_interval: Duration,
    /// The `timeoutSeconds` of the watch that is opened to learn of progress. 3 s: a kube-apiserver sends a bookmark
    /// about 2 s before the end of a watch, so that it comes after about one.
    pub progress_timeout: Duration,
    /// The largest object, watch frame or list item, in bytes. 16 MiB: ten times etcd's default limit of 1.5 MiB; what
    /// is larger is no object but a broken stream.
    pub object_size_max: usize,
    /// The largest collection, in bytes of text and places ([`Stats::object_bytes`](crate::Stats::object_bytes)).
    /// 4 GiB: 600,000 pods of 7 KB. A member that has more is not held, so that it takes nobody else's memory.
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
