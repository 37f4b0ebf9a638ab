//! The handle of one reflector: what readers hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument;
use tributary_apimachinery::{CollectionVersion, Object, ResourceVersion, Snapshot};

use crate::Transport;
use crate::config::CacherConfig;
use crate::member_health::MemberHealth;
use crate::reflector::Reflector;
use crate::request::{self, LatestError};
use crate::shared::ReflectorShared;
use crate::state::{CacherState, Continuity};
use crate::stats::Stats;
use crate::update::UpdateObserver;
use crate::wait::{NotReached, StillThere, VersionWaiter};

/// One resource of one cluster, held in memory by one task.
///
/// Dropping it ends the task and with it the request to the member. Snapshots taken from it stay valid.
pub struct Cacher {
    shared: Arc<ReflectorShared>,
    transport: Transport,
    task: tokio::task::AbortHandle,
}

impl Cacher {
    /// Starts to list and watch. Must be called within a tokio runtime.
    ///
    /// The observer is told every step, the first complete state included; see [`UpdateObserver`] for what it may
    /// rely on.
    pub fn start(config: CacherConfig, transport: Transport, observer: Arc<dyn UpdateObserver>) -> Self {
        Self::start_after(None, config, transport, observer)
    }

    /// As [`start`](Self::start), in the place of one of the same collection, where there is one. What there was room
    /// for in that one, there is room for in this one, whatever others have taken meanwhile. That one has nothing
    /// reserved any more, and is to be dropped. Objects that are the same in it are shared with it, so that nothing is
    /// held twice, nor taken for replaced; where it has not been complete itself, with the one before it. The observer
    /// is told that this one is [`Synced`](crate::Update::Synced) all the same.
    pub fn start_after(
        before: Option<&Self>,
        config: CacherConfig,
        transport: Transport,
        observer: Arc<dyn UpdateObserver>,
    ) -> Self {
        let span = tracing::info_span!(
            "cacher",
            cluster = %config.cluster,
            resource = %config.resource,
            namespace = config.namespace.as_deref(),
        );
        let handed_over = before.and_then(|before| {
            let mut room = before.shared.room.lock();
            room.is_of(&config.room).then(|| room.hand_over())
        });
        let room = handed_over.unwrap_or_else(|| config.room.new_collection());
        // What another decoder made of the same text is another object.
        let earlier = before.filter(|before| before.config().decoder == config.decoder).and_then(Self::served);
        let shared = Arc::new(ReflectorShared::new(config, room, earlier));
        let reflector = Reflector::new(shared.clone(), transport.clone(), observer);
        let task = tokio::spawn(reflector.run().instrument(span)).abort_handle();
        Self { shared, transport, task }
    }

    /// What this cacher holds.
    pub fn config(&self) -> &CacherConfig {
        &self.shared.config
    }

