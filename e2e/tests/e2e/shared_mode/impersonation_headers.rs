//! Tests impersonation headers (kubectl's `--as` flags) over two real members with different rules. The same users send
//! the same headers directly to each member. Tributary's response must equal the merged responses of the members.

use super::{SOON, Shared, make_config_map};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use tributary_e2e::{HttpClient, HttpResponse, Kubectl, TestCluster, http::RequestBuilder, namespace};

const AT_ONCE: usize = 8;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Group with rights. A user gets these rights by impersonating the group.
const DEV: &str = "dev-of-acting-as";
const OPS: &str = "ops-of-acting-as";
/// Uid that a user may impersonate in only one of the members.
const UID: &str = "uid-of-acting-as";
/// Keys of extra fields, as in rules and as in headers. Headers escape capital letters, and characters that a header's
/// name may not contain.
const EXTRAS: [(&str, &str); 3] = [
    ("scopes.example.com/a", "Impersonate-Extra-scopes.example.com%2fa"),
    ("Acme.example.com/Grün", "Impersonate-Extra-%41cme.example.com%2F%47r%c3%bcn"),
    ("plain", "Impersonate-Extra-PLAIN"),
];
/// Values of the extra fields in [`EXTRAS`].
const VALUES: [&str; 2] = ["x", "größer als: \"y\""];

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::impersonation_headers";
        impersonation_is_allowed_in_each_member_by_the_rbac_of_that_member, impersonation_of_reserved_system_identities_is_refused,
        kubectl_impersonates_with_all_as_flags,
    ]
}

/// User that impersonates other users, with clients of the endpoint and of each member.
struct Person {
    name: String,
    /// True if the user has the verb `impersonate` for a user, and so may send all requests as that user.
    may_be_somebody: bool,
    here: HttpClient,
    there: [HttpClient; 2],
}

#[derive(Clone, Debug)]
struct ImpersonationCase {
    headers: Vec<(&'static str, String)>,
}

impl ImpersonationCase {
    fn user(name: &str) -> Self {
        Self { headers: vec![("Impersonate-User", name.to_owned())] }
    }

    fn and(mut self, header: &'static str, value: &str) -> Self {
        self.headers.push((header, value.to_owned()));
        self
    }

    fn group(self, group: &str) -> Self {
        self.and("Impersonate-Group", group)
    }

    fn put(&self, request: RequestBuilder) -> RequestBuilder {
        self.headers.iter().fold(request, |request, (name, value)| request.header_beside(name, value))
    }
}

/// Names of objects with their clusters.
type Seen = BTreeSet<(String, String)>;

struct Stage {
    shared: Shared,
    /// The namespace of the test, which both members have.
    own: String,
    /// Name of the user that the tests try to impersonate.
    bob: String,
    /// User that may impersonate bob in `member1` with all groups, uid and extra fields, but in `member2` only with one
    /// group.
    ann: String,
    /// User that may impersonate bob in `member2` with any group, uid and extra field, but not in `member1`.
    ced: String,
    /// User that may impersonate any user in both members.
    zoe: String,
    /// User without any right to impersonate.
    eve: String,
}

impl Stage {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let shared = Shared::start(context).await?;
        let own = context.namespace("acting", &shared.members).await?;
        let [bob, ann, ced, zoe, eve] = ["bob", "ann", "ced", "zoe", "eve"].map(namespace::unique_name);
        let stage = Self { shared, own, bob, ann, ced, zoe, eve };
        stage.furnish().await?;
        Ok(stage)
    }

