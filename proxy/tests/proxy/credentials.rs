//! Tests of Tributary's own credentials at a member: static credentials, files and plugins, and their renewal.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use base64::Engine as _;
use http::{Request, StatusCode};
use kube::config::{ExecConfig, ExecInteractiveMode};
use tributary_apimachinery::ClusterName;
use tributary_proxy::{
    ClientTuning, ClusterClient, CommandPolicy, ConnectError, EndpointSubset, ForwardError, RequestIdentity, Sent,
};

use crate::endpoints::{self, Gate};
use crate::member::{self, Authority, Member, Options, SendRequest, eventually, get, text};
use crate::upgrades::{WEBSOCKET, ask, front};

/// A credential plugin: a shell script that appends to the file `runs` for each run.
pub(crate) fn plugin(folder: &Path, script: &str) -> ExecConfig {
    let path = folder.join("plugin.sh");
    let counting = "n=$(($(cat \"$0.runs\" 2>/dev/null || echo 0) + 1)); echo $n > \"$0.runs\"";
    std::fs::write(&path, format!("#!/bin/sh\n{counting}\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let config = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": path,
        "args": ["get-token"],
        "env": [{"name": "REGION", "value": "eu"}],
        "installHint": "install it",
        "interactiveMode": "IfAvailable",
    });
    serde_json::from_value(config).unwrap()
}

pub(crate) fn runs(config: &ExecConfig) -> u32 {
    let path = PathBuf::from(format!("{}.runs", config.command.as_deref().unwrap()));
    std::fs::read_to_string(path).map_or(0, |text| text.trim().parse().unwrap())
}

pub(crate) fn quick() -> ClientTuning {
    ClientTuning {
        credential_retry_interval: Duration::from_millis(100),
        token_file_interval: Duration::from_millis(30),
        ..ClientTuning::default()
    }
}

async fn wants(token: &'static str) -> Member {
    Member::start(Options::default(), move |seen, _| async move {
        let expected = format!("Bearer {token}");
        if seen.all("authorization") == [expected.as_str()] {
            text(StatusCode::OK, "welcome".to_owned())
        } else {
            text(StatusCode::UNAUTHORIZED, "who are you".to_owned())
        }
    })
    .await
}

#[tokio::test]
async fn user_and_password_are_sent_as_basic_credentials() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.username = Some("u".to_owned());
    config.auth_info.password = Some("p".to_owned().into());
    let client = member::connect(config, quick()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Basic dTpw"]);
}

#[tokio::test]
async fn token_file_is_read_again_after_its_interval() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.token_file = Some(path.to_str().unwrap().to_owned());
    let client = member::connect(config.clone(), quick()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Bearer first"]);
    std::fs::write(&path, "second").unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Bearer second"]);
    // After the removal of the token file, the client continues to use the last token.
    std::fs::remove_file(&path).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Bearer second"]);

    let error = ClusterClient::connect(ClusterName::new("c1").unwrap(), config, quick()).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Credentials { .. }) && error.to_string().contains("token"), "{error}");
}

#[tokio::test]
async fn token_file_is_read_again_after_a_401() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "old").unwrap();
    let member = wants("new").await;
    let mut config = member.config();
    config.auth_info.token_file = Some(path.to_str().unwrap().to_owned());
    let tuning = ClientTuning { token_file_interval: Duration::from_secs(3600), ..quick() };
    let client = member::connect(config, tuning).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::Unauthorized { .. }), "{error}");
    assert_eq!(error.status_code(), StatusCode::BAD_GATEWAY);
    std::fs::write(&path, "new").unwrap();
    tokio::time::sleep(Duration::from_millis(120)).await;
    let response = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn rejected_static_token_is_reported_as_a_configuration_error() {
    let member = wants("other").await;
    let mut config = member.config();
    config.auth_info.token = Some("mine".to_owned().into());
    let client = member::connect(config, quick()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::Unauthorized { .. }), "{error}");
    let fields = "users[].user.token of its kubeconfig, or spec.credentials.token of its UpstreamCluster";
    assert!(error.to_string().ends_with(&format!("(401 Unauthorized); renew {fields}")), "{error}");
    assert!(!client.reachability().borrow().is_reachable());
    // The member itself rejects the credentials of these requests, before the requests reach a workload or kubelet.
    for path in ["/api/v1/namespaces/a/services/s/proxy/", "/api/v1/namespaces/a/pods/p/log"] {
        let error = client.send_request(get(path), RequestIdentity::Member).await.unwrap_err();
        assert!(matches!(error, ForwardError::Unauthorized { .. }), "{error}");
    }
}

