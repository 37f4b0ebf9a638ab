//! Tests of the shared mode: the identity of users in requests to members, and impersonation by users.

use std::sync::Arc;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tributary_apimachinery::{RequestInfo, Status, UserInfo};
use tributary_authentication::{Authority, MemberRules};
use tributary_authorization::{Attributes, RbacKind, ResourceAttributes};
use tributary_router::SharedMode;
use tributary_simulator::{Authorizer, SimulatedCluster};

use crate::access::rights::{RBAC, binding, config_map_of, listed, role};
use crate::harness::{Answer, Client, Fixture, allow, setup, until};
use crate::reference::{Object, Reference};

/// An authorizer of a member that decides by RBAC, and records the user of each request.
#[derive(Default)]
pub(crate) struct Rbac {
    rules: Mutex<Reference>,
    came: Mutex<Vec<Came>>,
    /// Whether the member forbids Tributary's account to impersonate users.
    closed: Mutex<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    /// The impersonated user; `None` for a request under Tributary's own identity.
    pub(crate) user: Option<String>,
    /// The impersonation headers, by name and value.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) line: String,
}

impl Rbac {
    /// Makes a member authorize by its current roles and bindings. Later changes need a call of `learn`.
    pub(crate) fn judge(member: &SimulatedCluster) -> Arc<Self> {
        let rbac = Arc::new(Self::default());
        rbac.learn(member);
        member.control().authorize(Some(Arc::clone(&rbac) as Arc<dyn Authorizer>));
        rbac
    }

    /// Reads the current roles and bindings of a member. Later decisions use this copy.
    pub(crate) fn learn(&self, member: &SimulatedCluster) {
        let all = RbacKind::ALL.into_iter().flat_map(|kind| {
            let objects = member.list(&format!("{}.{RBAC}", kind.resource()));
            objects.into_iter().map(move |value| Object { kind, value })
        });
        *self.rules.lock() = Reference::from_objects(&all.collect::<Vec<_>>());
    }

    /// Removes and returns the recorded requests that impersonate a user.
    pub(crate) fn came(&self) -> Vec<Came> {
        self.came.lock().extract_if(.., |own| own.user.is_some()).collect()
    }

    /// Removes and returns all recorded requests.
    pub(crate) fn all_came(&self) -> Vec<Came> {
        std::mem::take(&mut *self.came.lock())
    }

    /// Returns the recorded requests under Tributary's own identity: the writes, and the reads of single objects.
    /// Requests on behalf of all users, such as lists, are left out.
    pub(crate) fn came_as_ourselves(&self) -> Vec<String> {
        let came = self.came.lock();
        let own = came.iter().filter(|own| own.user.is_none()).map(|own| own.line.clone());
        own.filter(|line| !line.starts_with("GET ") || line.contains("/configmaps/") || line.contains("/pods/"))
            .collect()
    }

    /// Makes the member forbid all impersonation.
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
    }
}

fn told(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
    let own = headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
    own.map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// Returns the impersonated user and groups in the headers, with the group that kube-apiserver adds.
pub(crate) fn acting(headers: &HeaderMap) -> Option<(String, Vec<String>)> {
    let told = told(headers);
    let of = |wanted: &str| -> Vec<String> {
        told.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.clone()).collect()
    };
    let name = of("impersonate-user").into_iter().next()?;
    let mut groups = of("impersonate-group");
    groups.push("system:authenticated".to_owned());
    Some((name, groups))
}

impl Authorizer for Rbac {
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status> {
        let acting = acting(headers);
        let user = acting.as_ref().map(|(name, _)| name.clone());
        self.came.lock().push(Came { user, headers: told(headers), line: format!("{method} {target}") });
        let (name, groups) = acting?;
        if *self.closed.lock() {
            let users = tributary_apimachinery::GroupVersionResource::new("", "v1", "users");
            let cause =
                "User \"tributary\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
            return Some(Status::forbidden(Some(&users), &name, cause));
        }
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::parse(method.as_str(), path, query).unwrap();
        let asked = Attributes::from_request(&info);
        let is_of_oneself = path.contains("/selfsubject");
        let allowed = is_of_oneself || self.rules.lock().allows(&UserInfo::with_groups(&name, &groups), &asked);
        let Attributes::Resource(asked) = asked else { return None };
        let resource = info.resource().map(|own| own.resource.clone());
        (!allowed).then(|| {
            let cause = format!("User {name:?} cannot {} resource {:?}", asked.verb, asked.resource);
            Status::forbidden(resource.as_ref(), asked.name, &cause)
        })
    }

    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool {
        let Some((name, groups)) = acting(headers) else { return true };
        let asked = Attributes::Resource(resource_attributes(attributes));
        self.rules.lock().allows(&UserInfo::with_groups(&name, &groups), &asked)
    }

