//! Tests of streams that end when the right is lost, when the credentials expire, or at the maximum age.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};
use tributary_apimachinery::body::{self, Body};
use tributary_router::report::RightsDecider;
use tributary_router::{CredentialValidity, RequestContext, RouterConfig, SharedMode};
use tributary_simulator::SimulatorConfig;

use crate::access::rights::{RBAC, ann, binding, config_map_of, grant, listed, refuse_rbac, role};
use crate::access::rights_detected::{Mode, decided, found_out};
use crate::harness::{Client, Events, Fixture, SOON, allow, config, name, pass, quiet_without_time, until};

/// The maximum time until the loss of a right ends a stream.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

/// Reads a stream to its end. Returns the error if the stream breaks.
async fn end_of(response: Response<Body>) -> Result<(), String> {
    let mut body = response.into_body();
    let read = async {
        while let Some(frame) = body.frame().await {
            frame.map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    timeout(SOON, read).await.expect("an end")
}

/// Checks that a followed log, which has a line each second, continues.
async fn goes_on(body: &mut Body) {
    for _ in 0..3 {
        timeout(SOON, body.frame()).await.expect("a line").expect("not the end").expect("no error");
    }
}

/// Sends a request of this client, whose credentials expire after `time`.
async fn call_for(client: &Client, path: &str, time: Duration) -> Response<Body> {
    let request = Request::get(path).body(body::empty()).unwrap();
    let mut context = RequestContext::for_user(&client.user, &request);
    context.sender.until = Instant::now().checked_add(time);
    client.router.handle(request, &context).await.response
}

/// A member with one pod, whose log Ann may read.
struct Pods {
    fixture: Fixture,
    namespace: String,
    pod: String,
}

impl Pods {
    async fn start(mode: SharedMode) -> Self {
        let simulated = SimulatorConfig { rbac: true, pods: 1, ..config("a") };
        let router = RouterConfig { policies: allow(), shared: Some(mode), alone: true, ..RouterConfig::default() };
        let fixture = Fixture::of([simulated], router).await;
        let pods = fixture.member("a").list("pods");
        let namespace = pods[0]["metadata"]["namespace"].as_str().unwrap().to_owned();
        let pods = Self { pod: name(&pods[0]), namespace, fixture };
        let reads = role("", "logs", [&["get", "list", "create"], &[""], &["pods", "pods/log"], &[]]);
        pods.fixture.member("a").apply(reads).unwrap();
        for user in ["ann", "root"] {
            let namespace = if user == "ann" { &*pods.namespace } else { "" };
            let reads = binding(namespace, &format!("{user}-logs"), ("ClusterRole", "logs"), user);
            pods.fixture.member("a").apply(reads).unwrap();
            until(async || pods.fixture.user(user, &[]).get(&pods.log("")).await.code == 200).await;
        }
        pods
    }

    fn log(&self, query: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{}/log{query}", self.namespace, self.pod)
    }
}

/// Opens a watch of the ConfigMaps in a namespace at the path of a cluster, without initial events.
async fn watch(client: &Client, cluster: &str, namespace: &str) -> Events {
    let path = format!("/clusters/{cluster}/api/v1/namespaces/{namespace}/configmaps?watch=1");
    client.watch(&format!("{path}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")).await
}

#[tokio::test]
async fn watch_at_a_clusters_path_ends_after_revocation() {
    let fixture = ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let (mut of_ann, mut of_root) = (watch(&ann, "b", "shop").await, watch(&root, "b", "shop").await);
    let mut elsewhere = watch(&ann, "a", "shop").await;
    fixture.member("b").apply(config_map_of("shop", "x")).unwrap();
    for stream in [&mut of_ann, &mut of_root] {
        assert_eq!(name(&stream.soon().await["object"]), "x");
    }
    // If another user gets a right, Ann's watch must not end.
    grant(fixture.member("b"), "shop", "bob");
    listed(&fixture, "b", "bob", "shop").await;
    quiet_without_time().await;
    let taken = Instant::now();
    fixture.member("b").delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
    let end = async { while of_ann.next().await.is_some() {} };
    timeout(SOON, end).await.expect("it ends between two events");
    assert!(taken.elapsed() < REVOKED_WITHIN, "{:?}", taken.elapsed());
    fixture.member("b").apply(config_map_of("shop", "y")).unwrap();
    fixture.member("a").apply(config_map_of("shop", "y")).unwrap();
    for stream in [&mut of_root, &mut elsewhere] {
        assert_eq!(name(&stream.soon().await["object"]), "y");
    }
}

#[tokio::test]
async fn followed_log_breaks_after_revocation() {
    let pods = Pods::start(SharedMode::default()).await;
    let (ann, root) = (pods.fixture.user("ann", &[]), pods.fixture.user("root", &[]));
    let merged = pods.log("?follow=true");
    let own = format!("/clusters/a{merged}");
    let mut of_root = root.call("GET", &merged, &[], "").await.into_body();
    let [of_ann, of_ann_there] = [ann.call("GET", &merged, &[], "").await, ann.call("GET", &own, &[], "").await];
    assert_eq!([of_ann.status(), of_ann_there.status()], [200, 200]);
    let taken = Instant::now();
    pods.fixture.member("a").delete(&format!("rolebindings.{RBAC}"), &pods.namespace, "ann-logs").unwrap();
    for stream in [of_ann, of_ann_there] {
        let error = end_of(stream).await.expect_err("nobody takes it for whole");
        assert_eq!(error, "the cluster no longer allows you the request that opened this stream");
    }
    assert!(taken.elapsed() < REVOKED_WITHIN, "{:?}", taken.elapsed());
    goes_on(&mut of_root).await;
}

#[tokio::test]
async fn watch_allowed_without_roles_ends_when_a_role_is_lost() {
    let fixture = ann().await;
    // The member has an additional authorizer, unknown to the router, which allows every request.
    let mut of_bob = watch(&fixture.user("bob", &[]), "c", "shop").await;
    grant(fixture.member("c"), "bank", "bob");
    listed(&fixture, "c", "bob", "bank").await;
    fixture.member("c").apply(config_map_of("shop", "x")).unwrap();
    assert_eq!(name(&of_bob.soon().await["object"]), "x");
    fixture.member("c").delete(&format!("rolebindings.{RBAC}"), "bank", "bob-reads").unwrap();
    grant(fixture.member("c"), "shop", "bob");
    listed(&fixture, "c", "bob", "shop").await;
    fixture.member("c").apply(config_map_of("shop", "y")).unwrap();
    assert_eq!(name(&of_bob.soon().await["object"]), "y");
    // The router batches changes of rights for 200 ms. Without this pause, it would not notice that Bob had the right
    // in between.
    quiet_without_time().await;
    quiet_without_time().await;
    fixture.member("c").delete(&format!("rolebindings.{RBAC}"), "shop", "bob-reads").unwrap();
    assert_eq!(timeout(SOON, of_bob.next()).await.expect("an end"), None);
}

/// The cluster also has a webhook authorizer, so the router asks it with reviews. When roles change, the router repeats
/// the review immediately.
#[tokio::test]
async fn watch_in_a_webhook_cluster_ends_when_its_role_binding_is_deleted() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Webhook("bob", "shop"), Mode::Rbac]).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    let mut of_ann = watch(&fixture.user("ann", &[]), "b", "shop").await;
    fixture.member("b").apply(config_map_of("shop", "x")).unwrap();
    assert_eq!(name(&of_ann.soon().await["object"]), "x");
    let taken = Instant::now();
    fixture.member("b").delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
    chains[1].learn(fixture.member("b"));
    assert_eq!(timeout(SOON, of_ann.next()).await.expect("an end"), None);
    assert!(taken.elapsed() < REVOKED_WITHIN, "{:?}", taken.elapsed());
}

