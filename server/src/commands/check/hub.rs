//! Shows the verdict on each object of a hub, as in `serve` at a first start. Writes nothing to the hub.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tributary_hosts::HostTable;
use tributary_hub::{ConditionStatus, HubAddress, HubClient, HubSource, ItemVerdict, OtherSources, Verdict};
use tributary_sources::clusters::indices::IndexOwners;
use tributary_sources::policies::{KnownClusters, PolicyFlags, named_resources, policies};
use tributary_sources::{ConfigurationFlags, ConfigurationSources, LoadedConfiguration};

use super::counted;
use crate::cli::CheckArguments;
use crate::exit::Failure;
use crate::output::print;
use crate::output::terminal::plain;

/// Time limit for the lists of the hub.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the verdict on each object of the hub.
///
/// # Errors
/// A usage failure for an invalid kubeconfig or configuration file. A runtime failure if the hub does not list its
/// objects within 10 s, or if an object is refused; the verdicts have already been printed.
pub(super) async fn print_verdicts(address: &HubAddress, arguments: &CheckArguments) -> Result<(), Failure> {
    let flags = ConfigurationFlags {
        config: arguments.config.as_deref(),
        kubeconfig: arguments.kubeconfig.as_deref(),
        contexts: arguments.contexts.as_deref(),
        has_hub: true,
    };
    let base = ConfigurationSources::new(flags).map_err(Failure::usage)?.read().await.map_err(Failure::usage)?;
    let client = Arc::new(HubClient::connect(address).await.map_err(Failure::Usage)?);
    let rules = arguments.hub.rules().map_err(Failure::Usage)?;
    // The log names the reason why the hub does not list its objects.
    let started = timeout(LIST_TIMEOUT, HubSource::start(client, rules, None)).await;
    let Ok(started) = started else {
        let seconds = LIST_TIMEOUT.as_secs();
        let problem = "the hub has not listed its objects and Secrets";
        return Err(Failure::runtime(anyhow::anyhow!(
            "{problem} within {seconds} s; check its address and the rights"
        )));
    };
    let mut source = started.map_err(Failure::runtime)?;
    let check = |configuration: &LoadedConfiguration| check_whole(configuration).map_err(|error| format!("{error:#}"));
    let others = OtherSources { configuration: &base, indexes: IndexOwners::default() };
    let mut verdicts = source.accept(&others, &check).await.verdicts.to_vec();
    verdicts.sort_by(|a, b| (a.object.kind, &a.object.name).cmp(&(b.object.kind, &b.object.name)));
    print(&render(&verdicts));
    let is_refused = |verdict: &&Verdict| {
        verdict.problem().is_some() || verdict.source.as_ref().is_some_and(|source| source.refused().next().is_some())
    };
    match verdicts.iter().filter(is_refused).count() {
        0 => Ok(()),
        refused => {
            let of_all = counted(verdicts.len(), "object");
            Err(Failure::runtime(anyhow::anyhow!("{refused} of {of_all} of the hub would not be in force as written")))
        }
    }
}

/// Checks that hosts and policies of a configuration fit together, without the flags of `serve`.
fn check_whole(configuration: &LoadedConfiguration) -> anyhow::Result<()> {
    let hosts = configuration.clusters.iter().map(|spec| (&spec.name, &spec.hosts));
    HostTable::new(&[], Vec::new(), hosts, &HostTable::default())?;
    let known: KnownClusters =
        configuration.clusters.iter().map(|spec| (spec.name.clone(), spec.labels.clone())).collect();
    let flags = PolicyFlags::default();
    policies(&flags, &configuration.objects.registries, &known)?;
    named_resources(&flags, &configuration.objects.registries)?;
    Ok(())
}

fn render(verdicts: &[Verdict]) -> String {
    let mut text = format!("the hub has {}:\n", counted(verdicts.len(), "object"));
    for verdict in verdicts {
        let (kind, name) = (verdict.object.kind.as_str(), &verdict.object.name);
        let word = if verdict.accepted.status == ConditionStatus::True { "accepted" } else { "refused" };
        let states = [Some(&verdict.accepted), verdict.resolved_refs.as_ref()];
        let failed = states.into_iter().flatten().filter(|state| state.status == ConditionStatus::False);
        let reasons: String = failed.map(|state| format!("; {}: {}", state.reason, state.message)).collect();
        // `write!` to a `String` never fails, so its result is ignored.
        let _ = writeln!(text, "  {}", plain(&format!("{kind} {name}: {word}{reasons}")));
        for item in verdict.source.iter().flat_map(|source| source.items.iter().flatten()) {
            let _ = writeln!(text, "    {}", plain(&item_line(item)));
        }
    }
    text
}

fn item_line(item: &ItemVerdict) -> String {
    match &item.member {
        Some(member) if item.is_accepted() => format!("{}: accepted as member {member}", item.name),
        _ => format!("{}: refused; {}: {}", item.name, item.accepted.reason, item.accepted.message),
    }
}

#[cfg(test)]
mod tests {
    use tributary_hub::{ConditionState, HubKind, ObjectReference};

    use super::*;

    #[test]
    fn each_object_of_the_hub_has_a_line_with_its_verdict() {
        let verdict = |name: &str, accepted, resolved_refs| Verdict {
            object: ObjectReference {
                kind: HubKind::UpstreamCluster,
                name: name.to_owned(),
                uid: String::new(),
                generation: 1,
            },
            accepted,
            resolved_refs,
            indexed: None,
            generation_in_force: None,
            source: None,
        };
        let fulfilled = || ConditionState::fulfilled("Accepted", "The object is in force.");
        let verdicts = [
            verdict("eu", fulfilled(), None),
            verdict("lab", fulfilled(), Some(ConditionState::failed("SecretNotFound", "Secret lab does not exist."))),
            verdict("us", ConditionState::failed("Invalid", "spec.caFile: \u{1b}[2J"), None),
        ];
        assert_eq!(
            render(&verdicts),
            "the hub has 3 objects:\n  UpstreamCluster eu: accepted\n  UpstreamCluster lab: accepted; SecretNotFound: \
             Secret lab does not exist.\n  UpstreamCluster us: refused; Invalid: spec.caFile:  [2J\n"
        );
    }
}