    fn reviewed(&self, spec: &Value) -> Option<bool> {
        let groups: Vec<String> = serde_json::from_value(spec["groups"].clone()).unwrap_or_default();
        let name = spec["user"].as_str().unwrap_or_default();
        let asked = Attributes::Resource(resource_attributes(&spec["resourceAttributes"]));
        Some(self.rules.lock().allows(&UserInfo::with_groups(name, &groups), &asked))
    }
}

pub(crate) fn resource_attributes(asked: &Value) -> ResourceAttributes<'_> {
    let text = |field: &str| asked[field].as_str().unwrap_or_default();
    ResourceAttributes {
        verb: text("verb"),
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    }
}

/// Grants a user verbs on ConfigMaps in a namespace, or in all namespaces if `namespace` is empty.
pub(crate) fn allow_to(member: &SimulatedCluster, namespace: &str, user: &str, verbs: &[&str]) {
    let name = format!("{user}-{}", verbs.join("-")).replace(':', "-");
    member.apply(role("", &name, [verbs, &[""], &["configmaps"], &[]])).unwrap();
    member.apply(binding(namespace, &name, ("ClusterRole", &name), user)).unwrap();
}

const READ: &[&str] = &["get", "list", "watch"];
pub(crate) const ALL_VERBS: &[&str] = &["*"];
pub(crate) const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// Starts members with these names. Ann may do everything in `a`, may read the namespace `shop` of `b`, and has no
/// rights in other members.
pub(crate) async fn fixture<const N: usize>(names: [&str; N]) -> (Fixture, Vec<Arc<Rbac>>) {
    let fixture = Fixture::shared(names, allow(), SharedMode::default()).await;
    for member in &fixture.members {
        member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}})).unwrap();
        member.apply(config_map_of("shop", &format!("of-{}", member.name()))).unwrap();
        allow_to(member, "", "root", ALL_VERBS);
    }
    allow_to(fixture.member("a"), "", "ann", ALL_VERBS);
    if names.contains(&"b") {
        allow_to(fixture.member("b"), "shop", "ann", READ);
    }
    let rbac = fixture.members.iter().map(Rbac::judge).collect();
    for member in &fixture.members {
        listed(&fixture, member.name(), "root", "all").await;
    }
    listed(&fixture, "a", "ann", "all").await;
    if names.contains(&"b") {
        listed(&fixture, "b", "ann", "shop").await;
    }
    (fixture, rbac)
}

pub(crate) async fn write(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    client.send(method, path, &[("content-type", "application/json")], &body.to_string()).await
}

fn names(told: &Came) -> Vec<(&str, &str)> {
    told.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn member_receives_the_configured_parts_of_the_user() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let mut ann = fixture.user("ann", &["dev", "system:masters", "system:authenticated"].map(str::to_owned));
    ann.user.info.uid = "u1".to_owned();
    for key in ["team", "authentication.kubernetes.io/node-name", "other"] {
        ann.user.info.extra.insert(key.to_owned(), vec!["x".to_owned()]);
    }
    rbac.iter().for_each(|own| drop(own.came()));
    ann.send("DELETE", &format!("{SHOP}/of-a"), &[], "").await.ok();
    let came = rbac[0].came();
    let [deleted] = &came[..] else { panic!("{came:?}") };
    assert!(deleted.line.starts_with("DELETE"), "{came:?}");
    assert_eq!(names(deleted), [("impersonate-user", "ann"), ("impersonate-group", "dev")]);
    assert!(rbac[1].came().is_empty());
    let mut setups = Vec::new();
    for member in &fixture.members {
        let rules = MemberRules { uid: true, extra: ["team".to_owned()].into() };
        setups.push(tributary_router::ClusterSetup { impersonation: rules, ..setup(member, member.name()).await });
    }
    fixture.router.set_clusters(setups);
    until(async || ann.get("/clusters/a/api/v1/namespaces/shop/configmaps").await.code == 200).await;
    let mut told: Vec<_> = rbac[0].came().pop().unwrap().headers;
    told.sort();
    let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("impersonate-extra-team", "x"),
        ("impersonate-group", "dev"),
        ("impersonate-uid", "u1"),
        ("impersonate-user", "ann"),
    ];
    assert_eq!(told, expected);
    for own in &rbac {
        assert_eq!(own.came_as_ourselves(), Vec::<String>::new());
    }
}

