//! What the reflector's task holds, and how it waits: whatever it waits for, readers see the state as it is.

use std::future::Future;
use std::sync::Arc;

use http::HeaderValue;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, sleep_until};
use tributary_apimachinery::{CollectionVersion, ResourceVersion};

use crate::Transport;
use crate::amount::PageTime;
use crate::health::{Announced, CacherHealth, HealthTransition};
use crate::list_places::ListPlace;
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

/// How long a request that was sent to a member that could not be reached is still waited for once that is well. 1 s:
/// an answer that is to come takes a way there and back.
const OVERTAKEN_AFTER: Duration = Duration::from_secs(1);

/// The reflector's task, before it runs.
pub(crate) struct Reflector {
    pub(super) shared: Arc<ReflectorShared>,
    pub(super) transport: Transport,
    pub(super) observer: Arc<dyn UpdateObserver>,
    pub(super) machine: Machine,
    pub(super) first: Option<Action>,
    /// `None` until the first complete list.
    pub(super) store: Option<Store>,
    pub(super) staging: Staging,
    /// The version of the pages that have come of the list under way; zero before the first.
    pub(super) listed: ResourceVersion,
    /// How long pages may take.
    pub(super) page_time: PageTime,
    /// The member's latest version, as it last answered when it was asked for that.
    pub(super) latest: ResourceVersion,
    /// The number of the list under way as a question for the member's latest version.
    pub(super) question: u64,
    pub(super) reading: ReflectorStream,
    pub(super) progress: ProgressRequests,
    pub(super) health: CacherHealth,
    pub(super) member: watch::Receiver<MemberHealth>,
    /// How often the member had become well when the last request was begun.
    pub(super) recoveries: u64,
    pub(super) wakes: Wakes,
    /// The place of the list that is under way, where it takes one.
    pub(super) list_place: Option<ListPlace>,
    /// When the last attempt failed, or a watch was found silent, until what comes first is known as of a later moment.
    pub(super) failed_at: Option<Instant>,
    /// Whether a request has been begun.
    pub(super) has_asked: bool,
    pub(super) announced: Announced,
    pub(super) decode_logged: Option<Instant>,
    /// When counting began, and the requests since.
    pub(super) pace: (Instant, u32),
    /// What the member last warned of.
    pub(super) warnings: Vec<HeaderValue>,
}

/// What is being read.
pub(super) enum ReflectorStream {
    Nothing,
    Watch(Box<MemberWatch>),
    /// A list, or a page of it.
    Page(Box<Page>),
}

/// `Cacher::reset` was called.
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
            list_place: None,
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
            announced: Announced::default(),
            decode_logged: None,
            pace: (Instant::now(), 0),
            warnings: Vec::new(),
        }
    }

    /// Waits for something and meanwhile keeps the state current; ends early if a reset is asked for.
    pub(super) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ResetAsked> {
        let shared = self.shared.clone();
        tokio::pin!(work);
        loop {
            self.show_state();
            let stale_at = self.health.turns_stale_at(Instant::now());
            let place_until = self.list_place.as_ref().map(ListPlace::until);
            tokio::select! {
                biased;
                () = shared.reset.notified() => return Err(ResetAsked),
                done = &mut work => return Ok(done),
                // The sender lives as long as the reflector.
                _ = self.member.changed() => {
                    self.health.set_member(&self.member.borrow_and_update());
                }
                () = sleep_until(stale_at.unwrap_or_else(Instant::now)), if stale_at.is_some() => {}
                () = sleep_until(place_until.unwrap_or_else(Instant::now)), if place_until.is_some() => {
                    self.list_place = None;
                }
            }
        }
    }

    /// The answer to a request that is sent now. `None` where the member could not be reached, has become well since,
    /// and answers others but not this one: whoever stands before it may wait for the server of before.
    pub(super) fn unless_overtaken<F: Future>(&self, answer: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (was_lost, begun_at, mut member) =
            (self.member.borrow().lost.is_some(), self.recoveries, self.member.clone());
        async move {
            let overtaken = async {
                // The sender lives as long as the reflector.
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

    /// The version held; zero before the first list.
    pub(super) fn version(&self) -> CollectionVersion {
        self.store.as_ref().map(Store::version).unwrap_or_default()
    }

    /// Publishes whether changes arrive, the state if it changed, and then when contact was last lost: whoever reads
    /// what comes later first finds nothing older before it.
    pub(super) fn show_state(&mut self) {
        let continuity = self.health.continuity();
        self.shared.continuity.send_if_modified(|shown| std::mem::replace(shown, continuity) != continuity);
        self.show_if_changed();
        let failed_at = self.health.failed_at();
        self.shared.failed_at.send_if_modified(|shown| std::mem::replace(shown, failed_at) != failed_at);
    }

    /// Publishes the state if it changed, and logs what is new about it.
    fn show_if_changed(&mut self) {
        let after = self.health.state(Instant::now());
        let before = self.shared.state.borrow().clone();
        if after == before {
            return;
        }
        match self.announced.news(&before, &after) {
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
    /// A task that ended for whatever cause must not look synced for ever.
    fn drop(&mut self) {
        drop(self.shared.room.lock().hand_over());
        self.shared.forget_earlier();
        self.shared.continuity.send_replace(Continuity::Broken);
        let (since, reason) = (Instant::now(), StaleReason::Other("its objects are no longer followed".to_owned()));
        self.shared.state.send_replace(match self.store {
            Some(_) => CacherState::Stale { since, reason },
            None => CacherState::Syncing { since, reason: Some(reason) },
        });
    }
}
