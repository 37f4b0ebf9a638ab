//! Computes the published state of a collection from received data and failures. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::member_health::{MemberHealth, MemberLoss};
use crate::state::{CacherState, Continuity, StaleReason};

#[derive(Debug)]
pub(crate) struct CacherHealth {
    started: Instant,
    stale_after: Duration,
    synced: bool,
    loss: Option<Loss>,
    failed_at: Option<Instant>,
    /// The time at which changes arrived again after a loss of contact. `None` if contact was not lost since the last
    /// complete list.
    resumed: Option<Instant>,
    /// The loss of contact with the whole member. `None` while the member is reachable.
    member: Option<MemberLoss>,
    /// The last time at which the member was ready; `None` while the member is ready.
    unready_since: Option<Instant>,
    /// The time of the last received data, of a watch or of a list.
    last_data_at: Instant,
}

/// The time without data after which a collection is stale, if its member is not ready. 10 s, as for an unreachable
/// member. An answered HTTP/2 ping is no such data, because it is answered even if the member's etcd is down.
const UNREADY_SILENCE: Duration = Duration::from_secs(10);

/// The time after a silent watch within which the next watch must deliver data. 15 s suffice for all of these steps:
///
/// - The request for the member's latest version and the refresh of the preceding RBAC collections take 2.5 s,
///   including the bookmark of an RBAC watch. If the RBAC watches were silent as well, these two steps take up to 7 s.
/// - The short watch delivers a bookmark within 2.5 s. Without a bookmark, it ends after 3 s, and the next watch must
///   stay open for 1 s.
/// - Ten round trips take at most 300 ms each.
const SILENCE_ENDS_WITHIN: Duration = Duration::from_secs(15);

/// A loss of contact with the member: changes of the collection do not arrive.
#[derive(Debug)]
struct Loss {
    /// The last time at which the collection was certainly current.
    since: Instant,
    /// The time at which the collection becomes stale unless contact is restored.
    stale_at: Instant,
    reason: StaleReason,
    /// Whether the member is unreachable, so that the collection is stale at once.
    is_certain: bool,
    /// Whether contact was lost only because the member ended watches regularly. Such a loss leaves no gap in the
    /// changes if a watch is opened again.
    only_regular_ends: bool,
    /// Whether a watch has been opened since the loss.
    is_reopened: bool,
    /// Whether a watch was silent, and neither data nor the regular end of a watch has followed. If so, an open watch
    /// alone does not restore contact.
    is_silent: bool,
    /// Whether a watch has stayed open for 1 s (`settled_after`) since the loss.
    is_settled: bool,
}

impl Loss {
    /// Returns whether the observer may miss a change that occurs before the next change that it receives.
    fn is_gap(&self) -> bool {
        self.is_certain || !self.only_regular_ends || !self.is_reopened
    }
}

impl CacherHealth {
    pub(crate) fn new(now: Instant, stale_after: Duration) -> Self {
        Self {
            started: now,
            stale_after,
            synced: false,
            loss: None,
            failed_at: None,
            resumed: None,
            member: None,
            unready_since: None,
            last_data_at: now,
        }
    }

    /// Records that a complete list was published.
    pub(crate) fn synced(&mut self) {
        self.synced = true;
        self.loss = None;
        self.resumed = None;
    }

    /// Records that the watch delivers changes.
    pub(crate) fn contact(&mut self, now: Instant) {
        if self.loss.take().is_some_and(|loss| loss.is_gap()) {
            self.resumed = Some(now);
        }
    }

    /// Records that a watch was opened from the current version. The watch may still be half-open.
    pub(crate) fn reopened(&mut self) {
        if let Some(loss) = &mut self.loss {
            loss.is_reopened = true;
        }
    }

    /// Records that a watch has stayed open for 1 s (`settled_after`) without data. This restores contact, except after
    /// a silent watch of a member that sends bookmarks: a working watch would deliver at least bookmarks, while a proxy
    /// may accept a watch although the member is down.
    pub(crate) fn settled(&mut self, now: Instant, has_bookmarks: bool) {
        match &mut self.loss {
            Some(loss) if loss.is_silent && has_bookmarks => loss.is_settled = true,
            _ => self.contact(now),
        }
    }

