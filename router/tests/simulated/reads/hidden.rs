//! Tests of the shared mode: which clusters are visible for a request, and that no response reveals a hidden cluster.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tributary_router::Policies;
use tributary_router::report::RightsCondition;

use crate::access::rights::{config_map_of, listed};
use crate::harness::{Answer, Client, allow, config_map, pass, until};
use crate::membership::members::{ALL_VERBS, SHOP, allow_to, fixture, write};

/// If the caller has no rights in a cluster, an object there looks like a missing object. No message and no request to
/// members reveals the difference.
#[tokio::test]
async fn object_in_a_hidden_cluster_looks_like_a_missing_object() {
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
    // A hidden name causes the same requests to members as a missing name.
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

/// Messages name only the clusters that are visible to the caller, also while a hidden cluster is unreachable.
#[tokio::test]
async fn messages_name_no_hidden_cluster() {
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
        let nothing = format!("{SHOP}/nothing");
        for missing in [ann.get(&nothing).await, ann.send("DELETE", &nothing, &[], "").await] {
            said.push(missing.refused(404));
            assert_eq!(missing.warnings(), [""; 0]);
        }
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

/// For a read, an access review is allowed if any visible cluster allows the read. For a write, it is allowed only if
/// all visible clusters allow the write.
#[tokio::test]
async fn access_review_asks_only_visible_clusters() {
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
    // The hidden cluster is unreachable now. The response must not mention it.
    fixture.member("c").control().stop_listening().await;
    fixture.out_of_reach("c").await;
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"namespace": "shop", "verb": "get", "resource": "configmaps"}}});
    let answer = write(&ann, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await;
    assert!(answer.warnings().is_empty() && answer.ok()["status"].get("evaluationError").is_none(), "{answer:?}");
}

