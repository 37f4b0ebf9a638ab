//! Sends the requests for lists, watches and the latest version.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep_until, timeout};
use tributary_apimachinery::ResourceVersion;
use tributary_apimachinery::body::Body;

use super::task::{Reflector, ReflectorStream, ResetRequested};
use crate::machine::Input;
use crate::page::{BodyDecoder, Page};
use crate::request::{self, ReflectorRequest};
use crate::state::StaleReason;
use crate::store::{Staging, Store};
use crate::stream::{MemberWatch, WatchKind};

/// The maximum number of requests that a reflector sends within [`PACE_INTERVAL`], without the second and later pages
/// of lists. A watch that ends is resumed at once, and each event resets the delay after failures. So without this
/// maximum, the reflector would send requests in a busy loop to a member or proxy that ends each watch after its first
/// event.
const REQUESTS_PER_INTERVAL: u32 = 10;
const PACE_INTERVAL: Duration = Duration::from_secs(1);

impl Reflector {
    /// Drops the current stream and sends a request.
    pub(super) async fn open(&mut self, target: ReflectorRequest) -> Result<Input, ResetRequested> {
        self.reading = ReflectorStream::Nothing;
        if target.begins_list() {
            // An interrupted list's objects are useless for the new list. The objects are dropped now, because the
            // request for the new list may wait for as long as the member is unreachable.
            self.staging = Staging::default();
            self.shrink_reservation();
        }
        if target.begins_list() || matches!(target, ReflectorRequest::Watch { .. }) {
            self.await_precedence().await?;
        }
        if !matches!(target, ReflectorRequest::Page { continue_token: Some(_), .. }) {
            self.list_permit = None;
            self.limit_request_rate().await?;
        }
        if target.begins_list() && self.has_sent_request {
            let places = self.shared.config.list_permits.clone();
            self.list_permit = self.run_until_reset(places.acquire()).await?;
        }
        self.has_sent_request = true;
        self.recoveries = self.member.borrow().recoveries;
        match &target {
            ReflectorRequest::Latest => return self.request_latest(self.version()).await,
            ReflectorRequest::LatestThenPage { .. } => {
                return self.request_latest(self.version().max(self.listed.into())).await;
            }
            _ if target.begins_list() => self.begin_list(),
            _ => {}
        }
        if matches!(target, ReflectorRequest::WatchList | ReflectorRequest::Watch { .. }) {
            // The new watch carries the current credentials, so a requested reopening is no longer necessary.
            self.shared.reopen_at.send_replace(None);
        }
        let request = match request::build(&self.shared.config, &target, self.version().resume_after()) {
            Ok(request) => request,
            Err(error) => return Ok(self.failed(StaleReason::Other(format!("the request is invalid: {error}")))),
        };
        tracing::debug!(uri = %request.uri(), "sending a request to the cluster");
        let started_at = Instant::now();
        let response = match self.send(&target, request).await? {
            Ok(response) => response,
            Err(input) => return Ok(input),
        };
        if !response.status().is_success() {
            return self.read_refusal(&target, response, started_at).await;
        }
        match request::is_gzip(response.headers(), &target) {
            Ok(gzip) => {
                self.begin_reading(target, response, started_at, gzip);
                Ok(Input::Opened)
            }
            Err(encoding) => {
                let reason =
                    format!("the answer has the Content-Encoding {encoding}, which the request did not accept");
                Ok(self.failed(StaleReason::Other(reason)))
            }
        }
    }

    /// After a failure or a silent watch, waits until the preceding RBAC collections are current as of the failure or
    /// later.
    async fn await_precedence(&mut self) -> Result<(), ResetRequested> {
        if let Some(failed_at) = self.failed_at {
            let precedence = self.shared.config.precedence.clone();
            self.run_until_reset(precedence.known_since(failed_at)).await?;
            self.failed_at = None;
        }
        Ok(())
    }

    /// Prepares an empty collection for a list. Cancels a pending request for the latest version, because the version
    /// of the list answers this request.
    fn begin_list(&mut self) {
        let before =
            self.store.as_ref().map(Store::snapshot).or_else(|| self.shared.predecessor_snapshot.lock().clone());
        self.staging = Staging::new(self.shared.config.decoder.fields(), before);
        self.listed = ResourceVersion::default();
        self.progress.forget();
        self.request_number = self.shared.wanted.assign_request_number();
    }

