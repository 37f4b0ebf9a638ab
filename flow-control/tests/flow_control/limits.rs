//! Tests of limits, of their keys, and of the texts of refusals.

use std::time::Duration;

use futures::FutureExt;
use tributary_flow_control::{
    AdmittedRequest, Attributes, Dimension, FlowControl, FlowResource, Limited, MaxRequestsInflight, RefusalCause,
    Refused, SchemaKind, SchemaLimiter, SchemaUsage,
};

use super::{from, named, one, slots, tenants, tokens, watch};

/// Returns the decision about a request. Panics if the request waits.
fn at_once(schema: &SchemaLimiter, attributes: &Attributes<'_>) -> Result<AdmittedRequest, Box<Refused>> {
    schema.admit(attributes).now_or_never().expect("it does not wait")
}

#[tokio::test(start_paused = true)]
async fn slot_of_a_dropped_request_admits_the_next_request() {
    let control = one(slots(2, &[], None));
    let schema = tenants(&control);
    let [first, _second] = ["ann", "bob"].map(|name| at_once(schema, &from(name)).unwrap());
    assert_eq!(at_once(schema, &from("eve")).unwrap_err().cause, RefusalCause::Exceeded);
    drop(first);
    let third = at_once(schema, &from("eve")).unwrap();
    // The aborted task drops the permit, as a task does when the client closes the connection.
    let task = tokio::spawn(async move {
        let _third = third;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    assert!(at_once(schema, &from("ann")).is_err());
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(at_once(schema, &from("ann")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn each_user_has_a_separate_limit() {
    let control = one(slots(1, &[Dimension::User, Dimension::Verb], None));
    let schema = tenants(&control);
    let (ann, bob) = (from("ann"), from("bob"));
    let gets = Attributes { verb: "get", ..ann };
    let _permits = [ann, bob, gets].map(|attributes| at_once(schema, &attributes).unwrap());
    for attributes in [ann, bob, gets] {
        assert!(at_once(schema, &attributes).is_err());
    }
    let refused = [0, 3, 0, 0];
    assert_eq!(schema.usage(), SchemaUsage { in_flight: 3, keys: 3, admitted: 3, refused, ..SchemaUsage::default() });
}

/// KubeGateway can count long-running requests (`countLongRunning`). kube-apiserver's limits never count them.
#[tokio::test(start_paused = true)]
async fn long_running_request_takes_a_slot_only_if_configured() {
    let counting = |max, count_long_running| {
        let limit = MaxRequestsInflight { max, count_long_running };
        one(SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None }))
    };
    let control = counting(1, true);
    let watching = at_once(tenants(&control), &watch("ann")).unwrap();
    assert!(at_once(tenants(&control), &from("ann")).is_err());
    drop(watching);
    assert!(at_once(tenants(&control), &from("ann")).is_ok());

    let control = counting(1, false);
    let _watches: Vec<_> = (0..10).map(|_| at_once(tenants(&control), &watch("ann")).unwrap()).collect();
    let _get = at_once(tenants(&control), &from("ann")).unwrap();
    assert!(at_once(tenants(&control), &from("ann")).is_err());
    let usage = tenants(&control).usage();
    assert_eq!((usage.in_flight, usage.long_running), (1, 10));

    for counts in [true, false] {
        let control = counting(0, counts);
        for attributes in [from("ann"), watch("ann")] {
            let refused = at_once(tenants(&control), &attributes).unwrap_err();
            assert_eq!(refused.cause, RefusalCause::Closed);
            assert_eq!(refused.to_string(), "flow control schema \"tenants\" admits no requests");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn exempt_schema_admits_every_request() {
    let control = one(SchemaKind::Exempt);
    let permits: Vec<_> = (0..1000).map(|_| at_once(tenants(&control), &from("ann")).unwrap()).collect();
    let usage = tenants(&control).usage();
    assert_eq!(usage, SchemaUsage { in_flight: permits.len(), admitted: 1000, ..SchemaUsage::default() });
}

#[tokio::test(start_paused = true)]
async fn refusal_names_the_schema_the_limit_and_the_key() {
    let control = one(tokens(2, 3, &[Dimension::User, Dimension::Verb], None));
    let schema = tenants(&control);
    let events =
        Attributes { resource: Some(FlowResource { group: "", resource: "events", subresource: None }), ..from("ann") };
    for _ in 0..3 {
        let _spent = at_once(schema, &from("ann")).unwrap();
    }
    let refused = at_once(schema, &from("ann")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "flow control schema \"tenants\" admits 2 requests per second, with bursts of 3 for each user and verb; there \
         were more"
    );
    assert_eq!((&*refused.schema, refused.cause.reason()), ("tenants", "limit-exceeded"));
    assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(at_once(schema, &events).unwrap_err().retry_after, None, "who writes events is not to try again");
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(at_once(schema, &from("ann")).is_ok() && at_once(schema, &from("ann")).is_err());
}

#[tokio::test(start_paused = true)]
async fn slots_in_use_survive_a_change_of_the_configuration() {
    let first = FlowControl::new([
        named("tenants", slots(3, &[], None)),
        named("rate", tokens(1, 4, &[], None)),
        named("other", slots(1, &[], None)),
    ])
    .unwrap();
    let permits: Vec<_> = (0..3).map(|_| at_once(tenants(&first), &from("ann")).unwrap()).collect();
    for _ in 0..3 {
        let _spent = at_once(first.schema("rate").unwrap(), &from("ann")).unwrap();
    }
    let other = at_once(first.schema("other").unwrap(), &from("ann")).unwrap();
    let second = first
        .changed([
            named("tenants", slots(2, &[Dimension::User], None)),
            named("rate", tokens(1, 5, &[], None)),
            named("other", tokens(1, 1, &[], None)),
        ])
        .unwrap();
    // A bucket with a changed burst becomes full.
    let rate = second.schema("rate").unwrap();
    assert_eq!(let_in(rate, 10), 5);
    let same = second.changed([named("rate", tokens(1, 5, &[Dimension::User], None))]).unwrap();
    assert_eq!(let_in(same.schema("rate").unwrap(), 10), 5, "each user has a bucket now");
    // A schema that changes its kind starts with zero usage.
    assert!(at_once(second.schema("other").unwrap(), &from("ann")).is_ok());
    drop(other);
    // Each user has a separate limit now. The earlier requests shared one key, so they take no slot of a user's limit,
    // but they are still in flight.
    assert_eq!(tenants(&second).usage().in_flight, 3);
    let third = second.changed([named("tenants", slots(2, &[], None))]).unwrap();
    let mut permits = permits.into_iter();
    assert!(at_once(tenants(&third), &from("ann")).is_err(), "three are held of two");
    drop(permits.next());
    assert!(at_once(tenants(&third), &from("ann")).is_err(), "two are held of two");
    drop(permits.next());
    assert!(at_once(tenants(&third), &from("ann")).is_ok());
    // A request with the first configuration is subject to the limit of the latest configuration.
    let _second_place = at_once(tenants(&first), &from("bob")).unwrap();
    assert!(at_once(tenants(&first), &from("bob")).is_err());
    assert!(third.schema("rate").is_none() && third.schemas().count() == 1);
}

/// Sends `requests` requests, and returns the number of those that are admitted without a wait.
fn let_in(schema: &SchemaLimiter, requests: usize) -> usize {
    (0..requests).filter(|_| at_once(schema, &from("ann")).is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn only_a_changed_token_rate_fills_the_bucket() {
    let large = one(tokens(1_000, 1_000, &[], None));
    assert_eq!(let_in(tenants(&large), 1_500), 1_000);
    let small = large.changed([named("tenants", tokens(10, 10, &[], None))]).unwrap();
    assert_eq!(let_in(tenants(&small), 20), 10);
    let same = small.changed([named("tenants", tokens(10, 10, &[], None))]).unwrap();
    assert_eq!(let_in(tenants(&same), 10), 0, "all are spent");
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(let_in(tenants(&same), 20), 5);
}

#[tokio::test(start_paused = true)]
async fn slots_in_use_still_reduce_the_limit_after_a_removed_schema_is_restored() {
    let both = || [named("tenants", slots(2, &[], None)), named("rate", tokens(1, 4, &[], None))];
    let first = FlowControl::new(both()).unwrap();
    let permits = [(); 2].map(|()| at_once(tenants(&first), &from("ann")).unwrap());
    let rate = |control: &FlowControl| {
        (0..10).filter(|_| at_once(control.schema("rate").unwrap(), &from("ann")).is_ok()).count()
    };
    assert_eq!(rate(&first), 4);
    // Several configurations in a row lack the schema, or change its kind.
    for meanwhile in [Vec::new(), vec![named("tenants", tokens(1, 1, &[], None))]] {
        let without = first.changed(meanwhile.clone()).unwrap().changed(meanwhile.clone()).unwrap();
        let restored = without.changed(both()).unwrap();
        assert!(at_once(tenants(&restored), &from("ann")).is_err(), "two are held of two");
        assert_eq!((rate(&restored), tenants(&restored).usage().in_flight), (0, 2));
    }
    drop(permits);
    tokio::time::advance(Duration::from_secs(2)).await;
    let without = first.changed([]).unwrap();
    assert_eq!(without.removed().count(), 2, "who still has the configuration before finds them");
    let without = without.changed([]).unwrap();
    assert_eq!(
        without.removed().map(|schema| &**schema.name()).collect::<Vec<_>>(),
        ["rate"],
        "two tokens are not back"
    );
    let restored = without.changed(both()).unwrap();
    assert_eq!(rate(&restored), 2);
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(restored.changed([]).unwrap().changed([]).unwrap().removed().count(), 0);
}

#[test]
fn duplicate_schema_names_are_refused() {
    let twice = [named("tenants", SchemaKind::Exempt), named("tenants", slots(1, &[], None))];
    let error = FlowControl::new(twice).unwrap_err();
    assert_eq!(error.to_string(), "two flow control schemas are named \"tenants\"; rename one of them");
}
