//! Protection against a hub that suddenly lists no objects, for example after a restore from an old backup.

use std::time::Duration;

use tokio::time::Instant;

/// The least number of members that the protection applies to.
const MEMBERS_MIN: usize = 4;

/// Time for which the hub must confirm that more than half of the members are gone.
const CONFIRMED_FOR: Duration = Duration::from_secs(60);

/// Decides whether members leave that the hub no longer lists.
#[derive(Debug, Default)]
pub(crate) struct DisappearanceGuard {
    /// Time since which the hub lists less than half of the members.
    since: Option<Instant>,
}

impl DisappearanceGuard {
    /// Returns whether the members may leave: `leaving` of `members` members. `is_current` tells whether the hub's list
    /// is up to date.
    pub(crate) fn may_leave(&mut self, leaving: usize, members: usize, is_current: bool, now: Instant) -> bool {
        if members < MEMBERS_MIN || leaving * 2 <= members {
            self.since = None;
            return true;
        }
        // A hub without contact does not confirm its list.
        let since = if is_current { *self.since.get_or_insert(now) } else { *self.since.insert(now) };
        now.duration_since(since) >= CONFIRMED_FOR
    }

    /// Returns the time at which the members may leave; `None` if no members are kept.
    pub(crate) fn decides_at(&self) -> Option<Instant> {
        self.since.map(|since| since + CONFIRMED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_members_leave_only_after_the_hub_has_confirmed_the_list_for_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut guard = DisappearanceGuard::default();
        assert!(guard.may_leave(3, 3, true, at(0)), "few members leave at once");
        assert!(guard.may_leave(2, 4, true, at(0)), "half of the members leave at once");
        assert!(!guard.may_leave(3, 4, true, at(0)));
        assert_eq!(guard.decides_at(), Some(at(60)));
        assert!(!guard.may_leave(3, 4, true, at(59)));
        assert!(!guard.may_leave(3, 4, false, at(60)), "the hub is out of contact");
        assert!(!guard.may_leave(3, 4, true, at(119)));
        assert!(guard.may_leave(4, 4, true, at(120)));
        assert!(guard.may_leave(1, 4, true, at(121)) && guard.decides_at().is_none());
    }
}
