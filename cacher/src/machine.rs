//! Decides the reflector's next request. The machine itself does no I/O.
//!
//! ```text
//!                Unsupported, Ended, Silent
//!   ┌───────────┐ ───────────────────▶ ┌───────────┐──┐ PageEnd, more;
//!   │ WatchList │                      │   Pages   │◀─┘ Expired after the first page: list without pages
//!   └───────────┘                      └───────────┘
//!     ▲   │ InitialEnd (same stream goes on)  │ PageEnd, last
//!     │   └──────────────┐        ┌───────────┘
//!     │                  ▼        ▼
//!     │   Expired     ┌──────────────┐──┐ Ended after Proved, or Renewed: resume at once
//!     ├───────────────│    Watch     │◀─┘ Progress: resume with a short watch (or list,
//!     │               └──────────────┘    if the member sends no bookmarks)
//!     │                │ Silent,   ▲ Latest, not behind: resume (after Silent: short watch)
//!     │                │ Bookmark- │
//!     │                │ Behind    │
//!     │                ▼           │
//!     │   Latest,     ┌──────────────┐
//!     └───────────────│    Latest    │
//!         behind      └──────────────┘
//! ```
//!
//! - In `Pages`, `BrokeOff` and `Unanswered` lead to `Waiting` and then to the same page again. The page is smaller if
//!   it took too long or was cut off before.
//! - `PageAhead` leads to the same page with unchanged size.
//! - Before a page is repeated, `LatestThenPage` requests the member's latest version. If that version is below the
//!   version of the received pages, the collection is listed again, and earlier versions are void.
//! - In each of the four phases, `Failed` leads to `Waiting` with growing delay. From `WatchList` and `Pages`, the list
//!   is repeated. From `Watch` and `Latest`, the phase `Latest` follows.
//! - `Woken`, in `Waiting`, sends the awaited request at once and resets the delay.
//! - `WentBack` lists the collection again in any phase, and earlier versions are void.
//!
//! A watch with a regular end is resumed at once from the current version. After a failure, the reflector first
//! requests the member's latest version, because the member may have been restored to an older state. A restored member
//! would accept a watch from a version above its own, and would send no events until it reaches that version again.

use std::time::Duration;

use crate::page_size::PageSize;
use crate::request::ReflectorRequest;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReflectorPhase {
    /// The reflector reads a WatchList.
    WatchList,
    /// The reflector reads a list, in pages or in one response. `continue_token` is the token of the current page;
    /// `None` for the first page, and for a list in one response.
    Pages { continue_token: Option<String> },
    /// A watch is open. `proved`: the watch has delivered data, or has stayed open for 1 s (`settled_after`).
    Watch { proved: bool },
    /// The reflector requests the member's latest version.
    Latest,
    /// The reflector requests the member's latest version before the page with this continue token.
    LatestThenPage { continue_token: String },
    /// The reflector waits after a failure. The request `then` follows.
    Waiting { then: ReflectorRequest },
}

