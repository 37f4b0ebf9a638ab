//! The connections of each user in shared mode. Users share all connections fairly ([`FairSemaphore`]), so that a user
//! who opens thousands cannot displace other users. All users whom the same member authenticates share one part of the
//! connections, because anyone who can create one such user can create thousands.

use std::sync::Arc;

use tributary_authentication::User;
use tributary_limiters::{FairPermit, FairSemaphore, ShareKey, ShareMetrics};

use crate::settings::UNAUTHENTICATED_DIVISOR;

#[derive(Debug)]
pub(super) struct UserConnections(Arc<FairSemaphore<ShareKey>>);

/// The permit that counts a connection for its user. Released when dropped.
pub(super) type UserConnectionPermit = FairPermit<ShareKey>;

impl UserConnections {
    /// Creates the permits for users' connections. The part for unauthenticated connections is excluded, because
    /// unauthenticated clients and a member's users together could otherwise use all connections.
    pub(super) fn with_connections(connections: usize) -> Arc<Self> {
        let user_slots = connections - connections / UNAUTHENTICATED_DIVISOR;
        let semaphore = FairSemaphore::new("connections (--max-connections)", user_slots, ShareMetrics::default());
        Arc::new(Self(semaphore))
    }

    /// Counts a new connection of a user. Returns `None` if the user, or all users of the user's member together, have
    /// too many connections.
    pub(super) fn acquire(&self, user: &User) -> Option<UserConnectionPermit> {
        self.0.acquire(user.share_key(), 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;
    use tributary_authentication::Authority;

    use super::*;

    /// Returns a ServiceAccount that only one member authenticates.
    fn account(member: &str, number: usize) -> User {
        let member = ClusterName::new(member).unwrap();
        let authority = Authority::Member(member);
        User { authority, ..User::named("test", &format!("system:serviceaccount:n:{number}")) }
    }

    /// Opens connections of a user until one is refused.
    fn open_all(all: &UserConnections, user: &User) -> Vec<UserConnectionPermit> {
        std::iter::from_fn(|| all.acquire(user)).collect()
    }

    #[test]
    fn service_accounts_of_members_cannot_take_all_connections() {
        let all = UserConnections::with_connections(4096);
        let of_account = |member, number| open_all(&all, &account(member, number));
        let first = of_account("a", 0);
        assert_eq!(first.len(), 432, "it leaves some to the other accounts of its member");
        let others: Vec<_> = (1..1_000).flat_map(|number| of_account("a", number)).collect();
        assert_eq!(first.len() + others.len(), 1_152);
        let other_member: Vec<_> = (0..1_000).flat_map(|number| of_account("b", number)).collect();
        assert_eq!(other_member.len(), 576);
        assert!(!open_all(&all, &User::named("x509", "ann")).is_empty());
        assert!(all.acquire(&account("a", 1_000)).is_none());
        drop(others);
        assert!(all.acquire(&account("a", 1_000)).is_some());
    }

    #[test]
    fn connections_of_one_user_are_limited_and_released() {
        let all = UserConnections::with_connections(8);
        let (ann, bob) = (User::named("x509", "ann"), User::named("x509", "bob"));
        let of_ann = open_all(&all, &ann);
        assert_eq!(of_ann.len(), 2, "half of the part of users, without its reserve");
        // The same user name from another verifier denotes a different user.
        let others = [all.acquire(&bob), all.acquire(&User::named("https://issuer", "ann"))];
        assert!(others.iter().all(Option::is_some));
        drop((of_ann, others));
        assert_eq!(all.0.used(), 0);
        let smallest = UserConnections::with_connections(1);
        let both = [smallest.acquire(&ann), smallest.acquire(&account("a", 0))];
        assert!(both.iter().all(Option::is_some));
    }
}
