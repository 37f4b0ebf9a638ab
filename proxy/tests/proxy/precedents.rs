//! Known faults of other gateways in front of a Kubernetes API. Each fault has a test with its name. This file has the
//! faults of a member's client; `docs/precedents.md` lists all faults.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::Body;
use tributary_proxy::{
    ClientTuning, ClusterClient, ForwardError, Impersonation, RequestIdentity, RequestLoop, check_request_loop,
};

use crate::identity::names;
use crate::member::{self, Member, Options, SOON, SendRequest, empty, get, text};
use crate::proxies::connect_proxy;
use crate::upgrades::{RawMember, WEBSOCKET, ask, front, read_head};

/// Sends an upgrade request, which the member refuses with `answer`, and then a second request on the same client
/// connection. Tributary's own server must answer the second request. None of its bytes may reach the member as part of
/// a tunnel.
async fn nothing_is_spliced(answer: &'static str, expected: &str) {
    let member = RawMember::start(answer).await;
    let tuning = ClientTuning::default();
    let address = front(member::connect(member.config.clone(), tuning.clone()).await).await;
    let (mut tcp, head) = ask(address, WEBSOCKET).await;
    assert!(head.starts_with(expected), "{answer}: {head}");
    assert!(!head.to_lowercase().contains("upgrade:"), "{head}");
    assert!(!head.contains("evil"), "{head}");
    read_body(&mut tcp, &head).await;
    let smuggled = "GET /api/v1/secrets HTTP/1.1\r\nhost: front\r\nimpersonate-user: root\r\n\r\n";
    tcp.write_all(smuggled.as_bytes()).await.unwrap();
    // After Tributary's own server has answered, no more bytes are sent to the member.
    let second = tokio::time::timeout(SOON, read_head(&mut tcp)).await.expect("our own server answers");
    assert!(second.starts_with("HTTP/1.1 "), "{second}");
    assert!(member.after.lock().unwrap().is_empty(), "{answer}");
    assert_eq!(tuning.tunnels.len(), 0);
    for head in member.heads.lock().unwrap().iter() {
        assert!(!head.to_lowercase().contains("impersonate"), "{head}");
    }
}

async fn read_body(tcp: &mut TcpStream, head: &str) {
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().unwrap()];
    tcp.read_exact(&mut body).await.unwrap();
}

#[tokio::test]
async fn cve_2018_1002105_after_a_refused_upgrade_no_byte_reaches_the_member() {
    for (answer, expected) in [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", "HTTP/1.1 403"),
        ("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 401"),
        ("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n", "HTTP/1.1 502"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 502"),
    ] {
        nothing_is_spliced(answer, expected).await;
    }
}

#[tokio::test]
async fn cve_2020_8559_upgrade_answered_with_200_or_a_redirect_opens_no_tunnel() {
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "HTTP/1.1 200"),
        ("HTTP/1.1 200 OK\r\nconnection: Upgrade\r\nupgrade: websocket\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 200"),
        ("HTTP/1.1 302 Found\r\nlocation: https://evil.example/\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 502"),
    ] {
        nothing_is_spliced(answer, expected).await;
    }
}

#[tokio::test]
async fn kubernetes_72112_upgrade_to_an_unknown_protocol_never_reaches_the_member() {
    let member = RawMember::start("HTTP/1.1 200 OK\r\n\r\n").await;
    let address = front(member::connect(member.config.clone(), ClientTuning::default()).await).await;
    for headers in [
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n",
        "connection: Upgrade\r\nupgrade: junk\r\n",
        "connection: Upgrade\r\nupgrade: websocket, h2c\r\n",
        "connection: Upgrade\r\nupgrade: websocket\r\ncontent-length: 4\r\n",
    ] {
        let (_tcp, head) = ask(address, headers).await;
        assert!(head.starts_with("HTTP/1.1 400"), "{headers}: {head}");
    }
    assert!(member.heads.lock().unwrap().is_empty());
}

#[tokio::test]
async fn cve_2018_1002102_and_cve_2022_3172_redirect_is_neither_followed_nor_forwarded() {
    let elsewhere = Member::echo().await;
    let location = format!("https://{}/stolen", elsewhere.address);
    let member = Member::start(Options::default(), move |seen, _| {
        let response = Response::builder().status(seen.uri.path()[1..].parse::<u16>().unwrap());
        let response = response.header("location", &location).body(empty()).unwrap();
        async move { response }
    })
    .await;
    let client = member.client().await;
    for code in [301, 302, 303, 307, 308] {
        let error = client.send_request(get(&format!("/{code}")), RequestIdentity::Member).await.unwrap_err();
        assert!(matches!(error, ForwardError::Redirect { status, .. } if status == code), "{error}");
        assert_eq!(error.status_code(), StatusCode::BAD_GATEWAY);
        assert!(!error.to_string().contains("stolen"), "{error}");
    }
    assert!(elsewhere.seen().is_empty());
}

