//! Property: the cacher publishes each change exactly once and in order, and its snapshots contain the member's
//! objects. The property holds for each history, chunk size and sequence of faults.

mod common;

use std::collections::BTreeMap;

use common::*;
use proptest::prelude::*;
use tributary_apimachinery::Snapshot;
use tributary_cacher::Update;

/// An event of the member's history. The event's version is [`FIRST`] plus its index.
#[derive(Clone, Debug)]
struct HistoryEvent {
    event_type: &'static str,
    name: String,
}

#[derive(Clone, Debug)]
enum Answer {
    RefuseConnection,
    Overloaded,
    Expired,
    /// The member answers a WatchList or a paginated list. The connection of the following watch breaks after `events`
    /// events.
    Serve {
        events: usize,
        end: End,
    },
    /// The member refuses a WatchList with 422.
    Unsupported,
}

#[derive(Clone, Debug)]
enum End {
    Eof,
    Cut,
    CutInFrame,
    Expired,
}

const FIRST: u64 = 10;

fn history() -> impl Strategy<Value = Vec<HistoryEvent>> {
    proptest::collection::vec((0..6_u8, any::<bool>()), 1..40).prop_map(|choices| {
        let mut present = BTreeMap::new();
        choices
            .into_iter()
            .map(|(name, delete)| {
                let exists = present.get(&name).copied().unwrap_or(false);
                let event_type = match (exists, delete) {
                    (false, _) => "ADDED",
                    (true, true) => "DELETED",
                    (true, false) => "MODIFIED",
                };
                present.insert(name, event_type != "DELETED");
                HistoryEvent { event_type, name: format!("pod-{name}") }
            })
            .collect()
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let end = prop_oneof![Just(End::Eof), Just(End::Cut), Just(End::CutInFrame), Just(End::Expired)];
    prop_oneof![
        1 => Just(Answer::RefuseConnection),
        1 => Just(Answer::Overloaded),
        1 => Just(Answer::Expired),
        1 => Just(Answer::Unsupported),
        5 => (0..8_usize, end).prop_map(|(events, end)| Answer::Serve { events, end }),
    ]
}

/// Returns the names and versions of the objects after the first `count` events.
fn state_after(history: &[HistoryEvent], count: usize) -> BTreeMap<String, u64> {
    let mut objects = BTreeMap::new();
    for (version, event) in (FIRST..).zip(&history[..count]) {
        match event.event_type {
            "DELETED" => objects.remove(&event.name),
            _ => objects.insert(event.name.clone(), version),
        };
    }
    objects
}

/// A member with a history, of which `now` events have occurred.
struct Model<'a> {
    history: &'a [HistoryEvent],
    now: usize,
    chunk: usize,
    feeds: Vec<Feed>,
}

impl Model<'_> {
    fn version(&self) -> u64 {
        FIRST + self.now as u64 - 1
    }

    fn pods(&self) -> Vec<String> {
        state_after(self.history, self.now).iter().map(|(name, version)| pod(name, *version)).collect()
    }

    fn send(&self, feed: &Feed, text: &str) {
        for piece in text.as_bytes().chunks(self.chunk) {
            feed.send(piece);
        }
    }

    /// Advances the history by `count` events. Sends all events with a version above `from`, and `tail` directly after
    /// them. For some chunk sizes, also sends earlier events again: the cacher must tolerate repeated events, although
    /// no kube-apiserver should repeat events.
    fn watch(&mut self, feed: &Feed, from: u64, count: usize, tail: &str) {
        let from = from.saturating_sub(self.chunk as u64 % 3);
        self.now = (self.now + count).min(self.history.len());
        let events: String = (FIRST..)
            .zip(&self.history[..self.now])
            .filter(|(version, _)| *version > from)
            .map(|(version, change)| event(change.event_type, &pod(&change.name, version)))
            .collect();
        self.send(feed, &(events + tail));
    }

    fn answer(&mut self, request: PendingRequest, answer: Answer) {
        let streaming = request.uri.contains("sendInitialEvents");
        let from = request.uri.split(['?', '&']).find_map(|part| part.strip_prefix("resourceVersion=")?.parse().ok());
        let (events, end) = match answer {
            Answer::RefuseConnection => return request.refuse_connection(),
            Answer::Overloaded => return request.status(429, ""),
            Answer::Expired if from.is_some() => return request.text(expired()),
            Answer::Unsupported if streaming => return request.status(422, ""),
            Answer::Expired | Answer::Unsupported => (0, End::Eof),
            Answer::Serve { events, end } => (events, end),
        };
        if !streaming && from.is_none() {
            return self.page(request);
        }
        let feed = request.stream();
        if streaming {
            let initial: String = self.pods().iter().map(|object| event("ADDED", object)).collect();
            self.send(&feed, &(initial + &end_bookmark(self.version())));
        }
        let tail = match end {
            End::Eof | End::Cut => String::new(),
            End::CutInFrame => r#"{"type":"ADDED","object":{"metadata":{"na"#.to_owned(),
            End::Expired => expired(),
        };
        self.watch(&feed, from.unwrap_or(self.version()), events, &tail);
        if matches!(end, End::Cut | End::CutInFrame) {
            feed.cut();
        }
    }

    /// Answers the request and sends the rest of the history, without faults.
    fn calm(&mut self, request: PendingRequest) {
        let end = self.history.len();
        if request.uri.contains("watch=1") && !request.uri.contains("sendInitialEvents") {
            let from =
                request.uri.split(['?', '&']).find_map(|part| part.strip_prefix("resourceVersion=")?.parse().ok());
            let feed = request.stream();
            self.watch(&feed, from.unwrap_or_default(), end, "");
            self.send(&feed, &bookmark(self.version()));
            self.feeds.push(feed);
        } else if request.uri.contains("watch=1") {
            let feed = request.stream();
            let initial: String = self.pods().iter().map(|object| event("ADDED", object)).collect();
            self.send(&feed, &(initial + &end_bookmark(self.version())));
            self.watch(&feed, self.version(), end, "");
            self.feeds.push(feed);
        } else {
            self.page(request);
        }
    }

    /// Answers a list request with one of two pages. Ignores the `limit` of the request.
    fn page(&self, request: PendingRequest) {
        let mut pods = self.pods();
        let rest = pods.split_off(pods.len() / 2);
        let (pods, more) = if request.uri.contains("continue=rest") { (rest, None) } else { (pods, Some("rest")) };
        let feed = request.stream();
        self.send(&feed, &list(&pods, self.version(), more));
    }
}

