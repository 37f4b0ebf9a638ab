//! The router over simulated members in one process: real TLS and HTTP/2 to the members, faults on command, and no Go
//! program. The tests call [`tributary_router::Router::handle`] as a listener does, and check the router's promises to
//! clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod browsers;
mod clusters;
mod discovery;
mod endpoints;
mod fairness;
mod faults;
mod fleet;
mod forwarding;
mod freshness;
mod governed;
mod grounds;
mod harness;
mod held;
mod hidden;
mod impersonated;
mod informer;
mod integers;
mod kinds;
mod lagging;
mod large;
mod last_heard;
mod lasting;
mod lists;
mod live;
mod liveness;
mod members;
mod members_property;
mod namespaces;
mod openapi;
mod pages;
mod patches;
mod placement;
mod policies;
mod precedents;
mod quorum;
mod registries;
mod releases;
mod renewal;
mod replaced;
mod replicas;
mod report;
mod reviews;
mod rights;
mod rights_bounded;
mod rights_detected;
mod rights_forwarded;
mod rights_joining;
mod rights_lasting;
mod rights_numbers;
mod rights_property;
mod rights_reviewed;
mod rights_watched;
mod selection;
mod senders;
mod shared_revisions;
mod silence;
mod slow_lines;
mod storm;
mod streams;
mod topology;
mod uncached;
mod unread;
mod watches;
mod worst;
mod writes;
mod yaml_bodies;

// The slow and obvious reading of kube-apiserver's code, and generators of roles that often overlap, from the tests of
// the compiled rights.
#[allow(dead_code, reason = "the compiled rights are told of more changes")]
#[path = "../../../authorization/tests/properties/generated.rs"]
mod generated;
#[allow(dead_code, reason = "the compiled rights are told of more changes")]
#[path = "../../../authorization/tests/properties/reference.rs"]
mod reference;
