//! Reads the identity of a source. cluster-gateway ignores, or panics on, rules that are refused here.

use serde_json::{Value, json};
use tributary_authentication::{ExchangeRule, IdentityPolicy, IdentityRules, RuleSource, UserInfo};
use tributary_crds::identity_rule::SourceIdentity;
use tributary_crds::{API_VERSION, ClusterSource, IdentityRule, IdentityRuleType, IdentityType, decode_hub_object};

use crate::SourceRefusal;

/// Compiles the identity of a source.
///
/// # Errors
/// The first rule that is wrong.
pub(crate) fn read_identity(identity: &SourceIdentity) -> Result<IdentityPolicy, SourceRefusal> {
    match identity.kind {
        IdentityType::Impersonate => Ok(IdentityPolicy::Impersonate),
        IdentityType::Stored => Ok(IdentityPolicy::Stored),
        IdentityType::Rules => {
            compile_rules(&identity.rules, identity.strict, "spec.identity.rules").map(IdentityPolicy::Rules)
        }
    }
}

/// Compiles rules. With `is_strict`, patterns must match the whole name. `field` is the path of the rules, for
/// messages.
///
/// # Errors
/// The first rule with a wrong pattern, or with a target that does not fit its type.
fn compile_rules(rules: &[IdentityRule], is_strict: bool, field: &str) -> Result<IdentityRules, SourceRefusal> {
    let compiled = rules.iter().enumerate().map(|(index, rule)| {
        let place = if rule.name.is_empty() { String::new() } else { format!(" ({})", rule.name) };
        compile_rule(rule, is_strict, &format!("{field}[{index}]{place}"))
    });
    compiled.collect()
}

/// Compiles the rules of a ClusterGatewayProxyConfiguration. All rules apply to the cluster of the Secret alone, as in
/// cluster-gateway. With `is_strict`, patterns must match the whole name. `place` names the text, for messages.
///
/// # Errors
/// The text has a different form, an unknown field, or a wrong rule.
pub fn parse_identity_rules(text: &str, is_strict: bool, place: &str) -> Result<IdentityRules, SourceRefusal> {
    const FIELD: &str = "spec.clientIdentityExchanger.rules";
    let refuse = |problem: &str| SourceRefusal::new("InvalidRules", format!("{place}: {problem}"));
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|_| refuse("The text is not YAML. Correct the text."))?;
    let rules = document.pointer("/spec/clientIdentityExchanger/rules");
    let rules = rules.ok_or_else(|| refuse(&format!("{FIELD} is missing. Add the rules, or remove the text.")))?;
    // The schema of ClusterSource finds unknown fields. An unknown field may restrict a rule.
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
        // Without a user, cluster-gateway sends no impersonation: the caller would get the stored credential.
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

    /// cluster-gateway ignores these errors, or panics.
    #[test]
    fn configuration_of_cluster_gateway_is_read_completely_or_refused() {
        let parse = |text: &str| parse_identity_rules(text, false, "annotation");
        let head = "apiVersion: cluster.core.oam.dev/v1alpha1\nkind: ClusterGatewayProxyConfiguration\nspec:\n  clientIdentityExchanger:\n    rules:\n";
        let rules = parse(&format!(
            "{head}    - {{name: a, type: PrivilegedIdentityExchanger, source: {{user: ann, cluster: us}}}}\n"
        ));
        // A rule of a Secret applies to the cluster of the Secret.
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
