//! What ginkgo's JSON report says of each spec.

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

/// Reads a report as `ginkgo --json-report` writes it.
///
/// # Errors
/// When it is no such report, or when the suite failed before any spec ran.
pub(crate) fn parse(text: &str) -> anyhow::Result<Report> {
    let suites: Value = serde_json::from_str(text).context("ginkgo's report is no JSON")?;
    let specs = suites[0]["SpecReports"]
        .as_array()
        .context("ginkgo left an empty report: one of its processes ended by itself")?;
    let mut report = Report::new();
    for spec in specs {
        let outcome = outcome(spec);
        if spec["LeafNodeType"] != "It" {
            if let Outcome::Failed(why) = outcome {
                anyhow::bail!("{} of the suite failed: {why}", spec["LeafNodeType"]);
            }
            continue;
        }
        // What the filters left out is skipped too, but without a word of its own.
        if outcome == Outcome::Skipped && spec["Failure"]["Message"].as_str().is_none_or(str::is_empty) {
            continue;
        }
        report.insert(name(spec), outcome);
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
