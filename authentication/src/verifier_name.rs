//! What knows a user, by name. Users of one name whom different verifiers know are different people, so no two
//! verifiers share a name: a cluster may be called `x509` or `front-proxy`, and is still no authority of certificates.

use std::fmt;

use tributary_apimachinery::ClusterName;

/// What kind of verifier knows a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Personal,
    Anonymous,
    ClientCertificate,
    FrontProxy,
    Issuer,
    Cluster,
}

/// What knows a user. Equal names are of one verifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VerifierName {
    kind: Kind,
    text: String,
}

impl VerifierName {
    fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The one credential of personal mode.
    pub fn personal() -> Self {
        Self::new(Kind::Personal, "personal")
    }

    /// Nothing: the user is a stranger.
    pub fn anonymous() -> Self {
        Self::new(Kind::Anonymous, "anonymous")
    }

    /// Whether the user is not authenticated.
    pub fn is_anonymous(&self) -> bool {
        self.kind == Kind::Anonymous
    }

    /// The authorities of client certificates, `--client-ca-file`.
    pub fn client_certificates() -> Self {
        Self::new(Kind::ClientCertificate, "x509")
    }

    /// The authorities of client certificates at the hosts of one cluster.
    pub fn client_certificates_of(cluster: &ClusterName) -> Self {
        Self::new(Kind::ClientCertificate, format!("x509:{cluster}"))
    }

    /// A proxy in front, `--requestheader-client-ca-file`.
    pub fn front_proxy() -> Self {
        Self::new(Kind::FrontProxy, "front-proxy")
    }

    /// An issuer of JSON Web Tokens, by its URL.
    pub fn issuer(url: &str) -> Self {
        Self::new(Kind::Issuer, url)
    }

    /// A cluster that reviews tokens.
    pub fn cluster(cluster: &ClusterName) -> Self {
        Self::new(Kind::Cluster, format!("cluster:{cluster}"))
    }

    /// The name as text, for whoever tells users apart. An issuer's is its URL, as configured: it has a scheme of
    /// `https`, so that no other verifier has it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is a cluster, by its word on tokens.
    pub(crate) fn is_cluster(&self) -> bool {
        self.kind == Kind::Cluster
    }

    /// Whether a connection on which a user is known by it is that user's own. It is not where a proxy in front sends
    /// the requests of many, nor in personal mode, in which all are one person's.
    pub fn has_own_connection(&self) -> bool {
        !matches!(self.kind, Kind::Personal | Kind::FrontProxy)
    }
}

impl From<&str> for VerifierName {
    /// An issuer, by its URL.
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
    fn a_cluster_is_no_other_verifier_whatever_it_is_called() {
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
