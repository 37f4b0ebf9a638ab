//! The task that lists and watches: it carries out what the [machine](crate::machine) decides.
//!
//! One task owns the store. It reads bytes, makes events of them, applies them, tells the observer and then publishes the
//! snapshot; nothing else writes. While it waits for anything it also keeps the state that readers see up to date and
//! listens for [`Cacher::reset`](crate::Cacher::reset).
//!
//! What cannot be read: an object or frame that is not what a member should send is skipped and counted, and the stream
//! lives on. What was known of that object (if anything) stays as it was until its next readable event or the next
//! list: a skipped DELETED leaves the object in place, a skipped item of a list leaves it out. The log names the
//! version after which it came or the item's number, at most once a minute, and never any content.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tributary_apimachinery::{Change, ChangeType, CollectionVersion, DecodeError, ResourceVersion};

use crate::amount::PageTime;
use crate::backoff;
use crate::health::{Announced, Health, News};
use crate::list_stream::{ListError, ListParser};
use crate::machine::{Action, Input, Machine};
use crate::page::{Page, PageError, Text};
use crate::progress::{self, Call, Progress, Verdict};
use crate::request::{self, LatestError, Refusal, Target, chain};
use crate::shared::Shared;
use crate::state::{Reason, State};
use crate::store::{Staging, Store};
use crate::stream::{Turn, WatchStream};
use crate::update::{Observer, Update};
use crate::watch_event::WatchEvent;
use crate::{Body, BoxError, Transport};

/// The shortest time between two log lines about what cannot be read. One minute: a member that sends nothing else
/// would fill the log.
const DECODE_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The most requests of one reflector within [`PACE_INTERVAL`], further pages of a list not counted. Watches that end are
/// resumed at once, and what they bring meanwhile counts as success: a member (or a proxy before it) that ends each after its
/// first event would be asked as fast as it answers.
const REQUESTS_PER_INTERVAL: u32 = 10;
/// The time in which requests are counted.
const PACE_INTERVAL: Duration = Duration::from_secs(1);

/// The reflector's task, before it runs.
pub(crate) struct Reflector {
    shared: Arc<Shared>,
    transport: Transport,
    observer: Arc<dyn Observer>,
    machine: Machine,
    first: Option<Action>,
    /// `None` until the first complete list.
    store: Option<Store>,
    staging: Staging,
    /// The version of the pages that have come of the list under way; zero before the first.
    listed: ResourceVersion,
    /// How long pages may take.
    page_time: PageTime,
    /// The number of the list under way as a question for the member's latest version.
    question: u64,
    reading: Reading,
    progress: Progress,
    health: Health,
    announced: Announced,
    decode_logged: Option<Instant>,
    /// When counting began, and the requests since.
    pace: (Instant, u32),
    /// What the member last warned of.
    warnings: Vec<HeaderValue>,
}

/// What is being read.
enum Reading {
    Nothing,
    Watch(Box<WatchStream>),
    /// A list, or a page of it.
    Page(Box<Page>),
}

/// `Cacher::reset` was called.
struct ResetAsked;

impl Reflector {
    pub(crate) fn new(shared: Arc<Shared>, transport: Transport, observer: Arc<dyn Observer>) -> Self {
        let (machine, first) = Machine::start(shared.config.tuning.page_size);
        let health = Health::new(Instant::now(), shared.config.tuning.stale_after);
        let page_time = PageTime::new(shared.config.tuning.page_time);
        let resource = shared.config.resource.clone();
        Self {
            shared,
            transport,
            observer,
            machine,
            first: Some(first),
            store: None,
            staging: Staging::default(),
            listed: ResourceVersion::default(),
            page_time,
            question: 0,
            reading: Reading::Nothing,
            progress: Progress::new(&resource),
            health,
            announced: Announced::default(),
            decode_logged: None,
            pace: (Instant::now(), 0),
            warnings: Vec::new(),
        }
    }

