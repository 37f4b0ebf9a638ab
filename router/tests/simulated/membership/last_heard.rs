//! Tests of discovery and OpenAPI documents that the router stores for the next process.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use tributary_router::{
    ClusterAddress, ClusterAuthorization, ClusterSetup, LastHeard, MemberRules, Router, RouterConfig,
};
use tributary_simulator::SimulatedCluster;

use crate::harness::{Fixture, SOON, allow, config, items, setup, until};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A router with its members, as one process. `kept` is the file in which the router stores discovery and OpenAPI
/// documents.
struct Process {
    fixture: Fixture,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    /// Starts a process with two members. Only `b` serves Deployments, and `b` has one Deployment.
    async fn first() -> Self {
        let mut members = Vec::new();
        for name in ["a", "b"] {
            members.push(tributary_simulator::Simulator::start(config(name)).await.unwrap());
        }
        members[0].control().serve("deployments.apps", false);
        let metadata = json!({"name": "of-b", "namespace": "default"});
        members[1].apply(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})).unwrap();
        Self::start(members, LastHeard::default()).await
    }

    /// Starts a process with these members and the stored documents of a previous process.
    async fn start(members: Vec<SimulatedCluster>, last_heard: LastHeard) -> Self {
        let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
        let keep = Arc::clone(&kept);
        let router = Router::new(RouterConfig {
            policies: allow(),
            last_heard,
            keep_last_heard: Some(Box::new(move |heard| *keep.lock() = heard.to_text())),
            ..RouterConfig::default()
        });
        let fixture = Fixture { members, router };
        fixture.set_clusters(&["a", "b"]).await;
        fixture.router.asked_once(SOON).await;
        Self { fixture, kept }
    }

    /// Ends the process. Checks the stored documents with `is_enough`, and returns the members and the documents.
    async fn end(self, is_enough: impl Fn(&str) -> bool) -> (Vec<SimulatedCluster>, LastHeard) {
        self.fixture.router.drain();
        self.fixture.router.last_heard_is_kept().await;
        let heard = LastHeard::read(&self.kept.lock()).unwrap();
        assert!(is_enough(&format!("{heard:?}")), "{heard:?}");
        (self.fixture.members, heard)
    }
}

/// Returns whether the discovery document contains Deployments.
async fn knows_deployments(fixture: &Fixture) -> bool {
    let resources = fixture.get("/apis/apps/v1").await.ok()["resources"].clone();
    resources.as_array().unwrap().iter().any(|resource| resource["name"] == "deployments")
}

