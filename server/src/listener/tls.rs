//! TLS towards clients: 1.2 and 1.3, HTTP/2 before HTTP/1.1, and a certificate that can be replaced while serving.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The serving certificate of the moment. Connections that are open keep the one they began with.
pub struct ServingCertificate(ArcSwap<CertifiedKey>);

impl ServingCertificate {
    /// Serves with this certificate at first.
    pub fn new(certificate: CertifiedKey) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(certificate)))
    }

    /// Serves new connections with another certificate.
    pub fn replace(&self, certificate: CertifiedKey) {
        self.0.store(Arc::new(certificate));
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingCertificate(..)")
    }
}

/// The TLS configuration of a listener. Clients that offer no ALPN get HTTP/1.1,
/// or HTTP/2 if they begin with its preface.
///
/// # Errors
/// Only if the crypto provider lacks TLS 1.2 and 1.3, which aws-lc-rs does not.
pub fn server_config(certificate: Arc<ServingCertificate>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
