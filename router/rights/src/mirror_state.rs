//! State of the mirror of one cluster, and the time for which outdated rights stay valid.

use std::time::Duration;

use tokio::time::Instant;
use tributary_cacher::CacherState;

use tributary_fleet::report::RightsCondition;

/// Time for which the last known rights in a reachable cluster stay valid while Tributary cannot watch its roles and
/// bindings. The cluster may have changed them meanwhile. 5 minutes, as long as kube-apiserver caches a webhook's
/// approval (`--authorization-webhook-cache-authorized-ttl`).
pub(super) const BEHIND_MAX: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MirrorState {
    /// At least one collection of roles or bindings has never been read: no right is known.
    Unread,
    /// `Live` authorization: Tributary does not read the roles, and reads from cachers show no object of the cluster.
    Live,
    /// The rights are up to date.
    Current,
    /// The rights are from the time before Tributary lost contact with the cluster.
    Behind {
        /// Time up to which the rights are complete.
        since: Instant,
        /// Time until which the outdated rights are valid.
        until: Instant,
    },
}

impl MirrorState {
    pub(crate) fn holds(&self, now: Instant) -> bool {
        match self {
            Self::Unread | Self::Live => false,
            Self::Current => true,
            Self::Behind { until, .. } => now < *until,
        }
    }

    pub(crate) fn condition(&self, now: Instant) -> RightsCondition {
        match self {
            Self::Unread => RightsCondition::Unread,
            Self::Live => RightsCondition::Live,
            Self::Current => RightsCondition::Current,
            Self::Behind { .. } if self.holds(now) => RightsCondition::Behind,
            Self::Behind { .. } => RightsCondition::Outdated,
        }
    }

    /// Returns the time at which outdated rights stop being valid. `None` for rights that are up to date.
    pub(super) fn ends(&self) -> Option<Instant> {
        match self {
            Self::Behind { until, .. } => Some(*until),
            Self::Unread | Self::Live | Self::Current => None,
        }
    }

    /// Combines the states of the cachers of one cluster.
    ///
    /// * `is_read`: the cachers have read all collections.
    /// * `earlier`: time up to which the cachers of the previous configuration were complete.
    /// * `valid_for`: time for which outdated rights stay valid.
    pub(super) fn from_collections(
        states: &[CacherState],
        is_read: bool,
        earlier: Option<Instant>,
        valid_for: Duration,
    ) -> Self {
        if !is_read && earlier.is_none() {
            return Self::Unread;
        }
        let stale = states.iter().filter_map(|state| match state {
            CacherState::Synced => None,
            CacherState::Stale { since, .. } | CacherState::Syncing { since, .. } => Some(*since),
        });
        let read_before = earlier.filter(|_| !is_read);
        match read_before.or_else(|| stale.min()) {
            None => Self::Current,
            Some(since) => Self::Behind { since, until: since + valid_for },
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_cacher::StaleReason;

    use super::*;

    #[test]
    fn mirrored_rights_stay_valid_for_a_limited_time_after_lost_contact() {
        let begin = Instant::now();
        let at = |minutes: u64| begin + Duration::from_secs(60 * minutes);
        let stale = |minutes| CacherState::Stale { since: at(minutes), reason: StaleReason::Forbidden };
        let hours = Duration::from_secs(12 * 3600);
        let of = |states: &[CacherState], is_read, earlier, cut_off| {
            MirrorState::from_collections(states, is_read, earlier, if cut_off { hours } else { BEHIND_MAX })
        };
        let synced = || CacherState::Synced;
        let reading = || CacherState::Syncing { since: at(0), reason: None };
        assert_eq!(of(&[synced(), synced()], true, None, false), MirrorState::Current);
        assert_eq!(of(&[synced(), reading()], false, None, false), MirrorState::Unread);
        assert_eq!(of(&[synced(), reading()], false, None, true), MirrorState::Unread, "it was never read");
        for (state, since, until) in [
            (of(&[stale(3), stale(2)], true, None, false), 2, 7),
            (of(&[synced(), stale(9)], true, Some(at(1)), false), 9, 14),
            (of(&[stale(2), stale(3)], true, None, true), 2, 2 + 12 * 60),
            // The mirror with the previous configuration of the same cluster was complete up to minute 1.
            (of(&[synced(), reading()], false, Some(at(1)), false), 1, 6),
            (of(&[reading(), reading()], false, Some(at(1)), true), 1, 1 + 12 * 60),
        ] {
            assert_eq!(state, MirrorState::Behind { since: at(since), until: at(until) });
            assert!(state.holds(at(until) - Duration::from_millis(1)) && !state.holds(at(until)));
        }
        assert!(MirrorState::Current.holds(at(0)) && !MirrorState::Unread.holds(at(0)));
    }
}
