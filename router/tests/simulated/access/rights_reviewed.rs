//! Tests of the shared mode with members that authorize by more than roles and bindings. The router sends
//! SubjectAccessReviews to these members, and responses from memory follow the results.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tributary_apimachinery::ClusterName;
use tributary_router::report::RightsDecider;
use tributary_router::{ClusterAuthorization, ClusterSetup, DispatchSettings, EntryPointPolicies, MemberRules, limits};

use crate::access::rights::{RBAC, binding, config_map_of, grant, listed, role};
use crate::access::rights_detected::{Chain, Mode, decided, found_out, report};
use crate::harness::{Client, Fixture, at_once, items, pass, until};

const ALL: &str = "/api/v1/configmaps";
const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// The time for which the router caches a review that allows a request, and one that denies a request.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// Starts the members of [`ann`] with `b` in this mode, and waits until the router has detected the mode.
async fn of_b(mode: Mode) -> (Fixture, Vec<Arc<Chain>>) {
    let (fixture, chains) = found_out([Mode::Rbac, mode, Mode::Rbac]).await;
    decided(&fixture, "a", RightsDecider::Rbac).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    decided(&fixture, "c", RightsDecider::Rbac).await;
    chains.iter().for_each(|chain| drop(chain.reviewed()));
    (fixture, chains)
}

/// Returns the names of a list's objects of `b`, in order.
async fn shown(client: &Client, path: &str) -> Vec<String> {
    let listed = items(&client.get(path).await.ok());
    let mut of_b: Vec<_> = listed.iter().filter_map(|item| item.strip_prefix("b/")).map(str::to_owned).collect();
    of_b.sort();
    of_b
}

/// Returns the reviews of lists that a member has received since the previous call. Samples are left out.
fn asked(chain: &Chain) -> Vec<String> {
    let mut asked = chain.reviewed();
    asked.retain(|line| line.contains(" list configmaps "));
    asked.sort();
    asked
}

#[tokio::test]
async fn objects_that_an_authorization_webhook_denies_are_hidden() {
    let (fixture, chains) = of_b(Mode::Webhook("ann", "shop")).await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    // Roles allow Ann to read the namespace `shop` of `b`, and the webhook denies it.
    for path in [ALL, SHOP] {
        assert_eq!(shown(&ann, path).await, Vec::<String>::new(), "{path}");
    }
    ann.get(&format!("{SHOP}/one-b")).await.refused(404);
    assert_eq!(items(&ann.get(ALL).await.ok()).len(), 4, "all of a");
    assert_eq!(shown(&root, ALL).await, ["one-b", "one-b", "two-b", "two-b"]);
    assert_eq!(root.get(&format!("{SHOP}/one-b")).await.code, 200);
    // The router caches reviews, and sends none to clusters that authorize by roles only. Samples, which all members
    // receive from time to time, are left out.
    let anew = at_once(async {
        chains.iter().for_each(|chain| drop(chain.reviewed()));
        for path in [ALL, SHOP] {
            shown(&root, path).await;
        }
        chains.iter().map(|chain| asked(chain)).collect::<Vec<_>>()
    });
    assert_eq!(anew.await, vec![Vec::<String>::new(); 3]);
    // The webhook now denies the namespace `bank`, so the router shows the objects in `shop` again.
    chains[1].set(Mode::Webhook("ann", "bank"));
    pass(REFUSED_FOR).await;
    for path in [ALL, SHOP] {
        assert_eq!(shown(&ann, path).await, ["one-b", "two-b"], "{path}");
    }
    assert_eq!(ann.get(&format!("{SHOP}/one-b")).await.code, 200);
}

#[tokio::test]
async fn objects_that_a_member_allows_without_a_role_appear_in_lists() {
    let everything = ["one-b", "one-b", "two-b", "two-b"];
    let (fixture, chains) = of_b(Mode::Abac(&["ann"])).await;
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    assert_eq!(shown(&ann, ALL).await, everything);
    bob.get(ALL).await.refused(403);
    // The router caches a denial for ten seconds.
    chains[1].set(Mode::AlwaysAllow);
    pass(REFUSED_FOR).await;
    assert_eq!(shown(&bob, ALL).await, everything);
    assert_eq!(bob.get(&format!("{SHOP}/two-b")).await.code, 200);
}

