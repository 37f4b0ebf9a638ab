//! The fuzzed properties of credentials, and of the file that configures their verification. The authorities are fixed,
//! and their private keys no longer exist. Each accepted credential was therefore signed when the corpus was made.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rustls_pki_types::{CertificateDer, UnixTime};
use tributary_authentication::{
    AuthenticationConfiguration, BearerToken, ClaimMapping, ClientCertificates, JsonWebKeySet, JwtAuthenticator, Token,
};

/// The authorities that signed the certificates and tokens in the corpus.
const AUTHORITY: &[u8] = include_bytes!("authentication/authority.pem");
const KEYS: &[u8] = include_bytes!("authentication/keys.json");
const VALID_CERTIFICATE: &[u8] = include_bytes!("../../fuzz/corpus/certificate/valid");
const VALID_TOKEN: &str = include_str!("../../fuzz/corpus/token/valid");

/// The time at which credentials are verified: a time in the year 2030.
const NOW: Duration = Duration::from_secs(1_900_000_000);

static CERTIFICATES: LazyLock<ClientCertificates> = LazyLock::new(|| ClientCertificates::new(AUTHORITY).unwrap());
static KEY_SET: LazyLock<JsonWebKeySet> = LazyLock::new(|| JsonWebKeySet::parse(KEYS).unwrap());

/// The input is a certificate. The target uses the certificate in three roles: as a client's certificate, as an
/// intermediate below a valid certificate, and as a bundle of authorities. Only users of the corpus are accepted.
pub fn certificate(data: &[u8]) {
    let now = UnixTime::since_unix_epoch(NOW);
    let shown = CertificateDer::from(data);
    if let Ok((user, until)) = CERTIFICATES.user(std::slice::from_ref(&shown), now) {
        assert_eq!((&*user.username, user.groups), ("ann", vec!["dev".to_owned()]));
        assert!(until >= now, "an expired certificate is not accepted");
    }
    let valid = CertificateDer::from(VALID_CERTIFICATE);
    let (user, _) =
        CERTIFICATES.user(&[valid, shown], now).expect("an additional certificate does not invalidate a valid one");
    assert_eq!(user.username, "ann");
    if let Ok(authorities) = ClientCertificates::new(data) {
        assert!(!authorities.subjects().is_empty());
    }
}

/// The input is a bearer token. A modified token is never accepted, and parsing is deterministic.
pub fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(BearerToken::Jwt(token)) = BearerToken::parse(text) {
        assert_eq!(token.unverified_issuer(), Token::parse(text).unwrap().unverified_issuer());
    }
    let Ok(token) = Token::parse(text) else { return };
    let is_signed = token.is_signed_by(&KEY_SET);
    let Ok((user, _)) = token.verify(&issuer(), &KEY_SET, SystemTime::UNIX_EPOCH + NOW) else { return };
    assert!(is_signed);
    let message = |text: &str| text.rsplit_once('.').unwrap().0.to_owned();
    assert_eq!(message(text), message(VALID_TOKEN), "no other message was signed");
    assert_eq!((&*user.username, user.groups), ("oidc:ann", vec!["dev".to_owned()]));
}

fn issuer() -> JwtAuthenticator {
    let url = "https://issuer.example".to_owned();
    JwtAuthenticator {
        discovery_url: format!("{url}/.well-known/openid-configuration"),
        issuer_url: url,
        certificate_authority: None,
        audiences: vec!["tributary".to_owned()],
        required_claims: Default::default(),
        username: ClaimMapping { claim: "sub".to_owned(), prefix: "oidc:".to_owned() },
        groups: Some(ClaimMapping { claim: "groups".to_owned(), prefix: String::new() }),
        uid: None,
    }
}

/// The input is the file with the issuers. An accepted configuration is usable and deterministic, and a rejection has a
/// reason.
pub fn authentication_configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = AuthenticationConfiguration::parse(text, &[]);
    match &read {
        Ok(configuration) => {
            for issuer in &configuration.jwt {
                // As Go's net/url, the parser accepts the scheme in upper and lower case.
                let is_https = |url: &str| url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
                assert!(is_https(&issuer.issuer_url) && is_https(&issuer.discovery_url));
                assert!(!issuer.audiences.is_empty() && !issuer.username.claim.is_empty());
                let same = configuration.jwt.iter().filter(|other| other.issuer_url == issuer.issuer_url).count();
                assert_eq!(same, 1, "each issuer has a single rule");
                // The parser must refuse an issuer that the second argument reserves for a different authenticator.
                assert!(AuthenticationConfiguration::parse(text, std::slice::from_ref(&issuer.issuer_url)).is_err());
            }
        }
        Err(invalid) => assert!(!invalid.0.is_empty() && invalid.0.iter().all(|line| !line.is_empty())),
    }
    assert_eq!(read, AuthenticationConfiguration::parse(text, &[]));
}
