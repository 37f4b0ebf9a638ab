//! Flow control of incoming requests. Each request passes the schema of its endpoint (the merged view or a cluster's
//! path), whatever part of the router answers the request.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use tributary_apimachinery::ClusterName;
use tributary_flow_control::{
    Dimension, Limited, MaxRequestsInflight, Queueing, SCHEMA_HEADER, Schema, SchemaKind, TokenBucket,
};
use tributary_policy::{Action, Outcome, Policy, Rule};
use tributary_router::{DispatchSettings, EntryPointPolicies, EntryPointSchemas, FlowSettings, Policies};

use crate::harness::{Answer, CONFIG_MAPS, Fixture, QUIET, SOON, allow, config, config_map, name, until};

fn tokens(name: &str, qps: u32, burst: u32, by: &[Dimension]) -> Schema {
    let [qps, burst] = [qps, burst].map(|number| NonZeroU32::new(number).unwrap());
    let limited = Limited { limit: TokenBucket { qps, burst }, by: by.to_vec(), queueing: None };
    Schema { name: name.into(), kind: SchemaKind::TokenBucket(limited) }
}

/// Returns a schema that limits requests in flight, including long-running requests.
fn all_in_flight(name: &str, max: u32) -> Schema {
    in_flight_by(name, max, &[])
}

fn in_flight_by(name: &str, max: u32, by: &[Dimension]) -> Schema {
    let limit = MaxRequestsInflight { max, count_long_running: true };
    let limited = Limited { limit, by: by.to_vec(), queueing: None };
    Schema { name: name.into(), kind: SchemaKind::MaxRequestsInflight(limited) }
}

/// Returns settings with which all requests to an endpoint use this schema.
fn all_pass(schema: Schema) -> EntryPointSchemas {
    EntryPointSchemas { all: Some(schema.name.clone()), schemas: vec![schema] }
}

fn merged(schema: Schema) -> FlowSettings {
    FlowSettings { merged: all_pass(schema), ..FlowSettings::default() }
}

fn of_cluster(name: &str, schema: Schema) -> FlowSettings {
    let clusters = [(ClusterName::new(name).unwrap(), all_pass(schema))];
    FlowSettings { clusters: clusters.into(), ..FlowSettings::default() }
}

#[track_caller]
fn passed(answer: &Answer, schema: &str) {
    assert_eq!(answer.headers[SCHEMA_HEADER], schema, "{answer:?}");
}

#[track_caller]
fn refused(answer: &Answer, schema: &str, message: &str) {
    assert_eq!(answer.refused(429), message);
    assert_eq!(answer.json()["reason"], "TooManyRequests");
    assert_eq!(answer.headers["retry-after"], "1");
    passed(answer, schema);
}

/// Repeats a request until the schema refuses it. This ends, because a request takes less time than the second after
/// which a token returns.
async fn until_refused(fixture: &Fixture, path: &str) -> Answer {
    loop {
        let answer = fixture.get(path).await;
        if answer.code == 429 {
            return answer;
        }
    }
}

#[tokio::test]
async fn reads_from_memory_pass_the_flow_control_schema() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    assert!(!fixture.get(CONFIG_MAPS).await.headers.contains_key(SCHEMA_HEADER));
    // The token bucket refills by one token per second.
    fixture.router.set_flow_control(merged(tokens("reads", 1, 3, &[Dimension::Verb]))).unwrap();
    let list = fixture.get(CONFIG_MAPS).await;
    list.ok();
    passed(&list, "reads");
    let message =
        "flow control schema \"reads\" admits 1 request per second, with bursts of 3 for each verb; there were more";
    refused(&until_refused(&fixture, CONFIG_MAPS).await, "reads", message);
    // Each verb and each endpoint has a separate limit. Health checks are answered even if the limit is reached.
    passed(&fixture.get(&format!("{CONFIG_MAPS}/nothing")).await, "reads");
    fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await.ok();
    assert_eq!(fixture.get("/readyz").await.code, 200);
    // A client that records Events would retry with Retry-After, so the refusal omits this header.
    let events = "/api/v1/namespaces/default/events";
    let event = until_refused(&fixture, events).await;
    assert!(!event.headers.contains_key("retry-after"));

    let shown = fixture.router.metrics().expose();
    for line in [
        "tributary_flow_control_requests_total{cluster=\"\",schema=\"reads\",decision=\"admitted\"}",
        "tributary_flow_control_requests_total{cluster=\"\",schema=\"reads\",decision=\"limit-exceeded\"}",
        "tributary_flow_control_requests_in_flight{cluster=\"\",schema=\"reads\"} 0",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
}

