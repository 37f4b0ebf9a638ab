//! In whose name a member sees a request, and what of a client's head reaches it.

use http::{HeaderMap, Request, Response, StatusCode};
use tributary_proxy::{ClientAddress, ForwardError, Identity, Impersonation, Tuning};

use crate::member::{self, Member, Options, empty, get, text};

/// A request in which a client claims everything that it must not.
fn forged() -> Request<tributary_proxy::Body> {
    let mut request = Request::get("http://elsewhere:1/api/v1/pods?labelSelector=a%3Db");
    for (name, value) in [
        ("authorization", "Bearer client-token"),
        ("cookie", "a=b"),
        ("impersonate-user", "system:admin"),
        ("impersonate-group", "system:masters"),
        ("impersonate-uid", "0"),
        ("impersonate-extra-scopes", "all"),
        ("impersonate_group", "system:masters"),
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
        ("x-forwarded-for", "1.2.3.4"),
        ("connection", "impersonate-user, authorization, x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("accept", "application/json"),
        ("user-agent", "kubectl/v1.36.3"),
    ] {
        request = request.header(name, value);
    }
    request.body(empty()).unwrap()
}

fn names(headers: &HeaderMap) -> Vec<String> {
    let mut names: Vec<String> = headers.keys().map(|name| name.as_str().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_members_own_user_replaces_every_claim() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.token = Some("member-token".to_owned().into());
    let client = member::connect(config, Tuning::default()).await;
    let mut request = forged();
    request.extensions_mut().insert(ClientAddress("10.1.2.3".parse().unwrap()));
    let response = client.forward(request, Identity::Member).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let seen = member.last();
    assert_eq!(seen.version, http::Version::HTTP_2);
    assert_eq!(seen.uri.path_and_query().unwrap(), "/api/v1/pods?labelSelector=a%3Db");
    assert_eq!(seen.uri.authority().unwrap().as_str(), member.address.to_string());
    assert_eq!(names(&seen.headers), ["accept", "authorization", "te", "user-agent", "x-forwarded-for"]);
    assert_eq!(seen.all("authorization"), ["Bearer member-token"]);
    assert_eq!(seen.all("x-forwarded-for"), ["10.1.2.3"]);
}

#[tokio::test]
async fn an_impersonated_user_is_all_that_a_member_sees() {
    let member = Member::echo().await;
    let client = member.client().await;
    let extra = [("authentication.kubernetes.io/pod-name", "p-1")];
    let user = Impersonation::new("alice", ["dev", "ops"], Some("u-7"), extra).unwrap();
    client.forward(forged(), Identity::Impersonate(user)).await.unwrap();
    let seen = member.last();
    assert_eq!(seen.all("impersonate-user"), ["alice"]);
    assert_eq!(seen.all("impersonate-group"), ["dev", "ops"]);
    assert_eq!(seen.all("impersonate-uid"), ["u-7"]);
    assert_eq!(seen.all("impersonate-extra-authentication.kubernetes.io%2fpod-name"), ["p-1"]);
    assert!(!seen.headers.contains_key("impersonate-extra-scopes"));
    assert!(!seen.headers.contains_key("impersonate_group"));
    assert!(!seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn given_impersonation_is_for_the_member_to_judge() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.auth_info.impersonate = Some("configured".to_owned());
    let client = member::connect(config, Tuning::default()).await;
    let mut given = HeaderMap::new();
    given.insert("impersonate-user", "bob".parse().unwrap());
    given.insert("authorization", "Bearer ignored".parse().unwrap());
    given.insert("x-remote-user", "ignored".parse().unwrap());

    client.forward(get("/version"), Identity::AsGiven(given)).await.unwrap();
    assert_eq!(member.last().all("impersonate-user"), ["bob"]);
    assert_eq!(names(&member.last().headers), ["impersonate-user"]);

    client.forward(get("/version"), Identity::AsGiven(HeaderMap::new())).await.unwrap();
    assert_eq!(member.last().all("impersonate-user"), ["configured"]);

    let user = Impersonation::new("alice", [], None, []).unwrap();
    let error = client.forward(get("/version"), Identity::Impersonate(user)).await.unwrap_err();
    assert!(matches!(error, ForwardError::ImpersonationConflict { .. }), "{error}");
    assert_eq!(member.seen().len(), 2);
}

#[tokio::test]
async fn users_who_share_a_connection_are_not_mixed_up() {
    let member = Member::start(Options::default(), |seen, _| async move {
        text(StatusCode::OK, seen.all("impersonate-user").join(","))
    })
    .await;
    let client = member.client().await;
    let requests = (0..200).map(|number| {
        let client = client.clone();
        async move {
            let name = format!("user-{number}");
            let user = Impersonation::new(&name, [], None, []).unwrap();
            let response = client.forward(get("/api"), Identity::Impersonate(user)).await.unwrap();
            assert_eq!(member::read(response).await, name);
        }
    });
    futures::future::join_all(requests).await;
}

#[tokio::test]
async fn responses_are_cleaned_and_redirects_refused() {
    let member = Member::start(Options::default(), |seen, _| async move {
        let builder = Response::builder().header("set-cookie", "a=b").header("warning", "299 - \"x\"");
        let builder = match seen.uri.path() {
            "/redirect" => builder.status(302).header("location", "https://evil.example/"),
            "/not-modified" => builder.status(304).header("etag", "\"1\""),
            _ => builder.status(200).header("audit-id", "a-1"),
        };
        builder.body(empty()).unwrap()
    })
    .await;
    let client = member.client().await;
    let response = client.forward(get("/"), Identity::Member).await.unwrap();
    assert!(!response.headers().contains_key("set-cookie"));
    assert_eq!(response.headers()["warning"], "299 - \"x\"");
    assert_eq!(response.headers()["audit-id"], "a-1");
    let error = client.forward(get("/redirect"), Identity::Member).await.unwrap_err();
    assert!(matches!(error, ForwardError::Redirect { status: StatusCode::FOUND, .. }), "{error}");
    assert_eq!(error.status_code(), StatusCode::BAD_GATEWAY);
    assert!(!error.to_string().contains("evil"), "{error}");
    let response = client.forward(get("/not-modified"), Identity::Member).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn the_base_path_is_joined_and_not_left() {
    let member = Member::echo().await;
    let mut config = member.config();
    config.cluster_url = format!("https://{}/k8s/clusters/c-1/", member.address).parse().unwrap();
    let client = member::connect(config, Tuning::default()).await;
    let response = client.forward(get("/api/v1/pods?x=1"), Identity::Member).await.unwrap();
    assert_eq!(member::read(response).await, "/k8s/clusters/c-1/api/v1/pods");
    let error = client.forward(get("/../c-2/api"), Identity::Member).await.unwrap_err();
    assert_eq!(error.status_code(), StatusCode::BAD_REQUEST);
    assert_eq!(member.seen().len(), 1);
}