/// A version in the response to a write contains the scope of the writer's rights, like a version from memory. The
/// router accepts it later.
#[tokio::test]
async fn versions_of_write_responses_equal_those_from_memory() {
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

/// The rights in `c` are unknown, and `c` may have the object. So the router refuses the request. The message must not
/// name `c`.
#[tokio::test]
async fn writes_are_refused_while_a_clusters_rights_are_unknown() {
    let (fixture, rbac) = fixture(["a", "b", "c"]).await;
    let root = fixture.user("root", &[]);
    fixture.router.set_policies(tributary_router::Policies::default());
    crate::access::rights::refuse_rbac(fixture.member("c"), true);
    fixture.member("c").control().cut_streams();
    until(async || {
        let report = fixture.router.report().await;
        report.clusters[2].rights == Some(tributary_router::report::RightsCondition::Behind)
    })
    .await;
    crate::harness::pass(std::time::Duration::from_secs(5 * 60 + 30)).await;
    rbac.iter().for_each(|own| drop(own.came()));
    let words = "your rights in some clusters are unknown until an administrator removes the cause; an \
                 administrator sees the clusters and the remedies with tributary status";
    let unknown = |name: &str| format!("configmaps{name}: {words}");
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
    // For these requests, memory or the annotation names the cluster, so the unknown rights in `c` do not matter.
    root.get(&format!("{SHOP}/of-a")).await.ok();
    root.get(&format!("{SHOP}/of-a/nothing")).await.refused(404);
    let mut named = config_map_of("shop", "of-a");
    named["metadata"]["annotations"] = json!({"tributary.dev/cluster": "a"});
    write(&root, "PUT", &format!("{SHOP}/of-a"), &named).await.ok();
}

/// To find the cluster of a new object, the router uses only clusters that the writer may see. An owner, or a record of
/// a Helm release, in a hidden cluster looks like a missing one.
#[tokio::test]
async fn write_placement_ignores_objects_in_hidden_clusters() {
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
        // The user `root` has rights in `c`, so the object goes to `c`.
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

/// If the router does not cache a resource, it lists the resource as the caller, and only in clusters that allow the
/// caller to list it.
#[tokio::test]
async fn uncached_list_reads_only_clusters_that_allow_it() {
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

/// If a selector names a cluster that the caller may not know, the Warning is the same as for a cluster that does not
/// exist.
#[tokio::test]
async fn selector_with_a_hidden_cluster_gets_the_unknown_name_warning() {
    let (fixture, _rbac) = fixture(["a", "b", "c"]).await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let told = async |client: &Client, method: &str, selector: &str, query: &str| {
        let path = format!("{SHOP}?labelSelector=tributary.dev/cluster{selector}{query}");
        let answer = client.send(method, &path, &[], "").await;
        (answer.code, answer.warnings())
    };
    let warning = |name: &str| {
        let text = "the label selector names clusters that do not exist, or where you may not read this";
        vec![format!("299 - \"{text}: {name}\"")]
    };
    for query in ["", "&watch=1&timeoutSeconds=1", "&limit=1"] {
        for name in ["c", "nowhere"] {
            let (code, warnings) = told(&ann, "GET", &format!("+in+(a,{name})"), query).await;
            assert_eq!((code, warnings), (200, warning(name)), "{query}");
            let (code, warnings) = told(&ann, "GET", &format!("!%3D{name}"), query).await;
            assert_eq!((code, warnings), (200, Vec::new()), "{query}");
        }
        assert_eq!(told(&ann, "GET", "%3Dc", query).await, told(&ann, "GET", "%3Dnowhere", query).await);
        assert_eq!(told(&root, "GET", "+in+(a,c)", query).await, (200, Vec::new()));
    }
}

/// A request for a missing object makes Tributary read discovery again, but only in clusters in which the caller may
/// get the object. So the duration of the 404 does not reveal a hidden cluster.
#[tokio::test]
async fn not_found_does_not_wait_for_a_hidden_cluster() {
    let (fixture, _rbac) = fixture(["a", "b", "c"]).await;
    let (ann, root, c) = (fixture.user("ann", &[]), fixture.user("root", &[]), fixture.member("c").control());
    c.serve("configmaps", false);
    until(async || {
        // This request makes Tributary read the discovery of the members again.
        root.get("/apis/unknown.io/v1").await;
        root.get(&format!("{SHOP}/of-c")).await.code == 404
    })
    .await;
    c.hold_requests(true);
    let answered_after = async |client: &Client, method: &str| {
        // Tributary reads the discovery of a member at most once in 2 s. After this pause, it may read it again.
        pass(Duration::from_millis(2500)).await;
        let begun = Instant::now();
        client.send(method, &format!("{SHOP}/nothing"), &[], "").await.refused(404);
        begun.elapsed()
    };
    for method in ["GET", "DELETE"] {
        let waited = answered_after(&ann, method).await;
        assert!(waited < Duration::from_secs(2), "{method}: {waited:?}");
    }
}

/// While the rights in `c` are unknown, a selector with `c` gets the same response as a selector with an unknown name.
/// This applies to reads from memory and from members, and to users with and without rights in other clusters.
#[tokio::test]
async fn selector_hides_the_existence_of_clusters_with_unknown_rights() {
    let (fixture, _rbac) = fixture(["a", "b", "c"]).await;
    crate::access::rights::refuse_rbac(fixture.member("c"), true);
    fixture.member("c").control().cut_streams();
    until(async || fixture.router.report().await.clusters[2].rights == Some(RightsCondition::Behind)).await;
    pass(Duration::from_secs(5 * 60 + 30)).await;
    let live = |policies: Policies| Policies { registered: Some(Vec::new()), ..policies };
    let missing = "your rights in some clusters are not known, and the objects of these clusters are missing";
    for (policies, is_live, unknown) in [
        (allow(), false, 200),
        (Policies::default(), false, 429),
        (live(allow()), true, 200),
        (live(Policies::default()), true, 429),
    ] {
        fixture.router.set_policies(policies);
        for user in ["eve", "ann"] {
            let client = fixture.user(user, &[]);
            let told = async |method: &str, selector: &str, name: &str, query: &str| {
                let selector = selector.replace('N', name);
                let path = format!("{SHOP}?labelSelector=tributary.dev/cluster{selector}{query}");
                let answer = client.send(method, &path, &[], "").await;
                let warnings: Vec<_> =
                    answer.warnings().iter().map(|own| own.replace(&format!("{name}\""), "N\"")).collect();
                (answer.code, warnings)
            };
            for (selector, query) in
                [("%3DN", ""), ("+in+(a,N)", ""), ("!%3DN", ""), ("%3DN", "&watch=1&timeoutSeconds=1")]
            {
                if is_live && !query.is_empty() {
                    continue;
                }
                let of_c = told("GET", selector, "c", query).await;
                assert_eq!(of_c, told("GET", selector, "nowhere", query).await, "{user} {selector} {query}");
                assert_eq!(of_c.0, unknown, "{user} {selector} {query}: {of_c:?}");
                let warns = of_c.1.iter().any(|own| own.contains(missing));
                assert!(unknown == 429 || !query.is_empty() || warns, "{user} {selector}: {of_c:?}");
            }
            let of_c = told("DELETE", "%3DN", "c", "").await;
            assert_eq!(of_c, told("DELETE", "%3DN", "nowhere", "").await, "{user}");
        }
        // A selector that excludes `c` is not affected by the unknown rights.
        let path = format!("{SHOP}?labelSelector=tributary.dev/cluster%3Da");
        let answer = fixture.user("ann", &[]).get(&path).await;
        assert_eq!((answer.code, answer.warnings()), (200, Vec::new()));
    }
}
