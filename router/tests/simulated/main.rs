//! The router over simulated members in one process: real TLS and HTTP/2 to the members, faults on command, and no Go
//! program. The tests call [`tributary_router::Router::handle`] as a listener does, and check the router's promises to
//! clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod clients;
mod harness;
mod limits;
mod membership;
mod outages;
mod reads;
mod writes;

// The slow and obvious reading of kube-apiserver's code, and generators of roles that often overlap, from the tests of
// the compiled rights.
#[allow(dead_code, reason = "the compiled rights are told of more changes")]
#[path = "../../../authorization/tests/properties/generated.rs"]
mod generated;
#[allow(dead_code, reason = "the compiled rights are told of more changes")]
#[path = "../../../authorization/tests/properties/reference.rs"]
mod reference;