#[tokio::test]
async fn watch_under_impersonation_ends_with_the_right_to_impersonate() {
    let fixture = ann().await;
    let b = fixture.member("b");
    b.apply(role("", "be-ann", [&["impersonate"], &[""], &["users"], &["ann"]])).unwrap();
    b.apply(binding("", "bob-is-ann", ("ClusterRole", "be-ann"), "bob")).unwrap();
    let path = "/clusters/b/api/v1/namespaces/shop/configmaps";
    let bob = fixture.user("bob", &[]);
    until(async || bob.call("GET", path, &[("impersonate-user", "ann")], "").await.status() == 200).await;
    let query = "?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let watch = bob.call("GET", &format!("{path}{query}"), &[("impersonate-user", "ann")], "").await;
    assert_eq!(watch.status(), 200);
    let mut watch = Events::of(watch);
    b.apply(config_map_of("shop", "x")).unwrap();
    assert_eq!(name(&watch.soon().await["object"]), "x");
    b.delete(&format!("clusterrolebindings.{RBAC}"), "", "bob-is-ann").unwrap();
    assert_eq!(timeout(SOON, watch.next()).await.expect("an end"), None);
}

#[tokio::test]
async fn stream_stays_open_when_rights_become_unknown() {
    let fixture = ann().await;
    refuse_rbac(fixture.member("b"), true);
    fixture.member("b").control().cut_streams();
    let mut of_ann = watch(&fixture.user("ann", &[]), "b", "shop").await;
    listed(&fixture, "b", "ann", "shop").await;
    pass(Duration::from_secs(6 * 60)).await;
    listed(&fixture, "b", "ann", "unknown").await;
    fixture.member("b").apply(config_map_of("shop", "x")).unwrap();
    assert_eq!(name(&of_ann.soon().await["object"]), "x");
}

