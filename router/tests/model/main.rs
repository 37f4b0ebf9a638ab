//! Model-based tests: members with random faults, two routers over these members, and clients that list and watch at
//! random. Each test run compares the history of each client with the histories of the members.
//!
//! ```text
//! seed ─▶ Profile ─┬─▶ schedule ──writes, faults──▶ members ──history──▶ Truth
//!                  │                                   ▲                  │
//!                  └─▶ clients ──list, watch──▶ routers┘                  ▼
//!                         └───────────events, lists───────────────▶ Follower: is each event true?
//! ```
//!
//! Members, routers and clients share one thread, and the clock stands still while any task can proceed. Connections
//! are HTTP/2 over memory instead of TCP and TLS; all layers above are the product's own code. Every random number is
//! derived from the seed, and no other thread runs, so all runs of a seed are equal.
//!
//! * `cargo test -p tributary-router --test model` runs 200 seeds and all seeds that once failed;
//! * `… -- seed=7` runs one seed, `… -- seed=0..5000` many seeds, and `… -- rights=7` one seed with users whose rights
//!   change; with `TRIBUTARY_TRACE=1` a failure shows its whole trace instead of the last lines;
//! * `… -- --ignored proof` runs `TRIBUTARY_SEEDS` seeds, 20,000 by default.

// An `unwrap` in a test is an assertion. Clippy's exemption for tests does not include tests without libtest's harness.
#![allow(clippy::unwrap_used)]

mod client;
mod corruption;
mod follower;
mod ledger;
mod rights;
mod run;
mod schedule;
mod truth;
mod world;
mod writer;
mod writes;

use std::io::Write as _;
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};

use run::RunKind;

const SEEDS: u64 = 200;

/// The number of seeds for runs with users whose rights change.
const RIGHTS_SEEDS: u64 = 100;

const SEEDS_PER_TRIAL: u64 = 50;

/// Seeds whose runs once failed, each with the defect in the router. A change of the schedule changes the run of a
/// seed, so each defect also has a smaller test beside the corrected code.
const FAILED_ONCE: [(u64, &str); 17] = [
    (0, "deletions_of_one_revision_after_the_first_were_lost"),
    (2, "leaving_cluster_kept_its_version_at_a_deletion_before_another_cluster"),
    (20, "cluster_that_became_stale_during_a_wait_for_its_write_was_not_named"),
    (288, "client_that_listed_a_whole_revision_received_its_deletions_again"),
    (395, "resume_from_an_integer_missed_another_clusters_object_of_a_deleted_name"),
    (764, "wait_for_a_write_used_a_replaced_cacher"),
    (1150, "client_with_a_whole_revision_went_back_to_a_part_after_a_relist"),
    (4520, "integer_from_before_another_cluster_left_counted_as_a_whole_vector"),
    (4533, "resume_from_a_repeated_object_sent_a_bookmark_before_its_version"),
    (5548, "integer_from_before_its_cluster_left_counted_as_a_whole_vector"),
    (5428, "integer_of_a_namespaces_own_view_resumed_in_the_view_of_all"),
    (6394, "client_ahead_of_a_cluster_waited_in_an_old_cacher_and_missed_a_restore"),
    (8242, "objects_forbidden_for_a_minute_were_dropped_though_allowed_again"),
    (11895, "integer_from_before_the_first_read_counted_as_a_whole_vector"),
    (12808, "drained_process_sent_later_events_whose_integer_resumed_elsewhere"),
    (14607, "object_selected_by_a_relist_had_an_old_version_and_outlived_its_cluster"),
    (2788, "object_of_a_cluster_with_a_changed_index_was_created_in_another"),
];

/// The default number of seeds of the test `proof`, if `TRIBUTARY_SEEDS` is not set.
const PROOF_SEEDS: u64 = 20_000;