/// As in KubeGateway, the option `countLongRunning` includes watches in the limit.
#[tokio::test]
async fn watch_that_a_schema_counts_is_in_flight_until_it_ends() {
    let fixture = Fixture::start(["a"]).await;
    for (place, settings) in [
        (String::new(), (|schema| merged(schema)) as fn(Schema) -> FlowSettings),
        ("/clusters/a".to_owned(), |schema| of_cluster("a", schema)),
    ] {
        let list = format!("{place}{CONFIG_MAPS}");
        fixture.get(&list).await.ok();
        fixture.router.set_flow_control(settings(all_in_flight("one", 1))).unwrap();
        let watch = fixture.watch(&format!("{list}?watch=1")).await;
        let whose = if place.is_empty() { "" } else { "cluster a: " };
        let message = format!("{whose}flow control schema \"one\" admits 1 request in flight; there were more");
        refused(&fixture.get(&list).await, "one", &message);
        // The open watch stays included in the requests in flight when the limit changes.
        fixture.router.set_flow_control(settings(all_in_flight("one", 2))).unwrap();
        fixture.get(&list).await.ok();
        fixture.router.set_flow_control(settings(all_in_flight("one", 1))).unwrap();
        fixture.get(&list).await.refused(429);
        drop(watch);
        until(async || fixture.get(&list).await.code == 200).await;
        fixture.router.set_flow_control(settings(all_in_flight("one", 0))).unwrap();
        for path in [list.clone(), format!("{list}?watch=1")] {
            let message = format!("{whose}flow control schema \"one\" admits no requests");
            refused(&fixture.get(&path).await, "one", &message);
        }
        fixture.router.set_flow_control(FlowSettings::default()).unwrap();
        fixture.get(&list).await.ok();
    }
}

#[tokio::test]
async fn watch_uses_no_permit_of_a_flow_control_schema_by_default() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let limit = MaxRequestsInflight { max: 1, count_long_running: false };
    let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
    fixture.router.set_flow_control(merged(Schema { name: "one".into(), kind })).unwrap();
    let watches = [
        fixture.watch(&format!("{CONFIG_MAPS}?watch=1")).await,
        fixture.watch(&format!("{CONFIG_MAPS}?watch=1")).await,
    ];
    let list = fixture.get(CONFIG_MAPS).await;
    list.ok();
    passed(&list, "one");
    let apart = "tributary_flow_control_requests_long_running{cluster=\"\",schema=\"one\"}";
    assert!(fixture.router.metrics().expose().contains(&format!("{apart} 2")));
    drop(watches);
    until(async || fixture.router.metrics().expose().contains(&format!("{apart} 0"))).await;
}

/// Fifty requests of one connection wait. Then a request of another connection arrives. The router admits one of the
/// fifty, and then the new request.
#[tokio::test]
async fn flood_of_one_client_does_not_delay_another_client() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let limit = MaxRequestsInflight { max: 2, count_long_running: true };
    let queueing = Some(Queueing { wait_max: SOON, ..Queueing::default() });
    let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing });
    fixture.router.set_flow_control(merged(Schema { name: "two".into(), kind })).unwrap();
    let (storm, other) = (fixture.connection(1), fixture.connection(2));
    let watch = format!("{CONFIG_MAPS}?watch=1");
    let (first, second) = (storm.watch(&watch).await, storm.watch(&watch).await);
    let mut waiting: FuturesUnordered<_> = (0..50).map(|_| storm.call("GET", &watch, &[], "")).collect();
    assert!(waiting.next().now_or_never().is_none());
    let mut get = Box::pin(other.get(CONFIG_MAPS));
    assert!((&mut get).now_or_never().is_none());

    drop(first);
    let third = waiting.next().await.unwrap();
    assert_eq!(third.status(), 200);
    assert!((&mut get).now_or_never().is_none(), "the storm came first");
    drop(second);
    get.await.ok();
    // The connection with fifty requests gets the next free permit. Its waiting requests end when the connection
    // closes.
    let fourth = waiting.next().await.unwrap();
    assert_eq!((fourth.status().as_u16(), waiting.len()), (200, 48));
    let waits = "tributary_flow_control_requests_waiting{cluster=\"\",schema=\"two\"}";
    assert!(fixture.router.metrics().expose().contains(&format!("{waits} 48")));
    drop((waiting, third, fourth));
    fixture.get(CONFIG_MAPS).await.ok();
    assert!(fixture.router.metrics().expose().contains(&format!("{waits} 0")));
}

