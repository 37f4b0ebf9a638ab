use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SigningKey};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tributary_apimachinery::{ForeignDoors, ForeignSystem, Mount, RequestInfo};
use tributary_authentication::{JsonWebKeySet, MemberKeys, TokenReviewer};
use tributary_hub::{DoorResource, HubAddress};

use super::*;
use crate::authentication::{Authenticator, ManagedAuthenticator, SharedAuthenticator};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl TestAuthority {
    fn new(name: &str) -> Self {
        let mut own = CertificateParams::new(Vec::<String>::new()).unwrap();
        own.distinguished_name.push(DnType::CommonName, name);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = own.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(own, key), pem }
    }

    fn client(&self, name: &str) -> Arc<ClientChain> {
        self.issue(name, ExtendedKeyUsagePurpose::ClientAuth, 600)
    }

    /// Issues a certificate that expires after this number of seconds, which may be negative.
    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose, seconds: i64) -> Arc<ClientChain> {
        let mut own = CertificateParams::new(Vec::<String>::new()).unwrap();
        own.distinguished_name.push(DnType::CommonName, name);
        own.distinguished_name.push(DnType::OrganizationName, "dev");
        own.extended_key_usages = vec![usage];
        let (now, change) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
        own.not_after = if seconds < 0 { now - change } else { now + change }.into();
        let certificate: CertificateDer<'static> =
            own.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone();
        Arc::new(ClientChain::new(&[certificate]))
    }
}

/// The API of a hub: one ConfigMap, TokenReviews and SubjectAccessReviews.
#[derive(Default)]
struct FakeHub {
    config_map: Mutex<Value>,
    /// The user of each token.
    users: Mutex<BTreeMap<String, Value>>,
    /// The key set for ServiceAccount tokens. With `None`, the hub refuses the request for its keys.
    keys: Mutex<Option<Value>>,
    /// The names of users to whom every request is allowed.
    allowed: Mutex<BTreeSet<String>>,
    /// The paths and bodies of all requests.
    asked: Mutex<Vec<(String, Value)>>,
    is_down: AtomicBool,
}

impl FakeHub {
    async fn start() -> (Arc<Self>, Arc<HubClient>) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (hub, listener) = (Arc::<Self>::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let served = Arc::clone(&hub);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let hub = Arc::clone(&served);
                let service = service_fn(move |request| Arc::clone(&hub).answer(request));
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.kubeconfig");
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "a", "user": {}}]});
        fs::write(&path, kubeconfig.to_string()).unwrap();
        let client = HubClient::connect(&HubAddress::Kubeconfig { path, context: None }).await.unwrap();
        (hub, Arc::new(client))
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        self.asked.lock().push((path.clone(), body.clone()));
        let (code, answer) = match path.rsplit('/').next().unwrap() {
            _ if self.is_down.load(Ordering::Relaxed) => (500, json!({"kind": "Status", "message": "etcd is down"})),
            "extension-apiserver-authentication" => (200, self.config_map.lock().clone()),
            "tokenreviews" => (201, self.review_token(&body)),
            "jwks" => self.keys.lock().clone().map_or((403, json!({"kind": "Status"})), |keys| (200, keys)),
            "subjectaccessreviews" => {
                let allowed = self.allowed.lock().contains(body["spec"]["user"].as_str().unwrap());
                (201, json!({"kind": "SubjectAccessReview", "status": {"allowed": allowed, "reason": "by a test"}}))
            }
            _ => (404, json!({"kind": "Status"})),
        };
        Ok(Response::builder().status(code).body(answer.to_string()).unwrap())
    }

    fn review_token(&self, review: &Value) -> Value {
        let spec = &review["spec"];
        let user = self.users.lock().get(spec["token"].as_str().unwrap()).cloned();
        let status = match user {
            Some(user) => json!({"authenticated": true, "user": user, "audiences": spec["audiences"]}),
            None => json!({"authenticated": false}),
        };
        json!({"kind": "TokenReview", "status": status})
    }

    fn set_config_map(&self, data: &Value) {
        *self.config_map.lock() = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    }

    /// Returns the bodies of the requests to a resource so far.
    fn asked(&self, resource: &str) -> Vec<Value> {
        let asked = self.asked.lock();
        asked.iter().filter(|(path, _)| path.ends_with(resource)).map(|(_, body)| body.clone()).collect()
    }
}

