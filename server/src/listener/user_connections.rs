//! How many connections each user has, where many are served: a part of all at most, so that whoever opens thousands,
//! by mistake or on purpose, keeps nobody else out.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use tributary_router::User;

use super::bounds::CONNECTIONS_PART;

/// The connections of each user.
#[derive(Debug)]
pub(super) struct UserConnections {
    max: usize,
    /// By a keyed hash of who it is: nobody chooses a name that takes somebody's part.
    hashes: RandomState,
    by_user: Mutex<HashMap<u64, usize>>,
}

/// A connection that counts as one of somebody's, as long as this is held.
#[derive(Debug)]
pub(super) struct UserConnection {
    user: u64,
    among: Arc<UserConnections>,
}

impl UserConnections {
    /// Of so many connections in all.
    pub(super) fn of(connections: usize) -> Arc<Self> {
        let (hashes, by_user) = (RandomState::new(), Mutex::default());
        Arc::new(Self { max: (connections / CONNECTIONS_PART).max(1), hashes, by_user })
    }

    /// Counts one more connection of a user; `None` where they have as many as they may.
    pub(super) fn take(self: &Arc<Self>, user: &User) -> Option<UserConnection> {
        let user = self.hashes.hash_one((user.authority.verifier.as_str(), &user.info.username));
        let mut by_user = self.by_user.lock();
        let own = by_user.entry(user).or_default();
        if *own >= self.max {
            return None;
        }
        *own += 1;
        Some(UserConnection { user, among: Arc::clone(self) })
    }
}

impl Drop for UserConnection {
    fn drop(&mut self) {
        let mut by_user = self.among.by_user.lock();
        if let Some(own) = by_user.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_quarter_and_gives_it_back() {
        let all = UserConnections::of(8);
        let (ann, bob) = (User::named("x509", "ann"), User::named("x509", "bob"));
        let (first, second) = (all.take(&ann), all.take(&ann));
        assert!(first.is_some() && second.is_some() && all.take(&ann).is_none());
        // Another of the name is another.
        let others = [all.take(&bob), all.take(&User::named("https://issuer", "ann"))];
        assert!(others.iter().all(Option::is_some));
        drop(first);
        assert!(all.take(&ann).is_some());
        drop((second, others));
        assert!(all.by_user.lock().is_empty());
        assert_eq!(UserConnections::of(1).max, 1);
    }
}
