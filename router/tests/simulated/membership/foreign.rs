//! Tests of members by the names of foreign systems: cluster-gateway's resources, and the identity that members see.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tributary_apimachinery::{ForeignSystem, Mount, Status};
use tributary_authentication::{ExchangeRule, IdentityPolicy, IdentityRules, RuleSource, UserInfo};
use tributary_router::{
    CredentialOfName, ForeignMember, ForeignMembers, GatewayFacts, GatewayHealth, Router, SecretPlace,
    WriteGatewayHealth,
};
use tributary_simulator::Authorizer;

use super::members::{Came, Rbac, SHOP, fixture, write};
use crate::harness::{Client, Fixture, SOON, name, setup};

const GATEWAYS: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways";
const VIRTUAL_CLUSTERS: &str = "/apis/cluster.core.oam.dev/v1alpha1/virtualclusters";

fn member(name: &str, identity: IdentityPolicy) -> ForeignMember {
    ForeignMember {
        system: ForeignSystem::ClusterGateway,
        name: name.to_owned(),
        cluster: "a".parse().unwrap(),
        identity,
        authorizes_inner: false,
        labels: [("team".to_owned(), name.to_owned())].into(),
        created: "2026-01-01T00:00:00Z".to_owned(),
        gateway: Some(GatewayFacts {
            namespace: "vela-system".to_owned(),
            credential_type: "ServiceAccountToken".to_owned(),
            endpoint: "https://192.0.2.1:6443".to_owned(),
            ..GatewayFacts::default()
        }),
        credential: None,
    }
}

/// Returns rules that map Ann to the user `mapped`, and Bob to the credential that is stored for the member.
fn rules() -> IdentityPolicy {
    let user = |name: &str| RuleSource { user: Some(name.to_owned()), ..RuleSource::default() };
    let mapped =
        UserInfo { username: "mapped".to_owned(), groups: vec!["system:masters".to_owned()], ..UserInfo::default() };
    let rules = [
        ExchangeRule::new(user("ann"), false, Some(mapped)).unwrap(),
        ExchangeRule::new(user("bob"), false, None).unwrap(),
    ];
    IdentityPolicy::Rules(IdentityRules::from_iter(rules))
}

/// Opens the door of cluster-gateway, which has three names for member `a`, each with another identity policy.
fn open_door(router: &Router) -> Mount {
    let members = [
        member("eu.example", IdentityPolicy::Impersonate),
        member("stored", IdentityPolicy::Stored),
        member("ruled", rules()),
    ];
    let members = Arc::new(ForeignMembers::from_iter(members));
    let doors = members.doors([ForeignSystem::ClusterGateway]);
    router.set_foreign_members(members);
    Mount::Aggregated(Arc::new(doors))
}

async fn start() -> (Fixture, Vec<Arc<Rbac>>, Mount) {
    let (fixture, rbac) = fixture(["a"]).await;
    let mount = open_door(&fixture.router);
    (fixture, rbac, mount)
}

fn user(fixture: &Fixture, mount: &Mount, name: &str) -> Client {
    fixture.user(name, &["dev".to_owned()]).at_mount(mount.clone())
}

/// Returns the users of the recorded requests that contain `line`. `*` stands for the stored credential.
fn seen(rbac: &Rbac, line: &str) -> Vec<String> {
    let came: Vec<Came> = rbac.all_came().into_iter().filter(|came| came.line.contains(line)).collect();
    came.into_iter().map(|came| came.user.unwrap_or_else(|| "*".to_owned())).collect()
}

#[tokio::test]
async fn identity_of_a_request_belongs_to_the_name_in_the_path() {
    let (fixture, rbac, mount) = start().await;
    for (name, caller, query, expected) in [
        ("eu.example", "ann", "", "ann"),
        ("stored", "ann", "", "*"),
        ("stored", "nobody", "", "*"),
        ("stored", "ann", "?impersonate=true", "ann"),
        ("stored", "ann", "?impersonate=1", "*"),
        ("ruled", "ann", "", "mapped"),
        ("ruled", "bob", "", "*"),
        ("ruled", "root", "", "root"),
        ("ruled", "annie", "", "annie"),
    ] {
        let path = format!("{GATEWAYS}/{name}/proxy{SHOP}/of-a{query}");
        drop(rbac[0].all_came());
        user(&fixture, &mount, caller).get(&path).await;
        assert_eq!(seen(&rbac[0], "/of-a"), [expected], "{caller} {path}");
    }
}

