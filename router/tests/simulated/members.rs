//! The shared mode: as whom members see users, which clusters there are for a request, and what others may be learned
//! of.

use std::sync::Arc;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tributary_apimachinery::{RequestInfo, Status};
use tributary_authentication::{MemberRules, Reach};
use tributary_authorization::{Attributes, RbacKind, ResourceAttributes, User};
use tributary_router::SharedMode;
use tributary_simulator::{Authorizer, SimulatedCluster};

use crate::harness::{Answer, Client, Fixture, allow, config_map, setup, until};
use crate::reference::{Object, Reference};
use crate::rights::{RBAC, binding, config_map_of, listed, role};

/// A member that judges requests as RBAC does, and remembers in whose name each came.
#[derive(Default)]
pub(crate) struct Rbac {
    rules: Mutex<Reference>,
    /// Who came, and for what.
    came: Mutex<Vec<Came>>,
    /// Whether it lets this endpoint act as others.
    closed: Mutex<bool>,
}

/// A request as it came to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    /// As whom; `None` for this endpoint itself.
    pub(crate) user: Option<String>,
    /// All that is said of the user, header by header.
    pub(crate) headers: Vec<(String, String)>,
    /// Method and target.
    pub(crate) line: String,
}

impl Rbac {
    /// Has a member judge by its own roles and bindings, as they are now.
    pub(crate) fn judge(member: &SimulatedCluster) -> Arc<Self> {
        let rbac = Arc::new(Self::default());
        rbac.learn(member);
        member.control().authorize(Some(Arc::clone(&rbac) as Arc<dyn Authorizer>));
        rbac
    }

    /// Judges by a member's roles and bindings as they are now.
    pub(crate) fn learn(&self, member: &SimulatedCluster) {
        let all = RbacKind::ALL.into_iter().flat_map(|kind| {
            let objects = member.list(&format!("{}.{RBAC}", kind.resource()));
            objects.into_iter().map(move |value| Object { kind, value })
        });
        *self.rules.lock() = Reference::of(&all.collect::<Vec<_>>());
    }

    /// What has come in users' names since this was last asked.
    pub(crate) fn came(&self) -> Vec<Came> {
        self.came.lock().extract_if(.., |own| own.user.is_some()).collect()
    }

    /// What has come in this endpoint's own name that is not for all users: what is written, and single objects.
    pub(crate) fn came_as_ourselves(&self) -> Vec<String> {
        let came = self.came.lock();
        let own = came.iter().filter(|own| own.user.is_none()).map(|own| own.line.clone());
        own.filter(|line| !line.starts_with("GET ") || line.contains("/configmaps/") || line.contains("/pods/"))
            .collect()
    }

    fn close(&self) {
        *self.closed.lock() = true;
    }
}

fn told(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
    let own = headers.iter().filter(|(name, _)| name.as_str().starts_with("impersonate-"));
    own.map(|(name, value)| (name.to_string(), text(value))).collect()
}

/// The user whom headers name, with the group that kube-apiserver adds.
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
        let asked = Attributes::of(&info);
        let is_of_oneself = path.contains("/selfsubject");
        let allowed = is_of_oneself || self.rules.lock().allows(User { name: &name, groups: &groups }, &asked);
        let Attributes::Resource(asked) = asked else { return None };
        let resource = info.resource().map(|own| own.resource.clone());
        (!allowed).then(|| {
            let cause = format!("User {name:?} cannot {} resource {:?}", asked.verb, asked.resource);
            Status::forbidden(resource.as_ref(), asked.name, &cause)
        })
    }

    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool {
        let Some((name, groups)) = acting(headers) else { return true };
        let text = |field: &str| attributes[field].as_str().unwrap_or_default();
        let asked = ResourceAttributes {
            verb: text("verb"),
            group: text("group"),
            version: text("version"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
        };
        self.rules.lock().allows(User { name: &name, groups: &groups }, &Attributes::Resource(asked))
    }
}

