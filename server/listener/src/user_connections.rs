//! How many connections each user has, where many are served: a part of all at most, so that whoever opens thousands,
//! by mistake or on purpose, keeps nobody else out. Users for whom a member alone vouches share one part with all
//! others of that member: whoever can make one there can make thousands.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::service::ConnectionUser;
use crate::settings::{CONNECTIONS_PART, LEFT_BY_ACCOUNT_PART, VOUCHED_CONNECTIONS_PART};

/// The connections of each user.
#[derive(Debug)]
pub(super) struct UserConnections {
    bounds: UserBounds,
    /// By a keyed hash of who it is: nobody chooses a name that takes somebody's part.
    hashes: RandomState,
    open: Mutex<OpenConnections>,
}

/// How many there may be.
#[derive(Clone, Copy, Debug)]
struct UserBounds {
    /// Of one user.
    user: usize,
    /// Of all users together for whom members alone vouch.
    vouched: usize,
}

/// How many there are.
#[derive(Debug, Default)]
struct OpenConnections {
    by_user: HashMap<u64, usize>,
    /// Of users for whom a member alone vouches, by member, and all together.
    by_member: HashMap<u64, usize>,
    vouched: usize,
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug)]
struct ConnectionHolder {
    user: u64,
    /// The member that alone vouches for the user.
    member: Option<u64>,
}

/// A connection that counts as one of somebody's, as long as this is held.
#[derive(Debug)]
pub(super) struct UserConnection {
    holder: ConnectionHolder,
    among: Arc<UserConnections>,
}

impl UserConnections {
    /// Of so many connections in all.
    pub(super) fn with_connections(connections: usize) -> Arc<Self> {
        let part = |one_in: usize| (connections / one_in).max(1);
        let bounds = UserBounds { user: part(CONNECTIONS_PART), vouched: part(VOUCHED_CONNECTIONS_PART) };
        Arc::new(Self { bounds, hashes: RandomState::new(), open: Mutex::default() })
    }

    /// Counts one more connection of a user; `None` where they, or all users of their member, have as many as they may.
    pub(super) fn acquire(self: &Arc<Self>, user: ConnectionUser<'_>) -> Option<UserConnection> {
        let holder = ConnectionHolder {
            user: self.hashes.hash_one((user.authority.verifier.as_str(), user.username)),
            member: user.authority.vouching_member().map(|member| self.hashes.hash_one(member)),
        };
        let mut open = self.open.lock();
        if !open.has_room(holder, self.bounds) {
            return None;
        }
        open.add(holder);
        Some(UserConnection { holder, among: Arc::clone(self) })
    }
}

impl OpenConnections {
    /// Whether somebody may have one more.
    fn has_room(&self, holder: ConnectionHolder, bounds: UserBounds) -> bool {
        let own = self.by_user.get(&holder.user).copied().unwrap_or(0);
        let Some(member) = holder.member else { return own < bounds.user };
        let of_member = self.by_member.get(&member).copied().unwrap_or(0);
        // As many as they leave to the users of other members; the last one is anybody's.
        let part = bounds.vouched.saturating_sub(self.vouched - of_member).div_ceil(2);
        let of_account = bounds.user.min(part - part / LEFT_BY_ACCOUNT_PART);
        own < of_account && of_member < part
    }

    fn add(&mut self, holder: ConnectionHolder) {
        *self.by_user.entry(holder.user).or_default() += 1;
        if let Some(member) = holder.member {
            *self.by_member.entry(member).or_default() += 1;
            self.vouched += 1;
        }
    }

    fn remove(&mut self, holder: ConnectionHolder) {
        take_one(&mut self.by_user, holder.user);
        if let Some(member) = holder.member {
            take_one(&mut self.by_member, member);
            self.vouched -= 1;
        }
    }
}

/// Counts one less, and forgets whoever has none.
fn take_one(counts: &mut HashMap<u64, usize>, whose: u64) {
    if let Some(count) = counts.get_mut(&whose) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&whose);
        }
    }
}

