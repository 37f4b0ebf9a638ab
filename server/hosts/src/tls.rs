//! The TLS settings of a cluster's own hosts.

use std::fmt;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;
use tributary_apimachinery::HostName;
use tributary_authentication::ClientCertificates;

/// A cluster's own serving certificate, and its own authorities for client certificates. Each is optional.
pub struct HostTls {
    /// A fingerprint of the TLS settings. If two fingerprints are equal, the TLS settings are equal byte for byte.
    pub fingerprint: String,
    /// The serving certificate of the hosts; `None` for the common certificate.
    pub serving: Option<Arc<CertifiedKey>>,
    /// The authorities for client certificates; `None` for the common authorities.
    pub client_authorities: Option<Arc<ClientCertificates>>,
}

/// Returns whether a certificate is valid for a host name. The issuer is not checked.
pub fn is_valid_for(certificate: &CertifiedKey, host: &HostName) -> bool {
    let parsed = certificate.end_entity_cert().and_then(ParsedCertificate::try_from);
    let name = ServerName::try_from(host.as_str());
    parsed.ok().zip(name.ok()).is_some_and(|(parsed, name)| verify_server_name(&parsed, &name).is_ok())
}

impl fmt::Debug for HostTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTls").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}
