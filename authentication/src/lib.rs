//! Who asks. A certificate, a token or a front proxy's headers become a [`UserInfo`], with whose word that is
//! ([`Authority`]) and the rules of what of it a member may be told ([`identity_for`]).
//!
//! It decides and does no I/O: keys and files are arguments, and what has to be asked for a token is asked by traits
//! ([`FetchDocument`], [`TokenReviewer`]). The server asks it once per request, before the router sees the request.
//!
//! Where it departs from kube-apiserver it refuses what that accepts, never the other way round. The cases of
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
    MemberRules, NotSent, asked_identity, identity_beyond_member, identity_elsewhere, identity_for,
    identity_that_counts,
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
