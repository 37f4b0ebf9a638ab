//! Generates the serving certificate of a simulated member, and its certificate authority.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A generated authority, and a serving certificate for 127.0.0.1 and localhost.
pub(crate) struct SimulatedCertificates {
    pub(crate) ca_pem: String,
    /// The serving certificate, in DER.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Generates an authority and a serving certificate. The private keys live as long as the process and are never written
/// to a file.
pub(crate) fn generate(name: &str) -> Result<SimulatedCertificates, rcgen::Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.distinguished_name.push(DnType::CommonName, format!("{name} simulated authority"));
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);

    let key = KeyPair::generate()?;
    let mut serving = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    serving.distinguished_name.push(DnType::CommonName, format!("{name} simulated member"));
    let certificate = serving.signed_by(&key, &issuer)?;
    Ok(SimulatedCertificates {
        ca_pem: ca_certificate.pem(),
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
    })
}
