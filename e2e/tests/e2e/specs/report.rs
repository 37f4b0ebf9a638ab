//! What ginkgo's reports say of each spec.

use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;

/// How one spec ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It passed.
    Passed,
    /// It failed, panicked or ran out of time; with the reason and the end of what it wrote.
    Failed(String),
    /// It found that it does not apply to this cluster.
    Skipped,
}

impl Outcome {
    /// One word for a table.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// Every spec that was selected, by its full name, the texts of its containers included.
pub(crate) type Report = BTreeMap<String, Outcome>;

/// How many lines of what a failed spec wrote are kept.
const OUTPUT_LINES: usize = 60;

/// Reads reports, a line of JSON for each spec.
///
/// # Errors
/// When a line is no such report.
pub(crate) fn parse(lines: &str) -> anyhow::Result<Report> {
    let mut report = Report::new();
    for line in lines.lines() {
        let spec: Value = serde_json::from_str(line).context("a spec's report is no JSON")?;
        let outcome = outcome(&spec);
        // What the filters left out is skipped too, but without a word of its own.
        let is_left_out = outcome == Outcome::Skipped && spec["Failure"]["Message"].as_str().is_none_or(str::is_empty);
        if !is_left_out {
            report.insert(name(&spec), outcome);
        }
    }
    Ok(report)
}

/// The texts from the outermost container to the spec itself.
fn name(spec: &Value) -> String {
    let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let texts: Vec<&str> = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str).collect();
    texts.join(" ")
}

fn outcome(spec: &Value) -> Outcome {
    match spec["State"].as_str() {
        Some("passed") => Outcome::Passed,
        Some("skipped" | "pending") => Outcome::Skipped,
        state => {
            let message = spec["Failure"]["Message"].as_str().unwrap_or_default();
            let written = spec["CapturedGinkgoWriterOutput"].as_str().unwrap_or_default();
            let lines: Vec<&str> = written.lines().collect();
            let end = lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n");
            Outcome::Failed(format!("{}: {message}\n{end}", state.unwrap_or("no state")))
        }
    }
}