/// A hub with an authority for clients and an authority for front proxies with the name `front`.
struct World {
    hub: Arc<FakeHub>,
    client: Arc<HubClient>,
    trust: Arc<HubTrust>,
    clients: TestAuthority,
    proxies: TestAuthority,
    own: Arc<HubAuthenticator>,
}

impl World {
    /// Creates the hub and an authenticator that has not read the hub's ConfigMap.
    async fn unread() -> Self {
        let (hub, client) = FakeHub::start().await;
        let (trust, clients, proxies) =
            (Arc::<HubTrust>::default(), TestAuthority::new("clients"), TestAuthority::new("proxies"));
        let own = HubAuthenticator::new(&client, Arc::clone(&trust), Vec::new()).unwrap();
        let own = Arc::new(own);
        let world = Self { hub, client, trust, clients, proxies, own };
        world.hub.set_config_map(&world.data());
        world
    }

    async fn new() -> Self {
        let world = Self::unread().await;
        assert!(world.trust.read(&world.client).await);
        world
    }

    fn data(&self) -> Value {
        json!({
            "client-ca-file": self.clients.pem,
            "requestheader-client-ca-file": self.proxies.pem,
            "requestheader-allowed-names": r#"["front"]"#,
            "requestheader-username-headers": r#"["X-Remote-User","X-Hub-User"]"#,
            "requestheader-uid-headers": r#"["X-Remote-Uid"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group","X-Hub-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-","X-Hub-Extra-"]"#,
        })
    }

    async fn authenticate(
        &self,
        head: &mut Parts,
        chain: &Arc<ClientChain>,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        Authenticator::Hub(Arc::clone(&self.own)).authenticate(head, &Mount::Merged, chain, CLIENT).await
    }

    /// Returns the name and the authority of the user, and checks that no credential is left in the head.
    async fn user(&self, chain: &Arc<ClientChain>, headers: &[(&str, &str)]) -> Option<(String, Authority)> {
        let mut head = head("/api", headers);
        let sender = self.authenticate(&mut head, chain).await.ok();
        let left: Vec<_> = head.headers.keys().map(HeaderName::as_str).filter(|name| *name != "accept").collect();
        assert!(left.is_empty(), "{left:?}");
        sender.map(|sender| (sender.user.info.username, sender.user.authority))
    }

    async fn direct_sender(&self, name: &str) -> AuthenticatedSender {
        self.authenticate(&mut head("/api", &[]), &self.clients.client(name)).await.unwrap()
    }
}

fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let (mut head, ()) = Request::get(uri).header("accept", "*/*").body(()).unwrap().into_parts();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        head.headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    head
}

fn named(user: &str, authority: Authority) -> Option<(String, Authority)> {
    Some((user.to_owned(), authority))
}