/// The member itself authorizes a forwarded request. The router sends a review only for a request with versions of the
/// merged view, to check whether the user may know of the object.
#[tokio::test]
async fn read_at_a_members_own_path_needs_no_review() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    let own = format!("/clusters/b{SHOP}/one-b");
    let asked_for = async |path: &str| {
        drop(chains[1].reviewed());
        assert_eq!(ann.get(path).await.code, 200, "{path}");
        chains[1].reviewed().iter().any(|line| line.starts_with("ann get configmaps "))
    };
    assert!(!asked_for(&own).await);
    assert!(asked_for(&format!("{own}?resourceVersion=%30")).await);
}

/// A webhook may deny requests in only one API version.
#[tokio::test]
async fn review_has_the_api_version_of_the_request() {
    let (fixture, chains) = of_b(Mode::WebhookOfVersion("ann", "v1")).await;
    let ann = fixture.user("ann", &[]);
    // The webhook denies only requests in API version `v1`, which these requests have. The roles alone would allow Ann
    // to read the namespace `shop` of `b`.
    for path in [ALL, SHOP] {
        assert_eq!(shown(&ann, path).await, Vec::<String>::new(), "{path}");
    }
    ann.get(&format!("{SHOP}/one-b")).await.refused(404);
    chains[1].set(Mode::WebhookOfVersion("ann", "v2"));
    pass(REFUSED_FOR).await;
    assert_eq!(shown(&ann, SHOP).await, ["one-b", "two-b"]);
    assert_eq!(ann.get(&format!("{SHOP}/one-b")).await.code, 200);
}

/// A review of the right to impersonate has the API version that kube-apiserver itself uses.
#[tokio::test]
async fn impersonation_review_has_kube_apiservers_api_version() {
    let (fixture, chains) = of_b(Mode::WebhookOfVersion("bob", "v1")).await;
    let b = fixture.member("b");
    b.apply(role("", "be-ann", [&["impersonate"], &[""], &["users"], &["ann"]])).unwrap();
    b.apply(binding("", "bob-is-ann", ("ClusterRole", "be-ann"), "bob")).unwrap();
    chains[1].learn(b);
    let bob = fixture.user("bob", &[]);
    let be_ann = async || bob.send("GET", SHOP, &[("impersonate-user", "ann")], "").await.code;
    chains[1].set(Mode::WebhookOfVersion("bob", "v2"));
    until(async || be_ann().await == 200).await;
    chains[1].set(Mode::WebhookOfVersion("bob", "v1"));
    pass(ALLOWED_FOR).await;
    assert_eq!(be_ann().await, 403);
}

/// A user who may read only one object gets the object, and can watch it from the version of this get.
#[tokio::test]
async fn watch_of_one_object_starts_at_the_version_of_its_get() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let b = fixture.member("b");
    b.apply(role("shop", "one", [&["get", "list", "watch"], &[""], &["configmaps"], &["one-b"]])).unwrap();
    b.apply(binding("shop", "bob-reads-one", ("Role", "one"), "bob")).unwrap();
    chains[1].learn(b);
    // Ann may read the whole namespace, and Bob only one object.
    for name in ["bob", "ann"] {
        let user = fixture.user(name, &[]);
        let path = format!("{SHOP}/one-b");
        // After this change, the router's log contains the version of the object.
        let change = |to: &str| {
            let mut changed = config_map_of("shop", "one-b");
            changed["data"]["of"] = to.into();
            b.apply(changed).unwrap();
        };
        change("nobody");
        let is_read = async || {
            let answer = user.get(&path).await;
            answer.code == 200 && answer.ok()["data"]["of"] == "nobody"
        };
        until(is_read).await;
        let from = user.get(&path).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let watch = format!("{SHOP}?watch=1&fieldSelector=metadata.name%3Done-b&resourceVersion={from}");
        let mut events = user.watch(&watch).await;
        change(name);
        let event = events.soon().await;
        assert_eq!((&event["type"], &event["object"]["data"]["of"]), (&"MODIFIED".into(), &name.into()), "{event}");
        // A repeated review with an equal result does not end the watch.
        pass(ALLOWED_FOR + Duration::from_secs(5)).await;
        events.nothing().await;
    }
}