fn main() -> anyhow::Result<()> {
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    for argument in std::env::args() {
        let Some((word, given)) = argument.split_once('=') else { continue };
        let Some(kind) = RunKind::of(word) else { continue };
        let seeds = run::seeds(given)?;
        let well =
            if seeds.clone().count() == 1 { run::run_one(kind, seeds.start) } else { run_each(kind, seeds).is_ok() };
        std::process::exit(i32::from(!well));
    }
    let mut arguments = Arguments::from_args();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(cores);
    let mut trials = corruption::trials();
    trials.push(Trial::test("seed_gives_the_same_run_each_time", || same_runs(&[9, 12, 13])));
    for (seed, what) in FAILED_ONCE {
        trials.push(Trial::test(format!("failed_once::{seed}::{what}"), move || {
            run_each(RunKind::Versions, seed..seed + 1)
        }));
    }
    for from in (0..SEEDS).step_by(SEEDS_PER_TRIAL as usize) {
        let to = from + SEEDS_PER_TRIAL;
        trials.push(Trial::test(format!("seeds_{from}_to_{to}"), move || run_each(RunKind::Versions, from..to)));
    }
    for from in (0..RIGHTS_SEEDS).step_by(SEEDS_PER_TRIAL as usize) {
        let to = from + SEEDS_PER_TRIAL;
        trials.push(Trial::test(format!("rights_{from}_to_{to}"), move || run_each(RunKind::Rights, from..to)));
    }
    trials.push(Trial::test("rights_checker_reports_leaks", rights::truth::rights_checker_reports_leaks));
    trials.push(Trial::test("proof_seeds", move || proof(cores as u64)).with_ignored_flag(true));
    libtest_mimic::run(&arguments, trials).exit()
}

/// Runs each seed in a separate process, so that no state of an earlier run has an effect. Failures are written to
/// stderr immediately.
fn run_each(kind: RunKind, seeds: std::ops::Range<u64>) -> Result<(), Failed> {
    let mut failed = Vec::new();
    for seed in seeds {
        let output = run_alone(kind, seed)?;
        std::io::stderr().write_all(&output.stderr)?;
        if !output.status.success() {
            failed.push(seed);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("these seeds failed: {failed:?}").into()) }
}

/// Checks that two runs of a seed have equal traces.
fn same_runs(seeds: &[u64]) -> Result<(), Failed> {
    for seed in seeds {
        let traced =
            || Command::new(std::env::current_exe()?).arg(format!("seed={seed}")).env("TRIBUTARY_TRACE", "1").output();
        let [first, second] = [traced()?, traced()?].map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        if let Some((at, (first, second))) = first.lines().zip(second.lines()).enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!("seed {seed}, line {at}: once\n{first}\nand once\n{second}").into());
        }
        if first.len() != second.len() || first.lines().count() < 100 {
            return Err(format!("seed {seed} shows {} bytes, then {}", first.len(), second.len()).into());
        }
    }
    Ok(())
}

fn run_alone(kind: RunKind, seed: u64) -> std::io::Result<std::process::Output> {
    Command::new(std::env::current_exe()?).arg(format!("{}={seed}", kind.word())).output()
}

/// Runs seeds of both kinds. The kind with changing rights gets a tenth of the seeds.
fn run_both(seeds: std::ops::Range<u64>) -> Result<(), Failed> {
    let (of_versions, of_rights) = (seeds.clone(), seeds.step_by(10));
    run_each(RunKind::Versions, of_versions)?;
    of_rights.into_iter().try_for_each(|seed| run_each(RunKind::Rights, seed..seed + 1))
}

fn proof(cores: u64) -> Result<(), Failed> {
    let seeds = std::env::var("TRIBUTARY_SEEDS").ok().map_or(Ok(PROOF_SEEDS), |text| text.parse())?;
    let share = seeds.div_ceil(cores).max(1);
    let starts = (SEEDS..SEEDS + seeds).step_by(usize::try_from(share)?);
    let threads: Vec<_> =
        starts.map(|from| std::thread::spawn(move || run_both(from..(from + share).min(SEEDS + seeds)))).collect();
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
}