    /// Records received data of the collection: an event, a bookmark or a list.
    pub(crate) fn record_data(&mut self, now: Instant) {
        self.last_data_at = now;
        let Some(loss) = &mut self.loss else { return };
        if std::mem::take(&mut loss.is_silent) && loss.is_settled {
            self.contact(now);
        }
    }

    /// Records that a watch lasted until its `timeoutSeconds`. So the member served the watch, although there was no
    /// event. The next watch may still fail to open.
    pub(crate) fn ended_in_time(&mut self) {
        if let Some(loss) = &mut self.loss {
            loss.is_silent = false;
        }
    }

    /// Records a failure. A collection is stale since the first failure after the last contact, with the reason of the
    /// latest failure.
    pub(crate) fn record_failure(&mut self, now: Instant, reason: StaleReason) {
        self.record_loss_since(now, reason, now + self.stale_after);
        self.failed_at = Some(now);
    }

    /// Records a silent watch; `last_data_at` is the time of its last data. A silent watch is not a failure yet,
    /// because a quiet collection may have no events. The next watch has some time to deliver data.
    pub(crate) fn record_silence(&mut self, now: Instant, last_data_at: Instant, reason: StaleReason) {
        self.record_loss_since(last_data_at, reason, now + SILENCE_ENDS_WITHIN);
        self.failed_at = Some(now);
        if let Some(loss) = &mut self.loss {
            loss.is_silent = true;
        }
    }

    fn record_loss_since(&mut self, since: Instant, reason: StaleReason, stale_at: Instant) {
        let (only_regular_ends, is_reopened, is_settled) = (false, false, false);
        self.loss = Some(match self.loss.take() {
            Some(before) => Loss {
                reason,
                only_regular_ends,
                is_reopened,
                is_settled,
                stale_at: before.stale_at.min(stale_at),
                ..before
            },
            None => Loss {
                since,
                stale_at,
                reason,
                is_certain: false,
                only_regular_ends,
                is_reopened,
                is_silent: false,
                is_settled,
            },
        });
        self.date_back();
    }

    /// Records a watch that the member ended regularly.
    pub(crate) fn record_regular_end(&mut self, now: Instant, reason: StaleReason) {
        let only_regular_ends = self.loss.as_ref().is_none_or(|before| before.only_regular_ends);
        self.record_failure(now, reason);
        if let Some(loss) = &mut self.loss {
            loss.only_regular_ends = only_regular_ends;
        }
    }

    pub(crate) fn failed_at(&self) -> Option<Instant> {
        self.failed_at
    }

    /// Updates the member's health. If the member has recovered, a loss gets another reason than `Unreachable`, because
    /// the collection stays stale until its watch delivers data.
    pub(crate) fn set_member(&mut self, health: &MemberHealth) {
        let is_back = self.member.is_some() && health.loss.is_none();
        self.member.clone_from(&health.loss);
        self.unready_since = health.unready_since;
        self.date_back();
        if let Some(Loss { reason: reason @ StaleReason::Unreachable(_), .. }) = &mut self.loss
            && is_back
        {
            *reason = StaleReason::Other("the cluster answers again, and the collection will be listed".to_owned());
        }
    }

    /// Moves the start of the loss back to the last sign of life of the unreachable member. From now on the collection
    /// is stale, without a grace time.
    fn date_back(&mut self) {
        if let (Some(loss), Some(member)) = (&mut self.loss, &self.member) {
            loss.since = loss.since.min(member.last_data_at);
            loss.is_certain = true;
        }
    }

    /// Returns the published reason of a loss. All collections of an unreachable member report the reason of the
    /// member.
    fn reason(&self, loss: &Loss) -> StaleReason {
        match (&loss.reason, &self.member) {
            (StaleReason::Unreachable(_), Some(member)) => StaleReason::Unreachable(member.reason.to_string()),
            (own, _) => own.clone(),
        }
    }

