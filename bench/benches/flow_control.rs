//! The cost of flow control for a request that is admitted without waiting. 10,000 accounts exist, one per user and
//! resource.

use std::hint::black_box;
use std::num::NonZeroU32;

use criterion::{Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use tributary_flow_control::{
    AdmittedRequest, Attributes, Dimension, Flow, FlowControl, FlowResource, Limited, MaxRequestsInflight, Queueing,
    Schema, SchemaKind, SchemaLimiter, TokenBucket,
};

const USERS: usize = 10_000;

fn control() -> FlowControl {
    let (by, queueing) = (vec![Dimension::User, Dimension::Resource], Some(Queueing::default()));
    let most = NonZeroU32::new(1_000_000_000).unwrap_or(NonZeroU32::MIN);
    let slots =
        Limited { limit: MaxRequestsInflight { max: 100, count_long_running: false }, by: by.clone(), queueing };
    let tokens = Limited { limit: TokenBucket { qps: most, burst: most }, by, queueing };
    let schemas = [
        ("exempt", SchemaKind::Exempt),
        ("in-flight", SchemaKind::MaxRequestsInflight(slots)),
        ("tokens", SchemaKind::TokenBucket(tokens)),
    ];
    let schemas = schemas.map(|(name, kind)| Schema { name: name.into(), kind });
    FlowControl::new(schemas).unwrap_or_else(|error| panic!("{error}"))
}

fn attributes<'a>(name: &'a str, groups: &'a [String]) -> Attributes<'a> {
    Attributes {
        verifier: "x509",
        user: name,
        member: None,
        groups,
        client_address: None,
        verb: "get",
        resource: Some(FlowResource { group: "apps", resource: "deployments", subresource: Some("scale") }),
        is_long_running: false,
        width: 1,
        flow: Flow::from_identity(&name),
    }
}

fn admit(schema: &SchemaLimiter, attributes: &Attributes<'_>) -> AdmittedRequest {
    let admitted = schema.admit(attributes).now_or_never();
    admitted.and_then(Result::ok).unwrap_or_else(|| panic!("{} has room", schema.name()))
}

fn admission(criterion: &mut Criterion) {
    let control = control();
    let names: Vec<_> = (0..USERS).map(|number| format!("system:serviceaccount:team-{number}:controller")).collect();
    let groups: Vec<_> = ["system:authenticated", "web"].map(str::to_owned).to_vec();
    for schema in control.schemas() {
        // Each user has a request in flight, so the schema has an account of each user.
        let _held: Vec<_> = names.iter().map(|name| admit(schema, &attributes(name, &groups))).collect();
        let mut at = 0;
        criterion.bench_function(&format!("flow-control/{}", schema.name()), |bencher| {
            bencher.iter(|| {
                at = (at + 7919) % USERS;
                black_box(admit(schema, &attributes(&names[at], &groups)))
            });
        });
    }
}

criterion_group!(benches, admission);
criterion_main!(benches);
