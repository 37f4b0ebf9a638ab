//! Keys of the holders between which limits are shared: connections or users.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;

use crate::fair_share::GroupedShareKey;

/// Key of a client that has a share of a limit. Limits are for example requests in flight, bytes, or long answers.
///
/// In personal mode each connection has a share, so that one program does not delay the other programs. In shared mode
/// each user has a share across all connections, even if a front proxy sends the requests of all users over one
/// connection. kube-apiserver also separates flows by user (API Priority and Fairness, `ByUser`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShareKey {
    /// A client whose address is unknown. All such clients have one common share.
    #[default]
    Unknown,
    /// A connection, identified by the client's address.
    Connection(SocketAddr),
    /// A user: a keyed hash of authenticator and user name. Among a million users, two users have equal 64-bit hashes
    /// with a probability of 1 to 37 million. Such users share a limit, but see no data of each other.
    User(u64),
    /// A user that only a member's authenticator verifies, as keyed hashes. All such users of one member divide one
    /// share, because a person with the right to create one such user can create thousands.
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
    /// Returns the key of the client at this address, or [`Self::Unknown`] without an address.
    pub fn connection(address: Option<SocketAddr>) -> Self {
        address.map_or(Self::Unknown, Self::Connection)
    }

    /// Returns the key of a user that only a member's authenticator verifies.
    pub fn user_of_member(member: &str, verifier: &str, name: &str) -> Self {
        Self::OfMember { member: USERS.hash_one(member), user: USERS.hash_one((verifier, name)) }
    }

    /// Returns the key of a user that one of Tributary's configured authenticators verifies.
    pub fn user(verifier: &str, name: &str) -> Self {
        Self::User(USERS.hash_one((verifier, name)))
    }

    /// Returns the hash of the member if only this member's authenticator verifies the user. All such users of the
    /// member divide one share.
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