/// kube-apiserver's own 401 (`filters.Unauthorized`). Every server built on the apiserver library sends the same body.
pub(crate) const KUBERNETES_401: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;

/// kube-apiserver's response to the client if a kubelet answers 401 (`GenericHttpResponseChecker` in apiserver's
/// `registry/generic/rest`).
const KUBELET_401: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server has asked for the client to provide credentials ( pods/log p)","reason":"Unauthorized","details":{"name":"p","kind":"pods/log"},"code":401}"#;

/// Returns the body of the 401 response that the server behind the member sends for this path: a kubelet, a workload or
/// an aggregated API server.
fn workload_message(path: &str) -> &'static str {
    match path {
        _ if path.ends_with("/log") => KUBELET_401,
        _ if path.contains("/proxy/") => KUBERNETES_401,
        _ => "who are you",
    }
}

/// kube-apiserver's response if an admission webhook denies a request with code 401.
const WEBHOOK_401: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"admission webhook \"x\" denied the request: no","reason":"Unauthorized","details":{"causes":[{"message":"Unauthorized"}]},"code":401}"#;

#[tokio::test]
async fn response_401_of_a_backend_reaches_the_client_and_the_member_stays_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let exec = plugin(folder.path(), crate::plugins::TOKEN);
    let member = Member::start(Options::default(), |seen, _| async move {
        match seen.uri.path() {
            "/api" => text(StatusCode::FORBIDDEN, String::new()),
            path => text(StatusCode::UNAUTHORIZED, workload_message(path).to_owned()),
        }
    })
    .await;
    let mut config = member.config();
    config.auth_info.exec = Some(exec.clone());
    let client = member::connect(config, ClientTuning { credential_retry_interval: Duration::ZERO, ..quick() }).await;
    let post = || Request::post("/apis/metrics.k8s.io/v1beta1/things").body(member::full("{}")).unwrap();
    for request in [
        get("/api/v1/namespaces/n/pods/p/log"),
        get("/api/v1/namespaces/n/pods/p/log?follow=true"),
        get("/apis/metrics.k8s.io/v1beta1/nodes"),
        post(),
        get("/api/v1/namespaces/n/services/s/proxy/"),
    ] {
        let path = request.uri().path().to_owned();
        let response = client.send_request(request, RequestIdentity::Member).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(member::read(response).await, workload_message(&path), "{path}");
        assert!(client.reachability().borrow().is_reachable(), "{path}");
    }
    assert_eq!((runs(&exec), member.connections()), (1, 3), "one of each lane, and one for our own question");
    let seen = member.seen();
    let own = seen.iter().filter(|seen| seen.uri.path() == "/api").count();
    assert!(own < 5 && seen.len() == own + 5, "{own} questions, and each request once: {}", seen.len());
}

/// Each kube-apiserver has its own cache of authentications. A successful request at another endpoint therefore does
/// not prove that the first endpoint accepts the credentials.
#[tokio::test]
async fn credential_check_goes_to_the_endpoint_that_answered_401() {
    let rejecting = Arc::new(AtomicU16::new(0));
    let shared = rejecting.clone();
    let member = Member::start(Options::default(), move |seen, _| {
        let port = seen.uri.port_u16().unwrap_or_default();
        let rejects = port == shared.load(Ordering::SeqCst);
        async move { text(if rejects { StatusCode::UNAUTHORIZED } else { StatusCode::OK }, KUBERNETES_401.to_owned()) }
    })
    .await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    rejecting.store(gates[0].url().port_u16().unwrap(), Ordering::SeqCst);
    for _ in 0..6 {
        let client = endpoints::client(&member, [&gates[0], &gates[1]]).await;
        let request = through(&gates[0], "/api/v1/namespaces/n/pods/p");
        let error =
            client.send_request(request, RequestIdentity::Member).await.map(|answer| answer.status()).unwrap_err();
        assert!(matches!(error, ForwardError::Unauthorized { .. }), "{error}");
    }
}

fn through(gate: &Gate, path: &str) -> Request<member::Body> {
    let url = gate.url().to_string().trim_end_matches('/').to_owned();
    let mut request = get(path);
    request.extensions_mut().insert(EndpointSubset::new(&[url]));
    request
}