/// Returns the number of requests in a state (for example `waiting`) for a schema of the merged view, from the metrics.
fn shown(fixture: &Fixture, state: &str, schema: &str) -> usize {
    let series = format!("tributary_flow_control_requests_{state}{{cluster=\"\",schema=\"{schema}\"}} ");
    let exposition = fixture.router.metrics().expose();
    let value = exposition.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("no {series}in {exposition}")).parse().unwrap()
}

/// Each list has several MB. Ann sends one list after another, while Eve sends many lists at the same time. The test
/// compares their progress, so it does not depend on speed: during Ann's lists, only few of Eve's lists are in flight,
/// and only few finish.
#[tokio::test]
async fn large_lists_of_one_tenant_do_not_delay_another_tenant() {
    const OBJECTS: usize = 160;
    const OBJECT_BYTES: usize = 24 << 10;
    // At most 50 requests of a user may wait, and all lists are from one user.
    const STORM: usize = 40;
    const AT_ONCE: u32 = 2;
    const LISTS: usize = 20;
    // During one list of Ann, two or three lists of Eve finish. Without a schema, at least sixteen finish.
    const ENDED_MEANWHILE: usize = 12;
    let fixture = Fixture::start(["a"]).await;
    for number in 0..OBJECTS {
        fixture.put("a", &format!("large-{number:03}"), &"x".repeat(OBJECT_BYTES));
    }
    let size = fixture.get(CONFIG_MAPS).await.body.len();
    assert!(size > OBJECTS * OBJECT_BYTES, "{size} bytes");
    let limit = MaxRequestsInflight { max: AT_ONCE, count_long_running: true };
    let queueing = Some(Queueing { wait_max: SOON, ..Queueing::default() });
    let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing });
    let schemas = vec![Schema { name: "eve".into(), kind }, all_in_flight("ann", AT_ONCE)];
    govern(&fixture, schemas, vec![passing(Some("eve"), &["eve"]), passing(Some("ann"), &["ann"])]);
    let (eve, ann) = (fixture.user("eve", &[]).by_port(1), fixture.user("ann", &[]).by_port(2));

    let ended = Arc::new(AtomicUsize::new(0));
    let mut storm = JoinSet::new();
    for _ in 0..STORM {
        let (eve, ended) = (eve.clone(), Arc::clone(&ended));
        storm.spawn(async move {
            loop {
                let list = eve.get(CONFIG_MAPS).await;
                if list.code != 200 {
                    return list;
                }
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    until(async || ended.load(Ordering::Relaxed) > 0 && shown(&fixture, "waiting", "eve") >= STORM / 2).await;
    let before = ended.load(Ordering::Relaxed);
    for number in 0..LISTS {
        let list = ann.get(CONFIG_MAPS).await;
        assert!(list.code == 200 && list.body.len() > OBJECTS * OBJECT_BYTES, "list {number}: {}", list.code);
        passed(&list, "ann");
        let (in_flight, waiting) = (shown(&fixture, "in_flight", "eve"), shown(&fixture, "waiting", "eve"));
        assert!(in_flight <= AT_ONCE as usize && waiting >= STORM / 2, "list {number}: {in_flight} and {waiting}");
    }
    let meanwhile = ended.load(Ordering::Relaxed) - before;
    assert!(meanwhile > 0, "the storm was over");
    assert!(meanwhile <= LISTS * ENDED_MEANWHILE, "{meanwhile} of the storm ended while {LISTS} others did");
    if let Some(refused) = storm.try_join_next() {
        panic!("of the storm one was answered {:?}", refused.unwrap());
    }
}

/// The member continues to work on a cancelled request. So the request stays in flight until the member has finished
/// it.
#[tokio::test]
async fn cancelled_request_is_in_flight_until_the_member_completes_it() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.connect_clients("a").await;
    let all = all_pass(all_in_flight("one", 1));
    let clusters = [(ClusterName::new("a").unwrap(), all.clone())].into();
    fixture.router.set_flow_control(FlowSettings { merged: all, clusters }).unwrap();
    let client = fixture.client();
    let json = [("content-type", "application/json")];
    let created = config_map("new", "x").to_string();
    let own = format!("/clusters/a{CONFIG_MAPS}");
    for (method, path, text) in [("GET", &*format!("{own}/nothing"), ""), ("POST", CONFIG_MAPS, &created)] {
        fixture.member("a").control().hold_requests(true);
        let given_up = tokio::time::timeout(QUIET, client.call(method, path, &json, text)).await;
        assert!(given_up.is_err(), "{method}: the member answers nothing");
        let next = tokio::time::timeout(QUIET, client.send(method, path, &json, text)).await;
        next.unwrap_or_else(|_| panic!("{method}: a second request was sent to the member")).refused(429);
        fixture.member("a").control().hold_requests(false);
        until(async || client.send(method, path, &json, text).await.code != 429).await;
    }
}

#[tokio::test]
async fn invalid_flow_control_settings_are_rejected_and_change_nothing() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.router.set_flow_control(merged(all_in_flight("one", 0))).unwrap();
    let unknown = EntryPointSchemas { schemas: Vec::new(), all: Some("one".into()) };
    let twice = EntryPointSchemas { schemas: vec![all_in_flight("one", 1), all_in_flight("one", 2)], all: None };
    let of_a = |place| [(ClusterName::new("a").unwrap(), place)].into();
    for (clusters, message) in [
        (of_a(unknown), "flow control of cluster a: there is no schema \"one\"; add it, or name an existing schema"),
        (of_a(twice), "flow control of cluster a: two flow control schemas are named \"one\"; rename one of them"),
        (
            of_a(all_pass(all_in_flight("a\nb", 1))),
            "flow control of cluster a: the name of schema \"a\nb\" cannot be sent in a header; use only visible \
             ASCII characters",
        ),
    ] {
        let settings = FlowSettings { merged: all_pass(all_in_flight("one", 10)), clusters };
        assert_eq!(fixture.router.set_flow_control(settings).unwrap_err().to_string(), message);
        fixture.get(CONFIG_MAPS).await.refused(429);
    }
}

/// Returns a policy that applies this schema, or no schema, to the requests of these users. An empty list means all
/// users.
fn passing(schema: Option<&str>, users: &[&str]) -> Policy {
    let all = || vec!["*".to_owned()];
    let users = users.iter().map(|user| (*user).to_owned()).collect();
    let rule =
        Rule { verbs: all(), api_groups: all(), resources: all(), non_resource_urls: all(), users, ..Rule::default() };
    let action = Action::Dispatch { endpoints: Vec::new(), flow_control_schema: schema.map(str::to_owned) };
    Policy { rules: vec![rule], outcome: Outcome { action, ..Outcome::default() }, ..Policy::default() }
}

/// Sets the schemas and policies of the merged view. No schema applies to all requests.
fn govern(fixture: &Fixture, schemas: Vec<Schema>, policies: Vec<Policy>) {
    let merged = EntryPointSchemas { schemas, all: None };
    fixture.router.set_flow_control(FlowSettings { merged, ..FlowSettings::default() }).unwrap();
    let merged = EntryPointPolicies { policies, denies_all: false };
    fixture.router.set_dispatch(DispatchSettings { merged, ..DispatchSettings::default() });
}

#[tokio::test]
async fn request_passes_the_schema_of_its_policy() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let exempt = Schema { name: "free".into(), kind: SchemaKind::Exempt };
    let policies = vec![passing(Some("free"), &["root"]), passing(None, &["bob"]), passing(Some("none"), &[])];
    govern(&fixture, vec![all_in_flight("none", 0), exempt], policies);
    let [root, bob, ann] = ["root", "bob", "ann"].map(|name| fixture.user(name, &[]));
    let message = "flow control schema \"none\" admits no requests";
    refused(&ann.get(CONFIG_MAPS).await, "none", message);
    // The schema also refuses a create, and the cluster does not receive it.
    let created = config_map("of-ann", "x").to_string();
    let json = [("content-type", "application/json")];
    refused(&ann.send("POST", CONFIG_MAPS, &json, &created).await, "none", message);
    assert!(fixture.member("a").list("configmaps").iter().all(|object| name(object) != "of-ann"));
    let free = root.get(CONFIG_MAPS).await;
    free.ok();
    passed(&free, "free");
    let unlimited = bob.get(CONFIG_MAPS).await;
    unlimited.ok();
    assert!(!unlimited.headers.contains_key(SCHEMA_HEADER));
    // A policy may use the schema for all users, and the schema may get a higher limit.
    govern(&fixture, vec![all_in_flight("none", 1)], vec![passing(Some("none"), &[])]);
    for client in [&root, &bob, &ann] {
        let answer = client.get(CONFIG_MAPS).await;
        answer.ok();
        passed(&answer, "none");
    }
}

