//! End-to-end tests with real kube-apiservers and real clients.
//!
//! The binary has a custom harness ([`libtest_mimic`]), so that all tests share the members, and the harness stops them
//! at the end. A member takes seconds to start and hundreds of megabytes. Filters and flags are those of libtest: `make
//! e2e E2E=conformance::bare`.

// A failed `unwrap` is a failed test. clippy allows `unwrap` in tests, but does not recognize the tests of a custom
// harness.
#![allow(clippy::unwrap_used)]

mod audit;
mod authentication;
mod authorization;
mod bookmarks;
mod clients;
mod cluster_annotation;
mod compact_versions;
mod compaction;
mod configuration_objects;
mod conformance;
mod context;
mod day;
mod deployment;
mod differential;
mod differing_apis;
mod endpoints;
mod events;
mod faults;
mod fixture;
mod flow_control;
mod helm;
mod hub;
mod k9s;
mod kinds;
mod kubectl;
mod kubelet_refusals;
mod observability;
mod oracle;
mod own_kubeconfig;
mod plugin;
mod policies;
mod precedents;
mod rights;
mod same_names;
mod shared_mode;
mod shared_watches;
mod silent_members;
mod specs;
mod tables;
mod topology;
mod uncached;
mod unreadable_definitions;
mod victim;

use context::Case;
use libtest_mimic::{Arguments, Trial};
use std::sync::Arc;

/// Number of concurrent tests without `--test-threads`. It is greater than the number of cores, because tests mostly
/// wait for servers. On two cores, all tests took 475 s with four threads and 406 s with six.
const THREADS: usize = 6;

fn main() -> anyhow::Result<()> {
    tributary_e2e::install_crypto_provider();
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);

    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?);
    let fixture = fixture::Fixture::new();
    // The Kubernetes specs and the informer test (`oracle`) start first, because they take longest and mostly wait.
    let cases: Vec<Case> = [
        specs::cases(),
        oracle::cases(),
        day::cases(),
        conformance::cases(),
        differential::cases(),
        kinds::cases(),
        kubectl::cases(),
        helm::cases(),
        k9s::cases(),
        clients::cases(),
        tables::cases(),
        faults::cases(),
        topology::cases(),
        uncached::cases(),
        kubelet_refusals::cases(),
        rights::cases(),
        unreadable_definitions::cases(),
        shared_mode::cases(),
        authorization::cases(),
        same_names::cases(),
        differing_apis::cases(),
        endpoints::cases(),
        policies::cases(),
        flow_control::cases(),
        precedents::cases(),
        events::cases(),
        compaction::cases(),
        compact_versions::cases(),
        bookmarks::cases(),
        silent_members::cases(),
        shared_watches::cases(),
        own_kubeconfig::cases(),
        plugin::cases(),
        cluster_annotation::cases(),
        authentication::cases(),
        audit::cases(),
        configuration_objects::cases(),
        hub::cases(),
        deployment::cases(),
        observability::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let trials = cases
        .into_iter()
        .map(|case| {
            let (runtime, fixture) = (Arc::clone(&runtime), Arc::clone(&fixture));
            let (name, ignored) = (case.name.clone(), case.is_ignored());
            Trial::test(name, move || runtime.block_on(case.run(fixture)).map_err(Into::into))
                .with_ignored_flag(ignored)
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    runtime.block_on(fixture.shut_down());
    conclusion.exit()
}
