//! What personal mode makes for itself in the data directory: a certificate authority with a serving certificate, and
//! the one client credential.

pub mod certificates;
pub mod token;

pub use certificates::{CertificateError, Certificates};
pub use token::{BearerToken, TokenDigest, TokenError};
