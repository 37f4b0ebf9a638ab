//! Tests of requests that wait.

use std::num::NonZeroU16;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tributary_flow_control::{Attributes, Deck, Dimension, Flow, FlowResource, Queueing, RefusalCause};

use super::{from, named, one, slots, tenants, tokens, waiting};

const WAIT_MAX: Duration = Duration::from_millis(500);

#[tokio::test(start_paused = true)]
async fn waiting_request_gets_a_freed_slot_or_times_out() {
    let control = one(slots(1, &[], Some(waiting(WAIT_MAX))));
    let schema = tenants(&control);
    let permit = schema.admit(&from("ann")).await.unwrap();
    let started = tokio::time::Instant::now();
    let (second, third) = (from("ann"), from("bob"));
    let (mut second, mut third) = (Box::pin(schema.admit(&second)), Box::pin(schema.admit(&third)));
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    assert_eq!(schema.usage().waiting, 2);
    tokio::time::advance(WAIT_MAX / 2).await;
    drop(permit);
    let _permit = (&mut second).now_or_never().expect("it came first").unwrap();
    let refused = third.await.unwrap_err();
    assert_eq!(refused.cause, RefusalCause::TimedOut(WAIT_MAX));
    assert!(
        refused.to_string().ends_with("; the limit was reached, and the request was not admitted within 500ms"),
        "{refused}"
    );
    assert_eq!((started.elapsed().as_millis(), schema.usage().waiting), (WAIT_MAX.as_millis(), 0));
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_passes_its_slot_to_the_next_request() {
    let control = one(slots(1, &[], Some(waiting(WAIT_MAX))));
    let schema = tenants(&control);
    let permit = schema.admit(&from("ann")).await.unwrap();
    let names = ["ann", "bob", "eve"].map(|name| from(name));
    let [mut cancelled, mut late, mut last] = names.each_ref().map(|attributes| Box::pin(schema.admit(attributes)));
    for waiting in [&mut cancelled, &mut late, &mut last] {
        assert!(waiting.now_or_never().is_none());
    }
    drop(cancelled);
    // The second request gets the slot, but its future is dropped before the next poll.
    drop(permit);
    assert_eq!(schema.usage().waiting, 1);
    drop(late);
    assert!((&mut last).now_or_never().expect("the third").is_ok());
    assert_eq!(schema.usage().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_a_rate_token_and_a_cancelled_request_spends_none() {
    let control = one(tokens(10, 1, &[], Some(waiting(WAIT_MAX))));
    let schema = tenants(&control);
    let _spent = schema.admit(&from("ann")).await.unwrap();
    let started = tokio::time::Instant::now();
    for _ in 0..3 {
        let _spent = schema.admit(&from("ann")).await.unwrap();
    }
    let took = started.elapsed().as_millis();
    assert!((300..=303).contains(&took), "{took} ms");
    // A waiting request whose future is dropped before the next poll leaves the token to the next request.
    let ann = from("ann");
    let mut cancelled = Box::pin(schema.admit(&ann));
    assert!((&mut cancelled).now_or_never().is_none());
    tokio::time::sleep(Duration::from_millis(102)).await;
    assert_eq!(schema.usage().waiting, 0);
    drop(cancelled);
    assert!(schema.admit(&from("bob")).now_or_never().expect("the token is there").is_ok());
}

#[tokio::test(start_paused = true)]
async fn raised_limit_admits_waiting_requests_at_once() {
    let queueing = Some(waiting(WAIT_MAX));
    for (few, more) in [
        (slots(1, &[], queueing), slots(2, &[], queueing)),
        (tokens(1, 1, &[], queueing), tokens(1, 2, &[], queueing)),
        (tokens(1, 1, &[], queueing), tokens(1000, 1, &[], queueing)),
    ] {
        let control = one(few);
        let schema = tenants(&control);
        let _permit = schema.admit(&from("ann")).await.unwrap();
        let ann = from("ann");
        let mut second = Box::pin(schema.admit(&ann));
        assert!((&mut second).now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(10)).await;
        let changed = control.changed([named("tenants", more.clone())]).unwrap();
        let started = tokio::time::Instant::now();
        assert!(second.await.is_ok(), "{more:?}");
        assert!(started.elapsed() <= Duration::from_millis(2), "{more:?}");
        drop(changed);
    }
}

#[tokio::test(start_paused = true)]
async fn length_of_each_queue_and_of_all_queues_together_is_limited() {
    let queueing = |queues, length| Queueing {
        deck: Deck::new(queues, 1).unwrap(),
        length: NonZeroU16::new(length).unwrap(),
        wait_max: WAIT_MAX,
    };
    let control = one(slots(1, &[], Some(queueing(1, 3))));
    let schema = tenants(&control);
    let _permit = schema.admit(&from("ann")).await.unwrap();
    let users = ["ann", "bob", "eve"].map(|name| from(name));
    let mut waits: Vec<_> = users.iter().map(|one| Box::pin(schema.admit(one))).collect();
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
    let refused = schema.admit(&from("kim")).now_or_never().expect("there is no room to wait in").unwrap_err();
    assert_eq!((refused.cause, refused.cause.reason()), (RefusalCause::QueueFull, "queue-full"));
    drop(waits);
    // A flow uses only one of eight queues.
    let control = one(slots(1, &[], Some(queueing(8, 2))));
    let schema = tenants(&control);
    let _permit = schema.admit(&from("ann")).await.unwrap();
    let ann = from("ann");
    let mut waits: Vec<_> = (0..2).map(|_| Box::pin(schema.admit(&ann))).collect();
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
    let refused = schema.admit(&ann).now_or_never().expect("its queue is full").unwrap_err();
    assert_eq!(refused.cause, RefusalCause::QueueFull);
}

/// Flow control runs before Tributary looks up the resource, so a user can create any number of keys with invented
/// resource names.
#[tokio::test(start_paused = true)]
async fn user_with_many_flow_control_keys_leaves_queue_space_to_other_users() {
    let queueing = Queueing {
        deck: Deck::new(8, 1).unwrap(),
        length: NonZeroU16::new(25).unwrap(),
        wait_max: Duration::from_secs(60),
    };
    let control = one(tokens(5, 5, &[Dimension::User, Dimension::Resource], Some(queueing)));
    let schema = tenants(&control);
    let invented: Vec<_> = (0..8).map(|number| format!("invented{number}")).collect();
    let resources = invented.iter().map(|name| FlowResource { group: "", resource: name, subresource: None });
    let of_eve: Vec<_> = resources.map(|resource| Attributes { resource: Some(resource), ..from("eve") }).collect();
    let mut waits = Vec::new();
    for attributes in of_eve.iter().flat_map(|own| std::iter::repeat_n(own, 30)) {
        let mut wait = Box::pin(schema.admit(attributes));
        if (&mut wait).now_or_never().is_none() {
            waits.push(wait);
        }
    }
    assert_eq!(waits.len(), 100, "half of what may wait in all");
    let ann = from("ann");
    for _ in 0..5 {
        let _spent = schema.admit(&ann).now_or_never().expect("her own bucket is full").unwrap();
    }
    let mut sixth = Box::pin(schema.admit(&ann));
    assert!((&mut sixth).now_or_never().is_none(), "it waits");
    assert!(sixth.await.is_ok());
}

/// A user who may create ServiceAccounts in one namespace can create any number of users.
#[tokio::test(start_paused = true)]
async fn service_accounts_of_one_member_share_one_flow() {
    let control = one(tokens(10, 1, &[], Some(waiting(Duration::from_secs(60)))));
    let schema = tenants(&control);
    let _spent = schema.admit(&from("ann")).await.unwrap();
    let of_eu = |user: u64| Attributes { flow: Flow::from_shared_identity(&"eu", &user), ..from("robot") };
    let (storm, accounts): (_, Vec<_>) = (of_eu(1_000), (0..20).map(of_eu).collect());
    let ann = from("ann");
    let mut order = Vec::new();
    let mut waits = FuturesUnordered::new();
    let all = std::iter::repeat_n(("storm", &storm), 20).chain(accounts.iter().map(|own| ("account", own)));
    for (user, attributes) in all.chain(std::iter::repeat_n(("ann", &ann), 10)) {
        waits.push(async move { schema.admit(attributes).await.map(|_spent| user) });
        // The first poll adds this request to the queue before later requests.
        assert!(waits.next().now_or_never().is_none());
    }
    while let Some(user) = waits.next().await {
        order.push(user.unwrap());
    }
    let of = |user: &str, first: usize| order[..first].iter().filter(|own| **own == user).count();
    assert!((9..=10).contains(&of("ann", 20)), "one turn of two: {order:?}");
    assert!(of("account", 20) >= 8, "one account's storm is no more than one of theirs: {order:?}");
}