    /// Creates the objects, roles and bindings of the test.
    async fn furnish(&self) -> anyhow::Result<()> {
        let Self { own, bob, .. } = self;
        let reads = ["get", "list", "watch"];
        let changes = [&reads[..], &["create", "patch", "delete"]].concat();
        let rule =
            |resource: &str, verbs: &[&str]| json!([{"apiGroups": [""], "resources": [resource], "verbs": verbs}]);
        for member in &self.shared.members {
            make_config_map(member, own, &format!("of-{}", member.name()), 10).await?;
            for (path, kind) in [("endpoints", "Endpoints"), ("serviceaccounts", "ServiceAccount")] {
                let metadata = json!({"name": format!("of-{}", member.name())});
                let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
                member.http().post(&format!("/api/v1/namespaces/{own}/{path}"), &object).send().await?.expect(201)?;
            }
            self.give(member, own, "User", bob, rule("configmaps", &changes)).await?;
            let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["impersonate"]}]);
            self.give(member, "", "User", &self.zoe, all).await?;
        }
        let [one, two] = &self.shared.members;
        self.give(one, own, "Group", OPS, rule("serviceaccounts", &changes)).await?;
        self.give(two, own, "Group", DEV, rule("endpoints", &changes)).await?;
        let accounts = format!("system:serviceaccounts:{own}");
        self.give(one, own, "Group", &accounts, rule("configmaps", &reads)).await?;

        let may_be = |group: &str, resources: &[String], names: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["impersonate"], "resourceNames": names});
        let is = |resource: &str| vec![resource.to_owned()];
        let extras: Vec<_> = EXTRAS.iter().map(|(key, _)| format!("userextras/{key}")).collect();
        let of_authentication = "authentication.k8s.io";
        let rules = json!([
            may_be("", &is("users"), &[bob]),
            may_be("", &is("groups"), &[DEV, OPS]),
            may_be("", &is("serviceaccounts"), &["robot"]),
            may_be(of_authentication, &is("uids"), &[UID]),
            may_be(of_authentication, &extras, &VALUES),
        ]);
        self.give(one, "", "User", &self.ann, rules).await?;
        let rules = json!([may_be("", &is("users"), &[bob]), may_be("", &is("groups"), &[DEV])]);
        self.give(two, "", "User", &self.ann, rules).await?;
        let resources = [&["groups".to_owned(), "uids".to_owned()][..], &extras].concat();
        let all = json!({"apiGroups": ["", of_authentication], "resources": resources, "verbs": ["impersonate"]});
        let rules = json!([may_be("", &is("users"), &[bob]), all]);
        self.give(two, "", "User", &self.ced, rules).await
    }

    /// Creates a role with these rules and binds it to a subject. The role is for one namespace, or for the whole
    /// cluster if the namespace is empty.
    async fn give(
        &self,
        member: &TestCluster,
        namespace: &str,
        kind_of_subject: &str,
        subject: &str,
        rules: Value,
    ) -> anyhow::Result<()> {
        let (kind, place) = match namespace {
            "" => ("ClusterRole", String::new()),
            namespace => ("Role", format!("/namespaces/{namespace}")),
        };
        let (api, name) = ("rbac.authorization.k8s.io", namespace::unique_name("acting"));
        let path = |suffix: &str| format!("/apis/{api}/v1{place}/{}{suffix}", kind.to_lowercase());
        let metadata = json!({"name": name});
        let role = json!({"apiVersion": format!("{api}/v1"), "kind": kind, "metadata": metadata, "rules": rules});
        member.http().post(&path("s"), &role).send().await?.expect(201)?;
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "subjects": [{"apiGroup": api, "kind": kind_of_subject, "name": subject}],
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        });
        member.http().post(&path("bindings"), &binding).send().await?.expect(201).map(drop)
    }

    async fn person(&self, name: &str) -> anyhow::Result<Person> {
        let [one, two] = &self.shared.members;
        let here = self.shared.http(name, &[]).await?;
        let there = [one.http_of(name, &[]).await?, two.http_of(name, &[]).await?];
        Ok(Person { name: name.to_owned(), may_be_somebody: name != self.eve, here, there })
    }

    /// Returns the combinations of impersonation headers that the test sends.
    fn asked(&self) -> Vec<ImpersonationCase> {
        let bob = || ImpersonationCase::user(&self.bob);
        let robot = format!("system:serviceaccount:{}:robot", self.own);
        let [scopes, capitals, plain] = EXTRAS.map(|(_, header)| header);
        let [x, other] = VALUES;
        vec![
            bob(),
            bob().group(DEV),
            bob().group(OPS).group(DEV),
            bob().group(DEV).group("nobody-may-be-of-this"),
            bob().group("system:authenticated"),
            bob().and("Impersonate-Uid", UID),
            bob().and("Impersonate-Uid", "another"),
            bob().and(scopes, x).and(scopes, other),
            bob().and(scopes, x).and(scopes, "another"),
            bob().and(capitals, other).and(plain, x).group(OPS),
            bob().and("Impersonate-Extra-unknown", x),
            ImpersonationCase::user(&robot),
            ImpersonationCase::user(&robot).group(OPS),
            ImpersonationCase::user("somebody else"),
        ]
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.own)
    }

    /// Sends a user's request with impersonation headers directly to each member.
    async fn there(
        &self,
        person: &Person,
        asked: &ImpersonationCase,
        request: impl Fn(&HttpClient) -> RequestBuilder,
    ) -> anyhow::Result<Vec<HttpResponse>> {
        let [one, two] = &person.there;
        let (one, two) = tokio::try_join!(asked.put(request(one)).send(), asked.put(request(two)).send())?;
        Ok(vec![one, two])
    }

    /// Compares all requests of a user with these headers. The comparison is repeated until the responses agree,
    /// because Tributary applies rights with a delay.
    async fn same_soon(&self, person: &Person, asked: &ImpersonationCase) -> anyhow::Result<()> {
        let same = async || self.same(person, asked).await;
        eventually(SOON, same).await.with_context(|| format!("{} as {:?}", person.name, asked.headers))
    }

    async fn same(&self, person: &Person, asked: &ImpersonationCase) -> anyhow::Result<()> {
        for resource in ["configmaps", "serviceaccounts", "endpoints"] {
            self.lists(person, asked, resource).await.with_context(|| format!("list {resource}"))?;
            for name in ["of-member1", "of-member2", "nowhere"] {
                self.of_a_name(person, asked, resource, name).await.with_context(|| format!("{resource} {name}"))?;
            }
        }
        self.of_each_member(person, asked).await?;
        self.reviews(person, asked).await
    }

    /// Compares lists of a namespace and of all namespaces, a list as a Table, and a watch. A list must have the
    /// objects of the members that allow the same list.
    async fn lists(&self, person: &Person, asked: &ImpersonationCase, resource: &str) -> anyhow::Result<()> {
        let path = self.path(resource);
        let answers = self.there(person, asked, |http| http.get(&path)).await?;
        let mut there = None::<Seen>;
        for (member, answer) in self.shared.members.iter().zip(&answers).filter(|(_, answer)| answer.status == 200) {
            there.get_or_insert_default().extend(self.seen(&answer.json()?["items"], Some(member.name()))?);
        }
        let ask = |path: &str| asked.put(person.here.get(path));
        let everywhere = format!("/api/v1/{resource}");
        let watch = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let watch = format!("{path}?{watch}&timeoutSeconds=20");
        let Some(there) = there else {
            for request in [ask(&path), ask(&everywhere), ask(&path).accept(TABLE), ask(&watch)] {
                let refused = request.send().await?.expect(403)?.text();
                ensure!(!refused.contains("member1") && !refused.contains("member2"), "{refused}");
            }
            return Ok(());
        };
        for path in [&path, &everywhere] {
            let list = ask(path).send().await?.expect(200)?;
            ensure!(self.seen(&list.json()?["items"], None)? == there, "{} instead of {there:?}", list.text());
        }
        let table = ask(&path).accept(TABLE).send().await?.expect(200)?.json()?;
        let rows = table["rows"].as_array().context("no rows")?.iter().map(|row| row["object"].clone()).collect();
        ensure!(self.seen(&Value::Array(rows), None)? == there, "{table} instead of {there:?}");
        let mut events = ask(&watch).stream().await?.events()?;
        let mut items = Vec::new();
        loop {
            let event = events.next(SOON).await?.context("the watch ended before its bookmark")?;
            match event["type"].as_str() {
                Some("ADDED") => items.push(event["object"].clone()),
                Some("BOOKMARK") => break,
                _ => anyhow::bail!("{event}"),
            }
        }
        ensure!(self.seen(&Value::Array(items.clone()), None)? == there, "a watch: {items:?} instead of {there:?}");
        Ok(())
    }

    /// Returns the objects of this test in a list.
    fn seen(&self, items: &Value, cluster: Option<&str>) -> anyhow::Result<Seen> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let own = items.as_array().context("no items")?.iter().map(|item| &item["metadata"]);
        let own = own.filter(|metadata| metadata["namespace"] == json!(self.own));
        let named = own.map(|metadata| {
            let cluster =
                cluster.map_or_else(|| text(&metadata["annotations"]["tributary.dev/cluster"]), str::to_owned);
            (cluster, text(&metadata["name"]))
        });
        Ok(named.filter(|(_, name)| name.starts_with("of-")).collect())
    }

    /// Compares reads and writes of one object. If the user may see the object, the response must be the response of
    /// the member with the object. Otherwise it must be 404 or 403.
    async fn of_a_name(
        &self,
        person: &Person,
        asked: &ImpersonationCase,
        resource: &str,
        name: &str,
    ) -> anyhow::Result<()> {
        let path = format!("{}/{name}", self.path(resource));
        let patch = json!({"metadata": {"labels": {"touched": "yes"}}});
        let send = |http: &HttpClient, method: Method| match method {
            Method::PATCH => http.patch(&format!("{path}?dryRun=All"), "merge-patch+json", &patch),
            Method::DELETE => http.delete(&format!("{path}?dryRun=All")),
            _ => http.get(&path),
        };
        let read = self.there(person, asked, |http| send(http, Method::GET)).await?;
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            let answers = self.there(person, asked, |http| send(http, method.clone())).await?;
            let statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
            let owner = self.shared.members.iter().position(|member| name == format!("of-{}", member.name()));
            // The user may see that the member has the object in two cases: the member allows the user to read the
            // object, or it allows the request itself.
            let owner = owner.filter(|&at| statuses[at] != 403 || read[at].status != 403);
            let expected = match owner {
                Some(owner) => statuses[owner],
                None => [404, 403].into_iter().find(|status| statuses.contains(status)).unwrap_or(403),
            };
            let answer = asked.put(send(&person.here, method.clone())).send().await?;
            let answer = answer.expect(expected).with_context(|| format!("{method} where members say {statuses:?}"))?;
            if expected == 403 {
                same_refusal(person, &answer, &answers)?;
            }
        }
        Ok(())
    }

    /// Compares requests to the path of each member at the endpoint with the member's responses.
    async fn of_each_member(&self, person: &Person, asked: &ImpersonationCase) -> anyhow::Result<()> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let maps = self.path("configmaps");
        let secrets = self.path("secrets");
        for (at, member) in self.shared.members.iter().enumerate() {
            let here = person.here.below(&format!("/clusters/{}", member.name()));
            let there = &person.there[at];
            let whoami = asked.put(there.post(who, &review)).send().await?;
            let answer = asked.put(here.post(who, &review)).send().await?.expect(whoami.status.as_u16())?;
            match whoami.status.as_u16() {
                201 => ensure!(answer.json()?["status"] == whoami.json()?["status"], "{}", answer.text()),
                _ => same_refusal(person, &answer, [&whoami])?,
            }
            for path in [&maps, &secrets] {
                let direct = asked.put(there.get(path)).send().await?;
                let answer = asked.put(here.get(path)).send().await?.expect(direct.status.as_u16())?;
                match direct.status.as_u16() {
                    200 => {
                        let names = self.seen(&direct.json()?["items"], Some(member.name()))?;
                        ensure!(
                            self.seen(&answer.json()?["items"], Some(member.name()))? == names,
                            "{}",
                            answer.text()
                        );
                    }
                    _ => same_refusal(person, &answer, [&direct])?,
                }
            }
        }
        Ok(())
    }

    /// Compares the user's self-reviews of identity and rights.
    async fn reviews(&self, person: &Person, asked: &ImpersonationCase) -> anyhow::Result<()> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let there = self.there(person, asked, |http| http.post(who, &review)).await?;
        let known = there.iter().find(|answer| answer.status == 201);
        let here = asked.put(person.here.post(who, &review)).send().await?;
        let here = here.expect(if known.is_some() { 201 } else { 403 })?;
        match known {
            Some(known) => ensure!(here.json()?["status"] == known.json()?["status"], "{}", here.text()),
            None => same_refusal(person, &here, &there)?,
        }
        for (verb, resource) in
            [("list", "configmaps"), ("get", "endpoints"), ("list", "serviceaccounts"), ("list", "secrets")]
        {
            let attributes = json!({"verb": verb, "resource": resource, "namespace": self.own});
            let kind = "SelfSubjectAccessReview";
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {"resourceAttributes": attributes}});
            let may = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let there = self.there(person, asked, |http| http.post(may, &review)).await?;
            let here = asked.put(person.here.post(may, &review)).send().await?;
            if there.iter().all(|answer| answer.status == 403) {
                here.expect(403)?;
                continue;
            }
            let mut allowed = false;
            for answer in there.iter().filter(|answer| answer.status == 201) {
                allowed |= answer.json()?["status"]["allowed"] == json!(true);
            }
            let here = here.expect(201)?;
            ensure!(here.json()?["status"]["allowed"] == json!(allowed), "{verb} {resource}: {}", here.text());
        }
        Ok(())
    }
}