    /// Lists and watches until the task is aborted.
    pub(crate) async fn run(mut self) {
        let mut action = self.first.take().unwrap_or(Action::Read);
        loop {
            let done = match action {
                Action::Open(target) => self.open(target).await,
                Action::Read => self.read().await,
                Action::Wait { failures, at_least } => self.wait(failures, at_least).await,
            };
            let input = done.unwrap_or_else(|ResetAsked| self.went_back());
            self.show_state();
            tracing::trace!(?input, "reflector");
            (self.machine, action) = self.machine.clone().step(input);
        }
    }

    // ---- requests ----

    /// Sends a request in place of what is being read.
    async fn open(&mut self, target: Target) -> Result<Input, ResetAsked> {
        self.reading = Reading::Nothing;
        if !matches!(target, Target::Page { continue_token: Some(_), .. }) {
            self.keep_pace().await?;
        }
        match &target {
            Target::Latest => return self.ask_latest(self.version()).await,
            Target::LatestThenPage { .. } => {
                return self.ask_latest(self.version().max(self.listed.into())).await;
            }
            _ => {}
        }
        if matches!(target, Target::WatchList | Target::Page { continue_token: None, .. } | Target::Whole { .. }) {
            self.staging = Staging::new(self.shared.config.decoder.fields(), self.store.as_ref().map(Store::snapshot));
            self.listed = ResourceVersion::default();
            self.progress.forget();
            self.question = self.shared.wanted.next_question();
        }
        let shared = self.shared.clone();
        let tuning = &shared.config.tuning;
        if matches!(target, Target::WatchList | Target::Watch { .. }) {
            // This one has the credentials of now.
            shared.reopen_at.send_replace(None);
        }
        let request = match request::build(&shared.config, &target, self.version().resume_after()) {
            Ok(request) => request,
            Err(error) => return Ok(self.failed(Reason::Other(format!("no request can be made: {error}")))),
        };
        tracing::debug!(uri = %request.uri(), "asking the member");
        let begun = Instant::now();
        let answer = timeout(tuning.answer_timeout, request::send(&self.transport, request));
        let response = match self.attend(answer).await? {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let failed = self.unreachable(&error);
                return Ok(if target.is_list() { Input::BrokeOff { read: 0, late: false } } else { failed });
            }
            Err(_) => {
                let failed = self.no_answer(tuning.answer_timeout);
                return Ok(if target.is_list() { Input::Unanswered } else { failed });
            }
        };
        if !response.status().is_success() {
            let refusal = self.attend(request::refusal(response, tuning.answer_timeout)).await?;
            if refusal.is_ahead && matches!(target, Target::Page { continue_token: Some(_), .. }) {
                let retry_after = refusal.retry_after;
                self.refused(refusal, false);
                return Ok(Input::PageAhead { retry_after });
            }
            let took_too_long = target.is_list() && refusal.code == StatusCode::GATEWAY_TIMEOUT;
            let refused = self.refused(refusal, target == Target::WatchList);
            if took_too_long {
                self.page_time = self.page_time.after_break(begun.elapsed());
            }
            return Ok(if took_too_long { Input::Unanswered } else { refused });
        }
        let gzip = match request::is_gzip(response.headers(), &target) {
            Ok(gzip) => gzip,
            Err(encoding) => {
                let reason = format!("the answer is encoded as {encoding}, which was not asked for");
                return Ok(self.failed(Reason::Other(reason)));
            }
        };
        self.begin_reading(target, response, begun, gzip);
        Ok(Input::Opened)
    }

    /// Waits if there were too many requests lately.
    async fn keep_pace(&mut self) -> Result<(), ResetAsked> {
        let (since, requests) = self.pace;
        let end = since + PACE_INTERVAL;
        if Instant::now() >= end {
            self.pace = (Instant::now(), 1);
        } else if requests < REQUESTS_PER_INTERVAL {
            self.pace.1 += 1;
        } else {
            self.attend(sleep_until(end)).await?;
            self.pace = (end, 1);
        }
        Ok(())
    }

    fn begin_reading(&mut self, target: Target, response: Response<Body>, begun: Instant, gzip: bool) {
        let warnings = request::warnings(response.headers());
        if warnings != self.warnings {
            self.observer.warnings(&warnings);
            self.warnings = warnings;
        }
        let body = response.into_body();
        let (initial, short) = match target {
            Target::Page { continue_token: asked, .. } => {
                self.reading = Reading::Page(Box::new(Page { body, asked, begun, text: Text::new(gzip) }));
                return;
            }
            Target::Whole { .. } => {
                self.reading = Reading::Page(Box::new(Page { body, asked: None, begun, text: Text::new(gzip) }));
                return;
            }
            // Asked by `ask_latest` alone.
            Target::Latest | Target::LatestThenPage { .. } => return,
            Target::WatchList => (true, false),
            Target::Watch { short } => (false, short),
        };
        self.shared.counts.watches.add(1);
        let stream = WatchStream::new(body, initial, short, Instant::now(), &self.shared.config.tuning);
        self.reading = Reading::Watch(Box::new(stream));
    }

    /// Asks whether the member has still come to this version.
    async fn ask_latest(&mut self, held: CollectionVersion) -> Result<Input, ResetAsked> {
        let number = self.shared.wanted.next_question();
        let latest = request::latest(&self.shared.config, &self.transport);
        let latest = self.attend(latest).await?;
        if let Ok(latest) = &latest {
            self.shared.wanted.answered(number, *latest);
        }
        Ok(match latest {
            Ok(latest) if held > latest => {
                self.health.lost(Instant::now(), Reason::Reset);
                Input::Latest { behind: true }
            }
            Ok(_) => Input::Latest { behind: false },
            Err(LatestError::Unreachable(error)) => self.unreachable(&error),
            Err(LatestError::Timeout(within)) => self.no_answer(within),
            // To watch but not to list may be all that is allowed; if not, the watch will be refused as well.
            Err(LatestError::Refused(Refusal { reason: Reason::Forbidden, .. })) => Input::Unsupported,
            Err(LatestError::Refused(refusal)) => self.refused(refusal, false),
            Err(LatestError::Malformed(error)) => self.failed(Reason::Other(chain(&error))),
        })
    }

    /// Waits out a failure.
    async fn wait(&mut self, failures: u32, at_least: Option<Duration>) -> Result<Input, ResetAsked> {
        self.reading = Reading::Nothing;
        let tuning = &self.shared.config.tuning;
        let at_least = at_least.map(|asked| asked.min(tuning.retry_after_max));
        let delay = backoff::delay(tuning.backoff_min, tuning.backoff_max, failures, at_least, rand::random());
        tracing::debug!(?delay, failures, "waiting before the next attempt");
        self.attend(sleep(delay)).await?;
        Ok(Input::Elapsed)
    }

    /// Waits for something and meanwhile keeps the state current; ends early if a reset is asked for.
    async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ResetAsked> {
        let shared = self.shared.clone();
        tokio::pin!(work);
        loop {
            self.show_state();
            let stale_at = self.health.turns_stale_at(Instant::now());
            tokio::select! {
                biased;
                () = shared.reset.notified() => return Err(ResetAsked),
                done = &mut work => return Ok(done),
                () = sleep_until(stale_at.unwrap_or_else(Instant::now)), if stale_at.is_some() => {}
            }
        }
    }

    // ---- reading ----

    async fn read(&mut self) -> Result<Input, ResetAsked> {
        match std::mem::replace(&mut self.reading, Reading::Nothing) {
            Reading::Watch(stream) => self.read_watch(stream).await,
            Reading::Page(page) => self.read_page(*page).await,
            Reading::Nothing => Ok(self.failed(Reason::Other("there is nothing to read".to_owned()))),
        }
    }

    /// Reads one page of a list, item by item; the last one puts the collection in place. What was read of one that breaks off stays:
    /// it comes again, as of the same moment, or with the whole collection.
    async fn read_page(&mut self, mut page: Page) -> Result<Input, ResetAsked> {
        let shared = self.shared.clone();
        let tuning = &shared.config.tuning;
        let mut parser = ListParser::new(tuning.object_size_max);
        let mut items = 0_u32;
        loop {
            let frame = match self.attend(timeout(tuning.answer_timeout, page.body.frame())).await? {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    self.unreachable(&error);
                    return Ok(self.broke_off(&page, items));
                }
                Err(_) => {
                    self.no_answer(tuning.answer_timeout);
                    return Ok(Input::BrokeOff { read: items, late: self.page_time.is_late(page.took()) });
                }
            };
            let Ok(chunk) = frame.into_data() else { continue };
            shared.counts.received_bytes.add(chunk.len());
            let pushed = page.text.push(&chunk, |text| parser.push(text, |item| self.take_item(item, &mut items)));
            if let Err(error) = pushed {
                return Ok(self.failed(Reason::Other(chain(&error))));
            }
            if let Some(too_large) = self.too_large(self.staging.bytes()) {
                return Ok(too_large);
            }
            tokio::task::coop::consume_budget().await;
        }
        let rest = page.text.finish(|text| parser.push(text, |item| self.take_item(item, &mut items)));
        match rest.and_then(|()| Ok(parser.finish()?)) {
            // Whoever followed it would ask for the same page for ever, and without a pause.
            Ok(meta) if page.asked.is_some() && meta.continue_token == page.asked => {
                Ok(self
                    .failed(Reason::Other("the list does not advance: its continue token leads to itself".to_owned())))
            }
            Ok(meta) => {
                self.listed = meta.resource_version;
                let soon = self.page_time.is_soon(page.took());
                if meta.continue_token.is_none() {
                    self.page_time = self.page_time.after_list();
                    self.put_in_place(meta.resource_version);
                }
                Ok(Input::PageEnd { more: meta.continue_token, soon })
            }
            Err(error) => {
                let failed = self.failed(Reason::Other(chain(&error)));
                let is_cut = matches!(error, PageError::List(ListError::Incomplete(_)));
                Ok(if is_cut { self.broke_off(&page, items) } else { failed })
            }
        }
    }

    /// A page was ended before its end, with so many items read.
    fn broke_off(&mut self, page: &Page, read: u32) -> Input {
        let late = self.page_time.is_late(page.took());
        self.page_time = self.page_time.after_break(page.took());
        Input::BrokeOff { read, late }
    }

    /// Takes one item of a list.
    fn take_item(&mut self, item: &[u8], items: &mut u32) {
        *items = items.saturating_add(1);
        match self.shared.config.decoder.decode(item) {
            Ok(object) => self.staging.put(object),
            Err(error) => self.skipped(&error, &decode_position(&error), format_args!("list item {items}")),
        }
    }

    /// Reads a watch until something is to be decided, and keeps it for going on.
    async fn read_watch(&mut self, mut stream: Box<WatchStream>) -> Result<Input, ResetAsked> {
        let shared = self.shared.clone();
        let mut reopen_at = shared.reopen_at.subscribe();
        loop {
            if let Some(input) = self.take_frames(&mut stream) {
                self.reading = Reading::Watch(stream);
                return Ok(input);
            }
            let mut progress = std::mem::take(&mut self.progress);
            let turn = self.attend(stream.turn(&mut progress, &shared.wanted, &mut reopen_at)).await;
            self.progress = progress;
            let input = match turn? {
                Turn::Read(Some(Ok(frame))) => {
                    if let Ok(chunk) = frame.into_data() {
                        shared.counts.received_bytes.add(chunk.len());
                        stream.frames.push(chunk);
                    }
                    tokio::task::coop::consume_budget().await;
                    None
                }
                Turn::Read(Some(Err(error))) => Some(self.unreachable(&error)),
                Turn::Read(None) => Some(self.ended(&stream)),
                Turn::Silent => Some(self.silent(&stream)),
                Turn::Settled => Some(self.prove(&mut stream)),
                Turn::Progress(call) => self.progress(call, &stream),
                Turn::Renewed => Some(Input::Renewed),
            };
            if let Some(input) = input {
                self.reading = Reading::Watch(stream);
                return Ok(input);
            }
        }
    }

    /// Takes all frames that have come, and tells the observer what they changed as one update.
    fn take_frames(&mut self, stream: &mut WatchStream) -> Option<Input> {
        if let Some(input) = stream.deferred.take() {
            return Some(input);
        }
        let (before, initial) = (self.version(), stream.initial);
        let mut changes = Vec::new();
        let input = loop {
            let frame = match stream.frames.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                Err(error) => break Some(self.failed(Reason::Other(error.to_string()))),
            };
            if let Err(input) = self.take_frame(stream, &frame, &mut changes) {
                break Some(input);
            }
        };
        // The end of the initial events leaves the loop, so the frames taken were of one sort.
        if initial || (changes.is_empty() && self.version() == before) {
            return input;
        }
        self.tell(changes);
        if !stream.proved {
            stream.deferred = input;
            return Some(self.prove(stream));
        }
        input
    }

    /// Takes one frame; an error is what the machine has to decide on.
    fn take_frame(&mut self, stream: &mut WatchStream, frame: &Bytes, changes: &mut Vec<Change>) -> Result<(), Input> {
        match WatchEvent::parse(frame) {
            Ok(WatchEvent::Object { change_type, object }) => match self.shared.config.decoder.decode(object) {
                Ok(object) if stream.initial => match change_type {
                    ChangeType::Added | ChangeType::Modified => {
                        self.staging.put(object);
                        if let Some(too_large) = self.too_large(self.staging.bytes()) {
                            return Err(too_large);
                        }
                    }
                    ChangeType::Deleted => self.staging.remove(object.key().as_str()),
                },
                Ok(object) => {
                    stream.brought = true;
                    changes.extend(self.store.as_mut().and_then(|store| store.apply(change_type, object)));
                    // Not followed any further: it is listed until there is less of it.
                    if self.too_large(self.store.as_ref().map_or(0, Store::bytes)).is_some() {
                        return Err(Input::Expired);
                    }
                }
                Err(error) => {
                    let after = self.version();
                    self.skipped(&error, &decode_position(&error), format_args!("watch event after version {after}"));
                }
            },
            Ok(WatchEvent::Bookmark { version, initial_events_end }) => {
                return self.take_bookmark(stream, version, initial_events_end);
            }
            Ok(WatchEvent::Error { status }) => {
                return Err(self.refused(Refusal::from_status(status, None), stream.initial));
            }
            Err(error) => {
                let after = self.version();
                self.skipped(&error, "", format_args!("watch frame after version {after}"));
            }
        }
        Ok(())
    }

    /// What there is to do about a collection of this size, if it is larger than is held.
    fn too_large(&mut self, bytes: u64) -> Option<Input> {
        let most = self.shared.config.tuning.collection_size_max;
        (bytes > most).then(|| {
            self.staging = Staging::default();
            self.failed(Reason::Other(format!("the collection is larger than {most} bytes")))
        })
    }

    fn take_bookmark(&mut self, stream: &mut WatchStream, version: ResourceVersion, end: bool) -> Result<(), Input> {
        if stream.initial {
            if !end {
                tracing::debug!("the member's bookmark lacks the end of the initial events");
                return Err(Input::Suspect);
            }
            stream.live(Instant::now());
            self.put_in_place(version);
            return Err(Input::InitialEnd);
        }
        stream.bookmark_due = false;
        self.progress.note_bookmarks(true);
        let store = self.store.get_or_insert_default();
        if store.version() > version {
            tracing::debug!(%version, held = %store.version(), "the member's bookmark lies below the version held");
            return Err(Input::Suspect);
        }
        store.advance(version.into());
        Ok(())
    }

    /// Decides on a call of [`Progress`].
    fn progress(&mut self, call: Call, stream: &WatchStream) -> Option<Input> {
        let shared = self.shared.clone();
        let (now, tuning) = (Instant::now(), &shared.config.tuning);
        let next = shared.wanted.next_above(self.version());
        match call {
            Call::Arrived if next.is_some() => self.progress.schedule(now, tuning.progress_after),
            Call::Due if next.is_some() && stream.bookmark_due => self.progress.schedule(now, tuning.progress_after),
            Call::Due if next.is_some() => {
                shared.counts.progress_requests.add(1);
                let number = shared.wanted.next_question();
                self.progress.ask(number, self.version(), request::latest(&shared.config, &self.transport));
            }
            Call::Arrived | Call::Due => {}
            Call::Answered { latest: Err(error), .. } => {
                tracing::debug!(error = chain(&error), "the member did not tell its latest version");
                if next.is_some() {
                    self.progress.schedule(now, tuning.progress_interval);
                }
            }
            Call::Answered { number, held, latest: Ok(latest) } => {
                shared.wanted.answered(number, latest);
                match progress::verdict(held, latest, next) {
                    Verdict::WentBack => return Some(self.went_back()),
                    Verdict::Reachable => return self.learn_progress(latest),
                    Verdict::NotYet => self.progress.schedule(now, tuning.progress_interval),
                    Verdict::Idle => {}
                }
            }
        }
        None
    }

    /// A version that is waited for exists: a bookmark is to tell that it is reached, or else a list, unless there was one just now.
    ///
    /// No bookmark tells that the revision is complete which the member wrote last, and whose deletion is known here: a watch from
    /// before it is sent the deletion, and then a kube-apiserver keeps a bookmark of that very revision back (`process` in
    /// `storage/cacher/cache_watcher.go`).
    fn learn_progress(&mut self, latest: ResourceVersion) -> Option<Input> {
        let (now, tuning) = (Instant::now(), &self.shared.config.tuning);
        let held = self.version();
        let bookmarks = self.progress.has_bookmarks() && !(held.is_part() && held.revision() == latest);
        let may = bookmarks || self.progress.may_list(now, tuning.progress_interval);
        self.progress.schedule(now, if may { tuning.progress_after } else { tuning.progress_interval });
        may.then_some(Input::Progress { bookmarks })
    }

    // ---- the collection ----

    /// The version held; zero before the first list.
    fn version(&self) -> CollectionVersion {
        self.store.as_ref().map(Store::version).unwrap_or_default()
    }

    /// The list is complete: it takes the place of what was served. It is of "most recent", so it says how far the member has come
    /// as well as a question for that does; what the member does next may take it past a version that it has not come to.
    fn put_in_place(&mut self, version: ResourceVersion) {
        self.progress.listed(Instant::now());
        self.shared.wanted.answered(self.question, version);
        let store = std::mem::take(&mut self.staging).finish(version);
        let after = store.snapshot();
        let before = self.store.replace(store).map(|store| store.snapshot());
        let counts = &self.shared.counts;
        counts.relists.add(usize::from(before.is_some()));
        self.health.synced();
        let update = match before {
            None => Update::Synced { snapshot: after },
            Some(before) if self.machine.is_void() || after.undoes(&before) => {
                counts.resets.add(1);
                Update::Reset { before, after }
            }
            Some(before) => Update::Relisted { before, after },
        };
        self.publish(update);
        self.show_state();
    }

    /// Tells what one read of the watch brought.
    fn tell(&mut self, changes: Vec<Change>) {
        let snapshot = self.store.as_ref().map(Store::snapshot).unwrap_or_default();
        self.shared.counts.events.add(changes.len());
        self.publish(if changes.is_empty() {
            Update::Progress { snapshot }
        } else {
            Update::Changes { changes, snapshot }
        });
    }

    /// First the observer, then the readers: what a reader sees, the observer knows.
    fn publish(&self, update: Update) {
        let snapshot = update.snapshot().clone();
        let counts = &self.shared.counts;
        counts.objects.set(snapshot.len() as u64);
        counts.object_bytes.set(self.store.as_ref().map_or(0, Store::bytes));
        self.observer.update(update);
        self.shared.published.send_replace(Some(snapshot));
    }

    // ---- what went wrong, and what did not ----

    fn prove(&mut self, stream: &mut WatchStream) -> Input {
        stream.proved = true;
        if stream.deferred.is_none() {
            self.health.contact();
        }
        Input::Proved
    }

    fn ended(&mut self, stream: &WatchStream) -> Input {
        tracing::debug!(proved = stream.proved, "the member ended the watch");
        if stream.lacks_bookmark(Instant::now(), &self.shared.config.tuning) {
            self.progress.note_bookmarks(false);
        }
        self.health
            .lost(Instant::now(), Reason::Unreachable("the watch ended and has not been opened again".to_owned()));
        Input::Ended
    }

    fn silent(&mut self, stream: &WatchStream) -> Input {
        let silence = stream.silence_max();
        tracing::debug!(?silence, initial = stream.initial, "the member's watch is silent");
        if stream.initial {
            return Input::Silent;
        }
        let text = format!("the watch was silent for {} s", silence.as_secs());
        self.health.lost(Instant::now(), Reason::Unreachable(text));
        Input::Silent
    }

    fn went_back(&mut self) -> Input {
        self.health.lost(Instant::now(), Reason::Reset);
        Input::WentBack
    }

    fn unreachable(&mut self, error: &BoxError) -> Input {
        self.failed(Reason::Unreachable(chain(&**error)))
    }

    fn no_answer(&mut self, within: Duration) -> Input {
        self.failed(Reason::Unreachable(format!("no answer within {} s", within.as_secs())))
    }

    fn failed(&mut self, reason: Reason) -> Input {
        self.shared.counts.failures.add(1);
        self.health.lost(Instant::now(), reason);
        Input::Failed { retry_after: None }
    }

    /// `streaming`: the collection was to be streamed, for which there is another way.
    fn refused(&mut self, refusal: Refusal, streaming: bool) -> Input {
        let input = match refusal.reason {
            Reason::Expired => Input::Expired,
            _ if refusal.is_unsupported() => Input::Unsupported,
            _ => Input::Failed { retry_after: refusal.retry_after },
        };
        tracing::debug!(code = refusal.code, reason = %refusal.reason, "the member refused");
        if streaming && input == Input::Unsupported {
            return input;
        }
        self.shared.counts.failures.add(1);
        self.health.lost(Instant::now(), refusal.reason);
        input
    }

    /// Counts what was skipped, and says so once in a while.
    fn skipped(&mut self, error: &dyn std::error::Error, position: &str, place: std::fmt::Arguments<'_>) {
        let count = &self.shared.counts.decode_errors;
        count.add(1);
        let now = Instant::now();
        if self.decode_logged.is_none_or(|last| now >= last + DECODE_LOG_INTERVAL) {
            self.decode_logged = Some(now);
            // The error's causes may quote the text and are left out.
            tracing::warn!(%error, position, %place, total = count.get(), "skipped what the member sent");
        }
    }

    /// Publishes the state if it changed, and logs what is new about it.
    fn show_state(&mut self) {
        let after = self.health.state(Instant::now());
        let before = self.shared.state.borrow().clone();
        if after == before {
            return;
        }
        match self.announced.news(&before, &after) {
            Some(News::Recovery) => tracing::info!(version = %self.version(), "collection is synced"),
            Some(News::Trouble) => {
                let reason = after.reason().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(reason, unknown = after.is_unknown(), "no changes arrive from the member");
            }
            None => {}
        }
        self.shared.state.send_replace(after);
    }
}

impl Drop for Reflector {
    /// A task that ended for whatever cause must not look synced for ever.
    fn drop(&mut self) {
        let (since, reason) = (Instant::now(), Reason::Other("its objects are no longer followed".to_owned()));
        self.shared.state.send_replace(match self.store {
            Some(_) => State::Stale { since, reason },
            None => State::Syncing { since, reason: Some(reason) },
        });
    }
}

/// Where in the object's text the error is, if that is known.
fn decode_position(error: &DecodeError) -> String {
    match error {
        DecodeError::Json(error) => format!("line {} column {}", error.line(), error.column()),
        _ => String::new(),
    }
}
