//! Tests of policies that allow only a subset of the endpoints: requests go only to the subset, even if all its
//! endpoints fail.

use http::{Request, StatusCode};
use tributary_apimachinery::body::Body;
use tributary_proxy::{EndpointSubset, ForwardError, LeftOutReason, RequestIdentity, Sent};

use crate::endpoints::{Gate, client, requests};
use crate::member::{Member, SendRequest, get, read};

fn only(urls: &[String], mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().insert(EndpointSubset::new(urls));
    request
}

#[tokio::test]
async fn requests_use_only_the_endpoints_of_their_policy() {
    let member = Member::echo().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    // The URLs have no path, as the URLs in the configuration.
    let [first, second] = gates.each_ref().map(|gate| gate.url().to_string().trim_end_matches('/').to_owned());
    let second_alone = std::slice::from_ref(&second);
    let ask = |urls: &[String]| client.send_request(only(urls, get("/api")), RequestIdentity::Member);
    for _ in 0..10 {
        assert_eq!(read(ask(second_alone).await.unwrap()).await, "/api");
    }
    assert_eq!(requests(&client), [0, 10]);
    for _ in 0..10 {
        ask(&[first.clone(), second.clone()]).await.unwrap();
    }
    let [one, two] = requests(&client);
    assert!(one >= 4 && two >= 14, "{one} and {two}");

    // If an endpoint of the subset is unreachable, no endpoint outside of the subset gets the request, whatever the
    // kind of request.
    gates[1].close().await;
    for request in [get("/api"), get("/api/v1/pods?watch=1"), upgrade()] {
        let error = client.send_request(only(second_alone, request), RequestIdentity::Member).await.unwrap_err();
        let ForwardError::NoEndpoint { is_chosen: true, left_out, .. } = &error else { panic!("{error}") };
        assert_eq!(left_out.len(), 1, "{error}");
        assert_eq!(format!("https://{}", left_out[0].0), second);
        assert_eq!(left_out[0].1.reason, LeftOutReason::Unreachable);
        assert_eq!((error.status_code(), error.sent()), (StatusCode::SERVICE_UNAVAILABLE, Sent::No));
        assert!(
            error.to_string().contains("of the dispatch policy can receive") && error.to_string().contains("refused")
        );
    }
    assert_eq!(requests(&client)[0], one);
    assert_eq!(ask(&[]).await.unwrap_err().status_code(), StatusCode::SERVICE_UNAVAILABLE);
    let unknown = ask(&["https://elsewhere.example".to_owned()]).await.unwrap_err();
    assert!(
        unknown.to_string().ends_with("none of the endpoints of the dispatch policy is an endpoint of the cluster"),
        "{unknown}"
    );
    assert_eq!(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    assert!(client.reachability().borrow().is_reachable(), "the member is well");
}

fn upgrade() -> Request<Body> {
    let mut request = get("/api/v1/namespaces/default/pods/a/exec?command=ls");
    let headers = request.headers_mut();
    headers.insert(http::header::CONNECTION, "Upgrade".parse().unwrap());
    headers.insert(http::header::UPGRADE, "SPDY/3.1".parse().unwrap());
    let on_upgrade = hyper::upgrade::on(Request::new(tributary_apimachinery::body::empty()));
    request.extensions_mut().insert(on_upgrade);
    request
}
