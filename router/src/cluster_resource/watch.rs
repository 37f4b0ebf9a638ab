//! Watches of `clusters`.
//!
//! A watch remembers the objects that its client has, and compares them once a second with a sample of the report. One
//! comparison covers all changes: an object that enters or leaves the selection, and a cluster that the user begins or
//! ceases to see.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::unfold;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use tokio::time::{Instant, sleep_until};
use tributary_answers::answer;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::{Refusal, RequestRefusal, VersionRefusal};
use tributary_answers::termination_reason::TerminationReason;
use tributary_apimachinery::{ClusterName, Filter, Object, Timeout, WatchOptions, or_pending};
use tributary_fleet::aggregated_group::clusters_kind;
use tributary_rights::CallerRights;
use tributary_sharing::body::{self, Body, BoxError};
use tributary_sharing::limits;

use super::collection::{ClusterCollection, ClusterObjects};
use super::known::KnownClusters;
use super::request::ClustersRequest;
use super::sample;
use super::version::ClustersVersion;
use crate::Router;
use crate::dispatch::Dispatched;
use crate::response::watch::{error, frame};
use crate::response::{Columns, ObjectContext, ObjectWriter};

/// Interval between bookmarks, as in kube-apiserver.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Range of a watch's default timeout, in seconds (kube-apiserver's `minRequestTimeout`, and twice that).
const TIMEOUT_SECONDS: std::ops::Range<u64> = 1800..3600;

/// Answers a watch. An error about the resourceVersion is an event in the stream, as for other resources.
///
/// # Errors
/// 400, 406 and 422 for an invalid request.
pub(super) async fn watch(request: ClustersRequest<'_>) -> Result<Response<Body>, Refusal> {
    let (form, include) = request.form(ResponseKind::Watch)?;
    let options = WatchOptions::parse(request.received.query, limits::SELECTOR).map_err(Refusal::malformed)?;
    let filter = request.filter(&options.label_selector, &options.field_selector)?;
    let answer = |body| answer::with_content_type(StatusCode::OK, form.encoding.stream_content_type(), body);
    let (router, caller) = (request.router, request.caller);
    let collection = sample::for_watch(router).await;
    let objects = collection.objects();
    let known = KnownClusters::find(request.rights(), &objects).await;
    if known.has_unknown() {
        caller.record_unknown_rights();
    }
    let begun = begin(router, &options, &collection, &known);
    let position = match begun {
        Ok(position) => position,
        Err(refusal) => return Ok(answer(body::full(error(&Refusal::from(refusal).status(), form)))),
    };
    let writer = ObjectWriter::without_clusters(&clusters_kind(), form, include);
    let now = Instant::now();
    let timeout =
        options.timeout.unwrap_or_else(|| Timeout::new(Duration::from_secs(rand::rng().random_range(TIMEOUT_SECONDS))));
    let events = EventQueue { writer, columns: Columns::Defined, frames: VecDeque::new() };
    let mut stream = ClusterWatch {
        router: Arc::clone(router),
        rights: request.rights().cloned(),
        dispatched: caller.dispatched.clone(),
        filter,
        known,
        revision: position.revision,
        shown: ClusterObjects::new(),
        present: position.objects,
        takes_bookmarks: options.allow_watch_bookmarks,
        events,
        next_look: now,
        next_bookmark: now + BOOKMARK_INTERVAL,
        ends_at: now + timeout.duration(),
        termination: caller.termination().map(FutureExt::boxed),
        has_ended: false,
    };
    stream.take_initial_objects(&options);
    Ok(answer(frames(stream)))
}

/// Revision and objects from which a watch continues.
struct WatchPosition {
    revision: u64,
    objects: ClusterObjects,
}

