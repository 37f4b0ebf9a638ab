//! Simulates a token issuer: its server, its keys, and valid and invalid tokens.

use super::claim;
use anyhow::Context;
use aws_lc_rs::{
    hmac,
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, KeyPair as _,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use std::{sync::Arc, time::SystemTime};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use tributary_e2e::certificates::TestCertificates;

/// Modification of a valid ES256 token.
pub(crate) enum Change {
    /// Replaces a claim by a value; a null removes the claim.
    Claim(&'static str, Value),
    /// Sets a claim to null.
    NullClaim(&'static str),
    /// Replaces a header by a value; a null removes the header.
    Header(&'static str, Value),
    /// Signs the token with this algorithm, and names the algorithm in the header.
    Algorithm(&'static str),
    /// Names this algorithm in the header, but signs with the default algorithm.
    Claimed(&'static str),
    /// Sets `exp` to this number of seconds from now.
    Expires(i64),
    /// Sets `nbf` to this number of seconds from now.
    Begins(i64),
    /// Replaces the signature by the result of the function, for example a shorter signature.
    Signature(fn(String) -> String),
    /// Replaces the encoded claims by the result of the function.
    Payload(fn(String) -> String),
}

/// A running token issuer. Dropping it stops its server.
pub(crate) struct TestIssuer {
    url: String,
    certificates: TestCertificates,
    signers: Arc<Signers>,
    server: JoinHandle<()>,
}

impl Drop for TestIssuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Signers {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    p521: EcdsaKeyPair,
}

impl Signers {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            rsa: RsaKeyPair::generate(KeySize::Rsa2048)?,
            p256: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?,
            p384: EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING)?,
            p521: EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING)?,
        })
    }

    fn key_set(&self) -> Value {
        let curve = |pair: &EcdsaKeyPair, kid: &str, crv: &str| {
            let point = &pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({"kty": "EC", "use": "sig", "kid": kid, "crv": crv, "x": text(x), "y": text(y)})
        };
        let public = self.rsa.public_key();
        let (n, e) = (public.modulus().big_endian_without_leading_zero(), public.exponent());
        json!({"keys": [
            {"kty": "RSA", "use": "sig", "kid": "rsa", "n": text(n), "e": text(e.big_endian_without_leading_zero())},
            curve(&self.p256, "p256", "P-256"),
            curve(&self.p384, "p384", "P-384"),
            curve(&self.p521, "p521", "P-521"),
        ]})
    }

    /// Signs a message with a key for this algorithm. Returns the ID of the key and the signature.
    fn sign(&self, algorithm: &str, message: &[u8]) -> anyhow::Result<(&'static str, Vec<u8>)> {
        let random = SystemRandom::new();
        let by_rsa: &dyn signature::RsaEncoding = match algorithm {
            "RS256" => &signature::RSA_PKCS1_SHA256,
            "RS384" => &signature::RSA_PKCS1_SHA384,
            "RS512" => &signature::RSA_PKCS1_SHA512,
            "PS256" => &signature::RSA_PSS_SHA256,
            "PS384" => &signature::RSA_PSS_SHA384,
            "PS512" => &signature::RSA_PSS_SHA512,
            "ES256" => return Ok(("p256", self.p256.sign(&random, message)?.as_ref().to_vec())),
            "ES384" => return Ok(("p384", self.p384.sign(&random, message)?.as_ref().to_vec())),
            "ES512" => return Ok(("p521", self.p521.sign(&random, message)?.as_ref().to_vec())),
            // A known attack: the token is signed by HMAC with the RSA public key as the secret, so a verifier that
            // trusts the header's algorithm accepts it.
            "HS256" => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.rsa.public_key().as_ref());
                return Ok(("rsa", hmac::sign(&key, message).as_ref().to_vec()));
            }
            _ => return Ok(("p256", Vec::new())),
        };
        let mut made = vec![0; self.rsa.public_modulus_len()];
        self.rsa.sign(by_rsa, &random, message, &mut made)?;
        Ok(("rsa", made))
    }
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl TestIssuer {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let certificates = TestCertificates::generate("issuer")?;
        let signers = Arc::new(Signers::new()?);
        let chain = vec![CertificateDer::from_pem_slice(certificates.serving_certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(certificates.serving_key.as_bytes())?;
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://127.0.0.1:{}", listener.local_addr()?.port());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (base, keys) = (url.clone(), signers.key_set().to_string());
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let _unanswered = answer(&acceptor, socket, &base, &keys).await;
            }
        });
        Ok(Self { url, certificates, signers, server })
    }

    /// Returns the contents of the file for `--authentication-config`.
    pub(crate) fn configuration(&self) -> String {
        let authority = &self.certificates.authority;
        let (url_a, url_b) = (format!("{}/a", self.url), format!("{}/b", self.url));
        let a = json!({
            "issuer": {"url": url_a, "audiences": ["tributary"], "certificateAuthority": authority},
            "claimValidationRules": [{"claim": "hd", "requiredValue": "example.com"}],
            "claimMappings": {
                "username": {"claim": "sub", "prefix": "oidc:"},
                "groups": {"claim": "groups", "prefix": "team:"},
                "uid": {"claim": "oid"},
            },
        });
        let b = json!({
            "issuer": {
                "url": url_b,
                "audiences": ["one", "two"],
                "audienceMatchPolicy": "MatchAny",
                "certificateAuthority": authority,
            },
            "claimMappings": {"username": {"claim": "email", "prefix": ""}},
        });
        let kind = "AuthenticationConfiguration";
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "jwt": [a, b]}).to_string()
    }

    pub(super) fn keys(&self) -> String {
        self.signers.key_set().to_string()
    }

    /// Makes a token of issuer `a` or `b`. Without changes the token is valid.
    pub(crate) fn token(&self, which: &str, changes: &[Change]) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs().cast_signed();
        let (mut algorithm, mut claimed, mut signature_change) = ("ES256", None, None::<fn(String) -> String>);
        let mut claims = json!({
            "iss": format!("{}/{which}", self.url), "aud": if which == "a" { "tributary" } else { "two" },
            "sub": "ann", "email": "ann@example.com", "hd": "example.com", "groups": ["dev", "ops"], "oid": "u-1",
            "iat": now, "exp": now + 600, "jti": "j-1",
        });
        let (mut headers, mut payload) = (Vec::new(), None::<fn(String) -> String>);
        let fields = claims.as_object_mut().context("claims")?;
        for change in changes {
            match change {
                Change::Claim(name, Value::Null) => drop(fields.remove(*name)),
                Change::Claim(name, value) => drop(fields.insert((*name).to_owned(), value.clone())),
                Change::NullClaim(name) => drop(fields.insert((*name).to_owned(), Value::Null)),
                Change::Header(name, value) => headers.push((*name, value.clone())),
                Change::Algorithm(name) => algorithm = name,
                Change::Claimed(name) => claimed = Some(*name),
                Change::Expires(seconds) => drop(fields.insert("exp".to_owned(), json!(now + seconds))),
                Change::Begins(seconds) => drop(fields.insert("nbf".to_owned(), json!(now + seconds))),
                Change::Signature(change) => signature_change = Some(*change),
                Change::Payload(change) => payload = Some(*change),
            }
        }
        let (key_id, _) = self.signers.sign(algorithm, b"")?;
        let mut header = json!({"alg": claimed.unwrap_or(algorithm), "kid": key_id, "typ": "JWT"});
        let own = header.as_object_mut().context("a header")?;
        for (name, value) in headers {
            match value {
                Value::Null => drop(own.remove(name)),
                value => drop(own.insert(name.to_owned(), value)),
            }
        }
        let claims = payload.map_or_else(|| claims.to_string(), |change| change(claims.to_string()));
        let message = format!("{}.{}", text(header.to_string().as_bytes()), text(claims.as_bytes()));
        let made = text(&self.signers.sign(algorithm, message.as_bytes())?.1);
        Ok(format!("{message}.{}", signature_change.map_or(made.clone(), |change| change(made))))
    }
}

