//! Reads the outcome of a single spec from ginkgo's JSON report.

use anyhow::Context;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    Passed,
    /// The spec failed, panicked or timed out. The text contains the reason and the end of the spec's output.
    Failed(String),
    /// The spec does not apply to this cluster. The text contains the spec's reason.
    Skipped(String),
}

/// Number of lines of a failed spec's output that the report contains.
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

/// Parses a report of `--ginkgo.json-report` from a run of one spec.
///
/// # Errors
/// If the text is not such a report, or if not exactly one spec ran.
pub(crate) fn parse(text: &str) -> anyhow::Result<Outcome> {
    let suites: Vec<Suite> = serde_json::from_str(text).context("ginkgo's report is no JSON")?;
    let nodes = suites.into_iter().filter_map(|suite| suite.spec_reports).flatten();
    let mut specs = Vec::new();
    for node in nodes {
        if node.leaf_node_type == "It" {
            // ginkgo reports specs that were not selected also as skipped, but without a message.
            if node.state != "skipped" || !node.failure.message.is_empty() {
                specs.push(outcome(node));
            }
        } else if let Outcome::Failed(why) = outcome(node) {
            // A setup or cleanup step of the whole suite failed, so the spec did not run or left objects behind.
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

pub(crate) fn tail(written: &str) -> String {
    let lines: Vec<&str> = written.lines().collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
}