/// The name of a ServiceAccount gives rights in a cluster only if this cluster authenticated the user. If another
/// authenticator assigned the name, it gives no rights, neither for reads from memory nor for requests to the member.
#[tokio::test]
async fn service_account_has_rights_only_in_its_own_cluster() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let account = "system:serviceaccount:shop:robot";
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        allow_to(member, "", account, ALL_VERBS);
        rbac.learn(member);
        listed(&fixture, member.name(), account, "all").await;
    }
    let all = "/api/v1/configmaps";
    let masters = fixture.user("eve", &["system:masters".to_owned()]);
    let stranger = fixture.user(account, &[]);
    let own = fixture.user_of(account, &[], Authority::Member("b".parse().unwrap()));
    masters.get(all).await.refused(403);
    masters.get(&format!("{SHOP}/of-a")).await.refused(403);
    let why = format!("user \"{account}\" has a system name, which is sent only to the user's own cluster");
    for (method, path) in [("GET", all.to_owned()), ("GET", format!("{SHOP}/of-a")), ("DELETE", format!("{SHOP}/of-a"))]
    {
        let said = stranger.send(method, &path, &[], "").await.refused(403);
        assert!(said.ends_with(&why), "{said}");
    }
    let said = stranger.get("/clusters/a/api/v1/configmaps").await.refused(403);
    assert!(said.ends_with(&why), "{said}");
    for (path, code) in [(format!("{SHOP}/of-b"), 200), (format!("{SHOP}/of-a"), 404)] {
        assert_eq!(own.get(&path).await.code, code, "{path}");
    }
    let listed = own.get(all).await.ok();
    assert!(listed["items"].as_array().unwrap().iter().all(|item| crate::harness::cluster(item) == "b"), "{listed}");
    own.get("/clusters/a/api/v1/configmaps").await.refused(404);
    own.get("/clusters/b/api/v1/configmaps").await.ok();
    assert!(rbac[0].came().is_empty());
    own.send("DELETE", &format!("{SHOP}/of-b"), &[], "").await.ok();
    assert_eq!(rbac[1].came().last().map(|own| own.user.clone()), Some(Some(account.to_owned())));
}

#[tokio::test]
async fn refusal_names_the_cluster_that_forbids_impersonation_and_the_remedy() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let ann = fixture.user("ann", &[]);
    rbac[0].close();
    let said = ann.send("DELETE", &format!("{SHOP}/of-a"), &[], "").await.refused(503);
    assert!(said.starts_with("cluster \"a\" does not allow Tributary to act as you"), "{said}");
    assert!(said.contains("impersonate") && said.contains("docs/shared-mode.md"), "{said}");
    let said = ann.get("/clusters/a/api/v1/configmaps").await.refused(503);
    assert!(said.starts_with("cluster \"a\" does not allow"), "{said}");
    // The router forwards the request as the user, so the 403 is the member's.
    let said = ann.send("DELETE", &format!("{SHOP}/of-b"), &[], "").await.refused(403);
    assert!(said.contains("User \"ann\" cannot delete resource \"configmaps\""), "{said}");
}

