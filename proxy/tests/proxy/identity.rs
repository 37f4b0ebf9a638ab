//! Tests of a request's identity at the member, and of the forwarded request headers.

use http::{HeaderMap, Response, StatusCode};
use tributary_proxy::{ClientTuning, ForwardError, Impersonation, RequestIdentity};

use crate::member::{self, Member, Options, SendRequest, empty, get};

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
    let mut given = HeaderMap::new();
    given.insert("impersonate-user", "bob".parse().unwrap());
    given.insert("authorization", "Bearer ignored".parse().unwrap());
    given.insert("x-remote-user", "ignored".parse().unwrap());

    let given = Impersonation::from_client_headers(&given).unwrap().unwrap();
    client.send_request(get("/version"), RequestIdentity::ClientImpersonation(given)).await.unwrap();
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
async fn cookies_are_removed_from_responses_and_warnings_kept() {
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