/// A workload's 401 responses cause at most one credential check per second and endpoint, even if the requests
/// alternate between endpoints.
#[tokio::test]
async fn credential_check_results_are_cached_for_each_endpoint() {
    let member = Member::start(Options::default(), |seen, _| async move {
        match seen.uri.path() {
            "/api" => text(StatusCode::OK, String::new()),
            _ => text(StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned()),
        }
    })
    .await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = endpoints::client(&member, [&gates[0], &gates[1]]).await;
    let begun = tokio::time::Instant::now();
    for number in 0..200 {
        let request = through(&gates[number % 2], "/api/v1/namespaces/n/services/s/proxy/");
        let refused = client.send_request(request, RequestIdentity::Member).await.unwrap();
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(member::read(refused).await, KUBERNETES_401);
    }
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    for gate in &gates {
        let port = gate.url().port_u16();
        let seen = member.seen();
        let checks = seen.iter().filter(|seen| seen.uri.path() == "/api" && seen.uri.port_u16() == port).count();
        assert!((1..=2 * seconds).contains(&checks), "{checks} questions in {seconds} s");
    }
}

#[tokio::test]
async fn unanswered_credential_check_does_not_delay_other_endpoints() {
    let silent = Arc::new(AtomicU16::new(0));
    let shared = silent.clone();
    let member = Member::start(Options::default(), move |seen, _| {
        let is_silent = seen.uri.port_u16() == Some(shared.load(Ordering::SeqCst));
        async move {
            match seen.uri.path() {
                "/api" if is_silent => std::future::pending().await,
                "/api" => text(StatusCode::OK, String::new()),
                _ => text(StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned()),
            }
        }
    })
    .await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    silent.store(gates[0].url().port_u16().unwrap(), Ordering::SeqCst);
    let client = endpoints::client(&member, [&gates[0], &gates[1]]).await;
    let path = "/api/v1/namespaces/n/services/s/proxy/";
    let (asking, request) = (client.clone(), through(&gates[0], path));
    let pending = tokio::spawn(async move { asking.send_request(request, RequestIdentity::Member).await });
    eventually("it is asked", || member.seen().iter().any(|seen| seen.uri.path() == "/api")).await;
    let refused = client.send_request(through(&gates[1], path), RequestIdentity::Member).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(!pending.is_finished(), "its question has not been given up yet");
    pending.abort();
}