/// A change of roles or bindings of a user may change the result of every review of the user.
#[tokio::test]
async fn changed_binding_causes_a_new_review_immediately() {
    let (fixture, chains) = of_b(Mode::Webhook("ann", "bank")).await;
    let bob = fixture.user("bob", &[]);
    bob.get(SHOP).await.refused(403);
    let b = fixture.member("b");
    b.apply(binding("shop", "bob-reads", ("ClusterRole", "reader"), "bob")).unwrap();
    chains[1].learn(b);
    until(async || bob.get(SHOP).await.code == 200).await;
    assert_eq!(shown(&bob, SHOP).await, ["one-b", "two-b"]);
    b.delete("rolebindings.rbac.authorization.k8s.io", "shop", "bob-reads").unwrap();
    chains[1].learn(b);
    until(async || bob.get(SHOP).await.code == 403).await;
}

/// The watch ends within a minute after the member withdraws the right.
#[tokio::test]
async fn watch_ends_after_a_review_denies_it() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    let b = fixture.member("b");
    b.apply(config_map_of("shop", "seen")).unwrap();
    assert_eq!(events.next().await.unwrap()["object"]["metadata"]["name"], "seen");
    // The router repeats the review during the watch. An unchanged result has no effect.
    pass(ALLOWED_FOR + Duration::from_secs(1)).await;
    b.apply(config_map_of("shop", "seen-too")).unwrap();
    assert_eq!(events.next().await.unwrap()["object"]["metadata"]["name"], "seen-too");
    chains[1].set(Mode::Webhook("ann", "shop"));
    pass(ALLOWED_FOR).await;
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
    assert_eq!(shown(&ann, ALL).await, Vec::<String>::new());
}

/// Ann's other requests keep the member busy with reviews, which delays the denial of her watch.
#[tokio::test]
async fn watch_of_a_flooding_user_ends_after_revocation() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = &fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    events.nothing().await;
    pass(ALLOWED_FOR - Duration::from_secs(3)).await;
    chains[1].set(Mode::Webhook("ann", "shop"));
    // The member processes 25 of Ann's reviews at a time, so all of them take half a minute.
    fixture.member("b").control().lag_reviews(Duration::from_millis(500));
    let busy = futures::future::join_all((0..1_400).map(|number| async move {
        let path = format!("{SHOP}/x{number}");
        ann.get(&path).await.code
    }));
    let last = tokio::select! {
        last = events.next() => last.unwrap(),
        codes = busy => panic!("what she asked is answered first: {codes:?}"),
        () = tokio::time::sleep(Duration::from_secs(15)) => panic!("she still has it"),
    };
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
}

