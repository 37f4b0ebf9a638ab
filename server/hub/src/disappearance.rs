//! Protection against a hub that suddenly lists no objects, for example after a restore from an old backup.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum number of members in a list for the rule that the loss of most members is suspicious. Shorter lists may lose
/// all members at once.
const MEMBERS_MIN: usize = 4;

/// Time for which up-to-date lists of the hub must lack the objects before Tributary removes them.
const CONFIRMED_FOR: Duration = Duration::from_secs(60);

/// Number of accepted objects of a kind, and number of those that the hub no longer lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disappeared {
    pub(crate) gone: usize,
    pub(crate) in_force: usize,
}

/// Decides whether Tributary removes objects that the hub no longer lists. If most members of a list are missing, or
/// all DeniedUsers, Tributary removes no object of any kind until up-to-date lists of the hub have lacked these objects
/// for 60 s.
#[derive(Clone, Debug, Default)]
pub(crate) struct DisappearanceGuard {
    /// Time at which the hub's lists began to lack too many objects; `None` if they do not.
    since: Option<Instant>,
}

impl DisappearanceGuard {
    /// Returns whether absent objects may be removed. `members` has the numbers for the UpstreamClusters, and for the
    /// items of each source. `is_current` tells whether the hub's lists are up to date.
    pub(crate) fn may_remove(
        &mut self,
        members: &[Disappeared],
        denied_users: Disappeared,
        is_current: bool,
        now: Instant,
    ) -> bool {
        let is_most = members.iter().any(|list| list.in_force >= MEMBERS_MIN && list.gone * 2 > list.in_force);
        let is_all = denied_users.gone > 0 && denied_users.gone == denied_users.in_force;
        if !is_most && !is_all {
            self.since = None;
            return true;
        }
        // While the lists are out of date, the time begins anew, because a hub without contact confirms nothing.
        let since = if is_current { *self.since.get_or_insert(now) } else { *self.since.insert(now) };
        now.duration_since(since) >= CONFIRMED_FOR
    }

    /// Returns the time at which absent objects may be removed; `None` if no absent objects are retained.
    pub(crate) fn decides_at(&self) -> Option<Instant> {
        self.since.map(|since| since + CONFIRMED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_members_are_removed_only_after_the_hub_has_confirmed_the_list_for_a_minute() {
        let start = Instant::now();
        let mut guard = DisappearanceGuard::default();
        let mut may_remove = |gone, in_force, is_current, seconds| {
            let now = start + Duration::from_secs(seconds);
            let is_removed =
                guard.may_remove(&[Disappeared { gone, in_force }], Disappeared::default(), is_current, now);
            (is_removed, guard.decides_at().map(|at| at.duration_since(start).as_secs()))
        };
        assert_eq!(may_remove(3, 3, true, 0), (true, None), "few members are removed at once");
        assert_eq!(may_remove(2, 4, true, 0), (true, None), "half of the members are removed at once");
        assert_eq!(may_remove(3, 4, true, 0), (false, Some(60)));
        assert_eq!(may_remove(3, 4, true, 59), (false, Some(60)));
        assert_eq!(may_remove(3, 4, false, 60), (false, Some(120)), "the hub is out of contact");
        assert_eq!(may_remove(3, 4, true, 119), (false, Some(120)));
        assert_eq!(may_remove(4, 4, true, 120), (true, Some(120)));
        assert_eq!(may_remove(1, 4, true, 121), (true, None));
    }

    #[test]
    fn all_denied_users_are_removed_only_after_the_hub_has_confirmed_the_list_for_a_minute() {
        let start = Instant::now();
        let mut guard = DisappearanceGuard::default();
        let mut may_remove = |gone, in_force, seconds| {
            let now = start + Duration::from_secs(seconds);
            guard.may_remove(&[], Disappeared { gone, in_force }, true, now)
        };
        assert!(may_remove(0, 0, 0), "there are no DeniedUsers");
        assert!(may_remove(2, 3, 0), "one object remains");
        assert!(!may_remove(1, 1, 0));
        assert!(!may_remove(1, 1, 59));
        assert!(may_remove(1, 1, 60));
    }
}
