//! Tests of the router over simulated members in one process: real TLS and HTTP/2 to the members, and simulated faults.
//! The tests call [`tributary_router::Router::handle`] like a listener, and check the router's promises to clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod clients;
mod doors;
mod harness;
mod limits;
mod membership;
mod outages;
mod reads;
mod writes;

// These two modules of the crate `authorization` are a simple transcription of kube-apiserver's RBAC code, and
// generators of roles that often overlap.
#[allow(dead_code, reason = "the compiled rights are told of more changes")]
#[path = "../../../authorization/tests/properties/generated.rs"]
mod generated;
#[allow(dead_code, reason = "the compiled rights are told of more changes")]
#[path = "../../../authorization/tests/properties/reference.rs"]
mod reference;
