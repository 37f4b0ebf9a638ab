//! Public keys of issuers (RFC 7517), and the verification of signatures (RFC 7518).

use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tributary_apimachinery::json::null_is_default;

/// The maximum number of keys in a set. Issuers have two to ten, and a token without `kid` is tried with each key.
const MAX_KEYS: usize = 64;
/// The maximum number of keys with the same id. A client can send a token with this `kid`, which is then tried with
/// each of these keys.
const MAX_KEYS_OF_ONE_ID: usize = 4;

/// The signature algorithms that kube-apiserver accepts with `--authentication-config` (oidc `allowedSigningAlgs`).
/// `none` and HMAC are missing, so a token cannot use a public key as an HMAC secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of RFC 7518")]
pub enum SigningAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Es256,
    Es384,
    Es512,
    Ps256,
    Ps384,
    Ps512,
}

/// The algorithms and their names in RFC 7518.
const ALGORITHMS: [(&str, SigningAlgorithm); 9] = [
    ("RS256", SigningAlgorithm::Rs256),
    ("RS384", SigningAlgorithm::Rs384),
    ("RS512", SigningAlgorithm::Rs512),
    ("ES256", SigningAlgorithm::Es256),
    ("ES384", SigningAlgorithm::Es384),
    ("ES512", SigningAlgorithm::Es512),
    ("PS256", SigningAlgorithm::Ps256),
    ("PS384", SigningAlgorithm::Ps384),
    ("PS512", SigningAlgorithm::Ps512),
];

/// The elliptic curves with their names in RFC 7518, and the length of a coordinate in bytes.
const CURVES: [(&str, usize); 3] = [("P-256", 32), ("P-384", 48), ("P-521", 66)];

impl SigningAlgorithm {
    /// Parses the `alg` field of a token's header, in exactly the spelling of RFC 7518.
    pub fn parse(text: &str) -> Option<Self> {
        ALGORITHMS.iter().find(|(name, _)| *name == text).map(|(_, algorithm)| *algorithm)
    }

    fn name(self) -> &'static str {
        ALGORITHMS.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }
}

/// The public keys of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonWebKeySet(Vec<JsonWebKey>);

/// A public key. Serializes as in RFC 7517.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "KeyText", into = "KeyText")]
pub(crate) struct JsonWebKey {
    id: String,
    /// The only algorithm that the key's `alg` field allows; `None` if the field is missing.
    algorithm: Option<SigningAlgorithm>,
    key: PublicKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point on a curve. `point` is in the uncompressed form. `coordinate` is the length of a coordinate in bytes,
    /// which determines the curve.
    EllipticCurve {
        point: Vec<u8>,
        coordinate: usize,
    },
}

#[derive(Default, Serialize, Deserialize)]
struct KeyText {
    kty: String,
    #[serde(default, deserialize_with = "null_is_default")]
    kid: String,
    #[serde(default, rename = "use", deserialize_with = "null_is_default")]
    usage: String,
    #[serde(default, deserialize_with = "null_is_default")]
    alg: String,
    #[serde(default, deserialize_with = "null_is_default")]
    crv: String,
    #[serde(default, deserialize_with = "null_is_default")]
    n: String,
    #[serde(default, deserialize_with = "null_is_default")]
    e: String,
    #[serde(default, deserialize_with = "null_is_default")]
    x: String,
    #[serde(default, deserialize_with = "null_is_default")]
    y: String,
}

impl JsonWebKeySet {
    /// Parses a JSON Web Key Set. Keys of unsupported types, keys for other purposes than signatures, and malformed
    /// keys are skipped, because an issuer may serve keys for other purposes.
    ///
    /// # Errors
    /// The error of the JSON parser, if the text is not a key set.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct SetText {
            keys: Vec<Value>,
        }
        let SetText { keys } = serde_json::from_slice(text)?;
        let keys = keys.into_iter().filter_map(|key| JsonWebKey::new(serde_json::from_value(key).ok()?));
        let mut unique: Vec<JsonWebKey> = Vec::new();
        for key in keys.take(MAX_KEYS) {
            if key.id.is_empty() || unique.iter().filter(|other| other.id == key.id).count() < MAX_KEYS_OF_ONE_ID {
                unique.push(key);
            }
        }
        Ok(Self(unique))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &JsonWebKey> {
        self.0.iter()
    }

    pub(crate) fn into_keys(self) -> impl Iterator<Item = JsonWebKey> {
        self.0.into_iter()
    }

    /// Returns whether the set contains a key with this id. Every key matches if `id` is `None`.
    pub fn has(&self, id: Option<&str>) -> bool {
        self.0.iter().any(|key| key.has_id(id))
    }

    /// Returns whether a key with this id (every key if `None`) verifies a signature. Takes 0.03 to 0.3 ms for each
    /// matching key.
    pub fn verifies(&self, algorithm: SigningAlgorithm, id: Option<&str>, message: &[u8], signature: &[u8]) -> bool {
        self.0.iter().any(|key| key.verifies(algorithm, id, message, signature))
    }
}

