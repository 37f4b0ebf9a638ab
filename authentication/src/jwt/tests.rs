use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;

use super::*;
use crate::configuration::ClaimMapping;

/// The current time of the tests, in 2027, in seconds since 1970.
const NOW: u64 = 1_800_000_000;

struct TestIssuer {
    pair: EcdsaKeyPair,
    rules: JwtAuthenticator,
}

impl TestIssuer {
    fn new() -> Self {
        let rules = JwtAuthenticator {
            issuer_url: "https://issuer".to_owned(),
            discovery_url: String::new(),
            certificate_authority: None,
            audiences: vec!["me".to_owned()],
            required_claims: BTreeMap::new(),
            username: ClaimMapping { claim: "sub".to_owned(), prefix: "p:".to_owned() },
            groups: Some(ClaimMapping { claim: "groups".to_owned(), prefix: "t:".to_owned() }),
            uid: None,
        };
        Self { pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), rules }
    }

    fn keys(&self, more: &Value) -> JsonWebKeySet {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let mut key = json!({"kty": "EC", "kid": "k", "crv": "P-256", "x": x, "y": y});
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        JsonWebKeySet::parse(json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}, key]}).to_string().as_bytes()).unwrap()
    }

    fn token(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn verify(&self, header: &str, claims: &str) -> Result<(UserInfo, SystemTime), TokenError> {
        let token = self.token(header, claims);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        Token::parse(&token)?.verify(&self.rules, &self.keys(&json!({})), now)
    }
}

fn claims(change: &Value) -> String {
    let mut claims = json!({"iss": "https://issuer", "aud": "me", "sub": "ann", "groups": ["dev"], "exp": NOW + 60});
    claims.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    claims.to_string()
}

const HEADER: &str = r#"{"alg":"ES256","kid":"k"}"#;

#[test]
fn verified_jwt_yields_its_user_and_expiry() {
    let (user, expires) = TestIssuer::new().verify(HEADER, &claims(&json!({"jti": "j"}))).unwrap();
    assert_eq!(user.username, "p:ann");
    assert_eq!(user.groups, ["t:dev"]);
    assert_eq!(user.extra[CREDENTIAL_ID], ["JTI=j"]);
    assert_eq!(expires, SystemTime::UNIX_EPOCH + Duration::from_secs(NOW + 60));
}

#[test]
fn token_of_another_issuer_is_rejected() {
    for (configured, claimed, is_accepted) in [
        ("https://issuer", "https://issuer", true),
        ("https://issuer", "issuer", false),
        ("https://issuer", "https://issuer/", false),
        ("https://accounts.google.com", "https://accounts.google.com", true),
        ("https://accounts.google.com", "accounts.google.com", true),
        ("https://accounts.google.com", "accounts.google.com/", false),
        ("https://issuer", "accounts.google.com", false),
    ] {
        let mut issuer = TestIssuer::new();
        issuer.rules.issuer_url = configured.to_owned();
        let verified = issuer.verify(HEADER, &claims(&json!({"iss": claimed})));
        assert_eq!(verified.err(), (!is_accepted).then_some(TokenError::Issuer), "{configured} {claimed}");
    }
}

#[test]
fn jwt_expiry_is_exact_to_the_second() {
    let issuer = TestIssuer::new();
    let table = [
        (json!({"exp": NOW}), None),
        (json!({"exp": NOW - 1}), Some(TokenError::Expired)),
        (json!({"exp": -5}), Some(TokenError::Expired)),
        (json!({"exp": 1e300}), None),
        (json!({"exp": u64::MAX}), None),
        (json!({"nbf": NOW + 60}), None),
        (json!({"nbf": NOW + 61}), Some(TokenError::NotYet)),
    ];
    for (change, expected) in table {
        assert_eq!(issuer.verify(HEADER, &claims(&change)).err(), expected, "{change}");
    }
}

#[test]
fn tokens_with_hostile_headers_are_rejected() {
    let issuer = TestIssuer::new();
    let (good, own) = (claims(&json!({})), r#""jwk":{"kty":"EC"},"jku":"https://evil","x5u":"https://evil""#);
    assert!(issuer.verify(&format!(r#"{{"alg":"ES256",{own}}}"#), &good).is_ok(), "keys of its own are not read");
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"HS256","kid":"k"}"#,
        r#"{"alg":"ES256K","kid":"k"}"#,
        r#"{"alg":"RS256","kid":"k"}"#,
        r#"{"alg":"ES384","kid":"k"}"#,
        r#"{"alg":["ES256"],"kid":"k"}"#,
        r#"{"alg":"ES256","alg":"ES256"}"#,
        r#"{"alg":"ES256","kid":"other"}"#,
        r#"{"alg":"ES256","kid":7}"#,
        r#"{"alg":"ES256","crit":["exp"]}"#,
        r#"{"alg":"ES256","b64":false}"#,
        r#"{"kid":"k"}"#,
        "[]",
        "",
    ] {
        assert!(issuer.verify(header, &good).is_err(), "{header}");
    }
}

#[test]
fn tokens_with_hostile_claims_are_rejected() {
    let issuer = TestIssuer::new();
    let deep = "[".repeat(5_000);
    for hostile in [
        r#"{"iss":"https://issuer","iss":"https://issuer","aud":"me","sub":"ann","exp":1900000000}"#,
        r#"{"iss":"https://issuer","Sub":"eve","aud":"me","sub":"ann","exp":1900000000}"#,
        r#"{"iss":["https://issuer"],"aud":"me","sub":"ann","exp":1900000000}"#,
        &claims(&json!({"_claim_names": {"groups": "s"}, "groups": null})).replace(r#""groups":null,"#, ""),
        &format!(r#"{{"a":{deep}"#),
        "null",
    ] {
        assert!(issuer.verify(HEADER, hostile).is_err(), "{hostile:.80}");
    }
}

#[test]
fn malformed_tokens_are_rejected() {
    let huge = "a".repeat(MAX_TOKEN + 1);
    for text in ["", ".", "..", "a.b.c", "e30.e30.", "e30.e30.e30.e30", "e30", &huge, "e30=.e30.e30", "{\"payload\":1}"]
    {
        assert!(Token::parse(text).is_err(), "{text:.20}");
    }
}

#[test]
fn token_signed_with_an_encryption_key_is_rejected() {
    let issuer = TestIssuer::new();
    let token = issuer.token(HEADER, &claims(&json!({})));
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    for (more, good) in [
        (json!({"use": "sig", "alg": "ES256"}), true),
        (json!({"use": "enc"}), false),
        (json!({"alg": "ES384"}), false),
        (json!({"alg": "HS256"}), false),
        (json!({"crv": "P-384"}), false),
    ] {
        let verified = Token::parse(&token).unwrap().verify(&issuer.rules, &issuer.keys(&more), now);
        assert_eq!(verified.is_ok(), good, "{more}");
    }
}

proptest::proptest! {
    #[test]
    fn token_with_a_changed_byte_is_rejected(at: proptest::sample::Index, byte in b'-'..=b'z') {
        let issuer = TestIssuer::new();
        let token = issuer.token(HEADER, &claims(&json!({})));
        let mut changed = token.clone().into_bytes();
        let at = at.index(changed.len());
        changed[at] = byte;
        let changed = String::from_utf8(changed).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        let verified = Token::parse(&changed).and_then(|own| own.verify(&issuer.rules, &issuer.keys(&json!({})), now));
        assert_eq!(verified.is_ok(), changed == token);
    }
}