#[tokio::test]
async fn request_with_a_replaced_token_is_resent_if_that_is_safe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "old").unwrap();
    let file = path.clone();
    let member = Member::start(Options::default(), move |seen, _| {
        let file = file.clone();
        async move {
            // Some of Tributary's own requests may arrive with the old token. The member accepts them.
            if seen.all("authorization") == ["Bearer new"] || !seen.uri.path().starts_with("/api/v1/") {
                return text(StatusCode::OK, "welcome".to_owned());
            }
            std::fs::write(&file, "new").unwrap();
            text(StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned())
        }
    })
    .await;
    let mut config = member.config();
    config.auth_info.token_file = Some(path.to_str().unwrap().to_owned());
    let tuning = ClientTuning { token_file_interval: Duration::ZERO, ..quick() };
    let client = member::connect(config.clone(), tuning.clone()).await;
    let response = client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // The proxy does not retry a request with a body. The client gets 503 instead of the 401, because the client's own
    // credentials are valid.
    std::fs::write(&path, "old").unwrap();
    let client = member::connect(config.clone(), tuning.clone()).await;
    assert_eq!(client.send_request(get("/version"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    let post = Request::post("/api/v1/pods").body(member::full("{}")).unwrap();
    let error = client.send_request(post, RequestIdentity::Member).await.map(|answer| answer.status()).unwrap_err();
    assert!(matches!(error, ForwardError::UnknownSender { .. }), "{error}");
    assert_eq!(error.status_code(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(client.reachability().borrow().is_reachable());
    // Nor does the proxy retry an exec request. The client gets 503, because the client's own credentials are valid.
    std::fs::write(&path, "old").unwrap();
    let client = member::connect(config, tuning).await;
    assert_eq!(client.send_request(get("/version"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    let (_tcp, head) = ask(front(client.clone()).await, WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert!(client.reachability().borrow().is_reachable());
}

/// A workload may delay its 401 until Tributary's token is replaced. The proxy must not answer 503, because a 503 means
/// that the request was not processed.
#[tokio::test]
async fn response_401_of_a_workload_reaches_the_client_after_a_token_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "token").unwrap();
    let (file, replaced) = (path.clone(), AtomicU16::new(0));
    let member = Member::start(Options::default(), move |_, _| {
        let number = replaced.fetch_add(1, Ordering::SeqCst);
        std::fs::write(&file, format!("token-{number}")).unwrap();
        async { text(StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned()) }
    })
    .await;
    let mut config = member.config();
    config.auth_info.token_file = Some(path.to_str().unwrap().to_owned());
    let client = member::connect(config, ClientTuning { token_file_interval: Duration::ZERO, ..quick() }).await;
    let path = "/api/v1/namespaces/n/services/pay:80/proxy/charge";
    let charges = || member.seen().iter().filter(|seen| seen.uri.path() == path).count();

    let post = Request::post(path).body(member::full("{}")).unwrap();
    let refused = client.send_request(post, RequestIdentity::Member).await.unwrap();
    assert_eq!((refused.status(), charges()), (StatusCode::UNAUTHORIZED, 1));
    assert_eq!(member::read(refused).await, KUBERNETES_401);
    // A read is retried once. The client gets the 401 of the retry.
    let refused = client.send_request(get(path), RequestIdentity::Member).await.unwrap();
    assert_eq!((refused.status(), charges()), (StatusCode::UNAUTHORIZED, 3));
    assert_eq!(member::read(refused).await, KUBERNETES_401);
}

/// One of two kube-apiservers may learn of a new token later than the other. It rejects the token once, and then
/// accepts it.
#[tokio::test]
async fn response_401_of_a_kube_apiserver_with_an_outdated_token_is_retried() {
    let rejects = Arc::new(AtomicBool::new(false));
    let once = rejects.clone();
    let member = Member::start(Options::default(), move |seen, _| {
        let is_rejected = seen.uri.path() != "/api" && once.swap(false, Ordering::SeqCst);
        async move {
            match (is_rejected, seen.uri.path()) {
                (true, _) => text(StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned()),
                (false, "/api/v1/namespaces/denied/configmaps") => {
                    text(StatusCode::UNAUTHORIZED, WEBHOOK_401.to_owned())
                }
                (false, _) => text(StatusCode::OK, "welcome".to_owned()),
            }
        }
    })
    .await;
    let mut config = member.config();
    config.auth_info.token = Some("mine".to_owned().into());
    let client = member::connect(config, quick()).await;
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let post = |namespace: &str| Request::post(maps(namespace)).body(member::full("{}")).unwrap();

    rejects.store(true, Ordering::SeqCst);
    let read = client.send_request(get(&maps("n")), RequestIdentity::Member).await.unwrap();
    assert_eq!(read.status(), StatusCode::OK, "a read is sent again");
    rejects.store(true, Ordering::SeqCst);
    let error =
        client.send_request(post("n"), RequestIdentity::Member).await.map(|answer| answer.status()).unwrap_err();
    assert!(matches!(error, ForwardError::UnknownSender { .. }), "{error}");
    assert!(client.reachability().borrow().is_reachable());
    let denied = client.send_request(post("denied"), RequestIdentity::Member).await.unwrap();
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(member::read(denied).await, WEBHOOK_401);
    rejects.store(true, Ordering::SeqCst);
    let proxied = get("/api/v1/namespaces/n/pods/p/proxy/");
    let proxied = client.send_request(proxied, RequestIdentity::Member).await.unwrap();
    assert_eq!((proxied.status(), member::read(proxied).await), (StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned()));
}

/// Starts a member and its client. The member answers clients' requests with kube-apiserver's 401 while `is_rejected`
/// returns true. The member always accepts Tributary's own request for `/api`.
async fn rejecting(is_rejected: impl Fn() -> bool + Send + Sync + 'static) -> (Member, ClusterClient) {
    let member = Member::start(Options::default(), move |seen, _| {
        let is_rejected = seen.uri.path() != "/api" && is_rejected();
        async move {
            match is_rejected {
                true => text(StatusCode::UNAUTHORIZED, KUBERNETES_401.to_owned()),
                false => text(StatusCode::OK, "welcome".to_owned()),
            }
        }
    })
    .await;
    let mut config = member.config();
    config.auth_info.token = Some("mine".to_owned().into());
    let client = member::connect(config, quick()).await;
    (member, client)
}

/// One of two kube-apiservers behind one address always rejects Tributary's credentials. The retry budget limits the
/// retries.
#[tokio::test]
async fn member_that_returns_401_to_half_of_the_requests_gets_few_retries() {
    let requests = Arc::new(AtomicU16::new(0));
    let count = requests.clone();
    let (_member, client) = rejecting(move || count.fetch_add(1, Ordering::SeqCst) % 2 == 1).await;
    let mut for_now = 0_u16;
    for _ in 0..300 {
        match client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await {
            Ok(response) => assert_eq!(response.status(), StatusCode::OK),
            Err(error) => {
                assert!(matches!(error, ForwardError::UnknownSender { .. }), "{error}");
                for_now += 1;
            }
        }
    }
    assert!(for_now > 0);
    // The budget for retries after a 401 is half of the retry budget: a tenth of the requests, and 10 more
    // (`retry_budget.rs`). Retries count as requests. Without the budget there would be 150 retries.
    let again = requests.load(Ordering::SeqCst) - 300;
    assert!((1..=50).contains(&again), "{again} of 300 were sent again");
}

/// kube-apiserver authenticates a request before all other steps, also for custom resources, reviews, discovery and
/// logs. An aggregated API server that does not trust the cluster does the same.
#[tokio::test]
async fn response_401_of_a_kube_apiserver_never_reaches_the_client() {
    let rejections = Arc::new(AtomicU16::new(0));
    let remaining = rejections.clone();
    let take = |remaining: u16| remaining.checked_sub(1);
    let (_member, client) =
        rejecting(move || remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()).await;
    let ask = async |method: &str, path: &str| {
        let mut request = get(path);
        *request.method_mut() = method.parse().unwrap();
        if method != "GET" {
            *request.body_mut() = member::full("{}");
        }
        client.send_request(request, RequestIdentity::Member).await
    };
    for path in ["/apis", "/version", "/healthz", "/apis/example.com/v1/widgets", "/api/v1/namespaces/n/pods/p/log"] {
        rejections.store(1, Ordering::SeqCst);
        assert_eq!(ask("GET", path).await.unwrap().status(), StatusCode::OK, "{path}");
        rejections.store(u16::MAX, Ordering::SeqCst);
        let error = ask("GET", path).await.map(|answer| answer.status()).unwrap_err();
        assert!(matches!(error, ForwardError::UnknownSender { .. }), "{path}: {error}");
    }
    for (method, path) in [
        ("PATCH", "/apis/example.com/v1/namespaces/n/widgets/w"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/apis/metrics.k8s.io/v1beta1/things"),
    ] {
        rejections.store(1, Ordering::SeqCst);
        let error = ask(method, path).await.map(|answer| answer.status()).unwrap_err();
        assert!(matches!(error, ForwardError::UnknownSender { .. }), "{path}: {error}");
        assert!(error.to_string().contains("or the API server behind it") && error.sent() == Sent::No, "{error}");
    }
    assert!(client.reachability().borrow().is_reachable());
}

/// After a 401, the proxy retries a read with new credentials of the plugin, unless the plugin ran a moment ago.
#[tokio::test]
async fn exec_plugin_runs_once_for_many_requests_and_again_after_401() {
    let script = r#"test "$1$REGION" = get-tokeneu || exit 9
echo "$KUBERNETES_EXEC_INFO" | grep -q '"interactive":false' || exit 8
sleep 0.1
echo "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"token-$n\",\"expirationTimestamp\":\"2090-01-01T00:00:00Z\"}}""#;
    for (a_moment, accepted, expected_runs) in [(Duration::from_secs(3600), false, 1), (Duration::ZERO, true, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let exec = plugin(folder.path(), script);
        let member = wants("token-2").await;
        let mut config = member.config();
        config.auth_info.exec = Some(exec.clone());
        let client = member::connect(config, ClientTuning { credential_retry_interval: a_moment, ..quick() }).await;
        assert_eq!(runs(&exec), 0, "connecting runs no plugin");
        let requests = (0..20).map(|_| client.send_request(get("/api"), RequestIdentity::Member));
        for result in futures::future::join_all(requests).await {
            match result {
                Ok(response) => assert_eq!((response.status(), accepted), (StatusCode::OK, true)),
                Err(error) => {
                    assert!(!accepted && matches!(error, ForwardError::Unauthorized { .. }), "{error}");
                }
            }
        }
        assert_eq!(runs(&exec), expected_runs);
    }
}

#[tokio::test]
async fn expiring_plugin_tokens_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    // `date` truncates fractions of a second, so the token is valid for 5 s to 6 s. If the token has expired when the
    // plugin returns, the request fails.
    let script = r#"at=$(date -u -d '+6 seconds' +%Y-%m-%dT%H:%M:%SZ)
echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"token-$n\",\"expirationTimestamp\":\"$at\"}}""#;
    let exec = plugin(folder.path(), script);
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.exec = Some(exec.clone());
    let client = member::connect(config, quick()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Bearer token-1"]);
    tokio::time::sleep(Duration::from_millis(6100)).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_ne!(member.last().all("authorization"), ["Bearer token-1"]);
    assert!(runs(&exec) >= 2);
}

#[tokio::test]
async fn failing_exec_plugin_runs_after_pauses_and_its_error_contains_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo 'not signed in: token=abcdef' >&2; echo secret-output; exit 3";
    let exec = plugin(folder.path(), script);
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.exec = Some(exec.clone());
    let tuning = ClientTuning { credential_retry_interval: Duration::from_secs(3600), ..quick() };
    let client = member::connect(config.clone(), tuning).await;
    for _ in 0..5 {
        let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ForwardError::Credentials { .. }), "{text}");
        assert!(text.contains("cluster c1") && text.contains("not signed in"), "{text}");
        assert!(!text.contains("abcdef") && !text.contains("secret-output"), "{text}");
        assert_eq!(error.status_code(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(runs(&exec), 1);
    assert!(member.seen().is_empty());

    let mut missing = exec.clone();
    missing.command = Some("/nonexistent/plugin".to_owned());
    config.auth_info.exec = Some(missing);
    let client = member::connect(config.clone(), quick()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(error.to_string().contains("install it"), "{error}");

    let mut interactive = exec;
    interactive.interactive_mode = Some(ExecInteractiveMode::Always);
    config.auth_info.exec = Some(interactive);
    let error = ClusterClient::connect(ClusterName::new("c1").unwrap(), config, quick()).await.unwrap_err();
    assert!(error.to_string().contains("interactiveMode"), "{error}");
}

/// The only variables are those of the configuration and of the protocol, and those that a shell sets itself.
#[tokio::test]
async fn plugin_with_a_policy_runs_with_an_empty_environment() {
    let folder = tempfile::tempdir().unwrap();
    let script = "/usr/bin/env > \"$0.env\"\n".to_owned() + crate::plugins::TOKEN;
    let exec = plugin(folder.path(), &script);
    let path = exec.command.clone().unwrap();
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.exec = Some(exec.clone());
    let policy = |allowed: &str| Some(Arc::new(CommandPolicy::new(vec![allowed.parse().unwrap()])));
    let client = member::connect(config.clone(), ClientTuning { command_policy: policy(&path), ..quick() }).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    let environment = std::fs::read_to_string(format!("{path}.env")).unwrap();
    let names: std::collections::BTreeSet<&str> =
        environment.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    let of_shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    let others: Vec<&str> = names.into_iter().filter(|name| !of_shell.contains(name)).collect();
    assert_eq!(others, ["KUBERNETES_EXEC_INFO", "REGION"], "{environment}");
    assert_eq!(runs(&exec), 1);

    for (allowed, problem) in [
        ("/usr/bin/other".to_owned(), "is not allowed for objects of the hub"),
        (format!("{path}@sha256:{}", "0".repeat(64)), "which --exec-allow does not allow"),
    ] {
        let tuning = ClientTuning { command_policy: policy(&allowed), ..quick() };
        let client = member::connect(config.clone(), tuning).await;
        let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert_eq!(runs(&exec), 1, "a refused plugin does not run");
}

#[tokio::test]
async fn slow_plugin_is_killed_at_its_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let exec = plugin(folder.path(), "exec sleep 60");
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.exec = Some(exec);
    let tuning = ClientTuning { exec_timeout: Duration::from_millis(200), ..quick() };
    let client = member::connect(config, tuning).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(error.to_string().contains("did not finish"), "{error}");
}

#[tokio::test]
async fn client_certificate_of_the_configuration_is_presented() {
    let users = Authority::new();
    let leaf = users.leaf("alice");
    let options = Options { client_authority: Some(users.der.clone()), ..Options::default() };
    let member = Member::start(options, |_, _| async { text(StatusCode::OK, String::new()) }).await;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let mut config = member.config();
    config.auth_info.client_certificate_data = Some(encode(&leaf.pem));
    config.auth_info.client_key_data = Some(encode(&leaf.key_pem).into());
    let client = member::connect(config, quick()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().certificate.as_deref(), Some(&*leaf.der));
    assert!(!member.last().headers.contains_key("authorization"));

    let client = member.client().await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("client-certificate-data"), "{error}");
}

#[tokio::test]
async fn renewed_client_certificate_of_a_plugin_replaces_the_connections() {
    let folder = tempfile::tempdir().unwrap();
    let users = Authority::new();
    let leaves = [users.leaf("one"), users.leaf("two")];
    for (number, leaf) in leaves.iter().enumerate() {
        let credential = serde_json::json!({
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "status": {"clientCertificateData": leaf.pem, "clientKeyData": leaf.key_pem},
        });
        std::fs::write(folder.path().join((number + 1).to_string()), credential.to_string()).unwrap();
    }
    let exec = plugin(folder.path(), &format!("cat {}/$n", folder.path().display()));
    let options = Options { client_authority: Some(users.der.clone()), ..Options::default() };
    let expected = leaves[1].der.to_vec();
    let member = Member::start(options, move |seen, _| {
        let accepted = seen.uri.path() == "/any" || seen.certificate.as_ref() == Some(&expected);
        async move { text(if accepted { StatusCode::OK } else { StatusCode::UNAUTHORIZED }, String::new()) }
    })
    .await;
    let mut config = member.config();
    config.auth_info.exec = Some(exec.clone());
    let client = member::connect(config, ClientTuning { credential_retry_interval: Duration::ZERO, ..quick() }).await;
    client.send_request(get("/any"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().certificate.as_deref(), Some(&*leaves[0].der));
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().certificate.as_deref(), Some(&*leaves[1].der));
    // One of the three connections is for the check whether the member rejects Tributary's credentials.
    assert_eq!((runs(&exec), member.connections()), (2, 3));
}

#[tokio::test]
async fn client_certificate_files_are_read_again_after_401() {
    let folder = tempfile::tempdir().unwrap();
    let users = Authority::new();
    let leaves = [users.leaf("one"), users.leaf("two")];
    let (chain, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let write = |number: usize| {
        std::fs::write(&chain, &leaves[number].pem).unwrap();
        std::fs::write(&key, &leaves[number].key_pem).unwrap();
    };
    write(0);
    let options = Options { client_authority: Some(users.der.clone()), ..Options::default() };
    let expected = leaves[1].der.to_vec();
    let member = Member::start(options, move |seen, _| {
        let accepted = seen.certificate.as_ref() == Some(&expected);
        async move { text(if accepted { StatusCode::OK } else { StatusCode::UNAUTHORIZED }, String::new()) }
    })
    .await;
    let mut config = member.config();
    config.auth_info.client_certificate = Some(chain.to_str().unwrap().to_owned());
    config.auth_info.client_key = Some(key.to_str().unwrap().to_owned());
    let client = member::connect(config, ClientTuning { credential_retry_interval: Duration::ZERO, ..quick() }).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    write(1);
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
}

#[tokio::test]
async fn error_for_an_exec_plugin_without_output_says_that_it_printed_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.exec = Some(plugin(folder.path(), "exit 1"));
    let client = member::connect(config, quick()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err().to_string();
    assert!(error.contains("the plugin printed nothing; run it in a terminal"), "{error}");
}

#[tokio::test]
async fn expired_exec_plugin_credentials_are_neither_sent_nor_renewed_per_request() {
    let folder = tempfile::tempdir().unwrap();
    let member = Member::echo().await;
    let mut config = member.config();
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t","expirationTimestamp":"2020-01-01T00:00:00Z"}}"#;
    let exec = plugin(folder.path(), &format!("echo '{credential}'"));
    config.auth_info.exec = Some(exec.clone());
    let tuning = ClientTuning { credential_retry_interval: Duration::from_secs(3600), ..quick() };
    let client = member::connect(config, tuning).await;
    for _ in 0..5 {
        let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        assert!(matches!(error, ForwardError::Credentials { .. }), "{error}");
        let text = error.to_string();
        for part in ["cluster c1", exec.command.as_deref().unwrap(), "had expired", "the clock", "may run again in"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(runs(&exec), 1);
    assert!(member.seen().is_empty());
}
