//! Compiles the identity rules of a source. This module refuses some rules that cluster-gateway ignores, or on which it
//! panics.

use serde_json::{Value, json};
use tributary_authentication::{ExchangeRule, IdentityPolicy, IdentityRules, RuleSource, UserInfo};
use tributary_crds::identity_rule::SourceIdentity;
use tributary_crds::{API_VERSION, ClusterSource, IdentityRule, IdentityRuleType, IdentityType, decode_hub_object};

use crate::SourceRefusal;

/// Compiles the identity of a source.
///
/// # Errors
/// A rule is invalid. The refusal names the first invalid rule.
pub(crate) fn read_identity(identity: &SourceIdentity) -> Result<IdentityPolicy, SourceRefusal> {
    match identity.kind {
        IdentityType::Impersonate => Ok(IdentityPolicy::Impersonate),
        IdentityType::Stored => Ok(IdentityPolicy::Stored),
        IdentityType::Rules => {
            compile_rules(&identity.rules, identity.strict, "spec.identity.rules").map(IdentityPolicy::Rules)
        }
    }
}

/// Compiles rules. With `is_strict`, patterns must match the whole name. `field` is the path of the rules, for error
/// messages.
///
/// # Errors
/// The pattern of a rule is invalid, or its target is not allowed for its type. The refusal names the first such rule.
fn compile_rules(rules: &[IdentityRule], is_strict: bool, field: &str) -> Result<IdentityRules, SourceRefusal> {
    let compiled = rules.iter().enumerate().map(|(index, rule)| {
        let place = if rule.name.is_empty() { String::new() } else { format!(" ({})", rule.name) };
        compile_rule(rule, is_strict, &format!("{field}[{index}]{place}"))
    });
    compiled.collect()
}

/// Compiles the rules of a ClusterGatewayProxyConfiguration in a Secret. As in cluster-gateway, each rule applies to
/// the Secret's own cluster, even if its field `source.cluster` names a different one. With `is_strict`, patterns must
/// match the whole name. `place` names the Secret's text in error messages.
///
/// # Errors
/// The text is not YAML, lacks the rules, or has an unknown field or an invalid rule.
pub fn parse_identity_rules(text: &str, is_strict: bool, place: &str) -> Result<IdentityRules, SourceRefusal> {
    const FIELD: &str = "spec.clientIdentityExchanger.rules";
    let refuse = |problem: &str| SourceRefusal::new("InvalidRules", format!("{place}: {problem}"));
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|_| refuse("The text is not YAML. Correct the text."))?;
    let rules = document.pointer("/spec/clientIdentityExchanger/rules");
    let rules = rules.ok_or_else(|| refuse(&format!("{FIELD} is missing. Add the rules, or remove the text.")))?;
    // Decoding the rules as a ClusterSource detects unknown fields. They are refused, because an unknown field may
    // restrict a rule.
    let source = json!({
        "apiVersion": API_VERSION, "kind": "ClusterSource", "metadata": {"name": "rules"},
        "spec": {"identity": {"rules": rules}},
    });
    let source: ClusterSource = decode_hub_object(source, "ClusterSource")
        .map_err(|error| refuse(&format!("{}.", error.to_string().replace("spec.identity.rules", FIELD))))?;
    let mut rules = source.spec.identity.rules;
    for rule in &mut rules {
        rule.source.cluster = None;
    }
    compile_rules(&rules, is_strict, &format!("{place}: {FIELD}"))
}

fn compile_rule(rule: &IdentityRule, is_strict: bool, place: &str) -> Result<ExchangeRule, SourceRefusal> {
    let refuse = |problem: String| SourceRefusal::new("InvalidRules", format!("{place}{problem}"));
    match (rule.kind, &rule.target) {
        (IdentityRuleType::PrivilegedIdentityExchanger, Some(_)) => {
            return Err(refuse(".target has no effect with PrivilegedIdentityExchanger. Remove it.".to_owned()));
        }
        // Without a target user, cluster-gateway impersonates nobody, so the caller would get the rights of the stored
        // credential.
        (IdentityRuleType::StaticMappingIdentityExchanger, target)
            if target.as_ref().is_none_or(|target| target.user.is_empty()) =>
        {
            return Err(refuse(".target.user is missing. Give the user that the cluster sees.".to_owned()));
        }
        _ => {}
    }
    let source = rule.source.clone();
    let source = RuleSource {
        user: source.user,
        group: source.group,
        uid: source.uid,
        cluster: source.cluster,
        user_pattern: source.user_pattern,
        group_pattern: source.group_pattern,
        cluster_pattern: source.cluster_pattern,
    };
    let target = rule.target.clone().map(|target| UserInfo {
        username: target.user,
        groups: target.groups,
        uid: target.uid,
        ..UserInfo::default()
    });
    ExchangeRule::new(source, is_strict, target)
        .map_err(|invalid| refuse(format!(".source.{}: {invalid}. Correct it.", invalid.field)))
}