/// Lets a user do this with ConfigMaps: in a namespace, or without one everywhere.
pub(crate) fn allow_to(member: &SimulatedCluster, namespace: &str, user: &str, verbs: &[&str]) {
    let name = format!("{user}-{}", verbs.join("-")).replace(':', "-");
    member.apply(role("", &name, [verbs, &[""], &["configmaps"], &[]])).unwrap();
    member.apply(binding(namespace, &name, ("ClusterRole", &name), user)).unwrap();
}

const READ: &[&str] = &["get", "list", "watch"];
const ALL_VERBS: &[&str] = &["*"];
const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// Members of these names: ann may do everything in `a`, read `shop` of `b`, and nothing in others.
async fn fixture<const N: usize>(names: [&str; N]) -> (Fixture, Vec<Arc<Rbac>>) {
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

async fn write(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    client.send(method, path, &[("content-type", "application/json")], &body.to_string()).await
}

fn names(told: &Came) -> Vec<(&str, &str)> {
    told.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn a_member_sees_the_user_and_what_of_it_the_configuration_says() {
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

/// T4: who is somebody in a cluster by its own right is nobody there by another's word, in memory and beyond.
#[tokio::test]
async fn names_of_the_system_stay_where_they_are_vouched_for() {
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
    let own = fixture.user_of(account, &[], Reach::Member("b".parse().unwrap()));
    masters.get(all).await.refused(403);
    masters.get(&format!("{SHOP}/of-a")).await.refused(403);
    let why = format!("user \"{account}\" is a name of the system, which is not sent to another cluster");
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
async fn a_cluster_that_does_not_let_us_act_for_users_is_named_with_what_to_do() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let ann = fixture.user("ann", &[]);
    rbac[0].close();
    let said = ann.send("DELETE", &format!("{SHOP}/of-a"), &[], "").await.refused(503);
    assert!(said.starts_with("cluster \"a\" does not let this endpoint act in your name"), "{said}");
    assert!(said.contains("impersonate") && said.contains("docs/shared-mode.md"), "{said}");
    let said = ann.get("/clusters/a/api/v1/configmaps").await.refused(503);
    assert!(said.starts_with("cluster \"a\" does not let"), "{said}");
    // A refusal of the user's own is the member's to word.
    let said = ann.send("DELETE", &format!("{SHOP}/of-b"), &[], "").await.refused(403);
    assert!(said.contains("User \"ann\" cannot delete resource \"configmaps\""), "{said}");
}

/// T6: whatever is where the caller may not look is nowhere, in words and in what is asked.
#[tokio::test]
async fn what_is_hidden_is_nowhere() {
    let (with, rbac) = fixture(["a", "b", "c"]).await;
    let (without, _) = fixture(["a", "b"]).await;
    for member in &with.members {
        member.apply(config_map_of("shop", "same")).unwrap();
    }
    without.member("a").apply(config_map_of("shop", "same")).unwrap();
    without.member("b").apply(config_map_of("shop", "same")).unwrap();
    for fixture in [&with, &without] {
        let root = fixture.user("root", &[]);
        until(async || root.get(&format!("{SHOP}/same")).await.code == 409).await;
    }
    rbac.iter().for_each(|own| drop(own.came()));
    let patch = |client: &Client, path: &str| {
        let (client, path) = (client.clone(), path.to_owned());
        async move {
            let kind = [("content-type", "application/merge-patch+json")];
            client.send("PATCH", &path, &kind, r#"{"data":{"k":"v"}}"#).await
        }
    };
    let told = |answer: &Answer| (answer.code, String::from_utf8_lossy(&answer.body).into_owned(), answer.warnings());
    for name in ["of-c", "nothing", "same"] {
        let path = format!("{SHOP}/{name}");
        let mut said = Vec::new();
        for fixture in [&with, &without] {
            let ann = fixture.user("ann", &[]);
            let answers = [
                ann.get(&path).await,
                ann.get(&format!("{path}/status")).await,
                ann.send("DELETE", &path, &[], "").await,
                patch(&ann, &path).await,
                write(&ann, "PUT", &path, &config_map(name, "v")).await,
            ];
            said.push(answers.iter().map(told).collect::<Vec<_>>());
        }
        assert_eq!(said[0], said[1], "{name}");
        assert!(rbac[2].came().is_empty(), "{name}");
    }
    // A name that is hidden costs what one costs that is nowhere.
    let ann = with.user("ann", &[]);
    let mut asked = Vec::new();
    rbac.iter().for_each(|own| drop(own.came()));
    for name in ["of-c", "none"] {
        ann.get(&format!("{SHOP}/{name}")).await.refused(404);
        ann.send("DELETE", &format!("{SHOP}/{name}"), &[], "").await.refused(404);
        asked.push(rbac.iter().map(|own| own.came().len()).collect::<Vec<_>>());
    }
    assert_eq!(asked[0], asked[1]);
}

/// What names clusters names those alone that there are for the caller, also where a hidden one is out of reach.
#[tokio::test]
async fn nothing_names_a_hidden_cluster() {
    let (with, _rbac) = fixture(["a", "b", "c"]).await;
    let ann = with.user("ann", &[]);
    let new = config_map_of("shop", "new");
    let mut said = Vec::new();
    for _ in 0..2 {
        said.push(write(&ann, "POST", SHOP, &new).await.refused(400));
        let mut annotated = new.clone();
        annotated["metadata"]["annotations"] = json!({"tributary.dev/cluster": "c"});
        let refused = write(&ann, "POST", SHOP, &annotated).await.refused(400);
        assert_eq!(refused.replace("\"c\"", "\"x\""), {
            annotated["metadata"]["annotations"] = json!({"tributary.dev/cluster": "x"});
            write(&ann, "POST", SHOP, &annotated).await.refused(400)
        });
        let mut elsewhere = Vec::new();
        for named in ["c", "x"] {
            annotated["metadata"]["annotations"] = json!({"tributary.dev/cluster": named});
            let refused = write(&ann, "POST", &format!("/clusters/a{SHOP}"), &annotated).await.refused(409);
            elsewhere.push(refused.replace(&format!("\"{named}\""), "\"?\""));
        }
        assert_eq!(elsewhere[0], elsewhere[1]);
        said.push(ann.get(&format!("{SHOP}/nothing")).await.refused(404));
        said.push(ann.send("DELETE", &format!("{SHOP}/nothing"), &[], "").await.refused(404));
        with.member("c").control().stop_listening().await;
        with.out_of_reach("c").await;
    }
    assert!(said[0].contains('a') && !said.iter().any(|text| text.contains("cluster c") || text.contains("\"c\"")));
    assert_eq!(said[..3], said[3..]);
    let answer = ann.get("/api/v1/configmaps").await;
    answer.ok();
    assert!(answer.warnings().iter().all(|warning| !warning.contains(" c")), "{:?}", answer.warnings());
    ann.send("DELETE", SHOP, &[], "").await.refused(403);
}

/// Who is told, and whom each says it sees, with `kubectl auth whoami`.
#[tokio::test]
async fn who_one_is_is_said_here() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"});
    let mut ann = fixture.user("ann", &["dev", "system:authenticated"].map(str::to_owned));
    let who = |answer: &Answer| answer.ok()["status"]["userInfo"].clone();
    let answer = write(&ann, "POST", path, &review).await;
    assert_eq!(answer.code, 201);
    assert_eq!(who(&answer), json!({"username": "ann", "groups": ["dev", "system:authenticated"]}));
    assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
    ann.user.info.uid = "u".to_owned();
    ann.user.info.groups.push("system:masters".to_owned());
    let answer = write(&ann, "POST", path, &review).await;
    assert_eq!(who(&answer)["uid"], "u");
    let expected = "299 - \"some clusters are not told the uid, the groups system:masters; kubectl --context NAME auth whoami says \
                    what one is told\"";
    assert_eq!(answer.warnings(), [expected]);
    assert!(rbac.iter().all(|own| own.came().is_empty()));
    let headers = [("content-type", "application/json"), ("impersonate-user", "system:serviceaccount:shop:robot")];
    let answer = ann.send("POST", path, &headers, &review.to_string()).await;
    let message = answer.refused(403);
    assert!(message.contains("User \"ann\" cannot impersonate resource \"serviceaccounts\""), "{message}");
}

/// T4 and the client's own `--as`: each cluster's rules say who may be whom, and memory shows what that one may see.
#[tokio::test]
async fn whom_a_client_asks_to_be_is_each_clusters_to_allow() {
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
    // What is sent says who acts, and nobody else.
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

/// What no cluster is ever told of is refused in words, whatever a cluster's rules allow, and nothing of it is done
/// without.
#[tokio::test]
async fn who_asks_for_what_never_leaves_is_told_so() {
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
            "forbidden: no cluster can be asked for you: {what} {name:?} is never sent to a cluster, so that nobody acts as such \
             through this endpoint"
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

/// The token-review cluster's word is good everywhere. Its own groups are known to it, in what it is sent and in what
/// memory shows of it, and are nothing in the others.
#[tokio::test]
async fn the_token_review_cluster_knows_the_groups_that_it_said() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        member.apply(role("", "oauth", [ALL_VERBS, &[""], &["configmaps"], &[]])).unwrap();
        let mut own = binding("", "oauth", ("ClusterRole", "oauth"), "");
        own["subjects"] = json!([{"kind": "Group", "apiGroup": crate::rights::RBAC, "name": "system:oauth"}]);
        member.apply(own).unwrap();
        rbac.learn(member);
    }
    let groups = ["system:oauth", "system:masters"].map(str::to_owned);
    let mut eve = fixture.user_of("eve", &groups, Reach::EverywhereFrom("a".parse().unwrap()));
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
    // A right of the group's that is lost there is lost here.
    let mut watch =
        eve.watch(&format!("{all}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")).await;
    fixture.member("a").delete(&format!("clusterrolebindings.{}", crate::rights::RBAC), "", "oauth").unwrap();
    assert_eq!(watch.soon().await["object"]["code"], 410);
    eve.get(all).await.refused(403);
}

/// A right to read is one that any cluster gives which the caller may know of, and to write one that each of these
/// does.
#[tokio::test]
async fn a_right_is_asked_of_the_clusters_that_one_may_know_of() {
    let (fixture, rbac) = fixture(["a", "b", "c"]).await;
    let ann = fixture.user("ann", &[]);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (namespace, verb, user, allowed, asked, reason) in [
        ("shop", "get", "ann", true, [1, 1, 0], "simulated"),
        ("bank", "list", "ann", true, [1, 0, 0], "simulated"),
        ("", "watch", "ann", true, [1, 0, 0], "simulated"),
        ("shop", "delete", "ann", false, [1, 1, 0], "not allowed in b: simulated"),
        ("bank", "delete", "ann", true, [1, 0, 0], "simulated"),
        ("shop", "get", "eve", false, [0, 0, 0], ""),
        ("shop", "create", "eve", false, [0, 0, 0], ""),
    ] {
        rbac.iter().for_each(|own| drop(own.came()));
        let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": {"namespace": namespace, "verb": verb, "resource": "configmaps"}}});
        let answer = write(&fixture.user(user, &[]), "POST", path, &review).await;
        let status = &answer.ok()["status"];
        let said = (status["allowed"].as_bool(), status["reason"].as_str().unwrap_or_default());
        assert_eq!(said, (Some(allowed), reason), "{user} {verb} {namespace}");
        assert_eq!(rbac.iter().map(|own| own.came().len()).collect::<Vec<_>>(), asked, "{user} {verb} {namespace}");
    }
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    for (user, namespace, asked, rules) in
        [("ann", "shop", [1, 1, 0], 1), ("ann", "bank", [1, 0, 0], 1), ("eve", "shop", [0; 3], 0)]
    {
        let review = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
            "spec": {"namespace": namespace}});
        let answer = write(&fixture.user(user, &[]), "POST", path, &review).await.ok();
        assert_eq!(answer["status"]["resourceRules"].as_array().map_or(0, Vec::len).min(1), rules, "{answer}");
        assert_eq!(rbac.iter().map(|own| own.came().len()).collect::<Vec<_>>(), asked, "{user} {namespace}");
    }
    // A hidden cluster that is out of reach is not named.
    fixture.member("c").control().stop_listening().await;
    fixture.out_of_reach("c").await;
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"namespace": "shop", "verb": "get", "resource": "configmaps"}}});
    let answer = write(&ann, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
    assert!(answer.warnings().is_empty() && answer.ok()["status"].get("evaluationError").is_none(), "{answer:?}");
}

