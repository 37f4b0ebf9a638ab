//! Flow control where requests come in: whoever answers them, each passes the schema of its place.

use std::num::NonZeroU32;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tributary_apimachinery::ClusterName;
use tributary_flow_control::{
    Dimension, Limited, MaxRequestsInflight, Queueing, SCHEMA_HEADER, Schema, SchemaKind, TokenBucket,
};
use tributary_router::{FlowSettings, PlaceSchemas};

use crate::harness::{Answer, CONFIG_MAPS, Fixture, SOON, until};

fn tokens(name: &str, qps: u32, burst: u32, by: &[Dimension]) -> Schema {
    let [qps, burst] = [qps, burst].map(|number| NonZeroU32::new(number).unwrap());
    let limited = Limited { limit: TokenBucket { qps, burst }, by: by.to_vec(), queueing: None };
    Schema { name: name.into(), kind: SchemaKind::TokenBucket(limited) }
}

/// So many at once, those that last among them.
fn all_in_flight(name: &str, max: u32) -> Schema {
    let limit = MaxRequestsInflight { max, count_long_running: true };
    let limited = Limited { limit, by: Vec::new(), queueing: None };
    Schema { name: name.into(), kind: SchemaKind::MaxRequestsInflight(limited) }
}

/// All requests of a place pass this schema.
fn all_pass(schema: Schema) -> PlaceSchemas {
    PlaceSchemas { all: Some(schema.name.clone()), schemas: vec![schema] }
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

/// Checks that a request was refused by a schema, in these words.
#[track_caller]
fn refused(answer: &Answer, schema: &str, message: &str) {
    assert_eq!(answer.refused(429), message);
    assert_eq!(answer.json()["reason"], "TooManyRequests");
    assert_eq!(answer.headers["retry-after"], "1");
    passed(answer, schema);
}

/// The first answer that is none: a second brings back one token, and requests take less.
async fn until_refused(fixture: &Fixture, path: &str) -> Answer {
    loop {
        let answer = fixture.get(path).await;
        if answer.code == 429 {
            return answer;
        }
    }
}

#[tokio::test]
async fn reads_from_memory_are_governed_and_told_their_schema() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    assert!(!fixture.get(CONFIG_MAPS).await.headers.contains_key(SCHEMA_HEADER));
    // One token in a thousand days is none in a test.
    fixture.router.set_flow_control(merged(tokens("reads", 1, 3, &[Dimension::Verb]))).unwrap();
    let list = fixture.get(CONFIG_MAPS).await;
    list.ok();
    passed(&list, "reads");
    let message =
        "flow control schema \"reads\" lets 1 requests in each second, and 3 at once for each verb; there were more";
    refused(&until_refused(&fixture, CONFIG_MAPS).await, "reads", message);
    // Another verb, and another place; and how this process does is told however busy it is.
    passed(&fixture.get(&format!("{CONFIG_MAPS}/nothing")).await, "reads");
    fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await.ok();
    assert_eq!(fixture.get("/readyz").await.code, 200);
    // Who writes events is not to try again.
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

/// Case 19 of the contract with users of KubeGateway.
#[tokio::test]
async fn a_watch_holds_its_place_until_it_ends_and_none_lets_nobody_in() {
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
        let message = format!("{whose}flow control schema \"one\" lets 1 requests in at once; there were more");
        refused(&fixture.get(&list).await, "one", &message);
        // It is still held by a limit that lets in more, and by one that lets in fewer.
        fixture.router.set_flow_control(settings(all_in_flight("one", 2))).unwrap();
        fixture.get(&list).await.ok();
        fixture.router.set_flow_control(settings(all_in_flight("one", 1))).unwrap();
        fixture.get(&list).await.refused(429);
        drop(watch);
        until(async || fixture.get(&list).await.code == 200).await;
        fixture.router.set_flow_control(settings(all_in_flight("one", 0))).unwrap();
        for path in [list.clone(), format!("{list}?watch=1")] {
            let message = format!("{whose}flow control schema \"one\" lets no request in");
            refused(&fixture.get(&path).await, "one", &message);
        }
        fixture.router.set_flow_control(FlowSettings::default()).unwrap();
        fixture.get(&list).await.ok();
    }
}

/// Fifty requests of one connection wait, and one of another: it is the second that is let in.
#[tokio::test]
async fn a_storm_of_one_client_waits_for_itself() {
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
    // What it had is the storm's again, and what waits goes away with its connection.
    let fourth = waiting.next().await.unwrap();
    assert_eq!((fourth.status().as_u16(), waiting.len()), (200, 48));
    let waits = "tributary_flow_control_requests_waiting{cluster=\"\",schema=\"two\"}";
    assert!(fixture.router.metrics().expose().contains(&format!("{waits} 48")));
    drop((waiting, third, fourth));
    fixture.get(CONFIG_MAPS).await.ok();
    assert!(fixture.router.metrics().expose().contains(&format!("{waits} 0")));
}

#[tokio::test]
async fn what_is_wrong_is_named_with_its_place_and_changes_nothing() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.router.set_flow_control(merged(all_in_flight("one", 0))).unwrap();
    let unknown = PlaceSchemas { schemas: Vec::new(), all: Some("one".into()) };
    let twice = PlaceSchemas { schemas: vec![all_in_flight("one", 1), all_in_flight("one", 2)], all: None };
    let of_a = |place| [(ClusterName::new("a").unwrap(), place)].into();
    for (clusters, message) in [
        (of_a(unknown), "flow control of cluster a: there is no schema \"one\"; add it, or name one that there is"),
        (
            of_a(twice),
            "flow control of cluster a: there are two flow control schemas of the name \"one\"; rename one of them",
        ),
        (
            of_a(all_pass(all_in_flight("a\nb", 1))),
            "flow control of cluster a: schema \"a\nb\" has a name that no header can carry; give it one of visible ASCII characters",
        ),
    ] {
        let settings = FlowSettings { merged: all_pass(all_in_flight("one", 10)), clusters };
        assert_eq!(fixture.router.set_flow_control(settings).unwrap_err().to_string(), message);
        fixture.get(CONFIG_MAPS).await.refused(429);
    }
}
