//! A user, and the authority that authenticated the user.

use tributary_apimachinery::ClusterName;
pub use tributary_apimachinery::UserInfo;
use tributary_limiters::ShareKey;

use crate::verifier_name::VerifierName;

/// The key of the extra field in which kube-apiserver records the credential of the request. No rule of Tributary
/// depends on this field.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The members in which an authenticated user is valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All members, because Tributary's own configuration authenticates the user.
    Everywhere,
    /// All members, because the token-review cluster authenticated the user, and Tributary's configuration trusts this
    /// cluster. Attributes that have a meaning only in one cluster are sent to this cluster alone.
    EverywhereFrom(ClusterName),
    /// Only this member. In other members the user is not valid, whatever the user's name is.
    Member(ClusterName),
}

impl Reach {
    /// Returns whether `member` authenticated the user. If so, all attributes that the member reported may be sent to
    /// the member.
    pub fn is_vouched_by(&self, member: &ClusterName) -> bool {
        self.home() == Some(member)
    }

    /// Returns the member that authenticated the user, if any.
    pub fn home(&self) -> Option<&ClusterName> {
        match self {
            Self::Everywhere => None,
            Self::EverywhereFrom(cluster) | Self::Member(cluster) => Some(cluster),
        }
    }
}

/// The authority that authenticated a user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The verifier that authenticated the user.
    pub verifier: VerifierName,
    /// The members in which the user is valid.
    pub reach: Reach,
}

impl Authority {
    /// Returns the only member in which the user is valid, if this member authenticated the user by a TokenReview. An
    /// administrator of the member can create any number of ServiceAccounts. All users of the member together therefore
    /// get only one share of each limited resource.
    ///
    /// Returns `None` if Tributary's own configuration authenticates the user. Certificate authorities for the hosts of
    /// one cluster belong to this configuration, too, because the cluster cannot issue their certificates.
    pub fn vouching_member(&self) -> Option<&ClusterName> {
        match &self.reach {
            Reach::Member(cluster) if self.verifier.is_cluster() => Some(cluster),
            _ => None,
        }
    }

    /// Returns the key of a user's fair share of limits, for a user of this name.
    pub fn share_key(&self, username: &str) -> ShareKey {
        let verifier = self.verifier.as_str();
        match self.vouching_member() {
            None => ShareKey::user(verifier, username),
            Some(member) => ShareKey::user_of_member(member.as_str(), verifier, username),
        }
    }
}

/// Sender of a request, as determined by authentication. Both fields decide which attributes of the user a cluster may
/// see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Attributes of the user. A user that a verifier authenticated always has the group `system:authenticated`.
    pub info: UserInfo,
    /// The part of Tributary that authenticated the user, and the clusters in which the user is valid.
    pub authority: Authority,
}

impl User {
    /// A user with only a name, valid in all clusters. `verifier` is the part of Tributary that authenticated the user,
    /// as in [`Authority::verifier`].
    pub fn named(verifier: impl Into<VerifierName>, name: &str) -> Self {
        let info = UserInfo { username: name.to_owned(), ..UserInfo::default() };
        Self { info, authority: Authority { verifier: verifier.into(), reach: Reach::Everywhere } }
    }

    /// Returns the key of the user's fair share of limits. Impersonation does not change the key: a user who may act as
    /// many users has one share.
    pub fn share_key(&self) -> ShareKey {
        self.authority.share_key(&self.info.username)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vouching_member_is_the_cluster_that_reviewed_the_token() {
        let a = ClusterName::new("a").unwrap();
        let in_a = || Reach::Member(a.clone());
        for (verifier, reach, expected) in [
            (VerifierName::cluster(&a), in_a(), Some(&a)),
            (VerifierName::cluster(&a), Reach::EverywhereFrom(a.clone()), None),
            (VerifierName::client_certificates_of(&a), in_a(), None),
            (VerifierName::client_certificates(), Reach::Everywhere, None),
            (VerifierName::issuer("https://issuer"), Reach::Everywhere, None),
            (VerifierName::front_proxy(), Reach::Everywhere, None),
        ] {
            let authority = Authority { verifier, reach };
            assert_eq!(authority.vouching_member(), expected, "{authority:?}");
        }
    }

    #[test]
    fn users_of_one_member_are_different_holders_with_one_member_hash() {
        let of = |member: &str, name| {
            let member = ClusterName::new(member).unwrap();
            let authority = Authority { verifier: VerifierName::cluster(&member), reach: Reach::Member(member) };
            authority.share_key(name)
        };
        let (ann, bob, other) = (of("a", "ann"), of("a", "bob"), of("b", "ann"));
        assert!(ann == of("a", "ann") && ann != bob && ann != other);
        assert!(ann.member().is_some() && ann.member() == bob.member() && ann.member() != other.member());
        let configured = Authority { verifier: VerifierName::client_certificates(), reach: Reach::Everywhere };
        let configured = configured.share_key("ann");
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