/// T1: what a write is answered with carries the scope of its writer's rights, as what memory shows does, and is taken
/// back.
#[tokio::test]
async fn versions_of_written_objects_are_those_that_memory_shows() {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        allow_to(member, "shop", "carl", ALL_VERBS);
        rbac.learn(member);
        listed(&fixture, member.name(), "carl", "shop").await;
    }
    let carl = fixture.user("carl", &[]);
    let path = format!("{SHOP}/of-b");
    for client in [carl, fixture.user("root", &[])] {
        let mut object = client.get(&path).await.ok();
        let mut seen = Vec::new();
        for value in ["1", "2"] {
            object["data"] = json!({ "k": value });
            object = write(&client, "PUT", &path, &object).await.ok();
            seen.push(crate::harness::version(&object));
            assert_eq!(crate::harness::version(&client.get(&path).await.ok()), seen[seen.len() - 1]);
        }
        object["metadata"]["resourceVersion"] = seen[0].clone().into();
        write(&client, "PUT", &path, &object).await.refused(409);
        write(&client, "PUT", &format!("/clusters/b{path}"), &object).await.refused(409);
        object["metadata"]["resourceVersion"] = seen[1].clone().into();
        write(&client, "PUT", &format!("/clusters/b{path}"), &object).await.ok();
    }
}

