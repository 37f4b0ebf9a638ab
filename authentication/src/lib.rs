//! Authentication of requests. It turns a client certificate, a bearer token or the headers of a front proxy into a
//! [`UserInfo`] with the [`Authority`] that vouches for it, and decides which parts of it a member cluster may be told
//! ([`identity_for`]).
//!
//! The crate decides and does no I/O: keys and files are arguments, and remote questions about a token go through
//! traits ([`FetchDocument`], [`TokenReviewer`]). The server calls it once per request, before the router sees the
//! request.
//!
//! It is never more permissive than kube-apiserver; each known difference is stricter. The cases of
//! `e2e/tests/e2e/authentication.rs` give the same certificates and tokens to both.

mod configuration;
mod followed_tokens;
mod identity;
mod issuer_keys;
mod jwk;
mod jwt;
mod member_keys;
mod request_header;
mod requested_certificate;
mod review_bounds;
#[cfg(test)]
mod testing;
mod token_authenticator;
mod token_cache;
mod token_review;
mod user;
mod verifier_name;
mod verifiers;
mod version_one;
mod x509;

pub use configuration::{AuthenticationConfiguration, ClaimMapping, InvalidConfiguration, JwtAuthenticator};
pub use followed_tokens::FollowedToken;
pub use identity::{
    MemberRules, NotSent, counted_names, identity_for, identity_for_other_members, impersonated_identity,
    names_beyond_member,
};
pub use issuer_keys::{FetchDocument, IssuerError};
pub use jwk::{JsonWebKeySet, SigningAlgorithm};
pub use jwt::{Token, TokenError, Verified};
pub use member_keys::MemberKeys;
pub use request_header::{FrontProxyError, RequestHeaders};
pub use requested_certificate::RequestedCertificate;
pub use review_bounds::TooManyReviews;
pub use token_authenticator::{Authenticated, TokenAuthenticationError, TokenAuthenticator, TokenReviews};
pub use token_review::{ReviewError, TokenReviewer, review_answer, review_request};
pub use user::{Authority, CREDENTIAL_ID, Reach, UserInfo};
pub use verifier_name::VerifierName;
pub use verifiers::{Addressed, BearerToken, TokenRefused, Verifier, VerifierRules};
pub use x509::{CertificateError, ClientCertificates, time_text};