#[tokio::test]
async fn forged_user_headers_are_removed_and_only_the_own_credential_counts() {
    let world = World::new().await;
    world.hub.users.lock().insert("t".to_owned(), json!({"username": "bob"}));
    let (direct, proxied) = (|| Authority::Hub, || Authority::HubFrontProxy);
    let stranger = TestAuthority::new("proxies");
    let nobody = Arc::<ClientChain>::default();
    let front = world.proxies.client("front");
    let server = world.proxies.issue("front", ExtendedKeyUsagePurpose::ServerAuth, 600);
    let expired = world.proxies.issue("front", ExtendedKeyUsagePurpose::ClientAuth, -60);
    let (wrong_name, wrong_authority) = (world.proxies.client("back"), stranger.client("front"));
    let (ann, ann_as_front) = (world.clients.client("ann"), world.clients.client("front"));
    let root = ("X-Remote-User", "root");
    let hub_root = ("X-Hub-User", "root");
    let masters = ("X-Remote-Group", "system:masters");
    let others = [("X-Remote-Uid", "1"), ("X-Remote-Extra-a", "b"), ("X-Hub-Group", "a"), ("X-Hub-Extra-a", "b")];
    let token = ("Authorization", "Bearer t");
    type Row<'a> = (&'a str, &'a Arc<ClientChain>, &'a [(&'a str, &'a str)], Option<(String, Authority)>);
    let table: &[Row<'_>] = &[
        ("front proxy", &front, &[root, masters], named("root", proxied())),
        ("front proxy with a custom name", &front, &[hub_root], named("root", proxied())),
        ("front proxy with both names", &front, &[("X-Hub-User", "eve"), root], named("root", proxied())),
        ("front proxy beside a token", &front, &[root, token], named("root", proxied())),
        ("no certificate", &nobody, &[root, masters], None),
        ("no certificate, custom names", &nobody, &[hub_root, others[2], others[3]], None),
        ("no certificate, a token", &nobody, &[root, masters, token], named("bob", direct())),
        ("wrong CN", &wrong_name, &[root, masters], None),
        ("wrong CN, custom names", &wrong_name, &[hub_root], None),
        ("wrong CN, a token", &wrong_name, &[root, token], named("bob", direct())),
        ("wrong CA", &wrong_authority, &[root, masters], None),
        ("wrong CA, a token", &wrong_authority, &[root, token], named("bob", direct())),
        ("a certificate for servers", &server, &[root], None),
        ("an expired certificate", &expired, &[root], None),
        ("a client certificate", &ann, &[root, masters], named("ann", direct())),
        ("a client certificate with the name", &ann_as_front, &[root], named("front", direct())),
        ("no user header", &front, &others, None),
        ("no user header, a token", &front, &[masters, token], named("bob", direct())),
        ("an empty user header", &front, &[("X-Remote-User", "")], None),
        ("user twice", &front, &[root, ("X-Remote-User", "eve")], None),
        ("user twice, a token", &front, &[root, root, token], None),
        ("custom user twice", &front, &[hub_root, hub_root, token], None),
        ("uid twice", &front, &[root, others[0], others[0], token], None),
        ("only other headers", &nobody, &others, None),
    ];
    for (what, chain, headers, expected) in table {
        // The second iteration uses the cached verification of the connection, and must have the same result.
        for _ in 0..2 {
            assert_eq!(world.user(chain, headers).await, *expected, "{what}");
        }
    }
}

#[tokio::test]
async fn front_proxy_names_all_attributes_of_the_user() {
    let world = World::new().await;
    let headers = [
        ("X-Remote-User", "ann"),
        ("X-Remote-Uid", "u-1"),
        ("X-Remote-Group", "dev"),
        ("X-Remote-Group", "system:masters"),
        ("X-Hub-Group", "ops"),
        ("X-Remote-Extra-Example.com%2fTeam", "a"),
        ("X-Hub-Extra-example.com%2fteam", "b"),
        ("Origin", "https://other.example"),
    ];
    let front = world.proxies.client("front");
    let sender = world.authenticate(&mut head("/api", &headers), &front).await.unwrap();
    let UserInfo { username, uid, groups, extra } = &sender.user.info;
    assert_eq!((username.as_str(), uid.as_str()), ("ann", "u-1"));
    assert_eq!(groups, &["dev", "system:masters", "ops", "system:authenticated"]);
    assert_eq!(extra, &BTreeMap::from([("example.com/team".to_owned(), vec!["a".to_owned(), "b".to_owned()])]));
    assert_eq!(sender.user.authority.only_member(), None);
    assert!(sender.until.is_some() && sender.own_credential.is_none() && !sender.is_cross_origin);
    // A browser also adds its certificate to requests that pages of other origins cause, so the sender must be marked.
    let ann = world.clients.client("ann");
    assert!(world.authenticate(&mut head("/api", &headers), &ann).await.unwrap().is_cross_origin);
    // The hub also forwards anonymous requests. Their user must not be in `system:authenticated`.
    let anonymous = [("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated")];
    let sender = world.authenticate(&mut head("/api", &anonymous), &front).await.unwrap();
    assert_eq!(sender.user.info.groups, ["system:unauthenticated"]);
}