/// A cluster of which it is not known what it allows may have what is asked for: nothing is guessed, and it is not
/// named.
#[tokio::test]
async fn where_it_is_not_known_what_one_may_do_nothing_is_guessed() {
    let (fixture, rbac) = fixture(["a", "b", "c"]).await;
    let root = fixture.user("root", &[]);
    fixture.router.set_policies(tributary_router::Policies::default());
    crate::rights::refuse_rbac(fixture.member("c"), true);
    fixture.member("c").control().cut_streams();
    until(async || {
        let report = fixture.router.report().await;
        report.clusters[2].rights == Some(tributary_router::report::RightsCondition::Behind)
    })
    .await;
    crate::harness::pass(std::time::Duration::from_secs(5 * 60 + 30)).await;
    rbac.iter().for_each(|own| drop(own.came()));
    let unknown = |name: &str| format!("configmaps{name}: what you may read in some clusters is not known yet");
    for (name, code) in [("of-a", 503), ("nothing", 503), ("of-c", 503)] {
        let path = format!("{SHOP}/{name}");
        assert_eq!(root.send("DELETE", &path, &[], "").await.refused(code), unknown(&format!(" \"{name}\"")));
    }
    for name in ["nothing", "of-c"] {
        assert_eq!(root.get(&format!("{SHOP}/{name}")).await.refused(503), unknown(&format!(" \"{name}\"")));
    }
    assert_eq!(root.send("DELETE", SHOP, &[], "").await.refused(429), unknown(""));
    assert!(rbac.iter().all(|own| own.came().iter().all(|own| own.line.starts_with("GET "))));
    assert!(rbac[2].came().is_empty());
    // Who says where is not in doubt.
    root.get(&format!("{SHOP}/of-a")).await.ok();
    root.get(&format!("{SHOP}/of-a/nothing")).await.refused(404);
    let mut named = config_map_of("shop", "of-a");
    named["metadata"]["annotations"] = json!({"tributary.dev/cluster": "a"});
    write(&root, "PUT", &format!("{SHOP}/of-a"), &named).await.ok();
}

