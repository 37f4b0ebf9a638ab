//! The reflector's decisions, apart from its reading and writing.
//!
//! ```text
//!                Unsupported, Ended, Silent
//!   ┌───────────┐ ───────────────────▶ ┌───────────┐──┐ PageEnd, more;
//!   │ WatchList │                      │   Pages   │◀─┘ Expired behind the first: all in one piece
//!   └───────────┘                      └───────────┘
//!     ▲   │ InitialEnd (same stream goes on)  │ PageEnd, last
//!     │   └──────────────┐        ┌───────────┘
//!     │                  ▼        ▼
//!     │   Expired     ┌──────────────┐──┐ Ended after Proved, or Renewed: resume at once
//!     ├───────────────│    Watch     │◀─┘ Progress: resume with a short one (list anew,
//!     │               └──────────────┘    where it sends no bookmarks)
//!     │                │ Silent,   ▲ Latest, not behind; after Silent a short one
//!     │                │ Suspect   │
//!     │                ▼           │
//!     │   Latest,     ┌──────────────┐
//!     └───────────────│    Latest    │
//!         behind      └──────────────┘
//!
//!   Pages, on BrokeOff and Unanswered: Waiting, then the same page anew; a smaller one if that took too long, or broke
//!   off before. On PageAhead the same page as it was. Before each of these the member is asked for its latest version
//!   (LatestThenPage): if that is behind the pages that have come, the collection anew, and versions before are void.
//!   Any of the four, on Failed: Waiting, with growing delay; then WatchList or Pages anew, or (of Watch and Latest)
//!   Latest.
//!   Woken, while Waiting: what is waited for at once, and the delay begins small again.
//!   WentBack, anywhere: the collection anew, and versions before are void.
//! ```
//!
//! A watch that ended cleanly is resumed at once from the version held. After a failure the member is first asked for
//! its latest version: a member that was restored to an older state would otherwise accept a watch from a version that
//! it has not reached again, and stay silent until it has.

use std::time::Duration;

use crate::amount::Amount;
use crate::request::ReflectorRequest;

/// Where the reflector is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReflectorPhase {
    /// The collection is being streamed.
    WatchList,
    /// A list, in pages or in one piece. `continue_token`: of the page being read;
    /// `None` for the first, and for one piece.
    Pages { continue_token: Option<String> },
    /// Events are awaited. `proved`: this watch has yielded something, or been open for a while.
    Watch { proved: bool },
    /// The member is being asked for its latest version.
    Latest,
    /// The same, before pages go on behind this token.
    LatestThenPage { continue_token: String },
    /// A failure is being waited out.
    Waiting { then: ReflectorRequest },
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The request was answered with 200; a stream can be read.
    Opened,
    /// The streamed collection is complete and has been put in place.
    InitialEnd,
    /// A page is complete; `more` is the token of the next. After the last the collection has been put in place.
    /// `soon`: one twice as large would not take too long.
    PageEnd { more: Option<String>, soon: bool },
    /// A page, or a list in one piece, broke off with so many objects read. `late`: it had taken long.
    BrokeOff { read: u32, late: bool },
    /// The answer with a page, or with a list in one piece, did not begin in time.
    Unanswered,
    /// Whoever answered for the member has not come to the version of the pages before. A kube-apiserver whose watch
    /// cache lags says so (`waitAndListExactRV` in apiserver's `pkg/storage/cacher/watch_cache.go`), and one that was
    /// restored to an older state.
    PageAhead { retry_after: Option<Duration> },
    /// The latest version came. `behind`: it is below the one held, or that of the pages before.
    Latest { behind: bool },
    /// The watch has yielded something, or been open for a while.
    Proved,
    /// The stream ended cleanly.
    Ended,
    /// Nothing came for too long.
    Silent,
    /// A bookmark lies below the version held.
    Suspect,
    /// 410: the version or the continue token is too old.
    Expired,
    /// The member does not support, or does not allow, this kind of request.
    Unsupported,
    /// Anything else failed.
    Failed { retry_after: Option<Duration> },
    /// The wait is over.
    Elapsed,
    /// The wait is over before its time: the member has become well, and failures before that say nothing of it.
    Woken,
    /// A waiter's version exists and did not come: learn of progress, by a bookmark if the member sends
    /// any of this collection.
    Progress { bookmarks: bool },
    /// The watch is to be opened anew, though nothing is wrong with it: the credentials are others.
    Renewed,
    /// Revisions went back, or so we were told.
    WentBack,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Drop what is being read and send this request.
    Open(ReflectorRequest),
    /// Go on reading.
    Read,
    /// Drop what is being read and wait, as after so many failures and at least so long; then `Elapsed`.
    Wait { failures: u32, at_least: Option<Duration> },
}

