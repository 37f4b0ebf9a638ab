//! The state of the reflector's task, and the function that the task uses to wait. During a wait, the function
//! publishes state changes.

use std::future::Future;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, sleep_until};
use tributary_apimachinery::{CollectionVersion, ResourceVersion};

use crate::Transport;
use crate::early_wakeups::EarlyWakeups;
use crate::health::{CacherHealth, HealthTransition, LoggedReasons};
use crate::list_permits::ListPermit;
use crate::machine::{Action, Machine};
use crate::member_health::MemberHealth;
use crate::page::Page;
use crate::page_size::PageTimeTarget;
use crate::progress::ProgressRequests;
use crate::shared::ReflectorShared;
use crate::state::{CacherState, Continuity, StaleReason};
use crate::store::{Staging, Store};
use crate::stream::MemberWatch;
use crate::update::UpdateObserver;

/// The time after a member's recovery within which the response to an earlier request must arrive. 1 s: a late response
/// needs a round trip.
const OVERTAKEN_AFTER: Duration = Duration::from_secs(1);

pub(crate) struct Reflector {
    pub(super) shared: Arc<ReflectorShared>,
    pub(super) transport: Transport,
    pub(super) observer: Arc<dyn UpdateObserver>,
    pub(super) machine: Machine,
    pub(super) first: Option<Action>,
    /// The served collection; `None` until the first complete list.
    pub(super) store: Option<Store>,
    pub(super) staging: Staging,
    /// The version of the received pages of the current list. Zero before the first page has arrived.
    pub(super) listed: ResourceVersion,
    pub(super) page_time: PageTimeTarget,
    /// The member's latest version, from its last response.
    pub(super) latest: ResourceVersion,
    /// The current list also answers a request for the latest version. This is the number of that request.
    pub(super) request_number: u64,
    pub(super) reading: ReflectorStream,
    pub(super) progress: ProgressRequests,
    pub(super) health: CacherHealth,
    pub(super) member: watch::Receiver<MemberHealth>,
    /// The number of the member's recoveries when the last request was sent.
    pub(super) recoveries: u64,
    pub(super) early_wakeups: EarlyWakeups,
    pub(super) list_permit: Option<ListPermit>,
    /// The time of the last failure or silent watch. `None` once the preceding RBAC collections are current as of a
    /// later time.
    pub(super) failed_at: Option<Instant>,
    pub(super) has_sent_request: bool,
    pub(super) logged_reasons: LoggedReasons,
    pub(super) decode_logged: Option<Instant>,
    /// The start of the current interval (`PACE_INTERVAL`), and the number of requests in this interval.
    pub(super) pace: (Instant, u32),
    /// The `Warning` headers of the member's last response.
    pub(super) warnings: Vec<HeaderValue>,
}

pub(super) enum ReflectorStream {
    Nothing,
    Watch(Box<MemberWatch>),
    /// A list, or a page of a list.
    Page(Box<Page>),
}

/// Interrupts the task's work: [`Cacher::reset`](crate::Cacher::reset) was called, so the collection must be listed
/// again.
pub(super) struct ResetRequested;

impl Reflector {
    pub(crate) fn new(shared: Arc<ReflectorShared>, transport: Transport, observer: Arc<dyn UpdateObserver>) -> Self {
        let (machine, first) = Machine::start(shared.config.tuning.page_size);
        let health = CacherHealth::new(Instant::now(), shared.config.tuning.stale_after);
        let page_time = PageTimeTarget::new(shared.config.tuning.page_time);
        let resource = shared.config.resource.clone();
        let member = shared.member.subscribe();
        Self {
            shared,
            member,
            recoveries: 0,
            early_wakeups: EarlyWakeups::default(),
            list_permit: None,
            failed_at: None,
            has_sent_request: false,
            transport,
            observer,
            machine,
            first: Some(first),
            store: None,
            staging: Staging::default(),
            listed: ResourceVersion::default(),
            latest: ResourceVersion::default(),
            page_time,
            request_number: 0,
            reading: ReflectorStream::Nothing,
            progress: ProgressRequests::new(&resource),
            health,
            logged_reasons: LoggedReasons::default(),
            decode_logged: None,
            pace: (Instant::now(), 0),
            warnings: Vec::new(),
        }
    }

