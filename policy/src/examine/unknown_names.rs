//! Finds entries with names of groups and resources that no cluster has. Such entries never match.

use super::Findings;
use super::fields::problem;
use crate::explanation::RuleField;
use crate::known_resources::{group_doubt, resource_doubt};
use crate::place::RulePlace;
use crate::rule::Rule;

/// Warns of entries of `apiGroups` and `resources` that name an unknown group or resource of Kubernetes.
pub(super) fn examine(rule: &Rule, place: RulePlace, findings: &mut Findings) {
    let mut tell = |field: RuleField, index: usize, entry: &str, doubt: &str| {
        let effect = if entry.starts_with('-') { "excludes nothing" } else { "never matches" };
        findings.warning(format!("{place}.{}[{index}]", field.as_str()), format!("{entry:?} {effect}: {doubt}"));
    };
    for (index, entry) in list_names(RuleField::ApiGroups, rule) {
        if let Some(doubt) = group_doubt(without_inversion(entry)) {
            tell(RuleField::ApiGroups, index, entry, &doubt);
        }
    }
    // Inverted entries stand for all other groups, and their resources are unknown.
    let groups: Vec<_> = rule.api_groups.iter().map(String::as_str).collect();
    if groups.iter().any(|group| *group == "*" || group.starts_with('-')) {
        return;
    }
    for (index, entry) in list_names(RuleField::Resources, rule) {
        let (resource, subresource) =
            without_inversion(entry).split_once('/').unwrap_or((without_inversion(entry), ""));
        if let Some(doubt) = resource_doubt(&groups, resource, subresource) {
            tell(RuleField::Resources, index, entry, &doubt);
        }
    }
}

/// The entries of a field that are well-formed names, with their indices. `fields` reports malformed entries.
fn list_names(field: RuleField, rule: &Rule) -> impl Iterator<Item = (usize, &str)> {
    let entries = rule.entries(field).iter().map(String::as_str).enumerate();
    entries.filter(move |(_, entry)| !entry.contains('*') && problem(field, without_inversion(entry)).is_none())
}

/// The entry without the `-` of an inverted one.
fn without_inversion(entry: &str) -> &str {
    entry.strip_prefix('-').unwrap_or(entry)
}