/// Checks a refusal. If every member denies the impersonation, the refusal must have a member's message about the
/// impersonation. Otherwise it must have the message of a member that allows the impersonation.
///
/// A kube-apiserver remembers with which impersonation mode it last allowed a user to impersonate. It tries this mode
/// first, and refuses with the message of this mode. For a user with the verb `impersonate`, the message therefore
/// depends on earlier requests, so the test checks only that the request is refused.
fn same_refusal<'a>(
    person: &Person,
    here: &HttpResponse,
    there: impl IntoIterator<Item = &'a HttpResponse>,
) -> anyhow::Result<()> {
    let message = |answer: &HttpResponse| anyhow::Ok(answer.json()?["message"].as_str().unwrap_or_default().to_owned());
    let refused = there.into_iter().filter(|answer| answer.status == 403);
    let (here, there) = (message(here)?, refused.map(message).collect::<Result<Vec<String>, _>>()?);
    let words = format!("User \"{}\" cannot impersonate", person.name);
    let may_act = there.iter().any(|message| !message.contains(&words));
    let is_same = match may_act {
        true => !here.contains(&words) && there.contains(&here),
        false => there.contains(&here) || (person.may_be_somebody && here.contains(&words)),
    };
    ensure!(is_same, "{here} here, {there:?} there");
    Ok(())
}

