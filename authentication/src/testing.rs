//! A test issuer of JSON Web Tokens with one signing key.

use std::collections::BTreeMap;
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::configuration::{ClaimMapping, JwtAuthenticator};
use crate::jwk::JsonWebKeySet;

pub(crate) struct TestSigner {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl TestSigner {
    pub(crate) fn new(id: &'static str) -> Self {
        Self { pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), id }
    }

    /// Returns the public key in the JSON of RFC 7517.
    pub(crate) fn key(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({"kty": "EC", "kid": self.id, "crv": "P-256", "x": x, "y": y})
    }

    pub(crate) fn keys(&self) -> JsonWebKeySet {
        JsonWebKeySet::parse(json!({"keys": [self.key()]}).to_string().as_bytes()).unwrap()
    }

    /// Returns a signed token with these claims.
    pub(crate) fn signed(&self, claims: &str) -> String {
        self.signed_under(&json!({"alg": "ES256", "kid": self.id}), claims)
    }

    /// Returns a signed token with this header and these claims.
    pub(crate) fn signed_under(&self, header: &Value, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Returns an issuer with the audience `me`, whose `sub` claim becomes the user's name.
pub(crate) fn issuer(url: &str) -> JwtAuthenticator {
    JwtAuthenticator {
        issuer_url: url.to_owned(),
        discovery_url: format!("{url}/.well-known/openid-configuration"),
        certificate_authority: None,
        audiences: vec!["me".to_owned()],
        required_claims: BTreeMap::new(),
        username: ClaimMapping { claim: "sub".to_owned(), prefix: String::new() },
        groups: None,
        uid: None,
    }
}

/// Returns valid claims of a token that expires after this number of seconds.
pub(crate) fn claims(issuer: &str, user: &str, seconds: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    json!({"iss": issuer, "aud": "me", "sub": user, "exp": now + seconds}).to_string()
}
