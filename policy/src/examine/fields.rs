//! Checks of each field of a policy rule, independently of the other fields.

use tributary_apimachinery::CLUSTER_PREFIXES;

use super::{Findings, PolicyScope, path_verbs, resource_verbs};
use crate::explanation::RuleField;
use crate::own_paths::{is_exempt_from_policies, is_exempt_prefix};
use crate::place::RulePosition;
use crate::rule::Rule;

pub(super) fn examine(rule: &Rule, (position, scope): (RulePosition, PolicyScope), findings: &mut Findings) {
    for field in RuleField::ALL {
        let entries = rule.entries(field);
        let path = format!("{position}.{}", field.as_str());
        check_combination(entries, &path, findings);
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| *entry != "*") {
            let path = format!("{path}[{index}]");
            let inverted = entry.strip_prefix('-');
            let named = inverted.unwrap_or(entry);
            if named == "*" {
                let message =
                    "\"-*\" excludes everything, so nothing matches; remove it, or write \"*\" to match everything";
                findings.error(path, message);
            } else if let Some(problem) = problem(field, named) {
                findings.error(path, format!("{entry:?} {problem}"));
            } else if let Some(find_unmatched) = find_unmatched(field, named, scope) {
                match (find_unmatched, inverted) {
                    (UnmatchedRequests::Whole(why), None) => {
                        findings.error(path, format!("{entry:?} never matches: {why}"))
                    }
                    (UnmatchedRequests::Whole(why), Some(_)) => {
                        findings.warning(path, format!("{entry:?} excludes nothing: {why}"));
                    }
                    (UnmatchedRequests::Part(why), None) => {
                        findings.warning(path, format!("{entry:?} does not match {why}"))
                    }
                    // An inverted entry excludes all paths that it matches. Policies apply to some of these paths, so
                    // the entry has an effect.
                    (UnmatchedRequests::Part(_), Some(_)) => {}
                }
            }
        }
    }
}

/// Reports entries that have no effect, because the same field contains `*` or an entry without `-`.
fn check_combination(entries: &[String], path: &str, findings: &mut Findings) {
    let quoted =
        |entries: Vec<&String>| entries.iter().map(|entry| format!("{entry:?}")).collect::<Vec<_>>().join(", ");
    let (inverted, plain): (Vec<&String>, Vec<&String>) = entries.iter().partition(|entry| entry.starts_with('-'));
    if entries.len() > 1 && entries.iter().any(|entry| entry == "*") {
        let others = quoted(entries.iter().filter(|entry| *entry != "*").collect());
        if !others.is_empty() {
            let message = format!("\"*\" matches everything, so {others} has no effect; remove one of them");
            findings.warning(path, message);
        }
    } else if !inverted.is_empty() && !plain.is_empty() {
        let (inverted, plain) = (quoted(inverted), quoted(plain));
        let message = format!("{inverted} has no effect beside {plain}; remove one of them");
        findings.warning(path, message);
    }
}

/// Returns the problem with an entry (without its `-`), and the remedy. `None` if the entry is valid.
pub(super) fn problem(field: RuleField, entry: &str) -> Option<String> {
    match field {
        RuleField::Verbs => verb(entry),
        RuleField::ApiGroups => entry
            .contains('*')
            .then(|| "never matches: a group is not a pattern; write its whole name, or \"*\" for all".to_owned()),
        RuleField::Resources => resource(entry),
        RuleField::ServiceAccounts => service_account(entry),
        RuleField::NonResourceUrls if !entry.starts_with('/') => {
            Some("never matches: a path begins with \"/\"; add it, or write \"*\" for all".to_owned())
        }
        RuleField::NonResourceUrls if is_resource_path(entry) => {
            Some("never matches: the path is of a resource; name the resource in apiGroups and resources".to_owned())
        }
        _ => check_star_position(entry),
    }
}

/// Returns whether a path has the form of a resource path: `/api/VERSION/RESOURCE` or `/apis/GROUP/VERSION/RESOURCE`.
fn is_resource_path(entry: &str) -> bool {
    let mut segments = entry.trim_end_matches('*').split('/').skip(1);
    let before = match segments.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return false,
    };
    segments.nth(before).is_some_and(|resource| !resource.is_empty())
}