    /// The collection as of now, or `None` until it was first complete. Cost: O(1), never waits for the writer's work.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.shared.published.borrow().clone()
    }

    /// What is served of the collection: what this cacher holds, and until its first complete list what was held before
    /// it.
    fn served(&self) -> Option<Snapshot> {
        // In this order: that goes once the list is published.
        let earlier = self.shared.earlier.lock().clone();
        self.snapshot().or(earlier)
    }

    /// How far this cacher is.
    pub fn state(&self) -> CacherState {
        self.shared.state.borrow().clone()
    }

    /// How far this cacher is, followed. The channel closes when the cacher is dropped.
    pub fn states(&self) -> watch::Receiver<CacherState> {
        self.shared.state.subscribe()
    }

    /// Whether changes arrive now, followed. What it says comes behind the changes that it speaks of: who reads this
    /// first finds what is held no older. Ends as [`Continuity::Broken`].
    pub fn continuity(&self) -> watch::Receiver<Continuity> {
        self.shared.continuity.subscribe()
    }

    /// When contact was last lost, or an attempt to have it back failed: the member said then, or later, what
    /// [`state`](Self::state) gives as the reason if that is read behind this.
    pub fn failed_at(&self) -> Option<Instant> {
        *self.shared.failed_at.borrow()
    }

    /// Has the member asked again at once where an attempt has failed and the next one waits for its time. Does nothing
    /// otherwise.
    pub fn retry(&self) {
        self.shared.retry.notify_waiters();
    }

    /// Counts since the start, and what is held.
    pub fn stats(&self) -> Stats {
        self.shared.counts.stats()
    }

    /// Says that the member is another one than before (its kube-system uid changed): the collection is listed anew and
    /// the observer told [`Reset`](crate::Update::Reset). Until then the old state is served.
    pub fn reset(&self) {
        self.shared.reset.notify_one();
    }

    /// Says that requests to the member carry other credentials from now on: the watch is opened anew from the version
    /// held, at some moment within this time, so that what they allow is known.
    /// Until then the open one goes on, and no event is lost.
    pub fn reopen(&self, within: Duration) {
        let at = Instant::now() + within.mul_f64(rand::random());
        self.shared.reopen_at.send_modify(|due| *due = Some(due.map_or(at, |due| due.min(at))));
    }

    /// Says what is known of the member by all who talk to it. While it cannot be reached, a collection whose changes
    /// do not arrive is stale at once, as of when the member last said anything; one whose changes arrive is not
    /// concerned. When it has become well, no failure is waited out any longer.
    pub fn set_member_health(&self, health: MemberHealth) {
        self.shared.member.send_if_modified(|known| {
            let is_news = *known != health;
            *known = health;
            is_news
        });
    }

    /// Waits until every change up to `version` is contained, and gives a snapshot that contains them. Whoever waits
    /// for one write waits until its revision has [begun](CollectionVersion::begun).
    ///
    /// Returns at once if so already. Where the member's collection does not change, neither does its version: then the
    /// member is asked for progress after a moment, once for all waiters, which takes about 1.2 s on a kube-apiserver
    /// 1.36. Cancelling is safe.
    ///
    /// # Errors
    /// [`NotReached::Beyond`] as soon as the member says that it has not come so far itself; [`NotReached::TooNew`] if
    /// `within` passes first.
    pub async fn wait_for(
        &self,
        version: impl Into<CollectionVersion>,
        within: Duration,
    ) -> Result<Snapshot, NotReached> {
        let version = version.into();
        let now = self.snapshot();
        if let Some(snapshot) = now.filter(|snapshot| snapshot.resource_version() >= version) {
            return Ok(snapshot);
        }
        self.wait(self.shared.wanted.enter(version), within).await
    }

    /// As [`wait_for`](Self::wait_for), for a version that was known before this cacher was started: whatever the
    /// member has said to it counts, its first list too.
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    pub async fn wait_for_known(
        &self,
        version: impl Into<CollectionVersion>,
        within: Duration,
    ) -> Result<Snapshot, NotReached> {
        self.wait(self.shared.wanted.enter_known(version.into(), 0), within).await
    }

    async fn wait(&self, waiting: VersionWaiter<'_>, within: Duration) -> Result<Snapshot, NotReached> {
        let version = waiting.version();
        let reached = |snapshot: &Option<Snapshot>| snapshot.as_ref().is_some_and(|s| s.resource_version() >= version);
        let mut published = self.shared.published.subscribe();
        let found = async { published.wait_for(reached).await.ok().and_then(|snapshot| snapshot.clone()) };
        let found = tokio::select! {
            // Where the member was below the version when asked, what it has come to since is another
            // state under that version.
            biased;
            latest = waiting.beyond() => return Err(NotReached::Beyond { wanted: version, latest }),
            found = found => found,
            () = sleep(within) => None,
        };
        let too_new = || NotReached::TooNew { wanted: version, current: self.snapshot().map(|s| s.resource_version()) };
        found.ok_or_else(too_new)
    }

    /// Waits until no object of this key has this uid, or, where a version is given, one newer than it; gives a
    /// snapshot in which it is so.
    ///
    /// An object that has not arrived yet counts as gone: whoever created it waits for that version first.
    /// Cancelling is safe.
    ///
    /// # Errors
    /// [`StillThere`] if `within` passes first (finalizers, a grace period, or a member out of reach).
    pub async fn wait_until_gone(
        &self,
        key: &str,
        uid: &str,
        or_newer_than: Option<ResourceVersion>,
        within: Duration,
    ) -> Result<Snapshot, StillThere> {
        let is_past = |object: &Arc<Object>| {
            object.uid() != uid || or_newer_than.is_some_and(|version| object.resource_version() > version)
        };
        let gone = |snapshot: &Option<Snapshot>| snapshot.as_ref().is_some_and(|s| s.get(key).is_none_or(is_past));
        let mut published = self.shared.published.subscribe();
        let found = timeout(within, published.wait_for(gone)).await;
        let snapshot = found.ok().and_then(Result::ok).and_then(|snapshot| snapshot.clone());
        snapshot.ok_or_else(|| StillThere { key: key.to_owned(), uid: uid.to_owned() })
    }

    /// Asks the member for its latest version: an unset list with `limit=1` of the collection, which a kube-apiserver
    /// answers as of "most recent".
    ///
    /// The store is not touched. One request, at most the answer timeout of
    /// [`ReflectorTuning`](crate::ReflectorTuning).
    ///
    /// # Errors
    /// [`LatestError`]; cancelling is safe and cancels the request.
    pub async fn latest(&self) -> Result<ResourceVersion, LatestError> {
        request::latest(&self.shared.config, &self.transport).await
    }
}

impl std::fmt::Debug for Cacher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cacher")
            .field("cluster", &self.shared.config.cluster)
            .field("resource", &self.shared.config.resource)
            .field("namespace", &self.shared.config.namespace)
            .field("state", &*self.shared.state.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Cacher {
    fn drop(&mut self) {
        self.task.abort();
    }
}
