//! The file of `--audit-policy-file`, with kube-apiserver's validation and messages (apiserver
//! `pkg/audit/policy/reader.go` and `pkg/apis/audit/validation/validation.go`).

mod file;
mod validation;

use crate::{Level, Stages};

/// An audit policy: the first rule that matches a request decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicy {
    /// The rules in order; at least one.
    pub rules: Vec<PolicyRule>,
    /// The stages without events, for requests that no rule matches.
    pub omit_stages: Stages,
    /// Whether bodies omit `metadata.managedFields`, unless a rule says otherwise.
    pub omit_managed_fields: bool,
}

/// A rule of an audit policy. An empty list matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// The level of events for matching requests.
    pub level: Level,
    /// The names of users.
    pub users: Vec<String>,
    /// The groups; the user must be in one of them.
    pub user_groups: Vec<String>,
    /// The RBAC verbs.
    pub verbs: Vec<String>,
    /// The resources. Non-resource requests do not match.
    pub resources: Vec<GroupResources>,
    /// The namespaces; the empty string matches cluster-scoped requests.
    pub namespaces: Vec<String>,
    /// The paths, with `*` at the end for a prefix. Resource requests do not match.
    pub non_resource_urls: Vec<String>,
    /// The stages without events: those of the rule and those of the policy.
    pub omit_stages: Stages,
    /// Whether bodies omit `metadata.managedFields`: the setting of the rule, or else of the policy.
    pub omit_managed_fields: bool,
}

/// Resources of one API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResources {
    /// The API group; empty for the core group, `*` for all groups.
    pub group: String,
    /// The resources: `pods`, `pods/log`, `pods/*`, `*/log` or `*`; empty for all resources of the group.
    pub resources: Vec<String>,
    /// The names of objects; empty for all.
    pub resource_names: Vec<String>,
}

/// The reason why a file is not a valid policy, in kube-apiserver's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// The file is not valid YAML or JSON, or its apiVersion or kind is wrong.
    #[error("failed decoding: {0}")]
    Undecodable(String),
    /// Some fields are invalid. Each problem is a text `FIELD: PROBLEM`.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<String>),
    /// The policy has no rules.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// The text of several errors as in apimachinery's `Aggregate`: without duplicates, in brackets if there are several.
fn aggregate(problems: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for problem in problems {
        if !distinct.contains(&problem.as_str()) {
            distinct.push(problem);
        }
    }
    match distinct.as_slice() {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl AuditPolicy {
    /// Parses a policy, YAML or JSON. Also returns warnings for unknown fields, which are ignored as in kube-apiserver:
    /// a rule with a misspelled condition matches more requests than intended.
    ///
    /// # Errors
    /// [`InvalidPolicy`]. Stricter than kube-apiserver in one point: a duplicate key is an error.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), InvalidPolicy> {
        let (file, warnings) = file::read(text)?;
        let problems = validation::problems(&file);
        if !problems.is_empty() {
            return Err(InvalidPolicy::Invalid(problems));
        }
        if file.rules.is_empty() {
            return Err(InvalidPolicy::NoRules);
        }
        Ok((Self::from(file), warnings))
    }
}

#[cfg(test)]
mod tests;