/// Each review takes too long, so the router uses the last results for all namespaces and for one namespace.
#[tokio::test]
async fn list_uses_the_last_review_results_of_a_slow_member() {
    let (fixture, _chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    pass(Duration::from_secs(70)).await;
    fixture.member("b").control().lag_reviews(Duration::from_secs(6));
    let listed = tokio::time::timeout(Duration::from_secs(30), shown(&ann, ALL)).await;
    assert_eq!(listed.expect("it is listed within half a minute"), ["one-b", "two-b"]);
}

/// Each repeated review takes too long, so the router uses the last result for the open watch.
#[tokio::test]
async fn watch_continues_while_a_member_answers_reviews_slowly() {
    let (fixture, _chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    let b = fixture.member("b");
    b.control().lag_reviews(Duration::from_secs(6));
    for _ in 0..8 {
        pass(Duration::from_secs(15)).await;
        events.nothing().await;
    }
    b.apply(config_map_of("shop", "seen")).unwrap();
    assert_eq!(events.soon().await["object"]["metadata"]["name"], "seen");
}

#[tokio::test]
async fn rights_in_a_member_that_refuses_reviews_are_unknown() {
    let (fixture, _chains) = of_b(Mode::WithoutReviews).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await;
    assert_eq!(items(&listed.ok()).len(), 4, "what is of a");
    let missing = "your rights in some clusters are not known, and the objects of these clusters are missing";
    assert!(listed.warnings().iter().any(|warning| warning.contains(missing)), "{:?}", listed.warnings());
}

/// If a policy denies all requests to a cluster, the router sends it no reviews. The router uses the last results for
/// five minutes. Then the rights are unknown.
#[tokio::test]
async fn member_with_dispatch_deny_all_gets_no_reviews() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    let frozen = EntryPointPolicies { denies_all: true, ..EntryPointPolicies::default() };
    let clusters = [(ClusterName::new("b").unwrap(), frozen)].into();
    fixture.router.set_dispatch(DispatchSettings { clusters, ..DispatchSettings::default() });
    chains[1].reviewed();
    // Ann's cached review has expired, but its last result is still used. The rights of users without a review are
    // unknown.
    pass(ALLOWED_FOR + Duration::from_secs(1)).await;
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    let missing = "your rights in some clusters are not known, and the objects of these clusters are missing";
    let is_missing = async |client: &Client| {
        let listed = client.get(ALL).await;
        let of_b = items(&listed.ok()).iter().filter(|item| item.starts_with("b/")).count();
        of_b == 0 && listed.warnings().iter().any(|warning| warning.contains(missing))
    };
    assert!(is_missing(&root).await);
    let problem = report(&fixture, "b").await.rights_problem.unwrap_or_default();
    assert!(problem.contains("dispatch: DenyAll"), "{problem}");
    // The test checks only two minutes, because the router also sends samples, every five minutes.
    pass(Duration::from_secs(60)).await;
    assert!(is_missing(&root).await);
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    assert_eq!(asked(&chains[1]), Vec::<String>::new());
    pass(Duration::from_secs(4 * 60)).await;
    until(async || is_missing(&ann).await).await;
    chains[1].reviewed();
    fixture.router.set_dispatch(DispatchSettings::default());
    until(async || shown(&ann, ALL).await == ["one-b", "two-b"]).await;
    assert!(!asked(&chains[1]).is_empty());
    until(async || report(&fixture, "b").await.rights_problem.is_none()).await;
}

/// A cluster may be configured with `authorization: Review` and forbid reviews. The reported problem then names the
/// remedy.
#[tokio::test]
async fn report_names_a_member_that_forbids_the_configured_reviews() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let mut setups = Vec::new();
    for member in &fixture.members {
        let own = crate::harness::setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization: ClusterAuthorization::Review, ..own });
    }
    fixture.router.set_clusters(setups);
    let problem = async || report(&fixture, "b").await.rights_problem;
    until(async || {
        report(&fixture, "b").await.rights_reason.as_deref() == Some("the configuration sets authorization: Review")
    })
    .await;
    until(async || !chains[1].reviewed().is_empty()).await;
    until(async || problem().await.is_none()).await;
    chains[1].set(Mode::WithoutReviews);
    pass(Duration::from_secs(61)).await;
    let expected = "the cluster answers subjectaccessreviews with 403: Tributary's account needs the verb create on \
                    them; tributary join CONTEXT makes an account with this right, or grant the right \
                    (docs/shared-mode.md)";
    until(async || problem().await.as_deref() == Some(expected)).await;
    assert_eq!(report(&fixture, "a").await.rights_problem, None);
    // The cluster allows reviews now, and the problem disappears.
    chains[1].set(Mode::Rbac);
    pass(Duration::from_secs(61)).await;
    until(async || problem().await.is_none()).await;
    assert_eq!(decided(&fixture, "b", RightsDecider::Review).await, "the configuration sets authorization: Review");
}

/// The router sends a review only once, for any number of waiting requests.
#[tokio::test]
async fn concurrent_lists_share_one_review() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    // With this configuration the router sends no samples, which could look like the reviews that the test counts.
    let mut setups = Vec::new();
    for member in &fixture.members {
        let own = crate::harness::setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization: ClusterAuthorization::Review, ..own });
    }
    fixture.router.set_clusters(setups);
    for name in ["a", "b", "c"] {
        until(async || {
            report(&fixture, name).await.rights_reason.as_deref()
                == Some("the configuration sets authorization: Review")
        })
        .await;
    }
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    until(async || root.get(SHOP).await.code == 200).await;
    until(async || shown(&root, SHOP).await == ["one-b", "two-b"]).await;
    chains[1].reviewed();
    let lists = futures::future::join_all((0..50).map(|_| ann.get(SHOP))).await;
    assert!(lists.iter().all(|listed| listed.code == 200));
    assert_eq!(asked(&chains[1]), ["ann list configmaps /", "ann list configmaps shop/"]);
}

