//! Sends the requests that bring a list or a watch.

use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::{Instant, sleep_until, timeout};
use tributary_apimachinery::ResourceVersion;

use super::task::{Reading, Reflector, ResetAsked};
use crate::Body;
use crate::machine::Input;
use crate::page::{Page, Text};
use crate::request::{self, Target};
use crate::state::Reason;
use crate::store::{Staging, Store};
use crate::stream::WatchStream;

/// The most requests of one reflector within [`PACE_INTERVAL`], further pages of a list not counted. Watches that end are
/// resumed at once, and what they bring meanwhile counts as success: a member (or a proxy before it) that ends each after its
/// first event would be asked as fast as it answers.
const REQUESTS_PER_INTERVAL: u32 = 10;
/// The time in which requests are counted.
const PACE_INTERVAL: Duration = Duration::from_secs(1);

impl Reflector {
    /// Sends a request in place of what is being read.
    pub(super) async fn open(&mut self, target: Target) -> Result<Input, ResetAsked> {
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
    pub(super) async fn keep_pace(&mut self) -> Result<(), ResetAsked> {
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

    pub(super) fn begin_reading(&mut self, target: Target, response: Response<Body>, begun: Instant, gzip: bool) {
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
}