async fn impersonation_is_allowed_in_each_member_by_the_rbac_of_that_member(
    context: TestContext,
) -> anyhow::Result<()> {
    let stage = Stage::start(&context).await?;
    let mut people = Vec::new();
    for name in [&stage.ann, &stage.ced, &stage.zoe, &stage.eve] {
        people.push(stage.person(name).await?);
    }
    let asked = stage.asked();
    let pairs: Vec<_> = people.iter().flat_map(|person| asked.iter().map(move |asked| (person, asked))).collect();
    let compared = pairs.iter().map(|(person, asked)| stage.same_soon(person, asked)).collect::<Vec<_>>();
    stream::iter(compared).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    // Without the header `Impersonate-User`, the other impersonation headers are invalid. The member and the endpoint
    // must both refuse them.
    let [ann, ..] = &people[..] else { anyhow::bail!("nobody") };
    let without =
        ImpersonationCase { headers: vec![("Impersonate-Group", DEV.to_owned()), ("Impersonate-Uid", UID.to_owned())] };
    let maps = stage.path("configmaps");
    for answer in stage.there(ann, &without, |http| http.get(&maps)).await? {
        answer.expect(400)?;
    }
    without.put(ann.here.get(&maps)).send().await?.expect(400).map(drop)
}

/// A user that may impersonate every user and group of a member can use `system:masters` directly at the member.
/// Through the endpoint, the user must never get this group.
async fn impersonation_of_reserved_system_identities_is_refused(context: TestContext) -> anyhow::Result<()> {
    let stage = Stage::start(&context).await?;
    let zoe = stage.person(&stage.zoe).await?;
    let everybody = |asked: &ImpersonationCase, path: &str| asked.put(zoe.here.get(path)).send();
    eventually(SOON, async || {
        everybody(&ImpersonationCase::user(&stage.bob), &stage.path("configmaps")).await?.expect(200).map(drop)
    })
    .await?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let node = "system:node:member1-node-0";
    for (asked, never) in [
        (ImpersonationCase::user(&stage.bob).group("system:masters"), "system:masters"),
        (ImpersonationCase::user(&stage.bob).group(DEV).group("system:masters"), "system:masters"),
        (ImpersonationCase::user(&stage.bob).group("system:nodes"), "system:nodes"),
        (ImpersonationCase::user(&stage.bob).group("system:unauthenticated"), "system:unauthenticated"),
        (ImpersonationCase::user("system:masters"), "system:masters"),
        (ImpersonationCase::user("system:anonymous"), "system:anonymous"),
        (ImpersonationCase::user(node), node),
        (ImpersonationCase::user(node).group("system:nodes"), node),
    ] {
        let is_master = never == "system:masters" && asked.headers.len() > 1;
        if is_master {
            for answer in stage.there(&zoe, &asked, |http| http.get("/api/v1/nodes")).await? {
                answer.expect(200).context("a member lets its masters do everything")?;
            }
        }
        for prefix in ["", "/clusters/member1", "/clusters/member2"] {
            let here = zoe.here.below(prefix);
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never"}});
            for request in [
                here.get("/api/v1/nodes"),
                here.get(&stage.path("configmaps")),
                here.get(&format!("{}/of-member1", stage.path("configmaps"))),
                here.get(&format!("{}?watch=1", stage.path("configmaps"))),
                here.post(&stage.path("configmaps"), &map),
                here.delete(&format!("{}/of-member1", stage.path("configmaps"))),
                here.post(who, &review),
            ] {
                let refused = asked.put(request).send().await?.expect(403)?;
                let words = format!("{never:?} is never sent to a cluster");
                ensure!(refused.text().contains(&words.replace('"', "\\\"")), "{asked:?}: {}", refused.text());
            }
        }
    }
    for member in &stage.shared.members {
        member.http().get(&format!("{}/of-{}", stage.path("configmaps"), member.name())).send().await?.expect(200)?;
        member.http().get(&format!("{}/never", stage.path("configmaps"))).send().await?.expect(404)?;
    }
    Ok(())
}

