//! Tests of changes of a member's user or client certificate while requests are in flight.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use kube::config::AuthInfo;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tower::service_fn;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, ConnectError, ForwardError, RequestIdentity};

use crate::credentials::{plugin, quick, runs};
use crate::member::{self, Authority, Leaf, Member, Options, SendRequest, channel, eventually, get, text};

fn with_user(member: &Member, user: AuthInfo) -> kube::Config {
    let mut config = member.config();
    config.auth_info = user;
    config
}

fn token(token: &str) -> AuthInfo {
    AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() }
}

fn certificate(chain: &Leaf, key: &Leaf) -> AuthInfo {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    AuthInfo {
        client_certificate_data: Some(encode(&chain.pem)),
        client_key_data: Some(encode(&key.key_pem).into()),
        ..AuthInfo::default()
    }
}

#[tokio::test]
async fn new_token_is_sent_over_the_existing_connection() {
    let member = Member::echo().await;
    let client = member::connect(with_user(&member, token("old")), quick()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!((member.last().all("authorization"), client.renewals()), (vec!["Bearer old"], 0));
    client.set_user(&with_user(&member, token("new"))).await.unwrap();
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!((member.last().all("authorization"), client.renewals()), (vec!["Bearer new"], 1));
    assert_eq!(member.connections(), 1);
}

#[tokio::test]
async fn new_certificate_opens_new_connections_and_open_streams_continue() {
    let users = Authority::new();
    let leaves = [users.leaf("one"), users.leaf("two")];
    let options = Options { client_authority: Some(users.der.clone()), ..Options::default() };
    let (events, watched) = channel();
    let watched = std::sync::Mutex::new(Some(watched));
    let member = Member::start(options, move |seen, _| {
        let watch = if seen.uri.query().is_some() { watched.lock().unwrap().take() } else { None };
        async move { watch.map_or_else(|| text(StatusCode::OK, String::new()), http::Response::new) }
    })
    .await;
    let client = member::connect(with_user(&member, certificate(&leaves[0], &leaves[0])), quick()).await;
    let mut watch =
        client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap().into_body();
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().certificate.as_deref(), Some(&*leaves[0].der));
    let before = member.connections();

    client.set_user(&with_user(&member, certificate(&leaves[1], &leaves[1]))).await.unwrap();
    for _ in 0..3 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        assert_eq!(member.last().certificate.as_deref(), Some(&*leaves[1].der));
    }
    assert_eq!(member.connections(), before + 1);
    events.send(Bytes::from_static(b"event")).unwrap();
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "event");

    // Setting the same user again keeps all connections.
    client.set_user(&with_user(&member, certificate(&leaves[1], &leaves[1]))).await.unwrap();
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.connections(), before + 1);
}

#[tokio::test]
async fn token_is_never_sent_without_its_impersonated_user() {
    let member = Member::echo().await;
    let limited = AuthInfo { impersonate: Some("reader".to_owned()), ..token("administrator") };
    let users = [with_user(&member, token("robot")), with_user(&member, limited)];
    let client = member::connect(users[0].clone(), quick()).await;
    let requests = async {
        for _ in 0..200 {
            client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        }
    };
    let replacements = async {
        for number in 0..200 {
            client.set_user(&users[number % 2]).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(requests, replacements);
    for seen in member.seen() {
        let whole = match seen.all("authorization")[..] {
            ["Bearer robot"] => seen.all("impersonate-user").is_empty(),
            ["Bearer administrator"] => seen.all("impersonate-user") == ["reader"],
            _ => false,
        };
        assert!(whole, "{seen:?}");
    }
}

#[tokio::test]
async fn request_resent_with_new_credentials_differs_only_in_the_credentials() {
    let replaced = Arc::new(Notify::new());
    let waiting = replaced.clone();
    let member = Member::start(Options::default(), move |seen, _| {
        let (is_old, waiting) = (seen.all("authorization") == ["Bearer old"], waiting.clone());
        async move {
            if is_old {
                waiting.notified().await;
                return text(StatusCode::UNAUTHORIZED, String::new());
            }
            text(StatusCode::OK, String::new())
        }
    })
    .await;
    let acting_as = |name: &str, user: AuthInfo| AuthInfo { impersonate: Some(name.to_owned()), ..user };
    let client = member::connect(with_user(&member, acting_as("reader", token("old"))), quick()).await;
    let path = "/api/v1/pods?labelSelector=a%3Db";
    let mut request = get(path);
    request.headers_mut().insert("accept", "application/json".parse().unwrap());
    let asking = client.clone();
    let response = tokio::spawn(async move { asking.send_request(request, RequestIdentity::Member).await });
    eventually("it is under way", || member.seen().len() == 1).await;
    client.set_user(&with_user(&member, acting_as("writer", token("new")))).await.unwrap();
    replaced.notify_one();
    assert_eq!(response.await.unwrap().unwrap().status(), StatusCode::OK);
    let seen = member.seen();
    for (seen, token, name) in [(seen.first(), "Bearer old", "reader"), (seen.last(), "Bearer new", "writer")] {
        let seen = seen.unwrap();
        assert_eq!(seen.uri.path_and_query().unwrap().as_str(), path);
        let headers = ["accept", "authorization", "impersonate-user"].map(|header| seen.all(header));
        assert_eq!(headers, [["application/json"], [token], [name]]);
    }
}

#[tokio::test]
async fn invalid_new_credentials_do_not_replace_the_previous_credentials() {
    let users = Authority::new();
    let leaves = [users.leaf("one"), users.leaf("two")];
    let member = Member::echo().await;
    let client = member::connect(with_user(&member, token("old")), quick()).await;
    // The certificate does not match its key, as can happen while two files are replaced.
    let error = client.set_user(&with_user(&member, certificate(&leaves[0], &leaves[1]))).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!((member.last().all("authorization"), client.renewals()), (vec!["Bearer old"], 0));
}

#[tokio::test]
async fn request_with_new_credentials_never_uses_the_previous_client_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let users = Authority::new();
    let leaf = users.leaf("one");
    let options = Options { client_authority: Some(users.der.clone()), ..Options::default() };
    let member = Member::start(options, |_, _| async { text(StatusCode::OK, String::new()) }).await;
    let client = member::connect(with_user(&member, certificate(&leaf, &leaf)), quick()).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"c","clientKeyData":"k"}}"#;
    let exec = plugin(folder.path(), &format!("echo '{credential}'"));
    client.set_user(&with_user(&member, AuthInfo { exec: Some(exec), ..AuthInfo::default() })).await.unwrap();
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::Credentials { .. }), "{error}");
    assert_eq!(member.seen().len(), 1);
}

