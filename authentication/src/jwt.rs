//! Parses and verifies JSON Web Tokens of issuers (apiserver `plugin/pkg/authenticator/token/oidc`, go-oidc
//! `verify.go`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use crate::configuration::JwtAuthenticator;
use crate::jwk::{JsonWebKey, JsonWebKeySet, SigningAlgorithm};
use crate::user::{CREDENTIAL_ID, UserInfo};

/// The maximum length of a token, in bytes. A token that lists hundreds of groups of its user has some 20 KB.
pub(crate) const MAX_TOKEN: usize = 32 * 1024;

/// The tolerance for the `nbf` claim, because clocks differ. The value is from go-oidc, which has no tolerance for
/// `exp`.
const NOT_BEFORE_LEEWAY: Duration = Duration::from_secs(60);

/// The claims that decide whether a token is valid. Go matches their names in any case, so a second spelling of a claim
/// could have another meaning in kube-apiserver than in Tributary.
const REGISTERED: [&str; 10] =
    ["iss", "sub", "aud", "exp", "nbf", "iat", "nonce", "at_hash", "_claim_names", "_claim_sources"];

/// The reason why a token is rejected. The reason contains no text of the token except the issuer and names of claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token does not have three parts, or the header or the claims are not a JSON object.
    #[error("oidc: malformed jwt: {0}")]
    Malformed(&'static str),
    /// The algorithm is not RS, ES or PS with 256, 384 or 512.
    #[error("oidc: id token signed with unsupported algorithm")]
    Algorithm,
    /// No key of the issuer verifies the signature.
    #[error("failed to verify signature: failed to verify id token signature")]
    Signature,
    /// The `iss` claim names another issuer than the expected one.
    #[error("oidc: id token issued by a different provider")]
    Issuer,
    /// The `aud` claim contains none of the accepted audiences.
    #[error("oidc: expected audience in the issuer's audiences")]
    Audience,
    /// The token has expired, or has no `exp` claim.
    #[error("oidc: token is expired")]
    Expired,
    /// The `nbf` claim is in the future.
    #[error("oidc: current time is before the nbf (not before) time")]
    NotYet,
    /// A claim is missing or has a value that the configuration does not allow.
    #[error("oidc: claim {claim}: {problem}")]
    Claim {
        /// The name of the claim.
        claim: String,
        /// The problem with the claim.
        problem: &'static str,
    },
}

/// A parsed token that is not verified yet.
pub struct Token<'a> {
    algorithm: SigningAlgorithm,
    key_id: Option<String>,
    claims: Claims,
    message: &'a str,
    signature: Vec<u8>,
}

/// `Debug` leaves out the token's text, which must not be logged.
impl fmt::Debug for Token<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Token").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
    #[serde(default)]
    b64: Option<Value>,
}

/// The claims of a token. Each claim occurs only once.
struct Claims(BTreeMap<String, Value>);

impl<'a> Token<'a> {
    /// Parses a token without verifying it. `kid` only selects among the keys of the configured issuer. The header
    /// fields `jwk`, `jku` and `x5u`, with which a token could supply its own key, are ignored.
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Algorithm`]. Critical extensions (`crit`, `b64`) and duplicate claims
    /// are malformed.
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError::Malformed("the token is longer than 32 KiB"));
        }
        let three = TokenError::Malformed("the token does not have three parts");
        let (message, signature) = text.rsplit_once('.').ok_or(three.clone())?;
        let (header, payload) = message.split_once('.').ok_or(three.clone())?;
        if payload.contains('.') {
            return Err(three);
        }
        let decoded = |part: &str| {
            URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed("a part of the token is not base64url"))
        };
        let header: Header = serde_json::from_slice(&decoded(header)?)
            .map_err(|_| TokenError::Malformed("the header is not an object with alg"))?;
        if header.crit.is_some() || header.b64.is_some() {
            return Err(TokenError::Malformed("the header has unknown extensions"));
        }
        let claims = serde_json::from_slice(&decoded(payload)?)
            .map_err(|_| TokenError::Malformed("the claims are not an object, or contain a duplicate"))?;
        Ok(Self {
            algorithm: SigningAlgorithm::parse(&header.alg).ok_or(TokenError::Algorithm)?,
            key_id: header.kid.filter(|id| !id.is_empty()),
            claims,
            message,
            signature: decoded(signature)?,
        })
    }

    /// Returns the unverified `iss` claim. Callers may use the claim only to choose the verifier.
    pub fn unverified_issuer(&self) -> Option<&str> {
        match self.claims.0.get("iss")?.as_str() {
            // Google names itself as the issuer with or without the scheme `https://` (`untrustedIssuer` in apiserver's
            // `oidc.go`; OpenID Connect Core, "GoogleIss").
            Some("accounts.google.com") => Some("https://accounts.google.com"),
            issuer => issuer,
        }
    }

    /// Returns the unverified `kid` of the header.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Returns the unverified `exp` claim; `None` if the claim is missing or invalid.
    pub fn unverified_expiry(&self) -> Option<SystemTime> {
        self.claims.time("exp").ok().flatten()
    }

    /// Returns whether one of these keys verifies the token's signature. The claims are not checked.
    pub fn is_signed_by(&self, keys: &JsonWebKeySet) -> bool {
        keys.verifies(self.algorithm, self.key_id(), self.message.as_bytes(), &self.signature)
    }

    /// Returns whether this key verifies the token's signature. The claims are not checked.
    pub(crate) fn is_signed_by_key(&self, key: &JsonWebKey) -> bool {
        key.verifies(self.algorithm, self.key_id(), self.message.as_bytes(), &self.signature)
    }

    /// Verifies the token with the keys and rules of an issuer. Returns the user that the claims name, and the token's
    /// expiry (`exp`), beyond which the user must not be cached. The signature is checked first: the error for a token
    /// without a valid signature discloses nothing about the claims.
    ///
    /// The rules are stricter than kube-apiserver's: an empty or null name claim, a null among the groups, times in
    /// strings and distributed claims (`_claim_names`) are rejected.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(
        &self,
        issuer: &JwtAuthenticator,
        keys: &JsonWebKeySet,
        now: SystemTime,
    ) -> Result<(UserInfo, SystemTime), TokenError> {
        if !self.is_signed_by(keys) {
            return Err(TokenError::Signature);
        }
        if self.unverified_issuer() != Some(issuer.issuer_url.as_str()) {
            return Err(TokenError::Issuer);
        }
        let audiences = self.claims.strings("aud")?;
        if !audiences.iter().any(|audience| issuer.audiences.contains(audience)) {
            return Err(TokenError::Audience);
        }
        let expires = self.claims.time("exp")?.ok_or(TokenError::Expired)?;
        if expires < now {
            return Err(TokenError::Expired);
        }
        if self.claims.time("nbf")?.is_some_and(|begins| now + NOT_BEFORE_LEEWAY < begins) {
            return Err(TokenError::NotYet);
        }
        let _read_as_go_does = self.claims.time("iat")?;
        for name in ["sub", "nonce", "at_hash"] {
            if self.claims.0.get(name).is_some_and(|claim| !claim.is_string() && !claim.is_null()) {
                return Err(problem(name, "is not text"));
            }
        }
        Ok((self.claims.user(issuer)?, expires))
    }
}

