//! TLS towards clients: 1.2 and 1.3, HTTP/2 before HTTP/1.1, a certificate and authorities that can be exchanged while
//! serving.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::TlsAcceptor;

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

/// The versions of TLS that are spoken, the newest first.
pub type TlsVersions = &'static [&'static SupportedProtocolVersion];

/// TLS 1.2 and 1.3.
pub const TLS_1_2: TlsVersions = &[&rustls::version::TLS13, &rustls::version::TLS12];
/// TLS 1.3 alone.
pub const TLS_1_3: TlsVersions = &[&rustls::version::TLS13];

/// How a listener speaks TLS with the next connection.
#[derive(Debug)]
pub struct TlsSettings {
    certificate: Arc<ServingCertificate>,
    versions: TlsVersions,
    current: ArcSwap<ServerConfig>,
}

impl TlsSettings {
    /// Clients that offer no ALPN get HTTP/1.1, or HTTP/2 if they begin with its preface. They are not asked for a
    /// certificate.
    ///
    /// # Errors
    /// Only if the crypto provider lacks these versions, which aws-lc-rs does not.
    pub fn new(certificate: Arc<ServingCertificate>, versions: TlsVersions) -> Result<Self, rustls::Error> {
        let config = server_config(Arc::clone(&certificate), versions, None)?;
        Ok(Self { certificate, versions, current: ArcSwap::from_pointee(config) })
    }

    /// Asks further connections for a certificate of these authorities (names as DER). They need not have one.
    ///
    /// TLS sessions of before are not resumed: their store goes with the configuration.
    ///
    /// # Errors
    /// As [`TlsSettings::new`].
    pub fn ask_for(&self, authorities: Vec<Vec<u8>>) -> Result<(), rustls::Error> {
        let authorities = authorities.into_iter().map(DistinguishedName::from).collect();
        let config = server_config(Arc::clone(&self.certificate), self.versions, Some(authorities))?;
        self.current.store(Arc::new(config));
        Ok(())
    }

    /// What shakes hands with the next connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load_full())
    }
}

fn server_config(
    certificate: Arc<ServingCertificate>,
    versions: TlsVersions,
    authorities: Option<Vec<DistinguishedName>>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            builder.with_client_cert_verifier(Arc::new(RequestedCertificate { authorities, algorithms }))
        }
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes any certificate whose key the client has shown to hold, as Go's `tls.RequestClientCert` does, which
/// kube-apiserver uses: who vouches for it is asked at each request, when it counts, and a client with a stale
/// certificate and a good token is let in.
#[derive(Debug)]
struct RequestedCertificate {
    authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for RequestedCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