async fn answer(acceptor: &TlsAcceptor, socket: tokio::net::TcpStream, base: &str, keys: &str) -> anyhow::Result<()> {
    let mut stream = acceptor.accept(socket).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let path = head.split(' ').nth(1).context("a path")?;
    let which = if path.starts_with("/b") { "b" } else { "a" };
    let body = if path.ends_with("/keys") {
        keys.to_owned()
    } else {
        let issuer = format!("{base}/{which}");
        json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string()
    };
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

/// Tokens of the test. Each has a name, an issuer and changes. The flag is true if Tributary refuses the token although
/// a kube-apiserver accepts it.
pub(super) fn cases() -> Vec<(&'static str, &'static str, Vec<Change>, bool)> {
    use Change as C;
    let mut cases: Vec<(&'static str, &'static str, Vec<Change>, bool)> = Vec::new();
    for algorithm in ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "HS256", "none"]
    {
        cases.push((algorithm, "a", vec![C::Algorithm(algorithm)], false));
    }
    cases.extend([
        ("by email", "b", vec![], false),
        ("RSA claimed and a curve signed", "a", vec![C::Claimed("RS256")], false),
        ("an algorithm in lower case", "a", vec![C::Claimed("es256")], false),
        ("no kid", "a", vec![C::Header("kid", Value::Null)], false),
        ("another kid", "a", vec![C::Header("kid", json!("../../etc/passwd"))], false),
        ("a kid of another key", "a", vec![C::Header("kid", json!("p384"))], false),
        ("an unknown critical header", "a", vec![C::Header("crit", json!(["x"])), C::Header("x", json!(1))], false),
        ("no signature", "a", vec![C::Signature(|_| String::new())], false),
        ("a fourth part", "a", vec![C::Signature(|made| format!("{made}.x"))], false),
        ("expired", "a", vec![C::Expires(-5)], false),
        ("expires soon", "a", vec![C::Expires(30)], false),
        ("no exp", "a", vec![claim("exp", Value::Null)], false),
        ("exp null", "a", vec![C::NullClaim("exp")], false),
        ("exp with a fraction", "a", vec![claim("exp", json!(4e9 + 0.5))], false),
        ("exp as text", "a", vec![claim("exp", json!("4000000000"))], true),
        ("begins within the leeway", "a", vec![C::Begins(40)], false),
        ("begins later", "a", vec![C::Begins(90)], false),
        ("another audience", "a", vec![claim("aud", json!("other"))], false),
        ("several audiences", "a", vec![claim("aud", json!(["other", "tributary"]))], false),
        ("audiences that are no texts", "a", vec![claim("aud", json!(["tributary", 1]))], false),
        ("no audience", "a", vec![claim("aud", Value::Null)], false),
        ("an issuer with a slash", "a", vec![claim("iss", json!("https://127.0.0.1/a/"))], false),
        ("a required claim missing", "a", vec![claim("hd", Value::Null)], false),
        ("a required claim of another value", "a", vec![claim("hd", json!("evil.com"))], false),
        ("no groups", "a", vec![claim("groups", Value::Null)], false),
        ("groups null", "a", vec![C::NullClaim("groups")], false),
        ("one group", "a", vec![claim("groups", json!("dev"))], false),
        ("groups that are no texts", "a", vec![claim("groups", json!(["dev", 1]))], false),
        ("nested groups", "a", vec![claim("groups", json!([["dev"]]))], false),
        ("a null among groups", "a", vec![claim("groups", json!(["dev", null]))], true),
        ("a name that is no text", "a", vec![claim("sub", json!(7))], false),
        ("an empty name", "a", vec![claim("sub", json!(""))], true),
        ("no uid", "a", vec![claim("oid", Value::Null)], false),
        ("no id", "a", vec![claim("jti", Value::Null)], false),
        ("an email that is not verified", "b", vec![claim("email_verified", json!(false))], false),
        ("an email verified by text", "b", vec![claim("email_verified", json!("true"))], false),
        ("a verified email", "b", vec![claim("email_verified", json!(true))], false),
        ("a claim twice", "a", vec![C::Payload(|claims| claims.replacen('{', "{\"sub\":\"eve\",", 1))], true),
        ("claims that are a list", "a", vec![C::Payload(|claims| format!("[{claims}]"))], false),
    ]);
    cases
}