    /// Waits for the future `work`, and publishes state changes during the wait.
    ///
    /// # Errors
    /// [`ResetRequested`] if the collection must be listed again.
    pub(super) async fn run_until_reset<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ResetRequested> {
        let shared = self.shared.clone();
        tokio::pin!(work);
        loop {
            self.publish_state();
            let stale_at = self.health.turns_stale_at(Instant::now());
            let place_until = self.list_permit.as_ref().map(ListPermit::until);
            tokio::select! {
                biased;
                () = shared.reset.notified() => return Err(ResetRequested),
                done = &mut work => return Ok(done),
                // The result is ignored, because the wait cannot fail: the reflector owns the sender, so the channel
                // stays open.
                _ = self.member.changed() => {
                    self.health.set_member(&self.member.borrow_and_update());
                }
                () = sleep_until(stale_at.unwrap_or_else(Instant::now)), if stale_at.is_some() => {}
                () = sleep_until(place_until.unwrap_or_else(Instant::now)), if place_until.is_some() => {
                    self.list_permit = None;
                }
            }
        }
    }

    /// Waits for `answer`, the response to a request. Returns `None` if the member was unreachable at the time of the
    /// call, has recovered since, and has not answered within [`OVERTAKEN_AFTER`] after its recovery. In this case a
    /// proxy in front of the member may still wait for the failed server.
    pub(super) fn unless_overtaken<F: Future>(&self, answer: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (was_lost, begun_at, mut member) =
            (self.member.borrow().loss.is_some(), self.recoveries, self.member.clone());
        async move {
            let fail_overtaken = async {
                // The result is ignored, because the wait cannot fail: the reflector owns the sender, so the channel
                // stays open.
                let _ = member.wait_for(|health| health.loss.is_none() && health.recoveries > begun_at).await;
                sleep(OVERTAKEN_AFTER).await;
            };
            tokio::select! {
                biased;
                answer = answer => Some(answer),
                () = fail_overtaken, if was_lost => None,
            }
        }
    }

    /// Returns the collection's version; zero before the first list.
    pub(super) fn version(&self) -> CollectionVersion {
        self.store.as_ref().map(Store::version).unwrap_or_default()
    }

    /// Publishes the continuity, then the state if it changed, then the time of the last failure. A reader that reads
    /// the three values in the opposite order never combines the time of a failure with an older state, or a state with
    /// an older continuity.
    pub(super) fn publish_state(&mut self) {
        let continuity = self.health.continuity();
        self.shared.continuity.send_if_modified(|shown| std::mem::replace(shown, continuity) != continuity);
        self.publish_if_changed();
        let failed_at = self.health.failed_at();
        self.shared.failed_at.send_if_modified(|shown| std::mem::replace(shown, failed_at) != failed_at);
    }

    fn publish_if_changed(&mut self) {
        let after = self.health.state(Instant::now());
        let before = self.shared.state.borrow().clone();
        if after == before {
            return;
        }
        match self.logged_reasons.next_transition(&before, &after) {
            Some(HealthTransition::Recovery) => tracing::info!(version = %self.version(), "collection is synced"),
            Some(HealthTransition::Trouble) => {
                let reason = after.reason().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(reason, unknown = after.is_unknown(), "no changes arrive from the cluster");
            }
            None => {}
        }
        self.shared.state.send_replace(after);
    }
}

impl Drop for Reflector {
    /// Publishes the end of the task, because a collection whose task has ended or panicked must not stay synced.
    fn drop(&mut self) {
        drop(self.shared.object_memory.lock().hand_over());
        self.shared.drop_predecessor_snapshot();
        self.shared.continuity.send_replace(Continuity::Broken);
        let (since, reason) = (Instant::now(), StaleReason::Other("the collection is no longer cached".to_owned()));
        self.shared.state.send_replace(match self.store {
            Some(_) => CacherState::Stale { since, reason },
            None => CacherState::Syncing { since, reason: Some(reason) },
        });
    }
}