async fn kubectl_impersonates_with_all_as_flags(context: TestContext) -> anyhow::Result<()> {
    let stage = Stage::start(&context).await?;
    let (own, bob) = (stage.own.as_str(), stage.bob.as_str());
    let ann = stage.shared.kubectl(&context, &stage.ann, &[]).await?;
    let as_bob = ["--as", bob];
    let with_all = [&as_bob[..], &["--as-group", OPS, "--as-group", DEV, "--as-uid", UID]].concat();
    let extra = format!("scopes.example.com/a={}", VALUES[1]);
    let with_all = [&with_all[..], &["--as-user-extra", &extra, "--as-user-extra", "plain=x"]].concat();
    let names = async |kubectl: &Kubectl, further: &[&str]| {
        let listed = kubectl.ok(&[&["get", "configmaps", "-n", own, "-o", "name"], further].concat()).await?;
        anyhow::Ok(listed.lines().map(str::to_owned).filter(|name| name.contains("of-")).collect::<Vec<_>>())
    };
    eventually(SOON, async || {
        let (both, one) = (names(&ann, &as_bob).await?, names(&ann, &with_all).await?);
        ensure!(both == ["configmap/of-member1", "configmap/of-member2"], "{both:?}");
        ensure!(one == ["configmap/of-member1"], "{one:?}");
        Ok(())
    })
    .await?;

    // The member that allows ann to impersonate bob with all groups must execute the write as bob.
    let in_place = [&["-n", own], &with_all[..]].concat();
    ann.ok(&[&["create", "configmap", "made"], &in_place[..]].concat()).await?;
    ann.ok(&[&["label", "configmap", "made", "by=bob"], &in_place[..]].concat()).await?;
    let path = format!("{}/made", stage.path("configmaps"));
    let made = stage.shared.members[0].http().get(&path).send().await?.expect(200)?.json()?;
    ensure!(made["metadata"]["labels"] == json!({"by": "bob"}), "{made}");
    stage.shared.members[1].http().get(&path).send().await?.expect(404)?;
    let refused = ann.run(&[&["create", "secret", "generic", "s"], &in_place[..]].concat()).await?.failure()?;
    ensure!(refused.contains(&format!("User \"{bob}\" cannot create resource \"secrets\"")), "{refused}");
    ann.ok(&[&["delete", "configmap", "made"], &in_place[..]].concat()).await?;

    // The self-reviews of identity and rights must have the same results as at the member.
    let direct = directly(&context, &stage, &stage.ann).await?;
    let whoami = [&["auth", "whoami", "-o", "json"], &with_all[..]].concat();
    let user = |text: String| anyhow::Ok(serde_json::from_str::<Value>(&text)?["status"]["userInfo"].clone());
    let (there, here) = (user(direct.ok(&whoami).await?)?, user(ann.ok(&whoami).await?)?);
    let of_member = user(ann.ok(&[&["--context", "member1"], &whoami[..]].concat()).await?)?;
    ensure!(here == there && of_member == there, "{here} and {of_member} instead of {there}");
    let groups = json!([OPS, DEV, "system:authenticated"]);
    ensure!(there["username"] == json!(bob) && there["uid"] == json!(UID) && there["groups"] == groups, "{there}");
    for question in [
        &["list", "configmaps"][..],
        &["delete", "configmaps"],
        &["list", "serviceaccounts"],
        &["list", "secrets"],
        &["create", "pods"],
    ] {
        let question = [&["auth", "can-i"], question, &in_place[..]].concat();
        let (there, here) = (direct.run(&question).await?, ann.run(&question).await?);
        ensure!(
            (there.code, &there.stdout) == (here.code, &here.stdout),
            "{question:?}: {here:?} instead of {there:?}"
        );
    }
    // A user without the right to impersonate must get a refusal for every command.
    let eve = stage.shared.kubectl(&context, &stage.eve, &[]).await?;
    let direct = directly(&context, &stage, &stage.eve).await?;
    let words = format!("User \"{}\" cannot impersonate", stage.eve);
    for command in [&["get", "configmaps", "-n", own][..], &["auth", "can-i", "list", "pods"], &["auth", "whoami"]] {
        let refused = eve.run(&[command, &as_bob].concat()).await?.failure()?;
        let there = direct.run(&[command, &as_bob].concat()).await?.failure()?;
        if command[1] == "whoami" {
            // kubectl formats this refusal. The output must be the same as with the member.
            ensure!(refused == there, "{refused} instead of {there}");
            continue;
        }
        // A member refuses even kubectl's discovery requests, and kubectl formats this error differently. Therefore the
        // test only checks that kubectl prints Tributary's message.
        ensure!(refused.contains(&words), "{command:?}: {refused}, and at the member {there}");
    }
    Ok(())
}

/// Returns a kubectl of a user that connects to `member1` directly.
async fn directly(context: &TestContext, stage: &Stage, name: &str) -> anyhow::Result<Kubectl> {
    let member: &Arc<TestCluster> = &stage.shared.members[0];
    let path = stage.shared.folder.path().join(namespace::unique_name("direct"));
    member.write_kubeconfig_of(&path, name, &[])?;
    Kubectl::new(context.fixture.tools().await?, &path)
}