    /// Handles a collection without a loss of contact whose member is not ready. Returns the last time at which the
    /// collection was certainly current, and the time at which the collection becomes stale. `None` for any other
    /// collection.
    fn unready_times(&self) -> Option<(Instant, Instant)> {
        let unready_since = self.unready_since.filter(|_| self.synced && self.loss.is_none())?;
        let since = unready_since.max(self.last_data_at);
        Some((since, since + UNREADY_SILENCE))
    }

    pub(crate) fn state(&self, now: Instant) -> CacherState {
        match &self.loss {
            loss if !self.synced => {
                CacherState::Syncing { since: self.started, reason: loss.as_ref().map(|loss| self.reason(loss)) }
            }
            Some(loss) if loss.is_certain || now >= loss.stale_at => {
                CacherState::Stale { since: loss.since, reason: self.reason(loss) }
            }
            _ => match self.unready_times() {
                Some((since, until)) if now >= until => CacherState::Stale {
                    since,
                    reason: StaleReason::Other(
                        "/readyz reports that it is not ready, and no data has arrived since".to_owned(),
                    ),
                },
                _ => CacherState::Synced,
            },
        }
    }

    /// Returns the continuity of the changes. Unlike [`state`](Self::state), the continuity is broken at once after a
    /// loss, without a grace time.
    pub(crate) fn continuity(&self) -> Continuity {
        match self.resumed {
            _ if !self.synced || self.loss.as_ref().is_some_and(Loss::is_gap) => Continuity::Broken,
            Some(resumed) => Continuity::Resumed(resumed),
            None => Continuity::Unbroken,
        }
    }

    /// Returns the time at which the state becomes stale unless data arrives before.
    pub(crate) fn turns_stale_at(&self, now: Instant) -> Option<Instant> {
        let loss = self.loss.as_ref().filter(|loss| self.synced && !loss.is_certain);
        let at = loss.map(|loss| loss.stale_at).or_else(|| self.unready_times().map(|(_, until)| until));
        at.filter(|at| *at > now)
    }
}

