use std::collections::BTreeMap;

use serde_json::json;
use tokio::time::{advance, sleep};

use super::*;
use crate::testing::{TestSigner, claims, issuer};

const URL: &str = "https://issuer";
const DISCOVERY: &str = "https://issuer/.well-known/openid-configuration";
const KEYS: &str = "https://issuer/keys";

/// The HTTPS server of an issuer. Each response takes 1 s.
#[derive(Debug, Default)]
struct Server {
    documents: Mutex<BTreeMap<String, String>>,
    fetched_urls: Mutex<Vec<String>>,
    authorities: Mutex<Vec<Option<String>>>,
    hangs: Mutex<bool>,
}

impl FetchDocument for Arc<Server> {
    fn fetch(&self, url: &str, certificate_authority: Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        self.fetched_urls.lock().push(url.to_owned());
        self.authorities.lock().push(certificate_authority.map(str::to_owned));
        let (found, hangs) = (self.documents.lock().get(url).cloned(), *self.hangs.lock());
        async move {
            sleep(Duration::from_secs(if hangs { 3600 } else { 1 })).await;
            found.map(String::into_bytes).ok_or_else(|| "it is down".to_owned())
        }
        .boxed()
    }
}

impl Server {
    fn serves(&self, keys: &[&TestSigner]) {
        let discovery = json!({"issuer": URL, "jwks_uri": KEYS}).to_string();
        let keys: Vec<_> = keys.iter().map(|signer| signer.key()).collect();
        let keys = json!({"keys": keys}).to_string();
        *self.documents.lock() = BTreeMap::from([(DISCOVERY.to_owned(), discovery), (KEYS.to_owned(), keys)]);
    }

    /// Returns the number of fetches of the discovery document.
    fn discovery_fetches(&self) -> usize {
        self.fetched_urls.lock().iter().filter(|url| *url == DISCOVERY).count()
    }
}

fn new(server: &Arc<Server>) -> Arc<IssuerKeys> {
    let issuer = JwtAuthenticator { certificate_authority: Some("PEM".to_owned()), ..issuer(URL) };
    IssuerKeys::new(issuer, Arc::new(Arc::clone(server)))
}

async fn verify(keys: &Arc<IssuerKeys>, signer: &TestSigner) -> Result<String, IssuerError> {
    let token = signer.signed(&claims(URL, "ann", 3600));
    keys.verify(&Token::parse(&token).unwrap()).await.map(|(user, _)| user.username)
}

fn signature() -> Result<String, IssuerError> {
    Err(IssuerError::Token(TokenError::Signature))
}

fn ann() -> Result<String, IssuerError> {
    Ok("ann".to_owned())
}

#[tokio::test(start_paused = true)]
async fn token_with_an_unknown_key_id_causes_one_key_fetch_per_10_s() {
    let (server, first, second, stranger) =
        (Arc::new(Server::default()), TestSigner::new("1"), TestSigner::new("2"), TestSigner::new("x"));
    let keys = new(&server);
    server.serves(&[&first]);
    assert_eq!(verify(&keys, &first).await, ann());
    assert_eq!(*server.fetched_urls.lock(), [DISCOVERY, KEYS]);
    assert_eq!(*server.authorities.lock(), [Some("PEM".to_owned()), Some("PEM".to_owned())]);
    server.serves(&[&first, &second]);
    for _ in 0..100 {
        assert_eq!(verify(&keys, &second).await, signature(), "the issuer was asked a moment ago");
        assert_eq!(verify(&keys, &first).await, ann());
    }
    assert_eq!(server.discovery_fetches(), 1);
    advance(FETCH_INTERVAL).await;
    assert_eq!(verify(&keys, &second).await, ann());
    advance(FETCH_INTERVAL).await;
    for _ in 0..100 {
        assert_eq!(verify(&keys, &stranger).await, signature());
        assert_eq!(verify(&keys, &TestSigner::new("1")).await, signature(), "another key of a known id");
    }
    assert_eq!(server.discovery_fetches(), 3);
}

