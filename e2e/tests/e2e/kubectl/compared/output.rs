//! Compares outputs of kubectl and ignores deliberate differences.

use super::Side;
use anyhow::ensure;
use tributary_e2e::kubectl::KubectlOutput;

/// Fields whose values differ in every run.
const ARBITRARY: [&str; 7] = [
    "resourceVersion:",
    "Resource Version:",
    "uid:",
    "creationTimestamp:",
    "time:",
    "controller-uid:",
    "batch.kubernetes.io/controller-uid:",
];

const OWN_GROUP: &str = "aggregation.tributary.dev";

/// First characters of lines in the output of `kubectl diff` that contain names of temporary files or numbers of lines.
const OF_DIFF: [&str; 4] = ["diff -u", "--- /", "+++ /", "@@ "];

/// Checks that both commands had the same output and exit code.
pub(super) fn compare(
    (own_side, own): (&Side, &KubectlOutput),
    (side, shown): (&Side, &KubectlOutput),
) -> anyhow::Result<()> {
    let same = own.code == shown.code
        && normalized(own_side, &own.stdout) == normalized(side, &shown.stdout)
        && normalized(own_side, &own.stderr) == normalized(side, &shown.stderr);
    let print = |side: &Side, output: &KubectlOutput| {
        let (stdout, stderr) = (normalized(side, &output.stdout), normalized(side, &output.stderr));
        format!("exit code {:?}\n{stdout}\n{stderr}", output.code)
    };
    ensure!(same, "{}: {}\n--- instead of\n{}", own.command, print(side, shown), print(own_side, own));
    Ok(())
}

fn normalized(side: &Side, text: &str) -> String {
    let text = text.replace(&side.server, "SERVER").replace(&side.namespace, "NAMESPACE");
    let lines = without_annotation(&text).into_iter().filter(|line| !line.contains(OWN_GROUP));
    let mut cluster_column = None;
    let mut normalized = String::new();
    for line in lines {
        let mut cells = cells(without_cluster(line));
        if cells.is_empty() {
            cluster_column = None;
        } else if let Some(column) = cells.iter().position(|cell| *cell == "CLUSTER") {
            cluster_column = Some(column);
        }
        if let Some(column) = cluster_column.filter(|column| *column < cells.len()) {
            cells.remove(column);
        }
        for cell in cells.iter_mut().filter(|cell| is_age(cell)) {
            *cell = "AGE";
        }
        let indentation = line.len() - line.trim_start().len();
        if let Some((_, said)) = line.split_once(".go:").filter(|_| line.starts_with(['E', 'I', 'W'])) {
            cells = vec![said];
        }
        normalized.push_str(&" ".repeat(indentation));
        let mut line = cells.join("  ");
        if let Some(field) = ARBITRARY.iter().find(|field| text_of(&line).starts_with(**field)) {
            line.truncate(line.find(field).unwrap_or_default() + field.len());
        }
        normalized.push_str(&line);
        normalized.push('\n');
    }
    normalized
}

/// Removes the cluster name that Tributary adds to a Warning of a member.
fn without_cluster(line: &str) -> &str {
    let named = line.strip_prefix("Warning: cluster ").and_then(|named| named.split_once(": "));
    named.map_or(line.strip_prefix("Warning: ").unwrap_or(line), |(_, text)| text)
}

/// Splits a line of a table into cells. kubectl separates cells by at least two spaces, and a cell may contain single
/// spaces.
fn cells(line: &str) -> Vec<&str> {
    line.trim().split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Returns the lines of YAML or of a description without Tributary's annotation. If there is no other annotation, the
/// heading `annotations` is also removed.
fn without_annotation(text: &str) -> Vec<&str> {
    const ANNOTATION: &str = "tributary.dev/cluster: ";
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let mut lines: Vec<&str> = Vec::new();
    // `kubectl diff` prints three unchanged lines around a difference, and one may be the annotation. Therefore only
    // changed lines are compared.
    let is_diff = text.starts_with(OF_DIFF[0]);
    let mut rest = text.lines().filter(|line| !is_diff || line.starts_with(['+', '-'])).peekable();
    while let Some(line) = rest.next() {
        if OF_DIFF.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        let described = line.strip_prefix("Annotations:").is_some_and(|first| first.trim().starts_with(ANNOTATION));
        if described && rest.peek().is_none_or(|next| indentation(next) == 0) {
            lines.push("Annotations:  <none>");
            continue;
        }
        if !text_of(line).starts_with(ANNOTATION) {
            lines.push(line);
            continue;
        }
        let alone = rest.peek().is_none_or(|next| indentation(next) < indentation(line));
        if alone && lines.last().is_some_and(|before| before.trim() == "annotations:") {
            lines.pop();
        }
    }
    lines
}

/// Removes the indentation of a line, and a leading `+` or `-`.
fn text_of(line: &str) -> &str {
    line.trim_start_matches(['+', '-', ' '])
}

/// Returns whether a cell is an age, such as `31s`, `2m5s`, or `5s (x3 over 31s)` for a repeated event. Ages change
/// between two commands.
fn is_age(cell: &str) -> bool {
    let is_time = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(['s', 'm', 'h'])
            && text.chars().all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h'))
    };
    match cell.split_once(" (x") {
        None => is_time(cell),
        Some((last, counted)) => {
            let counted = counted.strip_suffix(')').and_then(|counted| counted.split_once(" over "));
            is_time(last) && counted.is_some_and(|(count, first)| count.parse::<u32>().is_ok() && is_time(first))
        }
    }
}
