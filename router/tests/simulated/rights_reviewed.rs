//! The shared mode: members of which something else than roles and bindings decides. They are asked, and memory shows
//! what they say.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tributary_apimachinery::ClusterName;
use tributary_router::report::RightsDecider;
use tributary_router::{ClusterAuthorization, ClusterSetup, DispatchSettings, MemberRules, PlacePolicies, limits};

use crate::harness::{Client, Fixture, at_once, items, pass, until};
use crate::rights::{RBAC, binding, config_map_of, grant, listed, role};
use crate::rights_detected::{Chain, Mode, decided, found_out, report};

const ALL: &str = "/api/v1/configmaps";
const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// How long a yes of a member is believed, and a no.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The members of `ann`, of which `b` is judged in this way, once that is found out.
async fn of_b(mode: Mode) -> (Fixture, Vec<Arc<Chain>>) {
    let (fixture, chains) = found_out([Mode::Rbac, mode, Mode::Rbac]).await;
    decided(&fixture, "a", RightsDecider::Rbac).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    decided(&fixture, "c", RightsDecider::Rbac).await;
    chains.iter().for_each(|chain| drop(chain.reviewed()));
    (fixture, chains)
}

/// The objects of `b` that a list shows: names, in order.
async fn shown(client: &Client, path: &str) -> Vec<String> {
    let listed = items(&client.get(path).await.ok());
    let mut of_b: Vec<_> = listed.iter().filter_map(|item| item.strip_prefix("b/")).map(str::to_owned).collect();
    of_b.sort();
    of_b
}

/// What a member has been asked of lists since somebody looked last, but for samples.
fn asked(chain: &Chain) -> Vec<String> {
    let mut asked = chain.reviewed();
    asked.retain(|line| line.contains(" list configmaps "));
    asked.sort();
    asked
}

#[tokio::test]
async fn what_a_webhook_denies_is_not_shown_and_what_it_lets_pass_is() {
    let (fixture, chains) = of_b(Mode::Webhook("ann", "shop")).await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    // Roles let Ann read `shop` of b, and the webhook does not.
    for path in [ALL, SHOP] {
        assert_eq!(shown(&ann, path).await, Vec::<String>::new(), "{path}");
    }
    ann.get(&format!("{SHOP}/one-b")).await.refused(404);
    assert_eq!(items(&ann.get(ALL).await.ok()).len(), 4, "all of a");
    assert_eq!(shown(&root, ALL).await, ["one-b", "one-b", "two-b", "two-b"]);
    assert_eq!(root.get(&format!("{SHOP}/one-b")).await.code, 200);
    // What the member said is not asked again, of whomever it was; nor are clusters asked whose roles decide. Samples
    // of all are, before and now and then.
    let anew = at_once(async {
        chains.iter().for_each(|chain| drop(chain.reviewed()));
        for path in [ALL, SHOP] {
            shown(&root, path).await;
        }
        chains.iter().map(|chain| asked(chain)).collect::<Vec<_>>()
    });
    assert_eq!(anew.await, vec![Vec::<String>::new(); 3]);
    // Of another namespace it says nothing.
    chains[1].set(Mode::Webhook("ann", "bank"));
    pass(REFUSED_FOR).await;
    for path in [ALL, SHOP] {
        assert_eq!(shown(&ann, path).await, ["one-b", "two-b"], "{path}");
    }
    assert_eq!(ann.get(&format!("{SHOP}/one-b")).await.code, 200);
}

#[tokio::test]
async fn what_no_role_gives_is_shown_where_the_member_allows_it() {
    let everything = ["one-b", "one-b", "two-b", "two-b"];
    let (fixture, chains) = of_b(Mode::Abac(&["ann"])).await;
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    assert_eq!(shown(&ann, ALL).await, everything);
    bob.get(ALL).await.refused(403);
    // A no is believed for ten seconds.
    chains[1].set(Mode::AlwaysAllow);
    pass(REFUSED_FOR).await;
    assert_eq!(shown(&bob, ALL).await, everything);
    assert_eq!(bob.get(&format!("{SHOP}/two-b")).await.code, 200);
}

