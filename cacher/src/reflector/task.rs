//! The state of the reflector's task, and its way to wait: during each wait it publishes state changes.

use std::future::Future;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, sleep_until};
use tributary_apimachinery::{CollectionVersion, ResourceVersion};

use crate::Transport;
use crate::amount::PageTime;
use crate::health::{CacherHealth, HealthTransition, LoggedReasons};
use crate::list_permits::ListPermit;
use crate::machine::{Action, Machine};
use crate::member_health::MemberHealth;
use crate::page::Page;
use crate::progress::ProgressRequests;
use crate::shared::ReflectorShared;
use crate::state::{CacherState, Continuity, StaleReason};
use crate::store::{Staging, Store};
use crate::stream::MemberWatch;
use crate::update::UpdateObserver;
use crate::wakes::Wakes;

/// The time for which a request to an unreachable member is still awaited after the member has recovered. 1 s: a late
/// response needs a round trip.
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
    /// The version of the received pages of the current list; zero before the first page.
    pub(super) listed: ResourceVersion,
    /// The time limit of pages.
    pub(super) page_time: PageTime,
    /// The member's latest version, from its last answer.
    pub(super) latest: ResourceVersion,
    /// The number of the question that the current list answers.
    pub(super) question: u64,
    pub(super) reading: ReflectorStream,
    pub(super) progress: ProgressRequests,
    pub(super) health: CacherHealth,
    pub(super) member: watch::Receiver<MemberHealth>,
    /// The number of the member's recoveries when the last request started.
    pub(super) recoveries: u64,
    pub(super) wakes: Wakes,
    /// The permit of the current list, if it needs one.
    pub(super) list_permit: Option<ListPermit>,
    /// The time of the last failure or silence, until the preceding collections are current as of a later time.
    pub(super) failed_at: Option<Instant>,
    /// Whether a request has been sent.
    pub(super) has_asked: bool,
    pub(super) logged_reasons: LoggedReasons,
    pub(super) decode_logged: Option<Instant>,
    /// The start of the current interval, and the number of requests since.
    pub(super) pace: (Instant, u32),
    /// The member's last warnings.
    pub(super) warnings: Vec<HeaderValue>,
}

/// The stream that the task reads.
pub(super) enum ReflectorStream {
    Nothing,
    Watch(Box<MemberWatch>),
    /// A list, or a page of it.
    Page(Box<Page>),
}

/// The caller of [`Cacher::reset`](crate::Cacher::reset) wants the collection to be listed again.
pub(super) struct ResetAsked;

impl Reflector {
    pub(crate) fn new(shared: Arc<ReflectorShared>, transport: Transport, observer: Arc<dyn UpdateObserver>) -> Self {
        let (machine, first) = Machine::start(shared.config.tuning.page_size);
        let health = CacherHealth::new(Instant::now(), shared.config.tuning.stale_after);
        let page_time = PageTime::new(shared.config.tuning.page_time);
        let resource = shared.config.resource.clone();
        let member = shared.member.subscribe();
        Self {
            shared,
            member,
            recoveries: 0,
            wakes: Wakes::default(),
            list_permit: None,
            failed_at: None,
            has_asked: false,
            transport,
            observer,
            machine,
            first: Some(first),
            store: None,
            staging: Staging::default(),
            listed: ResourceVersion::default(),
            latest: ResourceVersion::default(),
            page_time,
            question: 0,
            reading: ReflectorStream::Nothing,
            progress: ProgressRequests::new(&resource),
            health,
            logged_reasons: LoggedReasons::default(),
            decode_logged: None,
            pace: (Instant::now(), 0),
            warnings: Vec::new(),
        }
    }

    /// Waits for `work` and publishes state changes meanwhile; ends early on a reset.
    pub(super) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ResetAsked> {
        let shared = self.shared.clone();
        tokio::pin!(work);
        loop {
            self.show_state();
            let stale_at = self.health.turns_stale_at(Instant::now());
            let place_until = self.list_permit.as_ref().map(ListPermit::until);
            tokio::select! {
                biased;
                () = shared.reset.notified() => return Err(ResetAsked),
                done = &mut work => return Ok(done),
                // The reflector owns the sender, so the channel stays open.
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

    /// Waits for the response to a request that is sent now. `None` if the member was unreachable, has recovered since,
    /// and answers other requests but not this one: a proxy may still wait for the earlier server.
    pub(super) fn unless_overtaken<F: Future>(&self, answer: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (was_lost, begun_at, mut member) =
            (self.member.borrow().lost.is_some(), self.recoveries, self.member.clone());
        async move {
            let overtaken = async {
                // The reflector owns the sender, so the channel stays open.
                let _ = member.wait_for(|known| known.lost.is_none() && known.recoveries > begun_at).await;
                sleep(OVERTAKEN_AFTER).await;
            };
            tokio::select! {
                biased;
                answer = answer => Some(answer),
                () = overtaken, if was_lost => None,
            }
        }
    }

    /// Returns the current version; zero before the first list.
    pub(super) fn version(&self) -> CollectionVersion {
        self.store.as_ref().map(Store::version).unwrap_or_default()
    }

    /// Publishes the continuity, the state if it changed, and then the time of the last failure: a reader that reads
    /// the later value first finds earlier values at least as recent.
    pub(super) fn show_state(&mut self) {
        let continuity = self.health.continuity();
        self.shared.continuity.send_if_modified(|shown| std::mem::replace(shown, continuity) != continuity);
        self.show_if_changed();
        let failed_at = self.health.failed_at();
        self.shared.failed_at.send_if_modified(|shown| std::mem::replace(shown, failed_at) != failed_at);
    }

    /// Publishes the state if it changed, and logs the change.
    fn show_if_changed(&mut self) {
        let after = self.health.state(Instant::now());
        let before = self.shared.state.borrow().clone();
        if after == before {
            return;
        }
        match self.logged_reasons.news(&before, &after) {
            Some(HealthTransition::Recovery) => tracing::info!(version = %self.version(), "collection is synced"),
            Some(HealthTransition::Trouble) => {
                let reason = after.reason().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(reason, unknown = after.is_unknown(), "no changes arrive from the member");
            }
            None => {}
        }
        self.shared.state.send_replace(after);
    }
}

impl Drop for Reflector {
    /// A task that ended, for any reason, must not look synced forever.
    fn drop(&mut self) {
        drop(self.shared.room.lock().hand_over());
        self.shared.drop_earlier();
        self.shared.continuity.send_replace(Continuity::Broken);
        let (since, reason) = (Instant::now(), StaleReason::Other("its objects are no longer followed".to_owned()));
        self.shared.state.send_replace(match self.store {
            Some(_) => CacherState::Stale { since, reason },
            None => CacherState::Syncing { since, reason: Some(reason) },
        });
    }
}
