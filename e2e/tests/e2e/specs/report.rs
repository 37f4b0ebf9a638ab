//! What ginkgo's JSON report says of the one spec that ran.

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// How one spec ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// It passed.
    Passed,
    /// It failed, panicked or ran out of time; with the reason and the end of what it wrote.
    Failed(String),
    /// It found that it does not apply to this cluster; with its words.
    Skipped(String),
}

/// How many lines of what a failed spec wrote are kept.
const OUTPUT_LINES: usize = 60;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Spec {
    leaf_node_type: String,
    state: String,
    failure: Failure,
    captured_ginkgo_writer_output: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
}

/// Reads a report as `--ginkgo.json-report` writes it, of a run that selected one spec.
///
/// # Errors
/// When it is no such report, and when not exactly one spec was selected.
pub(crate) fn parse(text: &str) -> anyhow::Result<Outcome> {
    let suites: Vec<Suite> = serde_json::from_str(text).context("ginkgo's report is no JSON")?;
    let nodes = suites.into_iter().filter_map(|suite| suite.spec_reports).flatten();
    let mut specs = Vec::new();
    for node in nodes {
        if node.leaf_node_type == "It" {
            // What the focus left out is skipped too, but without a word of its own.
            if node.state != "skipped" || !node.failure.message.is_empty() {
                specs.push(outcome(node));
            }
        } else if let Outcome::Failed(why) = outcome(node) {
            // What comes before and after all specs. The spec did not run, or left something behind.
            return Ok(Outcome::Failed(why));
        }
    }
    match <[Outcome; 1]>::try_from(specs) {
        Ok([outcome]) => Ok(outcome),
        Err(specs) => anyhow::bail!("{} specs ran instead of one", specs.len()),
    }
}

fn outcome(spec: Spec) -> Outcome {
    match spec.state.as_str() {
        "passed" => Outcome::Passed,
        "skipped" | "pending" => Outcome::Skipped(spec.failure.message),
        state => {
            let end = tail(&spec.captured_ginkgo_writer_output);
            Outcome::Failed(format!("{state}: {}\n{end}", spec.failure.message))
        }
    }
}

/// The end of what a spec wrote.
pub(crate) fn tail(written: &str) -> String {
    let lines: Vec<&str> = written.lines().collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
}