/// The router has the object in memory, but must not use it, because the user of the stored credential may have fewer
/// rights than Tributary's account.
#[tokio::test]
async fn member_with_a_stored_identity_answers_each_request_itself() {
    let (fixture, rbac, mount) = start().await;
    drop(rbac[0].all_came());
    let stored = user(&fixture, &mount, "nobody");
    for _ in 0..2 {
        stored.get(&format!("{GATEWAYS}/stored/proxy{SHOP}")).await.ok();
    }
    assert_eq!(seen(&rbac[0], SHOP), ["*", "*"]);
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "new"}});
    assert_eq!(write(&stored, "POST", &format!("{GATEWAYS}/stored/proxy{SHOP}"), &object).await.code, 201);
    assert_eq!(stored.get(&format!("{GATEWAYS}/eu.example/proxy{SHOP}")).await.code, 403);
}

#[tokio::test]
async fn stream_with_a_chosen_identity_ends_when_the_source_becomes_stricter() {
    let (fixture, _, mount) = start().await;
    let watch = async |caller: &str, name: &str, query: &str| {
        let path = format!("{GATEWAYS}/{name}/proxy{SHOP}?watch=1{query}");
        user(&fixture, &mount, caller).watch(&path).await
    };
    let (mut stored, mut ruled) = (watch("nobody", "stored", "").await, watch("bob", "ruled", "").await);
    let mut as_caller = watch("ann", "stored", "&impersonate=true").await;
    for events in [&mut stored, &mut ruled, &mut as_caller] {
        assert_eq!(name(&events.soon().await["object"]), "of-a");
    }
    // The same members in a new configuration change nothing.
    open_door(&fixture.router);
    stored.nothing().await;
    let strict = ["stored", "ruled"].map(|name| member(name, IdentityPolicy::Impersonate));
    fixture.router.set_foreign_members(Arc::new(ForeignMembers::from_iter(strict)));
    for mut events in [stored, ruled] {
        assert_eq!(tokio::time::timeout(SOON, events.next()).await, Ok(None));
    }
    as_caller.nothing().await;
}

