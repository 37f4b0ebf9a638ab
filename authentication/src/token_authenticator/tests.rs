use std::collections::BTreeMap;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::authority::Authority;
use crate::jwk::JsonWebKeySet;
use crate::testing::{TestSigner, claims, issuer};

const ISSUER: &str = "https://issuer";
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Simulated clusters that review tokens, and the server of an issuer. Each response takes 100 ms.
#[derive(Debug, Default)]
struct World {
    /// The user for each pair of cluster and token.
    users: Mutex<BTreeMap<(String, String), Value>>,
    broken: Mutex<BTreeSet<String>>,
    /// The clusters that never answer.
    hung: Mutex<BTreeSet<String>>,
    /// The prefix of the tokens whose reviews are slow, and the duration of each slow review.
    slow: Mutex<Option<(&'static str, Duration)>>,
    /// The requests that were sent: the cluster for each TokenReview, and the URL for each fetch.
    requests: Mutex<Vec<String>>,
    documents: Mutex<BTreeMap<String, String>>,
}

#[derive(Debug)]
struct Wired(Arc<World>);

impl TokenReviewer for Wired {
    fn review(&self, cluster: &ClusterName, body: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let review: Value = serde_json::from_slice(&body).unwrap();
        let token = review["spec"]["token"].as_str().unwrap().to_owned();
        self.0.requests.lock().push(cluster.to_string());
        let slow = self.0.slow.lock().filter(|(beginning, _)| token.starts_with(beginning));
        let user = self.0.users.lock().get(&(cluster.to_string(), token)).cloned();
        let is_broken = self.0.broken.lock().contains(cluster.as_str());
        let status = match user {
            Some(user) => json!({"authenticated": true, "user": user, "audiences": ["of the cluster"]}),
            None => json!({"authenticated": false, "error": "[invalid bearer token]"}),
        };
        let time = if self.0.hung.lock().contains(cluster.as_str()) { 1_000_000 } else { 100 };
        let time = slow.map_or(Duration::from_millis(time), |(_, time)| time);
        async move {
            sleep(time).await;
            let answer = json!({"kind": "TokenReview", "status": status}).to_string().into_bytes();
            if is_broken { Err("it is down".to_owned()) } else { Ok(answer) }
        }
        .boxed()
    }
}

impl FetchDocument for Wired {
    fn fetch(&self, url: &str, _: Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        self.0.requests.lock().push(url.to_owned());
        let found = self.0.documents.lock().get(url).cloned();
        async move { found.map(String::into_bytes).ok_or_else(|| "it is down".to_owned()) }.boxed()
    }
}

impl World {
    fn knows(&self, cluster: &str, token: &str, name: &str) {
        self.users.lock().insert((cluster.to_owned(), token.to_owned()), json!({"username": name}));
    }

    fn serves(&self, signer: &TestSigner) {
        let discovery = json!({"issuer": ISSUER, "jwks_uri": "https://issuer/keys"}).to_string();
        let keys = json!({"keys": [signer.key()]}).to_string();
        *self.documents.lock() = BTreeMap::from([
            (format!("{ISSUER}/.well-known/openid-configuration"), discovery),
            ("https://issuer/keys".to_owned(), keys),
        ]);
    }

    fn authenticator(self: &Arc<Self>, reviews: TokenReviews) -> TokenAuthenticator {
        let wired = || Arc::new(Wired(Arc::clone(self)));
        TokenAuthenticator::new(reviews, wired(), wired())
    }