#[cfg(test)]
mod tests {
    use tributary_authentication::ExchangedIdentity;

    use super::*;

    fn compile(rules: Value, is_strict: bool) -> Result<IdentityRules, SourceRefusal> {
        let rules: Vec<IdentityRule> = serde_json::from_value(rules).unwrap();
        compile_rules(&rules, is_strict, "rules")
    }

    #[test]
    fn wrong_rules_are_refused_by_name() {
        for (rule, problem) in [
            (
                json!({"type": "PrivilegedIdentityExchanger", "source": {"userPattern": "a(b"}}),
                "rules[0] (r).source.userPattern",
            ),
            (
                json!({"type": "PrivilegedIdentityExchanger", "source": {"groupPattern": "[é]"}}),
                "rules[0] (r).source.groupPattern",
            ),
            (
                json!({"type": "PrivilegedIdentityExchanger", "source": {"clusterPattern": "(?=a)"}}),
                "rules[0] (r).source.clusterPattern",
            ),
            (
                json!({"type": "PrivilegedIdentityExchanger", "source": {}, "target": {"user": "a"}}),
                "rules[0] (r).target",
            ),
            (json!({"type": "StaticMappingIdentityExchanger", "source": {}}), "rules[0] (r).target.user"),
            (
                json!({"type": "StaticMappingIdentityExchanger", "source": {}, "target": {"user": ""}}),
                "rules[0] (r).target.user",
            ),
        ] {
            let mut rule = rule;
            rule["name"] = json!("r");
            let refusal = compile(json!([rule]), true).unwrap_err();
            assert_eq!(refusal.reason, "InvalidRules");
            assert!(refusal.message.starts_with(problem), "{}", refusal.message);
        }
    }

    /// cluster-gateway ignores the errors in these texts, or panics.
    #[test]
    fn configuration_of_cluster_gateway_is_read_completely_or_refused() {
        let parse = |text: &str| parse_identity_rules(text, false, "annotation");
        let head = "apiVersion: cluster.core.oam.dev/v1alpha1\nkind: ClusterGatewayProxyConfiguration\nspec:\n  clientIdentityExchanger:\n    rules:\n";
        let rules = parse(&format!(
            "{head}    - {{name: a, type: PrivilegedIdentityExchanger, source: {{user: ann, cluster: us}}}}\n"
        ));
        // The rule names cluster `us`, but applies to the Secret's own cluster `eu`.
        let ann = UserInfo { username: "ann".to_owned(), ..UserInfo::default() };
        assert_eq!(rules.unwrap().exchange(&ann, "eu"), ExchangedIdentity::Stored);
        for (text, problem) in [
            ("{".to_owned(), "is not YAML"),
            ("spec: {}".to_owned(), "spec.clientIdentityExchanger.rules is missing"),
            (format!("{head}    - {{name: a, type: PrivilegedIdentityExchanger}}\n"), "rules[0].source: is required"),
            (format!("{head}    - {{name: a, type: PrivilegedIdentityExchanger, source: null}}\n"), "rules[0].source"),
            (
                format!("{head}    - {{name: a, type: ExternalIdentityExchanger, source: {{}}, url: \"https://a\"}}\n"),
                "\"ExternalIdentityExchanger\" is not allowed",
            ),
            (
                format!("{head}    - {{name: a, type: PrivilegedIdentityExchanger, source: {{usr: ann}}}}\n"),
                "spec.clientIdentityExchanger.rules[0].source.usr: unknown field",
            ),
            (
                format!("{head}    - {{name: a, type: PrivilegedIdentityExchanger, source: {{userPattern: \"(\"}}}}\n"),
                "rules[0] (a).source.userPattern",
            ),
        ] {
            let refusal = parse(&text).unwrap_err();
            assert!(refusal.reason == "InvalidRules" && refusal.message.contains(problem), "{text}: {refusal:?}");
        }
    }
}
