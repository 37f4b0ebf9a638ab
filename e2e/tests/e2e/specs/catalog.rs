//! Catalog of Kubernetes' specs. It selects the specs that can pass on a member with simulated containers.

use anyhow::{Context, ensure};
use std::{path::Path, process::Stdio};
use tokio::process::Command;

/// Parts of the names of API machinery specs that test features of Tributary: list, watch, Table, discovery, content
/// negotiation.
const MACHINERY: &[&str] = &[
    "Watchers",
    "chunking",
    "Table transformation",
    "API Streaming",
    "AggregatedDiscovery",
    "[sig-api-machinery] Discovery",
    "server version",
    "health handlers",
    "should negotiate",
    "CustomResourceDefinition Watch",
];

/// Parts of the names of API machinery specs that continuous integration does not run: the first kills servers, the
/// second waits minutes for a compaction, and the third needs a running webhook.
const NOT_MACHINERY: &[&str] = &["Disruptive", "compacted away", "FieldSelectors"];

/// Number of API machinery specs that continuous integration runs.
pub(crate) const MACHINERY_COUNT: usize = 33;

/// Parts of the names of specs that are never run: disruptive and flaky specs, and specs of features that are off by
/// default. Also specs of features that simulated nodes lack: storage, networks between pods, cgroups, probes, hooks
/// and capabilities of containers, webhooks in pods, clouds, Windows.
const NOT_TRIED: &[&str] = &[
    "[Disruptive]",
    "[Flaky]",
    "[Alpha]",
    "[Feature:OffByDefault]",
    "[sig-storage]",
    "CSI",
    "Netpol",
    "NetworkPolicy",
    "LoadBalancer",
    "Networking Granular",
    "Networking IPerf2",
    "[sig-network] DNS",
    "Conntrack",
    "[Feature:IPv6DualStack]",
    "AdmissionWebhook",
    "esize",
    "Probing",
    "Lifecycle Hook",
    "Security Context",
    "Container Runtime",
    "GPU",
    "Windows",
];

/// Parts of the names of specs that pass only sometimes, each with the reason.
pub(crate) const BY_CHANCE: &[(&str, &str)] = &[
    (
        "should support continue listing from the last key if the original version has been compacted away",
        "it waits ten minutes for a continue token to be too old; through Tributary one is good for as long as nothing else of its \
         kind changes, and passes only where another spec happens to change some",
    ),
    (
        "Pod Container Status should never report",
        "it deletes pods before their containers run, and those that are played run at once: it passes where the player is slow",
    ),
    (
        "UnhealthyPodEvictionPolicy",
        "it wants pods that are not ready for some seconds, and those that are played are ready at once",
    ),
    (
        "CronJob should remove from active list jobs that have been deleted",
        "it wants a Job that is active, and those that are played are complete at once",
    ),
];

/// Returns the full names of all specs in the program. A full name consists of the texts of the containers and of the
/// spec itself.
///
/// # Errors
/// If the program does not run.
pub(crate) async fn all(specs: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(specs.join("e2e.test"));
    let output = command.arg("--list-tests").stderr(Stdio::inherit()).output().await.context("list the specs")?;
    ensure!(output.status.success(), "the list of specs ended with {}", output.status);
    let text = String::from_utf8(output.stdout).context("the list of specs is no text")?;
    let names: Vec<String> = text.lines().filter_map(name).map(str::to_owned).collect();
    ensure!(!names.is_empty(), "the list of specs is empty: {text}");
    Ok(names)
}

/// Returns the name in a line of the program's list. The line has the form `    <file>:<line>: <name>`.
fn name(line: &str) -> Option<&str> {
    let (place, name) = line.strip_prefix("    ")?.split_once(": ")?;
    let (_file, number) = place.rsplit_once(':')?;
    number.parse::<u32>().ok().map(|_| name)
}

/// Returns whether continuous integration runs a spec.
pub(crate) fn is_machinery(name: &str) -> bool {
    has_any(name, MACHINERY) && !has_any(name, NOT_MACHINERY)
}

/// Returns whether a spec can pass reliably with simulated containers, and so is worth a run.
pub(crate) fn is_worth_trying(name: &str) -> bool {
    !has_any(name, NOT_TRIED) && !BY_CHANCE.iter().any(|(part, _)| name.contains(part))
}

/// Returns whether a spec must run alone.
pub(crate) fn is_serial(name: &str) -> bool {
    name.contains("[Serial]")
}

/// Returns whether a spec may take many minutes.
pub(crate) fn is_slow(name: &str) -> bool {
    name.contains("[Slow]")
}

fn has_any(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}
