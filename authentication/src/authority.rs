//! The authority that authenticated a user. Users of the same name from different authorities are different users.

use std::borrow::Cow;
use std::fmt;

use tributary_apimachinery::ClusterName;
use tributary_limiters::ShareKey;

/// The part of Tributary, or the cluster, that authenticated a user. The authority determines the members in which the
/// user is valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Authority {
    /// The single credential of the personal mode.
    Personal,
    /// No authority: the user has no credentials.
    Anonymous,
    /// The authorities of `--client-ca-file`.
    ClientCertificates,
    /// The authorities of client certificates for the hosts of one cluster. Their users are valid only in this cluster.
    ClientCertificatesOf(ClusterName),
    /// A front proxy, with a certificate of `--requestheader-client-ca-file`.
    FrontProxy,
    /// An issuer of JSON Web Tokens, by its URL.
    Issuer(String),
    /// The token-review cluster, which Tributary's configuration trusts. Its users are valid in all members. Attributes
    /// that have a meaning only in one cluster are sent to this cluster alone.
    TokenReviewCluster(ClusterName),
    /// A member that reviewed the user's token. In other members the user is not valid, whatever the user's name is.
    Member(ClusterName),
    /// The hub, for a user who authenticated directly: by a certificate of the hub's client authorities, or by a
    /// TokenReview at the hub.
    Hub,
    /// The hub, for a user whom the front proxy of the hub's kube-apiserver names.
    HubFrontProxy,
}

impl Authority {
    /// Returns the name of the authority as text. No two authorities have the same text, except `Hub` and
    /// `HubFrontProxy`, which have the same users: a user has one share of each limit on both ways. The names of
    /// clusters have a prefix, because a cluster may be called `x509` or `front-proxy`.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Personal => "personal".into(),
            Self::Anonymous => "anonymous".into(),
            Self::ClientCertificates => "x509".into(),
            Self::ClientCertificatesOf(cluster) => format!("x509:{cluster}").into(),
            Self::FrontProxy => "front-proxy".into(),
            Self::Issuer(url) => url.into(),
            Self::TokenReviewCluster(cluster) | Self::Member(cluster) => format!("cluster:{cluster}").into(),
            Self::Hub | Self::HubFrontProxy => "hub".into(),
        }
    }

    /// Returns the member to which the authority belongs, if any. This member gets all attributes of the user.
    pub fn home(&self) -> Option<&ClusterName> {
        match self {
            Self::TokenReviewCluster(cluster) => Some(cluster),
            _ => self.only_member(),
        }
    }

    /// Returns the only member in which the user is valid; `None` if the user is valid in all members.
    pub fn only_member(&self) -> Option<&ClusterName> {
        match self {
            Self::ClientCertificatesOf(cluster) | Self::Member(cluster) => Some(cluster),
            _ => None,
        }
    }

    /// Returns whether the user is not authenticated.
    pub fn is_anonymous(&self) -> bool {
        *self == Self::Anonymous
    }

    /// Returns whether the hub authenticated the user, directly or by its front proxy.
    pub fn is_hub(&self) -> bool {
        matches!(self, Self::Hub | Self::HubFrontProxy)
    }

    /// Returns whether all requests of one connection come from a single user. A front proxy sends the requests of many
    /// users on one connection. In personal mode, all connections belong to one person, so the function returns false.
    pub fn has_own_connection(&self) -> bool {
        !matches!(self, Self::Personal | Self::FrontProxy | Self::HubFrontProxy)
    }

    /// Returns the key of a user's fair share of limits, for a user of this name.
    ///
    /// An administrator of a member can create any number of ServiceAccounts. All users whose tokens the member
    /// reviewed therefore get only one share of each limited resource together. Users of client certificates for the
    /// hosts of a cluster have own shares, because the cluster cannot issue their certificates.
    pub fn share_key(&self, username: &str) -> ShareKey {
        match self {
            Self::Member(member) => ShareKey::user_of_member(member.as_str(), &self.name(), username),
            _ => ShareKey::user(&self.name(), username),
        }
    }
}

impl From<&str> for Authority {
    fn from(url: &str) -> Self {
        Self::Issuer(url.to_owned())
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    #[test]
    fn names_of_different_authorities_never_collide() {
        let others = [
            Authority::Personal,
            Authority::Anonymous,
            Authority::ClientCertificates,
            Authority::FrontProxy,
            Authority::from("https://issuer"),
            Authority::Hub,
        ];
        for other in others {
            let Ok(called) = ClusterName::new(&other.name()) else { continue };
            let authorities = [Authority::Member(called.clone()), Authority::ClientCertificatesOf(called.clone())];
            assert!(authorities.iter().all(|own| own.name() != other.name() && own.has_own_connection()), "{called}");
            assert_ne!(authorities[0].name(), authorities[1].name());
        }
        assert_eq!(Authority::Hub.name(), Authority::HubFrontProxy.name());
        assert!(Authority::Hub.has_own_connection() && !Authority::HubFrontProxy.has_own_connection());
        assert!(!Authority::FrontProxy.has_own_connection() && !Authority::Member(cluster("hub")).is_hub());
    }

    #[test]
    fn users_of_one_member_are_different_holders_with_one_member_hash() {
        let of = |member: &str, name| Authority::Member(cluster(member)).share_key(name);
        let (ann, bob, other) = (of("a", "ann"), of("a", "bob"), of("b", "ann"));
        assert!(ann == of("a", "ann") && ann != bob && ann != other);
        assert!(ann.member().is_some() && ann.member() == bob.member() && ann.member() != other.member());
        for configured in [
            Authority::TokenReviewCluster(cluster("a")),
            Authority::ClientCertificatesOf(cluster("a")),
            Authority::ClientCertificates,
            Authority::from("https://issuer"),
            Authority::FrontProxy,
        ] {
            let share_key = configured.share_key("ann");
            assert_eq!((share_key, share_key.member()), (ShareKey::user(&configured.name(), "ann"), None));
        }
    }

    #[test]
    fn equal_user_names_of_two_authorities_have_separate_shares() {
        assert_eq!(ShareKey::user("a", "ann"), ShareKey::user("a", "ann"));
        for (authority, name) in [("b", "ann"), ("a", "bob"), ("aa", "nn"), ("", "aann")] {
            assert_ne!(ShareKey::user("a", "ann"), ShareKey::user(authority, name), "{authority} {name}");
        }
        assert_eq!(ShareKey::connection(None), ShareKey::Unknown);
    }
}
