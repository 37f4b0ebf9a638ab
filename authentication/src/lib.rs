//! Authentication of requests. The crate converts a client certificate, a bearer token or the headers of a front proxy
//! into a [`UserInfo`] and an [`Authority`]. [`identity_for`] decides which parts of the user are sent to a member
//! cluster.
//!
//! The crate does no I/O. Keys and files are arguments, and remote requests about a token go through traits
//! ([`FetchDocument`], [`TokenReviewer`]). The server authenticates each request before the router gets the request.
//!
//! Authentication is never more permissive than in kube-apiserver; each known difference is stricter. The test cases of
//! `e2e/tests/e2e/authentication.rs` send the same certificates and tokens to Tributary and to a kube-apiserver.

mod authority;
mod check_cache;
mod configuration;
mod followed_tokens;
mod identity;
mod identity_exchange;
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
mod token_review;
mod user;
mod verifiers;
mod version_one;
mod x509;

pub use authority::Authority;
pub use check_cache::{CachedCheck, CheckCache, CheckKey};
pub use configuration::{AuthenticationConfiguration, ClaimMapping, InvalidConfiguration, JwtAuthenticator};
pub use followed_tokens::FollowedToken;
pub use identity::{
    MemberRules, NotSent, counted_names, identity_at_hub, identity_for, identity_for_other_members,
    impersonated_identity, names_beyond_member,
};
pub use identity_exchange::{
    ExchangeRule, ExchangedIdentity, IdentityPolicy, IdentityRules, InvalidPattern, RuleSource,
};
pub use issuer_keys::{FetchDocument, IssuerError};
pub use jwk::{JsonWebKeySet, SigningAlgorithm};
pub use jwt::{Token, TokenError};
pub use member_keys::MemberKeys;
pub use request_header::{FrontProxyError, RequestHeaders, UserHeaders};
pub use requested_certificate::RequestedCertificate;
pub use review_bounds::TooManyReviews;
pub use token_authenticator::{Authenticated, TokenAuthenticationError, TokenAuthenticator, TokenReviews};
pub use token_review::{ReviewError, TokenReviewer, parse_review, review_request};
pub use user::{CREDENTIAL_ID, User, UserInfo};
pub use verifiers::{AddressedCluster, BearerToken, TokenRefused, Verifier, VerifierRules};
pub use x509::{CertificateError, ClientCertificates, time_text};