/// Selects the state changes that are logged. A reason that concerns a single collection is logged once until the
/// collection recovers. Other reasons concern all collections of the member, and are logged once for the member.
#[derive(Debug, Default)]
pub(crate) struct LoggedReasons {
    reasons: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthTransition {
    /// The collection has become stale for a reason that was not logged since the last recovery.
    Trouble,
    /// Changes arrive for the first time, or arrive again after a reason that was logged.
    Recovery,
}

impl LoggedReasons {
    /// Returns the transition to log for the change between two states. `None` for a change that is not logged.
    pub(crate) fn next_transition(&mut self, before: &CacherState, after: &CacherState) -> Option<HealthTransition> {
        match after.reason() {
            None => {
                let was_logged = !std::mem::take(&mut self.reasons).is_empty();
                (*after == CacherState::Synced && (was_logged || before.is_unknown()))
                    .then_some(HealthTransition::Recovery)
            }
            Some(reason) if concerns_one_collection(reason) && !self.reasons.contains(&reason.as_str()) => {
                self.reasons.push(reason.as_str());
                Some(HealthTransition::Trouble)
            }
            Some(_) => None,
        }
    }
}

/// Returns whether a reason concerns a single collection, so that the log lines about the member do not mention it.
fn concerns_one_collection(reason: &StaleReason) -> bool {
    use StaleReason::{Forbidden, MemoryLimitReached, NotFound, TooLarge};
    matches!(reason, Forbidden | NotFound | TooLarge(_) | MemoryLimitReached { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(text: &str) -> StaleReason {
        StaleReason::Unreachable(text.to_owned())
    }

    #[test]
    fn cacher_state_is_unknown_then_synced_then_stale() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        assert_eq!(health.state(at(0)), CacherState::Syncing { since: start, reason: None });
        health.record_failure(at(1), StaleReason::Forbidden);
        assert_eq!(health.state(at(1)), CacherState::Syncing { since: start, reason: Some(StaleReason::Forbidden) });
        assert_eq!(health.turns_stale_at(at(1)), None);
        health.synced();
        assert_eq!(health.state(at(60)), CacherState::Synced);
        health.record_failure(at(100), unreachable("a"));
        health.record_failure(at(103), unreachable("b"));
        assert_eq!(health.state(at(104)), CacherState::Synced);
        assert_eq!(health.turns_stale_at(at(104)), Some(at(105)));
        assert_eq!(health.state(at(105)), CacherState::Stale { since: at(100), reason: unreachable("b") });
        assert_eq!(health.turns_stale_at(at(105)), None);
        health.contact(at(106));
        assert_eq!(health.state(at(106)), CacherState::Synced);
    }

    #[test]
    fn continuity_is_broken_by_a_failure_at_once_and_restored_only_by_a_list() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        assert_eq!(health.continuity(), Continuity::Broken);
        health.record_failure(at(1), StaleReason::Forbidden);
        health.contact(at(2));
        assert_eq!(health.continuity(), Continuity::Broken, "the collection is not complete");
        health.synced();
        health.contact(at(3));
        assert_eq!(health.continuity(), Continuity::Unbroken);
        health.record_failure(at(100), unreachable("a"));
        assert_eq!((health.state(at(100)), health.continuity()), (CacherState::Synced, Continuity::Broken));
        health.contact(at(101));
        health.contact(at(102));
        assert_eq!(health.continuity(), Continuity::Resumed(at(101)));
        health.record_failure(at(103), unreachable("b"));
        assert_eq!(health.continuity(), Continuity::Broken);
        health.contact(at(104));
        assert_eq!(health.continuity(), Continuity::Resumed(at(104)));
        health.synced();
        assert_eq!(health.continuity(), Continuity::Unbroken, "the collection was listed completely");
    }

    #[test]
    fn continuity_is_broken_from_the_end_of_a_watch_until_it_is_reopened() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        health.synced();
        for second in [10, 11] {
            health.record_regular_end(at(second), unreachable("ended"));
            assert_eq!(health.continuity(), Continuity::Broken);
            health.reopened();
            assert_eq!(health.continuity(), Continuity::Unbroken);
        }
        health.contact(at(12));
        assert_eq!(health.continuity(), Continuity::Unbroken);
        // A watch ends regularly, and the attempt to reopen the watch fails.
        health.record_regular_end(at(20), unreachable("ended"));
        health.record_failure(at(21), unreachable("refused"));
        health.reopened();
        assert_eq!(health.continuity(), Continuity::Broken);
        health.record_regular_end(at(22), unreachable("ended"));
        health.reopened();
        assert_eq!(health.continuity(), Continuity::Broken);
        health.contact(at(23));
        assert_eq!(health.continuity(), Continuity::Resumed(at(23)));
        // After a gap, continuity stays `Resumed`, even if a later loss leaves no gap.
        health.record_regular_end(at(30), unreachable("ended"));
        health.reopened();
        health.contact(at(31));
        assert_eq!(health.continuity(), Continuity::Resumed(at(23)));
        health.record_regular_end(at(40), unreachable("ended"));
        health.reopened();
        let loss = Some(MemberLoss { last_data_at: at(40), reason: "gone".into() });
        health.set_member(&MemberHealth { loss, ..MemberHealth::default() });
        assert_eq!(health.continuity(), Continuity::Broken);
        health.contact(at(41));
        assert_eq!(health.continuity(), Continuity::Resumed(at(41)));
    }

