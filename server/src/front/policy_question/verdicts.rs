//! The verdicts on a request as text: a line for the merged view, and a line for each cluster's path.

use std::fmt::Write;

use tributary_policy::{Action, DispatchAttributes, DispatchPolicies, Outcome, Verdict};

use super::told::{ANSWERED_HERE, becomes};
use super::{Compiled, CompiledCluster};

/// Lists a verdict for each path. `merged` is `None` for a request that cannot reach the merged view. Otherwise
/// `merged` tells whether this endpoint itself answers the request, and whether the request is for a resource, so that
/// clusters' policies apply.
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
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  the merged view: {verdict}");
    }
    for cluster in &compiled.clusters {
        let verdict = match cluster.denies_all {
            true => "It is refused (429): dispatch is DenyAll".to_owned(),
            false => judge_at_place(compiled, &cluster.policies, asked),
        };
        let _ = writeln!(out, "  /clusters/{}: {verdict}", cluster.name);
    }
    if compiled.clusters.is_empty() {
        // The contexts of a kubeconfig are clusters without policies of their own.
        let _ = writeln!(out, "  /clusters/NAME: {}", judge_at_place(compiled, &DispatchPolicies::default(), asked));
    }
    out
}

/// The verdict of the global policies, and then of the policies of a place.
fn judge_at_place(compiled: &Compiled<'_>, place: &DispatchPolicies, asked: &DispatchAttributes<'_>) -> String {
    let mut lists = compiled.global.iter().chain([place]);
    lists.find_map(|policies| find_refusal(policies, asked)).unwrap_or_else(|| describe_pass(compiled, place, asked))
}

/// The verdict on a request to the merged view, which leaves out clusters whose policies refuse a request for a
/// resource.
fn judge_merged_view(compiled: &Compiled<'_>, is_for_resource: bool, asked: &DispatchAttributes<'_>) -> String {
    let verdict = judge_at_place(compiled, &compiled.merged, asked);
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
            format!("{verdict}, without {}, whose policies refuse it", names.join(", "))
        }
    }
}

/// The refusal of a request by these policies; `None` if the request goes on.
fn find_refusal(policies: &DispatchPolicies, asked: &DispatchAttributes<'_>) -> Option<String> {
    match policies.decide(asked).verdict {
        Verdict::Ungoverned => None,
        Verdict::Unmatched => Some("No rule takes it: it is refused (500)".to_owned()),
        Verdict::Taken { place, outcome } => match &outcome.action {
            Action::Dispatch { .. } => None,
            Action::Deny { .. } => Some(format!("{} ({place})", becomes(outcome))),
        },
    }
}

/// The verdict on a request that all policies let pass, with the schema that the request passes.
fn describe_pass(compiled: &Compiled<'_>, place: &DispatchPolicies, asked: &DispatchAttributes<'_>) -> String {
    let outcome = |policies: &DispatchPolicies| match policies.decide(asked).verdict {
        Verdict::Taken { outcome, .. } => Some(outcome.clone()),
        Verdict::Ungoverned | Verdict::Unmatched => None,
    };
    let names_schema =
        |outcome: &Outcome| matches!(outcome.action, Action::Dispatch { flow_control_schema: Some(_), .. });
    let global = compiled.global.as_ref().and_then(outcome).filter(names_schema);
    global.or_else(|| outcome(place)).map_or_else(|| "It goes on".to_owned(), |outcome| becomes(&outcome))
}
