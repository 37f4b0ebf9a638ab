//! Which specs there are, and which of them a member whose containers are played may pass at all.

use anyhow::{Context, ensure};
use std::{path::Path, process::Stdio};
use tokio::process::Command;

/// The API machinery's specs of what is Tributary's own: list, watch, Table, discovery, negotiation.
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

/// Left out of them: the first kills servers; the second waits minutes for a compaction; the third needs a webhook that
/// really runs.
const NOT_MACHINERY: &[&str] = &["Disruptive", "compacted away", "FieldSelectors"];

/// How many specs these are.
pub(crate) const MACHINERY_COUNT: usize = 33;

/// What is not even tried: specs that break the cluster or say of themselves that they fail now and then, features that
/// are off by default, and those of what a member whose nodes are played has none of: storage, networks between pods,
/// cgroups, probes, hooks and rights of containers, webhooks that run in pods, clouds, Windows.
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

/// Specs that pass here and there by chance, by a part of their names, and why.
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

/// The names of all specs that were built, as Kubernetes gives them: the texts of the containers,
/// and of the spec itself.
///
/// # Errors
/// When the program does not run.
pub(crate) async fn all(specs: &Path) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(specs.join("e2e.test"));
    let output = command.arg("--list-tests").stderr(Stdio::inherit()).output().await.context("list the specs")?;
    ensure!(output.status.success(), "the list of specs ended with {}", output.status);
    let text = String::from_utf8(output.stdout).context("the list of specs is no text")?;
    let names: Vec<String> = text.lines().filter_map(name).map(str::to_owned).collect();
    ensure!(!names.is_empty(), "the list of specs is empty: {text}");
    Ok(names)
}

/// The name in a line of the list, `    <file>:<line>: <name>`.
fn name(line: &str) -> Option<&str> {
    let (place, name) = line.strip_prefix("    ")?.split_once(": ")?;
    let (_file, number) = place.rsplit_once(':')?;
    number.parse::<u32>().ok().map(|_| name)
}

/// Whether a spec is one of those that continuous integration runs.
pub(crate) fn is_machinery(name: &str) -> bool {
    has_any(name, MACHINERY) && !has_any(name, NOT_MACHINERY)
}

/// Whether a spec may pass where containers are played, and for a reason.
pub(crate) fn is_worth_trying(name: &str) -> bool {
    !has_any(name, NOT_TRIED) && !BY_CHANCE.iter().any(|(part, _)| name.contains(part))
}

/// Whether nothing else may run beside a spec.
pub(crate) fn is_serial(name: &str) -> bool {
    name.contains("[Serial]")
}

/// Whether a spec may take many minutes.
pub(crate) fn is_slow(name: &str) -> bool {
    name.contains("[Slow]")
}

fn has_any(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}