/// A global policy applies at every path, so all paths share the tokens.
#[tokio::test]
async fn request_at_any_path_spends_one_token_of_a_global_schema() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let schemas = vec![tokens("few", 1, 3, &[])];
    let merged = EntryPointSchemas { schemas, all: None };
    let own = EntryPointSchemas { schemas: vec![all_in_flight("none", 0)], all: None };
    let a = ClusterName::new("a").unwrap();
    let flow = FlowSettings { merged, clusters: [(a.clone(), own)].into() };
    fixture.router.set_flow_control(flow).unwrap();
    // If a global policy selects a schema, the policy and schema of the endpoint do not apply.
    let policies = EntryPointPolicies { policies: vec![passing(Some("none"), &[])], denies_all: false };
    let global = vec![passing(Some("few"), &[])];
    let settings = DispatchSettings { global, clusters: [(a, policies)].into(), ..DispatchSettings::default() };
    fixture.router.set_dispatch(settings);
    let at_host = fixture.client().at_host_of("a");
    for answer in [
        fixture.get(CONFIG_MAPS).await,
        fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await,
        at_host.get(CONFIG_MAPS).await,
    ] {
        answer.ok();
        passed(&answer, "few");
    }
    let shown = fixture.router.metrics().expose();
    let admitted = "tributary_flow_control_requests_total{cluster=\"\",schema=\"few\",decision=\"admitted\"} 3";
    assert!(shown.contains(admitted), "{shown}");
    let message = "flow control schema \"few\" admits 1 request per second, with bursts of 3; there were more";
    for path in [CONFIG_MAPS.to_owned(), format!("/clusters/b{CONFIG_MAPS}")] {
        refused(&until_refused(&fixture, &path).await, "few", message);
    }
}