/// T6: no ground of a write sees what its writer may not: an owner, or the records of a Helm release, in a cluster that
/// is hidden are nowhere.
#[tokio::test]
async fn grounds_see_nothing_hidden() {
    let (fixture, rbac) = fixture(["a", "b", "c"]).await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let mut record = config_map_of("shop", "sh.helm.release.v1.web.v1");
    record["metadata"]["labels"] = json!({"owner": "helm", "name": "web", "status": "deployed"});
    fixture.member("c").apply(record).unwrap();
    until(async || root.get(&format!("{SHOP}/sh.helm.release.v1.web.v1")).await.code == 200).await;
    let uid = |name: &str| fixture.member("c").get("configmaps", "shop", name).unwrap()["metadata"]["uid"].clone();
    let owned = |name: &str, uid: &Value| {
        let mut object = config_map_of("shop", "new");
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}]);
        object
    };
    let released = |release: &str| {
        let mut object = config_map_of("shop", "new");
        object["metadata"]["annotations"] =
            json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "shop"});
        object
    };
    let pairs = [[owned("of-c", &uid("of-c")), owned("nothing", &json!("0-0-0"))], [released("web"), released("none")]];
    for pair in pairs {
        // Whoever may look is sent there.
        let made = write(&root, "POST", &format!("{SHOP}?dryRun=All"), &pair[0]).await.ok();
        assert_eq!(crate::harness::cluster(&made), "c");
        rbac.iter().for_each(|own| drop(own.came()));
        let mut said = Vec::new();
        for object in &pair {
            let message = write(&ann, "POST", &format!("{SHOP}?dryRun=All"), object).await.refused(400);
            said.push((message, rbac.iter().map(|own| own.came().len()).collect::<Vec<_>>()));
        }
        assert_eq!(said[0], said[1]);
        assert_eq!(said[0].1[2], 0, "{said:?}");
    }
}

