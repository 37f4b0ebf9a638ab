//! A cluster to which nothing is dispatched at all: that is said before anybody is known.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use tributary_apimachinery::ClusterName;
use tributary_router::{DispatchSettings, PlacePolicies, Router, RouterConfig};

use crate::fixture::{start, text};

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