    /// Returns the member's response with any status code, or an input for the state machine if the request failed.
    async fn send(
        &mut self,
        target: &ReflectorRequest,
        request: Request<Body>,
    ) -> Result<Result<Response<Body>, Input>, ResetRequested> {
        let within = self.shared.config.tuning.answer_timeout;
        let answer = self.unless_overtaken(timeout(within, request::send(&self.transport, request)));
        let (failed, of_a_list) = match self.run_until_reset(answer).await? {
            Some(Ok(Ok(response))) => return Ok(Ok(response)),
            Some(Ok(Err(error))) => (self.unreachable(&error), Input::BrokeOff { read: 0, late: false }),
            Some(Err(_)) => (self.response_timed_out(within), Input::Unanswered),
            None => return Ok(Err(self.fail_overtaken())),
        };
        Ok(Err(if target.is_list() { of_a_list } else { failed }))
    }

    /// Reads the body of a refusal. `started_at` is the time at which the request was sent.
    async fn read_refusal(
        &mut self,
        target: &ReflectorRequest,
        response: Response<Body>,
        started_at: Instant,
    ) -> Result<Input, ResetRequested> {
        let within = self.shared.config.tuning.answer_timeout;
        let refusal = self.run_until_reset(request::refusal(response, within)).await?;
        if refusal.is_ahead && matches!(target, ReflectorRequest::Page { continue_token: Some(_), .. }) {
            let retry_after = refusal.retry_after;
            self.refused(refusal, false);
            return Ok(Input::PageAhead { retry_after });
        }
        let took_too_long = target.is_list() && refusal.code == StatusCode::GATEWAY_TIMEOUT;
        let refused = self.refused(refusal, *target == ReflectorRequest::WatchList);
        if took_too_long {
            self.page_time = self.page_time.after_break(started_at.elapsed());
            return Ok(Input::Unanswered);
        }
        Ok(refused)
    }

    /// Waits for the next interval if the number of requests in the present interval has reached its maximum.
    async fn limit_request_rate(&mut self) -> Result<(), ResetRequested> {
        let (since, requests) = self.pace;
        let end = since + PACE_INTERVAL;
        if Instant::now() >= end {
            self.pace = (Instant::now(), 1);
        } else if requests < REQUESTS_PER_INTERVAL {
            self.pace.1 += 1;
        } else {
            self.run_until_reset(sleep_until(end)).await?;
            self.pace = (end, 1);
        }
        Ok(())
    }

    fn begin_reading(&mut self, target: ReflectorRequest, response: Response<Body>, started_at: Instant, gzip: bool) {
        let warnings = request::warnings(response.headers());
        if warnings != self.warnings {
            self.observer.warnings(&warnings);
            self.warnings = warnings;
        }
        let body = response.into_body();
        let kind = match target {
            ReflectorRequest::Page { continue_token: requested_token, .. } => {
                self.reading = ReflectorStream::Page(Box::new(Page {
                    body,
                    requested_token,
                    started_at,
                    text: BodyDecoder::new(gzip),
                }));
                return;
            }
            ReflectorRequest::Whole { .. } => {
                self.reading = ReflectorStream::Page(Box::new(Page {
                    body,
                    requested_token: None,
                    started_at,
                    text: BodyDecoder::new(gzip),
                }));
                return;
            }
            ReflectorRequest::Latest | ReflectorRequest::LatestThenPage { .. } => return,
            ReflectorRequest::WatchList => WatchKind::Initial,
            ReflectorRequest::Watch { short } => {
                self.health.reopened();
                if short { WatchKind::Short } else { WatchKind::Long }
            }
        };
        self.shared.counts.watches.add(1);
        let mut stream = MemberWatch::new(body, kind, Instant::now(), &self.shared.config.tuning);
        // The member sends a bookmark only if its version is above the collection's version.
        stream.bookmark_due &= self.version() < self.latest;
        self.reading = ReflectorStream::Watch(Box::new(stream));
    }
}