#[tokio::test]
async fn client_certificate_that_expires_while_connecting_is_replaced_once() {
    let folder = tempfile::tempdir().unwrap();
    let users = Authority::new();
    for number in 1..=64 {
        let leaf = users.leaf("one");
        let credential = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "status": {"clientCertificateData": leaf.pem, "clientKeyData": leaf.key_pem, "expirationTimestamp": "AT"},
        });
        std::fs::write(folder.path().join(number.to_string()), credential.to_string()).unwrap();
    }
    let script = r#"sed 's/"AT"/"'$(date -u -d '+6 seconds' +%Y-%m-%dT%H:%M:%SZ)'"/'"#;
    let exec = plugin(folder.path(), &format!("{script} {}/$n", folder.path().display()));
    let options = Options { client_authority: Some(users.der.clone()), ..Options::default() };
    let member = Member::start(options, |_, _| async { text(StatusCode::OK, String::new()) }).await;
    // The connection attempt takes longer than the validity of the certificate. The next request uses a new
    // certificate.
    let address = member.address;
    let connector = BoxCloneSyncService::new(service_fn(move |_| async move {
        tokio::time::sleep(Duration::from_millis(6100)).await;
        let stream: BoxIo = Box::new(TcpStream::connect(address).await?);
        Ok::<_, BoxError>(stream)
    }));
    let config = with_user(&member, AuthInfo { exec: Some(exec.clone()), ..AuthInfo::default() });
    let tuning =
        ClientTuning { credential_retry_interval: Duration::ZERO, connect_timeout: Duration::from_secs(60), ..quick() };
    let name = ClusterName::new("c1").unwrap();
    let client = ClusterClient::connect_through(connector, name, config, tuning).await.unwrap();
    for _ in 0..2 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    assert_eq!((member.connections(), runs(&exec)), (2, 2));
}

#[tokio::test]
async fn shutdown_aborts_watches_and_followed_logs() {
    let member = Member::start(Options::default(), |seen, _| async move {
        if seen.uri.path() == "/api" {
            return text(StatusCode::OK, "short".to_owned());
        }
        let (sender, body) = channel();
        tokio::spawn(async move {
            while sender.send(Bytes::from_static(b"line\n")).is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        http::Response::new(body)
    })
    .await;
    let tuning = ClientTuning::default();
    let client = member::connect(member.config(), tuning.clone()).await;
    let mut streams = Vec::new();
    for path in ["/api/v1/pods?watch=1", "/api/v1/namespaces/a/pods/p/log?follow=true"] {
        let mut body = client.send_request(get(path), RequestIdentity::Member).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        streams.push(body);
    }
    let short = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    tuning.shutdown.cancel();
    for mut body in streams {
        let broken = async {
            loop {
                if let Err(error) = body.frame().await.expect("no clean end") {
                    return error.to_string();
                }
            }
        };
        let error = tokio::time::timeout(Duration::from_secs(5), broken).await.expect("it goes on");
        assert!(error.contains("cluster c1") && error.contains("no longer serves the cluster"), "{error}");
    }
    eventually("they are given back", || client.pool_statistics().long_streams == 0).await;
    assert_eq!(member::read(short).await, "short", "what ends by itself may end");
}
