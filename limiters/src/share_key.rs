//! Holders: the clients between which limits are shared.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;

use crate::fair_share::GroupedShareKey;

/// Client with a share of a limit: requests in flight, bytes, or long answers.
///
/// In personal mode each connection is a holder, so that one program does not delay the other programs. In shared mode
/// each user is a holder across all connections, also behind the single connection of a front proxy. kube-apiserver
/// separates flows by user, too (API Priority and Fairness, `ByUser`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShareKey {
    /// A client without an address. All clients without an address count as one holder.
    #[default]
    Unknown,
    /// A connection, identified by the client's address.
    Connection(SocketAddr),
    /// A user, as a keyed hash of authenticator and name. Two of a million users have equal 64-bit hashes with a
    /// probability of 1 to 37 million. Such users share a limit, and see nothing of each other.
    User(u64),
    /// A user whom only a member's authenticator verifies, by keyed hashes. All such users of a member divide one
    /// share: a person who can create one such user can create thousands.
    OfMember {
        /// Hash of the member.
        member: u64,
        /// Hash of the user.
        user: u64,
    },
}

/// Secret key of the hashes, so that no client can choose a name with the hash of another user.
static USERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl ShareKey {
    /// Returns the holder for the client at this address. [`Self::Unknown`] without an address.
    pub fn connection(address: Option<SocketAddr>) -> Self {
        address.map_or(Self::Unknown, Self::Connection)
    }

    /// Returns the holder for a user whom only a member's authenticator verifies.
    pub fn user_of_member(member: &str, verifier: &str, name: &str) -> Self {
        Self::OfMember { member: USERS.hash_one(member), user: USERS.hash_one((verifier, name)) }
    }

    /// Returns the holder for a user of a configured authenticator.
    pub fn user(verifier: &str, name: &str) -> Self {
        Self::User(USERS.hash_one((verifier, name)))
    }

    /// Returns the hash of the member whose users divide one share.
    pub fn member(self) -> Option<u64> {
        match self {
            Self::OfMember { member, .. } => Some(member),
            Self::Unknown | Self::Connection(_) | Self::User(_) => None,
        }
    }
}

impl GroupedShareKey for ShareKey {
    fn group(self) -> Option<u64> {
        self.member()
    }
}
