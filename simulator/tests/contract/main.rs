//! Tests that the simulator keeps the contract of a kube-apiserver, with a real HTTP/2 client over TLS.

// Test helpers may panic like tests.
#![allow(clippy::unwrap_used)]

mod client;
mod discovery;
mod faults;
mod list;
mod watch;
mod write;
