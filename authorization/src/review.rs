//! Compares a SelfSubjectRulesReview of a cluster with the rules of the roles and bindings that Tributary has read from
//! the cluster.

use std::collections::HashSet;

use serde::Deserialize;
use tributary_apimachinery::json::null_is_default;

use crate::rule::{CompiledRule, rules};

/// The status of a SelfSubjectRulesReview for Tributary's own user.
#[derive(Clone, Debug)]
pub struct RulesReview {
    incomplete: bool,
    evaluation_error: String,
    /// The resource rules and the non-resource rules of the review.
    rules: HashSet<CompiledRule>,
}

/// A reason to doubt that a cluster authorizes only by RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewMismatch {
    /// An authorizer of the cluster, for example a webhook, cannot list its rules.
    #[error("the cluster cannot list all rules")]
    Incomplete,
    /// The cluster reported an error that occurred while it evaluated its rules.
    #[error("the cluster could not evaluate its rules")]
    EvaluationError,
    /// The review lacks a rule of the RBAC objects that Tributary has read. Either the objects are outdated, or the
    /// cluster does not authorize by RBAC.
    #[error("the cluster's SelfSubjectRulesReview lacks rules of its RBAC objects")]
    Missing,
    /// The review has a rule that the RBAC objects lack. Either the objects that Tributary has read are outdated, or a
    /// different authorizer also grants rights.
    #[error("the cluster's SelfSubjectRulesReview has rules that its RBAC objects lack")]
    Additional,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireReview {
    #[serde(deserialize_with = "null_is_default")]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireStatus {
    incomplete: bool,
    #[serde(deserialize_with = "null_is_default")]
    evaluation_error: String,
    #[serde(deserialize_with = "rules")]
    resource_rules: Vec<CompiledRule>,
    #[serde(deserialize_with = "rules")]
    non_resource_rules: Vec<CompiledRule>,
}

impl Default for WireStatus {
    fn default() -> Self {
        Self {
            incomplete: true,
            evaluation_error: String::new(),
            resource_rules: Vec::new(),
            non_resource_rules: Vec::new(),
        }
    }
}

impl RulesReview {
    /// Parses a SelfSubjectRulesReview that a cluster returned. A review without `status.incomplete` is treated as
    /// incomplete, because Kubernetes always writes that field.
    ///
    /// # Errors
    /// The decoder's error, if the text is not a SelfSubjectRulesReview.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let WireStatus { incomplete, evaluation_error, resource_rules, non_resource_rules } =
            serde_json::from_slice::<WireReview>(text)?.status;
        let rules = resource_rules.into_iter().chain(non_resource_rules).collect();
        Ok(Self { incomplete, evaluation_error, rules })
    }

    /// Checks that the review has exactly the rules in `mirrored`, is complete, and has no evaluation error. `mirrored`
    /// contains the rules from the cluster's RBAC objects for Tributary's own user in the review's namespace
    /// ([`crate::FleetRights::rules`]). Rules are compared literally.
    ///
    /// One match does not prove that RBAC decides. The caller must repeat the review and confirm some allowed requests.
    ///
    /// # Errors
    /// The first [`ReviewMismatch`].
    pub fn confirms_rules<'a>(
        &self,
        mirrored: impl IntoIterator<Item = &'a CompiledRule>,
    ) -> Result<(), ReviewMismatch> {
        if self.incomplete {
            return Err(ReviewMismatch::Incomplete);
        }
        if !self.evaluation_error.is_empty() {
            return Err(ReviewMismatch::EvaluationError);
        }
        let mirrored: HashSet<CompiledRule> = mirrored
            .into_iter()
            .flat_map(CompiledRule::split_by_target)
            .filter(CompiledRule::allows_something)
            .collect();
        match (mirrored.is_subset(&self.rules), self.rules.is_subset(&mirrored)) {
            (false, _) => Err(ReviewMismatch::Missing),
            (true, false) => Err(ReviewMismatch::Additional),
            (true, true) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> CompiledRule {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rules_review_is_confirmed_only_if_it_equals_the_rbac_rules() {
        let pods = rule(r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}"#);
        let paths = rule(r#"{"verbs":["get"],"nonResourceURLs":["/healthz"]}"#);
        let turned = rule(r#"{"verbs":["list","get"],"apiGroups":[""],"resources":["pods"]}"#);
        let named = rule(r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"],"resourceNames":["a"]}"#);
        let both = rule(r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"nonResourceURLs":["/healthz"]}"#);
        let nothing = rule(r#"{"verbs":["get"]}"#);
        let review = |status: &str| RulesReview::parse(format!(r#"{{"status":{status}}}"#).as_bytes()).unwrap();
        let rules = r#""resourceRules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]},
            {"verbs":["*"],"apiGroups":["*"],"resources":["*"]}],
            "nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/healthz"]}]"#;
        let whole = review(&format!(r#"{{"incomplete":false,{rules}}}"#));
        let all = rule(r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#);
        assert_eq!(whole.confirms_rules([&pods, &paths, &all, &nothing]), Ok(()));
        // No role has this rule of the review, so a different authorizer grants it. The check reports the rule even for
        // a user without roles.
        assert_eq!(whole.confirms_rules([&pods, &paths]), Err(ReviewMismatch::Additional));
        assert_eq!(whole.confirms_rules([]), Err(ReviewMismatch::Additional));
        // The review must contain each expected rule literally. A broader rule of the review does not replace it.
        for other in [&turned, &named, &both] {
            assert_eq!(whole.confirms_rules([&pods, other]), Err(ReviewMismatch::Missing), "{other:?}");
        }
        for (status, doubt) in [
            (format!(r#"{{"incomplete":true,{rules}}}"#), ReviewMismatch::Incomplete),
            (format!("{{{rules}}}"), ReviewMismatch::Incomplete),
            ("{}".to_owned(), ReviewMismatch::Incomplete),
            ("null".to_owned(), ReviewMismatch::Incomplete),
            (format!(r#"{{"incomplete":false,"evaluationError":"x",{rules}}}"#), ReviewMismatch::EvaluationError),
            (r#"{"incomplete":false,"resourceRules":null}"#.to_owned(), ReviewMismatch::Missing),
        ] {
            assert_eq!(review(&status).confirms_rules([&pods]), Err(doubt), "{status}");
        }
        assert_eq!(RulesReview::parse(b"{}").unwrap().confirms_rules([]), Err(ReviewMismatch::Incomplete));
        for bad in [&b"[1]"[..], b"", br#"{"status":{"incomplete":"no"}}"#, br#"{"status":{"resourceRules":{}}}"#] {
            assert!(RulesReview::parse(bad).is_err());
        }
    }
}