/// The router replaces schemas before the policies that name them. No request may pass without a limit in the meantime.
#[tokio::test]
async fn removed_flow_control_schema_applies_until_no_policy_names_it() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let own = format!("/clusters/a{CONFIG_MAPS}");
    let place = EntryPointSchemas { schemas: vec![all_in_flight("none", 0)], all: None };
    let policies = EntryPointPolicies { policies: vec![passing(Some("none"), &[])], denies_all: false };
    let cluster = ClusterName::new("a").unwrap();
    let clusters = [(cluster.clone(), place.clone())].into();
    fixture.router.set_flow_control(FlowSettings { merged: place, clusters }).unwrap();
    let clusters = [(cluster, policies.clone())].into();
    fixture.router.set_dispatch(DispatchSettings { merged: policies, clusters, ..DispatchSettings::default() });
    for path in [CONFIG_MAPS, &own] {
        fixture.get(path).await.refused(429);
    }
    fixture.router.set_flow_control(FlowSettings::default()).unwrap();
    for path in [CONFIG_MAPS, &own] {
        fixture.get(path).await.refused(429);
    }
    assert!(!fixture.router.metrics().expose().contains("schema=\"none\""));
    fixture.router.set_dispatch(DispatchSettings::default());
    for path in [CONFIG_MAPS, &own] {
        fixture.get(path).await.ok();
    }
}

