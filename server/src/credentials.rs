//! What an endpoint proves itself by, and its one client: a serving certificate that is given, or what personal mode
//! makes for itself in the data directory, a certificate authority with a serving certificate and the one client
//! credential.

pub mod certificates;
mod named_certificates;
pub(crate) mod pem;
pub mod serving;
pub mod token;
pub mod user_certificate;

pub use certificates::{CertificateError, Certificates};
pub use named_certificates::{CertificateName, NamedCertificates};
pub use serving::{ServingCertificateError, certified_key, doubts};
pub use token::{BearerToken, TokenDigest, TokenError};
