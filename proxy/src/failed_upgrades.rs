//! How many upgrades a user may ask a member for in vain.
//!
//! A request that asks for an upgrade has a connection dialed for it alone, and whether the member has something to
//! switch to is known by its answer. One that is answered otherwise has cost a TLS handshake for nothing, and two more
//! headers are enough for that, at any path. So those are counted by user, and forgotten with time; whoever has had too
//! many is refused.
//!
//! What a kube-apiserver [switches itself](is_switched_by_kube_apiserver) is not counted: an honest client asks for
//! that twice where it is forbidden, or not known by WebSocket.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderValue, Method, Uri};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::{RequestInfo, ServiceAccount};

use crate::credentials::identity::RequestIdentity;

/// How many a user may have had in vain that are not forgotten yet. 64: whoever opens the consoles of as many virtual
/// machines at once, all of which fail, is told why by the member.
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

/// Of how many it is remembered when a member's own users come that are not among them. Half: whoever can create
/// ServiceAccounts can make any number, and leaves the rest to everybody else.
const MEMBERS_USERS_MAX: usize = USERS_MAX / 2;

/// The upgrades that one member was asked for in vain.
#[derive(Debug, Default)]
pub(crate) struct UpgradesInVain {
    hasher: RandomState,
    remembered: Mutex<Remembered>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
struct User {
    /// A hash of who it is.
    hash: u64,
    /// Whether the member itself makes such users: a ServiceAccount, or whoever has a token that it alone judges.
    is_members: bool,
}

/// In whose account one is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Account {
    /// A user's own.
    User(u64),
    /// That of all users of the member's for whom there is no room.
    MembersUsers,
    /// That of all others for whom there is none.
    Others,
}

/// Until when something is remembered: for [`FORGOTTEN_AFTER`] of each.
#[derive(Debug, Default)]
struct Remembered(HashMap<Account, Instant>);

impl Remembered {
    /// The account in which those of this user are counted now: an own one, as long as there is room for it.
    fn account(&mut self, user: User, now: Instant) -> Account {
        let own = Account::User(user.hash);
        let (max, shared) = match user.is_members {
            true => (MEMBERS_USERS_MAX, Account::MembersUsers),
            false => (USERS_MAX, Account::Others),
        };
        if self.0.len() >= max && !self.0.contains_key(&own) {
            self.0.retain(|_, until| *until > now);
            if self.0.len() >= max {
                return shared;
            }
        }
        own
    }

    /// How long this user is to wait before the next; `None` where that may be now.
    fn refused_for(&mut self, user: User, now: Instant) -> Option<Duration> {
        let account = self.account(user, now);
        let with_the_next = self.0.get(&account)?.saturating_duration_since(now) + FORGOTTEN_AFTER;
        with_the_next.checked_sub(FORGOTTEN_AFTER * AT_ONCE).filter(|wait| !wait.is_zero())
    }

    /// One was in vain.
    fn note(&mut self, user: User, now: Instant) {
        let account = self.account(user, now);
        let until = self.0.entry(account).or_insert(now);
        let longest = now + FORGOTTEN_AFTER * (AT_ONCE - 1) + REFUSED_MAX;
        *until = ((*until).max(now) + FORGOTTEN_AFTER).min(longest);
    }

    /// One was taken up: it makes good for another that was not. A client may try WebSocket first, and SPDY where that
    /// is not known.
    fn make_good(&mut self, user: User, now: Instant) {
        let account = self.account(user, now);
        if let Some(until) = self.0.get_mut(&account) {
            *until = (*until).max(now + FORGOTTEN_AFTER) - FORGOTTEN_AFTER;
        }
    }
}

impl UpgradesInVain {
    /// Those of whoever the member sees this request of; `None` where it is not counted. In personal mode that is one
    /// user, whoever they ask to be.
    pub(crate) fn of(&self, identity: &RequestIdentity, method: &Method, uri: &Uri) -> Option<OfUser<'_>> {
        if is_switched_by_kube_apiserver(method, uri) {
            return None;
        }
        let (name, is_members) = match identity {
            RequestIdentity::Member | RequestIdentity::AsGiven(_) | RequestIdentity::Nameless => (None, false),
            RequestIdentity::Impersonate(user) => {
                let name = user.headers().get("impersonate-user").map(HeaderValue::as_bytes);
                (name, name.is_some_and(is_service_account))
            }
            RequestIdentity::Own(token) => (Some(token.authorization.as_bytes()), true),
        };
        Some(OfUser { all: self, user: User { hash: self.hasher.hash_one(name), is_members } })
    }
}

fn is_service_account(name: &[u8]) -> bool {
    std::str::from_utf8(name).ok().and_then(ServiceAccount::of_user).is_some()
}

/// Whether a kube-apiserver switches the connection itself, for what is behind it: a kubelet, or a workload.
fn is_switched_by_kube_apiserver(method: &Method, uri: &Uri) -> bool {
    let Ok(info) = RequestInfo::parse(method.as_str(), uri.path(), uri.query()) else { return false };
    let Some(request) = info.resource().filter(|request| request.resource.group.is_empty()) else { return false };
    matches!(
        (&*request.resource.resource, request.subresource.as_deref()),
        ("pods", Some("attach" | "exec" | "portforward")) | ("pods" | "services" | "nodes", Some("proxy"))
    )
}