#[derive(Default)]
struct Checker {
    /// The number of the member's events that the cacher has published as changes or as a part of a list.
    seen: usize,
    synced: bool,
    /// Whether more deletions of the current revision may follow in the next update.
    is_part: bool,
}

impl Checker {
    fn check(&mut self, history: &[HistoryEvent], update: &Update) {
        match update {
            Update::Synced { .. } => {
                assert!(!self.synced, "synced twice");
                self.synced = true;
            }
            Update::Changes { changes, .. } => self.changes(history, changes),
            Update::Relisted { before, .. } => {
                assert_eq!(contents(before), state_after(history, self.seen), "the served collection before the list");
            }
            Update::Progress { .. } => {}
            Update::Reset { .. } => panic!("revisions did not go back"),
        }
        assert!(self.synced, "no update precedes the first state");
        let snapshot = update.snapshot();
        let count =
            usize::try_from(snapshot.resource_version().revision().0 + 1 - FIRST).expect("a version of the history");
        if matches!(update, Update::Changes { .. } | Update::Progress { .. }) {
            assert_eq!(count, self.seen, "the version covers exactly the published events");
        }
        assert!(count >= self.seen, "time went back");
        self.seen = count;
        self.is_part = snapshot.resource_version().is_part();
        assert_eq!(contents(snapshot), state_after(history, count));
    }

    fn changes(&mut self, history: &[HistoryEvent], changes: &[tributary_apimachinery::Change]) {
        for change in changes {
            let before = state_after(history, self.seen);
            let expected = &history[self.seen];
            assert_eq!(change.change_type.as_str(), expected.event_type);
            assert_eq!(change.object.name(), expected.name);
            assert_eq!(change.resource_version().0, FIRST + self.seen as u64);
            let previous = change.previous.as_ref().map(|object| object.resource_version().0);
            assert_eq!(previous, before.get(&expected.name).copied());
            self.seen += 1;
        }
    }
}

fn run(history: &[HistoryEvent], at_start: usize, chunk: usize, answers: Vec<Answer>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let snapshot: Snapshot = runtime.block_on(async {
        let (cacher, mut member, mut updates) = start();
        let mut model = Model { history, now: at_start.min(history.len()), chunk, feeds: Vec::new() };
        for answer in answers {
            let request = member.next_request().await;
            model.answer(request, answer);
        }
        let mut checker = Checker::default();
        while checker.seen < history.len() || !checker.synced || checker.is_part {
            tokio::select! {
                biased;
                update = updates.next() => checker.check(history, &update),
                request = member.next_request() => model.calm(request),
            }
        }
        cacher
            .wait_for(tributary_apimachinery::ResourceVersion(model.version()), std::time::Duration::ZERO)
            .await
            .expect("all events have arrived")
    });
    assert_eq!(contents(&snapshot), state_after(history, history.len()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cacher_publishes_each_change_once_and_in_order(
        history in history(),
        at_start in 0..20_usize,
        chunk in prop_oneof![1..40_usize, Just(4096)],
        answers in proptest::collection::vec(answer(), 0..12),
    ) {
        run(&history, at_start, chunk, answers);
    }
}
