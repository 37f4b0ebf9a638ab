//! Handles watches: initial events, changes, bookmarks, and the different reasons for the end of a watch.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Response};
use rand::Rng as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::status::FieldError;
use tributary_apimachinery::{ChangeType, Object, Query, Status};

use crate::api::Api;
use crate::body::{self, Body};
use crate::catalog::CATALOG;
use crate::control::Listed;
use crate::list::{parse_version, wait_for};
use crate::path::ResourcePath;
use crate::present::Form;
use crate::response::json;
use crate::select::Selection;
use crate::store::{Content, StoreEvent};

const BATCH: usize = 500;
/// The time between the last bookmark and the end of a watch (kube-apiserver's bookmarkFrequency logic).
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The minimum duration of a watch without `timeoutSeconds`, in seconds. The duration is random between this value and
/// its double.
const TIMEOUT_DEFAULT: u64 = 1800;

struct WatchParameters {
    /// The resourceVersion in the request; 0 if it is missing.
    version: u64,
    initial_events: bool,
    bookmarks: bool,
    timeout: Duration,
}

pub(crate) fn watch(
    api: &Arc<Api>,
    target: &ResourcePath,
    query: &Query<'_>,
    form: Form,
    gzip: bool,
) -> Result<Response<Body>, Status> {
    let selection = Selection::parse(target, query, api.store().decoder(target.resource).fields())?;
    let options = WatchParameters::parse(query, api.watch_list())?;
    let gzip = gzip && api.faults().gzip_watches();
    let (sender, body) = body::streamed(api.faults());
    let watcher = SimulatedWatch {
        api: api.clone(),
        target: target.clone(),
        selection,
        form,
        sender,
        gzip,
        out: Vec::new(),
        sent_any: false,
        cursor: 0,
        bookmarked: 0,
    };
    let open = api.faults().watch_opened();
    let mut expire = api.faults().expire.subscribe();
    expire.mark_unchanged();
    api.spawn(async move {
        let _open = open;
        // The stream is closed with EOF, whatever the reason for the end of the watch.
        let _ = watcher.run(options, expire).await;
    });
    let mut response = json(200, body);
    if gzip {
        response.headers_mut().insert(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

impl WatchParameters {
    fn parse(query: &Query<'_>, watch_list: bool) -> Result<Self, Status> {
        let parameter = |name| query.get(name).filter(|value| !value.is_empty());
        let version = parameter("resourceVersion");
        let matching = parameter("resourceVersionMatch");
        let initial_events = query.bool("sendInitialEvents");
        let invalid = |field, detail: &str| Err(Status::invalid_list_options(&[FieldError::forbidden(field, detail)]));
        if initial_events.is_some() && !watch_list {
            return invalid(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            );
        }
        match (initial_events, matching) {
            (None, Some(_)) => {
                return invalid(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
            (Some(_), matching) if matching != Some("NotOlderThan") => {
                return invalid(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            _ => {}
        }
        let from_start = matches!(version, None | Some("0"));
        let seconds = match parameter("timeoutSeconds").and_then(|text| text.parse::<u64>().ok()) {
            None | Some(0) => rand::rng().random_range(TIMEOUT_DEFAULT..2 * TIMEOUT_DEFAULT),
            Some(seconds) => seconds,
        };
        Ok(Self {
            version: version.map_or(Ok(0), parse_version)?,
            initial_events: initial_events.unwrap_or(from_start),
            bookmarks: query.bool("allowWatchBookmarks") == Some(true),
            timeout: Duration::from_secs(seconds),
        })
    }
}

/// The reason for the end of the stream: the client disconnected, or all events were sent.
struct WatchEnded;

struct SimulatedWatch {
    api: Arc<Api>,
    target: ResourcePath,
    selection: Selection,
    form: Form,
    sender: mpsc::Sender<Bytes>,
    gzip: bool,
    out: Vec<u8>,
    /// Whether an object was sent. A Table has its columns only in the first event.
    sent_any: bool,
    /// The revision up to which the client has received all events.
    cursor: u64,
    bookmarked: u64,
}

impl SimulatedWatch {
    async fn run(
        mut self,
        options: WatchParameters,
        mut expire: tokio::sync::watch::Receiver<u64>,
    ) -> Result<(), WatchEnded> {
        let store = self.api.store().clone();
        let end = Instant::now() + options.timeout;
        let mut changes = store.changes();
        let (faults, resource) = (self.api.faults().clone(), CATALOG[self.target.resource].qualified());
        let mut unserved = faults.unserved.subscribe();
        let bookmarks = options.bookmarks && faults.has_bookmarks(&resource);
        self.begin(&options, end).await?;
        let mut replays = !options.initial_events;
        let mut next_bookmark = bookmarks.then(|| self.bookmark_time(end));
        loop {
            changes.mark_unchanged();
            self.lag(end).await?;
            let more = self.events(&options, replays).await?;
            replays &= more;
            if more {
                continue;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = self.sender.closed() => return Err(WatchEnded),
                _ = unserved.changed() => if faults.is_unserved(&resource) { return Ok(()) },
                _ = expire.changed() => {
                    return self.error(&Status::watch_expired(self.cursor, store.revision())).await;
                }
                due = at(next_bookmark), if next_bookmark.is_some() => {
                    next_bookmark = (due + BOOKMARK_BEFORE_END < end).then(|| self.bookmark_time(end));
                    self.bookmark(self.cursor, false).await?;
                }
                () = sleep_until(end) => return Ok(()),
            }
        }
    }

    /// Sends the initial events, or starts at the version of the request.
    async fn begin(&mut self, options: &WatchParameters, end: Instant) -> Result<(), WatchEnded> {
        if options.initial_events {
            // The time limit of the watch may pass before all initial events are sent, and then ends the watch.
            return tokio::time::timeout_at(end, self.initial_events(options)).await.unwrap_or(Err(WatchEnded));
        }
        self.cursor = if options.version == 0 { self.api.store().revision() } else { options.version };
        self.bookmarked = self.cursor;
        Ok(())
    }

    async fn lag(&self, end: Instant) -> Result<(), WatchEnded> {
        let lag = self.api.faults().watch_lag();
        if lag.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = sleep_until(Instant::now() + lag) => Ok(()),
            () = sleep_until(end) => Err(WatchEnded),
            () = self.sender.closed() => Err(WatchEnded),
        }
    }

    /// Sends the next events, and returns whether more events exist. `replays` is true if the events are older than the
    /// watch.
    async fn events(&mut self, options: &WatchParameters, replays: bool) -> Result<bool, WatchEnded> {
        let store = self.api.store().clone();
        let Some((events, upto)) = store.events_after(self.target.resource, self.cursor, BATCH) else {
            // If the version is too old at the start of the watch, the client gets an ERROR event. A client that later
            // falls behind the watch window gets EOF.
            if !self.sent_any && self.cursor == options.version {
                self.error(&Status::watch_expired(options.version, store.revision())).await?;
            }
            return Err(WatchEnded);
        };
        let more = events.len() >= BATCH;
        // As in kube-apiserver, no bookmark has the version of the last replayed event, because the client has received
        // this version with the event.
        if let Some(last) = events.last().filter(|_| replays) {
            self.bookmarked = self.bookmarked.max(last.revision);
        }
        for event in events {
            self.event(&event);
        }
        self.cursor = upto;
        self.flush().await?;
        Ok(more)
    }

    /// Returns the time of the next bookmark: after the interval, or shortly before the end of the watch.
    fn bookmark_time(&self, end: Instant) -> Instant {
        (Instant::now() + self.api.bookmark_interval()).min(end - BOOKMARK_BEFORE_END)
    }

    /// Sends all objects as ADDED events, and then the bookmark that ends the initial events.
    async fn initial_events(&mut self, options: &WatchParameters) -> Result<(), WatchEnded> {
        if let Err(status) = wait_for(&self.api, options.version).await {
            self.error(&status).await?;
            return Err(WatchEnded);
        }
        let view = self.api.store().view(self.target.resource);
        let namespace = self.selection.namespace.clone();
        if namespace.is_none() {
            let resource = CATALOG[self.target.resource].qualified();
            self.api.faults().log_list(Listed { resource, limit: 0, revision: view.revision() });
        }
        for object in view.range(namespace.as_deref(), None) {
            if self.selection.matches(&object) {
                self.object("ADDED", &object);
            }
            if self.out.len() >= 64 * 1024 {
                self.flush().await?;
            }
        }
        self.cursor = view.revision();
        if options.bookmarks {
            self.bookmark(self.cursor, true).await?;
        }
        self.flush().await
    }

    /// Adds an event to the batch, in the form that the client has requested.
    fn event(&mut self, event: &StoreEvent) {
        match &event.content {
            Content::Raw(text) => {
                self.out.extend_from_slice(text.as_bytes());
                self.out.push(b'\n');
            }
            Content::Change { change_type, object, previous } => {
                let now = *change_type != ChangeType::Deleted && self.selection.matches(object);
                let before = previous.as_ref().is_some_and(|previous| self.selection.matches(previous));
                match (before, now) {
                    (false, false) => {}
                    (false, true) => self.object("ADDED", object),
                    (true, true) => self.object("MODIFIED", object),
                    (true, false) => self.send_deleted(object, previous.as_deref()),
                }
            }
        }
    }

    /// Adds the DELETED event of an object that no longer matches the selector: its previous state with the version of
    /// the event.
    fn send_deleted(&mut self, object: &Object, previous: Option<&Object>) {
        let version = object.resource_version().0.to_string();
        let mut text = Vec::new();
        let rendering = tributary_apimachinery::Rendering { resource_version: Some(&version), ..crate::present::AS_IS };
        previous.unwrap_or(object).render(&rendering, &mut text);
        if let Ok(object) = self.api.store().decoder(self.target.resource).decode(&text) {
            self.object("DELETED", &object);
        }
    }

    fn object(&mut self, event: &str, object: &Object) {
        self.out.extend_from_slice(format!(r#"{{"type":"{event}","object":"#).as_bytes());
        self.form.object(object, !self.sent_any, &mut self.out);
        self.out.extend_from_slice(b"}\n");
        self.sent_any = true;
    }

    /// Sends a bookmark, unless the last bookmark has the same revision.
    async fn bookmark(&mut self, revision: u64, initial_events_end: bool) -> Result<(), WatchEnded> {
        if !initial_events_end && revision <= self.bookmarked {
            return Ok(());
        }
        self.bookmarked = revision;
        let described = &CATALOG[self.target.resource];
        self.out.extend_from_slice(br#"{"type":"BOOKMARK","object":"#);
        self.form.bookmark(described.kind, &described.api_version(), revision, initial_events_end, &mut self.out);
        self.out.extend_from_slice(b"}\n");
        self.flush().await
    }

    async fn error(&mut self, status: &Status) -> Result<(), WatchEnded> {
        self.out.extend_from_slice(br#"{"type":"ERROR","object":"#);
        self.out.extend_from_slice(&status.to_json());
        self.out.extend_from_slice(b"}\n");
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), WatchEnded> {
        if self.out.is_empty() {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.out);
        if self.gzip {
            bytes = gzip_member(&bytes);
        }
        self.sender.send(Bytes::from(bytes)).await.map_err(|_| WatchEnded)
    }
}

/// Compresses bytes to a complete gzip member.
fn gzip_member(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Completes at the time `moment` and returns it. Without a time, the future never completes.
async fn at(moment: Option<Instant>) -> Instant {
    let Some(moment) = moment else { return std::future::pending().await };
    sleep_until(moment).await;
    moment
}