#[tokio::test]
async fn stored_credential_does_not_act_for_an_impersonated_user() {
    let (fixture, rbac, mount) = start().await;
    for (name, code) in [("stored", 403), ("ruled", 403)] {
        drop(rbac[0].all_came());
        let headers = [("impersonate-user", "bob")];
        let path = format!("{GATEWAYS}/{name}/proxy{SHOP}/of-a");
        let answer = user(&fixture, &mount, "ann").send("GET", &path, &headers, "").await;
        assert_eq!(answer.code, code, "{name}");
        assert_eq!(seen(&rbac[0], "/of-a"), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn unknown_names_get_the_answer_of_cluster_gateway() {
    let (fixture, _, mount) = start().await;
    let ann = user(&fixture, &mount, "ann");
    for name in ["a", "EU.example", "eu%2Eexample", "stored;x", "*", "local"] {
        let message = ann.get(&format!("{GATEWAYS}/{name}/proxy{SHOP}")).await.refused(500);
        assert_eq!(message, format!("no such cluster {name}"));
    }
    assert_eq!(ann.get(&format!("{GATEWAYS}/a/health")).await.refused(500), "no such cluster a");
    assert_eq!(ann.get(&format!("{GATEWAYS}/a")).await.code, 404);
    assert_eq!(ann.get(&format!("{VIRTUAL_CLUSTERS}/a")).await.code, 404);
    // The client still uses the path of a name that has been removed.
    fixture.router.set_foreign_members(Arc::default());
    let message = ann.get(&format!("{GATEWAYS}/stored/proxy{SHOP}")).await.refused(500);
    assert_eq!(message, "no such cluster stored");
}

#[tokio::test]
async fn error_for_an_unreachable_cluster_has_the_text_that_kubevela_looks_for() {
    let (fixture, _, mount) = start().await;
    fixture.member("a").control().stop_listening().await;
    fixture.out_of_reach("a").await;
    let ann = user(&fixture, &mount, "ann");
    for name in ["eu.example", "stored"] {
        let answer = ann.get(&format!("{GATEWAYS}/{name}/proxy{SHOP}")).await;
        assert!(answer.code >= 500, "{answer:?}");
        assert!(answer.refused(answer.code).contains("dial tcp"), "{answer:?}");
    }
    let gateway = ann.get(&format!("{GATEWAYS}/stored")).await.ok();
    assert_eq!(gateway["status"]["healthy"], Value::Null);
    assert!(gateway["status"]["healthyReason"].as_str().unwrap().starts_with("Unknown:"), "{gateway}");
}

#[tokio::test]
async fn resources_of_cluster_gateway_are_read_only_without_watches() {
    let (fixture, _, mount) = start().await;
    let ann = user(&fixture, &mount, "ann");
    let list = ann.get(GATEWAYS).await.ok();
    let items = list["items"].as_array().unwrap();
    let names: Vec<_> = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!((&list["kind"], names), (&json!("ClusterGatewayList"), vec!["eu.example", "ruled", "stored"]));
    assert_eq!(ann.get(&format!("{GATEWAYS}/stored")).await.ok()["status"], json!({"healthy": true}));
    let selected = ann.get(&format!("{VIRTUAL_CLUSTERS}?labelSelector=team%3Dstored")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    // A ClusterGateway shows no labels, and the labels of its Secret count.
    let selected = ann.get(&format!("{GATEWAYS}?labelSelector=team%3Dstored")).await.ok();
    assert_eq!(
        (selected["items"].as_array().unwrap().len(), &selected["items"][0]["metadata"]["name"]),
        (1, &json!("stored"))
    );
    let selected = ann.get(&format!("{GATEWAYS}?labelSelector=team%21%3Dstored")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 2);
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = ann.send("GET", VIRTUAL_CLUSTERS, &[("accept", TABLE)], "").await.ok();
    assert_eq!((&table["kind"], &table["rows"][0]["cells"][0]), (&json!("Table"), &json!("local")));
    for (method, path) in [
        ("GET", format!("{GATEWAYS}?watch=1")),
        ("GET", format!("{VIRTUAL_CLUSTERS}?watch=1")),
        ("POST", GATEWAYS.to_owned()),
        ("DELETE", format!("{GATEWAYS}/stored")),
        ("PATCH", format!("{GATEWAYS}/stored/health")),
    ] {
        assert_eq!(ann.send(method, &path, &[], "").await.code, 405, "{method} {path}");
    }
}

/// Records the health of each member that the router writes. Clones share the records.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<(SecretPlace, GatewayHealth)>>>);

impl WriteGatewayHealth for Written {
    fn write(&self, place: SecretPlace, health: GatewayHealth) -> BoxFuture<'static, Result<(), Status>> {
        self.0.lock().push((place, health));
        async { Ok(()) }.boxed()
    }
}

#[tokio::test]
async fn update_of_the_health_is_written_to_the_secret() {
    let (fixture, _, mount) = start().await;
    let written = Written::default();
    fixture.router.set_gateway_health_writer(Arc::new(written.clone()));
    let ann = user(&fixture, &mount, "ann");
    let path = format!("{GATEWAYS}/stored/health");
    let object = |name: &str| json!({"metadata": {"name": name}, "status": {"healthyReason": "ConnectionTimeout"}});
    let answer = write(&ann, "PUT", &path, &object("stored")).await.ok();
    assert_eq!(answer["status"], json!({"healthyReason": "ConnectionTimeout"}));
    assert_eq!(write(&ann, "PUT", &format!("{path}?dryRun=All"), &object("stored")).await.code, 200);
    assert_eq!(write(&ann, "PUT", &path, &object("ruled")).await.code, 400);
    assert_eq!(write(&ann, "PUT", &format!("{GATEWAYS}/unknown/health"), &object("unknown")).await.code, 404);
    assert_eq!(ann.send("PUT", &path, &[], "{").await.code, 400);
    let place = SecretPlace { namespace: "vela-system".to_owned(), name: "stored".to_owned() };
    let health = GatewayHealth { is_healthy: false, reason: "ConnectionTimeout".to_owned() };
    assert_eq!(*written.0.lock(), [(place, health)]);
}

/// An authorizer that allows everything, and records the credential of each request.
#[derive(Default)]
struct Credentials(Mutex<Vec<(String, String)>>);

impl Authorizer for Credentials {
    fn refusal(&self, headers: &HeaderMap, _: &Method, target: &str) -> Option<Status> {
        let credential = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.0.lock().push((target.to_owned(), credential.to_owned()));
        None
    }

    fn allows(&self, _: &HeaderMap, _: &Value) -> bool {
        true
    }
}

/// Two Secrets lead to one cluster. Without impersonation, each name uses the credential of its own Secret.
#[tokio::test]
async fn stored_credential_belongs_to_the_name_in_the_path() {
    let (fixture, _, _) = start().await;
    let (own, credentials) = (fixture.member("a"), Arc::new(Credentials::default()));
    own.control().authorize(Some(Arc::clone(&credentials) as Arc<dyn Authorizer>));
    own.control().accept("second", None);
    let second = setup(own, "second").await.client.unwrap();
    let mut config = kube::Config::new(own.url().parse().unwrap());
    config.auth_info.token = Some("second".to_owned().into());
    second.set_user(&config).await.unwrap();
    let credential = Some(CredentialOfName { client: second, generation: 2 });
    let members = Arc::new(ForeignMembers::from_iter([
        member("first", IdentityPolicy::Stored),
        ForeignMember { credential: credential.clone(), ..member("second", IdentityPolicy::Stored) },
        ForeignMember { credential, ..member("ruled", rules()) },
        member("eu.example", IdentityPolicy::Impersonate),
    ]));
    let mount = Mount::Aggregated(Arc::new(members.doors([ForeignSystem::ClusterGateway])));
    fixture.router.set_foreign_members(members);
    let (first, second) = (format!("Bearer {}", own.token()), "Bearer second".to_owned());
    for (name, caller, expected) in [
        ("first", "ann", &first),
        ("second", "ann", &second),
        ("ruled", "ann", &second),
        ("ruled", "bob", &second),
        ("eu.example", "ann", &first),
    ] {
        credentials.0.lock().clear();
        let path = format!("{GATEWAYS}/{name}/proxy{SHOP}/of-a");
        user(&fixture, &mount, caller).get(&path).await.ok();
        let seen: Vec<_> = credentials.0.lock().iter().filter(|(own, _)| own.contains("/of-a")).cloned().collect();
        assert!(!seen.is_empty() && seen.iter().all(|(_, own)| own == expected), "{name} {caller}: {seen:?}");
    }
}

/// Rights in the hub count for the inner request, too. The name can demand this after the arrival of a request.
#[tokio::test]
async fn name_that_demands_inner_rights_is_closed_to_a_request_without_their_review() {
    let (fixture, _, mount) = start().await;
    let stored = user(&fixture, &mount, "ann");
    let path = format!("{GATEWAYS}/stored/proxy{SHOP}/of-a");
    stored.get(&path).await.ok();
    let inner = ForeignMember { authorizes_inner: true, ..member("stored", IdentityPolicy::Stored) };
    let members = Arc::new(ForeignMembers::from_iter([inner]));
    let doors = Arc::new(members.doors([ForeignSystem::ClusterGateway]));
    fixture.router.set_foreign_members(members);
    assert_eq!(stored.get(&path).await.refused(500), "no such cluster stored");
    user(&fixture, &Mount::Aggregated(doors), "ann").get(&path).await.ok();
}