/// A webhook may depend on the uid or an extra field. Each review contains the identity that the member would see.
#[tokio::test]
async fn review_contains_the_identity_that_the_member_would_see() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let mut setups = Vec::new();
    for member in &fixture.members {
        let own = crate::harness::setup(member, member.name()).await;
        let impersonation = MemberRules { uid: true, extra: ["team".to_owned()].into() };
        let authorization = ClusterAuthorization::Review;
        setups.push(ClusterSetup { impersonation, authorization, ..own });
    }
    fixture.router.set_clusters(setups);
    decided(&fixture, "b", RightsDecider::Review).await;
    chains[1].reviewed();
    let mut user = tributary_router::User::named("test", "ann");
    user.info.uid = "u-1".to_owned();
    user.info.extra.insert("team".to_owned(), vec!["blue".to_owned()]);
    user.info.extra.insert("other".to_owned(), vec!["x".to_owned()]);
    let ann = fixture.of_user(user);
    until(async || ann.get(SHOP).await.code == 200).await;
    let lines = chains[1].reviewed();
    let expected = "ann (u-1 {\"team\":[\"blue\"]}) list configmaps shop/";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");
    // A user with the same name but another uid is a different user, so the router sends a new review.
    let plain = fixture.user("ann", &[]);
    plain.get(SHOP).await.ok();
    assert!(chains[1].reviewed().iter().any(|line| line == "ann list configmaps shop/"));
}

#[tokio::test]
async fn lost_right_ends_a_watch_while_another_member_is_silent() {
    let (fixture, _chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    events.nothing().await;
    fixture.member("b").control().hold_requests(true);
    // After this pause, the cached review for `b` has expired.
    pass(ALLOWED_FOR + Duration::from_secs(1)).await;
    fixture.member("a").delete("clusterrolebindings.rbac.authorization.k8s.io", "", "ann-reads").unwrap();
    let lost = tokio::time::Instant::now();
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
    assert!(lost.elapsed() < Duration::from_secs(2), "{:?}", lost.elapsed());
}

/// The router sends reviews to each member independently, so a denial by one member takes effect while a slow member
/// has not answered.
#[tokio::test]
async fn review_denial_by_one_member_does_not_wait_for_another() {
    let (fixture, chains) =
        found_out([Mode::Webhook("nobody", "shop"), Mode::Webhook("nobody", "shop"), Mode::Rbac]).await;
    decided(&fixture, "a", RightsDecider::Review).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    decided(&fixture, "c", RightsDecider::Rbac).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    events.nothing().await;
    pass(ALLOWED_FOR - Duration::from_secs(3)).await;
    fixture.member("b").control().lag_reviews(Duration::from_secs(20));
    chains[0].set(Mode::Webhook("ann", ""));
    // The cached review of `a` expires in three seconds, and `b` does not answer within five seconds. The watch must
    // end because of `a` alone.
    let last = tokio::time::timeout(Duration::from_secs(6), events.next()).await.expect("it ends at once").unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
}

#[tokio::test]
async fn watch_omits_members_with_unknown_rights() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    assert_eq!(items(&ann.get(ALL).await.ok()).len(), 6);
    chains[1].set(Mode::WithoutReviews);
    let mut events =
        ann.watch(&format!("{ALL}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")).await;
    fixture.member("b").apply(config_map_of("shop", "unseen")).unwrap();
    fixture.member("a").apply(config_map_of("shop", "seen")).unwrap();
    assert_eq!(events.soon().await["object"]["metadata"]["name"], "seen");
    events.nothing().await;
}

/// Number of rounds with a change of a binding in `c`, and number of rounds without a change.
const ROUNDS: usize = 5;

/// Returns whether Ann's list causes a review in `b`. The router caches a review that allows the list for a minute.
async fn has_b_asked(fixture: &Fixture, chains: &[Arc<Chain>]) -> bool {
    chains[1].reviewed();
    fixture.user("ann", &[]).get(SHOP).await.ok();
    chains[1].reviewed().iter().any(|line| line == "ann list configmaps shop/")
}