impl Action {
    /// Whether the collection is listed from its beginning.
    pub(crate) fn begins_list(&self) -> bool {
        matches!(self, Self::Open(request) if request.begins_list())
    }
}

/// The reflector's state of mind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    phase: ReflectorPhase,
    /// Whether the member may support WatchList.
    streaming: bool,
    /// Whether versions from before the list under way are void.
    void: bool,
    /// Failures since a watch last proved itself.
    failures: u32,
    /// Whether the version held is that of a list which no watch has proved yet.
    unproved: bool,
    /// Whether a page, or a list in one piece, broke off, and none has come since.
    broke_off: bool,
    /// Whether a watch was silent, and none has come to its end since: watches are short ones until then. Such a one
    /// tells whether the member is there, by its bookmark, or by its end where none is to come.
    is_silent: bool,
    /// How much is asked for at once.
    amount: Amount,
}

impl Machine {
    /// The state at the start, and what to do first. Pages have so many objects as long as they come through.
    pub(crate) fn start(page_size: u32) -> (Self, Action) {
        let amount = Amount::new(page_size);
        let phase = ReflectorPhase::WatchList;
        let (void, unproved, broke_off, is_silent) = (false, false, false, false);
        Self { phase, streaming: true, void, failures: 0, unproved, broke_off, is_silent, amount }.list()
    }

    /// Whether the list under way makes versions before it void.
    pub(crate) fn is_void(&self) -> bool {
        self.void
    }

    /// Takes in what happened and decides.
    pub(crate) fn step(self, input: Input) -> (Self, Action) {
        match (self.phase.clone(), input) {
            (_, Input::WentBack)
            | (ReflectorPhase::Latest | ReflectorPhase::LatestThenPage { .. }, Input::Latest { behind: true }) => {
                Self { void: true, ..self }.list()
            }
            (ReflectorPhase::WatchList, input) => self.in_watch_list(input),
            (ReflectorPhase::Pages { continue_token }, input) => self.in_pages(continue_token, input),
            (ReflectorPhase::Watch { proved }, input) => self.in_watch(proved, input),
            (ReflectorPhase::Latest, input) => self.in_latest(input),
            (ReflectorPhase::LatestThenPage { continue_token }, input) => {
                self.in_latest_then_page(continue_token, input)
            }
            (ReflectorPhase::Waiting { then }, Input::Elapsed) => self.open(then),
            (ReflectorPhase::Waiting { then }, Input::Woken) => Self { failures: 0, ..self }.open(then),
            (ReflectorPhase::Waiting { then }, _) => self.wait(then, None),
        }
    }

    fn in_watch_list(self, input: Input) -> (Self, Action) {
        match input {
            Input::InitialEnd => {
                let phase = ReflectorPhase::Watch { proved: false };
                (Self { phase, void: false, unproved: true, ..self }, Action::Read)
            }
            Input::Unsupported | Input::Silent | Input::Suspect => Self { streaming: false, ..self }.list(),
            // It may be shutting down, or end watches that it cannot serve: this once the list is taken in pages.
            Input::Ended => {
                let first = self.page(None);
                self.open(first)
            }
            Input::Expired => self.wait_to_list(None),
            Input::Failed { retry_after } => self.wait_to_list(retry_after),
            _ => (self, Action::Read),
        }
    }