/// Tests `kubectl auth whoami`, at the merged view and at the path of each member.
#[tokio::test]
async fn self_subject_review_is_answered_by_the_router() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let mut ann = fixture.user("ann", &["dev", "system:authenticated"].map(str::to_owned));
    let who = |answer: &Answer| answer.ok()["status"]["userInfo"].clone();
    let answer = write(&ann, "POST", path, &review).await;
    assert_eq!(answer.code, 201);
    assert_eq!(who(&answer), json!({"username": "ann", "groups": ["dev", "system:authenticated"]}));
    assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
    let credential = "authentication.kubernetes.io/credential-id".to_owned();
    ann.user.info.extra.insert(credential, vec!["X509SHA256=1".to_owned()]);
    let answer = write(&ann, "POST", path, &review).await;
    assert!(answer.warnings().is_empty(), "a certificate has a fingerprint: {:?}", answer.warnings());
    ann.user.info.uid = "u".to_owned();
    ann.user.info.groups.push("system:masters".to_owned());
    let answer = write(&ann, "POST", path, &review).await;
    assert_eq!(who(&answer)["uid"], "u");
    let expected = "299 - \"some clusters do not receive the uid, the groups system:masters; kubectl --context NAME \
                    auth whoami shows what a cluster receives\"";
    assert_eq!(answer.warnings(), [expected]);
    assert!(rbac.iter().all(|own| own.came().is_empty()));
    let headers = [("content-type", "application/json"), ("impersonate-user", "system:serviceaccount:shop:robot")];
    let answer = ann.send("POST", path, &headers, &review.to_string()).await;
    let message = answer.refused(403);
    assert!(message.contains("User \"ann\" cannot impersonate resource \"serviceaccounts\""), "{message}");
}

/// A client uses `--as`. The roles of each cluster decide about the impersonation, and reads from memory show the
/// objects of the impersonated user.
#[tokio::test]
async fn rbac_of_each_cluster_decides_about_impersonation() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let be = |member: &SimulatedCluster, resources: &[&str], names: &[&str], user: &str| {
        let name = format!("{user}-is-{}", resources.join("-").replace('/', "-"));
        member.apply(role("", &name, [&["impersonate"], &["", "authentication.k8s.io"], resources, names])).unwrap();
        member.apply(binding("", &name, ("ClusterRole", &name), user)).unwrap();
    };
    be(fixture.member("a"), &["users"], &["root"], "ann");
    be(fixture.member("b"), &["users", "groups", "uids", "userextras/scope"], &["root", "dev", "u", "x"], "bob");
    be(fixture.member("b"), &["serviceaccounts"], &["robot"], "bob");
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        allow_to(member, "", "system:serviceaccount:shop:robot", READ);
        rbac.learn(member);
        listed(&fixture, member.name(), "system:serviceaccount:shop:robot", "all").await;
    }
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    let all = "/api/v1/configmaps";
    let clusters = |answer: &Answer| {
        let mut found: Vec<_> = answer.ok()["items"].as_array().unwrap().iter().map(crate::harness::cluster).collect();
        found.dedup();
        found
    };
    let root = ("impersonate-user", "root");
    assert_eq!(clusters(&ann.send("GET", all, &[root], "").await), ["a"]);
    assert_eq!(clusters(&bob.send("GET", all, &[root], "").await), ["b"]);
    let dev = ("impersonate-group", "dev");
    assert_eq!(clusters(&bob.send("GET", all, &[root, dev, ("impersonate-uid", "u")], "").await), ["b"]);
    let robot = ("impersonate-user", "system:serviceaccount:shop:robot");
    assert_eq!(clusters(&bob.send("GET", all, &[robot], "").await), ["b"]);
    for (client, headers, expected) in [
        (
            &ann,
            vec![("impersonate-user", "bob")],
            "users \"bob\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
        ),
        (
            &ann,
            vec![root, dev],
            "groups \"dev\" is forbidden: User \"ann\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope",
        ),
        (
            &bob,
            vec![root, ("impersonate-group", "ops")],
            "groups \"ops\" is forbidden: User \"bob\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope",
        ),
        (
            &bob,
            vec![root, ("impersonate-uid", "v")],
            "uids.authentication.k8s.io \"v\" is forbidden: User \"bob\" cannot impersonate resource \"uids\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            &bob,
            vec![root, ("impersonate-extra-scope", "y")],
            "userextras.authentication.k8s.io \"y\" is forbidden: User \"bob\" cannot impersonate resource \"userextras/scope\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            &ann,
            vec![robot],
            "serviceaccounts \"robot\" is forbidden: User \"ann\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"shop\"",
        ),
    ] {
        for (method, path) in [
            ("GET", all),
            ("GET", "/api/v1/namespaces/shop/configmaps/of-a"),
            ("DELETE", "/api/v1/namespaces/shop/configmaps/of-a"),
        ] {
            assert_eq!(client.send(method, path, &headers, "").await.refused(403), expected, "{method} {path}");
        }
    }
    // The member receives only the impersonated user's name, not the caller's.
    rbac.iter().for_each(|own| drop(own.came()));
    let headers = [root, dev, ("impersonate-uid", "u"), ("impersonate-extra-scope", "x")];
    bob.send("DELETE", &format!("{SHOP}/of-a"), &headers, "").await.refused(404);
    bob.send("DELETE", &format!("{SHOP}/of-b"), &headers, "").await.ok();
    assert!(rbac[0].came().is_empty());
    let mut told = rbac[1].came().pop().unwrap().headers;
    told.sort();
    let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("impersonate-extra-scope", "x"),
        ("impersonate-group", "dev"),
        ("impersonate-uid", "u"),
        ("impersonate-user", "root"),
    ];
    assert_eq!(told, expected);
    bob.send("GET", "/clusters/a/api/v1/configmaps", &[root], "").await.refused(403);
    bob.send("GET", "/clusters/b/api/v1/configmaps", &[root], "").await.ok();
}

