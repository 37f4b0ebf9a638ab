//! Formats the verdicts on a request: a line for the merged view, and a line for each cluster's path.

use std::fmt::Write;

use tributary_policy::{Action, DispatchAttributes, DispatchPolicies, Outcome, Verdict};

use super::explanation::{ANSWERED_HERE, describe_outcome};
use super::{Compiled, CompiledCluster};

/// Lists the verdicts. `merged` is `None` for a request that cannot reach the merged view. Otherwise, `merged` contains
/// whether the server itself answers the request, and whether the request is for a resource. The policies of clusters
/// apply only to resources.
pub(super) fn list_verdicts(
    compiled: &Compiled<'_>,
    merged: Option<(bool, bool)>,
    asked: &DispatchAttributes<'_>,
) -> String {
    let mut out = "Verdict:\n".to_owned();
    if let Some((is_answered_here, is_for_resource)) = merged {
        let verdict = match is_answered_here {
            true => ANSWERED_HERE.to_owned(),
            false => judge_merged_view(compiled, is_for_resource, asked),
        };
        // `writeln!` to a `String` never fails, so its result is ignored.
        let _ = writeln!(out, "  the merged view: {verdict}");
    }
    for cluster in &compiled.clusters {
        let verdict = match cluster.denies_all {
            true => "The request is refused (429): dispatch is DenyAll".to_owned(),
            false => judge_scope(compiled, &cluster.policies, asked),
        };
        let _ = writeln!(out, "  /clusters/{}: {verdict}", cluster.name);
    }
    if compiled.clusters.is_empty() {
        // The clusters of kubeconfig contexts have no policies of their own.
        let _ = writeln!(out, "  /clusters/NAME: {}", judge_scope(compiled, &DispatchPolicies::default(), asked));
    }
    out
}

/// Returns the verdict of the global policies, followed by the policies of the merged view or of a cluster.
fn judge_scope(compiled: &Compiled<'_>, place: &DispatchPolicies, asked: &DispatchAttributes<'_>) -> String {
    let mut lists = compiled.global.iter().chain([place]);
    lists.find_map(|policies| find_refusal(policies, asked)).unwrap_or_else(|| describe_pass(compiled, place, asked))
}

/// Returns the verdict on a request to the merged view. For a resource, the merged view omits clusters whose policies
/// refuse the request.
fn judge_merged_view(compiled: &Compiled<'_>, is_for_resource: bool, asked: &DispatchAttributes<'_>) -> String {
    let verdict = judge_scope(compiled, &compiled.merged, asked);
    let mut lists = compiled.global.iter().chain([&compiled.merged]);
    if !is_for_resource || lists.any(|policies| find_refusal(policies, asked).is_some()) {
        return verdict;
    }
    let refusing = |cluster: &CompiledCluster<'_>| find_refusal(&cluster.policies, asked);
    let refusals = compiled.clusters.iter().filter_map(|cluster| Some((cluster.name.as_str(), refusing(cluster)?)));
    let refusals: Vec<_> = refusals.collect();
    match &refusals[..] {
        [] => verdict,
        [(_, first), ..] if refusals.len() == compiled.clusters.len() => first.clone(),
        refusals => {
            let names: Vec<_> = refusals.iter().map(|(name, _)| *name).collect();
            format!("{verdict}; clusters left out, because their policies refuse the request: {}", names.join(", "))
        }
    }
}

/// Returns the text of the refusal by these policies. Returns `None` if the policies allow the request.
fn find_refusal(policies: &DispatchPolicies, asked: &DispatchAttributes<'_>) -> Option<String> {
    match policies.decide(asked).verdict {
        Verdict::Ungoverned => None,
        Verdict::Unmatched => Some("No rule matches: the request is refused (500)".to_owned()),
        Verdict::Matched { place, outcome } => match &outcome.action {
            Action::Dispatch { .. } => None,
            Action::Deny { .. } => Some(format!("{} ({place})", describe_outcome(outcome))),
        },
    }
}

/// Returns the verdict on a request that all policies allow, with its flow-control schema.
fn describe_pass(compiled: &Compiled<'_>, place: &DispatchPolicies, asked: &DispatchAttributes<'_>) -> String {
    let outcome = |policies: &DispatchPolicies| match policies.decide(asked).verdict {
        Verdict::Matched { outcome, .. } => Some(outcome.clone()),
        Verdict::Ungoverned | Verdict::Unmatched => None,
    };
    let names_schema =
        |outcome: &Outcome| matches!(outcome.action, Action::Dispatch { flow_control_schema: Some(_), .. });
    let global = compiled.global.as_ref().and_then(outcome).filter(names_schema);
    global
        .or_else(|| outcome(place))
        .map_or_else(|| "The request continues".to_owned(), |outcome| describe_outcome(&outcome))
}