#[tokio::test]
async fn rotated_authorities_count_for_the_next_request() {
    let world = World::new().await;
    let root = [("X-Remote-User", "root")];
    let (front, ann) = (world.proxies.client("front"), world.clients.client("ann"));
    let sender = |chain: Arc<ClientChain>| {
        let world = &world;
        async move { world.authenticate(&mut head("/api", &root), &chain).await }
    };
    let open = [sender(Arc::clone(&front)).await.unwrap(), sender(Arc::clone(&ann)).await.unwrap()];
    let are_valid = || open.each_ref().map(|sender| sender.credential_validity.as_ref().unwrap().is_valid());
    let subjects = world.own.subjects();
    assert!(!world.trust.read(&world.client).await, "nothing has changed");

    // The last rules stay in force while the hub is down, and while the ConfigMap is invalid.
    world.hub.is_down.store(true, Ordering::Relaxed);
    assert!(!world.trust.read(&world.client).await);
    assert!(world.trust.problem().unwrap().contains("etcd is down"));
    world.hub.is_down.store(false, Ordering::Relaxed);
    world.hub.set_config_map(&json!({"requestheader-client-ca-file": "no PEM"}));
    assert!(!world.trust.read(&world.client).await);
    assert!(world.trust.problem().unwrap().contains("requestheader-client-ca-file"));
    assert_eq!((are_valid(), world.own.subjects()), ([true, true], subjects.clone()));
    assert!(sender(Arc::clone(&front)).await.is_ok());

    let (next_proxies, next_clients) = (TestAuthority::new("next proxies"), TestAuthority::new("next clients"));
    let with = |proxies: String, clients: &str| {
        let mut data = world.data();
        data["requestheader-client-ca-file"] = proxies.into();
        data["client-ca-file"] = clients.into();
        world.hub.set_config_map(&data);
    };
    with(format!("{}{}", world.proxies.pem, next_proxies.pem), &world.clients.pem);
    assert!(world.trust.read(&world.client).await && world.trust.problem().is_none());
    assert_eq!(are_valid(), [true, true]);
    let next_front = next_proxies.client("front");
    assert!(sender(Arc::clone(&next_front)).await.is_ok() && sender(Arc::clone(&front)).await.is_ok());
    with(next_proxies.pem.clone(), &next_clients.pem);
    assert!(world.trust.read(&world.client).await);
    assert_eq!(are_valid(), [false, false]);
    assert_ne!(world.own.subjects(), subjects);
    for (chain, is_known) in [(&front, false), (&ann, false), (&next_front, true), (&next_clients.client("ann"), true)]
    {
        assert_eq!(sender(Arc::clone(chain)).await.is_ok(), is_known);
    }
    // A changed list of allowed names also revokes the trust in the front proxy.
    let mut data = world.data();
    data["requestheader-client-ca-file"] = next_proxies.pem.clone().into();
    data["requestheader-allowed-names"] = r#"["other"]"#.into();
    world.hub.set_config_map(&data);
    assert!(world.trust.read(&world.client).await);
    assert!(sender(next_front).await.is_err());
}

#[tokio::test]
async fn follower_reads_at_once_and_after_a_refused_certificate() {
    let world = World::unread().await;
    world.hub.is_down.store(true, Ordering::Relaxed);
    let (trust, client, (changed, mut changes)) =
        (Arc::clone(&world.trust), Arc::clone(&world.client), tokio::sync::mpsc::unbounded_channel());
    let task = tokio::spawn(async move { trust.follow(&client, move || changed.send(()).unwrap()).await });
    while world.trust.problem().is_none_or(|problem| !problem.contains("etcd is down")) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.hub.is_down.store(false, Ordering::Relaxed);
    changes.recv().await.unwrap();
    assert!(world.trust.is_read());
    let next = TestAuthority::new("next");
    let mut data = world.data();
    data["requestheader-client-ca-file"] = next.pem.clone().into();
    world.hub.set_config_map(&data);
    let (front, root) = (next.client("front"), [("X-Remote-User", "root")]);
    assert_eq!(world.user(&front, &root).await, None);
    tokio::time::timeout(Duration::from_secs(30), changes.recv()).await.unwrap().unwrap();
    assert_eq!(world.user(&front, &root).await, named("root", Authority::HubFrontProxy));
    task.abort();
}

