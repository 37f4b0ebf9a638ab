//! Whose part of what clients share something is.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;

use tributary_proxy::Peer;

/// Whoever holds a part of what clients share: requests in flight, bytes, turns.
///
/// Where one person owns the endpoint, it is each of their connections: one program must not keep the others waiting.
/// Where there are many users, it is each of them, however many connections one has, and however many share the one
/// connection of a front proxy. kube-apiserver tells flows apart by user as well (API Priority and Fairness, `ByUser`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    /// Nobody who is told apart: all of these together are one.
    #[default]
    Unknown,
    /// A connection, by its far end.
    Connection(SocketAddr),
    /// A user, by a keyed hash of who that is: 64 bits, so that of a million users two share a part once in
    /// 37 million times, which costs them waiting and shows them nothing.
    User(u64),
}

/// The key of users' hashes: nobody chooses a name that shares somebody's part.
static USERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Holder {
    /// The connection that a request came by, where that is known.
    pub(crate) fn connection(peer: Option<Peer>) -> Self {
        peer.map_or(Self::Unknown, |Peer(address)| Self::Connection(address))
    }

    /// A user of this name, known by this verifier: the one who authenticated, whomever that one asks to be. Whoever
    /// may act as many has one part.
    pub(crate) fn user(verifier: &str, name: &str) -> Self {
        Self::User(USERS.hash_one((verifier, name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_one_by_whatever_connection_and_another_of_the_name_is_another() {
        assert_eq!(Holder::user("a", "ann"), Holder::user("a", "ann"));
        for (verifier, name) in [("b", "ann"), ("a", "bob"), ("aa", "nn"), ("", "aann")] {
            assert_ne!(Holder::user("a", "ann"), Holder::user(verifier, name), "{verifier} {name}");
        }
        assert_eq!(Holder::connection(None), Holder::Unknown);
    }
}