    fn request_count(&self) -> usize {
        self.requests.lock().len()
    }
}

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

fn with_hub() -> TokenReviews {
    TokenReviews { cluster: Some(cluster("hub")), ..TokenReviews::default() }
}

fn one_issuer() -> AuthenticationConfiguration {
    AuthenticationConfiguration { jwt: vec![issuer(ISSUER)] }
}

/// Returns the user of a token, and the authority that authenticated the user.
async fn authenticate(
    tokens: &TokenAuthenticator,
    token: &str,
    addressed: Option<&str>,
) -> Result<(String, Authority), TokenAuthenticationError> {
    let addressed = addressed.map(cluster);
    let authenticated = tokens.authenticate(token.as_bytes(), addressed.as_ref(), HERE).await?;
    Ok((authenticated.user.username.clone(), authenticated.authority.clone()))
}

fn everywhere(name: &str) -> Result<(String, Authority), TokenAuthenticationError> {
    Ok((name.to_owned(), Authority::from(ISSUER)))
}

/// Returns the keys of these members. The token-review cluster `hub` serves no keys.
fn served<const N: usize>(keys: [(ClusterName, JsonWebKeySet); N]) -> MemberKeys {
    let mut served = MemberKeys::default();
    let of_hub = (cluster("hub"), JsonWebKeySet::default());
    for (member, keys) in keys.into_iter().chain([of_hub]) {
        served.set(member, keys);
    }
    served
}

fn from_hub(name: &str) -> Result<(String, Authority), TokenAuthenticationError> {
    Ok((name.to_owned(), Authority::TokenReviewCluster(cluster("hub"))))
}

fn in_member(name: &str, member: &str) -> Result<(String, Authority), TokenAuthenticationError> {
    Ok((name.to_owned(), Authority::Member(cluster(member))))
}

#[tokio::test(start_paused = true)]
async fn bearer_token_is_sent_only_to_the_cluster_that_issued_it() {
    let (world, of_issuer, of_a) = (Arc::new(World::default()), TestSigner::new("i"), TestSigner::new("a"));
    world.serves(&of_issuer);
    let tokens = world.authenticator(with_hub());
    tokens.set_issuers(&one_issuer());
    tokens.set_member_keys(served([(cluster("a"), of_a.keys())]));
    tokens.set_reviewing_members(BTreeSet::from([cluster("b")]));
    let account = of_a.signed(&claims("https://kubernetes.default.svc", "system:serviceaccount:x:y", 60));
    world.knows("a", &account, "system:serviceaccount:x:y");
    world.knows("hub", "of-the-hub", "ann");
    world.knows("hub", "admin", "system:admin");
    world.knows("b", "of-b", "bob");
    world.knows("c", "of-c", "eve");
    let take_requests = || std::mem::take(&mut *world.requests.lock());

    assert_eq!(
        authenticate(&tokens, &of_issuer.signed(&claims(ISSUER, "carl", 60)), Some("b")).await,
        everywhere("carl")
    );
    assert_eq!(
        take_requests(),
        [format!("{ISSUER}/.well-known/openid-configuration"), "https://issuer/keys".to_owned()]
    );
    for addressed in [None, Some("a")] {
        assert_eq!(authenticate(&tokens, &account, addressed).await, in_member("system:serviceaccount:x:y", "a"));
    }
    assert_eq!(authenticate(&tokens, &account, Some("b")).await, Err(TokenRefused::OfAnotherCluster.into()));
    assert_eq!(take_requests(), ["a", "a"]);
    assert_eq!(authenticate(&tokens, "of-the-hub", Some("b")).await, from_hub("ann"));
    assert_eq!(authenticate(&tokens, "admin", None).await, in_member("system:admin", "hub"));
    assert_eq!(take_requests(), ["hub", "hub"]);
    assert_eq!(authenticate(&tokens, "of-b", Some("b")).await, in_member("bob", "b"));
    assert_eq!(take_requests(), ["hub", "b"]);
    for addressed in [None, Some("c")] {
        assert_eq!(
            authenticate(&tokens, "of-b", addressed).await,
            Err(TokenAuthenticationError::Unknown),
            "{addressed:?}"
        );
        assert_eq!(
            authenticate(&tokens, "of-c", addressed).await,
            Err(TokenAuthenticationError::Unknown),
            "{addressed:?}"
        );
    }
    assert_eq!(take_requests(), ["hub"; 4], "c does not review tokens");
}

/// A hostile member serves a copy of the key of the token-review cluster (`hub`) before that cluster has served its own
/// keys.
#[tokio::test(start_paused = true)]
async fn member_that_copies_the_token_review_clusters_key_receives_no_token() {
    let (world, of_hub) = (Arc::new(World::default()), TestSigner::new("h"));
    let tokens = world.authenticator(with_hub());
    let account = of_hub.signed(&claims("https://kubernetes.default.svc", "system:serviceaccount:x:y", 60));
    world.knows("hub", &account, "system:serviceaccount:x:y");
    let mut copy = MemberKeys::default();
    copy.follow(&[cluster("copier"), cluster("hub")]);
    copy.set(cluster("copier"), of_hub.keys());
    tokens.set_member_keys(copy.clone());
    assert_eq!(authenticate(&tokens, &account, None).await, in_member("system:serviceaccount:x:y", "hub"));
    assert_eq!(std::mem::take(&mut *world.requests.lock()), ["hub"]);
    // After a change of the keys, the cached result is not used, so the hub must review the token again.
    tokens.set_member_keys(copy);
    world.broken.lock().insert("hub".to_owned());
    assert!(matches!(authenticate(&tokens, &account, None).await, Err(TokenAuthenticationError::NotReviewed { .. })));
    assert_eq!(*world.requests.lock(), ["hub"], "no other cluster is asked if the hub cannot answer");
}

#[tokio::test(start_paused = true)]
async fn rejected_token_formats_cause_no_request_to_a_verifier() {
    let (world, of_issuer, of_a) = (Arc::new(World::default()), TestSigner::new("i"), TestSigner::new("a"));
    let tokens = world.authenticator(with_hub());
    tokens.set_member_keys(served([(cluster("a"), of_a.keys()), (cluster("b"), of_a.keys())]));
    let expired = of_issuer.signed(r#"{"exp": 1}"#);
    let clones = of_a.signed(&claims("x", "y", 60));
    let other_algorithm = of_a.signed_under(&json!({"alg": "HS256"}), "{}");
    let long = "x".repeat(MAX_TOKEN + 1);
    for token in ["", "a.b.c", &expired, &clones, &other_algorithm, &long] {
        assert!(authenticate(&tokens, token, None).await.is_err(), "{token}");
    }
    assert!(tokens.authenticate(b"\xff\xfe", None, HERE).await.is_err());
    assert_eq!(*world.requests.lock(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn token_review_is_cached_for_10_s_or_until_expiry() {
    let (world, signer) = (Arc::new(World::default()), TestSigner::new("a"));
    let tokens = world.authenticator(with_hub());
    tokens.set_member_keys(served([(cluster("a"), signer.keys())]));
    let short = signer.signed(&claims("https://a", "x", 4));
    world.knows("a", &short, "short");
    world.knows("hub", "t", "ann");
    for _ in 0..3 {
        assert_eq!(authenticate(&tokens, "t", None).await, from_hub("ann"));
        assert_eq!(authenticate(&tokens, "nobody's", None).await, Err(TokenAuthenticationError::Unknown));
        assert_eq!(authenticate(&tokens, &short, None).await, in_member("short", "a"));
    }
    assert_eq!(world.request_count(), 3);
    advance(Duration::from_secs(5)).await;
    authenticate(&tokens, "t", None).await.unwrap();
    authenticate(&tokens, "nobody's", None).await.unwrap_err();
    assert_eq!(world.request_count(), 3);
    // The cached result has expired, so the hub must review the token again.
    world.users.lock().clear();
    assert_eq!(authenticate(&tokens, &short, None).await, Err(TokenAuthenticationError::Unknown));
    advance(Duration::from_secs(5)).await;
    assert_eq!(authenticate(&tokens, "t", None).await, Err(TokenAuthenticationError::Unknown), "the token was revoked");
}

#[tokio::test(start_paused = true)]
async fn failed_review_is_not_repeated_at_another_cluster() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    tokens.set_reviewing_members(BTreeSet::from([cluster("b")]));
    world.knows("b", "t", "bob");
    world.broken.lock().insert("hub".to_owned());
    let down = TokenAuthenticationError::NotReviewed { cluster: cluster("hub"), problem: "it is down".into() };
    assert_eq!(authenticate(&tokens, "t", Some("b")).await, Err(down));
    assert_eq!(*world.requests.lock(), ["hub"]);
    world.broken.lock().clear();
    assert_eq!(authenticate(&tokens, "t", Some("b")).await, in_member("bob", "b"), "a failure is not cached");
}

#[tokio::test(start_paused = true)]
async fn token_review_is_shared_by_requests_and_survives_cancellation() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    world.knows("hub", "t", "ann");
    assert!(timeout(Duration::from_millis(50), authenticate(&tokens, "t", None)).await.is_err());
    let many = futures::future::join_all((0..100).map(|_| authenticate(&tokens, "t", None))).await;
    assert!(many.iter().all(|authenticated| *authenticated == from_hub("ann")));
    assert_eq!(world.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn token_reviews_are_limited_per_client_address() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    for number in 0..1000 {
        authenticate(&tokens, &format!("guess {number}"), None).await.unwrap_err();
    }
    let (requests, passed) = (world.request_count(), Instant::now());
    assert!((50..1000).contains(&requests), "{requests} after {passed:?}");
    assert_eq!(authenticate(&tokens, "another", None).await, Err(TooManyReviews::PerAddress.into()));
    world.knows("hub", "t", "ann");
    let elsewhere = "10.1.2.3".parse().unwrap();
    assert!(tokens.authenticate(b"t", None, elsewhere).await.is_ok(), "another address");
}

#[tokio::test(start_paused = true)]
async fn unresponsive_cluster_does_not_block_users_of_other_clusters() {
    let (world, signer) = (Arc::new(World::default()), TestSigner::new("b"));
    let tokens = world.authenticator(with_hub());
    tokens.set_member_keys(served([(cluster("b"), signer.keys())]));
    world.hung.lock().insert("hub".to_owned());
    let account = signer.signed(&claims("https://b", "x", 600));
    world.knows("b", &account, "x");
    let guess = |number: u8| {
        let (tokens, address) = (&tokens, IpAddr::from([10, 0, 0, number]));
        async move { tokens.authenticate(format!("guess {number}").as_bytes(), None, address).await }
    };
    let guesses = futures::future::join_all((0..200).map(guess));
    let (guesses, authenticated) = futures::join!(guesses, async {
        sleep(Duration::from_secs(1)).await;
        authenticate(&tokens, &account, None).await
    });
    assert_eq!(authenticated, in_member("x", "b"));
    let count_errors = |words: &str| {
        guesses.iter().filter(|outcome| outcome.as_ref().unwrap_err().to_string().contains(words)).count()
    };
    assert_eq!(
        (count_errors("no answer within 10 s"), count_errors("the limit of token reviews in flight")),
        (32, 168)
    );
    // The clusters answer again. Invalid tokens from many addresses do not block users of other clusters.
    world.hung.lock().clear();
    advance(Duration::from_secs(60)).await;
    let other = signer.signed(&claims("https://b", "x", 601));
    world.knows("b", &other, "x");
    let again = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let (tokens, address) = (&tokens, IpAddr::from([10, 1, high, low]));
        async move { tokens.authenticate(format!("again {number}").as_bytes(), None, address).await }
    };
    let (guesses, authenticated) =
        futures::join!(futures::future::join_all((0..700).map(again)), authenticate(&tokens, &other, None));
    let refused = |outcome: &&ReviewOutcome| **outcome == Err(TooManyReviews::Total.into());
    assert_eq!((guesses.iter().filter(refused).count(), authenticated), (200, in_member("x", "b")));
}

#[tokio::test(start_paused = true)]
async fn change_of_the_token_verifiers_invalidates_cached_token_reviews() {
    let (world, signer) = (Arc::new(World::default()), TestSigner::new("i"));
    world.serves(&signer);
    let tokens = world.authenticator(TokenReviews::default());
    tokens.set_issuers(&one_issuer());
    let token = signer.signed(&claims(ISSUER, "ann", 60));
    assert_eq!(authenticate(&tokens, &token, None).await, everywhere("ann"));
    let authenticated = tokens.authenticate(token.as_bytes(), None, HERE).await.unwrap();
    tokens.set_issuers(&one_issuer());
    assert!(tokens.is_verifier_unchanged(&authenticated), "the issuer is unchanged");
    let mut changed = one_issuer();
    changed.jwt[0].username.prefix = "p:".to_owned();
    tokens.set_issuers(&changed);
    assert!(!tokens.is_verifier_unchanged(&authenticated), "the user would have another name");
    assert_eq!(authenticate(&tokens, &token, None).await, everywhere("p:ann"));
    let requests = world.request_count();
    tokens.set_issuers(&changed);
    assert_eq!(authenticate(&tokens, &token, None).await, everywhere("p:ann"));
    assert_eq!(world.request_count(), requests, "the keys of an issuer that stays are kept");
    tokens.set_issuers(&AuthenticationConfiguration { jwt: Vec::new() });
    assert_eq!(authenticate(&tokens, &token, None).await, Err(TokenRefused::Nobody.into()));
    assert!(timeout(Duration::from_secs(1), tokens.unknown_key()).await.is_ok(), "a member may have this key");
    assert!(timeout(Duration::from_secs(1), tokens.unknown_key()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn token_review_requests_and_compares_the_audiences() {
    let world = Arc::new(World::default());
    world.knows("hub", "t", "ann");
    for (audience, expected) in [("of the cluster", from_hub("ann")), ("ours", Err(TokenAuthenticationError::Unknown))]
    {
        let tokens = world.authenticator(TokenReviews { audiences: vec![audience.to_owned()], ..with_hub() });
        assert_eq!(authenticate(&tokens, "t", None).await, expected, "{audience}");
    }
}

#[tokio::test(start_paused = true)]
async fn token_errors_contain_no_text_of_the_token() {
    let (world, signer) = (Arc::new(World::default()), TestSigner::new("i"));
    world.serves(&signer);
    let tokens = world.authenticator(with_hub());
    tokens.set_issuers(&one_issuer());
    let secret = "s3cr3t";
    let table = [
        signer.signed(&json!({"iss": ISSUER, "aud": secret, "exp": 9_999_999_999_u64}).to_string()),
        signer.signed(&json!({"iss": ISSUER, "aud": "me", "sub": {"s3cr3t": 1}, "exp": 9_999_999_999_u64}).to_string()),
        TestSigner::new("s3cr3t").signed(&claims(ISSUER, secret, 60)),
        format!("{secret}.{secret}.{secret}"),
        secret.to_owned(),
    ];
    for token in table {
        let error = authenticate(&tokens, &token, None).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

/// A public key does not prove which cluster signs with it. If cluster `h` serves a copy of the key of cluster `v`, `h`
/// must not receive a token of `v`, because `h` could use the token in `v`.
#[tokio::test(start_paused = true)]
async fn token_is_not_sent_to_a_cluster_that_publishes_a_copied_signing_key() {
    let (world, of_v) = (Arc::new(World::default()), TestSigner::new("v"));
    let tokens = world.authenticator(TokenReviews::default());
    let account = of_v.signed(&claims("https://kubernetes.default.svc", "system:serviceaccount:x:y", 60));
    world.knows("v", &account, "system:serviceaccount:x:y");
    let take_requests = || std::mem::take(&mut *world.requests.lock());
    // The keys of `v` are unknown: `v` is unreachable, does not serve keys, or has just replaced its key.
    tokens.set_member_keys(served([(cluster("h"), of_v.keys())]));
    assert_eq!(authenticate(&tokens, &account, Some("v")).await, Err(TokenRefused::OfAnotherCluster.into()));
    assert_eq!(take_requests(), Vec::<String>::new());
    // The copied key does not lock the users of `v` out.
    tokens.set_member_keys(served([(cluster("h"), of_v.keys()), (cluster("v"), of_v.keys())]));
    assert_eq!(authenticate(&tokens, &account, Some("v")).await, in_member("system:serviceaccount:x:y", "v"));
    assert_eq!(authenticate(&tokens, &account, None).await, Err(TokenRefused::SeveralClusters.into()));
    assert_eq!(take_requests(), ["v"]);
}

/// Authenticates a token at the token-review cluster, and follows the token for an open stream.
async fn open_streams(world: &Arc<World>, tokens: &TokenAuthenticator, token: &str) -> Arc<FollowedToken> {
    let authenticated = tokens.authenticate(token.as_bytes(), None, HERE).await.unwrap();
    let followed = tokens.follow(token.as_bytes(), &authenticated).unwrap();
    world.requests.lock().clear();
    followed
}

/// Runs a round of reviews every ten seconds for this duration. Returns whether a round reported an invalid token.
async fn rounds(tokens: &TokenAuthenticator, time: Duration) -> bool {
    let (end, mut is_lost) = (Instant::now() + time, false);
    while Instant::now() < end {
        advance(Duration::from_secs(10)).await;
        is_lost |= tokens.review_followed().await;
    }
    is_lost
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn token_of_an_open_stream_is_reviewed_each_minute() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    world.knows("hub", "t", "ann");
    let first = open_streams(&world, &tokens, "t").await;
    let second = open_streams(&world, &tokens, "t").await;
    assert!(Arc::ptr_eq(&first, &second), "streams with the same token share an entry");
    assert!(!rounds(&tokens, 10 * MINUTE).await && first.is_known());
    assert!((8..=10).contains(&world.request_count()), "{}", world.request_count());
    // The token is revoked. The review after a minute detects the revocation.
    world.users.lock().clear();
    assert!(rounds(&tokens, MINUTE + Duration::from_secs(10)).await);
    assert!(!first.is_known());
    world.requests.lock().clear();
    assert!(!rounds(&tokens, 5 * MINUTE).await, "a lost token is reported once");
    // A revoked token that becomes valid again gets a new entry among the followed tokens.
    world.knows("hub", "t", "ann");
    let third = open_streams(&world, &tokens, "t").await;
    assert!(third.is_known() && !first.is_known());
    // After the last stream has ended, no review is sent, and the entry of the token is removed.
    drop((first, second, third));
    rounds(&tokens, 2 * MINUTE).await;
    assert_eq!((world.request_count(), tokens.followed.due().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn token_of_an_open_stream_becomes_invalid_if_its_user_changes() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    let ann = |groups: &[&str]| json!({"username": "ann", "groups": groups});
    let is = |user: Value| drop(world.users.lock().insert(("hub".to_owned(), "t".to_owned()), user));
    is(ann(&["a", "b"]));
    let followed = open_streams(&world, &tokens, "t").await;
    is(ann(&["b", "a"]));
    assert!(!rounds(&tokens, 2 * MINUTE).await && followed.is_known(), "groups have no order");
    is(ann(&["b"]));
    assert!(rounds(&tokens, 2 * MINUTE).await && !followed.is_known());
    let followed = open_streams(&world, &tokens, "t").await;
    is(json!({"username": "bob", "groups": ["b"]}));
    assert!(rounds(&tokens, 2 * MINUTE).await && !followed.is_known());
}

/// The tokens of a cluster that does not answer stay valid for an hour. Tokens of other clusters are reviewed as usual.
#[tokio::test(start_paused = true)]
async fn token_of_an_open_stream_stays_valid_for_an_hour_without_review() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    tokens.set_reviewing_members(BTreeSet::from([cluster("b")]));
    for number in 0..20 {
        world.knows("hub", &format!("t{number}"), "ann");
    }
    world.knows("b", "of-b", "bob");
    let mut of_hub = Vec::new();
    for number in 0..20 {
        of_hub.push(open_streams(&world, &tokens, &format!("t{number}")).await);
    }
    let b = cluster("b");
    let authenticated = tokens.authenticate(b"of-b", Some(&b), HERE).await.unwrap();
    let of_b = tokens.follow(b"of-b", &authenticated).unwrap();
    world.requests.lock().clear();
    world.hung.lock().insert("hub".to_owned());
    assert!(!rounds(&tokens, 2 * MINUTE).await);
    let reviews = world.requests.lock().iter().filter(|cluster| *cluster == "hub").count();
    assert!(reviews <= 2 * FOLLOWED_AT_ONCE, "{reviews} questions to a cluster that does not answer");
    world.users.lock().remove(&("b".to_owned(), "of-b".to_owned()));
    assert!(rounds(&tokens, 2 * MINUTE).await && !of_b.is_known());
    assert!(!rounds(&tokens, 50 * MINUTE).await && of_hub.iter().all(|own| own.is_known()));
    // A successful review extends the validity by another hour.
    world.hung.lock().clear();
    assert!(!rounds(&tokens, 2 * MINUTE).await);
    world.broken.lock().insert("hub".to_owned());
    assert!(!rounds(&tokens, 55 * MINUTE).await && of_hub.iter().all(|own| own.is_known()));
    assert!(rounds(&tokens, 10 * MINUTE).await && of_hub.iter().all(|own| !own.is_known()));
}

/// The webhook of a cluster hangs while it reviews tokens of one issuer. The cluster's other tokens are still reviewed,
/// and stay valid for more than an hour.
#[tokio::test(start_paused = true)]
async fn hanging_token_reviews_delay_other_token_reviews_by_at_most_a_minute() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    let (mut hanging, mut others) = (Vec::new(), Vec::new());
    for number in 0..20 {
        for (prefix, followed) in [("hangs", &mut hanging), ("t", &mut others)] {
            let token = format!("{prefix}{number}");
            world.knows("hub", &token, "ann");
            followed.push(open_streams(&world, &tokens, &token).await);
        }
    }
    *world.slow.lock() = Some(("hangs", 100 * MINUTE));
    assert!(!rounds(&tokens, 5 * MINUTE).await);
    world.users.lock().remove(&("hub".to_owned(), "t7".to_owned()));
    assert!(rounds(&tokens, 5 * MINUTE).await && !others[7].is_known());
    rounds(&tokens, 70 * MINUTE).await;
    assert_eq!(others.iter().filter(|own| own.is_known()).count(), 19);
    assert!(hanging.iter().all(|own| !own.is_known()));
}

/// A cluster that takes nine seconds per review is slow, but answers. Its reviews do not delay the tokens of other
/// clusters.
#[tokio::test(start_paused = true)]
async fn slow_cluster_does_not_delay_tokens_of_other_clusters() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(with_hub());
    let mut followed = Vec::new();
    for number in 0..80 {
        let token = format!("slow{number}");
        world.knows("hub", &token, "ann");
        followed.push(open_streams(&world, &tokens, &token).await);
    }
    *world.slow.lock() = Some(("slow", Duration::from_secs(9)));
    advance(2 * MINUTE).await;
    let begun = Instant::now();
    assert!(!tokens.review_followed().await);
    assert!(begun.elapsed() <= Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(!rounds(&tokens, 70 * MINUTE).await && followed.iter().all(|own| own.is_known()));
}

#[tokio::test(start_paused = true)]
async fn token_of_a_jwt_issuer_on_an_open_stream_is_not_reviewed_again() {
    let (world, signer) = (Arc::new(World::default()), TestSigner::new("i"));
    world.serves(&signer);
    let tokens = world.authenticator(with_hub());
    tokens.set_issuers(&one_issuer());
    let token = signer.signed(&claims(ISSUER, "carl", 60));
    let authenticated = tokens.authenticate(token.as_bytes(), None, HERE).await.unwrap();
    assert!(
        tokens.follow(token.as_bytes(), &authenticated).is_none(),
        "a token that was verified by keys is not reviewed again"
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_replaced_cluster_become_invalid() {
    let world = Arc::new(World::default());
    let tokens = world.authenticator(TokenReviews::default());
    tokens.set_reviewing_members(BTreeSet::from([cluster("a")]));
    world.knows("a", "opaque", "robot");
    let authenticated = tokens.authenticate(b"opaque", Some(&cluster("a")), HERE).await.unwrap();
    let lasting = tokens.follow(b"opaque", &authenticated).unwrap();
    world.knows("a", "other", "robot");
    let a = cluster("a");
    let slow = tokens.authenticate(b"other", Some(&a), HERE);
    let replaced = async {
        sleep(Duration::from_millis(50)).await;
        world.users.lock().clear();
        assert!(tokens.forget_cluster(&cluster("a")));
    };
    let (slow, ()) = futures::join!(slow, replaced);
    assert_eq!(slow, Err(TokenAuthenticationError::Unknown), "an answer of the earlier cluster is ignored");
    assert_eq!(authenticate(&tokens, "opaque", Some("a")).await, Err(TokenAuthenticationError::Unknown));
    assert!(!lasting.is_known());
    assert!(!tokens.is_verifier_unchanged(&authenticated), "also for streams that are opened only now");
    assert!(!tokens.forget_cluster(&cluster("a")), "no stream is open any more");
}
