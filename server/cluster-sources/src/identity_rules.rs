//! The user that a member of a source sees. Rules have the meaning of cluster-gateway (`ExchangeIdentity` in
//! `pkg/apis/cluster/v1alpha1/clustergateway_proxy_configuration.go`), which ignores or panics on rules that are
//! refused here.

use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};
use tributary_crds::identity_rule::{IdentityRuleTarget, SourceIdentity};
use tributary_crds::{API_VERSION, ClusterSource, IdentityRule, IdentityRuleType, IdentityType, decode_hub_object};

use crate::SourceRefusal;

/// The user that a member sees.
#[derive(Clone, Debug, PartialEq)]
pub enum IdentityPolicy {
    /// The caller, by impersonation.
    Impersonate,
    /// The user of the stored credential. Answers must come from the member, never from memory.
    Stored,
    /// The user of the first matching rule, or else the caller.
    Rules(IdentityRules),
}

/// Compiled rules. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct IdentityRules(Vec<Arc<CompiledRule>>);

impl PartialEq for IdentityRules {
    fn eq(&self, other: &Self) -> bool {
        let rules = |own: &Self| own.0.iter().map(|one| (one.rule.clone(), one.is_strict)).collect::<Vec<_>>();
        rules(self) == rules(other)
    }
}

#[derive(Debug)]
struct CompiledRule {
    rule: IdentityRule,
    is_strict: bool,
    user: Option<Regex>,
    group: Option<Regex>,
    cluster: Option<Regex>,
}

/// The caller of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The name of the user.
    pub name: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The uid of the user; empty if unknown.
    pub uid: &'a str,
}

/// The user that a member sees for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangedIdentity<'a> {
    /// The caller: no rule matches.
    Caller,
    /// The user of the stored credential.
    Stored,
    /// The user of a rule's target.
    Mapped(&'a IdentityRuleTarget),
}

impl IdentityPolicy {
    /// Compiles the identity of a source.
    ///
    /// # Errors
    /// The first rule that is wrong.
    pub(crate) fn new(identity: &SourceIdentity) -> Result<Self, SourceRefusal> {
        match identity.kind {
            IdentityType::Impersonate => Ok(Self::Impersonate),
            IdentityType::Stored => Ok(Self::Stored),
            IdentityType::Rules => {
                IdentityRules::compile(&identity.rules, identity.strict, "spec.identity.rules").map(Self::Rules)
            }
        }
    }
}

