//! Records failures and successes in the counters and the state, and returns the input for the state machine.

use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::ObjectDecodeError;
use tributary_apimachinery::body::BoxError;

use super::task::Reflector;
use crate::machine::Input;
use crate::request::{MemberError, chain};
use crate::state::StaleReason;
use crate::store::Staging;
use crate::stream::MemberWatch;

/// The shortest time between two log lines about malformed data. One minute. Without a limit, a member that sends only
/// malformed data would fill the log.
const DECODE_LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Reflector {
    /// Records that the watch has delivered data, which proves that the watch works.
    pub(super) fn prove(&mut self, stream: &mut MemberWatch) -> Input {
        if stream.deferred.is_none() {
            self.health.contact(Instant::now());
        }
        self.proved(stream)
    }

    /// Records that the watch has stayed open for 1 s (`settled_after`).
    pub(super) fn settle(&mut self, stream: &mut MemberWatch) -> Input {
        self.health.settled(Instant::now(), self.progress.has_bookmarks());
        self.proved(stream)
    }

    fn proved(&mut self, stream: &mut MemberWatch) -> Input {
        stream.proved = true;
        self.early_wakeups.proved();
        Input::Proved
    }

    pub(super) fn ended(&mut self, stream: &MemberWatch) -> Input {
        tracing::debug!(proved = stream.proved, "the cluster ended the watch");
        // Some servers answer a WatchList with an ordinary list, which looks like a watch that ends early. The
        // paginated list that follows belongs to the same attempt, so no failure is counted.
        if stream.initial {
            return Input::Ended;
        }
        let now = Instant::now();
        if stream.ended_in_time(now, &self.shared.config.tuning) {
            self.health.ended_in_time();
            if stream.lacks_bookmark() {
                self.progress.set_has_bookmarks(false);
            }
        }
        let reason = StaleReason::Unreachable("the watch ended and has not been opened again".to_owned());
        self.health.record_regular_end(now, reason);
        Input::Ended
    }

    pub(super) fn silent(&mut self, stream: &MemberWatch) -> Input {
        let silence = stream.silence_max();
        tracing::debug!(?silence, initial = stream.initial, "the watch of the cluster is silent");
        if stream.initial {
            return Input::Silent;
        }
        // The watches of the preceding RBAC collections may have been silent as well. The recorded time makes the next
        // request wait until these collections are current.
        self.failed_at = Some(Instant::now());
        let text = format!("the watch was silent for {} s", silence.as_secs());
        self.health.record_silence(Instant::now(), stream.last_data_at(), StaleReason::Unreachable(text));
        Input::Silent
    }

    pub(super) fn went_back(&mut self) -> Input {
        self.health.record_failure(Instant::now(), StaleReason::Reset);
        Input::WentBack
    }

    pub(super) fn unreachable(&mut self, error: &BoxError) -> Input {
        self.failed(StaleReason::Unreachable(chain(&**error)))
    }

    pub(super) fn response_timed_out(&mut self, within: Duration) -> Input {
        self.failed(StaleReason::Unreachable(format!("no answer within {} s", within.as_secs())))
    }

    pub(super) fn fail_overtaken(&mut self) -> Input {
        self.failed(StaleReason::Unreachable("no answer to a request from before the cluster recovered".to_owned()))
    }

    pub(super) fn failed(&mut self, reason: StaleReason) -> Input {
        self.shared.counts.failures.add(1);
        self.health.record_failure(Instant::now(), reason);
        Input::Failed { retry_after: None }
    }

    /// Records that the collection's versions are not numbers. Such versions rarely become numbers, so the next attempt
    /// waits for the longest permitted Retry-After.
    pub(super) fn fail_opaque(&mut self, version: &str) -> Input {
        self.staging = Staging::default();
        self.shrink_reservation();
        self.failed(StaleReason::opaque(version));
        Input::Failed { retry_after: Some(self.shared.config.tuning.retry_after_max) }
    }

    /// Handles a refusal by the member. `streaming`: the refused request was a WatchList, which a paginated list can
    /// replace.
    pub(super) fn refused(&mut self, refusal: MemberError, streaming: bool) -> Input {
        let input = match refusal.reason {
            StaleReason::Expired => Input::Expired,
            _ if refusal.is_unsupported() => Input::Unsupported,
            _ => Input::Failed { retry_after: refusal.retry_after },
        };
        tracing::debug!(code = refusal.code, reason = %refusal.reason, "the cluster refused the request");
        if streaming && input == Input::Unsupported {
            return input;
        }
        self.shared.counts.failures.add(1);
        self.health.record_failure(Instant::now(), refusal.reason);
        input
    }

    /// Counts a malformed object or event, and logs it at most once per `DECODE_LOG_INTERVAL`.
    pub(super) fn count_skipped(
        &mut self,
        error: &dyn std::error::Error,
        position: &str,
        place: std::fmt::Arguments<'_>,
    ) {
        let count = &self.shared.counts.decode_errors;
        count.add(1);
        let now = Instant::now();
        if self.decode_logged.is_none_or(|last| now >= last + DECODE_LOG_INTERVAL) {
            self.decode_logged = Some(now);
            // The error's causes may quote the object's text, so they are not logged.
            tracing::warn!(%error, position, %place, total = count.get(),
                "skipped an unreadable object or event of the cluster");
        }
    }
}

/// Returns the resourceVersion from an error which says that the resourceVersion is not a number. `None` for other
/// errors.
pub(super) fn opaque_version(error: &ObjectDecodeError) -> Option<&str> {
    match error {
        ObjectDecodeError::ResourceVersion(invalid) => Some(&invalid.0),
        _ => None,
    }
}

/// Returns the position of a JSON error in the object's text; empty for other errors.
pub(super) fn decode_position(error: &ObjectDecodeError) -> String {
    match error {
        ObjectDecodeError::Json(error) => format!("line {} column {}", error.line(), error.column()),
        _ => String::new(),
    }
}
