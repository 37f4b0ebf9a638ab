//! How far the mirror of one cluster is, and for how long what it said last holds.

use std::time::Duration;

use tokio::time::Instant;
use tributary_cacher::CacherState;

use tributary_fleet::report::RightsCondition;

/// How long the last rights of a cluster hold whose roles and bindings alone are not followed: it answers, and may say
/// otherwise by now. 5 minutes, as kube-apiserver believes a webhook that allowed something
/// (`--authorization-webhook-cache-authorized-ttl`).
pub(super) const BEHIND_MAX: Duration = Duration::from_secs(5 * 60);

/// How far the mirror of one cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MirrorState {
    /// Its roles and bindings have never all been read: nothing is known.
    Unread,
    /// It is not asked what users may do there: they are shown nothing of it from memory.
    Live,
    /// What is known is of now.
    Current,
    /// What is known is of an earlier time.
    Behind {
        /// Since when.
        since: Instant,
        /// Until when it holds.
        until: Instant,
    },
}

impl MirrorState {
    /// Whether what is known counts at a moment.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        match self {
            Self::Unread | Self::Live => false,
            Self::Current => true,
            Self::Behind { until, .. } => now < *until,
        }
    }

    /// What the report says of it.
    pub(crate) fn condition(&self, now: Instant) -> RightsCondition {
        match self {
            Self::Unread => RightsCondition::Unread,
            Self::Live => RightsCondition::Live,
            Self::Current => RightsCondition::Current,
            Self::Behind { .. } if self.holds(now) => RightsCondition::Behind,
            Self::Behind { .. } => RightsCondition::Outdated,
        }
    }

    /// When it is to be looked at again, because it ceases to hold then.
    pub(super) fn ends(&self) -> Option<Instant> {
        match self {
            Self::Behind { until, .. } => Some(*until),
            Self::Unread | Self::Live | Self::Current => None,
        }
    }

    /// By how its collections are. `is_read`: all have been read, by these cachers or, up to `earlier`, by others of
    /// the same cluster. `stale_rights` is how long rights hold in a cluster that is `cut_off` as a whole.
    pub(super) fn from_collections(
        states: &[CacherState],
        is_read: bool,
        earlier: Option<Instant>,
        cut_off: bool,
        stale_rights: Duration,
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
            Some(since) => {
                let held_for = if cut_off { stale_rights } else { BEHIND_MAX };
                Self::Behind { since, until: since + held_for }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_cacher::StaleReason;

    use super::*;

    #[test]
    fn what_was_said_last_holds_for_as_long_as_the_cluster_cannot_say_otherwise() {
        let begin = Instant::now();
        let at = |minutes: u64| begin + Duration::from_secs(60 * minutes);
        let stale = |minutes| CacherState::Stale { since: at(minutes), reason: StaleReason::Forbidden };
        let hours = Duration::from_secs(12 * 3600);
        let of = |states: &[CacherState], is_read, earlier, cut_off| {
            MirrorState::from_collections(states, is_read, earlier, cut_off, hours)
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
            // Of the one before it, which was of this very cluster.
            (of(&[synced(), reading()], false, Some(at(1)), false), 1, 6),
            (of(&[reading(), reading()], false, Some(at(1)), true), 1, 1 + 12 * 60),
        ] {
            assert_eq!(state, MirrorState::Behind { since: at(since), until: at(until) });
            assert!(state.holds(at(until) - Duration::from_millis(1)) && !state.holds(at(until)));
        }
        assert!(MirrorState::Current.holds(at(0)) && !MirrorState::Unread.holds(at(0)));
    }
}
