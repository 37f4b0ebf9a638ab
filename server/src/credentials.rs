//! What an endpoint proves itself by, and its one client: a serving certificate that is given, or what personal mode
//! makes for itself in the data directory, a certificate authority with a serving certificate and the one client
//! credential.

pub mod certificates;
pub(crate) mod pem;
pub mod token;
pub mod user_certificate;

pub use certificates::{CertificateError, Certificates};
pub use token::{BearerToken, TokenDigest, TokenError};
