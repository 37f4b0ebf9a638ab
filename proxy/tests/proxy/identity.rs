//! Tests of a request's identity at the member, and of the forwarded request headers.

use http::{HeaderMap, Response, StatusCode};
use tributary_proxy::{ClientTuning, ForwardError, Impersonation, RequestIdentity};

use crate::member::{self, Member, Options, SendRequest, empty, get};
use crate::own_token;

pub(crate) fn names(headers: &HeaderMap) -> Vec<String> {
    let mut names: Vec<String> = headers.keys().map(|name| name.as_str().to_owned()).collect();
    // Each request has this header, by which a chain of Tributaries detects a loop.
    names.retain(|name| name != "tributary-via");
    names.sort();
    names
}

#[tokio::test]
async fn client_impersonation_headers_reach_the_member() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.impersonate = Some("configured".to_owned());
    let client = member::connect(config, ClientTuning::default()).await;
    let mut client_headers = HeaderMap::new();
    client_headers.insert("impersonate-user", "bob".parse().unwrap());
    client_headers.insert("authorization", "Bearer ignored".parse().unwrap());
    client_headers.insert("x-remote-user", "ignored".parse().unwrap());

    let client_headers = Impersonation::from_client_headers(&client_headers).unwrap().unwrap();
    client.send_request(get("/version"), RequestIdentity::ClientImpersonation(client_headers)).await.unwrap();
    assert_eq!(member.last().all("impersonate-user"), ["bob"]);
    assert_eq!(names(&member.last().headers), ["impersonate-user"]);

    client.send_request(get("/version"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member.last().all("impersonate-user"), ["configured"]);

    let user = Impersonation::new("alice", [], None, []).unwrap();
    let error = client.send_request(get("/version"), RequestIdentity::Impersonate(user)).await.unwrap_err();
    assert!(matches!(error, ForwardError::ImpersonationConflict { .. }), "{error}");
    assert_eq!(member.seen().len(), 2);
}

#[tokio::test]
async fn responses_lose_cookies_and_keep_warnings() {
    let member = Member::start(Options::default(), |seen, _| async move {
        let builder = Response::builder().header("set-cookie", "a=b").header("warning", "299 - \"x\"");
        let builder = match seen.uri.path() {
            "/not-modified" => builder.status(304).header("etag", "\"1\""),
            _ => builder.status(200).header("audit-id", "a-1"),
        };
        builder.body(empty()).unwrap()
    })
    .await;
    let client = member.client().await;
    let response = client.send_request(get("/"), RequestIdentity::Member).await.unwrap();
    assert!(!response.headers().contains_key("set-cookie"));
    assert_eq!(response.headers()["warning"], "299 - \"x\"");
    assert_eq!(response.headers()["audit-id"], "a-1");
    let response = client.send_request(get("/not-modified"), RequestIdentity::Member).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn request_path_is_appended_to_the_members_base_path() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.cluster_url = format!("https://{}/k8s/clusters/c-1/", member.address).parse().unwrap();
    let client = member::connect(config, ClientTuning::default()).await;
    let response = client.send_request(get("/api/v1/pods?x=1"), RequestIdentity::Member).await.unwrap();
    assert_eq!(member::read(response).await, "/k8s/clusters/c-1/api/v1/pods");
    let error = client.send_request(get("/../c-2/api"), RequestIdentity::Member).await.unwrap_err();
    assert_eq!(error.status_code(), StatusCode::BAD_REQUEST);
    assert_eq!(member.seen().len(), 1);
}

