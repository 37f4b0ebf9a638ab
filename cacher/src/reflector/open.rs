//! Sends the requests that bring a list or a watch.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep_until, timeout};
use tributary_apimachinery::ResourceVersion;
use tributary_apimachinery::body::Body;

use super::task::{Reflector, ReflectorStream, ResetAsked};
use crate::machine::Input;
use crate::page::{BodyDecoder, Page};
use crate::request::{self, ReflectorRequest};
use crate::state::StaleReason;
use crate::store::{Staging, Store};
use crate::stream::MemberWatch;

/// The most requests of one reflector within [`PACE_INTERVAL`], further pages of a list not counted. Watches that end
/// are resumed at once, and what they bring meanwhile counts as success: a member (or a proxy before it) that ends each
/// after its first event would be asked as fast as it answers.
const REQUESTS_PER_INTERVAL: u32 = 10;
/// The time in which requests are counted.
const PACE_INTERVAL: Duration = Duration::from_secs(1);

impl Reflector {
    /// Sends a request in place of what is being read.
    pub(super) async fn open(&mut self, target: ReflectorRequest) -> Result<Input, ResetAsked> {
        self.reading = ReflectorStream::Nothing;
        if target.begins_list() {
            // What came of one that broke off is of no use to it, and it may wait for as long as the member is away.
            self.staging = Staging::default();
            self.shrink_room();
        }
        if target.begins_list() || matches!(target, ReflectorRequest::Watch { .. }) {
            self.let_precede().await?;
        }
        if !matches!(target, ReflectorRequest::Page { continue_token: Some(_), .. }) {
            self.list_place = None;
            self.keep_pace().await?;
        }
        if target.begins_list() && self.has_asked {
            let places = self.shared.config.list_places.clone();
            self.list_place = self.attend(places.acquire()).await?;
        }
        self.has_asked = true;
        self.recoveries = self.member.borrow().recoveries;
        match &target {
            ReflectorRequest::Latest => return self.ask_latest(self.version()).await,
            ReflectorRequest::LatestThenPage { .. } => {
                return self.ask_latest(self.version().max(self.listed.into())).await;
            }
            _ if target.begins_list() => self.begin_list(),
            _ => {}
        }
        if matches!(target, ReflectorRequest::WatchList | ReflectorRequest::Watch { .. }) {
            // This one has the credentials of now.
            self.shared.reopen_at.send_replace(None);
        }
        let request = match request::build(&self.shared.config, &target, self.version().resume_after()) {
            Ok(request) => request,
            Err(error) => return Ok(self.failed(StaleReason::Other(format!("no request can be made: {error}")))),
        };
        tracing::debug!(uri = %request.uri(), "asking the member");
        let begun = Instant::now();
        let response = match self.send(&target, request).await? {
            Ok(response) => response,
            Err(input) => return Ok(input),
        };
        if !response.status().is_success() {
            return self.read_refusal(&target, response, begun).await;
        }
        match request::is_gzip(response.headers(), &target) {
            Ok(gzip) => {
                self.begin_reading(target, response, begun, gzip);
                Ok(Input::Opened)
            }
            Err(encoding) => {
                let reason = format!("the answer is encoded as {encoding}, which was not asked for");
                Ok(self.failed(StaleReason::Other(reason)))
            }
        }
    }

    /// After a failure, or silence, waits until what comes first is known as of later than that.
    async fn let_precede(&mut self) -> Result<(), ResetAsked> {
        if let Some(failed_at) = self.failed_at {
            let precedence = self.shared.config.precedence.clone();
            self.attend(precedence.known_since(failed_at)).await?;
            self.failed_at = None;
        }
        Ok(())
    }

    /// A list begins with nothing, and the version that it shows is the answer to a question that is asked now.
    fn begin_list(&mut self) {
        let before = self.store.as_ref().map(Store::snapshot).or_else(|| self.shared.earlier.lock().clone());
        self.staging = Staging::new(self.shared.config.decoder.fields(), before);
        self.listed = ResourceVersion::default();
        self.progress.forget();
        self.question = self.shared.wanted.next_question();
    }

    /// The member's answer, whatever its status; where none comes, what the machine has to decide on.
    async fn send(
        &mut self,
        target: &ReflectorRequest,
        request: Request<Body>,
    ) -> Result<Result<Response<Body>, Input>, ResetAsked> {
        let within = self.shared.config.tuning.answer_timeout;
        let answer = self.unless_overtaken(timeout(within, request::send(&self.transport, request)));
        let (failed, of_a_list) = match self.attend(answer).await? {
            Some(Ok(Ok(response))) => return Ok(Ok(response)),
            Some(Ok(Err(error))) => (self.unreachable(&error), Input::BrokeOff { read: 0, late: false }),
            Some(Err(_)) => (self.no_answer(within), Input::Unanswered),
            None => return Ok(Err(self.overtaken())),
        };
        Ok(Err(if target.is_list() { of_a_list } else { failed }))
    }

    /// Reads why the member refused the request that was sent at `begun`.
    async fn read_refusal(
        &mut self,
        target: &ReflectorRequest,
        response: Response<Body>,
        begun: Instant,
    ) -> Result<Input, ResetAsked> {
        let within = self.shared.config.tuning.answer_timeout;
        let refusal = self.attend(request::refusal(response, within)).await?;
        if refusal.is_ahead && matches!(target, ReflectorRequest::Page { continue_token: Some(_), .. }) {
            let retry_after = refusal.retry_after;
            self.refused(refusal, false);
            return Ok(Input::PageAhead { retry_after });
        }
        let took_too_long = target.is_list() && refusal.code == StatusCode::GATEWAY_TIMEOUT;
        let refused = self.refused(refusal, *target == ReflectorRequest::WatchList);
        if took_too_long {
            self.page_time = self.page_time.after_break(begun.elapsed());
            return Ok(Input::Unanswered);
        }
        Ok(refused)
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

    fn begin_reading(&mut self, target: ReflectorRequest, response: Response<Body>, begun: Instant, gzip: bool) {
        let warnings = request::warnings(response.headers());
        if warnings != self.warnings {
            self.observer.warnings(&warnings);
            self.warnings = warnings;
        }
        let body = response.into_body();
        let (initial, short) = match target {
            ReflectorRequest::Page { continue_token: asked, .. } => {
                self.reading =
                    ReflectorStream::Page(Box::new(Page { body, asked, begun, text: BodyDecoder::new(gzip) }));
                return;
            }
            ReflectorRequest::Whole { .. } => {
                self.reading =
                    ReflectorStream::Page(Box::new(Page { body, asked: None, begun, text: BodyDecoder::new(gzip) }));
                return;
            }
            // Asked by `ask_latest` alone.
            ReflectorRequest::Latest | ReflectorRequest::LatestThenPage { .. } => return,
            ReflectorRequest::WatchList => (true, false),
            ReflectorRequest::Watch { short } => {
                self.health.reopened();
                (false, short)
            }
        };
        self.shared.counts.watches.add(1);
        let mut stream = MemberWatch::new(body, initial, short, Instant::now(), &self.shared.config.tuning);
        // Where nothing has changed, whoever sends bookmarks need not send one.
        stream.bookmark_due &= self.version() < self.latest;
        self.reading = ReflectorStream::Watch(Box::new(stream));
    }
}
