//! The results of all targets side by side: what differs, and the file that tells it.

use super::{
    Target, differences,
    report::{Outcome, Report},
};
use std::fmt::Write as _;

/// What is wrong with a target's results, a paragraph for each spec: one that passes on the bare member and not here, unless
/// that is listed, and a listed one that passes.
pub(crate) fn faults(target: Target, wanted: &[String], report: &Report) -> Vec<String> {
    let fault = |name: &String| {
        let result = report.get(name);
        let difference = differences::of(target, name);
        match (result, difference) {
            (Some(Outcome::Passed), None) | (Some(Outcome::Failed(_)), Some(_)) => None,
            (Some(Outcome::Passed), Some(difference)) => {
                Some(format!("passes, but is listed as different ({}): {name}", difference.reason))
            }
            (Some(Outcome::Skipped), _) => Some(format!("skipped: {name}")),
            (Some(Outcome::Failed(why)), None) => Some(format!("failed: {name}\n{why}")),
            (None, _) => Some(format!("did not run: {name}")),
        }
    };
    wanted.iter().filter_map(fault).collect()
}

/// The results as a document. `reports` are those of the bare member, over one and over two.
pub(crate) fn document(date: &str, wanted: &[String], reports: &[(Target, Report)]) -> String {
    let mut text = format!(
        "# Kubernetes' own specs\n\nGenerated on {date} by the test `proof_specs::all`; not edited by hand. The specs of Kubernetes v1.36.3 \
         that are known to pass on a bare member, whose containers kwok plays, and how they end through `tributary serve`: over that \
         member alone, with Composite versions, and over two members of which the specs write to one, with Integer ones.\n\n"
    );
    text.push_str("| target | passed | failed |\n|---|---|---|\n");
    for (target, report) in reports {
        let passed = wanted.iter().filter(|name| has_passed(report, name)).count();
        let _infallible = writeln!(text, "| {} | {passed} | {} |", target.words(), wanted.len() - passed);
    }
    text.push_str("\n## Deliberate differences\n\n| spec | where | reason |\n|---|---|---|\n");
    for difference in differences::DIFFERENCES {
        let targets: Vec<_> = difference.targets.iter().map(|target| target.words()).collect();
        for spec in difference.specs {
            let (spec, targets, reason) = (escaped(spec), targets.join(", "), escaped(difference.reason));
            let _infallible = writeln!(text, "| {spec} | {targets} | {reason} |");
        }
    }
    text.push_str("\n## All specs\n\n| spec |");
    for (target, _) in reports {
        let _infallible = write!(text, " {} |", target.words());
    }
    let _infallible = writeln!(text, "\n|---|{}", "---|".repeat(reports.len()));
    for name in wanted {
        let _infallible = write!(text, "| {} |", escaped(name));
        for (_, report) in reports {
            let word = report.get(name).map_or("not run", Outcome::word);
            let _infallible = write!(text, " {word} |");
        }
        text.push('\n');
    }
    text
}

fn has_passed(report: &Report, name: &str) -> bool {
    report.get(name) == Some(&Outcome::Passed)
}

/// Text for a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('\n', " ")
}
