//! The name of the verifier that authenticated a user. Users of the same name from different verifiers are different
//! users, so two verifiers never share a name: a cluster may be called `x509` or `front-proxy` and is still distinct
//! from them.

use std::fmt;

use tributary_apimachinery::ClusterName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Personal,
    Anonymous,
    ClientCertificate,
    FrontProxy,
    Issuer,
    Cluster,
}

/// The name of a verifier. Equal names are the same verifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VerifierName {
    kind: Kind,
    text: String,
}

impl VerifierName {
    fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The single credential of the personal mode.
    pub fn personal() -> Self {
        Self::new(Kind::Personal, "personal")
    }

    /// The verifier of anonymous users.
    pub fn anonymous() -> Self {
        Self::new(Kind::Anonymous, "anonymous")
    }

    /// Whether the user is not authenticated.
    pub fn is_anonymous(&self) -> bool {
        self.kind == Kind::Anonymous
    }

    /// The authorities of `--client-ca-file`.
    pub fn client_certificates() -> Self {
        Self::new(Kind::ClientCertificate, "x509")
    }

    /// The authorities of client certificates for the hosts of one cluster.
    pub fn client_certificates_of(cluster: &ClusterName) -> Self {
        Self::new(Kind::ClientCertificate, format!("x509:{cluster}"))
    }

    /// A front proxy, with a certificate of `--requestheader-client-ca-file`.
    pub fn front_proxy() -> Self {
        Self::new(Kind::FrontProxy, "front-proxy")
    }

    /// An issuer of JSON Web Tokens, identified by its URL.
    pub fn issuer(url: &str) -> Self {
        Self::new(Kind::Issuer, url)
    }

    /// A cluster that reviews tokens.
    pub fn cluster(cluster: &ClusterName) -> Self {
        Self::new(Kind::Cluster, format!("cluster:{cluster}"))
    }

    /// The name as text, which distinguishes users of different verifiers. For an issuer it is the configured URL: no
    /// other verifier's name begins with `https`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the verifier is a cluster that reviewed a token.
    pub(crate) fn is_cluster(&self) -> bool {
        self.kind == Kind::Cluster
    }

    /// Whether a connection belongs to a single user. It does not if a front proxy sends the requests of many users,
    /// nor in personal mode, in which all connections belong to one person.
    pub fn has_own_connection(&self) -> bool {
        !matches!(self.kind, Kind::Personal | Kind::FrontProxy)
    }
}

impl From<&str> for VerifierName {
    /// The name of an issuer with this URL.
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
    fn cluster_name_never_equals_another_verifier() {
        let others = [
            VerifierName::personal(),
            VerifierName::anonymous(),
            VerifierName::client_certificates(),
            VerifierName::front_proxy(),
            VerifierName::issuer("https://issuer"),
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
    }
}