/// A result of the reflector's I/O, or an event of its watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The member answered a request with 200, and the body is readable.
    Opened,
    /// The initial events of a WatchList have arrived completely, and the collection is published.
    InitialEnd,
    /// A page is complete. `more` is the continue token of the next page. Without a next page, the collection is
    /// published. `soon`: the page was complete within its time limit, so the next page may have twice the size.
    PageEnd { more: Option<String>, soon: bool },
    /// A page, or a list in one response, was cut off after `read` objects. `late`: the time limit of the page had
    /// passed.
    BrokeOff { read: u32, late: bool },
    /// The head of the response to a page, or to a list in one response, did not arrive in time.
    Unanswered,
    /// The answering server has not reached the version of the received pages. Two kinds of servers report this: a
    /// kube-apiserver whose watch cache lags (`waitAndListExactRV` in apiserver's `pkg/storage/cacher/watch_cache.go`),
    /// and a member that was restored to an older state.
    PageAhead { retry_after: Option<Duration> },
    /// The member's latest version arrived. `behind`: the latest version is below the collection's version, or below
    /// the version of the received pages.
    Latest { behind: bool },
    /// The watch has delivered data, or has stayed open for 1 s (`settled_after`).
    Proved,
    /// The member ended the watch regularly.
    Ended,
    /// The watch delivered no data for the longest permitted time.
    Silent,
    /// A bookmark has a version below the collection's version, so the member may have been restored to an older state.
    BookmarkBehind,
    /// The member answered that the version or the continue token is too old (410).
    Expired,
    /// The member does not support, or does not allow, this kind of request.
    Unsupported,
    /// A request failed for any other reason.
    Failed { retry_after: Option<Duration> },
    /// The delay of [`Action::Wait`] has passed.
    Elapsed,
    /// The delay of [`Action::Wait`] ended early, because the member has recovered. The machine forgets earlier
    /// failures, so that the next delay is short again.
    Woken,
    /// A reader waits for a version that the member has reached but the collection has not. With `bookmarks`, the
    /// bookmark of a short watch raises the collection's version. Otherwise a list raises the version.
    Progress { bookmarks: bool },
    /// The watch must be reopened because the credentials changed.
    Renewed,
    /// The member's revisions went back, or the caller reported a replaced member.
    WentBack,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Drops the current stream and sends this request.
    Open(ReflectorRequest),
    /// Continues to read the current stream.
    Read,
    /// Drops the current stream and waits for a delay that grows with `failures` and is at least `at_least`. The next
    /// input is `Elapsed`.
    Wait { failures: u32, at_least: Option<Duration> },
}

impl Action {
    /// Returns whether the action starts a new list of the collection.
    pub(crate) fn begins_list(&self) -> bool {
        matches!(self, Self::Open(request) if request.begins_list())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    phase: ReflectorPhase,
    /// Whether the next list of the collection is a WatchList. False after a failure which suggests that the member
    /// does not support WatchLists.
    streaming: bool,
    /// Whether the member's revisions went back. If so, versions from before the current list must no longer be used.
    versions_invalid: bool,
    /// The number of failures since a watch last delivered data or stayed open for 1 s.
    failures: u32,
    /// Whether the version of the latest list is unproved: no watch from this version has delivered data or stayed open
    /// for 1 s.
    unproved: bool,
    /// Whether a page, or a list in one response, was cut off, and no page has been complete since then.
    broke_off: bool,
    /// Whether a watch was silent, and no watch has reached its end since then. While the flag is set, watches are
    /// short. A short watch shows that the member is alive: by its bookmark, or by its end if no bookmark is due.
    is_silent: bool,
    page_size: PageSize,
}

impl Machine {
    /// Returns the initial state and the first action. `page_size` is the page size until a page is cut off.
    pub(crate) fn start(page_size: u32) -> (Self, Action) {
        let page_size = PageSize::new(page_size);
        let phase = ReflectorPhase::WatchList;
        let (versions_invalid, unproved, broke_off, is_silent) = (false, false, false, false);
        Self { phase, streaming: true, versions_invalid, failures: 0, unproved, broke_off, is_silent, page_size }.list()
    }

    pub(crate) fn are_versions_invalid(&self) -> bool {
        self.versions_invalid
    }

