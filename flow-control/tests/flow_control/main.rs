//! Tests of schemas through the public interface. The tests run in tokio's paused time.

use std::num::NonZeroU32;
use std::time::Duration;

use tributary_flow_control::{
    Attributes, Dimension, Flow, FlowControl, FlowResource, Limited, MaxRequestsInflight, Queueing, Schema, SchemaKind,
    SchemaLimiter, TokenBucket,
};

mod allocations;
mod limits;
mod offered_twice;
mod waits;

/// Returns the request `list pods` of a user.
fn from(name: &str) -> Attributes<'_> {
    Attributes {
        verifier: "test",
        user: name,
        member: None,
        groups: &[],
        client_address: None,
        verb: "list",
        resource: Some(FlowResource { group: "", resource: "pods", subresource: None }),
        is_long_running: false,
        width: 1,
        flow: Flow::from_identity(&name),
    }
}

/// Returns the request `watch pods` of a user.
fn watch(name: &str) -> Attributes<'_> {
    Attributes { verb: "watch", is_long_running: true, ..from(name) }
}

fn slots(max: u32, by: &[Dimension], queueing: Option<Queueing>) -> SchemaKind {
    let limit = MaxRequestsInflight { max, count_long_running: false };
    SchemaKind::MaxRequestsInflight(Limited { limit, by: by.to_vec(), queueing })
}

fn tokens(qps: u32, burst: u32, by: &[Dimension], queueing: Option<Queueing>) -> SchemaKind {
    let [qps, burst] = [qps, burst].map(|number| NonZeroU32::new(number).expect("not zero"));
    SchemaKind::TokenBucket(Limited { limit: TokenBucket { qps, burst }, by: by.to_vec(), queueing })
}

fn waiting(wait_max: Duration) -> Queueing {
    Queueing { wait_max, ..Queueing::default() }
}

fn named(name: &str, kind: SchemaKind) -> Schema {
    Schema { name: name.into(), kind }
}

fn one(kind: SchemaKind) -> FlowControl {
    FlowControl::new([named("tenants", kind)]).expect("one schema")
}

fn tenants(control: &FlowControl) -> &SchemaLimiter {
    control.schema("tenants").expect("the one schema")
}
