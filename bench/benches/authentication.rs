//! The cost of authenticating a cached token of 1 KB. A cluster has reviewed the token, and the user has 50 groups.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tributary_apimachinery::ClusterName;
use tributary_authentication::{FetchDocument, TokenAuthenticator, TokenReviewer, TokenReviews};

const GROUPS: usize = 50;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

#[derive(Debug)]
struct KnowsAll;

impl TokenReviewer for KnowsAll {
    fn review(&self, _: &ClusterName, _: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let groups: Vec<_> = (0..GROUPS).map(|number| format!("team-{number}")).collect();
        let user = json!({"username": "jane@example.com", "groups": groups});
        let answer = json!({"kind": "TokenReview", "status": {"authenticated": true, "user": user}});
        async move { Ok(answer.to_string().into_bytes()) }.boxed()
    }
}

impl FetchDocument for KnowsAll {
    fn fetch(&self, _: &str, _: Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        async { Err("there is no issuer".to_owned()) }.boxed()
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap_or_else(|error| panic!("{error}"))
}

fn authentication(criterion: &mut Criterion) {
    let cluster = ClusterName::new("hub").unwrap_or_else(|error| panic!("{error}"));
    // The lifetime of cached reviews is so long that the loop always hits the cache.
    let reviews =
        TokenReviews { cluster: Some(cluster), cache_ttl: Duration::from_secs(3600), ..TokenReviews::default() };
    let tokens = TokenAuthenticator::new(reviews, Arc::new(KnowsAll), Arc::new(KnowsAll));
    let token = "t".repeat(1024);
    let runtime = runtime();
    let ask = || tokens.authenticate(black_box(token.as_bytes()), None, CLIENT);
    runtime.block_on(ask()).unwrap_or_else(|error| panic!("{error}"));
    criterion.bench_function("authentication: a remembered token of 1 KB", |bencher| {
        bencher.iter(|| ask().now_or_never().unwrap_or_else(|| panic!("it is remembered")));
    });
}

criterion_group!(benches, authentication);
criterion_main!(benches);
