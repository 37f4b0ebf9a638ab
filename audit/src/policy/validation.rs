//! The validation of an audit policy. The messages have the format of apimachinery's `field.Error`.

use tributary_apimachinery::dns_subdomain_errors;

use super::file::{File, FileRule, Resources};
use crate::{Level, Stage};

/// Returns all problems of a policy file, in kube-apiserver's order.
pub(super) fn problems(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    validate_stages(&file.omit_stages, "omitStages", &mut problems);
    for (at, rule) in file.rules.iter().enumerate() {
        validate_rule(rule, &format!("rules[{at}]"), &mut problems);
    }
    problems
}

fn validate_rule(rule: &FileRule, field: &str, problems: &mut Vec<String>) {
    if rule.level.is_empty() {
        problems.push(format!("{field}.level: Required value"));
    } else if Level::parse(&rule.level).is_none() {
        let levels = Level::ALL.map(|level| format!("{:?}", level.as_str())).join(", ");
        problems.push(format!("{field}.level: Unsupported value: {:?}: supported values: {levels}", rule.level));
    }
    for (at, url) in rule.non_resource_urls.iter().enumerate() {
        validate_url(url, &format!("{field}.nonResourceURLs[{at}]"), problems);
    }
    for resources in &rule.resources {
        validate_resources(resources, &format!("{field}.resources"), problems);
    }
    validate_stages(&rule.omit_stages, &format!("{field}.omitStages"), problems);
    let has_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if has_resources && !rule.non_resource_urls.is_empty() {
        let detail = "rules cannot apply to both regular resources and non-resource URLs";
        problems.push(format!("{field}.nonResourceURLs: Invalid value: {}: {detail}", list(&rule.non_resource_urls)));
    }
}

fn validate_url(url: &str, field: &str, problems: &mut Vec<String>) {
    if url == "*" {
        return;
    }
    if !url.starts_with('/') {
        let detail = "non-resource URL rules must begin with a '/' character";
        problems.push(format!("{field}: Invalid value: {url:?}: {detail}"));
    }
    if url.strip_suffix('*').unwrap_or(url).contains('*') {
        let detail = "non-resource URL wildcards '*' must be the final character of the rule";
        problems.push(format!("{field}: Invalid value: {url:?}: {detail}"));
    }
}

fn validate_resources(resources: &Resources, field: &str, problems: &mut Vec<String>) {
    let group = &resources.group;
    if !group.is_empty() && group != "*" {
        let wrong = dns_subdomain_errors(group);
        if !wrong.is_empty() {
            problems.push(format!("{field}.group: Invalid value: {group:?}: {}", wrong.join(",")));
        }
    }
    if !resources.resource_names.is_empty() && resources.resources.is_empty() {
        let detail = "using resourceNames requires at least one resource";
        problems.push(format!("{field}.resourceNames: Invalid value: {}: {detail}", list(&resources.resource_names)));
    }
}

fn validate_stages(stages: &[String], field: &str, problems: &mut Vec<String>) {
    for (at, stage) in stages.iter().enumerate() {
        if Stage::parse(stage).is_none() {
            let allowed = Stage::ALL.map(Stage::as_str).join(",");
            problems.push(format!("{field}[{at}]: Invalid value: {stage:?}: allowed stages are {allowed}"));
        }
    }
}

/// Formats a list as JSON, like apimachinery formats values that are not strings.
fn list(values: &[String]) -> String {
    serde_json::to_string(values).unwrap_or_default()
}