impl IdentityRules {
    /// Compiles rules. With `is_strict`, patterns must match the whole name. `field` is the path of the rules, for
    /// messages.
    ///
    /// # Errors
    /// The first rule with a wrong pattern, or with a target that does not fit its type.
    pub fn compile(rules: &[IdentityRule], is_strict: bool, field: &str) -> Result<Self, SourceRefusal> {
        let compiled = rules.iter().enumerate().map(|(index, rule)| {
            let place = if rule.name.is_empty() { String::new() } else { format!(" ({})", rule.name) };
            CompiledRule::new(rule, is_strict, &format!("{field}[{index}]{place}")).map(Arc::new)
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// Compiles the rules of a ClusterGatewayProxyConfiguration. All rules apply to the cluster of the Secret alone, as
    /// in cluster-gateway.
    ///
    /// # Errors
    /// The text has a different form, an unknown field, or a wrong rule.
    pub fn parse(text: &str, is_strict: bool, place: &str) -> Result<Self, SourceRefusal> {
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
        Self::compile(&rules, is_strict, &format!("{place}: {FIELD}"))
    }

    /// Returns the rules followed by other rules.
    pub fn followed_by(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Returns the user that a cluster sees for a caller. `cluster` is the name in the foreign system.
    pub fn exchange(&self, caller: Caller<'_>, cluster: &str) -> ExchangedIdentity<'_> {
        match self.0.iter().find(|rule| rule.matches(caller, cluster)) {
            None => ExchangedIdentity::Caller,
            Some(rule) => rule.rule.target.as_ref().map_or(ExchangedIdentity::Stored, ExchangedIdentity::Mapped),
        }
    }
}

impl CompiledRule {
    fn new(rule: &IdentityRule, is_strict: bool, place: &str) -> Result<Self, SourceRefusal> {
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
        let compile = |field: &str, pattern: &Option<String>| {
            let compiled = pattern.as_deref().map(|pattern| compile_pattern(pattern, is_strict)).transpose();
            compiled.map_err(|()| {
                let pattern = pattern.as_deref().unwrap_or_default();
                refuse(format!(
                    ".source.{field}: {pattern:?} is not a regular expression of ASCII classes, or is too large. Correct it."
                ))
            })
        };
        let source = &rule.source;
        Ok(Self {
            user: compile("userPattern", &source.user_pattern)?,
            group: compile("groupPattern", &source.group_pattern)?,
            cluster: compile("clusterPattern", &source.cluster_pattern)?,
            rule: rule.clone(),
            is_strict,
        })
    }

    fn matches(&self, caller: Caller<'_>, cluster: &str) -> bool {
        let source = &self.rule.source;
        let equals = |given: &Option<String>, value: &str| given.as_deref().is_none_or(|given| given == value);
        let fits = |pattern: &Option<Regex>, value: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.is_match(value.as_bytes()))
        };
        equals(&source.user, caller.name)
            && source.group.as_ref().is_none_or(|group| caller.groups.contains(group))
            && equals(&source.uid, caller.uid)
            && equals(&source.cluster, cluster)
            && fits(&self.user, caller.name)
            && self.group.as_ref().is_none_or(|group| caller.groups.iter().any(|one| group.is_match(one.as_bytes())))
            && fits(&self.cluster, cluster)
    }
}

/// Maximum size of a compiled pattern in bytes. 256 KiB: a pattern of 1,024 letters needs less. A user who may write a
/// Secret can give 768 patterns.
const PATTERN_BYTES_MAX: usize = 256 << 10;

/// Compiles a pattern with the classes of Go, where `\d` and `\w` are ASCII only: with Unicode classes, a rule would
/// match more users than in cluster-gateway.
fn compile_pattern(pattern: &str, is_strict: bool) -> Result<Regex, ()> {
    let compile =
        |pattern: &str| RegexBuilder::new(pattern).unicode(false).size_limit(PATTERN_BYTES_MAX).build().map_err(|_| ());
    let compiled = compile(pattern)?;
    if is_strict { compile(&format!("^(?:{pattern})$")) } else { Ok(compiled) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(rules: Value, is_strict: bool) -> Result<IdentityRules, SourceRefusal> {
        let rules: Vec<IdentityRule> = serde_json::from_value(rules).unwrap();
        IdentityRules::compile(&rules, is_strict, "rules")
    }

    /// Returns the user that cluster `eu` sees: `=` for the caller, `*` for the stored credential.
    fn exchanged(rules: &IdentityRules, name: &str, groups: &[&str], uid: &str) -> String {
        let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        match rules.exchange(Caller { name, groups: &groups, uid }, "eu") {
            ExchangedIdentity::Caller => "=".to_owned(),
            ExchangedIdentity::Stored => "*".to_owned(),
            ExchangedIdentity::Mapped(target) => format!("{} {} {}", target.user, target.groups.join(","), target.uid),
        }
    }

    #[test]
    fn first_matching_rule_gives_the_user() {
        let rules = compile(
            json!([
                {"name": "super", "type": "PrivilegedIdentityExchanger", "source": {"group": "sudoer"}},
                {"name": "uid", "type": "PrivilegedIdentityExchanger", "source": {"uid": "7"}},
                {"name": "other", "type": "PrivilegedIdentityExchanger", "source": {"cluster": "us"}},
                {"name": "both", "type": "StaticMappingIdentityExchanger", "source": {"user": "ann", "groupPattern": "^dev-"},
                    "target": {"user": "dev", "groups": ["a", "b"], "uid": "1"}},
                {"name": "pattern", "type": "StaticMappingIdentityExchanger", "source": {"userPattern": "bot", "clusterPattern": "^e"},
                    "target": {"user": "robot"}},
            ]),
            false,
        );
        let rules = rules.unwrap();
        for (name, groups, uid, expected) in [
            ("ann", &[][..], "", "="),
            ("ann", &["a", "sudoer"], "", "*"),
            ("ann", &[], "7", "*"),
            ("ann", &["dev-eu"], "", "dev a,b 1"),
            ("bob", &["dev-eu"], "", "="),
            ("robots", &[], "", "robot  "),
        ] {
            assert_eq!(exchanged(&rules, name, groups, uid), expected, "{name} {groups:?}");
        }
    }

    #[test]
    fn patterns_match_the_whole_name_only_if_strict() {
        let rule = |pattern: &str| json!([{"type": "PrivilegedIdentityExchanger", "source": {"userPattern": pattern}}]);
        for (pattern, name, loose, strict) in [
            ("bot", "robot-1", "*", "="),
            ("bot|ann", "ann-b", "*", "="),
            ("bot|ann", "ann", "*", "*"),
            ("^ann", "ann-b", "*", "="),
            ("(?m)^ann$", "x\nann", "*", "="),
            ("(?i)ANN", "ann", "*", "*"),
            // U+0661 is a digit outside ASCII.
            (r"^\d$", "\u{661}", "=", "="),
            ("^m.+r$", "müller", "*", "*"),
            ("", "ann", "*", "="),
        ] {
            assert_eq!(exchanged(&compile(rule(pattern), false).unwrap(), name, &[], ""), loose, "{pattern}");
            assert_eq!(exchanged(&compile(rule(pattern), true).unwrap(), name, &[], ""), strict, "{pattern}");
        }
    }

    #[test]
    fn size_of_patterns_is_limited() {
        assert!(compile_pattern(&"a".repeat(1024), true).is_ok());
        assert!(compile_pattern("(a{1000}){1000}", false).is_err());
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
        let parse = |text: &str| IdentityRules::parse(text, false, "annotation");
        let head = "apiVersion: cluster.core.oam.dev/v1alpha1\nkind: ClusterGatewayProxyConfiguration\nspec:\n  clientIdentityExchanger:\n    rules:\n";
        let rules = parse(&format!(
            "{head}    - {{name: a, type: PrivilegedIdentityExchanger, source: {{user: ann, cluster: us}}}}\n"
        ));
        // A rule of a Secret applies to the cluster of the Secret.
        assert_eq!(exchanged(&rules.unwrap(), "ann", &[], ""), "*");
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
