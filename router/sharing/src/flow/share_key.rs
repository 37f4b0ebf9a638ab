//! Holders: the clients between which limits are shared.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;

use tributary_authentication::Authority;
use tributary_limiters::GroupedShareKey;
use tributary_proxy::Peer;

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
    /// Returns the holder for the request's connection. [`Self::Unknown`] if the peer's address is unknown.
    pub fn connection(peer: Option<Peer>) -> Self {
        peer.map_or(Self::Unknown, |Peer(address)| Self::Connection(address))
    }

    /// Returns the holder for an authenticated user. Impersonation does not change the holder: a user who may act as
    /// many users has one share.
    pub fn of_user(authority: &Authority, name: &str) -> Self {
        let verifier = authority.verifier.as_str();
        match authority.vouching_member() {
            None => Self::user(verifier, name),
            Some(member) => Self::OfMember { member: USERS.hash_one(member), user: USERS.hash_one((verifier, name)) },
        }
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

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;
    use tributary_authentication::{Reach, VerifierName};

    use super::*;

    #[test]
    fn users_of_one_member_are_different_holders_with_one_member_hash() {
        let of = |member: &str, name| {
            let member = ClusterName::new(member).unwrap();
            let authority = Authority { verifier: VerifierName::cluster(&member), reach: Reach::Member(member) };
            ShareKey::of_user(&authority, name)
        };
        let (ann, bob, other) = (of("a", "ann"), of("a", "bob"), of("b", "ann"));
        assert!(ann == of("a", "ann") && ann != bob && ann != other);
        assert!(ann.member().is_some() && ann.member() == bob.member() && ann.member() != other.member());
        let configured = Authority { verifier: VerifierName::client_certificates(), reach: Reach::Everywhere };
        let configured = ShareKey::of_user(&configured, "ann");
        assert_eq!((configured, configured.member()), (ShareKey::user("x509", "ann"), None));
    }

    #[test]
    fn equal_user_names_of_two_authenticators_have_separate_shares() {
        assert_eq!(ShareKey::user("a", "ann"), ShareKey::user("a", "ann"));
        for (verifier, name) in [("b", "ann"), ("a", "bob"), ("aa", "nn"), ("", "aann")] {
            assert_ne!(ShareKey::user("a", "ann"), ShareKey::user(verifier, name), "{verifier} {name}");
        }
        assert_eq!(ShareKey::connection(None), ShareKey::Unknown);
    }
}