    pub(crate) fn step(self, input: Input) -> (Self, Action) {
        match (self.phase.clone(), input) {
            (_, Input::WentBack)
            | (ReflectorPhase::Latest | ReflectorPhase::LatestThenPage { .. }, Input::Latest { behind: true }) => {
                Self { versions_invalid: true, ..self }.list()
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
                (Self { phase, versions_invalid: false, unproved: true, ..self }, Action::Read)
            }
            Input::Unsupported | Input::Silent | Input::BookmarkBehind => Self { streaming: false, ..self }.list(),
            // The member may be shutting down, or may be unable to serve WatchLists. So this attempt lists the
            // collection in pages.
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
                let machine = if soon { machine.with(PageSize::after_soon) } else { machine };
                match more {
                    Some(token) => {
                        let next = machine.page(Some(token));
                        machine.open(next)
                    }
                    None => Self { versions_invalid: false, unproved: true, ..machine }
                        .open(ReflectorRequest::Watch { short: false }),
                }
            }
            // The continue token expired, and newer pages would not fit the received pages, because their versions
            // differ. The list takes longer than the member keeps old revisions, and a second list in pages would take
            // as long. So the reflector requests the list in one response (client-go's `FullListIfExpired`).
            Input::Expired if continue_token.is_some() => {
                let machine = self.with(PageSize::after_expiry);
                let whole = ReflectorRequest::Whole { compressed: machine.page_size.is_compressed() };
                machine.open(whole)
            }
            Input::BrokeOff { read, late } => self.after_break(continue_token, read, late),
            Input::Unanswered => self.with(PageSize::after_silence).wait_then_request_latest(continue_token, None),
            Input::PageAhead { retry_after } => self.wait_then_request_latest(continue_token, retry_after),
            Input::Expired | Input::Unsupported | Input::Ended | Input::Silent => self.wait_to_list(None),
            Input::Failed { retry_after } => self.wait_to_list(retry_after),
            _ => (self, Action::Read),
        }
    }

