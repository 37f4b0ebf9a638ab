//! Search for API groups and resources in rules that no cluster can have. Rules with such names never match.

use super::Findings;
use super::fields::problem;
use crate::explanation::RuleField;
use crate::known_resources::{explain_unknown_group, explain_unknown_resource};
use crate::place::RulePosition;
use crate::rule::Rule;

/// Warns of entries in `apiGroups` and `resources` that contain unknown names.
pub(super) fn examine(rule: &Rule, position: RulePosition, findings: &mut Findings) {
    let mut warn = |field: RuleField, index: usize, entry: &str, explanation: &str| {
        let effect = if entry.starts_with('-') { "excludes nothing" } else { "never matches" };
        findings
            .warning(format!("{position}.{}[{index}]", field.as_str()), format!("{entry:?} {effect}: {explanation}"));
    };
    for (index, entry) in list_names(RuleField::ApiGroups, rule) {
        if let Some(explanation) = explain_unknown_group(without_inversion(entry)) {
            warn(RuleField::ApiGroups, index, entry, &explanation);
        }
    }
    // `*` and inverted groups (`-x`) include groups of custom resources, whose resources Tributary does not know.
    let groups: Vec<_> = rule.api_groups.iter().map(String::as_str).collect();
    if groups.iter().any(|group| *group == "*" || group.starts_with('-')) {
        return;
    }
    for (index, entry) in list_names(RuleField::Resources, rule) {
        let (resource, subresource) =
            without_inversion(entry).split_once('/').unwrap_or((without_inversion(entry), ""));
        if let Some(explanation) = explain_unknown_resource(&groups, resource, subresource) {
            warn(RuleField::Resources, index, entry, &explanation);
        }
    }
}

/// Returns the well-formed names in a field, with their indices. Malformed entries are reported by `fields`.
fn list_names(field: RuleField, rule: &Rule) -> impl Iterator<Item = (usize, &str)> {
    let entries = rule.entries(field).iter().map(String::as_str).enumerate();
    entries.filter(move |(_, entry)| !entry.contains('*') && problem(field, without_inversion(entry)).is_none())
}

fn without_inversion(entry: &str) -> &str {
    entry.strip_prefix('-').unwrap_or(entry)
}
