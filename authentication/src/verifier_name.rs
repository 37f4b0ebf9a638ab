//! The name of the verifier that authenticated a user. Users of the same name from different verifiers are different
//! users, so two verifiers never have the same name. The name of a cluster may be `x509` or `front-proxy` without a
//! conflict.

use std::fmt;

use tributary_apimachinery::ClusterName;

/// The name of the hub's verifiers as text.
const HUB: &str = "hub";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Personal,
    Anonymous,
    ClientCertificate,
    FrontProxy,
    Issuer,
    Cluster,
    Hub,
    HubFrontProxy,
}

/// The name of a verifier. Equal names mean the same verifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VerifierName {
    kind: Kind,
    text: String,
}

impl VerifierName {
    fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The name of the single credential of the personal mode.
    pub fn personal() -> Self {
        Self::new(Kind::Personal, "personal")
    }

    /// The name of the verifier of anonymous users.
    pub fn anonymous() -> Self {
        Self::new(Kind::Anonymous, "anonymous")
    }

    /// Returns whether the user is not authenticated.
    pub fn is_anonymous(&self) -> bool {
        self.kind == Kind::Anonymous
    }

    /// The name of the authorities of `--client-ca-file`.
    pub fn client_certificates() -> Self {
        Self::new(Kind::ClientCertificate, "x509")
    }

    /// The name of the authorities of client certificates for the hosts of one cluster.
    pub fn client_certificates_of(cluster: &ClusterName) -> Self {
        Self::new(Kind::ClientCertificate, format!("x509:{cluster}"))
    }

    /// The name of a front proxy, with a certificate of `--requestheader-client-ca-file`.
    pub fn front_proxy() -> Self {
        Self::new(Kind::FrontProxy, "front-proxy")
    }

    /// The name of an issuer of JSON Web Tokens, identified by its URL.
    pub fn issuer(url: &str) -> Self {
        Self::new(Kind::Issuer, url)
    }

    /// The name of a cluster that reviews tokens.
    pub fn cluster(cluster: &ClusterName) -> Self {
        Self::new(Kind::Cluster, format!("cluster:{cluster}"))
    }

    /// The name of the hub, for a user who authenticated directly: by a certificate of the hub's client authorities, or
    /// by a TokenReview at the hub.
    pub fn hub() -> Self {
        Self::new(Kind::Hub, HUB)
    }

    /// The name of the hub, for a user whom the front proxy of the hub's kube-apiserver names. The text equals the text
    /// of [`hub`](Self::hub), because both have the same users: a user has one share of each limit on both ways.
    pub fn hub_front_proxy() -> Self {
        Self::new(Kind::HubFrontProxy, HUB)
    }

    /// Returns whether the hub authenticated the user, directly or by its front proxy.
    pub fn is_hub(&self) -> bool {
        matches!(self.kind, Kind::Hub | Kind::HubFrontProxy)
    }

    /// The name of the verifier as text. For an issuer the text is the configured URL: no other verifier's name begins
    /// with `https`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the verifier is a cluster that reviewed a token.
    pub(crate) fn is_cluster(&self) -> bool {
        self.kind == Kind::Cluster
    }

    /// Returns whether all requests of one connection come from a single user. A front proxy sends the requests of many
    /// users on one connection. In personal mode, all connections belong to one person, so the function returns false.
    pub fn has_own_connection(&self) -> bool {
        !matches!(self.kind, Kind::Personal | Kind::FrontProxy | Kind::HubFrontProxy)
    }
}

impl From<&str> for VerifierName {
    fn from(url: &str) -> Self {
        Self::issuer(url)
    }
}

impl fmt::Display for VerifierName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_names_of_different_kinds_never_collide() {
        let others = [
            VerifierName::personal(),
            VerifierName::anonymous(),
            VerifierName::client_certificates(),
            VerifierName::front_proxy(),
            VerifierName::issuer("https://issuer"),
            VerifierName::hub(),
            VerifierName::hub_front_proxy(),
        ];
        for other in others {
            let Ok(called) = ClusterName::new(other.as_str()) else { continue };
            let cluster = VerifierName::cluster(&called);
            assert_ne!(cluster, other);
            assert_ne!(cluster.as_str(), other.as_str());
            assert!(cluster.has_own_connection(), "{called}");
            assert_ne!(VerifierName::client_certificates_of(&called), other);
        }
        assert!(!VerifierName::front_proxy().has_own_connection());
        let (direct, proxied) = (VerifierName::hub(), VerifierName::hub_front_proxy());
        assert!(direct != proxied && direct.as_str() == proxied.as_str() && direct.is_hub() && proxied.is_hub());
        assert!(direct.has_own_connection() && !proxied.has_own_connection());
        assert!(!VerifierName::cluster(&ClusterName::new("hub").unwrap()).is_hub());
    }
}
