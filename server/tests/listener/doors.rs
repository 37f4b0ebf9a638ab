//! Tests of the doors of foreign systems at the aggregated entry.

use std::sync::Arc;

use http::header;
use http_body_util::Empty;
use serde_json::Value;
use tributary_apimachinery::ForeignSystem;
use tributary_router::{ForeignMember, ForeignMembers, GatewayFacts, Router, RouterConfig};
use tributary_server::front::OpenDoors;

use crate::fixture::{Server, router_over, start_aggregated, start_managed, start_with_doors, text};

const GATEWAYS: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways";

/// Returns members of a system with these names, which lead to the member `eu`.
pub(crate) fn members<'n>(system: ForeignSystem, names: &'n [&'n str]) -> impl Iterator<Item = ForeignMember> + 'n {
    names.iter().map(move |name| ForeignMember {
        system,
        name: (*name).to_owned(),
        cluster: "eu".parse().unwrap(),
        identity: tributary_router::IdentityPolicy::Impersonate,
        authorizes_inner: false,
        labels: [].into(),
        created: "2026-01-01T00:00:00Z".to_owned(),
        gateway: Some(GatewayFacts::default()),
        credential: None,
    })
}

/// Starts the aggregated entry with the door of cluster-gateway. Each of `names` leads to the member `eu`.
async fn start(router: Arc<Router>, names: &[&str]) -> (Server, Arc<OpenDoors>) {
    let doors = Arc::new(OpenDoors::new([ForeignSystem::ClusterGateway]));
    let members = Arc::new(ForeignMembers::from_iter(members(ForeignSystem::ClusterGateway, names)));
    doors.set_members(&members);
    router.set_foreign_members(members);
    let server = start_with_doors(router, Arc::clone(&doors)).await;
    server.entry.serve_clusters();
    (server, doors)
}

async fn get(server: &Server, path: &str) -> (u16, String) {
    let request = server.request(path).body(Empty::new()).unwrap();
    let answer = server.http2().await.send_request(request).await.unwrap();
    assert!(!answer.headers().contains_key(header::LOCATION), "{path}");
    (answer.status().as_u16(), text(answer).await)
}

fn message(text: &str) -> String {
    let status: Value = serde_json::from_str(text).unwrap();
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn closed_door_has_no_paths_and_no_group() {
    let server = start_aggregated(Router::new(RouterConfig::default()), None).await;
    server.entry.serve_clusters();
    for path in [GATEWAYS, &format!("{GATEWAYS}/eu/proxy/api"), "/apis/cluster.core.oam.dev/v1alpha1"] {
        assert_eq!(get(&server, path).await.0, 404, "{path}");
    }
    assert!(!get(&server, "/apis").await.1.contains("oam.dev"));
}

#[tokio::test]
async fn open_door_serves_discovery_and_openapi_before_the_first_configuration() {
    let doors = Arc::new(OpenDoors::new([ForeignSystem::ClusterGateway]));
    let server = start_with_doors(Router::new(RouterConfig::default()), doors).await;
    for path in ["/apis/cluster.core.oam.dev", "/apis/cluster.core.oam.dev/v1alpha1", "/openapi/v2"] {
        let (status, text) = get(&server, path).await;
        assert!(status == 200 && text.contains("cluster.core.oam.dev"), "{path}: {text}");
    }
    let index: Value = serde_json::from_str(&get(&server, "/openapi/v3").await.1).unwrap();
    let url = &index["paths"]["apis/cluster.core.oam.dev/v1alpha1"]["serverRelativeURL"];
    let (status, text) = get(&server, url.as_str().unwrap()).await;
    assert!(status == 200 && text.contains("clustergateways/{name}/proxy/{path}"), "{text}");
    for path in [GATEWAYS.to_owned(), format!("{GATEWAYS}/eu")] {
        assert_eq!(get(&server, &path).await.0, 503, "{path}");
    }
}

#[tokio::test]
async fn door_of_cluster_gateway_leads_to_members_by_their_foreign_names() {
    let (_member, router) = router_over("eu").await;
    let (server, doors) = start(Arc::clone(&router), &["eu.example"]).await;
    let nodes = format!("{GATEWAYS}/eu.example/proxy/api/v1/nodes");
    let (status, text) = get(&server, &nodes).await;
    assert!(status == 200 && !text.contains("tributary.dev/cluster"), "{text}");
    assert_eq!(get(&server, &format!("{nodes}?impersonate=true")).await.0, 200);
    for name in ["eu", "EU.example", "eu%2Eexample", "eu.example;x", "unknown"] {
        let (status, text) = get(&server, &format!("{GATEWAYS}/{name}/proxy/api/v1/nodes")).await;
        assert_eq!((status, message(&text)), (500, format!("no such cluster {name}")), "{name}");
    }
    for inner in ["/api/v1/../nodes", "//api/v1/nodes", "/api%2Fv1/nodes"] {
        let (status, text) = get(&server, &format!("{GATEWAYS}/eu.example/proxy{inner}")).await;
        assert_eq!(status, 404, "{inner}: {text}");
    }
    let empty = Arc::new(ForeignMembers::default());
    doors.set_members(&empty);
    router.set_foreign_members(empty);
    assert_eq!(message(&get(&server, &nodes).await.1), "no such cluster eu.example");
}

#[tokio::test]
async fn door_of_open_cluster_management_has_members_at_its_root_and_errors_as_text() {
    let (_member, router) = router_over("eu").await;
    let system = ForeignSystem::OpenClusterManagement;
    let doors = Arc::new(OpenDoors::new([system]));
    let members = Arc::new(ForeignMembers::from_iter([ForeignMember::with_own_name(system, &"eu".parse().unwrap())]));
    doors.set_members(&members);
    router.set_foreign_members(members);
    let server = start_managed(router, doors).await;
    let (status, nodes) = get(&server, "/eu/api/v1/nodes").await;
    assert!(status == 200 && !nodes.contains("tributary.dev/cluster"), "{nodes}");
    for (path, code) in [("/", 400), ("/us/api/v1/nodes", 502), ("/metrics", 502), ("/tributary/status", 502)] {
        let (status, text) = get(&server, path).await;
        assert!(status == code && !text.starts_with('{'), "{path}: {status} {text}");
    }
    for path in ["/eu/api/v1/nodes", "/us/api", "/healthz", "/"] {
        let request = server.bare(path).body(Empty::new()).unwrap();
        let answer = server.http2().await.send_request(request).await.unwrap();
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8", "{path}");
        assert_eq!((answer.status().as_u16(), text(answer).await.as_str()), (401, "Unauthorized\n"), "{path}");
    }
}