/// Returns a request with every header that a client must not set, some of them twice or in other spellings.
fn forged(connection: &str) -> Request<Body> {
    let mut request = Request::get("http://elsewhere:1/api/v1/pods?labelSelector=a%3Db");
    for (name, value) in [
        ("authorization", "Bearer client-token"),
        ("cookie", "a=b"),
        ("impersonate-user", "system:admin"),
        ("Impersonate-User", "root"),
        ("impersonate-group", "system:masters"),
        ("IMPERSONATE-GROUP", "system:nodes"),
        ("impersonate-uid", "0"),
        ("impersonate-extra-scopes", "all"),
        ("impersonate_user", "root"),
        ("impersonate_group", "system:masters"),
        ("impersonate_extra_scopes", "all"),
        ("x-forwarded-for", "1.2.3.4"),
        ("connection", connection),
        ("x-hop", "1"),
        ("x-teleport-user", "admin"),
        ("x-ssl-client-cn", "admin"),
        ("te", "trailers"),
        ("accept", "application/json"),
        ("user-agent", "kubectl/v1.36.3"),
    ] {
        request = request.header(name, value);
    }
    request.body(empty()).unwrap()
}

#[tokio::test]
async fn cve_2021_31999_headers_named_by_connection_are_removed_before_identity_headers_are_set() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.token = Some("member-token".to_owned().into());
    let client = member::connect(config, ClientTuning::default()).await;
    for connection in [
        "impersonate-user, authorization, x-hop",
        "Impersonate-User,AUTHORIZATION,X-Hop",
        "close, x-hop, impersonate-group",
    ] {
        // The identity of the request is the kubeconfig's user.
        let mut request = forged(connection);
        request.extensions_mut().insert("10.1.2.3:40000".parse::<SocketAddr>().unwrap());
        let response = client.send_request(request, RequestIdentity::Member).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let seen = member.last();
        assert_eq!(seen.version, http::Version::HTTP_2);
        assert_eq!(seen.uri.path_and_query().unwrap(), "/api/v1/pods?labelSelector=a%3Db");
        assert_eq!(seen.uri.authority().unwrap().as_str(), member.address.to_string());
        assert_eq!(names(&seen.headers), ["accept", "authorization", "te", "user-agent", "x-forwarded-for"]);
        assert_eq!(seen.all("authorization"), ["Bearer member-token"]);
        assert_eq!(seen.all("x-forwarded-for"), ["10.1.2.3"]);
        // The identity of the request is another user. The member must see the impersonated user, and never the
        // kubeconfig's user alone.
        let caller = Impersonation::new("alice", ["dev"], None, []).unwrap();
        client.send_request(forged(connection), RequestIdentity::Impersonate(caller)).await.unwrap();
        let seen = member.last();
        assert_eq!((seen.all("impersonate-user"), seen.all("impersonate-group")), (vec!["alice"], vec!["dev"]));
    }
}

