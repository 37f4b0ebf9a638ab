//! How TLS is spoken at a cluster's own hosts, where that is not as everywhere else.

use std::fmt;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;
use tributary_apimachinery::HostName;
use tributary_authentication::ClientCertificates;

/// A cluster's own serving certificate, and the authorities that vouch for clients at its hosts. Either may be missing.
pub struct HostTls {
    /// Equal where both are the same, byte for byte.
    pub fingerprint: String,
    /// What clients see.
    pub serving: Option<Arc<CertifiedKey>>,
    /// Who vouches for clients, in the place of those who do so elsewhere.
    pub client_authorities: Option<Arc<ClientCertificates>>,
}

/// Whether clients that ask for a host take the certificate for it, whoever has signed it.
pub fn is_for(certificate: &CertifiedKey, host: &HostName) -> bool {
    let parsed = certificate.end_entity_cert().and_then(ParsedCertificate::try_from);
    let name = ServerName::try_from(host.as_str());
    parsed.ok().zip(name.ok()).is_some_and(|(parsed, name)| verify_server_name(&parsed, &name).is_ok())
}

impl fmt::Debug for HostTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTls").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}