    fn in_pages(self, continue_token: Option<String>, input: Input) -> (Self, Action) {
        match input {
            Input::PageEnd { more, soon } => {
                let machine = Self { broke_off: false, ..self };
                let machine = if soon { machine.with(Amount::after_soon) } else { machine };
                match more {
                    Some(token) => {
                        let next = machine.page(Some(token));
                        machine.open(next)
                    }
                    None => {
                        Self { void: false, unproved: true, ..machine }.open(ReflectorRequest::Watch { short: false })
                    }
                }
            }
            // The token expired: a list put together of two moments would be none. Pages take longer than the member
            // remembers revisions, and would again, so it is asked for in one piece (client-go's `FullListIfExpired`).
            Input::Expired if continue_token.is_some() => {
                let machine = self.with(Amount::after_expiry);
                let whole = ReflectorRequest::Whole { compressed: machine.amount.is_compressed() };
                machine.open(whole)
            }
            Input::BrokeOff { read, late } => self.after_break(continue_token, read, late),
            Input::Unanswered => self.with(Amount::after_silence).wait_to_ask_first(continue_token, None),
            Input::PageAhead { retry_after } => self.wait_to_ask_first(continue_token, retry_after),
            Input::Expired | Input::Unsupported | Input::Ended | Input::Silent => self.wait_to_list(None),
            Input::Failed { retry_after } => self.wait_to_list(retry_after),
            _ => (self, Action::Read),
        }
    }

    /// What broke off late, the member ended for its length. What broke off twice, a proxy before it may have ended,
    /// by time or by size.
    fn after_break(self, continue_token: Option<String>, read: u32, late: bool) -> (Self, Action) {
        let again = self.broke_off;
        let machine = Self { broke_off: true, ..self };
        let machine = match (late, again) {
            (false, false) => machine,
            (false, true) if read == 0 => machine.with(Amount::after_silence),
            _ => machine.with(|amount| amount.after_break(read)),
        };
        machine.wait_to_ask_first(continue_token, None)
    }

    fn in_watch(self, proved: bool, input: Input) -> (Self, Action) {
        match input {
            Input::Proved => {
                let phase = ReflectorPhase::Watch { proved: true };
                (Self { phase, failures: 0, unproved: false, ..self }, Action::Read)
            }
            Input::Progress { bookmarks: true } => self.open(ReflectorRequest::Watch { short: true }),
            Input::Progress { bookmarks: false } => self.list(),
            Input::Renewed => self.open(ReflectorRequest::Watch { short: false }),
            Input::Ended if proved => Self { is_silent: false, ..self }.open(ReflectorRequest::Watch { short: false }),
            // The first that ends with nothing may be chance; after that it is a failure like others.
            Input::Ended if self.failures == 0 => {
                Self { failures: 1, ..self }.open(ReflectorRequest::Watch { short: false })
            }
            Input::Ended => self.wait(ReflectorRequest::Latest, None),
            Input::Silent => Self { is_silent: true, ..self }.open(ReflectorRequest::Latest),
            Input::Suspect => self.open(ReflectorRequest::Latest),
            // A member that expires the very version of its list is not to be listed without pause. One that has merely
            // forgotten an older version, as after its restart, is well: to wait out what failed before would keep its
            // objects old for half a minute.
            Input::Expired if !self.unproved || self.failures == 0 => {
                Self { failures: self.failures.saturating_add(1), ..self }.list()
            }
            // The version itself may be what it does not take.
            Input::Expired | Input::Unsupported => self.wait_to_list(None),
            Input::Failed { retry_after } => self.wait(ReflectorRequest::Latest, retry_after),
            _ => (self, Action::Read),
        }
    }

    fn in_latest(self, input: Input) -> (Self, Action) {
        match input {
            // Who may watch but not list cannot ask; the watch itself will tell.
            Input::Latest { behind: false } | Input::Unsupported => self.open(ReflectorRequest::Watch { short: false }),
            Input::Failed { retry_after } => self.wait(ReflectorRequest::Latest, retry_after),
            _ => self.wait(ReflectorRequest::Latest, None),
        }
    }