#[tokio::test]
async fn vulndb_3982_identity_headers_never_reach_a_forward_proxy() {
    let member = Member::echo().await;
    let (proxy, mut heads) = connect_proxy().await;
    let mut config = member.config();
    config.auth_info.token = Some("member-token".to_owned().into());
    config.proxy_url = Some(format!("http://user:pass@{proxy}").parse().unwrap());
    let client = member::connect(config, ClientTuning::default()).await;
    let extra = [("scopes", "all")];
    let caller = Impersonation::new("alice", ["dev"], Some("u-7"), extra).unwrap();
    client.send_request(forged("close"), RequestIdentity::Impersonate(caller)).await.unwrap();
    assert_eq!(member.last().all("impersonate-user"), ["alice"]);
    let head = heads.recv().await.unwrap().to_lowercase();
    let mut names: Vec<_> = head.lines().skip(1).filter_map(|line| Some(line.split_once(':')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["host", "proxy-authorization"], "{head}");
    for secret in ["member-token", "client-token", "alice", "masters", "u-7"] {
        assert!(!head.contains(secret), "{head}");
    }
}

#[tokio::test]
async fn forged_identity_headers_of_a_client_are_replaced() {
    let member = Member::echo().await;
    let client = member.client().await;
    let extra = [("authentication.kubernetes.io/pod-name", "p-1")];
    let user = Impersonation::new("alice", ["dev", "ops"], Some("u-7"), extra).unwrap();
    client.send_request(forged("keep-alive"), RequestIdentity::Impersonate(user)).await.unwrap();
    let seen = member.last();
    assert_eq!(seen.all("impersonate-user"), ["alice"]);
    assert_eq!(seen.all("impersonate-group"), ["dev", "ops"]);
    assert_eq!(seen.all("impersonate-uid"), ["u-7"]);
    assert_eq!(seen.all("impersonate-extra-authentication.kubernetes.io%2fpod-name"), ["p-1"]);
    let claims: Vec<_> = names(&seen.headers).into_iter().filter(|name| name.starts_with("impersonate")).collect();
    assert_eq!(claims.len(), 4, "{claims:?}");
    assert!(!seen.headers.contains_key("authorization"));
}

/// A member's address may lead back to this process. The member receives the ids of all servers that have forwarded the
/// request.
#[tokio::test]
async fn request_that_returns_to_this_process_is_detected() {
    let member = Member::echo().await;
    let client = member.client().await;
    let mut request = Request::get("/api").body(empty()).unwrap();
    request.headers_mut().insert("tributary-via", "0123456789abcdef".parse().unwrap());
    assert_eq!(check_request_loop(request.headers()), Ok(()));
    client.send_request(request, RequestIdentity::Member).await.unwrap();
    let seen = member.last();
    assert_eq!(seen.all("tributary-via").len(), 2);
    assert_eq!(check_request_loop(&seen.headers), Err(RequestLoop::Returned));
}

#[tokio::test]
async fn front_proxy_headers_of_a_client_never_reach_a_member() {
    let member = Member::echo().await;
    let client = member.client().await;
    for identity in
        [RequestIdentity::Member, RequestIdentity::Impersonate(Impersonation::new("alice", [], None, []).unwrap())]
    {
        let mut request = Request::get("/api");
        for (name, value) in [
            ("x-remote-user", "root"),
            ("X-Remote-User", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-uid", "0"),
            ("x-remote-extra-scopes", "all"),
            ("x_remote_user", "root"),
            ("x-remote_group", "system:masters"),
        ] {
            request = request.header(name, value);
        }
        client.send_request(request.body(empty()).unwrap(), identity).await.unwrap();
        let seen = names(&member.last().headers);
        assert!(seen.iter().all(|name| name == "impersonate-user"), "{seen:?}");
    }
}

#[tokio::test]
async fn cve_2021_25320_credentials_and_users_of_one_cluster_never_reach_another() {
    const CLUSTERS: [&str; 2] = ["one", "two"];
    let mut members = Vec::new();
    let mut clients = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    for cluster in CLUSTERS {
        let member = Member::start(Options::default(), |seen, _| async move {
            let headers =
                ["authorization", "impersonate-user", "impersonate-group"].map(|name| seen.all(name).join(","));
            text(StatusCode::OK, headers.join(" "))
        })
        .await;
        let mut config = member.config();
        // One client has a token in its configuration. The other client reads a token file for each request.
        if cluster == "one" {
            config.auth_info.token = Some("token-of-one".to_owned().into());
        } else {
            let path = folder.path().join("token");
            std::fs::write(&path, "token-of-two").unwrap();
            config.auth_info.token_file = Some(path.to_str().unwrap().to_owned());
        }
        let tuning = ClientTuning { token_file_interval: std::time::Duration::ZERO, ..ClientTuning::default() };
        let name = ClusterName::new(cluster).unwrap();
        clients.push(Arc::new(ClusterClient::connect(name, config, tuning).await.unwrap()));
        members.push(member);
    }
    let requests = (0..400).map(|number| {
        let (cluster, user) = (number % 2, ["alice", "bob"][number / 2 % 2]);
        let client = Arc::clone(&clients[cluster]);
        async move {
            let group = format!("group-{number}");
            let caller = Impersonation::new(user, [&*group], None, []).unwrap();
            let response = client.send_request(get("/api"), RequestIdentity::Impersonate(caller)).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("Bearer token-of-{} {user} {group}", CLUSTERS[cluster]));
        }
    });
    futures::future::join_all(requests).await;
    for (member, cluster) in members.iter().zip(CLUSTERS) {
        assert_eq!(member.seen().len(), 200);
        let own = format!("Bearer token-of-{cluster}");
        assert!(member.seen().iter().all(|seen| seen.all("authorization") == [&*own]));
    }
}