#[tokio::test]
async fn stored_discovery_serves_the_kinds_of_an_unreachable_cluster() {
    let process = Process::first().await;
    let index = process.fixture.get("/openapi/v3").await;
    let url = index.ok()["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = process.fixture.get(&url).await;
    assert_eq!(document.code, 200);
    let (members, heard) = process.end(|text| text.contains("/openapi/v3/apis/apps/v1")).await;

    members[1].control().stop_listening().await;
    // Without the stored documents, the router does not know the kinds of the unreachable cluster.
    let process = Process::start(members, LastHeard::default()).await;
    process.fixture.get(DEPLOYMENTS).await.refused(429);

    let process = Process::start(process.fixture.members, heard).await;
    let fixture = &process.fixture;
    assert_eq!(fixture.get("/apis/apps/v1").await.ok()["resources"][0]["name"], "deployments");
    assert_eq!(fixture.get(&url).await.body, document.body);
    // With the stored documents, the router knows the kinds, but has no objects.
    let list = fixture.get(DEPLOYMENTS).await;
    assert!(items(&list.ok()).is_empty());
    assert!(list.warnings().iter().any(|text| text.contains("cluster b: deployments.apps are missing")), "{list:?}");
    assert!(fixture.get(&format!("{DEPLOYMENTS}/of-b")).await.refused(503).contains('b'));

    fixture.member("b").control().start_listening().await;
    fixture.get("/apis/example.io").await.no_route();
    until(|| async { items(&fixture.get(DEPLOYMENTS).await.ok()) == ["b/of-b"] }).await;
}

#[tokio::test]
async fn discovery_response_replaces_the_stored_discovery() {
    let (members, heard) = Process::first().await.end(|text| text.contains("deployments")).await;
    members[1].control().serve("deployments.apps", false);
    let process = Process::start(members, heard).await;
    process.fixture.get(DEPLOYMENTS).await.refused(404);
    // The router also removes the kind from the stored documents, so that the next process does not know it.
    let (_, heard) = process.end(|text| text.contains("configmaps") && !text.contains("deployments")).await;
    assert_ne!(heard, LastHeard::default());
}

/// A kube-apiserver that is starting serves discovery before it has read its CustomResourceDefinitions. A kind that is
/// missing in this discovery may exist.
#[tokio::test]
async fn starting_kube_apiserver_does_not_remove_stored_kinds() {
    let (members, heard) = Process::first().await.end(|text| text.contains("deployments")).await;
    members[1].control().ready(false);
    members[1].control().serve("deployments.apps", false);
    let process = Process::start(members, heard).await;
    let fixture = &process.fixture;
    assert!(knows_deployments(fixture).await);
    let list = fixture.get(DEPLOYMENTS).await;
    assert!(items(&list.ok()).is_empty());
    assert!(list.warnings().iter().any(|text| text.contains("is not ready")), "{list:?}");
    assert!(fixture.get(&format!("{DEPLOYMENTS}/of-b")).await.refused(503).contains('b'));
    fixture.member("b").control().serve("deployments.apps", true);
    fixture.member("b").control().ready(true);
    fixture.get("/apis/example.io").await.no_route();
    until(|| async { items(&fixture.get(DEPLOYMENTS).await.ok()) == ["b/of-b"] }).await;
}

#[tokio::test]
async fn discovery_of_a_removed_cluster_is_not_stored() {
    let (members, heard) = Process::first().await.end(|text| text.contains("deployments")).await;
    let process = Process::start(members, heard).await;
    process.fixture.set_clusters(&["a"]).await;
    process.end(|text| text.contains("configmaps") && !text.contains("deployments")).await;
}

/// While a cluster is unreachable, each process stores the documents that it got from the previous process.
#[tokio::test]
async fn stored_discovery_survives_several_restarts() {
    let (members, mut heard) = Process::first().await.end(|text| text.contains("deployments")).await;
    members[1].control().stop_listening().await;
    let mut members = members;
    for _ in 0..2 {
        let process = Process::start(members, heard).await;
        assert_eq!(process.fixture.get(DEPLOYMENTS).await.code, 200);
        (members, heard) = process.end(|text| text.contains("deployments")).await;
    }
}

/// New rules for users or for authorization do not make the cluster another cluster, so its stored documents stay
/// valid.
#[tokio::test]
async fn stored_discovery_survives_new_authorization_rules() {
    let (members, heard) = Process::first().await.end(|text| text.contains("deployments")).await;
    members[1].control().stop_listening().await;
    let router = Router::new(RouterConfig { policies: allow(), last_heard: heard, ..RouterConfig::default() });
    let impersonation = MemberRules { uid: true, ..MemberRules::default() };
    let authorization = ClusterAuthorization::Review;
    let told = ClusterSetup { impersonation, authorization, ..setup(&members[1], "b").await };
    router.set_clusters(vec![setup(&members[0], "a").await, told]);
    router.asked_once(SOON).await;
    assert!(knows_deployments(&Fixture { members, router }).await);
}

#[tokio::test]
async fn stored_discovery_is_not_used_for_another_address() {
    let (members, heard) = Process::first().await.end(|text| text.contains("deployments")).await;
    members[1].control().stop_listening().await;
    let router = Router::new(RouterConfig { policies: allow(), last_heard: heard, ..RouterConfig::default() });
    let elsewhere =
        ClusterSetup { address: ClusterAddress::from_description("another address"), ..setup(&members[1], "b").await };
    router.set_clusters(vec![setup(&members[0], "a").await, elsewhere]);
    router.asked_once(SOON).await;
    assert!(!knows_deployments(&Fixture { members, router }).await);
}