/// A token may name the id of a cached key that does not verify the token's signature. Like go-oidc
/// (`RemoteKeySet.verify`), the code then fetches the keys.
#[tokio::test(start_paused = true)]
async fn issuer_key_with_a_reused_id_is_fetched() {
    let (server, first, second) = (Arc::new(Server::default()), TestSigner::new("1"), TestSigner::new("1"));
    let keys = new(&server);
    server.serves(&[&first]);
    assert_eq!(verify(&keys, &first).await, ann());
    server.serves(&[&second]);
    advance(FETCH_INTERVAL).await;
    let both = tokio::join!(verify(&keys, &second), verify(&keys, &second));
    assert_eq!(both, (ann(), ann()));
    assert_eq!(verify(&keys, &first).await, signature());
    assert_eq!(server.discovery_fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn issuer_key_fetch_is_shared_by_requests_and_survives_cancellation() {
    let (server, signer) = (Arc::new(Server::default()), TestSigner::new("1"));
    let keys = new(&server);
    server.serves(&[&signer]);
    let cancelled = timeout(Duration::from_millis(500), verify(&keys, &signer)).await;
    assert!(cancelled.is_err());
    let both = tokio::join!(verify(&keys, &signer), verify(&keys, &signer));
    assert_eq!(both, (ann(), ann()));
    assert_eq!(server.discovery_fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn cached_issuer_keys_are_used_while_the_issuer_is_down() {
    let (server, signer) = (Arc::new(Server::default()), TestSigner::new("1"));
    let keys = new(&server);
    let down = Err(IssuerError::NoKeys { issuer: URL.to_owned(), problem: "it is down".into() });
    assert_eq!(verify(&keys, &signer).await, down);
    assert_eq!(verify(&keys, &signer).await, down);
    assert_eq!(server.discovery_fetches(), 1, "it is not asked each time");
    advance(FETCH_INTERVAL).await;
    server.serves(&[&signer]);
    assert_eq!(verify(&keys, &signer).await, ann());
    server.documents.lock().clear();
    advance(FETCH_INTERVAL).await;
    assert_eq!(verify(&keys, &TestSigner::new("2")).await, signature());
    assert_eq!(server.discovery_fetches(), 3);
    for _ in 0..3 {
        advance(KEYS_AGE).await;
        assert_eq!(verify(&keys, &signer).await, ann());
    }
}

#[tokio::test(start_paused = true)]
async fn key_removed_by_the_issuer_becomes_invalid_after_the_age_limit() {
    let (server, first, second) = (Arc::new(Server::default()), TestSigner::new("1"), TestSigner::new("2"));
    let keys = new(&server);
    server.serves(&[&first]);
    assert_eq!(verify(&keys, &first).await, ann());
    server.serves(&[&second]);
    advance(KEYS_AGE).await;
    assert_eq!(verify(&keys, &first).await, ann(), "nobody waits");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(verify(&keys, &first).await, signature());
    assert_eq!(verify(&keys, &second).await, ann());
    assert_eq!(server.discovery_fetches(), 2);
}

#[tokio::test(start_paused = true)]
async fn fetch_from_a_hanging_issuer_times_out() {
    let (server, signer) = (Arc::new(Server::default()), TestSigner::new("1"));
    let keys = new(&server);
    *server.hangs.lock() = true;
    let start = Instant::now();
    let error = verify(&keys, &signer).await.unwrap_err().to_string();
    assert_eq!(error, "the keys of issuer https://issuer cannot be fetched: no answer within 10 s");
    assert!(start.elapsed() < FETCH_TIMEOUT + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn invalid_openid_discovery_documents_are_rejected() {
    let table = [
        (json!({"issuer": "https://issuer/", "jwks_uri": KEYS}), "the discovery document names another issuer"),
        (json!({"issuer": "https://evil", "jwks_uri": KEYS}), "the discovery document names another issuer"),
        (json!({"jwks_uri": KEYS}), "the discovery document has no issuer and jwks_uri"),
        (json!({"issuer": URL}), "the discovery document has no issuer and jwks_uri"),
        (json!({"issuer": URL, "jwks_uri": "http://issuer/keys"}), "is not https"),
        (json!({"issuer": URL, "jwks_uri": DISCOVERY}), "jwks_uri does not serve a JSON Web Key Set"),
        (json!({"issuer": URL, "jwks_uri": "https://issuer/none"}), "it is down"),
    ];
    for (discovery, expected) in table {
        let (server, signer) = (Arc::new(Server::default()), TestSigner::new("1"));
        server.serves(&[&signer]);
        server.documents.lock().insert(DISCOVERY.to_owned(), discovery.to_string());
        let error = verify(&new(&server), &signer).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{discovery}: {error}");
    }
}
