//! Keys of issuers (RFC 7517), and signatures by them (RFC 7518).

use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

/// How many keys of a set are kept: issuers have two to ten, and a token without `kid` is tried with each.
const MAX_KEYS: usize = 64;

/// The algorithms that kube-apiserver takes with `--authentication-config` (oidc `allowedSigningAlgs`). There is no
/// `none` and no HMAC to be confused with: what is not named here does not exist.
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

impl SigningAlgorithm {
    /// Reads the `alg` of a header, in exactly RFC 7518's spelling.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "ES512" => Self::Es512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            _ => return None,
        })
    }
}

/// An issuer's keys.
#[derive(Clone, Debug, Default)]
pub struct JsonWebKeySet(Vec<JsonWebKey>);

#[derive(Clone, Debug)]
struct JsonWebKey {
    id: String,
    /// The one algorithm that the key is for, if it says so.
    algorithm: Option<SigningAlgorithm>,
    key: PublicKey,
}

#[derive(Clone, Debug)]
enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed point, and the length of a coordinate in bytes, which tells the curve.
    EllipticCurve {
        point: Vec<u8>,
        coordinate: usize,
    },
}

#[derive(Deserialize)]
struct KeyText {
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(default, rename = "use")]
    usage: String,
    #[serde(default)]
    alg: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

impl JsonWebKeySet {
    /// Reads a key set. Keys of another kind, for another use than signatures or for another algorithm are left out,
    /// as are those that cannot be read: an issuer may serve more than Kubernetes' tokens.
    ///
    /// # Errors
    /// The parser's words where it is no key set.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct SetText {
            keys: Vec<Value>,
        }
        let SetText { keys } = serde_json::from_slice(text)?;
        let keys = keys.into_iter().filter_map(|key| JsonWebKey::new(serde_json::from_value(key).ok()?));
        Ok(Self(keys.take(MAX_KEYS).collect()))
    }

    /// Whether a key of this id is known. Without an id each key may be meant.
    pub fn has(&self, id: Option<&str>) -> bool {
        self.0.iter().any(|key| id.is_none_or(|id| key.id == id))
    }

    /// Whether one of the keys made a signature: those of this id, or each where the token names none. Takes 0.03 to
    /// 0.3 ms per key that is tried.
    pub fn verifies(&self, algorithm: SigningAlgorithm, id: Option<&str>, message: &[u8], signature: &[u8]) -> bool {
        self.0
            .iter()
            .filter(|key| id.is_none_or(|id| key.id == id))
            .filter(|key| key.algorithm.is_none_or(|own| own == algorithm))
            .any(|key| key.key.verifies(algorithm, message, signature))
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
}

impl PublicKey {
    fn new(text: &KeyText) -> Option<Self> {
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).ok().filter(|bytes| !bytes.is_empty());
        match text.kty.as_str() {
            "RSA" => {
                // Some issuers write a leading zero, which the number does not have.
                let number = |bytes: Vec<u8>| bytes.into_iter().skip_while(|&byte| byte == 0).collect();
                Some(Self::Rsa { modulus: number(bytes(&text.n)?), exponent: number(bytes(&text.e)?) })
            }
            "EC" => {
                let coordinate = match text.crv.as_str() {
                    "P-256" => 32,
                    "P-384" => 48,
                    "P-521" => 66,
                    _ => return None,
                };
                let (x, y) = (bytes(&text.x)?, bytes(&text.y)?);
                let point = [vec![4], x.clone(), y.clone()].concat();
                (x.len() == coordinate && y.len() == coordinate).then_some(Self::EllipticCurve { point, coordinate })
            }
            _ => None,
        }
    }

    /// Whether this key made the signature by this algorithm: RSA of 2,048 bits and more, each curve by its own hash.
    fn verifies(&self, algorithm: SigningAlgorithm, message: &[u8], made: &[u8]) -> bool {
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
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, made).is_ok()
            }
            Self::EllipticCurve { point, coordinate } => {
                let parameters = match (algorithm, coordinate) {
                    (A::Es256, 32) => &signature::ECDSA_P256_SHA256_FIXED,
                    (A::Es384, 48) => &signature::ECDSA_P384_SHA384_FIXED,
                    (A::Es512, 66) => &signature::ECDSA_P521_SHA512_FIXED,
                    _ => return false,
                };
                UnparsedPublicKey::new(parameters, point).verify(message, made).is_ok()
            }
        }
    }
}
