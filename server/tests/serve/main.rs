//! Tests of `tributary serve` and `tributary demo` as a user runs them, over simulated members: files, reloads and
//! signals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod certificates;
mod configuration;
mod convert;
mod demo;
mod duplicates;
mod endpoints;
mod fixture;
mod hosts;
mod indices;
mod join;
mod kubeconfig;
mod lifecycle;
mod policies;
mod precedents;
mod renewal;
mod replicas;
mod status;
mod tls;
mod unauthenticated;
mod user_kubeconfig;