#[tokio::test]
async fn streams_end_when_their_credentials_expire() {
    let pods = Pods::start(SharedMode::default()).await;
    grant(pods.fixture.member("a"), "", "ann");
    listed(&pods.fixture, "a", "ann", "all").await;
    let ann = pods.fixture.user("ann", &[]);
    let time = Duration::from_secs(40 * 60);
    let log = call_for(&ann, &pods.log("?follow=true"), time).await;
    let own = call_for(&ann, "/clusters/a/api/v1/configmaps?watch=1", time).await;
    let merged = call_for(&ann, "/api/v1/configmaps?watch=1&timeoutSeconds=86400", time).await;
    let mut longer = call_for(&ann, &pods.log("?follow=true"), time * 2).await.into_body();
    assert_eq!([log.status(), own.status(), merged.status()], [200, 200, 200]);
    pass(time + Duration::from_secs(1)).await;
    assert_eq!(end_of(log).await, Err("the credentials of the stream have expired".to_owned()));
    assert_eq!([end_of(own).await, end_of(merged).await], [Ok(()), Ok(())], "a watch ends between two events");
    goes_on(&mut longer).await;
    let late = call_for(&ann, &pods.log("?follow=true"), Duration::ZERO).await;
    assert_eq!(late.status(), 401);
}

#[tokio::test]
async fn streams_end_when_their_credentials_are_no_longer_valid() {
    let pods = Pods::start(SharedMode::default()).await;
    grant(pods.fixture.member("a"), "", "ann");
    listed(&pods.fixture, "a", "ann", "all").await;
    let ann = pods.fixture.user("ann", &[]);
    let is_known = Arc::new(AtomicBool::new(true));
    let call = async |path: &str| {
        let (asked, request) = (Arc::clone(&is_known), Request::get(path).body(body::empty()).unwrap());
        let mut context = RequestContext::for_user(&ann.user, &request);
        context.sender.credential_validity = Some(CredentialValidity::new(move || asked.load(Ordering::Relaxed)));
        let answer = ann.router.handle(request, &context).await.response;
        assert_eq!(answer.status(), 200);
        answer
    };
    let news = "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let (log, own) = (call(&pods.log("?follow=true")).await, call(&format!("/clusters/a{news}")).await);
    let (mut merged, mut other) = (Events::of(call(news).await), ann.watch(news).await);
    pods.fixture.router.authentication_changed();
    for stream in [&mut merged, &mut other] {
        stream.nothing().await;
    }
    is_known.store(false, Ordering::Relaxed);
    pods.fixture.router.authentication_changed();
    let words = "the credentials of the stream are no longer accepted";
    assert_eq!((end_of(log).await, end_of(own).await), (Err(words.to_owned()), Ok(())));
    let end = merged.soon().await;
    assert_eq!((&end["type"], &end["object"]["code"]), (&"ERROR".into(), &401.into()), "{end}");
    assert_eq!(merged.next().await, None);
    other.nothing().await;
}

#[tokio::test]
async fn streams_end_at_the_maximum_stream_age() {
    let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
    for (max_stream_age, time) in [(Some(hours(3)), hours(3)), (SharedMode::default().max_stream_age, hours(24))] {
        let pods = Pods::start(SharedMode { max_stream_age, ..SharedMode::default() }).await;
        let log = pods.fixture.user("root", &[]).call("GET", &pods.log("?follow=true"), &[], "").await;
        pass(time + Duration::from_secs(1)).await;
        let error = end_of(log).await.expect_err("nobody takes it for whole");
        assert_eq!(error, "the stream has reached its maximum age (the server's --max-stream-age)");
    }
}

