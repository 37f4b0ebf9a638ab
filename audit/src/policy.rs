//! The file of `--audit-policy-file`, with kube-apiserver's validation and words (apiserver
//! `pkg/audit/policy/reader.go` and `pkg/apis/audit/validation/validation.go`).

mod file;
mod validation;

use crate::{Level, Stages};

/// Which requests are audited: the first rule that matches a request decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPolicy {
    /// The rules in their order; at least one.
    pub rules: Vec<PolicyRule>,
    /// Stages of which no events are written, for requests that no rule matches.
    pub omit_stages: Stages,
    /// Whether `metadata.managedFields` is left out of bodies where a rule does not say.
    pub omit_managed_fields: bool,
}

/// What is written of some requests. An empty list matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// How much is written.
    pub level: Level,
    /// The names of users.
    pub users: Vec<String>,
    /// Groups, of which a user must be in one.
    pub user_groups: Vec<String>,
    /// Verbs as RBAC has them.
    pub verbs: Vec<String>,
    /// Resources; requests for none do not match.
    pub resources: Vec<GroupResources>,
    /// Namespaces; the empty text is that of what has none.
    pub namespaces: Vec<String>,
    /// Paths, whole or with a `*` at the end; requests for resources do not match.
    pub non_resource_urls: Vec<String>,
    /// Stages of which no events are written: the rule's and the policy's.
    pub omit_stages: Stages,
    /// Whether `metadata.managedFields` is left out of bodies: the rule's word, else the policy's.
    pub omit_managed_fields: bool,
}

/// Resources of one API group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResources {
    /// The group; empty for the core group, `*` for all.
    pub group: String,
    /// `pods`, `pods/log`, `pods/*`, `*/log` or `*`; empty for all resources of the group.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub resource_names: Vec<String>,
}

/// Why a file is no policy, in kube-apiserver's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// It cannot be read as what it says it is, or does not say it.
    #[error("failed decoding: {0}")]
    Undecodable(String),
    /// Fields that are wrong, each as `FIELD: PROBLEM`.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<String>),
    /// A policy that says nothing.
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// Several errors as apimachinery's `Aggregate` writes them: each once, in brackets where there is more than one.
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
    /// Reads a policy, YAML or JSON. With it come warnings: fields that no policy has. As in kube-apiserver they are
    /// ignored; a rule whose restriction is misspelled matches more than was meant.
    ///
    /// # Errors
    /// [`InvalidPolicy`]. Stricter than kube-apiserver in one thing: a key that is there twice is an error.
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