    #[test]
    fn unreachable_member_makes_its_collections_stale_since_the_last_contact() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let stale = |since, reason| CacherState::Stale { since: at(since), reason };
        let member = |loss| MemberHealth { loss, ..MemberHealth::default() };
        let unreachable_member = || member(Some(MemberLoss { last_data_at: at(7), reason: "gone".into() }));
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        health.synced();
        // The member is reported as unreachable because a connection attempt failed. The open watch still delivers
        // changes, so the collection stays synced.
        health.set_member(&unreachable_member());
        assert_eq!(health.state(at(9)), CacherState::Synced);
        health.record_failure(at(10), unreachable("broken pipe"));
        assert_eq!(health.state(at(10)), stale(7, unreachable("gone")));
        assert_eq!(health.turns_stale_at(at(10)), None);
        // After the member recovers, the reason changes, but the collection is stale until the watch delivers data.
        health.set_member(&member(None));
        assert!(
            matches!(health.state(at(11)), CacherState::Stale { since, reason: StaleReason::Other(_) } if since == at(7))
        );
        health.record_failure(at(12), StaleReason::TooManyRequests);
        assert_eq!(health.state(at(12)), stale(7, StaleReason::TooManyRequests));
        health.contact(at(13));
        assert_eq!(health.state(at(13)), CacherState::Synced);
        // A refusal (403) stays the reason of the loss, even while the member is unreachable.
        health.record_failure(at(20), StaleReason::Forbidden);
        health.set_member(&member(Some(MemberLoss { last_data_at: at(22), reason: "gone".into() })));
        assert_eq!(health.state(at(23)), stale(20, StaleReason::Forbidden));
    }

    #[test]
    fn collection_of_an_unready_member_is_stale_after_ten_silent_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let unready = |since| MemberHealth { unready_since: since, ..MemberHealth::default() };
        let since_of = |health: &CacherHealth, now| match health.state(now) {
            CacherState::Stale { since, reason: StaleReason::Other(_) } => Some(since),
            state => {
                assert_eq!(state, CacherState::Synced);
                None
            }
        };
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        health.set_member(&unready(Some(at(0))));
        assert!(
            health.state(at(60)).is_unknown() && health.turns_stale_at(at(1)).is_none(),
            "the collection is unknown before its first list"
        );
        health.synced();
        health.record_data(at(60));
        assert_eq!((since_of(&health, at(69)), health.turns_stale_at(at(69))), (None, Some(at(70))));
        assert_eq!((since_of(&health, at(75)), health.turns_stale_at(at(75))), (Some(at(60)), None));
        health.record_data(at(80));
        assert_eq!((since_of(&health, at(81)), health.turns_stale_at(at(81))), (None, Some(at(90))));
        assert_eq!(since_of(&health, at(90)), Some(at(80)));
        // The last data arrived at 80 s, and the member was last ready at 85 s. The collection becomes stale 10 s after
        // the later time.
        health.set_member(&unready(Some(at(85))));
        assert_eq!((since_of(&health, at(94)), since_of(&health, at(95))), (None, Some(at(85))));
        health.record_failure(at(100), unreachable("refused"));
        assert_eq!(health.state(at(105)), CacherState::Stale { since: at(100), reason: unreachable("refused") });
        health.contact(at(106));
        health.set_member(&unready(None));
        assert_eq!((since_of(&health, at(900)), health.turns_stale_at(at(900))), (None, None));
    }

    #[test]
    fn collection_with_a_silent_watch_is_stale_since_the_last_data() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        health.synced();
        health.record_silence(at(100), at(10), unreachable("silent"));
        // For 15 s after a silent watch, the collection stays synced, because the next watch may continue without a
        // missed event.
        assert_eq!(health.state(at(114)), CacherState::Synced);
        assert_eq!(health.turns_stale_at(at(114)), Some(at(115)));
        assert_eq!(health.state(at(115)), CacherState::Stale { since: at(10), reason: unreachable("silent") });
        health.record_failure(at(120), unreachable("refused"));
        assert_eq!(health.state(at(120)), CacherState::Stale { since: at(10), reason: unreachable("refused") });
        // A failure after a silent watch has the usual grace time of 5 s.
        health.contact(at(130));
        health.record_silence(at(200), at(130), unreachable("silent"));
        health.record_failure(at(202), unreachable("refused"));
        health.record_silence(at(203), at(130), unreachable("silent"));
        assert_eq!((health.state(at(206)), health.turns_stale_at(at(206))), (CacherState::Synced, Some(at(207))));
        assert_eq!(health.state(at(207)), CacherState::Stale { since: at(130), reason: unreachable("silent") });
    }

    #[test]
    fn reopened_watch_without_data_leaves_the_collection_stale() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let stale = || CacherState::Stale { since: at(10), reason: unreachable("silent") };
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        health.synced();
        for second in [100, 190, 280] {
            health.record_silence(at(second), at(second - 90), unreachable("silent"));
            health.reopened();
            health.settled(at(second + 1), true);
            assert_eq!((health.state(at(second + 15)), health.continuity()), (stale(), Continuity::Broken));
        }
        // A watch is refused between two silent watches. The refusal does not restore contact.
        health.record_failure(at(300), unreachable("refused"));
        health.record_regular_end(at(301), unreachable("silent"));
        health.reopened();
        health.settled(at(302), true);
        assert_eq!((health.state(at(302)), health.continuity()), (stale(), Continuity::Broken));
        health.record_data(at(303));
        assert_eq!((health.state(at(303)), health.continuity()), (CacherState::Synced, Continuity::Resumed(at(303))));
        // After a silent watch, data restores contact only from a watch that has been open for 1 s.
        health.record_silence(at(400), at(310), unreachable("silent"));
        health.record_data(at(401));
        assert_eq!(health.continuity(), Continuity::Broken);
        health.settled(at(402), true);
        assert_eq!(health.continuity(), Continuity::Resumed(at(402)));
        // A watch that lasts until its requested end after a silent watch proves that the member is alive.
        health.record_silence(at(430), at(403), unreachable("silent"));
        health.settled(at(431), true);
        health.ended_in_time();
        health.record_regular_end(at(433), unreachable("ended"));
        health.reopened();
        assert_eq!(health.continuity(), Continuity::Broken);
        health.settled(at(434), true);
        assert_eq!(health.continuity(), Continuity::Resumed(at(434)));
        // Without bookmarks, a silent watch is normal.
        health.record_silence(at(500), at(410), unreachable("silent"));
        health.settled(at(501), false);
        assert_eq!((health.state(at(600)), health.continuity()), (CacherState::Synced, Continuity::Resumed(at(501))));
        // A watch that stays open for 1 s after a failure restores contact, unless an earlier watch was silent.
        health.record_failure(at(700), unreachable("refused"));
        health.settled(at(701), true);
        assert_eq!(health.continuity(), Continuity::Resumed(at(701)));
        health.record_silence(at(800), at(710), unreachable("silent"));
        health.synced();
        assert_eq!((health.state(at(900)), health.continuity()), (CacherState::Synced, Continuity::Unbroken));
    }

    #[test]
    fn each_reason_for_staleness_is_logged_once_until_recovery() {
        let since = Instant::now();
        let stale = |reason| CacherState::Stale { since, reason };
        let (syncing, synced) = (CacherState::Syncing { since, reason: None }, CacherState::Synced);
        let mut logged_reasons = LoggedReasons::default();
        let mut before = syncing.clone();
        let steps = [
            (CacherState::Syncing { since, reason: Some(unreachable("a")) }, None),
            (CacherState::Syncing { since, reason: Some(StaleReason::Forbidden) }, Some(HealthTransition::Trouble)),
            (CacherState::Syncing { since, reason: Some(unreachable("c")) }, None),
            (CacherState::Syncing { since, reason: Some(StaleReason::Forbidden) }, None),
            (synced.clone(), Some(HealthTransition::Recovery)),
            (stale(unreachable("d")), None),
            (synced.clone(), None),
            (stale(StaleReason::Unauthorized), None),
            (stale(StaleReason::NotFound), Some(HealthTransition::Trouble)),
            (stale(unreachable("e")), None),
            (stale(StaleReason::Forbidden), Some(HealthTransition::Trouble)),
            (synced.clone(), Some(HealthTransition::Recovery)),
            (stale(StaleReason::Forbidden), Some(HealthTransition::Trouble)),
            (stale(StaleReason::TooLarge(1)), Some(HealthTransition::Trouble)),
            (stale(StaleReason::MemoryLimitReached { bytes: 1, max: 1 }), Some(HealthTransition::Trouble)),
            (stale(StaleReason::MemoryLimitReached { bytes: 2, max: 1 }), None),
        ];
        for (after, expected) in steps {
            assert_eq!(logged_reasons.next_transition(&before, &after), expected, "{after:?}");
            before = after;
        }
    }
}