/// The router streams a long list as fast as the client reads. So the client may lose its access in the middle of the
/// list.
#[tokio::test]
async fn slow_list_breaks_when_its_reader_loses_access() {
    let pods = Pods::start(SharedMode::default()).await;
    let a = pods.fixture.member("a");
    for user in ["ann", "root"] {
        grant(a, "", user);
        listed(&pods.fixture, "a", user, "all").await;
    }
    let long = "x".repeat(32 << 10);
    for number in 0..40 {
        let mut object = config_map_of("shop", &format!("long-{number}"));
        object["data"]["value"] = long.clone().into();
        a.apply(object).unwrap();
    }
    let (ann, root) = (pods.fixture.user("ann", &[]), pods.fixture.user("root", &[]));
    until(async || ann.get("/api/v1/configmaps").await.body.len() > 40 * long.len()).await;
    // The client reads the beginning of the list and then stops.
    let begun = async |time: Option<Duration>, is_known: &Arc<AtomicBool>| {
        let request = Request::get("/api/v1/configmaps").body(body::empty()).unwrap();
        let (asked, mut context) = (Arc::clone(is_known), RequestContext::for_user(&ann.user, &request));
        context.sender.credential_validity = Some(CredentialValidity::new(move || asked.load(Ordering::Relaxed)));
        context.sender.until = time.and_then(|time| Instant::now().checked_add(time));
        let mut answer = ann.router.handle(request, &context).await.response;
        assert!(answer.status() == 200 && answer.body().size_hint().exact().is_none(), "it is long");
        assert!(answer.body_mut().frame().await.is_some_and(|frame| frame.is_ok()));
        answer
    };
    let known = Arc::new(AtomicBool::new(true));
    let denied = "the administrator of this server denies you access (--denied-users-file)";
    let expired = "the credentials of the stream have expired";
    let withdrawn = "the credentials of the stream are no longer accepted";
    let (whole, of_root) = (begun(None, &known).await, root.call("GET", "/api/v1/configmaps", &[], "").await);
    assert_eq!(end_of(whole).await, Ok(()));
    let list = begun(None, &known).await;
    known.store(false, Ordering::Relaxed);
    pods.fixture.router.authentication_changed();
    // This pause is longer than the time for which the router batches such changes.
    pass(Duration::from_secs(1)).await;
    assert_eq!(end_of(list).await, Err(withdrawn.to_owned()));
    known.store(true, Ordering::Relaxed);
    let list = begun(None, &known).await;
    pods.fixture.router.deny(["ann".to_owned()].into());
    pass(Duration::from_secs(1)).await;
    assert_eq!((end_of(list).await, end_of(of_root).await), (Err(denied.to_owned()), Ok(())));
    pods.fixture.router.deny([].into());
    let list = begun(Some(Duration::from_secs(5)), &known).await;
    pass(Duration::from_secs(6)).await;
    assert_eq!(end_of(list).await, Err(expired.to_owned()));
}

#[tokio::test]
async fn denied_user_is_refused_and_loses_open_streams() {
    let pods = Pods::start(SharedMode::default()).await;
    grant(pods.fixture.member("a"), "", "ann");
    grant(pods.fixture.member("a"), "", "root");
    for user in ["ann", "root"] {
        listed(&pods.fixture, "a", user, "all").await;
    }
    let (ann, root) = (pods.fixture.user("ann", &[]), pods.fixture.user("root", &[]));
    let log = ann.call("GET", &pods.log("?follow=true"), &[], "").await;
    let own = ann.call("GET", "/clusters/a/api/v1/configmaps?watch=1", &[], "").await;
    let news = "/api/v1/configmaps?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let (mut merged, mut of_root) = (ann.watch(news).await, root.watch(news).await);
    let mut log_of_root = root.call("GET", &pods.log("?follow=true"), &[], "").await.into_body();
    assert_eq!([log.status(), own.status()], [200, 200]);
    let denied = Instant::now();
    pods.fixture.router.deny(["ann".to_owned()].into());
    let words = "the administrator of this server denies you access (--denied-users-file)";
    assert_eq!((end_of(log).await, end_of(own).await), (Err(words.to_owned()), Ok(())));
    let end = merged.soon().await;
    assert_eq!((&end["type"], &end["object"]["code"]), (&"ERROR".into(), &403.into()), "{end}");
    assert_eq!(merged.next().await, None);
    assert!(denied.elapsed() < REVOKED_WITHIN, "{:?}", denied.elapsed());
    for path in [&*pods.log(""), "/api/v1/configmaps", "/clusters/a/api/v1/configmaps", "/version", "/api", "/nothing"]
    {
        assert!(ann.get(path).await.refused(403).contains(words), "{path}");
    }
    // A denial also applies if the denied user impersonates another user. The denial does not affect users who
    // impersonate the denied user.
    let as_root = ann.send("GET", "/api/v1/configmaps", &[("impersonate-user", "root")], "").await;
    assert!(as_root.refused(403).contains(words));
    assert_eq!(root.get("/api/v1/configmaps").await.code, 200);
    pods.fixture.member("a").apply(config_map_of("shop", "x")).unwrap();
    assert_eq!(name(&of_root.soon().await["object"]), "x");
    goes_on(&mut log_of_root).await;
    pods.fixture.router.deny([].into());
    assert_eq!(ann.get("/api/v1/configmaps").await.code, 200);
}
