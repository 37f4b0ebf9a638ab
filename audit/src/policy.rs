//! Parses the file of `--audit-policy-file`, with kube-apiserver's validation and messages (apiserver
//! `pkg/audit/policy/reader.go` and `pkg/apis/audit/validation/validation.go`).

mod file;
mod validation;

use crate::{Level, Stages};

/// An audit policy. The first rule that matches a request decides about its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicy {
    /// The rules in their order of precedence; at least one rule.
    pub rules: Vec<PolicyRule>,
    /// The stages at which no event is written for requests without a matching rule.
    pub omit_stages: Stages,
    /// The default for rules: whether the bodies in events omit `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

/// A rule of an audit policy. An empty list of conditions matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// The level of the events of matching requests.
    pub level: Level,
    /// The names of matching users.
    pub users: Vec<String>,
    /// The groups of matching users: the user must be in at least one of these groups.
    pub user_groups: Vec<String>,
    /// The matching RBAC verbs.
    pub verbs: Vec<String>,
    /// The matching resources. Non-resource requests do not match.
    pub resources: Vec<GroupResources>,
    /// The matching namespaces. The empty string matches cluster-scoped requests.
    pub namespaces: Vec<String>,
    /// The matching paths, with `*` at the end for a prefix. Resource requests do not match.
    pub non_resource_urls: Vec<String>,
    /// The stages at which no event is written: the stages of the rule and of the policy.
    pub omit_stages: Stages,
    /// Whether bodies omit `metadata.managedFields`: the setting of the rule, or of the policy if the rule has no
    /// setting.
    pub omit_managed_fields: bool,
}

/// Matching resources of one API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResources {
    /// The API group; empty for the core group, `*` for all groups.
    pub group: String,
    /// The resources of the group: `pods`, `pods/log`, `pods/*`, `*/log` or `*`. An empty list matches all resources of
    /// the group.
    pub resources: Vec<String>,
    /// The names of matching objects. An empty list matches all objects.
    pub resource_names: Vec<String>,
}

/// The reason why a file is not a valid audit policy, in the wording of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// The file is not valid YAML or JSON, or its apiVersion or kind is wrong.
    #[error("failed decoding: {0}")]
    Undecodable(String),
    /// Some fields of the policy are invalid. Each problem is a text `FIELD: PROBLEM`.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<String>),
    /// The policy has no rules.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// Joins the texts of several errors like apimachinery's `Aggregate`. Duplicates are removed, and several texts are put
/// in brackets.
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
    /// Parses a policy in YAML or JSON. Returns a warning for each unknown field. As in kube-apiserver, unknown fields
    /// are ignored, so a rule with a misspelled condition matches more requests than intended.
    ///
    /// # Errors
    /// [`InvalidPolicy`]. One check is stricter than kube-apiserver: a duplicate key is an error.
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