/// The member judges what is passed on to it by itself; what holds something of the merged view has it asked whether
/// its object may be told of.
#[tokio::test]
async fn a_member_is_not_asked_about_a_read_of_its_own_view_that_has_nothing_to_take_back() {
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

/// The match conditions of a webhook may look at the version that a request asks in.
#[tokio::test]
async fn a_member_is_asked_in_the_version_of_the_request() {
    let (fixture, chains) = of_b(Mode::WebhookOfVersion("ann", "v1")).await;
    let ann = fixture.user("ann", &[]);
    // Roles let Ann read `shop` of b, and the webhook denies it in the version in which it is read.
    for path in [ALL, SHOP] {
        assert_eq!(shown(&ann, path).await, Vec::<String>::new(), "{path}");
    }
    ann.get(&format!("{SHOP}/one-b")).await.refused(404);
    chains[1].set(Mode::WebhookOfVersion("ann", "v2"));
    pass(REFUSED_FOR).await;
    assert_eq!(shown(&ann, SHOP).await, ["one-b", "two-b"]);
    assert_eq!(ann.get(&format!("{SHOP}/one-b")).await.code, 200);
}

/// Whom somebody may be is asked in the version in which a kube-apiserver asks itself.
#[tokio::test]
async fn a_member_is_asked_in_a_version_whom_somebody_may_be() {
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

/// Whoever may read one object alone follows it from where they have read it.
#[tokio::test]
async fn a_watch_of_one_object_goes_on_from_where_it_was_read() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let b = fixture.member("b");
    b.apply(role("shop", "one", [&["get", "list", "watch"], &[""], &["configmaps"], &["one-b"]])).unwrap();
    b.apply(binding("shop", "bob-reads-one", ("Role", "one"), "bob")).unwrap();
    chains[1].learn(b);
    // Ann may read the whole namespace.
    for name in ["bob", "ann"] {
        let user = fixture.user(name, &[]);
        let path = format!("{SHOP}/one-b");
        // Its own version is to be one that is still held.
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
        // What is asked again is neither lost nor another scope.
        pass(ALLOWED_FOR + Duration::from_secs(5)).await;
        events.nothing().await;
    }
}

/// Roles and bindings that touch somebody may change any answer of theirs.
#[tokio::test]
async fn a_binding_has_a_member_asked_at_once() {
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

/// T2: within a minute after the member says no.
#[tokio::test]
async fn a_watch_ends_when_a_member_does_not_grant_it_any_more() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    let b = fixture.member("b");
    b.apply(config_map_of("shop", "seen")).unwrap();
    assert_eq!(events.next().await.unwrap()["object"]["metadata"]["name"], "seen");
    // It is asked again while the watch lasts, and a yes changes nothing.
    pass(ALLOWED_FOR + Duration::from_secs(1)).await;
    b.apply(config_map_of("shop", "seen-too")).unwrap();
    assert_eq!(events.next().await.unwrap()["object"]["metadata"]["name"], "seen-too");
    chains[1].set(Mode::Webhook("ann", "shop"));
    pass(ALLOWED_FOR).await;
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
    assert_eq!(shown(&ann, ALL).await, Vec::<String>::new());
}

/// Ann keeps a member busy with questions of her own, so that it cannot say no to what she has opened.
#[tokio::test]
async fn a_watch_does_not_outlast_its_right_behind_what_its_own_user_asks() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = &fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    events.nothing().await;
    pass(ALLOWED_FOR - Duration::from_secs(3)).await;
    chains[1].set(Mode::Webhook("ann", "shop"));
    // 25 of hers are with it at once, so that these take half a minute.
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

/// Each answer takes longer than it may: what the member said last of all namespaces and of one counts together.
#[tokio::test]
async fn what_a_slow_member_said_last_is_listed_soon() {
    let (fixture, _chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    pass(Duration::from_secs(70)).await;
    fixture.member("b").control().lag_reviews(Duration::from_secs(6));
    let listed = tokio::time::timeout(Duration::from_secs(30), shown(&ann, ALL)).await;
    assert_eq!(listed.expect("it is listed within half a minute"), ["one-b", "two-b"]);
}

/// The same of what lasts.
#[tokio::test]
async fn a_watch_of_a_slow_member_goes_on() {
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
async fn a_member_that_does_not_answer_is_not_known() {
    let (fixture, _chains) = of_b(Mode::WithoutReviews).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await;
    assert_eq!(items(&listed.ok()).len(), 4, "what is of a");
    let missing = "what you may list in some clusters is not known, and is missing";
    assert!(listed.warnings().iter().any(|warning| warning.contains(missing)), "{:?}", listed.warnings());
}

/// While nothing is dispatched to a cluster its users have it asked nothing either: what it said last counts for five
/// minutes, and then it is not known.
#[tokio::test]
async fn a_frozen_member_is_asked_nothing_for_its_users() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    let frozen = PlacePolicies { denies_all: true, ..PlacePolicies::default() };
    let clusters = [(ClusterName::new("b").unwrap(), frozen)].into();
    fixture.router.set_dispatch(DispatchSettings { clusters, ..DispatchSettings::default() });
    chains[1].reviewed();
    // What it said is to be asked again, and who was never asked about is not known.
    pass(ALLOWED_FOR + Duration::from_secs(1)).await;
    assert_eq!(shown(&ann, ALL).await, ["one-b", "two-b"]);
    let missing = "what you may list in some clusters is not known, and is missing";
    let is_missing = async |client: &Client| {
        let listed = client.get(ALL).await;
        let of_b = items(&listed.ok()).iter().filter(|item| item.starts_with("b/")).count();
        of_b == 0 && listed.warnings().iter().any(|warning| warning.contains(missing))
    };
    assert!(is_missing(&root).await);
    let problem = report(&fixture, "b").await.rights_problem.unwrap_or_default();
    assert!(problem.contains("dispatch: DenyAll"), "{problem}");
    // For two minutes, that is: samples of what decides there are asked about each five, whoever is there.
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

/// Where the configuration says that a cluster is asked, it need not let us: whoever runs it is told, and what to do.
#[tokio::test]
async fn a_member_that_is_to_be_asked_and_does_not_let_us_is_told_of() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let mut setups = Vec::new();
    for member in &fixture.members {
        let own = crate::harness::setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization: ClusterAuthorization::Review, ..own });
    }
    fixture.router.set_clusters(setups);
    let problem = async || report(&fixture, "b").await.rights_problem;
    until(async || report(&fixture, "b").await.rights_reason.as_deref() == Some("its configuration says so")).await;
    until(async || !chains[1].reviewed().is_empty()).await;
    until(async || problem().await.is_none()).await;
    chains[1].set(Mode::WithoutReviews);
    pass(Duration::from_secs(61)).await;
    let expected = "it answers subjectaccessreviews with 403: our account needs the verb create on them; tributary join \
                    CONTEXT makes an account that may, or grant it as docs/shared-mode.md shows";
    until(async || problem().await.as_deref() == Some(expected)).await;
    assert_eq!(report(&fixture, "a").await.rights_problem, None);
    // It is granted, and nothing else is to be done.
    chains[1].set(Mode::Rbac);
    pass(Duration::from_secs(61)).await;
    until(async || problem().await.is_none()).await;
    assert_eq!(decided(&fixture, "b", RightsDecider::Review).await, "its configuration says so");
}

