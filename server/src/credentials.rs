//! The credentials of an endpoint. Flags may name a serving certificate. In personal mode, the endpoint creates its own
//! credentials in the data directory: an authority, a serving certificate and the token.

pub mod certificates;
pub(crate) mod pem;
pub mod token;
pub mod user_certificate;

pub use certificates::{CertificateError, Certificates};
pub use token::{BearerToken, TokenDigest, TokenError};
