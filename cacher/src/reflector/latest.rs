//! Requests the member's latest version and handles the response.

use tokio::time::Instant;
use tributary_apimachinery::{CollectionVersion, ResourceVersion};

use super::task::{Reflector, ResetRequested};
use crate::machine::Input;
use crate::progress::{self, ProgressVerdict, ProgressWakeup};
use crate::request::{self, LatestError, MemberError, chain};
use crate::state::StaleReason;
use crate::stream::MemberWatch;

impl Reflector {
    /// Requests the member's latest version and compares it with `version_at_request`, the collection's version.
    pub(super) async fn request_latest(
        &mut self,
        version_at_request: CollectionVersion,
    ) -> Result<Input, ResetRequested> {
        let number = self.shared.wanted.assign_request_number();
        let latest = request::latest(&self.shared.config, &self.transport);
        let latest = self.unless_overtaken(latest);
        let Some(latest) = self.run_until_reset(latest).await? else { return Ok(self.fail_overtaken()) };
        if let Ok(latest) = &latest {
            self.latest = *latest;
            self.shared.wanted.resolve_request(number, *latest);
        }
        Ok(match latest {
            Ok(latest) if version_at_request > latest => {
                self.health.record_failure(Instant::now(), StaleReason::Reset);
                Input::Latest { behind: true }
            }
            Ok(_) => Input::Latest { behind: false },
            Err(LatestError::Unreachable(error)) => self.unreachable(&error),
            Err(LatestError::Timeout(within)) => self.response_timed_out(within),
            // The user may have the right to watch but not to list, so the watch follows without the latest version. If
            // the user has neither right, the member refuses the watch as well.
            Err(LatestError::Refused(MemberError { reason: StaleReason::Forbidden, .. })) => Input::Unsupported,
            Err(LatestError::Refused(refusal)) => self.refused(refusal, false),
            Err(LatestError::Malformed(error)) => self.failed(StaleReason::Other(chain(&error))),
        })
    }

    /// Handles a wakeup by `ProgressRequests`: sends, or evaluates, a request for the latest version.
    pub(super) fn progress(&mut self, call: ProgressWakeup, stream: &MemberWatch) -> Option<Input> {
        let shared = self.shared.clone();
        let (now, tuning) = (Instant::now(), &shared.config.tuning);
        let next = shared.wanted.next_above(self.version());
        match call {
            ProgressWakeup::Arrived if next.is_some() => self.progress.schedule(now, tuning.progress_after),
            ProgressWakeup::Due if next.is_some() && stream.bookmark_due => {
                self.progress.schedule(now, tuning.progress_after)
            }
            ProgressWakeup::Due if next.is_some() => {
                shared.counts.progress_requests.add(1);
                let number = shared.wanted.assign_request_number();
                self.progress.set_pending_request(
                    number,
                    self.version(),
                    request::latest(&shared.config, &self.transport),
                );
            }
            ProgressWakeup::Arrived | ProgressWakeup::Due => {}
            ProgressWakeup::Answered { latest: Err(error), .. } => {
                tracing::debug!(error = chain(&error), "the cluster's latest resourceVersion could not be read");
                if next.is_some() {
                    self.progress.schedule(now, tuning.progress_interval);
                }
            }
            ProgressWakeup::Answered { number, version_at_request, latest: Ok(latest) } => {
                self.latest = latest;
                shared.wanted.resolve_request(number, latest);
                match progress::verdict(version_at_request, latest, next) {
                    ProgressVerdict::WentBack => return Some(self.went_back()),
                    ProgressVerdict::Reachable => return self.learn_progress(latest),
                    ProgressVerdict::NotYet => self.progress.schedule(now, tuning.progress_interval),
                    ProgressVerdict::Idle => {}
                }
            }
        }
        None
    }

    /// Raises the collection's version to an awaited version that the member has reached: by a bookmark or, if no
    /// bookmark can arrive, by a list. After such a list, does nothing until an interval has passed.
    ///
    /// No bookmark arrives if the collection's last change is a deletion with the member's latest revision. A watch
    /// from before the deletion receives the deletion again, and a kube-apiserver then suppresses the bookmark of the
    /// same revision (`process` in `storage/cacher/cache_watcher.go`).
    fn learn_progress(&mut self, latest: ResourceVersion) -> Option<Input> {
        let (now, tuning) = (Instant::now(), &self.shared.config.tuning);
        let version_at_request = self.version();
        let bookmarks =
            self.progress.has_bookmarks() && !(version_at_request.is_part() && version_at_request.revision() == latest);
        let may = bookmarks || self.progress.may_list(now, tuning.progress_interval);
        self.progress.schedule(now, if may { tuning.progress_after } else { tuning.progress_interval });
        may.then_some(Input::Progress { bookmarks })
    }
}