    fn in_latest_then_page(self, continue_token: String, input: Input) -> (Self, Action) {
        match input {
            Input::Latest { behind: false } => {
                let next = self.page(Some(continue_token));
                self.open(next)
            }
            Input::Unsupported => self.wait_to_list(None),
            Input::Failed { retry_after } => {
                self.wait(ReflectorRequest::LatestThenPage { continue_token }, retry_after)
            }
            _ => self.wait(ReflectorRequest::LatestThenPage { continue_token }, None),
        }
    }

    /// Takes the collection anew, by the best way that the member supports.
    fn list(self) -> (Self, Action) {
        let target = self.list_target();
        self.open(target)
    }

    fn list_target(&self) -> ReflectorRequest {
        if self.streaming { ReflectorRequest::WatchList } else { self.page(None) }
    }

    /// The page behind this token, or the first.
    fn page(&self, continue_token: Option<String>) -> ReflectorRequest {
        let (limit, compressed) = (self.amount.limit(), self.amount.is_compressed());
        ReflectorRequest::Page { continue_token, limit, compressed }
    }

    /// The same with more or less to be asked for at once.
    fn with(self, amount: impl FnOnce(Amount) -> Amount) -> Self {
        Self { amount: amount(self.amount), ..self }
    }

    fn open(self, target: ReflectorRequest) -> (Self, Action) {
        // A list says as much.
        let is_silent = self.is_silent && !target.begins_list();
        let target = match target {
            ReflectorRequest::Watch { short } => ReflectorRequest::Watch { short: short || is_silent },
            target => target,
        };
        let phase = match &target {
            ReflectorRequest::WatchList => ReflectorPhase::WatchList,
            ReflectorRequest::Page { continue_token, .. } => {
                ReflectorPhase::Pages { continue_token: continue_token.clone() }
            }
            ReflectorRequest::Whole { .. } => ReflectorPhase::Pages { continue_token: None },
            ReflectorRequest::Watch { .. } => ReflectorPhase::Watch { proved: false },
            ReflectorRequest::Latest => ReflectorPhase::Latest,
            ReflectorRequest::LatestThenPage { continue_token } => {
                ReflectorPhase::LatestThenPage { continue_token: continue_token.clone() }
            }
        };
        (Self { phase, is_silent, ..self }, Action::Open(target))
    }

    fn wait_to_list(self, at_least: Option<Duration>) -> (Self, Action) {
        let then = self.list_target();
        self.wait(then, at_least)
    }

    /// Goes on with the page behind this token, which keeps what was read before it; without one the collection is
    /// taken anew. First asks whether the member was restored to an older state meanwhile: then the token leads to
    /// another history, once its version is reached again. The question is a consistent read, so it tells this from an
    /// apiserver that lags.
    fn wait_to_ask_first(self, continue_token: Option<String>, at_least: Option<Duration>) -> (Self, Action) {
        let then = match continue_token {
            Some(continue_token) => ReflectorRequest::LatestThenPage { continue_token },
            None => self.list_target(),
        };
        self.wait(then, at_least)
    }