impl Drop for UserConnection {
    fn drop(&mut self) {
        self.among.open.lock().remove(self.holder);
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;
    use tributary_authentication::{Authority, Reach, VerifierName};

    use super::*;

    /// A user, as a service knows it.
    struct User {
        authority: Authority,
        username: String,
    }

    impl User {
        /// A user who is valid in all clusters.
        fn named(verifier: &str, username: &str) -> Self {
            let authority = Authority { verifier: verifier.into(), reach: Reach::Everywhere };
            Self { authority, username: username.to_owned() }
        }

        fn acquire(&self, all: &Arc<UserConnections>) -> Option<UserConnection> {
            all.acquire(ConnectionUser { authority: &self.authority, username: &self.username })
        }
    }

    /// A ServiceAccount for which a member alone vouches.
    fn account(member: &str, number: usize) -> User {
        let member = ClusterName::new(member).unwrap();
        let authority = Authority { verifier: VerifierName::cluster(&member), reach: Reach::Member(member) };
        User { authority, username: format!("system:serviceaccount:n:{number}") }
    }

    /// What somebody gets who takes one after the other until they are refused.
    fn greedy(all: &Arc<UserConnections>, user: &User) -> Vec<UserConnection> {
        std::iter::from_fn(|| user.acquire(all)).collect()
    }

    /// The same of accounts of one member.
    fn accounts(all: &Arc<UserConnections>, member: &str, accounts: usize) -> Vec<UserConnection> {
        (0..accounts).flat_map(|number| greedy(all, &account(member, number))).collect()
    }

    #[test]
    fn whoever_makes_users_in_a_member_keeps_no_configured_user_out() {
        let all = UserConnections::with_connections(8);
        let of_a = accounts(&all, "a", 4);
        assert_eq!(of_a.len(), 2, "four of a quarter each would be all that there are");
        let ann = greedy(&all, &User::named("x509", "ann"));
        assert_eq!(ann.len(), 2, "a configured user has the quarter that is theirs");
        let others: Vec<_> = ["b", "c", "d", "e"].map(|member| accounts(&all, member, 4)).into_iter().collect();
        assert_eq!(others.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0, 0], "half for all members together");
        drop((of_a, ann, others));
        let open = all.open.lock();
        assert!(open.by_user.is_empty() && open.by_member.is_empty() && open.vouched == 0);
    }

    #[test]
    fn an_account_leaves_something_to_the_others_of_its_member_and_a_member_to_others() {
        let all = UserConnections::with_connections(4096);
        let first = greedy(&all, &account("a", 0));
        assert_eq!(first.len(), 768);
        let others = accounts(&all, "a", 1_000);
        assert_eq!(first.len() + others.len(), 1_024);
        assert_eq!(accounts(&all, "b", 1_000).len(), 512);
        let configured = [greedy(&all, &User::named("x509", "ann")), greedy(&all, &User::named("x509", "bob"))];
        assert_eq!(configured.map(|held| held.len()), [1_024, 1_024]);
        assert!(account("a", 1_000).acquire(&all).is_none());
        drop(others);
        assert!(account("a", 1_000).acquire(&all).is_some());
    }

    #[test]
    fn a_user_has_a_quarter_and_gives_it_back() {
        let all = UserConnections::with_connections(8);
        let (ann, bob) = (User::named("x509", "ann"), User::named("x509", "bob"));
        let (first, second) = (ann.acquire(&all), ann.acquire(&all));
        assert!(first.is_some() && second.is_some() && ann.acquire(&all).is_none());
        // Another of the name is another.
        let others = [bob.acquire(&all), User::named("https://issuer", "ann").acquire(&all)];
        assert!(others.iter().all(Option::is_some));
        drop(first);
        assert!(ann.acquire(&all).is_some());
        drop((second, others));
        assert!(all.open.lock().by_user.is_empty());
        let smallest = UserConnections::with_connections(1);
        assert!(ann.acquire(&smallest).is_some() && account("a", 0).acquire(&smallest).is_some());
    }
}