/// What memory does not hold is asked of the clusters that let the caller list it, in the caller's name, and of no
/// others.
#[tokio::test]
async fn a_live_list_is_of_the_clusters_that_allow_it() {
    let (fixture, rbac) = fixture(["a", "b", "c"]).await;
    fixture.router.set_policies(tributary_router::Policies { registered: Some(Vec::new()), ..allow() });
    fixture.member("c").control().stop_listening().await;
    fixture.out_of_reach("c").await;
    let ann = fixture.user("ann", &[]);
    for (path, expected) in [("/api/v1/configmaps", &["a"][..]), (SHOP, &["a", "b"])] {
        rbac.iter().for_each(|own| drop(own.came()));
        let answer = ann.get(path).await;
        let listed = answer.ok();
        let mut shown: Vec<_> = listed["items"].as_array().unwrap().iter().map(crate::harness::cluster).collect();
        shown.dedup();
        assert_eq!(shown, expected, "{path}");
        assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
        let asked: Vec<_> = rbac.iter().map(|own| own.came().len()).collect();
        assert_eq!(asked, [1, expected.len() - 1, 0], "{path}");
    }
    fixture.user("eve", &[]).get("/api/v1/configmaps").await.refused(403);
}

/// Precedent 9: users who ask the same at once, by one connection, are never answered as another.
#[tokio::test]
async fn users_who_ask_the_same_at_once_are_never_crossed() {
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