    fn wait(self, then: ReflectorRequest, at_least: Option<Duration>) -> (Self, Action) {
        let failures = self.failures.saturating_add(1);
        (Self { phase: ReflectorPhase::Waiting { then }, failures, ..self }, Action::Wait { failures, at_least })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Input = Input::Failed { retry_after: None };
    const WATCH: ReflectorRequest = ReflectorRequest::Watch { short: false };
    const SHORT: ReflectorRequest = ReflectorRequest::Watch { short: true };
    const FIRST: ReflectorRequest = ReflectorRequest::Page { continue_token: None, limit: SIZE, compressed: false };
    const SIZE: u32 = 10_000;

    fn open(target: ReflectorRequest) -> Action {
        Action::Open(target)
    }

    fn wait(failures: u32) -> Action {
        Action::Wait { failures, at_least: None }
    }

    fn page(more: Option<&str>) -> Input {
        Input::PageEnd { more: more.map(str::to_owned), soon: true }
    }

    /// The first page where lists are compressed.
    fn compressed(limit: u32) -> ReflectorRequest {
        ReflectorRequest::Page { continue_token: None, limit, compressed: true }
    }

    /// The page behind the token `t`.
    fn second(limit: u32, compressed: bool) -> Action {
        open(ReflectorRequest::Page { continue_token: Some("t".to_owned()), limit, compressed })
    }

    /// The question before the page behind the token `t`.
    fn asked_first() -> Action {
        open(ReflectorRequest::LatestThenPage { continue_token: "t".to_owned() })
    }

    /// Runs inputs from the start and compares each action.
    fn run(story: &str, steps: Vec<(Input, Action)>) -> Machine {
        let (mut machine, first) = Machine::start(SIZE);
        assert_eq!(first, open(ReflectorRequest::WatchList), "{story}");
        for (index, (input, expected)) in steps.into_iter().enumerate() {
            let (next, action) = machine.step(input.clone());
            assert_eq!(action, expected, "{story}: step {index}, {input:?}");
            machine = next;
        }
        machine
    }

    fn synced() -> Vec<(Input, Action)> {
        vec![(Input::Opened, Action::Read), (Input::InitialEnd, Action::Read), (Input::Proved, Action::Read)]
    }

    fn after_sync(story: &str, steps: Vec<(Input, Action)>) -> Machine {
        run(story, synced().into_iter().chain(steps).collect())
    }

    #[test]
    fn the_first_list() {
        run("streamed", synced());
        let paged = run(
            "a member without WatchList is listed in pages, and so from then on",
            vec![
                (Input::Unsupported, open(FIRST)),
                (Input::Opened, Action::Read),
                (page(Some("t")), second(SIZE, false)),
                (Input::Opened, Action::Read),
                (page(None), open(WATCH)),
                (Input::Opened, Action::Read),
                (Input::Proved, Action::Read),
                (Input::Expired, open(FIRST)),
            ],
        );
        assert!(!paged.streaming);
        let ignored =
            run("the end bookmark does not come", vec![(Input::Opened, Action::Read), (Input::Silent, open(FIRST))]);
        assert!(!ignored.streaming);
        let ended = run("the stream ends early", vec![(Input::Opened, Action::Read), (Input::Ended, open(FIRST))]);
        assert!(ended.streaming, "it is tried again the next time");
        let expires = || {
            vec![
                (Input::Unsupported, open(FIRST)),
                (page(Some("t")), second(SIZE, false)),
                (Input::Expired, open(ReflectorRequest::Whole { compressed: true })),
                (Input::Opened, Action::Read),
            ]
        };
        run(
            "behind an expired token all comes in one piece",
            expires().into_iter().chain([(page(None), open(WATCH))]).collect(),
        );
        run(
            "where that expires too it starts over, with pauses",
            expires()
                .into_iter()
                .chain([(Input::Expired, wait(1)), (Input::Elapsed, open(compressed(SIZE)))])
                .collect(),
        );
        run(
            "a first page that expires is no matter of its length",
            vec![(Input::Unsupported, open(FIRST)), (Input::Expired, wait(1)), (Input::Elapsed, open(FIRST))],
        );
        run(
            "failures grow the pause",
            vec![
                (FAILED, wait(1)),
                (Input::Elapsed, open(ReflectorRequest::WatchList)),
                (FAILED, wait(2)),
                (Input::Elapsed, open(ReflectorRequest::WatchList)),
                (
                    Input::Failed { retry_after: Some(Duration::from_secs(4)) },
                    Action::Wait { failures: 3, at_least: Some(Duration::from_secs(4)) },
                ),
            ],
        );
    }

    #[test]
    fn a_list_that_takes_too_long() {
        let paged = |steps: Vec<(Input, Action)>| {
            let first = [(Input::Unsupported, open(FIRST)), (Input::Opened, Action::Read)];
            first.into_iter().chain(steps).collect::<Vec<_>>()
        };
        let late = |read| Input::BrokeOff { read, late: true };
        let soon = |read| Input::BrokeOff { read, late: false };
        run(
            "a page that breaks off late is asked for anew, smaller and compressed, and those before it are kept",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (late(3000), wait(1)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(1500, true)),
                (late(0), wait(2)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(750, true)),
                (Input::PageEnd { more: Some("t".to_owned()), soon: false }, second(750, true)),
                (page(Some("t")), second(1500, true)),
                (page(None), open(WATCH)),
                (Input::Proved, Action::Read),
                (Input::Expired, open(compressed(3000))),
            ]),
        );
        run(
            "nothing is before the first",
            paged(vec![
                (late(3000), wait(1)),
                (Input::Elapsed, open(compressed(1500))),
                (page(Some("t")), second(3000, true)),
            ]),
        );
        run(
            "one that breaks off soon was not too long",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (soon(3000), wait(1)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(SIZE, false)),
            ]),
        );
        run(
            "one that breaks off again was, however soon",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (soon(3000), wait(1)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(SIZE, false)),
                (soon(0), wait(2)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(SIZE / 2, false)),
                (soon(3000), wait(3)),
                (Input::Elapsed, asked_first()),
                (FAILED, wait(4)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(1500, true)),
                (Input::PageEnd { more: Some("t".to_owned()), soon: false }, second(1500, true)),
                (soon(1000), wait(5)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(1500, true)),
            ]),
        );
        run(
            "so was a first one",
            paged(vec![
                (soon(3000), wait(1)),
                (Input::Elapsed, open(FIRST)),
                (soon(3000), wait(2)),
                (Input::Elapsed, open(compressed(1500))),
            ]),
        );
        run(
            "what is not answered is asked for in smaller pages",
            paged(vec![
                (Input::Unanswered, wait(1)),
                (
                    Input::Elapsed,
                    open(ReflectorRequest::Page { continue_token: None, limit: SIZE / 2, compressed: false }),
                ),
                (page(Some("t")), second(SIZE, false)),
                (Input::Unanswered, wait(2)),
                (Input::Elapsed, asked_first()),
                (Input::Latest { behind: false }, second(SIZE / 2, false)),
            ]),
        );
        run(
            "a page that fails for another reason begins anew",
            paged(vec![(page(Some("t")), second(SIZE, false)), (FAILED, wait(1)), (Input::Elapsed, open(FIRST))]),
        );
        run(
            "in one piece it does not come through either: the next pages are compressed and smaller",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (Input::Expired, open(ReflectorRequest::Whole { compressed: true })),
                (late(5000), wait(1)),
                (Input::Elapsed, open(compressed(2500))),
            ]),
        );
    }

    #[test]
    fn pages_of_a_member_that_went_back() {
        let second_page = || vec![(Input::Unsupported, open(FIRST)), (page(Some("t")), second(SIZE, false))];
        let half = ReflectorRequest::Page { continue_token: None, limit: SIZE / 2, compressed: false };
        let stories = [
            (
                "it is asked after it said so",
                vec![
                    (Input::PageAhead { retry_after: None }, wait(1)),
                    (Input::Elapsed, asked_first()),
                    (Input::Latest { behind: true }, open(FIRST)),
                ],
            ),
            (
                "it is asked after a failure",
                vec![
                    (Input::BrokeOff { read: 0, late: false }, wait(1)),
                    (Input::Elapsed, asked_first()),
                    (Input::Latest { behind: true }, open(FIRST)),
                ],
            ),
            (
                "it is asked after silence",
                vec![
                    (Input::Unanswered, wait(1)),
                    (Input::Elapsed, asked_first()),
                    (Input::Latest { behind: true }, open(half)),
                ],
            ),
        ];
        for (story, steps) in stories {
            let machine = run(story, second_page().into_iter().chain(steps).collect());
            assert!(machine.is_void(), "{story}");
        }
        let lags = [
            (
                Input::PageAhead { retry_after: Some(Duration::from_secs(1)) },
                Action::Wait { failures: 1, at_least: Some(Duration::from_secs(1)) },
            ),
            (Input::Elapsed, asked_first()),
            (Input::Latest { behind: false }, second(SIZE, false)),
        ];
        let machine = run("one that lags goes on", second_page().into_iter().chain(lags).collect());
        assert!(!machine.is_void());
        let cannot_be_asked = [
            (Input::Unanswered, wait(1)),
            (Input::Elapsed, asked_first()),
            (Input::Unsupported, wait(2)),
            (Input::Elapsed, open(ReflectorRequest::Page { continue_token: None, limit: SIZE / 2, compressed: false })),
        ];
        run("one that cannot be asked is listed anew", second_page().into_iter().chain(cannot_be_asked).collect());
    }

    #[test]
    fn the_watch_and_its_resumption() {
        after_sync("a clean end resumes at once", vec![(Input::Ended, open(WATCH)), (Input::Opened, Action::Read)]);
        after_sync(
            "ends that yield nothing are failures from the second on",
            vec![
                (Input::Ended, open(WATCH)),
                (Input::Ended, open(WATCH)),
                (Input::Ended, wait(2)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (Input::Latest { behind: false }, open(WATCH)),
                (Input::Proved, Action::Read),
                (FAILED, wait(1)),
            ],
        );
        let silent = || vec![(Input::Silent, open(ReflectorRequest::Latest))];
        after_sync(
            "a silent watch is replaced by a short one, and that by a long one once it has come to its end",
            silent()
                .into_iter()
                .chain([
                    (Input::Latest { behind: false }, open(SHORT)),
                    (Input::Proved, Action::Read),
                    (Input::Silent, open(ReflectorRequest::Latest)),
                    (FAILED, wait(1)),
                    (Input::Elapsed, open(ReflectorRequest::Latest)),
                    (Input::Latest { behind: false }, open(SHORT)),
                    (Input::Proved, Action::Read),
                    (Input::Renewed, open(SHORT)),
                    (Input::Proved, Action::Read),
                    (Input::Ended, open(WATCH)),
                    (Input::Proved, Action::Read),
                    (Input::Ended, open(WATCH)),
                ])
                .collect(),
        );
        after_sync(
            "so it is after a list",
            silent()
                .into_iter()
                .chain([
                    (Input::Latest { behind: true }, open(ReflectorRequest::WatchList)),
                    (Input::InitialEnd, Action::Read),
                    (Input::Proved, Action::Read),
                    (Input::Ended, open(WATCH)),
                ])
                .collect(),
        );
        after_sync(
            "a failure asks for the latest version first",
            vec![
                (FAILED, wait(1)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (FAILED, wait(2)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (Input::Latest { behind: false }, open(WATCH)),
                (FAILED, wait(3)),
            ],
        );
        after_sync(
            "who may not list resumes without asking",
            vec![
                (FAILED, wait(1)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (Input::Unsupported, open(WATCH)),
            ],
        );
        after_sync(
            "progress replaces the watch by a short one and that by a long one",
            vec![
                (Input::Progress { bookmarks: true }, open(SHORT)),
                (Input::Opened, Action::Read),
                (Input::Proved, Action::Read),
                (Input::Ended, open(WATCH)),
            ],
        );
        after_sync(
            "where no bookmarks come, a list says how far the member is",
            vec![
                (Input::Progress { bookmarks: false }, open(ReflectorRequest::WatchList)),
                (Input::InitialEnd, Action::Read),
                (Input::Ended, open(WATCH)),
            ],
        );
        after_sync(
            "other credentials resume, and count as no failure",
            vec![(Input::Renewed, open(WATCH)), (Input::Opened, Action::Read), (Input::Ended, open(WATCH))],
        );
    }

    #[test]
    fn lost_continuity() {
        after_sync(
            "410 lists anew",
            vec![(Input::Expired, open(ReflectorRequest::WatchList)), (Input::InitialEnd, Action::Read)],
        );
        after_sync(
            "410 right after a list is waited out",
            vec![
                (Input::Expired, open(ReflectorRequest::WatchList)),
                (Input::InitialEnd, Action::Read),
                (Input::Expired, wait(2)),
                (Input::Elapsed, open(ReflectorRequest::WatchList)),
            ],
        );
        after_sync(
            "410 to what a member forgot while it was down is not waited out",
            vec![
                (FAILED, wait(1)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (FAILED, wait(2)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (Input::Latest { behind: false }, open(WATCH)),
                (Input::Expired, open(ReflectorRequest::WatchList)),
                (Input::InitialEnd, Action::Read),
                (Input::Expired, wait(4)),
            ],
        );
        let machine = after_sync(
            "a member behind voids versions",
            vec![
                (Input::Silent, open(ReflectorRequest::Latest)),
                (Input::Latest { behind: true }, open(ReflectorRequest::WatchList)),
            ],
        );
        assert!(machine.is_void());
        let (machine, _) = machine.step(FAILED);
        assert!(machine.is_void(), "a failure does not forget it");
        let (machine, action) = machine.step(Input::Elapsed);
        assert_eq!(action, open(ReflectorRequest::WatchList));
        assert!(!machine.step(Input::InitialEnd).0.is_void());
        for before in [vec![], synced(), vec![(FAILED, wait(1))]] {
            let (machine, action) = run("told so", before).step(Input::WentBack);
            assert_eq!((machine.is_void(), action), (true, open(ReflectorRequest::WatchList)));
        }
    }

    #[test]
    fn a_member_that_has_become_well_is_asked_at_once_and_its_failures_are_forgotten() {
        for (before, target) in [(vec![], ReflectorRequest::WatchList), (synced(), ReflectorRequest::Latest)] {
            let failed = before.into_iter().chain([
                (FAILED, wait(1)),
                (Input::Elapsed, open(target.clone())),
                (FAILED, wait(2)),
            ]);
            let (machine, action) = run("it fails twice", failed.collect()).step(Input::Woken);
            assert_eq!(action, open(target));
            assert_eq!(machine.step(FAILED).1, wait(1), "the delay begins small again");
        }
        // Where nothing is waited out it says nothing.
        let watching = run("watched", synced());
        assert_eq!(watching.clone().step(Input::Woken).1, watching.step(Input::Elapsed).1);
    }

    #[test]
    fn no_input_leaves_it_idle_in_a_pause_or_repeats_without_one() {
        let inputs = [
            Input::Opened,
            Input::InitialEnd,
            page(Some("t")),
            page(None),
            Input::Latest { behind: false },
            Input::Proved,
            Input::Ended,
            Input::Silent,
            Input::Suspect,
            Input::Expired,
            Input::Unsupported,
            FAILED,
            Input::Elapsed,
            Input::Woken,
            Input::Progress { bookmarks: true },
            Input::Progress { bookmarks: false },
            Input::Renewed,
            Input::Unanswered,
            Input::PageAhead { retry_after: None },
            Input::BrokeOff { read: 1, late: true },
        ];
        let broken = Input::BrokeOff { read: 1, late: false };
        let silent = [Input::Unanswered, Input::PageAhead { retry_after: None }];
        let failing = [Input::Ended, Input::Expired, Input::Unsupported, FAILED, broken].into_iter().chain(silent);
        let second_page = vec![(Input::Unsupported, open(FIRST)), (page(Some("t")), second(SIZE, false))];
        let asking = [(Input::Unanswered, wait(1)), (Input::Elapsed, asked_first())];
        let phases = [
            run("while it is streamed", vec![]),
            after_sync("while it is watched", vec![]),
            after_sync("while its version is asked for", vec![(Input::Silent, open(ReflectorRequest::Latest))]),
            run("in a page behind a token", second_page.clone()),
            run("before a page behind a token", second_page.into_iter().chain(asking).collect()),
        ];
        for failing in failing {
            for (phase, before) in phases.iter().flat_map(|phase| inputs.iter().map(move |before| (phase, before))) {
                let (mut machine, _) = phase.clone().step(before.clone());
                let opened = (0..10)
                    .filter(|_| {
                        let (next, action) = machine.clone().step(failing.clone());
                        machine = next;
                        matches!(action, Action::Open(_))
                    })
                    .count();
                let story = format!("{failing:?} after {before:?} in {phase:?}");
                assert!(opened <= 4, "{story} is asked {opened} times without a pause");
            }
        }
    }
}