/// A cluster is asked each question once at a time, however many want to know.
#[tokio::test]
async fn a_crowd_asks_one_question() {
    let (fixture, chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    // Where that is configured no samples are taken, which may be of the same words.
    let mut setups = Vec::new();
    for member in &fixture.members {
        let own = crate::harness::setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization: ClusterAuthorization::Review, ..own });
    }
    fixture.router.set_clusters(setups);
    for name in ["a", "b", "c"] {
        until(async || report(&fixture, name).await.rights_reason.as_deref() == Some("its configuration says so"))
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

/// A webhook may go by the uid, or by an extra: each member is asked of whom it would be told.
#[tokio::test]
async fn a_member_is_asked_of_whom_it_is_told() {
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
    // Who is told otherwise of is somebody else.
    let plain = fixture.user("ann", &[]);
    plain.get(SHOP).await.ok();
    assert!(chains[1].reviewed().iter().any(|line| line == "ann list configmaps shop/"));
}

/// A member that does not answer keeps nothing open that another has closed.
#[tokio::test]
async fn a_right_that_is_lost_in_one_member_does_not_wait_for_another_to_be_asked() {
    let (fixture, _chains) = of_b(Mode::Webhook("nobody", "shop")).await;
    let ann = fixture.user("ann", &[]);
    let listed = ann.get(ALL).await.ok();
    let path = format!("{ALL}?watch=1&resourceVersion={}", crate::harness::version(&listed));
    let mut events = ann.watch(&path).await;
    events.nothing().await;
    fixture.member("b").control().hold_requests(true);
    // By now it is to be asked again.
    pass(ALLOWED_FOR + Duration::from_secs(1)).await;
    fixture.member("a").delete("clusterrolebindings.rbac.authorization.k8s.io", "", "ann-reads").unwrap();
    let lost = tokio::time::Instant::now();
    let last = events.next().await.unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
    assert!(lost.elapsed() < Duration::from_secs(2), "{:?}", lost.elapsed());
}

/// A member that takes its time is asked by itself: what another says counts as soon as it says it.
#[tokio::test]
async fn a_right_that_a_member_takes_away_by_its_word_does_not_wait_for_a_slower_one() {
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
    // What a has allowed is to be asked again in three seconds, and b does not answer within five.
    let last = tokio::time::timeout(Duration::from_secs(6), events.next()).await.expect("it ends at once").unwrap();
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
}

/// What one member lets somebody watch is not known, and that is no ground to refuse what others do.
#[tokio::test]
async fn a_watch_tells_of_the_members_of_which_it_is_known_that_it_may() {
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

/// How often a binding of `c` comes or goes, and how often nothing happens.
const ROUNDS: usize = 5;

/// Whether Ann's list has `b` asked about what it has allowed her a moment ago, and is believed in for a minute.
async fn has_b_asked(fixture: &Fixture, chains: &[Arc<Chain>]) -> bool {
    chains[1].reviewed();
    fixture.user("ann", &[]).get(SHOP).await.ok();
    chains[1].reviewed().iter().any(|line| line == "ann list configmaps shop/")
}

/// In how many of the rounds `b` is asked.
async fn rounds(fixture: &Fixture, chains: &[Arc<Chain>], mut change: impl AsyncFnMut(usize)) -> usize {
    has_b_asked(fixture, chains).await;
    let mut asked = 0;
    for round in 0..ROUNDS {
        change(round).await;
        asked += usize::from(has_b_asked(fixture, chains).await);
    }
    asked
}

/// A binding for `system:authenticated` in a namespace of `c`, where Ann has nothing: any namespace's administrator may
/// write it, as often as they like.
#[tokio::test]
async fn a_binding_of_everybody_in_one_member_does_not_have_another_asked_anew() {
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

/// A binding of a name that nobody has comes and goes in `c`, as with each namespace that a pipeline makes and deletes.
#[tokio::test]
async fn a_binding_of_nobody_in_one_member_does_not_have_another_asked_anew() {
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

/// Requests that their client takes back at once, each of another name. So few that the member, which answers nothing
/// meanwhile, is not taken for silent before they are all made.
const REQUESTS: usize = 400;

/// Ann asks for names of `b`, which is asked about each right and is slow for a moment, and takes each request back.
/// What is asked for requests that are gone is bounded by what may be under way at the cluster (50 questions).
#[tokio::test]
async fn what_nobody_waits_for_is_not_asked() {
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
        // As when a stream is reset: what it does at once it has done.
        let taken_back = tokio::time::timeout(Duration::ZERO, ann.get(&path)).await;
        assert!(taken_back.is_err(), "{number}, after {:?}: {taken_back:?}", begun.elapsed());
    }
    assert_eq!(of_names(chains[1].reviewed()), 0, "none has been answered yet");
    b.control().hold_requests(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = of_names(chains[1].reviewed());
    assert!(asked <= 100, "{asked} questions were put for {REQUESTS} requests that were gone");
}

/// Bob has no right anywhere. He asks once to be somebody in as many groups as may be asked for, which is refused by
/// the first answer, and once in more.
#[tokio::test]
async fn who_may_be_nobody_costs_a_member_one_question_however_much_they_ask_to_be() {
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
        ("the Impersonate-* headers have 513 values: 512 are the most that may be asked for at once".to_owned(), 0)
    );
    let long = "x".repeat(limits::IMPERSONATED_BYTES);
    let headers = [("impersonate-user", "somebody"), ("impersonate-extra-x", long.as_str())];
    assert!(bob.send("GET", ALL, &headers, "").await.refused(431).contains("65545 bytes: 65536 are"));
}

/// Bob may be Ann, and asks again and again to be her in as many other groups as may be asked for, while the member
/// answers nothing: few of it are waited for, and the rest is to come again.
#[tokio::test]
async fn who_has_too_much_asked_of_a_member_is_to_come_again() {
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
    // One word of this process's own health is nobody's to be asked about, and is told meanwhile.
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
        assert!(message.starts_with("too many questions to one cluster what its users may do"), "{message}");
        assert_eq!(answer.headers["retry-after"], "1");
    }
}

/// Whoever may be somebody, and in which groups, is asked about once.
#[tokio::test]
async fn who_may_be_somebody_is_told_what_they_are_shown() {
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
