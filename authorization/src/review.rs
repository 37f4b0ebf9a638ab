//! What a cluster says our own rights are, and whether it agrees with the mirror.

use std::collections::HashSet;

use serde::Deserialize;
use tributary_apimachinery::json::null_is_default;

use crate::rule::{CompiledRule, rules};

/// The status of a SelfSubjectRulesReview.
#[derive(Clone, Debug)]
pub struct RulesReview {
    incomplete: bool,
    evaluation_error: String,
    /// Resource rules and rules for paths apart, as the review has them.
    rules: HashSet<CompiledRule>,
}

/// Why a review does not show that a cluster decides by RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// An authorizer cannot list rules: a webhook, for instance.
    #[error("the cluster cannot list all rules")]
    Incomplete,
    /// The cluster could not evaluate all of them.
    #[error("the cluster could not evaluate its rules")]
    EvaluationError,
    /// A rule that the mirror has is not there: another authorizer decides, or the mirror is behind.
    #[error("the cluster lacks rules that its RBAC objects give")]
    Missing,
    /// There is a rule that the mirror does not have: another authorizer decides, too, or the mirror is behind.
    #[error("the cluster has rules that its RBAC objects do not give")]
    Further,
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
    /// What does not say that it is complete is not.
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
    /// Reads a SelfSubjectRulesReview as a cluster answers it; one without `status.incomplete` counts as incomplete, as
    /// Kubernetes always writes that field.
    ///
    /// # Errors
    /// The decoder's, for what is no such object.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let WireStatus { incomplete, evaluation_error, resource_rules, non_resource_rules } =
            serde_json::from_slice::<WireReview>(text)?.status;
        let rules = resource_rules.into_iter().chain(non_resource_rules).collect();
        Ok(Self { incomplete, evaluation_error, rules })
    }

    /// Whether the review shows these rules: those that the mirror gives our own user in the review's namespace
    /// ([`crate::FleetRights::rules`]). It is complete, without an evaluation error, and has each of them word for word
    /// and no other.
    ///
    /// Alone it is no proof that RBAC decides: it has to be asked again, and some allows confirmed.
    ///
    /// # Errors
    /// [`Doubt`] says what is wrong with it.
    pub fn bears_out<'a>(&self, mirrored: impl IntoIterator<Item = &'a CompiledRule>) -> Result<(), Doubt> {
        if self.incomplete {
            return Err(Doubt::Incomplete);
        }
        if !self.evaluation_error.is_empty() {
            return Err(Doubt::EvaluationError);
        }
        let mirrored: HashSet<CompiledRule> =
            mirrored.into_iter().flat_map(CompiledRule::halves).filter(CompiledRule::allows_something).collect();
        match (mirrored.is_subset(&self.rules), self.rules.is_subset(&mirrored)) {
            (false, _) => Err(Doubt::Missing),
            (true, false) => Err(Doubt::Further),
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
    fn only_a_whole_review_that_has_every_rule_bears_the_mirror_out() {
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
        assert_eq!(whole.bears_out([&pods, &paths, &all, &nothing]), Ok(()));
        // What another authorizer gives is no rule of a role, and whoever has none is given nothing by roles.
        assert_eq!(whole.bears_out([&pods, &paths]), Err(Doubt::Further));
        assert_eq!(whole.bears_out([]), Err(Doubt::Further));
        // A rule that allows more is not the rule.
        for other in [&turned, &named, &both] {
            assert_eq!(whole.bears_out([&pods, other]), Err(Doubt::Missing), "{other:?}");
        }
        for (status, doubt) in [
            (format!(r#"{{"incomplete":true,{rules}}}"#), Doubt::Incomplete),
            (format!("{{{rules}}}"), Doubt::Incomplete),
            ("{}".to_owned(), Doubt::Incomplete),
            ("null".to_owned(), Doubt::Incomplete),
            (format!(r#"{{"incomplete":false,"evaluationError":"x",{rules}}}"#), Doubt::EvaluationError),
            (r#"{"incomplete":false,"resourceRules":null}"#.to_owned(), Doubt::Missing),
        ] {
            assert_eq!(review(&status).bears_out([&pods]), Err(doubt), "{status}");
        }
        assert_eq!(RulesReview::parse(b"{}").unwrap().bears_out([]), Err(Doubt::Incomplete));
        for bad in [&b"[1]"[..], b"", br#"{"status":{"incomplete":"no"}}"#, br#"{"status":{"resourceRules":{}}}"#] {
            assert!(RulesReview::parse(bad).is_err());
        }
    }
}