/// Returns the number of rounds in which `b` received a review.
async fn rounds(fixture: &Fixture, chains: &[Arc<Chain>], mut change: impl AsyncFnMut(usize)) -> usize {
    has_b_asked(fixture, chains).await;
    let mut asked = 0;
    for round in 0..ROUNDS {
        change(round).await;
        asked += usize::from(has_b_asked(fixture, chains).await);
    }
    asked
}

/// The binding is for `system:authenticated`, in a namespace of `c` in which Ann has no rights. The administrator of
/// any namespace may write such bindings at any rate.
#[tokio::test]
async fn binding_of_all_users_repeats_no_review_in_other_members() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    assert_eq!(rounds(&fixture, &chains, async |_| {}).await, 0, "what it said is remembered");
    let c = fixture.member("c");
    let asked = rounds(&fixture, &chains, async |round| {
        let namespace = format!("own-{round}");
        let mut everybody = binding(&namespace, "everybody", ("ClusterRole", "reader"), "x");
        let witness = json!({"kind": "User", "apiGroup": RBAC, "name": "witness"});
        let group = json!({"kind": "Group", "apiGroup": RBAC, "name": "system:authenticated"});
        everybody["subjects"] = json!([witness, group]);
        c.apply(everybody).unwrap();
        let all: Vec<_> = (0..=round).map(|round| format!("own-{round}")).collect();
        listed(&fixture, "c", "witness", &all.join(" ")).await;
    });
    assert_eq!(asked.await, 0, "what c gives says nothing of what b allows");
}

/// A CI pipeline that creates and deletes namespaces also creates and deletes bindings. Bindings of a name that no user
/// has must not cause new reviews of other users.
#[tokio::test]
async fn binding_of_an_unknown_name_repeats_no_review() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    assert_eq!(rounds(&fixture, &chains, async |_| {}).await, 0, "what it said is remembered");
    let c = fixture.member("c");
    let asked = rounds(&fixture, &chains, async |_| {
        grant(c, "own", "made-up");
        listed(&fixture, "c", "made-up", "own").await;
        c.delete(&format!("rolebindings.{RBAC}"), "own", "made-up-reads").unwrap();
        listed(&fixture, "c", "made-up", "none").await;
    });
    assert_eq!(asked.await, 0, "nothing of Ann's has changed anywhere");
}

/// Number of requests that the client cancels immediately, each for another name. The router must send all of them
/// before it treats the silent member as unreachable.
const REQUESTS: usize = 400;

/// Ann requests objects of `b`, which authorizes by reviews and is slow for a moment, and cancels each request. At most
/// 50 reviews are in flight at a cluster, and reviews of cancelled requests are included.
#[tokio::test]
async fn reviews_for_cancelled_requests_are_limited() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    ann.get(SHOP).await.ok();
    let of_names =
        |lines: Vec<String>| lines.iter().filter(|line| line.starts_with("ann get configmaps shop/x")).count();
    chains[1].reviewed();
    let b = fixture.member("b");
    b.control().hold_requests(true);
    let begun = tokio::time::Instant::now();
    for number in 0..REQUESTS {
        let path = format!("{SHOP}/x{number}");
        // This corresponds to a reset HTTP/2 stream: the router executes only the part of the request before the first
        // wait.
        let taken_back = tokio::time::timeout(Duration::ZERO, ann.get(&path)).await;
        assert!(taken_back.is_err(), "{number}, after {:?}: {taken_back:?}", begun.elapsed());
    }
    assert_eq!(of_names(chains[1].reviewed()), 0, "none has been answered yet");
    b.control().hold_requests(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = of_names(chains[1].reviewed());
    assert!(asked <= 100, "{asked} questions were put for {REQUESTS} requests that were gone");
}