/// The requests that match an entry but to which no policies of the scope apply, with the reason and the remedy.
enum UnmatchedRequests {
    /// No policies apply to any request that matches the entry.
    Whole(&'static str),
    /// No policies apply to a part of the requests that match the entry. The text describes this part.
    Part(String),
}

fn find_unmatched(field: RuleField, entry: &str, scope: PolicyScope) -> Option<UnmatchedRequests> {
    if field != RuleField::NonResourceUrls || scope == PolicyScope::Cluster {
        return None;
    }
    let (path, is_beginning) = (entry.trim_end_matches('*'), entry.ends_with('*'));
    let below_clusters = CLUSTER_PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix));
    if scope == PolicyScope::Global {
        return below_clusters.filter(|after| !matches!(*after, "" | "/")).map(|_| {
            UnmatchedRequests::Whole(
                "a request below /clusters/NAME is matched by the path after the name; write only this path",
            )
        });
    }
    if let Some(after) = below_clusters {
        return find_unmatched_below_clusters(after, is_beginning);
    }
    // An entry with a prefix of Tributary's own paths may also match other paths: `/healthzz`, `/metrics/slis`.
    let is_own = if is_beginning { is_exempt_prefix(path) } else { is_exempt_from_policies(path) };
    match is_own {
        true => Some(UnmatchedRequests::Whole(
            "in the merged view Tributary answers this path itself, without policies; remove the entry",
        )),
        false if is_beginning && is_exempt_from_policies(path) => Some(UnmatchedRequests::Part(format!(
            "{path:?}: in the merged view Tributary answers this path itself, without policies; write the other paths"
        ))),
        false => None,
    }
}

/// Returns the requests for paths `/clusters/AFTER` to which no policies apply. `/clusters/` and `/clusters//` belong
/// to no cluster.
fn find_unmatched_below_clusters(after: &str, is_beginning: bool) -> Option<UnmatchedRequests> {
    match (matches!(after, "" | "/"), is_beginning) {
        (false, _) => Some(UnmatchedRequests::Whole(
            "requests below /clusters/NAME pass the policies of this cluster; add the rule to its UpstreamCluster, \
             with the path after the name",
        )),
        (true, true) => Some(UnmatchedRequests::Part(
            "requests below /clusters/NAME: they pass the policies of this cluster; add the rule to its \
             UpstreamCluster, with the path after the name"
                .to_owned(),
        )),
        (true, false) => None,
    }
}

/// Returns whether an entry of `verbs` can match the verb of a request.
pub(super) fn is_verb(entry: &str) -> bool {
    entry == "*" || verb(entry.strip_prefix('-').unwrap_or(entry)).is_none()
}

fn verb(entry: &str) -> Option<String> {
    let is_known = |verb: &str| resource_verbs().contains(&verb) || path_verbs().contains(&verb);
    if is_known(entry) {
        return None;
    }
    let lower = entry.to_ascii_lowercase();
    let remedy = match is_known(&lower) {
        true => format!("write {lower:?}"),
        false => format!(
            "allowed are {}, for requests for no resource {}, and \"*\"",
            resource_verbs().join(", "),
            path_verbs().join(", ")
        ),
    };
    Some(format!("is not a verb of any request, so it never matches; {remedy}"))
}

fn resource(entry: &str) -> Option<String> {
    let (resource, subresource) = match entry.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (entry, None),
    };
    let is_odd = |text: &str| text.is_empty() || text.contains(['*', '/']);
    if subresource == Some("*") {
        let example = if resource == "*" { "deployments" } else { resource };
        let remedy =
            format!("name each subresource, as \"{example}/status\" or \"*/status\", or write \"*\" for everything");
        return Some(format!("never matches: a subresource is not a pattern; {remedy}"));
    }
    if (resource != "*" && is_odd(resource)) || subresource.is_some_and(is_odd) {
        return Some("never matches; allowed are \"pods\", \"pods/status\", \"*/status\" and \"*\"".to_owned());
    }
    entry.contains(char::is_uppercase).then(|| {
        let lower = entry.to_lowercase();
        format!(
            "never matches: resources are named in lower case and in the plural, not by kind; write {lower:?} or its \
             plural"
        )
    })
}

fn service_account(entry: &str) -> Option<String> {
    const REMEDY: &str = "write \"NAMESPACE/NAME\", \"NAMESPACE/*\", or \"*\" for every ServiceAccount";
    match entry.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !namespace.contains('*') => {
            if name.contains('/') { Some(format!("never matches; {REMEDY}")) } else { check_star_position(name) }
        }
        _ => Some(format!("is not a ServiceAccount; {REMEDY}")),
    }
}

/// Returns the problem with an entry that has a `*` before its end.
fn check_star_position(entry: &str) -> Option<String> {
    let is_inside = entry.trim_end_matches('*').contains('*');
    is_inside.then(|| "has a \"*\" inside; a \"*\" is allowed alone, or at the end to match a prefix".to_owned())
}