impl JsonWebKey {
    fn new(text: KeyText) -> Option<Self> {
        if !matches!(text.usage.as_str(), "" | "sig") {
            return None;
        }
        let algorithm = if text.alg.is_empty() { None } else { Some(SigningAlgorithm::parse(&text.alg)?) };
        Some(Self { key: PublicKey::new(&text)?, id: text.kid, algorithm })
    }

    /// Returns whether the key has this id. Every key matches `None`.
    pub(crate) fn has_id(&self, id: Option<&str>) -> bool {
        id.is_none_or(|id| self.id == id)
    }

    /// Returns whether the key has this id, allows this algorithm, and verifies the signature.
    pub(crate) fn verifies(
        &self,
        algorithm: SigningAlgorithm,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        self.has_id(id)
            && self.algorithm.is_none_or(|own| own == algorithm)
            && self.key.verifies(algorithm, message, signature)
    }
}

impl TryFrom<KeyText> for JsonWebKey {
    type Error = &'static str;

    fn try_from(text: KeyText) -> Result<Self, Self::Error> {
        Self::new(text).ok_or("the type of the key is not supported for signatures")
    }
}

impl From<JsonWebKey> for KeyText {
    fn from(JsonWebKey { id: kid, algorithm, key }: JsonWebKey) -> Self {
        let alg = algorithm.map(|algorithm| algorithm.name().to_owned()).unwrap_or_default();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match key {
            PublicKey::Rsa { modulus, exponent } => {
                Self { kty: "RSA".to_owned(), kid, alg, n: text(&modulus), e: text(&exponent), ..Self::default() }
            }
            PublicKey::EllipticCurve { point, coordinate } => {
                let crv = CURVES.iter().find(|(_, length)| *length == coordinate).map_or("", |(name, _)| name);
                let (x, y) = point[1..].split_at(coordinate);
                let (x, y, crv) = (text(x), text(y), crv.to_owned());
                Self { kty: "EC".to_owned(), kid, alg, crv, x, y, ..Self::default() }
            }
        }
    }
}

impl PublicKey {
    fn new(text: &KeyText) -> Option<Self> {
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).ok().filter(|bytes| !bytes.is_empty());
        match text.kty.as_str() {
            "RSA" => {
                // Some issuers write a leading zero byte into the modulus or the exponent, but the verification rejects
                // numbers with a leading zero byte.
                let number = |bytes: Vec<u8>| bytes.into_iter().skip_while(|&byte| byte == 0).collect();
                Some(Self::Rsa { modulus: number(bytes(&text.n)?), exponent: number(bytes(&text.e)?) })
            }
            "EC" => {
                let (_, coordinate) = *CURVES.iter().find(|(name, _)| *name == text.crv)?;
                let (x, y) = (bytes(&text.x)?, bytes(&text.y)?);
                let point = [vec![4], x.clone(), y.clone()].concat();
                (x.len() == coordinate && y.len() == coordinate).then_some(Self::EllipticCurve { point, coordinate })
            }
            _ => None,
        }
    }

    /// Returns whether the key verifies the signature. An RSA key needs at least 2,048 bits. A key on an elliptic curve
    /// accepts only the algorithm with the hash of this curve.
    fn verifies(&self, algorithm: SigningAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        use SigningAlgorithm as A;
        match self {
            Self::Rsa { modulus, exponent } => {
                let parameters = match algorithm {
                    A::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    A::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    A::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    A::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    A::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    A::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    A::Es256 | A::Es384 | A::Es512 => return false,
                };
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, signature).is_ok()
            }
            Self::EllipticCurve { point, coordinate } => {
                let parameters = match (algorithm, coordinate) {
                    (A::Es256, 32) => &signature::ECDSA_P256_SHA256_FIXED,
                    (A::Es384, 48) => &signature::ECDSA_P384_SHA384_FIXED,
                    (A::Es512, 66) => &signature::ECDSA_P521_SHA512_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(parameters, point).verify(message, signature).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_field_of_a_json_web_key_is_treated_as_absent() {
        let rsa = serde_json::json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"});
        for field in ["kid", "use", "alg", "crv", "x", "y"] {
            let mut key = rsa.clone();
            key[field] = Value::Null;
            let keys = JsonWebKeySet::parse(serde_json::json!({"keys": [key]}).to_string().as_bytes()).unwrap();
            assert_eq!(keys.keys().count(), 1, "{field}");
        }
    }
}