/// Finds the state from which a watch continues.
///
/// # Errors
/// [`VersionRefusal`] for a version of a different process, of other known clusters, or before the remembered changes.
fn begin(
    router: &Router,
    options: &WatchOptions,
    collection: &ClusterCollection,
    known: &KnownClusters,
) -> Result<WatchPosition, VersionRefusal> {
    let now = WatchPosition { revision: collection.revision(), objects: collection.objects() };
    let Some(text) = options.resource_version.as_deref().filter(|text| *text != "0") else { return Ok(now) };
    let instance = router.cluster_store().instance();
    let ClustersVersion { revision, scope } =
        ClustersVersion::parse(text, instance).map_err(|_| VersionRefusal::OfAnotherProcess)?;
    if options.sends_initial_events() && revision <= now.revision {
        return Ok(now);
    }
    let objects = collection.objects_at(revision).ok_or(VersionRefusal::OfAnotherProcess)?;
    match known.scope(objects.keys()) == scope {
        true => Ok(WatchPosition { revision, objects }),
        false => Err(VersionRefusal::AnotherScope),
    }
}

/// Encoded events that wait until the client reads them.
struct EventQueue {
    writer: ObjectWriter,
    /// Whether the next Table defines its columns.
    columns: Columns,
    frames: VecDeque<Bytes>,
}

impl EventQueue {
    fn push(&mut self, event_type: &str, object: &Object, version: &str) {
        let columns = std::mem::replace(&mut self.columns, Columns::Omitted);
        let mut text = Vec::new();
        self.writer.now = jiff::Timestamp::now();
        self.writer.write_of(None, object, version, ObjectContext::Alone(columns), &mut text);
        self.frames.push_back(frame(event_type, &text, self.writer.form()));
    }

    fn push_bookmark(&mut self, version: &str, ends_initial_events: bool) {
        let columns = std::mem::replace(&mut self.columns, Columns::Omitted);
        let mut text = Vec::new();
        self.writer.write_bookmark(&clusters_kind(), version, ends_initial_events, columns, &mut text);
        self.frames.push_back(frame("BOOKMARK", &text, self.writer.form()));
    }
}

struct ClusterWatch {
    router: Arc<Router>,
    /// Rights of the watch's user; `None` in personal mode.
    rights: Option<CallerRights>,
    /// Dispatch policies of the watch.
    dispatched: Option<Arc<Dispatched>>,
    filter: Filter,
    known: KnownClusters,
    revision: u64,
    /// Objects that the client has.
    shown: ClusterObjects,
    /// All objects at `revision`.
    present: ClusterObjects,
    takes_bookmarks: bool,
    events: EventQueue,
    next_look: Instant,
    next_bookmark: Instant,
    ends_at: Instant,
    termination: Option<BoxFuture<'static, TerminationReason>>,
    has_ended: bool,
}

enum ClustersWake {
    Look,
    Bookmark,
    End,
    Terminated(TerminationReason),
}

impl ClusterWatch {
    /// Records the current objects as objects of the client. Sends them as initial events if the client requests these.
    fn take_initial_objects(&mut self, options: &WatchOptions) {
        let selected = self.present.iter().filter(|(cluster, object)| self.selects(cluster, object));
        self.shown = selected.map(|(cluster, object)| (cluster.clone(), Arc::clone(object))).collect();
        if !options.sends_initial_events() {
            return;
        }
        let scope = self.known.scope(self.present.keys());
        let whole = self.version();
        let has_end = options.sends_initial_events_end();
        let last = self.shown.keys().last().filter(|_| !has_end);
        for (cluster, object) in &self.shown {
            // If no bookmark follows, the client resumes from the last event, so the last event has the version of all
            // objects.
            let version = match Some(cluster) == last {
                true => whole.clone(),
                false => self.router.cluster_store().version(object.resource_version().0, scope),
            };
            self.events.push("ADDED", object, &version);
        }
        if has_end {
            self.events.push_bookmark(&whole, true);
        }
    }

    fn selects(&self, cluster: &ClusterName, object: &Object) -> bool {
        self.known.has(cluster) && self.filter.matches(cluster, object)
    }

    /// Formats the version of all current objects, for this user.
    fn version(&self) -> String {
        self.router.cluster_store().version(self.revision, self.known.scope(self.present.keys()))
    }

