//! The credentials of an endpoint. The serving certificate is given by flags. In personal mode the endpoint makes its
//! own in the data directory: an authority, a serving certificate and the one client credential.

pub mod certificates;
pub(crate) mod pem;
pub mod token;
pub mod user_certificate;

pub use certificates::{CertificateError, Certificates};
pub use token::{BearerToken, TokenDigest, TokenError};
