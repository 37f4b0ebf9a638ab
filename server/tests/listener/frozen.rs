//! A cluster to which nothing is dispatched at all: that is said before anybody is known.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use serde_json::json;
use tributary_apimachinery::ClusterName;
use tributary_router::{DispatchSettings, PlacePolicies, Router, RouterConfig};

use crate::access_log::LogFile;
use crate::fixture::{router_over, start, start_observed, text};

/// Case 20 of the contract with users of KubeGateway.
#[tokio::test]
async fn what_is_for_a_frozen_cluster_is_refused_before_anybody_is_known() {
    let router = Router::new(RouterConfig::default());
    let frozen = PlacePolicies { denies_all: true, ..PlacePolicies::default() };
    let clusters = [(ClusterName::new("eu").unwrap(), frozen)].into();
    let server = start(std::sync::Arc::clone(&router)).await;
    let get = async |request: http::request::Builder| {
        let request: Request<Empty<Bytes>> = request.body(Empty::new()).unwrap();
        server.http2().await.send_request(request).await.unwrap()
    };
    let path = "/clusters/eu/api/v1/pods";
    assert_eq!(get(server.bare(path)).await.status(), StatusCode::UNAUTHORIZED);
    router.set_dispatch(DispatchSettings { clusters, ..DispatchSettings::default() });
    for request in
        [server.bare(path), server.bare(path).header("authorization", "Bearer nonsense"), server.request(path)]
    {
        let answer = get(request).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(!answer.headers().contains_key(header::RETRY_AFTER));
        let said = text(answer).await;
        assert!(said.contains("\"reason\":\"TooManyRequests\"") && said.contains("DenyAll"), "{said}");
    }
    // What is for others asks who it is.
    for path in ["/clusters/us/api/v1/pods", "/api/v1/pods", "/clusters/", "/clusters/EU/api"] {
        assert_eq!(get(server.bare(path)).await.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    router.set_dispatch(DispatchSettings::default());
    assert_eq!(get(server.bare(path)).await.status(), StatusCode::UNAUTHORIZED);
    // There is no such cluster.
    assert_eq!(get(server.request(path)).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_for_a_frozen_cluster_is_counted_and_logged_as_denied() {
    let (_member, router) = router_over("eu").await;
    let frozen = PlacePolicies { denies_all: true, ..PlacePolicies::default() };
    let clusters = [(ClusterName::new("eu").unwrap(), frozen)].into();
    router.set_dispatch(DispatchSettings { clusters, ..DispatchSettings::default() });
    let file = LogFile::open();
    let server = start_observed(std::sync::Arc::clone(&router), file.observers()).await;
    for request in [server.bare("/clusters/eu/api/v1/pods"), server.request("/clusters/eu/version")] {
        let request: Request<Empty<Bytes>> = request.header("user-agent", "kubectl/v1").body(Empty::new()).unwrap();
        let answer = server.http2().await.send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    for line in file.lines(2).await {
        let told = ["status", "decision", "cluster", "answeredBy", "client"].map(|field| line[field].clone());
        assert_eq!(told, [json!(429), json!("denied"), json!("eu"), json!("tributary"), json!("kubectl")], "{line}");
        assert_eq!(line.get("user"), None, "nobody is known");
    }
    let exposed = router.metrics().expose();
    for (verb, resource) in [("list", "pods"), ("get", "")] {
        let sample = format!(
            "tributary_requests_total{{cluster=\"eu\",verb=\"{verb}\",resource=\"{resource}\",decision=\"denied\",\
             client=\"kubectl\"}} 1"
        );
        assert!(exposed.contains(&sample), "{sample} in {exposed}");
    }
    assert!(
        exposed.contains("verb=\"LIST\",group=\"\",version=\"v1\",resource=\"pods\"")
            && exposed.contains("code=\"429\"} 1"),
        "{exposed}"
    );
}