    /// Returns the next frame; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.events.frames.pop_front() {
                return Some(frame);
            }
            if self.has_ended {
                return None;
            }
            match self.wait().await {
                ClustersWake::Look => self.look().await,
                ClustersWake::Bookmark => self.bookmark(),
                ClustersWake::End => {
                    self.bookmark();
                    self.has_ended = true;
                }
                ClustersWake::Terminated(why) => self.fail(&RequestRefusal::Terminated(why).into()),
            }
        }
    }

    async fn wait(&mut self) -> ClustersWake {
        let draining = self.router.draining();
        tokio::select! {
            biased;
            why = or_pending(self.termination.as_mut()) => ClustersWake::Terminated(why),
            () = draining.cancelled() => ClustersWake::End,
            () = sleep_until(self.ends_at) => ClustersWake::End,
            () = sleep_until(self.next_bookmark) => ClustersWake::Bookmark,
            () = sleep_until(self.next_look) => ClustersWake::Look,
        }
    }

    fn bookmark(&mut self) {
        self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
        if self.takes_bookmarks {
            let version = self.version();
            self.events.push_bookmark(&version, false);
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.events.frames.clear();
        self.events.frames.push_back(error(&refusal.status(), self.events.writer.form()));
        self.has_ended = true;
    }

    /// Sends the changes since the last call. Reads the rights after the sample, so that a concurrent loss of rights
    /// shows fewer clusters, never more.
    async fn look(&mut self) {
        self.next_look = Instant::now() + sample::WATCH_INTERVAL;
        let is_refused = |dispatched: &Arc<Dispatched>| dispatched.denying_now(std::iter::empty()).is_none();
        if self.dispatched.as_ref().is_some_and(is_refused) {
            return self.fail(&RequestRefusal::Terminated(TerminationReason::Policy).into());
        }
        let collection = sample::for_watch(&self.router).await;
        let known = KnownClusters::of_present_rights(self.rights.as_ref(), &collection.objects()).await;
        // An unknown right is no deletion, so the stream ends with an error. The client then lists again, and gets a
        // Warning.
        if known.has_unknown() && self.shown.keys().any(|cluster| !known.has(cluster)) {
            return self.fail(&VersionRefusal::AnotherScope.into());
        }
        match collection.changes_after(self.revision) {
            Some(changes) => {
                for change in changes {
                    match &change.after {
                        Some(after) => self.present.insert(change.cluster.clone(), Arc::clone(after)),
                        None => self.present.remove(&change.cluster),
                    };
                    self.revision = change.revision;
                    // Changes of a cluster that the user ceases to see are not sent.
                    if change.after.is_none() || known.has(&change.cluster) {
                        let version = self.version();
                        self.show(&change.cluster, &version);
                    }
                }
            }
            None => return self.fail(&VersionRefusal::OfAnotherProcess.into()),
        }
        self.follow_rights(known);
    }

    /// Sends the event after which the client's object of a cluster equals the current object. `version` is the version
    /// of the event.
    fn show(&mut self, cluster: &ClusterName, version: &str) {
        let now = self.present.get(cluster).filter(|object| self.selects(cluster, object)).cloned();
        match (self.shown.get(cluster), now) {
            (Some(before), Some(now)) if Arc::ptr_eq(before, &now) => {}
            (before, Some(now)) => {
                self.events.push(if before.is_some() { "MODIFIED" } else { "ADDED" }, &now, version);
                self.shown.insert(cluster.clone(), now);
            }
            (Some(_), None) => {
                if let Some(before) = self.shown.remove(cluster) {
                    self.events.push("DELETED", &before, version);
                }
            }
            (None, None) => {}
        }
    }

    /// Sends an event for each cluster that the user begins or ceases to see. Only the last event has a version with
    /// the new rights, so a client that loses the connection earlier lists again.
    fn follow_rights(&mut self, known: KnownClusters) {
        let is_changed = |cluster: &&ClusterName| known.has(cluster) != self.known.has(cluster);
        let changed: Vec<_> = self.present.keys().filter(is_changed).cloned().collect();
        let before = self.version();
        self.known = known;
        let after = self.version();
        let last = changed.last().cloned();
        for cluster in changed {
            let version = if last.as_ref() == Some(&cluster) { &after } else { &before };
            self.show(&cluster, version);
        }
    }
}

/// Returns the stream as a body. Boxed, because each frame moves the stream in and out of a future.
fn frames(stream: ClusterWatch) -> Body {
    let frames = unfold(Box::new(stream), |mut stream| async move {
        Some((Ok::<_, BoxError>(Frame::data(stream.next().await?)), stream))
    });
    StreamBody::new(frames).boxed_unsync()
}
