//! A serving certificate that somebody gives, with its key.

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a certificate and a key are none to serve with. Never quotes them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServingCertificateError {
    /// What should be certificates cannot be read.
    #[error("{0}")]
    Certificate(String),
    /// There is none.
    #[error("it holds no certificate")]
    NoCertificate,
    /// What should be a key is none. What the parser says of it could quote it.
    #[error("it holds no private key")]
    NoKey,
    /// The key is another certificate's, or of a kind that is not known.
    #[error("it is not the key of the certificate: {0}")]
    OtherKey(String),
}

impl ServingCertificateError {
    /// Whether it is the key, not the certificate, that is at fault.
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::OtherKey(_))
    }
}

/// Takes a chain, leaf first, and the leaf's key, both PEM.
///
/// # Errors
/// [`ServingCertificateError`].
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, ServingCertificateError> {
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| ServingCertificateError::Certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(ServingCertificateError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| ServingCertificateError::NoKey)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider);
    key.map_err(|error| ServingCertificateError::OtherKey(error.to_string()))
}