impl Claims {
    fn user(&self, issuer: &JwtAuthenticator) -> Result<UserInfo, TokenError> {
        for (claim, value) in &issuer.required_claims {
            if self.text(claim)? != value {
                return Err(problem(claim, "does not have the required value"));
            }
        }
        let name = self.text(&issuer.username.claim)?;
        if name.is_empty() {
            return Err(problem(&issuer.username.claim, "is empty"));
        }
        let verified = self.0.get("email_verified");
        if issuer.username.claim == "email" && verified.is_some_and(|verified| *verified != Value::Bool(true)) {
            return Err(problem("email_verified", "the email is not verified"));
        }
        let uid = issuer.uid.as_ref().map(|claim| self.text(claim)).transpose()?.unwrap_or_default();
        let mut extra = BTreeMap::new();
        if let Some(id) = self.0.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        let username = format!("{}{name}", issuer.username.prefix);
        Ok(UserInfo { username, uid: uid.to_owned(), groups: self.groups(issuer)?, extra })
    }

    fn groups(&self, issuer: &JwtAuthenticator) -> Result<Vec<String>, TokenError> {
        let Some(mapping) = &issuer.groups else { return Ok(Vec::new()) };
        let distributed = self.0.get("_claim_names").is_some_and(|names| !names.is_null());
        if distributed && !self.0.contains_key(&mapping.claim) {
            return Err(problem(&mapping.claim, "is a distributed claim, which is not fetched"));
        }
        let groups = self.strings(&mapping.claim)?;
        Ok(groups.into_iter().map(|group| format!("{}{group}", mapping.prefix)).collect())
    }

    fn text(&self, name: &str) -> Result<&str, TokenError> {
        let claim = self.0.get(name).ok_or_else(|| problem(name, "is not present"))?;
        claim.as_str().ok_or_else(|| problem(name, "is not text"))
    }

    /// Returns the strings of a claim that is a string or a list of strings. The result is empty if the claim is
    /// missing or null.
    fn strings(&self, name: &str) -> Result<Vec<String>, TokenError> {
        let wrong = || problem(name, "is neither a string nor a list of strings");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// Returns a claim that contains a time in seconds since 1970. Fractions are dropped, and the time is limited to
    /// the years 1970 to 9999.
    fn time(&self, name: &str) -> Result<Option<SystemTime>, TokenError> {
        /// The year 9999, in seconds since 1970.
        const LAST: u64 = 253_402_300_799;
        let Some(claim) = self.0.get(name) else { return Ok(None) };
        // In Go's decoder, `exp: null` is an error, but `nbf: null` has the same meaning as no `nbf`.
        if claim.is_null() && name == "nbf" {
            return Ok(None);
        }
        let seconds = claim
            .as_u64()
            .or_else(|| claim.as_f64().filter(|seconds| seconds.is_finite()).map(|seconds| seconds.max(0.0) as u64))
            .ok_or_else(|| problem(name, "is not a number"))?;
        Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST))))
    }
}

fn problem(claim: &str, problem: &'static str) -> TokenError {
    TokenError::Claim { claim: claim.to_owned(), problem }
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Claims;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("claims")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Claims, A::Error> {
                let mut claims = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let other_case = REGISTERED.iter().any(|own| own.eq_ignore_ascii_case(&name) && **own != *name);
                    if other_case || claims.insert(name, value).is_some() {
                        return Err(A::Error::custom("duplicate claim"));
                    }
                }
                Ok(Claims(claims))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests;
