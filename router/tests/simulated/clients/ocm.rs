//! The door of Open Cluster Management: the paths of its user-server.

use std::sync::Arc;

use serde_json::json;
use tributary_apimachinery::{ForeignSystem, Mount};
use tributary_authentication::{Authority, UserInfo};
use tributary_router::{ForeignMember, ForeignMembers, User};

use crate::harness::{Answer, Client, Fixture};
use crate::membership::members::{Rbac, SHOP, allow_to, fixture, write};

const ACCOUNT: &str = "cluster:hub:system:serviceaccount:ops:robot";

/// Opens the door, where `eu-1` is the name of the member `a`.
fn at_door(fixture: &Fixture, client: Client) -> Client {
    let system = ForeignSystem::OpenClusterManagement;
    let own = ForeignMember::with_own_name(system, &"a".parse().unwrap());
    let members = Arc::new(ForeignMembers::from_iter([ForeignMember { name: "eu-1".to_owned(), ..own }]));
    let mount = Mount::OpenClusterManagement(Arc::new(members.doors([system])));
    fixture.router.set_foreign_members(members);
    client.at_mount(mount)
}

/// A ServiceAccount of the hub.
fn robot(fixture: &Fixture) -> Client {
    let info = UserInfo { username: "system:serviceaccount:ops:robot".to_owned(), ..UserInfo::default() };
    fixture.of_user(User { info: info.authenticated(), authority: Authority::Hub })
}

#[track_caller]
fn is_text(answer: &Answer, code: u16, text: &str) {
    let body = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.code, code, "{body}");
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert!(body.contains(text), "{body}");
}

#[tokio::test]
async fn member_sees_a_service_account_of_the_hub_under_the_name_of_open_cluster_management() {
    let (fixture, rbac) = fixture(["a"]).await;
    allow_to(fixture.member("a"), "shop", ACCOUNT, &["get", "create"]);
    rbac[0].learn(fixture.member("a"));
    let robot = at_door(&fixture, robot(&fixture));
    drop(rbac[0].all_came());
    assert_eq!(robot.get(&format!("/eu-1{SHOP}/of-a")).await.ok()["metadata"]["name"], "of-a");
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "new"}});
    assert_eq!(write(&robot, "POST", &format!("/eu-1{SHOP}"), &object).await.code, 201);
    let seen: Vec<_> = rbac[0].came().into_iter().filter_map(|came| came.user).collect();
    assert!(!seen.is_empty() && seen.iter().all(|user| user == ACCOUNT), "{seen:?}");
    // The member itself refuses, so its answer is a Status.
    robot.send("DELETE", &format!("/eu-1{SHOP}/of-a"), &[], "").await.refused(403);
}

#[tokio::test]
async fn errors_of_the_door_are_text_with_the_codes_of_the_user_server() {
    let (fixture, _) = fixture(["a"]).await;
    let ann = at_door(&fixture, fixture.user("ann", &[]));
    is_text(&ann.get("/").await, 400, "the path has no cluster");
    for path in ["/a/api", "/EU-1/api", "/eu%2D1/api", "/healthz", "/apis/apps/v1"] {
        is_text(&ann.get(path).await, 502, "is served");
    }
    is_text(&ann.get("/eu-1/api%zz").await, 400, "");
    fixture.member("a").control().stop_listening().await;
    fixture.out_of_reach("a").await;
    is_text(&ann.get(&format!("/eu-1{SHOP}/of-a")).await, 502, "cluster a cannot be reached");
}

/// The member can itself be a user-server, which forwards such a request to the service without asking the cluster.
#[tokio::test]
async fn path_of_a_proxy_service_is_refused_at_each_door() {
    let (fixture, rbac): (Fixture, Vec<Arc<Rbac>>) = fixture(["a"]).await;
    let root = fixture.user("root", &[]);
    let at_door = at_door(&fixture, root.clone());
    drop(rbac[0].all_came());
    // The user-server looks only at the positions of the segments.
    for path in [
        "/api/v1/namespaces/shop/services/https:web:443/proxy-service/metrics",
        "/api/v1/namespaces/shop/services/https:web:443/proxy-service",
        "/api/v1/namespaces/shop/services/https:web:443/proxy%2Dservice/metrics",
        "/x/v1/namespaces/shop/services/https:web:443/proxy-service/metrics",
        "/apis/g/v1/shop/c/https:web:443/proxy-service/x",
    ] {
        for (client, path) in
            [(&at_door, format!("/eu-1{path}")), (&root, format!("/clusters/a{path}")), (&root, path.to_owned())]
        {
            let message = client.get(&path).await.refused(403);
            assert!(message.contains("use the subresource proxy"), "{path}: {message}");
        }
    }
    assert!(rbac[0].all_came().iter().all(|came| !came.line.contains("service/")), "a member got a request");
}
