//! Tests of a cluster whose policies deny every request (`dispatch: DenyAll`). The listener refuses these requests
//! before authentication.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use serde_json::json;
use tributary_apimachinery::ClusterName;
use tributary_hosts::{ClusterHosts, HostTable, Hosts};
use tributary_router::{DispatchSettings, EntryPointPolicies, Router, RouterConfig};

use crate::access_log::LogFile;
use crate::fixture::{router_over, start, start_observed, start_with_front, text};

/// Requests for a cluster with `dispatch: DenyAll` must be refused even without credentials, as users of KubeGateway
/// expect.
#[tokio::test]
async fn request_to_a_deny_all_cluster_is_refused_before_authentication() {
    let router = Router::new(RouterConfig::default());
    let frozen = EntryPointPolicies { denies_all: true, ..EntryPointPolicies::default() };
    let clusters = [(ClusterName::new("eu").unwrap(), frozen)].into();
    let server = start(Arc::clone(&router)).await;
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
    // Requests for a cluster without `dispatch: DenyAll` still need authentication.
    for path in ["/clusters/us/api/v1/pods", "/api/v1/pods", "/clusters/", "/clusters/EU/api"] {
        assert_eq!(get(server.bare(path)).await.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    router.set_dispatch(DispatchSettings::default());
    assert_eq!(get(server.bare(path)).await.status(), StatusCode::UNAUTHORIZED);
    // The router has no cluster with this name, so the answer is 404.
    assert_eq!(get(server.request(path)).await.status(), StatusCode::NOT_FOUND);
}

/// The cluster has a host name, which is in the request's authority or only in SNI.
#[tokio::test]
async fn deny_all_cluster_refuses_requests_at_its_own_host() {
    // The name of the cluster's own host. The server's certificate contains this name.
    const OWN: &str = "localhost";
    let (member, router) = router_over("eu").await;
    let [eu, us]: [ClusterName; 2] = ["eu", "us"].map(|name| name.parse().unwrap());
    let named = |name: &str| ClusterHosts { names: vec![name.parse().unwrap()], tls: None };
    let (of_eu, of_us, merged) = (named(OWN), named("us.test"), ["all.test".parse().unwrap()]);
    let table = HostTable::new(&merged, Vec::new(), [(&eu, &of_eu), (&us, &of_us)], &HostTable::default());
    let hosts = Arc::<Hosts>::default();
    hosts.replace(table.unwrap());
    let server = start_with_front(hosts, Arc::clone(&router), |front| front).await;
    let authorization = format!("Bearer {}", server.token);
    let ask = async |server_name: &str, url: &str, authorization: &str| {
        let request = Request::get(url).header("authorization", authorization).body(Empty::<Bytes>::new()).unwrap();
        server.http2_with_sni(server_name).await.send_request(request).await.unwrap()
    };
    let sent = || member.control().request_log().iter().filter(|line| line.contains("/pods")).count();
    let address = format!("https://{}", server.address);
    let own = [("127.0.0.1", format!("https://{OWN}")), (OWN, address)];
    for (server_name, origin) in &own {
        let pods = format!("{origin}/api/v1/pods");
        assert_eq!(ask(server_name, &pods, "Bearer nonsense").await.status(), StatusCode::UNAUTHORIZED, "{origin}");
        assert_eq!(ask(server_name, &pods, &authorization).await.status(), StatusCode::OK, "{origin}");
    }
    let before = sent();
    assert!(before >= own.len());
    let frozen = EntryPointPolicies { denies_all: true, ..EntryPointPolicies::default() };
    router.set_dispatch(DispatchSettings { clusters: [(eu, frozen)].into(), ..DispatchSettings::default() });
    for (server_name, origin) in &own {
        for (path, authorization) in
            [("/api/v1/pods", "Bearer nonsense"), ("/api/v1/pods", &*authorization), ("/healthz", &*authorization)]
        {
            let answer = ask(server_name, &format!("{origin}{path}"), authorization).await;
            assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{origin}{path}");
            assert!(!answer.headers().contains_key(header::RETRY_AFTER));
            let said = text(answer).await;
            assert!(said.contains("DenyAll"), "{said}");
        }
    }
    assert_eq!(sent(), before, "nothing is sent there");
    // Requests for other hosts still need authentication.
    for (url, status) in [
        ("https://us.test/api/v1/pods", StatusCode::UNAUTHORIZED),
        ("https://all.test/api/v1/pods", StatusCode::UNAUTHORIZED),
        ("https://all.test/healthz", StatusCode::OK),
        ("https://all.test/clusters/eu/api/v1/pods", StatusCode::TOO_MANY_REQUESTS),
    ] {
        let request: Request<Empty<Bytes>> = Request::get(url).body(Empty::new()).unwrap();
        assert_eq!(server.http2().await.send_request(request).await.unwrap().status(), status, "{url}");
    }
    router.set_dispatch(DispatchSettings::default());
    for (server_name, origin) in &own {
        let pods = format!("{origin}/api/v1/pods");
        assert_eq!(ask(server_name, &pods, &authorization).await.status(), StatusCode::OK, "{origin}");
    }
}

#[tokio::test]
async fn request_to_a_deny_all_cluster_is_logged_as_denied() {
    let (_member, router) = router_over("eu").await;
    let frozen = EntryPointPolicies { denies_all: true, ..EntryPointPolicies::default() };
    let clusters = [(ClusterName::new("eu").unwrap(), frozen)].into();
    router.set_dispatch(DispatchSettings { clusters, ..DispatchSettings::default() });
    let file = LogFile::open();
    let server = start_observed(Arc::clone(&router), file.observers()).await;
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