#[tokio::test]
async fn nobody_is_trusted_before_the_hub_answers() {
    let world = World::unread().await;
    let (front, ann) = (world.proxies.client("front"), world.clients.client("ann"));
    let root = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")];
    assert!(!world.trust.is_read() && world.trust.problem().is_some());
    assert_eq!((world.user(&front, &root).await, world.user(&ann, &root).await), (None, None));
    let sender = world.authenticate(&mut head("/readyz", &root), &front).await.unwrap();
    assert!(sender.user.authority.is_anonymous());
    let door = DoorAttributes::of_resource(DoorResource::Views, "list", "");
    assert_eq!(world.own.authorize_door(&sender, &door).await.unwrap_err().code, 401);
    for uri in ["/readyz?verbose", "/apis", "/healthz/a"] {
        assert!(world.authenticate(&mut head(uri, &root), &front).await.is_err(), "{uri}");
    }
}

#[tokio::test]
async fn front_proxy_of_the_client_authority_is_not_trusted_without_names() {
    let world = World::new().await;
    let mut data = world.data();
    data["requestheader-client-ca-file"] = world.clients.pem.clone().into();
    data["requestheader-allowed-names"] = "[]".into();
    world.hub.set_config_map(&data);
    assert!(world.trust.read(&world.client).await);
    assert!(world.trust.problem().unwrap().contains("could claim to be any user"));
    let root = [("X-Remote-User", "root"), ("X-Hub-User", "root")];
    let known = world.user(&world.clients.client("ann"), &root).await;
    assert_eq!(known, named("ann", Authority::Hub));
}

#[tokio::test]
async fn hub_reviews_tokens_and_the_answer_is_cached() {
    let world = World::new().await;
    let robot = json!({"username": "system:serviceaccount:shop:robot", "groups": ["system:serviceaccounts"]});
    world.hub.users.lock().insert("robot".to_owned(), robot);
    let nobody = Arc::<ClientChain>::default();
    for _ in 0..3 {
        let robot = world.user(&nobody, &[("Authorization", "Bearer robot")]).await;
        assert_eq!(robot, named("system:serviceaccount:shop:robot", Authority::Hub));
        assert_eq!(world.user(&nobody, &[("Authorization", "Bearer unknown")]).await, None);
    }
    let asked = world.hub.asked("tokenreviews");
    assert_eq!(
        asked.iter().map(|review| &review["spec"]).collect::<Vec<_>>(),
        [&json!({"token": "robot"}), &json!({"token": "unknown"})]
    );
    let mut head = head("/api", &[("Authorization", "Bearer robot")]);
    let sender = world.authenticate(&mut head, &nobody).await.unwrap();
    assert_eq!(sender.user.authority.only_member(), None);
    assert!(sender.own_credential.is_none() && sender.credential_validity.unwrap().is_valid());

    let audiences = HubAuthenticator::new(&world.client, Arc::clone(&world.trust), vec!["tributary".to_owned()]);
    let audiences = audiences.unwrap();
    let mut head = self::head("/api", &[]);
    assert!(audiences.authenticate(&mut head, &nobody, &[b"robot".to_vec()], CLIENT).await.is_ok());
    assert_eq!(world.hub.asked("tokenreviews").pop().unwrap()["spec"]["audiences"], json!(["tributary"]));
    // A failed review must not be cached.
    world.hub.is_down.store(true, Ordering::Relaxed);
    world.hub.users.lock().insert("late".to_owned(), json!({"username": "late"}));
    assert_eq!(world.user(&nobody, &[("Authorization", "Bearer late")]).await, None);
    world.hub.is_down.store(false, Ordering::Relaxed);
    let late = world.user(&nobody, &[("Authorization", "Bearer late")]).await;
    assert_eq!(late, named("late", Authority::Hub));
}

/// A key of the hub for the tokens of ServiceAccounts.
struct ServiceAccountKey {
    id: &'static str,
    pair: KeyPair,
}

impl ServiceAccountKey {
    fn new(id: &'static str) -> Self {
        Self { id, pair: KeyPair::generate().unwrap() }
    }