/// Some identities are never sent to a cluster, so the router refuses to impersonate them, whatever the clusters' roles
/// allow. It must not silently drop a part of the identity.
#[tokio::test]
async fn impersonation_of_an_identity_that_is_never_sent_is_refused() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        member.apply(role("", "anybody", [&["impersonate"], &["*"], &["*"], &[]])).unwrap();
        member.apply(binding("", "root-is-anybody", ("ClusterRole", "anybody"), "root")).unwrap();
        rbac.learn(member);
    }
    let root = fixture.user("root", &[]);
    let as_ann = [("impersonate-user", "ann"), ("impersonate-group", "dev")];
    until(async || root.send("GET", &format!("{SHOP}/of-a"), &as_ann, "").await.code == 200).await;
    rbac.iter().for_each(|own| drop(own.came()));
    for (what, name, headers) in [
        ("group", "system:masters", vec![("impersonate-user", "ann"), ("impersonate-group", "system:masters")]),
        (
            "group",
            "system:nodes",
            vec![("impersonate-user", "ann"), ("impersonate-group", "dev"), ("impersonate-group", "system:nodes")],
        ),
        (
            "group",
            "system:unauthenticated",
            vec![("impersonate-user", "ann"), ("impersonate-group", "system:unauthenticated")],
        ),
        ("user", "system:node:n", vec![("impersonate-user", "system:node:n")]),
        ("user", "system:anonymous", vec![("impersonate-user", "system:anonymous")]),
    ] {
        let expected = format!(
            "forbidden: your request cannot be sent to any cluster: {what} {name:?} is never sent to a cluster, \
             because no client may have this identity through Tributary"
        );
        for (method, path) in [
            ("GET", "/api/v1/configmaps".to_owned()),
            ("GET", format!("{SHOP}/of-a")),
            ("GET", format!("{SHOP}?watch=1")),
            ("DELETE", format!("{SHOP}/of-a")),
            ("GET", format!("/clusters/a{SHOP}")),
            ("GET", format!("/clusters/a{SHOP}?watch=1")),
            ("GET", "/readyz?verbose".to_owned()),
        ] {
            let said = root.send(method, &path, &headers, "").await.refused(403);
            let is_of_no_resource = path.starts_with("/readyz");
            assert!(is_of_no_resource || said == expected, "{method} {path}: {said}");
        }
        let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
        let headers = [headers, vec![("content-type", "application/json")]].concat();
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        assert_eq!(root.send("POST", path, &headers, &review.to_string()).await.refused(403), expected);
    }
    assert!(rbac.iter().all(|own| own.came().is_empty()), "no cluster is asked anything of it");
}

