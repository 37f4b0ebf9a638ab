//! Holders of parts of shared bounds.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;

use tributary_authentication::Authority;
use tributary_limiters::ShareHolder;
use tributary_proxy::Peer;

/// Holder of a part of a shared bound: requests in flight, bytes, turns.
///
/// On a personal endpoint each connection is a holder: a program must not keep the other programs waiting. On a shared
/// endpoint each user is a holder, with any number of connections, and also behind the single connection of a front
/// proxy. kube-apiserver separates flows by user, too (API Priority and Fairness, `ByUser`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A sender without an address. All such senders are one holder.
    #[default]
    Unknown,
    /// A connection, by its far end.
    Connection(SocketAddr),
    /// A user, by a keyed hash of who that is: 64 bits, so that of a million users two share a part once in
    /// 37 million times, which costs them waiting and shows them nothing.
    User(u64),
    /// A user for whom one member alone vouches, by keyed hashes. All such users of a member share a part, of which
    /// each has a part: a person who can create one such user can create thousands.
    OfMember {
        /// Hash of the member.
        member: u64,
        /// Hash of the user.
        user: u64,
    },
}

/// Key of the hashes, so that no client chooses a name with the hash of another user.
static USERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Holder {
    /// The connection that a request came by, where that is known.
    pub fn connection(peer: Option<Peer>) -> Self {
        peer.map_or(Self::Unknown, |Peer(address)| Self::Connection(address))
    }

    /// Holder for an authenticated user, whomever the user impersonates: a user who may act as many users has one part.
    pub fn of_user(authority: &Authority, name: &str) -> Self {
        let verifier = authority.verifier.as_str();
        match authority.vouching_member() {
            None => Self::user(verifier, name),
            Some(member) => Self::OfMember { member: USERS.hash_one(member), user: USERS.hash_one((verifier, name)) },
        }
    }

    /// Holder for a user of a verifier in the configuration.
    pub fn user(verifier: &str, name: &str) -> Self {
        Self::User(USERS.hash_one((verifier, name)))
    }

    /// Member whose users share a part.
    pub fn member(self) -> Option<u64> {
        match self {
            Self::OfMember { member, .. } => Some(member),
            Self::Unknown | Self::Connection(_) | Self::User(_) => None,
        }
    }
}

impl ShareHolder for Holder {
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
    fn users_of_one_member_are_many_and_share_its_part() {
        let of = |member: &str, name| {
            let member = ClusterName::new(member).unwrap();
            let authority = Authority { verifier: VerifierName::cluster(&member), reach: Reach::Member(member) };
            Holder::of_user(&authority, name)
        };
        let (ann, bob, other) = (of("a", "ann"), of("a", "bob"), of("b", "ann"));
        assert!(ann == of("a", "ann") && ann != bob && ann != other);
        assert!(ann.member().is_some() && ann.member() == bob.member() && ann.member() != other.member());
        let configured = Authority { verifier: VerifierName::client_certificates(), reach: Reach::Everywhere };
        let configured = Holder::of_user(&configured, "ann");
        assert_eq!((configured, configured.member()), (Holder::user("x509", "ann"), None));
    }

    #[test]
    fn a_user_is_one_by_whatever_connection_and_another_of_the_name_is_another() {
        assert_eq!(Holder::user("a", "ann"), Holder::user("a", "ann"));
        for (verifier, name) in [("b", "ann"), ("a", "bob"), ("aa", "nn"), ("", "aann")] {
            assert_ne!(Holder::user("a", "ann"), Holder::user(verifier, name), "{verifier} {name}");
        }
        assert_eq!(Holder::connection(None), Holder::Unknown);
    }
}