    fn key_set(&self) -> Value {
        let (x, y) = self.pair.public_key_raw()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({"keys": [{"kty": "EC", "kid": self.id, "crv": "P-256", "x": x, "y": y}]})
    }

    fn token(&self) -> String {
        let header = json!({"alg": "ES256", "kid": self.id}).to_string();
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode("{}"));
        let signature = self.pair.sign(message.as_bytes()).unwrap();
        // The signature is in DER, but a JWT contains the signature's two numbers with 32 bytes each.
        let (r, rest) = signature[4..].split_at(signature[3].into());
        let fixed = [r, &rest[2..]].map(|number| {
            let digits = &number[number.len().saturating_sub(32)..];
            [&vec![0; 32 - digits.len()], digits].concat()
        });
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(fixed.concat()))
    }
}

/// Without the keys, random tokens of other clients could use up the reviews for ServiceAccounts of the hub.
#[tokio::test]
async fn keys_of_the_hub_are_followed() {
    let world = World::new().await;
    let [first, second] = ["1", "2"].map(ServiceAccountKey::new);
    let tokens = [&first, &second].map(ServiceAccountKey::token);
    for token in &tokens {
        world.hub.users.lock().insert(token.clone(), json!({"username": "ann"}));
    }
    let is_key_known = async |token: &String| {
        let known = world.own.tokens().authenticate(token.as_bytes(), None, CLIENT).await.unwrap();
        known.authority == Authority::Member(ClusterName::new(HUB).unwrap())
    };
    // The clock moves only between requests. Otherwise, the time limit of 10 s would end the requests to the hub.
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let wait_for_key = async |token: &String| {
        let begun = tokio::time::Instant::now();
        while !is_key_known(token).await {
            assert!(begun.elapsed() < Duration::from_secs(240), "only the fetch after 300 s finds the key");
            pass(31).await;
        }
    };
    let fetches = || world.hub.asked("jwks").len();
    let task = tokio::spawn(Arc::clone(&world.own).follow_keys(Arc::clone(&world.client)));
    while fetches() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!is_key_known(&tokens[0]).await, "the hub refuses to serve its keys");
    *world.hub.keys.lock() = Some(first.key_set());
    wait_for_key(&tokens[0]).await;
    *world.hub.keys.lock() = Some(second.key_set());
    wait_for_key(&tokens[1]).await;
    pass(31).await;
    let before = fetches();
    pass(301).await;
    assert!(fetches() > before, "the keys are fetched every 300 s");
    let bearer = format!("Bearer {}", tokens[1]);
    let user = world.user(&Arc::default(), &[("Authorization", &bearer)]).await;
    assert_eq!(user, named("ann", Authority::Hub));
    task.abort();
}

#[tokio::test]
async fn reviews_of_a_direct_caller_have_a_rate_limit() {
    let world = World::new().await;
    world.hub.allowed.lock().insert("ann".to_owned());
    let (ann, bob) = (world.direct_sender("ann").await, world.direct_sender("bob").await);
    let door = |name: &str| DoorAttributes::of_proxy(DoorResource::Clusters, name, &Method::GET);
    assert_eq!(world.own.authorize_door(&ann, &door("eu")).await, Ok(()));
    let mut sent = 0;
    let refused = loop {
        match world.own.authorize_door(&bob, &door(&format!("c-{sent}"))).await.unwrap_err() {
            refused if refused.code == 403 => sent += 1,
            refused => break refused,
        }
    };
    assert!(sent >= 100, "{sent}");
    assert_eq!((refused.code, refused.retry_after_seconds()), (429, Some(1)), "{refused:?}");
    assert_eq!(world.own.authorize_door(&bob, &door("c-0")).await.unwrap_err().code, 403, "a cached answer");
    assert_eq!(world.own.authorize_door(&ann, &door("us")).await, Ok(()), "another caller");
}

