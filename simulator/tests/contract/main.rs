//! The simulator keeps the contract of a kube-apiserver, seen by a real HTTP/2 client over TLS.

// A test that cannot go on says so by a panic, in helpers as well.
#![allow(clippy::unwrap_used)]

mod client;
mod discovery;
mod faults;
mod list;
mod watch;
mod write;