    /// Chooses the size of the next request after a page was cut off. If the page had exceeded its time limit, the
    /// member has probably limited its duration, so the next page is smaller. If two pages in a row were cut off, a
    /// proxy may limit their duration or their size, so the next page is smaller as well.
    fn after_break(self, continue_token: Option<String>, read: u32, late: bool) -> (Self, Action) {
        let again = self.broke_off;
        let machine = Self { broke_off: true, ..self };
        let machine = match (late, again) {
            (false, false) => machine,
            (false, true) if read == 0 => machine.with(PageSize::after_silence),
            _ => machine.with(|page_size| page_size.after_break(read)),
        };
        machine.wait_then_request_latest(continue_token, None)
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
            // One watch that ends without data may be chance, so the next watch follows at once. If the next watch ends
            // without data as well, the reflector waits.
            Input::Ended if self.failures == 0 => {
                Self { failures: 1, ..self }.open(ReflectorRequest::Watch { short: false })
            }
            Input::Ended => self.wait(ReflectorRequest::Latest, None),
            Input::Silent => Self { is_silent: true, ..self }.open(ReflectorRequest::Latest),
            Input::BookmarkBehind => self.open(ReflectorRequest::Latest),
            // If a member answers 410 to the version of its own latest list, the reflector must not list again without
            // a delay. But a member that has only discarded an older version, for example by a restart, is healthy. If
            // its delay grew with earlier failures, its objects could stay stale for half a minute.
            Input::Expired if !self.unproved || self.failures == 0 => {
                Self { failures: self.failures.saturating_add(1), ..self }.list()
            }
            // The member rejects the version from which the watch starts, and would reject each further watch from this
            // version. So a new list follows.
            Input::Expired | Input::Unsupported => self.wait_to_list(None),
            Input::Failed { retry_after } => self.wait(ReflectorRequest::Latest, retry_after),
            _ => (self, Action::Read),
        }
    }

    fn in_latest(self, input: Input) -> (Self, Action) {
        match input {
            // A user with the right to watch but not to list cannot read the latest version. The watch follows
            // nevertheless, and shows the state of the member.
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

    /// Lists the collection again, by WatchList if the member supports it.
    fn list(self) -> (Self, Action) {
        let target = self.list_target();
        self.open(target)
    }

    fn list_target(&self) -> ReflectorRequest {
        if self.streaming { ReflectorRequest::WatchList } else { self.page(None) }
    }

    /// Returns the request for the page with this continue token. `None` requests the first page.
    fn page(&self, continue_token: Option<String>) -> ReflectorRequest {
        let (limit, compressed) = (self.page_size.limit(), self.page_size.is_compressed());
        ReflectorRequest::Page { continue_token, limit, compressed }
    }

    fn with(self, page_size: impl FnOnce(PageSize) -> PageSize) -> Self {
        Self { page_size: page_size(self.page_size), ..self }
    }

    fn open(self, target: ReflectorRequest) -> (Self, Action) {
        // A list proves that the member is alive, just as a short watch does, so later watches need not be short.
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

    /// Requests the page with this continue token again after a delay. The earlier pages remain valid. Without a token,
    /// lists the collection again.
    ///
    /// Before the page, the member's latest version is requested, to detect a member that was restored to an older
    /// state. Once its revisions reach the token's version again, such a member accepts the token, but returns
    /// different objects. The request is a consistent read, so its response distinguishes a restored member from a
    /// kube-apiserver that lags behind.
    fn wait_then_request_latest(self, continue_token: Option<String>, at_least: Option<Duration>) -> (Self, Action) {
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

    fn compressed(limit: u32) -> ReflectorRequest {
        ReflectorRequest::Page { continue_token: None, limit, compressed: true }
    }

    /// Returns the action that requests the page with the continue token `t`.
    fn second(limit: u32, compressed: bool) -> Action {
        open(ReflectorRequest::Page { continue_token: Some("t".to_owned()), limit, compressed })
    }

    fn latest_before_page() -> Action {
        open(ReflectorRequest::LatestThenPage { continue_token: "t".to_owned() })
    }

    /// Passes the inputs to a new machine. Compares each resulting action with the expected action.
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
    fn first_list_falls_back_from_watch_list_to_pages() {
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
        assert!(ended.streaming, "WatchList is tried again the next time");
        let expires = || {
            vec![
                (Input::Unsupported, open(FIRST)),
                (page(Some("t")), second(SIZE, false)),
                (Input::Expired, open(ReflectorRequest::Whole { compressed: true })),
                (Input::Opened, Action::Read),
            ]
        };
        run(
            "after an expired token the list comes in one piece",
            expires().into_iter().chain([(page(None), open(WATCH))]).collect(),
        );
        run(
            "if that list expires too, listing starts over with pauses",
            expires()
                .into_iter()
                .chain([(Input::Expired, wait(1)), (Input::Elapsed, open(compressed(SIZE)))])
                .collect(),
        );
        run(
            "an expired first page does not change the page size",
            vec![(Input::Unsupported, open(FIRST)), (Input::Expired, wait(1)), (Input::Elapsed, open(FIRST))],
        );
        run(
            "failures increase the delay",
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
    fn list_that_is_cut_off_is_requested_in_smaller_pages() {
        let paged = |steps: Vec<(Input, Action)>| {
            let first = [(Input::Unsupported, open(FIRST)), (Input::Opened, Action::Read)];
            first.into_iter().chain(steps).collect::<Vec<_>>()
        };
        let late = |read| Input::BrokeOff { read, late: true };
        let soon = |read| Input::BrokeOff { read, late: false };
        run(
            "a page that breaks off late is requested again, smaller and compressed, and earlier pages are kept",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (late(3000), wait(1)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(1500, true)),
                (late(0), wait(2)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(750, true)),
                (Input::PageEnd { more: Some("t".to_owned()), soon: false }, second(750, true)),
                (page(Some("t")), second(1500, true)),
                (page(None), open(WATCH)),
                (Input::Proved, Action::Read),
                (Input::Expired, open(compressed(3000))),
            ]),
        );
        run(
            "no page precedes the first",
            paged(vec![
                (late(3000), wait(1)),
                (Input::Elapsed, open(compressed(1500))),
                (page(Some("t")), second(3000, true)),
            ]),
        );
        run(
            "a page that breaks off soon was not too long",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (soon(3000), wait(1)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(SIZE, false)),
            ]),
        );
        run(
            "a page that breaks off again becomes smaller, however soon",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (soon(3000), wait(1)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(SIZE, false)),
                (soon(0), wait(2)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(SIZE / 2, false)),
                (soon(3000), wait(3)),
                (Input::Elapsed, latest_before_page()),
                (FAILED, wait(4)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(1500, true)),
                (Input::PageEnd { more: Some("t".to_owned()), soon: false }, second(1500, true)),
                (soon(1000), wait(5)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(1500, true)),
            ]),
        );
        run(
            "a first page that breaks off again becomes smaller",
            paged(vec![
                (soon(3000), wait(1)),
                (Input::Elapsed, open(FIRST)),
                (soon(3000), wait(2)),
                (Input::Elapsed, open(compressed(1500))),
            ]),
        );
        run(
            "an unanswered page is requested again in half the size",
            paged(vec![
                (Input::Unanswered, wait(1)),
                (
                    Input::Elapsed,
                    open(ReflectorRequest::Page { continue_token: None, limit: SIZE / 2, compressed: false }),
                ),
                (page(Some("t")), second(SIZE, false)),
                (Input::Unanswered, wait(2)),
                (Input::Elapsed, latest_before_page()),
                (Input::Latest { behind: false }, second(SIZE / 2, false)),
            ]),
        );
        run(
            "a different failure of a page restarts the list",
            paged(vec![(page(Some("t")), second(SIZE, false)), (FAILED, wait(1)), (Input::Elapsed, open(FIRST))]),
        );
        run(
            "a list in one piece breaks off: the next pages are compressed and smaller",
            paged(vec![
                (page(Some("t")), second(SIZE, false)),
                (Input::Expired, open(ReflectorRequest::Whole { compressed: true })),
                (late(5000), wait(1)),
                (Input::Elapsed, open(compressed(2500))),
            ]),
        );
    }

    #[test]
    fn failed_page_restarts_the_list_if_the_member_was_restored_from_a_backup() {
        let second_page = || vec![(Input::Unsupported, open(FIRST)), (page(Some("t")), second(SIZE, false))];
        let half = ReflectorRequest::Page { continue_token: None, limit: SIZE / 2, compressed: false };
        let stories = [
            (
                "the member is asked after it reported a newer page",
                vec![
                    (Input::PageAhead { retry_after: None }, wait(1)),
                    (Input::Elapsed, latest_before_page()),
                    (Input::Latest { behind: true }, open(FIRST)),
                ],
            ),
            (
                "the member is asked after a failure",
                vec![
                    (Input::BrokeOff { read: 0, late: false }, wait(1)),
                    (Input::Elapsed, latest_before_page()),
                    (Input::Latest { behind: true }, open(FIRST)),
                ],
            ),
            (
                "the member is asked after silence",
                vec![
                    (Input::Unanswered, wait(1)),
                    (Input::Elapsed, latest_before_page()),
                    (Input::Latest { behind: true }, open(half)),
                ],
            ),
        ];
        for (story, steps) in stories {
            let machine = run(story, second_page().into_iter().chain(steps).collect());
            assert!(machine.are_versions_invalid(), "{story}");
        }
        let lags = [
            (
                Input::PageAhead { retry_after: Some(Duration::from_secs(1)) },
                Action::Wait { failures: 1, at_least: Some(Duration::from_secs(1)) },
            ),
            (Input::Elapsed, latest_before_page()),
            (Input::Latest { behind: false }, second(SIZE, false)),
        ];
        let machine = run("the list continues at a lagging server", second_page().into_iter().chain(lags).collect());
        assert!(!machine.are_versions_invalid());
        let unavailable = [
            (Input::Unanswered, wait(1)),
            (Input::Elapsed, latest_before_page()),
            (Input::Unsupported, wait(2)),
            (Input::Elapsed, open(ReflectorRequest::Page { continue_token: None, limit: SIZE / 2, compressed: false })),
        ];
        run("a member that cannot be asked is listed again", second_page().into_iter().chain(unavailable).collect());
    }

    #[test]
    fn watch_resumes_after_an_end_a_silence_or_a_failure() {
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
            "a silent watch is replaced by a short watch, whose end leads to a long watch",
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
            "a list after silence leads to a long watch",
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
            "a user without the right to list resumes without asking",
            vec![
                (FAILED, wait(1)),
                (Input::Elapsed, open(ReflectorRequest::Latest)),
                (Input::Unsupported, open(WATCH)),
            ],
        );
        after_sync(
            "progress replaces the watch by a short watch, then by a long one",
            vec![
                (Input::Progress { bookmarks: true }, open(SHORT)),
                (Input::Opened, Action::Read),
                (Input::Proved, Action::Read),
                (Input::Ended, open(WATCH)),
            ],
        );
        after_sync(
            "without bookmarks, a list shows the member's version",
            vec![
                (Input::Progress { bookmarks: false }, open(ReflectorRequest::WatchList)),
                (Input::InitialEnd, Action::Read),
                (Input::Ended, open(WATCH)),
            ],
        );
        after_sync(
            "changed credentials resume the watch, and do not count as a failure",
            vec![(Input::Renewed, open(WATCH)), (Input::Opened, Action::Read), (Input::Ended, open(WATCH))],
        );
    }

    #[test]
    fn expired_watch_or_restored_member_causes_a_new_list() {
        after_sync(
            "410 lists again",
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
            "410 after the member's downtime is not delayed",
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
            "a member that is behind makes earlier versions void",
            vec![
                (Input::Silent, open(ReflectorRequest::Latest)),
                (Input::Latest { behind: true }, open(ReflectorRequest::WatchList)),
            ],
        );
        assert!(machine.are_versions_invalid());
        let (machine, _) = machine.step(FAILED);
        assert!(machine.are_versions_invalid(), "the state survives a failure");
        let (machine, action) = machine.step(Input::Elapsed);
        assert_eq!(action, open(ReflectorRequest::WatchList));
        assert!(!machine.step(Input::InitialEnd).0.are_versions_invalid());
        for before in [vec![], synced(), vec![(FAILED, wait(1))]] {
            let (machine, action) = run("versions went back", before).step(Input::WentBack);
            assert_eq!((machine.are_versions_invalid(), action), (true, open(ReflectorRequest::WatchList)));
        }
    }

    #[test]
    fn recovered_member_gets_a_request_at_once_and_resets_backoff() {
        for (before, target) in [(vec![], ReflectorRequest::WatchList), (synced(), ReflectorRequest::Latest)] {
            let failed = before.into_iter().chain([
                (FAILED, wait(1)),
                (Input::Elapsed, open(target.clone())),
                (FAILED, wait(2)),
            ]);
            let (machine, action) = run("it fails twice", failed.collect()).step(Input::Woken);
            assert_eq!(action, open(target));
            assert_eq!(machine.step(FAILED).1, wait(1), "the delay starts small again");
        }
        // The machine ignores `Woken` outside of the phase `Waiting`.
        let watching = run("watched", synced());
        assert_eq!(watching.clone().step(Input::Woken).1, watching.step(Input::Elapsed).1);
    }

    #[test]
    fn reflector_never_repeats_a_failing_request_without_a_delay() {
        let inputs = [
            Input::Opened,
            Input::InitialEnd,
            page(Some("t")),
            page(None),
            Input::Latest { behind: false },
            Input::Proved,
            Input::Ended,
            Input::Silent,
            Input::BookmarkBehind,
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
        let asking = [(Input::Unanswered, wait(1)), (Input::Elapsed, latest_before_page())];
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
