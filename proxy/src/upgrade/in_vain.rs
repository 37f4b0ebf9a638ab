//! How many upgrades a user may ask a member for in vain.
//!
//! A request that asks for an upgrade has a connection dialed for it alone, and whether the member has something to
//! switch to is known by its answer. One that is answered otherwise has cost a TLS handshake for nothing, and two more
//! headers are enough for that, at any path. So those are counted by user, and forgotten with time; whoever has had too
//! many is refused, and nobody else.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::credentials::identity::RequestIdentity;

/// How many a user may have had in vain that are not forgotten yet. 64: a script that asks for as many execs at once,
/// all of which fail, is told why by the member.
const AT_ONCE: u32 = 64;

/// After how long each is forgotten, one after the other. 250 ms, so four a second: a handshake is about a millisecond
/// of a kube-apiserver's core, and a user has less than a hundredth of one.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(250);

/// How long a user is refused at most. 30 s: any number may be under way when the first of them is answered, and what
/// was asked for in a moment is not to shut its user out for minutes.
const REFUSED_MAX: Duration = Duration::from_secs(30);

/// Of how many users it is remembered at once. 256, a few KiB: more have had some in vain in the last seconds only
/// where somebody makes users, and those share what one may have.
const USERS_MAX: usize = 256;

/// The upgrades that one member was asked for in vain.
#[derive(Debug, Default)]
pub(crate) struct UpgradesInVain {
    hasher: RandomState,
    remembered: Mutex<Remembered>,
}

/// Until when something is remembered: for [`FORGOTTEN_AFTER`] of each.
#[derive(Debug, Default)]
struct Remembered {
    of_users: HashMap<u64, Instant>,
    /// Of all for whom there is no room, together.
    of_others: Option<Instant>,
}

impl Remembered {
    /// How long this user is to wait before the next; `None` where that may be now.
    fn refused_for(&self, user: u64, now: Instant) -> Option<Duration> {
        let until = *self.of_users.get(&user).or(self.of_others.as_ref())?;
        let with_the_next = until.saturating_duration_since(now) + FORGOTTEN_AFTER;
        with_the_next.checked_sub(FORGOTTEN_AFTER * AT_ONCE).filter(|wait| !wait.is_zero())
    }

    /// One was in vain.
    fn note(&mut self, user: u64, now: Instant) {
        if self.of_users.len() >= USERS_MAX {
            self.of_users.retain(|of, until| *of == user || *until > now);
        }
        let has_room = self.of_users.len() < USERS_MAX || self.of_users.contains_key(&user);
        let until = match has_room {
            true => self.of_users.entry(user).or_insert(now),
            false => self.of_others.get_or_insert(now),
        };
        let longest = now + FORGOTTEN_AFTER * (AT_ONCE - 1) + REFUSED_MAX;
        *until = ((*until).max(now) + FORGOTTEN_AFTER).min(longest);
    }

    /// One was taken up: it makes good for another that was not. kubectl tries WebSocket first, and SPDY where that is
    /// not known, so that each exec in an old cluster has one of both.
    fn make_good(&mut self, user: u64, now: Instant) {
        if let Some(until) = self.of_users.get_mut(&user) {
            *until = (*until).max(now + FORGOTTEN_AFTER) - FORGOTTEN_AFTER;
        }
    }
}

impl UpgradesInVain {
    /// Those of whoever the member sees a request of. In personal mode that is one user, whoever they ask to be.
    pub(crate) fn of(&self, identity: &RequestIdentity) -> OfUser<'_> {
        let name = match identity {
            RequestIdentity::Member | RequestIdentity::AsGiven(_) | RequestIdentity::Nameless => None,
            RequestIdentity::Impersonate(user) => user.headers().get("impersonate-user").map(HeaderValue::as_bytes),
            RequestIdentity::Own(token) => Some(token.authorization.as_bytes()),
        };
        OfUser { all: self, user: self.hasher.hash_one(name) }
    }
}

/// Those of one user.
pub(crate) struct OfUser<'a> {
    all: &'a UpgradesInVain,
    /// A hash of who it is.
    user: u64,
}

impl<'a> OfUser<'a> {
    /// How long the user is to wait before the next; `None` where that may be now.
    pub(crate) fn refused_for(&self) -> Option<Duration> {
        self.all.remembered.lock().refused_for(self.user, Instant::now())
    }

    /// There is a connection for one. Unless it is [taken up](Undecided::taken_up) it was in vain, also where its
    /// client does not wait for the answer.
    pub(crate) fn connected(self) -> Undecided<'a> {
        Undecided { of: self, is_taken_up: false }
    }
}

/// An upgrade whose connection is there, and whose answer is not.
pub(crate) struct Undecided<'a> {
    of: OfUser<'a>,
    is_taken_up: bool,
}

impl Undecided<'_> {
    /// The member has switched.
    pub(crate) fn taken_up(mut self) {
        self.is_taken_up = true;
    }
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        let (now, OfUser { all, user }) = (Instant::now(), &self.of);
        let mut remembered = all.remembered.lock();
        match self.is_taken_up {
            true => remembered.make_good(*user, now),
            false => remembered.note(*user, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many this user may have in vain before being refused.
    fn taken(remembered: &mut Remembered, user: u64, now: Instant) -> u32 {
        let mut count = 0;
        while remembered.refused_for(user, now).is_none() {
            remembered.note(user, now);
            count += 1;
        }
        count
    }

    #[test]
    fn a_user_has_so_many_at_once_and_then_one_after_the_other() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        assert_eq!(taken(&mut remembered, 1, now), AT_ONCE);
        assert_eq!(remembered.refused_for(1, now), Some(FORGOTTEN_AFTER));
        assert_eq!(taken(&mut remembered, 2, now), AT_ONCE, "another user");
        for (later, one_more_each) in [(1, 1), (3, 2)] {
            assert_eq!(taken(&mut remembered, 1, now + FORGOTTEN_AFTER * later), one_more_each);
        }
        assert_eq!(taken(&mut remembered, 1, now + FORGOTTEN_AFTER * (3 + AT_ONCE)), AT_ONCE);
    }

    #[test]
    fn whoever_had_any_number_under_way_is_refused_for_half_a_minute_at_most() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        (0..1000).for_each(|_| remembered.note(1, now));
        assert_eq!(remembered.refused_for(1, now), Some(REFUSED_MAX));
        assert_eq!(remembered.refused_for(1, now + REFUSED_MAX), None);
    }

    #[test]
    fn one_that_is_taken_up_makes_good_for_one_that_is_not() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        for _ in 0..10 * AT_ONCE {
            assert_eq!(remembered.refused_for(1, now), None);
            remembered.note(1, now);
            remembered.make_good(1, now);
        }
        // Nothing is saved up.
        (0..10).for_each(|_| remembered.make_good(1, now));
        assert_eq!(taken(&mut remembered, 1, now), AT_ONCE);
    }

    #[test]
    fn users_without_number_take_no_memory_and_share_what_one_may_have() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let users = USERS_MAX as u64;
        for user in 0..users {
            assert_eq!(taken(&mut remembered, user, now), AT_ONCE);
        }
        let of_others: u32 = (users..100 * users).map(|user| taken(&mut remembered, user, now)).sum();
        assert_eq!((of_others, remembered.of_users.len()), (AT_ONCE, USERS_MAX));
        // Those who are remembered are forgotten when there is room to be made, and so are the others.
        let later = now + FORGOTTEN_AFTER * AT_ONCE;
        assert_eq!(taken(&mut remembered, users, later), AT_ONCE);
        assert_eq!(remembered.of_users.len(), 1);
    }
}
