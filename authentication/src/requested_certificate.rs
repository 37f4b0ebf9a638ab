//! The request for a client certificate that the server sends in a TLS handshake.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::version_one::{verify_tls12_signature, verify_tls13_signature};

/// Accepts any certificate whose private key the client has, as Go's `tls.RequestClientCert` does in kube-apiserver.
/// The certificate's authority is checked for each request, so that a client with an expired certificate and a valid
/// token is accepted.
#[derive(Debug)]
pub struct RequestedCertificate {
    /// The names of the accepted authorities, which are sent to the client.
    pub authorities: Vec<DistinguishedName>,
    /// The signature algorithms that a client may use.
    pub algorithms: WebPkiSupportedAlgorithms,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{Issuer, KeyPair};
    use rustls::crypto::aws_lc_rs;
    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion,
    };
    use rustls_pki_types::PrivateKeyDer;

    use super::*;
    use crate::version_one::tests::{as_version_one, named};

    /// Returns whether a TLS handshake succeeds for a client with this certificate and this signing key.
    fn shakes_hands(
        version: &'static SupportedProtocolVersion,
        certificate: &CertificateDer<'static>,
        key: &KeyPair,
    ) -> Result<(), rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let (own, own_key) =
            (KeyPair::generate().unwrap(), |key: &KeyPair| PrivateKeyDer::try_from(key.serialize_der()));
        let serving = named("server").self_signed(&own).unwrap().der().clone();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[version])?;
        let requested = RequestedCertificate { authorities: Vec::new(), algorithms };
        let server = server.with_client_cert_verifier(Arc::new(requested));
        let mut trusted = RootCertStore::empty();
        trusted.add(serving.clone())?;
        let server = server.with_single_cert(vec![serving], own_key(&own).unwrap())?;
        let signing = provider.key_provider.load_private_key(own_key(key).unwrap())?;
        // In some test cases, the signing key does not belong to the certificate.
        let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.clone()], signing));
        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version])?;
        let client = client.with_root_certificates(trusted).with_client_cert_resolver(Arc::new(shown));
        let mut server = ServerConnection::new(Arc::new(server))?;
        let mut client = ClientConnection::new(Arc::new(client), "server".try_into().unwrap())?;
        for _ in 0..8 {
            let mut sent = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut sent).unwrap();
            }
            let mut sent = &sent[..];
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                server.process_new_packets()?;
            }
            let mut answered = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answered).unwrap();
            }
            let mut answered = &answered[..];
            while !answered.is_empty() {
                client.read_tls(&mut answered).unwrap();
                client.process_new_packets()?;
            }
        }
        assert!(!server.is_handshaking() && server.peer_certificates() == Some(std::slice::from_ref(certificate)));
        Ok(())
    }

    #[test]
    fn handshake_requires_the_private_key_of_a_version_1_certificate() {
        let key = || KeyPair::generate().unwrap();
        let authority = Issuer::new(named("people"), key());
        let (own, other) = (key(), key());
        let certificate = named("ann").signed_by(&own, &authority).unwrap().der().clone();
        let version_one = as_version_one(&certificate, authority.key());
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            for certificate in [&certificate, &version_one] {
                assert_eq!(shakes_hands(version, certificate, &own), Ok(()), "{version:?}");
                assert!(shakes_hands(version, certificate, &other).is_err(), "{version:?}");
            }
        }
    }
}
