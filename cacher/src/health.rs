//! From contacts and losses to the state that readers see. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::state::{CacherState, StaleReason};

/// Follows whether changes arrive.
#[derive(Debug)]
pub(crate) struct CacherHealth {
    started: Instant,
    stale_after: Duration,
    synced: bool,
    lost: Option<(Instant, StaleReason)>,
    failed_at: Option<Instant>,
}

impl CacherHealth {
    pub(crate) fn new(now: Instant, stale_after: Duration) -> Self {
        Self { started: now, stale_after, synced: false, lost: None, failed_at: None }
    }

    /// A complete state is in place.
    pub(crate) fn synced(&mut self) {
        self.synced = true;
        self.lost = None;
    }

    /// Changes arrive, or would.
    pub(crate) fn contact(&mut self) {
        self.lost = None;
    }

    /// Changes do not arrive. The first loss since the last contact counts for the time, the latest for the reason.
    pub(crate) fn lost(&mut self, now: Instant, reason: StaleReason) {
        let since = self.lost.as_ref().map_or(now, |(since, _)| *since);
        self.lost = Some((since, reason));
        self.failed_at = Some(now);
    }

    /// When the latest loss was.
    pub(crate) fn failed_at(&self) -> Option<Instant> {
        self.failed_at
    }

    /// What readers see.
    pub(crate) fn state(&self, now: Instant) -> CacherState {
        match &self.lost {
            lost if !self.synced => {
                CacherState::Syncing { since: self.started, reason: lost.as_ref().map(|(_, reason)| reason.clone()) }
            }
            Some((since, reason)) if now >= *since + self.stale_after => {
                CacherState::Stale { since: *since, reason: reason.clone() }
            }
            _ => CacherState::Synced,
        }
    }

    /// When the state changes by the mere passing of time.
    pub(crate) fn turns_stale_at(&self, now: Instant) -> Option<Instant> {
        let (since, _) = self.lost.as_ref().filter(|_| self.synced)?;
        Some(*since + self.stale_after).filter(|at| *at > now)
    }
}

/// Says each reason once until recovery, if it is one of a single collection: whatever else is wrong is hardly ever
/// wrong with one alone, and whoever knows all collections of the member says it once.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    reasons: Vec<&'static str>,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthTransition {
    /// A reason that was not said since the last recovery.
    Trouble,
    /// Changes arrive again after trouble that was said, or for the first time.
    Recovery,
}

impl Announced {
    /// Whether the step from one state to the next is worth a line.
    pub(crate) fn news(&mut self, before: &CacherState, after: &CacherState) -> Option<HealthTransition> {
        match after.reason() {
            None => {
                let said = !std::mem::take(&mut self.reasons).is_empty();
                (*after == CacherState::Synced && (said || before.is_unknown())).then_some(HealthTransition::Recovery)
            }
            Some(reason @ (StaleReason::Forbidden | StaleReason::NotFound))
                if !self.reasons.contains(&reason.as_str()) =>
            {
                self.reasons.push(reason.as_str());
                Some(HealthTransition::Trouble)
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(text: &str) -> StaleReason {
        StaleReason::Unreachable(text.to_owned())
    }

    #[test]
    fn unknown_until_synced_then_stale_after_the_grace() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = CacherHealth::new(start, Duration::from_secs(5));
        assert_eq!(health.state(at(0)), CacherState::Syncing { since: start, reason: None });
        health.lost(at(1), StaleReason::Forbidden);
        assert_eq!(health.state(at(1)), CacherState::Syncing { since: start, reason: Some(StaleReason::Forbidden) });
        assert_eq!(health.turns_stale_at(at(1)), None);
        health.synced();
        assert_eq!(health.state(at(60)), CacherState::Synced);
        health.lost(at(100), unreachable("a"));
        health.lost(at(103), unreachable("b"));
        assert_eq!(health.state(at(104)), CacherState::Synced);
        assert_eq!(health.turns_stale_at(at(104)), Some(at(105)));
        assert_eq!(health.state(at(105)), CacherState::Stale { since: at(100), reason: unreachable("b") });
        assert_eq!(health.turns_stale_at(at(105)), None);
        health.contact();
        assert_eq!(health.state(at(106)), CacherState::Synced);
    }

    #[test]
    fn each_reason_is_said_once_until_recovery() {
        let since = Instant::now();
        let stale = |reason| CacherState::Stale { since, reason };
        let (syncing, synced) = (CacherState::Syncing { since, reason: None }, CacherState::Synced);
        let mut announced = Announced::default();
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
        ];
        for (after, expected) in steps {
            assert_eq!(announced.news(&before, &after), expected, "{after:?}");
            before = after;
        }
    }
}