/// All clusters accept users of the token-review cluster. The groups that this cluster itself defines give rights only
/// in this cluster, for its requests and for reads from memory.
#[tokio::test]
async fn system_groups_of_the_token_review_cluster_apply_only_there() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        member.apply(role("", "oauth", [ALL_VERBS, &[""], &["configmaps"], &[]])).unwrap();
        let mut own = binding("", "oauth", ("ClusterRole", "oauth"), "");
        own["subjects"] = json!([{"kind": "Group", "apiGroup": crate::access::rights::RBAC, "name": "system:oauth"}]);
        member.apply(own).unwrap();
        rbac.learn(member);
    }
    let groups = ["system:oauth", "system:masters"].map(str::to_owned);
    let mut eve = fixture.user_of("eve", &groups, Authority::TokenReviewCluster("a".parse().unwrap()));
    eve.user.info.extra.insert("scopes".to_owned(), vec!["x".to_owned()]);
    let all = "/api/v1/configmaps";
    until(async || eve.get(all).await.code == 200).await;
    let listed = eve.get(all).await.ok();
    assert!(listed["items"].as_array().unwrap().iter().all(|item| crate::harness::cluster(item) == "a"), "{listed}");
    eve.get(&format!("{SHOP}/of-a")).await.ok();
    eve.get(&format!("{SHOP}/of-b")).await.refused(404);
    rbac.iter().for_each(|own| drop(own.came()));
    eve.get("/clusters/b/api/v1/configmaps").await.refused(403);
    assert_eq!(names(&rbac[1].came()[0]), [("impersonate-user", "eve")]);
    eve.send("DELETE", &format!("{SHOP}/of-a"), &[], "").await.ok();
    let mut told = rbac[0].came().pop().unwrap().headers;
    told.sort();
    let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected =
        [("impersonate-extra-scopes", "x"), ("impersonate-group", "system:oauth"), ("impersonate-user", "eve")];
    assert_eq!(told, expected);
    // A watch ends when its user's group loses the right in the cluster.
    let mut watch =
        eve.watch(&format!("{all}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")).await;
    fixture.member("a").delete(&format!("clusterrolebindings.{}", crate::access::rights::RBAC), "", "oauth").unwrap();
    assert_eq!(watch.soon().await["object"]["code"], 410);
    eve.get(all).await.refused(403);
}

/// Precedent 9 of docs/precedents.md: several users send the same request at the same time over one connection. No user
/// may get the response for a different user.
#[tokio::test]
async fn users_with_equal_concurrent_requests_get_their_own_responses() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    fixture.router.set_policies(tributary_router::Policies { registered: Some(Vec::new()), ..allow() });
    let users: Vec<_> = (0..100).map(|number| (format!("user-{number}"), ["a", "b"][number % 2])).collect();
    for member in &fixture.members {
        member.apply(config_map_of("shop", "same")).unwrap();
        let own = users.iter().filter(|(_, cluster)| *cluster == member.name());
        own.for_each(|(user, _)| allow_to(member, "shop", user, ALL_VERBS));
    }
    let rbac: Vec<_> = fixture.members.iter().map(Rbac::judge).collect();
    for (user, cluster) in &users {
        listed(&fixture, cluster, user, "shop").await;
    }
    let path = format!("{SHOP}/same");
    for _ in 0..3 {
        let asked = users.iter().map(|(user, cluster)| {
            let (client, path) = (fixture.user(user, &[]), path.clone());
            async move {
                let (read, write) = tokio::join!(client.get(&path), async {
                    client.send("DELETE", &format!("{path}?dryRun=All"), &[], "").await
                });
                assert_eq!(crate::harness::cluster(&read.ok()), *cluster, "{user}");
                write.ok();
            }
        });
        futures::future::join_all(asked).await;
        for (member, rbac) in fixture.members.iter().zip(&rbac) {
            for came in rbac.came() {
                let own = users.iter().find(|(user, _)| came.user.as_ref() == Some(user)).unwrap();
                assert_eq!(own.1, member.name(), "{came:?}");
            }
        }
    }
}