/// The kube-apiserver of the hub has checked only the right to `proxy`.
#[tokio::test]
async fn inner_request_is_reviewed_also_for_a_caller_of_the_front_proxy() {
    let world = World::new().await;
    let info = RequestInfo::parse("GET", "/api/v1/namespaces/shop/pods", None).unwrap();
    let inner = DoorAttributes::of_inner(&info);
    let front = world.proxies.client("front");
    let root = world.authenticate(&mut head("/api", &[("X-Remote-User", "root")]), &front).await.unwrap();
    let refused = world.own.authorize_inner(&root, &inner).await.unwrap_err();
    assert_eq!(refused.code, 403, "{refused:?}");
    let asked = world.hub.asked("subjectaccessreviews");
    let expected = json!({"verb": "list", "group": "", "version": "v1", "resource": "pods", "subresource": "",
        "namespace": "shop", "name": ""});
    assert_eq!((&asked[0]["spec"]["user"], &asked[0]["spec"]["resourceAttributes"]), (&json!("root"), &expected));
    world.hub.allowed.lock().insert("ann".to_owned());
    let ann = world.direct_sender("ann").await;
    assert_eq!(world.own.authorize_inner(&ann, &inner).await, Ok(()));
    // A user whom the hub has not authenticated.
    let mut stranger = ann.clone();
    stranger.user.authority = Authority::ClientCertificates;
    assert_eq!(world.own.authorize_inner(&stranger, &inner).await.unwrap_err().code, 401);
}

/// A token of the hub must reach no member, and a token of a member still reaches the hub only after the member.
#[tokio::test]
async fn token_of_the_hub_goes_to_no_member_at_the_door_of_open_cluster_management() {
    let world = World::new().await;
    let key = ServiceAccountKey::new("1");
    let (signed, opaque) = (key.token(), "opaque".to_owned());
    *world.hub.keys.lock() = Some(key.key_set());
    let member: ClusterName = "eu".parse().unwrap();
    let reviewed = Arc::<Mutex<Vec<ClusterName>>>::default();
    let reviewer = Arc::new(RecordingReviewer(Arc::clone(&reviewed)));
    let tokens = TokenAuthenticator::new(TokenReviews::default(), Arc::new(IssuerDocuments), reviewer);
    tokens.set_reviewing_members([member.clone()].into());
    let tokens = Arc::new(tokens);
    let members = SharedAuthenticator { tokens: Some(Arc::clone(&tokens)), ..SharedAuthenticator::default() };
    let managed = Authenticator::Managed(ManagedAuthenticator { members, hub: Arc::clone(&world.own) });
    for token in [&signed, &opaque] {
        world.hub.users.lock().insert(token.clone(), json!({"username": "robot"}));
    }
    let task = tokio::spawn(Arc::clone(&world.own).follow_keys(Arc::clone(&world.client)));
    while world.hub.asked("jwks").is_empty() || !world.own.has_signed(signed.as_bytes()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The member also serves a copy of the hub's keys.
    let mut keys = MemberKeys::default();
    keys.follow(std::slice::from_ref(&member));
    keys.set(member.clone(), JsonWebKeySet::parse(key.key_set().to_string().as_bytes()).unwrap());
    tokens.set_member_keys(keys);
    let mut doors = ForeignDoors::default();
    doors.open(ForeignSystem::OpenClusterManagement, [("eu".to_owned(), member)].into());
    let mount = Mount::OpenClusterManagement(Arc::new(doors));
    for (token, expected) in [(&signed, 0), (&opaque, 1)] {
        let bearer = format!("Bearer {token}");
        let mut head = head("/eu/api", &[("Authorization", &bearer)]);
        let known = managed.authenticate(&mut head, &mount, &Arc::default(), CLIENT).await.unwrap();
        assert_eq!((&*known.user.info.username, reviewed.lock().len()), ("robot", expected));
    }
    task.abort();
}

/// A reviewer that knows no token, and records the reviews.
#[derive(Debug)]
struct RecordingReviewer(Arc<Mutex<Vec<ClusterName>>>);

impl TokenReviewer for RecordingReviewer {
    fn review(&self, cluster: &ClusterName, _: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        self.0.lock().push(cluster.clone());
        let review = json!({"kind": "TokenReview", "status": {"authenticated": false}});
        async move { Ok(review.to_string().into_bytes()) }.boxed()
    }
}

#[tokio::test]
async fn hub_judges_the_door_of_direct_callers_alone() {
    let world = World::new().await;
    let door = DoorAttributes::of_proxy(DoorResource::Clusters, "eu", &Method::POST);
    let front = world.proxies.client("front");
    let root = world.authenticate(&mut head("/api", &[("X-Remote-User", "root")]), &front).await.unwrap();
    assert_eq!(world.own.authorize_door(&root, &door).await, Ok(()));
    assert!(world.hub.asked("subjectaccessreviews").is_empty(), "the hub has asked already");

    world.hub.allowed.lock().insert("ann".to_owned());
    let (ann, bob) = (world.direct_sender("ann").await, world.direct_sender("bob").await);
    let both = [world.own.authorize_door(&ann, &door), world.own.authorize_door(&ann, &door)];
    assert_eq!(futures::future::join_all(both).await, [Ok(()), Ok(())]);
    let asked = world.hub.asked("subjectaccessreviews");
    assert_eq!(asked.len(), 1, "equal reviews are sent once");
    let spec = &asked[0]["spec"];
    assert_eq!((&spec["user"], &spec["groups"]), (&json!("ann"), &json!(["dev", "system:authenticated"])));
    assert_eq!(
        spec["resourceAttributes"],
        json!({"verb": "create", "group": "aggregation.tributary.dev", "version": "v1alpha1", "resource": "clusters",
            "subresource": "proxy", "namespace": "", "name": "eu"})
    );
    for _ in 0..2 {
        let refused = world.own.authorize_door(&bob, &door).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (
                403,
                "clusters.aggregation.tributary.dev \"eu\" is forbidden: User \"bob\" cannot create resource \
             \"clusters/proxy\" in API group \"aggregation.tributary.dev\" at the cluster scope: by a test"
            )
        );
        assert_eq!(world.own.authorize_door(&ann, &door).await, Ok(()));
    }
    assert_eq!(world.hub.asked("subjectaccessreviews").len(), 2, "both answers are cached");
    // The cache has no answer for a different member, verb or resource.
    for other in [
        DoorAttributes::of_proxy(DoorResource::Clusters, "us", &Method::POST),
        DoorAttributes::of_proxy(DoorResource::Clusters, "eu", &Method::GET),
        DoorAttributes::of_proxy(DoorResource::Views, "eu", &Method::POST),
        DoorAttributes::of_resource(DoorResource::Clusters, "watch", "eu"),
    ] {
        assert_eq!(world.own.authorize_door(&ann, &other).await, Ok(()));
    }
    assert_eq!(world.hub.asked("subjectaccessreviews").len(), 6);
}