/// Those of one user.
pub(crate) struct OfUser<'a> {
    all: &'a UpgradesInVain,
    user: User,
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
    use crate::credentials::identity::{Impersonation, OwnToken};

    /// A user whom everybody knows.
    fn known(hash: u64) -> User {
        User { hash, is_members: false }
    }

    /// A user of the member's.
    fn members(hash: u64) -> User {
        User { hash, is_members: true }
    }

    /// How many this user may have in vain before being refused.
    fn taken(remembered: &mut Remembered, user: User, now: Instant) -> u32 {
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
        assert_eq!(taken(&mut remembered, known(1), now), AT_ONCE);
        assert_eq!(remembered.refused_for(known(1), now), Some(FORGOTTEN_AFTER));
        assert_eq!(taken(&mut remembered, known(2), now), AT_ONCE, "another user");
        for (later, one_more_each) in [(1, 1), (3, 2)] {
            assert_eq!(taken(&mut remembered, known(1), now + FORGOTTEN_AFTER * later), one_more_each);
        }
        assert_eq!(taken(&mut remembered, known(1), now + FORGOTTEN_AFTER * (3 + AT_ONCE)), AT_ONCE);
    }

    #[test]
    fn whoever_had_any_number_under_way_is_refused_for_half_a_minute_at_most() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        (0..1000).for_each(|_| remembered.note(known(1), now));
        assert_eq!(remembered.refused_for(known(1), now), Some(REFUSED_MAX));
        assert_eq!(remembered.refused_for(known(1), now + REFUSED_MAX), None);
    }

    #[test]
    fn one_that_is_taken_up_makes_good_for_one_that_is_not() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        for _ in 0..10 * AT_ONCE {
            assert_eq!(remembered.refused_for(known(1), now), None);
            remembered.note(known(1), now);
            remembered.make_good(known(1), now);
        }
        // Nothing is saved up.
        (0..10).for_each(|_| remembered.make_good(known(1), now));
        assert_eq!(taken(&mut remembered, known(1), now), AT_ONCE);
    }

    #[test]
    fn users_without_number_take_no_memory_and_share_what_one_may_have() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let users = USERS_MAX as u64;
        for user in 0..users {
            assert_eq!(taken(&mut remembered, known(user), now), AT_ONCE);
        }
        let of_others: u32 = (users..100 * users).map(|user| taken(&mut remembered, known(user), now)).sum();
        assert_eq!((of_others, remembered.0.len()), (AT_ONCE, USERS_MAX + 1));
        // Those who are remembered are forgotten when there is room to be made, and so are the others.
        let later = now + FORGOTTEN_AFTER * AT_ONCE;
        assert_eq!(taken(&mut remembered, known(users), later), AT_ONCE);
        assert_eq!(remembered.0.len(), 1);
    }

    #[test]
    fn what_others_had_is_held_against_nobody_once_there_is_room() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let users = USERS_MAX as u64;
        (0..users).for_each(|user| remembered.note(known(user), now));
        // Far more than those who are remembered, who are forgotten first.
        (0..1000).for_each(|_| remembered.note(known(users), now));
        assert!(remembered.refused_for(known(users + 1), now).is_some(), "there is no room");
        assert_eq!(remembered.refused_for(known(users + 1), now + FORGOTTEN_AFTER), None);
    }

    #[test]
    fn whoever_makes_users_at_a_member_takes_nothing_from_others() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let users = 10 * USERS_MAX as u64;
        let all: u32 = (0..users).map(|user| taken(&mut remembered, members(user), now)).sum();
        assert_eq!(all, AT_ONCE * (MEMBERS_USERS_MAX as u32 + 1), "half of the room, and what one may have");
        assert_eq!(taken(&mut remembered, known(users), now), AT_ONCE);
        assert!(remembered.0.len() <= MEMBERS_USERS_MAX + 2);
    }

    #[test]
    fn what_a_kube_apiserver_switches_is_not_counted() {
        for (path, is_switched) in [
            ("/api/v1/namespaces/n/pods/p/exec?command=sh", true),
            ("/api/v1/namespaces/n/pods/p/attach", true),
            ("/api/v1/namespaces/n/pods/p/portforward", true),
            ("/api/v1/namespaces/n/pods/http:p:80/proxy/ws", true),
            ("/api/v1/namespaces/n/services/s:80/proxy", true),
            ("/api/v1/nodes/n/proxy/exec/n/p/c", true),
            ("/api/v1/namespaces/n/pods/p/log", false),
            ("/api/v1/namespaces/n/services/s/exec", false),
            ("/api/v1/namespaces/n/pods?watch=1", false),
            ("/apis/example.com/v1/namespaces/n/pods/p/exec", false),
            ("/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console", false),
            ("/v1/subscribe", false),
        ] {
            for method in [Method::GET, Method::POST] {
                assert_eq!(is_switched_by_kube_apiserver(&method, &path.parse().unwrap()), is_switched, "{path}");
            }
        }
    }

    #[test]
    fn a_users_own_token_and_a_service_account_are_a_members() {
        let all = UpgradesInVain::default();
        let is_members = |identity: RequestIdentity| {
            let uri = Uri::from_static("/v1/subscribe");
            all.of(&identity, &Method::GET, &uri).unwrap().user.is_members
        };
        let impersonated = |user| RequestIdentity::Impersonate(Impersonation::new(user, [], None, []).unwrap());
        assert!(is_members(impersonated("system:serviceaccount:n:s")));
        assert!(!is_members(impersonated("jürgen")));
        assert!(is_members(RequestIdentity::Own(OwnToken::new(b"t", None).unwrap())));
        assert!(!is_members(RequestIdentity::Member));
    }
}
