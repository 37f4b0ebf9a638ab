//! Tokens of issuers (apiserver `plugin/pkg/authenticator/token/oidc`, go-oidc `verify.go`).

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

/// The longest token that is looked at, in bytes. Directories with hundreds of groups make some of 20 KB.
pub(crate) const MAX_TOKEN: usize = 32 * 1024;

/// How much later than now `nbf` may be: clocks differ. go-oidc's; there is none for `exp`.
const NOT_BEFORE_LEEWAY: Duration = Duration::from_secs(60);

/// Claims that decide whether a token is good. Go reads their names in any case, so another spelling beside them would
/// mean one thing here and another there.
const REGISTERED: [&str; 10] =
    ["iss", "sub", "aud", "exp", "nbf", "iat", "nonce", "at_hash", "_claim_names", "_claim_sources"];

/// Why a token is not taken. Never holds any of its text but an issuer and names of claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is no token in three parts, or its header or claims are no JSON objects.
    #[error("oidc: malformed jwt: {0}")]
    Malformed(&'static str),
    /// Neither RS, ES nor PS with 256, 384 or 512.
    #[error("oidc: id token signed with unsupported algorithm")]
    Algorithm,
    /// No key of the issuer made the signature.
    #[error("failed to verify signature: failed to verify id token signature")]
    Signature,
    /// Another issuer's.
    #[error("oidc: id token issued by a different provider")]
    Issuer,
    /// For another audience.
    #[error("oidc: expected audience in the issuer's audiences")]
    Audience,
    /// Its time is over, or it says no time.
    #[error("oidc: token is expired")]
    Expired,
    /// Its time has not come.
    #[error("oidc: current time is before the nbf (not before) time")]
    NotYet,
    /// A claim is missing or is not what the configuration needs.
    #[error("oidc: claim {claim}: {problem}")]
    Claim {
        /// Its name.
        claim: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// A token that nobody has verified: who claims to have issued it, and what is needed to find out.
pub struct Token<'a> {
    algorithm: SigningAlgorithm,
    key_id: Option<String>,
    claims: Claims,
    message: &'a str,
    signature: Vec<u8>,
}

/// The token's text stays out of logs.
impl fmt::Debug for Token<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Token").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Whom a token names, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The user.
    pub user: UserInfo,
    /// `exp`: nothing may remember the user beyond it.
    pub expires: SystemTime,
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

/// Claims by name, each once.
struct Claims(BTreeMap<String, Value>);

impl<'a> Token<'a> {
    /// Reads a token without believing it. `kid` only chooses among the keys of the configured issuer; `jwk`, `jku` and
    /// `x5u`, by which a token would bring its own key, are not read at all.
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Algorithm`]. Extensions that must be understood (`crit`, `b64`), and
    /// claims that stand twice, are refused.
    pub fn parse(text: &'a str) -> Result<Self, TokenError> {
        if text.len() > MAX_TOKEN {
            return Err(TokenError::Malformed("it is too long"));
        }
        let three = TokenError::Malformed("it does not have three parts");
        let (message, signature) = text.rsplit_once('.').ok_or(three.clone())?;
        let (header, payload) = message.split_once('.').ok_or(three.clone())?;
        if payload.contains('.') {
            return Err(three);
        }
        let decoded =
            |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed("a part is not base64url"));
        let header: Header = serde_json::from_slice(&decoded(header)?)
            .map_err(|_| TokenError::Malformed("its header is no object with alg"))?;
        if header.crit.is_some() || header.b64.is_some() {
            return Err(TokenError::Malformed("its header has extensions that are not known"));
        }
        let claims = serde_json::from_slice(&decoded(payload)?)
            .map_err(|_| TokenError::Malformed("its claims are no object in which each stands once"))?;
        Ok(Self {
            algorithm: SigningAlgorithm::parse(&header.alg).ok_or(TokenError::Algorithm)?,
            key_id: header.kid.filter(|id| !id.is_empty()),
            claims,
            message,
            signature: decoded(signature)?,
        })
    }

    /// Who is said to have issued it: chooses the verifier and nothing else.
    pub fn unverified_issuer(&self) -> Option<&str> {
        match self.claims.0.get("iss")?.as_str() {
            // (`untrustedIssuer` in apiserver's `oidc.go`; OpenID Connect Core, "GoogleIss")
            Some("accounts.google.com") => Some("https://accounts.google.com"),
            issuer => issuer,
        }
    }

    /// The key that is said to have signed it.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// Until when it is said to be good; `None` where it does not say so, or says no time.
    pub fn unverified_expiry(&self) -> Option<SystemTime> {
        self.claims.time("exp").ok().flatten()
    }

    /// Whether one of these keys made the signature; says nothing of what the claims are worth.
    pub fn is_signed_by(&self, keys: &JsonWebKeySet) -> bool {
        keys.verifies(self.algorithm, self.key_id(), self.message.as_bytes(), &self.signature)
    }

    /// Whether this key made the signature.
    pub(crate) fn is_signed_by_key(&self, key: &JsonWebKey) -> bool {
        key.verifies(self.algorithm, self.key_id(), self.message.as_bytes(), &self.signature)
    }

    /// Verifies the token by an issuer's keys and rules. The signature comes first: of what nobody signed, nothing else
    /// is told.
    ///
    /// Stricter than kube-apiserver: a user whose name's claim is empty or null, groups with a null among them, times
    /// written as text and distributed claims (`_claim_names`) are refused.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(
        &self,
        issuer: &JwtAuthenticator,
        keys: &JsonWebKeySet,
        now: SystemTime,
    ) -> Result<Verified, TokenError> {
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
        Ok(Verified { user: self.claims.user(issuer)?, expires })
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
            return Err(problem(&issuer.username.claim, "names nobody"));
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

    /// A claim that is one text or a list of them; nothing where it is missing or null.
    fn strings(&self, name: &str) -> Result<Vec<String>, TokenError> {
        let wrong = || problem(name, "is neither text nor a list of texts");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(vec![text.clone()]),
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
            }
            Some(_) => Err(wrong()),
        }
    }

    /// A time in seconds since 1970, cut to whole ones. What is before 1970 is 1970, and what no clock reaches is far.
    fn time(&self, name: &str) -> Result<Option<SystemTime>, TokenError> {
        /// The year 9999, in seconds since 1970.
        const LAST: u64 = 253_402_300_799;
        let Some(claim) = self.0.get(name) else { return Ok(None) };
        // `exp: null` is an error for Go, `nbf: null` is none there.
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
                        return Err(A::Error::custom("a claim stands twice"));
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