#[tokio::test]
async fn silent_hub_opens_no_door() {
    let world = World::new().await;
    world.hub.allowed.lock().insert("ann".to_owned());
    let (ann, door) =
        (world.direct_sender("ann").await, DoorAttributes::of_proxy(DoorResource::Views, "all", &Method::GET));
    world.hub.is_down.store(true, Ordering::Relaxed);
    let refused = world.own.authorize_door(&ann, &door).await.unwrap_err();
    // The refusal omits the error message of the hub, which could quote the review.
    let shows = ["500", "etcd is down"].map(|text| refused.message.contains(text));
    assert_eq!((refused.code, shows), (503, [true, false]), "{refused:?}");
    world.hub.is_down.store(false, Ordering::Relaxed);
    assert_eq!(world.own.authorize_door(&ann, &door).await, Ok(()), "the failure is not cached");
}

#[tokio::test]
async fn audit_id_counts_only_from_the_front_proxy() {
    let world = World::new().await;
    let stranger = TestAuthority::new("proxies");
    for (chain, is_kept) in [
        (world.proxies.client("front"), true),
        (world.proxies.client("back"), false),
        (stranger.client("front"), false),
        (world.clients.client("ann"), false),
        (Arc::default(), false),
    ] {
        let mut head = head("/api", &[("Audit-ID", "a-1")]);
        world.own.remove_untrusted_audit_id(&mut head, &chain);
        assert_eq!(head.headers.contains_key(AUDIT_ID), is_kept, "{chain:?}");
    }
}