#[tokio::test]
async fn each_value_of_a_schema_key_has_a_separate_limit() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let fixture = Fixture::start(["a"]).await;
    for path in [CONFIG_MAPS, PODS] {
        fixture.get(path).await.ok();
    }
    let groups = |own: &str| ["system:authenticated".to_owned(), own.to_owned()];
    let ann = fixture.user("ann", &groups("dev")).at_address([10, 0, 0, 1].into());
    let as_ann = |address: [u8; 4]| ann.clone().at_address(address.into());
    let watch = format!("{CONFIG_MAPS}?watch=1");
    let [bob_of_dev, ann_of_ops] = [("bob", "dev"), ("ann", "ops")].map(|(name, own)| fixture.user(name, &groups(own)));
    for (by, same, other) in [
        (Dimension::User, (&ann_of_ops, PODS), (&bob_of_dev, CONFIG_MAPS)),
        (Dimension::Group, (&bob_of_dev, PODS), (&ann_of_ops, CONFIG_MAPS)),
        (
            Dimension::ClientAddress,
            (&bob_of_dev.clone().at_address([10, 0, 0, 1].into()), PODS),
            (&as_ann([10, 0, 0, 2]), CONFIG_MAPS),
        ),
        (Dimension::Verb, (&bob_of_dev, &*watch), (&ann, CONFIG_MAPS)),
        (Dimension::Resource, (&bob_of_dev, CONFIG_MAPS), (&ann, PODS)),
    ] {
        govern(&fixture, vec![in_flight_by("one", 1, &[by])], vec![passing(Some("one"), &[])]);
        let held = ann.watch(&watch).await;
        let message =
            format!("flow control schema \"one\" admits 1 request in flight for each {}; there were more", by.noun());
        refused(&same.0.get(same.1).await, "one", &message);
        other.0.get(other.1).await.ok();
        drop(held);
        until(async || same.0.call("GET", CONFIG_MAPS, &[], "").await.status() == 200).await;
        govern(&fixture, Vec::new(), Vec::new());
    }
}

/// A list from all clusters spends one token, and so does a search in all clusters.
#[tokio::test]
async fn request_to_several_clusters_spends_one_token() {
    // The router does not cache ConfigMaps, so it reads them from all clusters.
    let policies = Policies { registered: Some(vec!["pods".parse().unwrap()]), ..allow() };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    fixture.put("a", "of-a", "x");
    let requests = [CONFIG_MAPS, &format!("{CONFIG_MAPS}/of-a")];
    for path in requests {
        fixture.get(path).await.ok();
    }
    govern(&fixture, vec![tokens("one", 1, 2, &[])], vec![passing(Some("one"), &[])]);
    let admitted = "tributary_flow_control_requests_total{cluster=\"\",schema=\"one\",decision=\"admitted\"} 2";
    for path in requests {
        fixture.get(path).await.ok();
    }
    assert!(fixture.router.metrics().expose().contains(admitted), "{}", fixture.router.metrics().expose());
}

/// Flow control applies before the router looks for a cluster that serves the path. With invented resource names, a
/// client must not get additional limits.
#[tokio::test]
async fn invented_resource_names_share_one_limit() {
    const ASKED: usize = 100;
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.router.set_flow_control(merged(tokens("one", 1, 10, &[Dimension::Resource]))).unwrap();
    let message =
        "flow control schema \"one\" admits 1 request per second, with bursts of 10 for each resource; there were more";
    let below = format!("{CONFIG_MAPS}/x/NAME");
    for path in ["/api/v1/namespaces/default/NAME", "/apis/NAME/v1/things", "/api/NAME/configmaps", &below] {
        let mut refusal = None;
        for number in 0..ASKED {
            let answer = fixture.get(&path.replace("NAME", &format!("invented{number}"))).await;
            if answer.code == 429 {
                refusal = Some(answer);
                break;
            }
            assert_eq!(answer.code, 404, "{path}: {answer:?}");
        }
        refused(&refusal.unwrap_or_else(|| panic!("{path} has a limit for each name")), "one", message);
        // An existing resource has a separate limit.
        fixture.get(CONFIG_MAPS).await.ok();
    }
}