/// Open Cluster Management's user-server speaks HTTP/1.1 under the name of its Service, has each cluster below a path,
/// and gets a token that managed-serviceaccount replaces.
#[tokio::test]
async fn member_behind_a_user_server_is_reached_by_path_service_name_and_rotating_token() {
    let http1 = Options { alpn: vec!["http/1.1"], ..Options::default() };
    let member = Member::start(http1, |seen, _| async move {
        let is_current = seen.all("authorization") == ["Bearer new"];
        let code = if is_current { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        member::text(code, seen.uri.path().to_owned())
    })
    .await;
    let mut config = member.config();
    // The certificate is for 127.0.0.1, which stands for the name of the Service.
    config.cluster_url = format!("https://localhost:{}/eu", member.address.port()).parse().unwrap();
    config.tls_server_name = Some("127.0.0.1".to_owned());
    config.auth_info.token = Some("old".to_owned().into());
    let client = member::connect(config.clone(), ClientTuning::default()).await;
    let refused = client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap_err();
    assert!(refused.to_string().contains("rejects Tributary's own credentials"), "{refused}");
    config.auth_info.token = Some("new".to_owned().into());
    client.set_user(&config).await.unwrap();
    let ann = Impersonation::new("ann", ["dev"], None, []).unwrap();
    let answers = [0; 3].map(|_| client.send_request(get("/api/v1/pods"), RequestIdentity::Impersonate(ann.clone())));
    for answer in futures::future::join_all(answers).await {
        assert_eq!(member::read(answer.unwrap()).await, "/eu/api/v1/pods");
    }
    assert_eq!((member.last().version, member.last().all("impersonate-user")), (http::Version::HTTP_11, vec!["ann"]));
}

/// Karmada's impersonator has the right to impersonate users and groups. So the request to the member contains no other
/// impersonation header.
#[tokio::test]
async fn impersonator_token_is_sent_with_exactly_the_user_and_the_groups() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.token = Some("own".to_owned().into());
    let client = member::connect(config, ClientTuning::default()).await;
    let ann = || Impersonation::new("ann", ["dev", "ops"], None, []).unwrap();

    client.send_request(get("/version"), RequestIdentity::ByImpersonator(ann())).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Bearer own"], "without an impersonator");
    client.set_impersonator(Some("second")).unwrap();
    client.send_request(get("/version"), RequestIdentity::ByImpersonator(ann())).await.unwrap();
    let seen = member.last();
    assert_eq!(names(&seen.headers), ["authorization", "impersonate-group", "impersonate-user"]);
    assert_eq!(seen.all("authorization"), ["Bearer second"]);
    assert_eq!((seen.all("impersonate-user"), seen.all("impersonate-group")), (vec!["ann"], vec!["dev", "ops"]));
    for other in [RequestIdentity::Member, RequestIdentity::Impersonate(ann())] {
        client.send_request(get("/version"), other).await.unwrap();
        assert_eq!(member.last().all("authorization"), ["Bearer own"]);
    }
    assert!(client.set_impersonator(Some("a\nb")).is_err());
    client.set_impersonator(None).unwrap();
    client.send_request(get("/version"), RequestIdentity::ByImpersonator(ann())).await.unwrap();
    assert_eq!(member.last().all("authorization"), ["Bearer own"]);
}

#[tokio::test]
async fn rejected_impersonator_token_is_reported_with_advice() {
    let member = Member::start(Options::default(), |seen, _| async move {
        let known = seen.headers.get("authorization").is_some_and(|value| value == "Bearer own");
        let status = if known { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        let unauthorized = tributary_apimachinery::Status::unauthorized().to_json();
        member::text(status, String::from_utf8(unauthorized).unwrap())
    })
    .await;
    let mut config = member.config();
    config.auth_info.token = Some("own".to_owned().into());
    let client = member::connect(config, ClientTuning::default()).await;
    client.set_impersonator(Some("revoked")).unwrap();
    let ann = Impersonation::new("ann", [], None, []).unwrap();
    let error = client.send_request(get("/api/v1/pods"), RequestIdentity::ByImpersonator(ann)).await.unwrap_err();
    assert!(matches!(error, ForwardError::Unauthorized { .. }), "{error}");
    assert!(error.to_string().contains("spec.impersonatorSecretRef"), "{error}");
    let answer = client.send_request(get("/api/v1/pods"), RequestIdentity::Member).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

/// A kube-apiserver prefers the client certificate of the connection, so it would ignore the impersonator's token.
#[tokio::test]
async fn impersonator_token_is_refused_for_a_member_with_a_client_certificate() {
    let (_member, config) = own_token::member_and_config(StatusCode::OK).await;
    let client = member::connect(config, ClientTuning::default()).await;
    assert!(client.set_impersonator(Some("second")).unwrap_err().to_string().contains("client certificate"));
}

/// The client reads the uid of the cluster on each new connection. The impersonator has no right to read the uid.
#[tokio::test]
async fn uid_of_the_cluster_is_read_without_the_impersonator_token() {
    let member = Member::start(Options::default(), |seen, _| async move {
        let is_own = seen.headers.get("authorization").is_some_and(|value| value == "Bearer own");
        match seen.uri.path() {
            "/api/v1/namespaces/kube-system" if is_own => {
                let uid = r#"{"metadata":{"uid":"2b2f6f0e-7a3c-4c39-9d2e-0a4b1e1c0f11"}}"#;
                member::text(StatusCode::OK, uid.to_owned())
            }
            "/api/v1/namespaces/kube-system" => member::text(StatusCode::FORBIDDEN, String::new()),
            _ => member::text(StatusCode::OK, "served".to_owned()),
        }
    })
    .await;
    let mut config = member.config();
    config.auth_info.token = Some("own".to_owned().into());
    let client = member::connect(config, ClientTuning::default()).await;
    client.expect_cluster(Some(std::sync::Arc::new("2b2f6f0e-7a3c-4c39-9d2e-0a4b1e1c0f11".to_owned())));
    client.set_impersonator(Some("second")).unwrap();
    let ann = Impersonation::new("ann", [], None, []).unwrap();
    let answer = client.send_request(get("/version"), RequestIdentity::ByImpersonator(ann)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(member.last().all("authorization"), ["Bearer second"]);
}
