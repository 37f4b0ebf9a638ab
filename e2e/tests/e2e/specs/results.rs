//! Compares the results of all targets, and formats them as a document.

use super::{
    Target, catalog, differences,
    ledger::{Attempt, Ledger},
    report::Outcome,
};
use std::{collections::BTreeMap, fmt::Write as _};

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) attempts: usize,
}

pub(crate) type Verdicts = BTreeMap<String, Verdict>;

pub(crate) fn verdicts(ledger: &Ledger) -> Verdicts {
    let of_spec = |(spec, attempts): (String, Vec<Attempt>)| {
        let count = attempts.len();
        attempts.into_iter().next_back().map(|last| (spec, Verdict { outcome: last.outcome, attempts: count }))
    };
    ledger.attempts().into_iter().filter_map(of_spec).collect()
}

/// Describes each fault in a target's results in one paragraph. A spec is a fault if it is not listed as a difference,
/// passes on the bare member and fails at the target. A listed spec is a fault if it passes, or if it fails for a
/// different reason.
pub(crate) fn faults(target: Target, wanted: &[String], verdicts: &Verdicts) -> Vec<String> {
    let fault = |name: &String| {
        let result = verdicts.get(name).map(|verdict| &verdict.outcome);
        match (result, differences::of(target, name)) {
            (None, _) => Some(format!("did not run: {name}")),
            (Some(Outcome::Passed), None) => None,
            (Some(Outcome::Passed), Some(difference)) => {
                Some(format!("passes, but is listed as different ({}): {name}", difference.reason))
            }
            (Some(Outcome::Failed(why)), Some(difference)) if why.contains(difference.sign) => None,
            (Some(Outcome::Failed(why)), Some(_)) => {
                Some(format!("fails for another reason than listed: {name}\n{why}"))
            }
            (Some(Outcome::Failed(why)), None) => Some(format!("failed: {name}\n{why}")),
            (Some(Outcome::Skipped(why)), _) => Some(format!("skipped: {name}\n{why}")),
        }
    };
    wanted.iter().filter_map(fault).collect()
}

/// Formats the results as a document. `targets` are the bare member, Tributary over one member and Tributary over two
/// members.
pub(crate) fn document(date: &str, wanted: &[String], targets: &[(Target, Verdicts)]) -> String {
    let mut text = format!(
        "# Kubernetes' own specs\n\nGenerated on {date} by the test `proof_specs::all`; not edited by hand. The specs of Kubernetes v1.36.3 \
         that are known to pass on a bare member, whose containers kwok plays, and how they end through `tributary serve`: over that \
         member alone, with Composite versions, and over two members of which the specs write to one, with Integer ones. Each runs in a \
         process of its own, several at once, serial ones alone. A spec that fails, at any target, has one more attempt before that \
         counts; what passed then is marked.\n\n"
    );
    text.push_str("| target | passed | of them at the second attempt | failed |\n|---|---|---|---|\n");
    for (target, verdicts) in targets {
        let passed = || wanted.iter().filter_map(|name| verdicts.get(name)).filter(|verdict| has_passed(verdict));
        let (all, second) = (passed().count(), passed().filter(|verdict| verdict.attempts > 1).count());
        let _infallible = writeln!(text, "| {} | {all} | {second} | {} |", target.words(), wanted.len() - all);
    }
    text.push_str("\n## Deliberate differences\n\n");
    for difference in differences::DIFFERENCES {
        let targets: Vec<_> = difference.targets.iter().map(|target| target.words()).collect();
        let _infallible = writeln!(text, "{}: {}\n", capital(&targets.join(", ")), difference.reason);
        for spec in difference.specs {
            let _infallible = writeln!(text, "* {}", escaped(spec));
        }
        text.push('\n');
    }
    text.push_str("## Left out\n\nSpecs that pass by chance, on the bare member or through Tributary:\n\n");
    for (part, reason) in catalog::BY_CHANCE {
        let _infallible = writeln!(text, "* {}: {}", escaped(part), escaped(reason));
    }
    text.push_str("\n## All specs\n\n| spec |");
    for (target, _) in targets {
        let _infallible = write!(text, " {} |", target.words());
    }
    let _infallible = writeln!(text, "\n|---|{}", "---|".repeat(targets.len()));
    for name in wanted {
        let _infallible = write!(text, "| {} |", escaped(name));
        for (_, verdicts) in targets {
            let _infallible = write!(text, " {} |", verdicts.get(name).map_or("not run", words));
        }
        text.push('\n');
    }
    text
}

fn has_passed(verdict: &Verdict) -> bool {
    verdict.outcome == Outcome::Passed
}

/// Formats a verdict for a cell of the table.
fn words(verdict: &Verdict) -> &'static str {
    match &verdict.outcome {
        Outcome::Passed if verdict.attempts > 1 => "passed (second attempt)",
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "failed",
        Outcome::Skipped(_) => "skipped",
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('\n', " ")
}