/// Bob has no rights. He tries to impersonate a user with the maximum number of groups: the first review denies it.
/// Then he tries one more group than the maximum.
#[tokio::test]
async fn forbidden_impersonation_of_many_groups_costs_one_review() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let bob = fixture.user("bob", &[]);
    let be = async |groups: usize| {
        let groups: Vec<String> = (0..groups).map(|number| format!("group-{number}")).collect();
        let mut headers = vec![("impersonate-user", "somebody")];
        headers.extend(groups.iter().map(|group| ("impersonate-group", group.as_str())));
        let answer = bob.send("GET", ALL, &headers, "").await;
        let asked = chains[1].reviewed().iter().filter(|line| line.starts_with("bob impersonate ")).count();
        (answer, asked)
    };
    let (answer, asked) = be(limits::IMPERSONATED_VALUES - 1).await;
    answer.refused(403);
    assert_eq!(asked, 1);
    let (answer, asked) = be(limits::IMPERSONATED_VALUES).await;
    assert_eq!(
        (answer.refused(431), asked),
        ("the Impersonate-* headers have 513 values; at most 512 are allowed".to_owned(), 0)
    );
    let long = "x".repeat(limits::IMPERSONATED_BYTES);
    let headers = [("impersonate-user", "somebody"), ("impersonate-extra-x", long.as_str())];
    assert!(bob.send("GET", ALL, &headers, "").await.refused(431).contains("65545 bytes; at most 65536 are"));
}

/// Bob may impersonate Ann. While the member is silent, he repeatedly impersonates her with the maximum number of
/// groups, and other groups each time. Only a few of his requests wait for reviews. The router refuses the others with
/// Retry-After.
#[tokio::test]
async fn user_with_too_many_reviews_in_flight_gets_429() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let b = fixture.member("b");
    b.apply(role("", "be-ann", [&["impersonate"], &[""], &["users", "groups"], &["ann", "dev"]])).unwrap();
    b.apply(binding("", "bob-is-ann", ("ClusterRole", "be-ann"), "bob")).unwrap();
    chains[1].learn(b);
    let bob = fixture.user("bob", &[]);
    let be_ann = [("impersonate-user", "ann"), ("impersonate-group", "dev")];
    until(async || bob.send("GET", SHOP, &be_ann, "").await.code == 200).await;
    b.control().hold_requests(true);
    let bob = &bob;
    let be = |request: usize| async move {
        let others = limits::IMPERSONATED_VALUES - 1;
        let groups: Vec<String> = (0..others).map(|number| format!("group-{request}-{number}")).collect();
        let mut headers = vec![("impersonate-user", "ann")];
        headers.extend(groups.iter().map(|group| ("impersonate-group", group.as_str())));
        tokio::time::timeout(Duration::from_secs(2), bob.send("GET", SHOP, &headers, "")).await.ok()
    };
    // Health checks without details need no rights, and are answered in the meantime.
    let healthy = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for path in ["/livez", "/readyz"] {
            assert_eq!(bob.get(path).await.code, 200, "{path}");
        }
    };
    let (answers, ()) = futures::future::join(futures::future::join_all((0..250).map(be)), healthy).await;
    let answers: Vec<_> = answers.into_iter().flatten().collect();
    assert!(answers.len() >= 100, "{} of 250 are refused", answers.len());
    for answer in &answers {
        let message = answer.refused(429);
        assert!(message.starts_with("too many access reviews that wait for one cluster"), "{message}");
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

/// The router sends only one review for the impersonated user, and one for each group.
#[tokio::test]
async fn impersonator_of_allowed_groups_sees_the_impersonated_users_objects() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let rule = [&["impersonate"][..], &[""], &["users", "groups"], &["ann", "dev", "ops"]];
    for member in ["b", "c"].map(|name| fixture.member(name)) {
        member.apply(role("", "be-ann", rule)).unwrap();
        member.apply(binding("", "bob-is-ann", ("ClusterRole", "be-ann"), "bob")).unwrap();
    }
    chains[1].learn(fixture.member("b"));
    let bob = fixture.user("bob", &[]);
    let be = async |groups: [&str; 2]| {
        let headers = [("impersonate-user", "ann"), ("impersonate-group", groups[0]), ("impersonate-group", groups[1])];
        bob.send("GET", SHOP, &headers, "").await
    };
    until(async || be(["dev", "ops"]).await.code == 200).await;
    assert_eq!(items(&be(["dev", "ops"]).await.ok()), ["b/one-b", "b/two-b"]);
    let message = be(["dev", "root"]).await.refused(403);
    assert!(message.contains("groups \"root\" is forbidden: User \"bob\" cannot impersonate resource"), "{message}");
}
