//! The user that a member sees, if another system such as cluster-gateway configures the member. The rules have the
//! same meaning as in cluster-gateway (`ExchangeIdentity` in
//! `pkg/apis/cluster/v1alpha1/clustergateway_proxy_configuration.go`).

use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::user::UserInfo;

/// The user that a member sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum IdentityPolicy {
    /// The member sees the caller, because Tributary impersonates the caller.
    #[default]
    Impersonate,
    /// The member sees the user of the stored credential. The member itself must answer each request; no request is
    /// answered from Tributary's memory.
    Stored,
    /// The member sees the user of the first rule that matches, or the caller if no rule matches.
    Rules(IdentityRules),
}

impl IdentityPolicy {
    /// Returns whether this policy equals `end`, or has further rules before the rules of `end`.
    pub fn ends_with(&self, end: &Self) -> bool {
        match (self, end) {
            (Self::Rules(rules), Self::Rules(end)) => rules.0.ends_with(&end.0),
            _ => self == end,
        }
    }

    /// Returns the user that a cluster sees for a caller. `cluster` is the name of the cluster in the system that
    /// configures it.
    pub fn exchange(&self, caller: &UserInfo, cluster: &str) -> ExchangedIdentity<'_> {
        match self {
            Self::Impersonate => ExchangedIdentity::Caller,
            Self::Stored => ExchangedIdentity::Stored,
            Self::Rules(rules) => rules.exchange(caller, cluster),
        }
    }
}

/// Compiled rules. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<RuleText>", try_from = "Vec<RuleText>")]
pub struct IdentityRules(Vec<Arc<ExchangeRule>>);

/// A rule in serialized form.
#[derive(Serialize, Deserialize)]
struct RuleText {
    source: RuleSource,
    is_strict: bool,
    target: Option<UserInfo>,
}

impl From<IdentityRules> for Vec<RuleText> {
    fn from(rules: IdentityRules) -> Self {
        let write = |rule: &Arc<ExchangeRule>| RuleText {
            source: rule.source.clone(),
            is_strict: rule.is_strict,
            target: rule.target.clone(),
        };
        rules.0.iter().map(write).collect()
    }
}

impl TryFrom<Vec<RuleText>> for IdentityRules {
    type Error = InvalidPattern;

    fn try_from(rules: Vec<RuleText>) -> Result<Self, InvalidPattern> {
        let compile = |RuleText { source, is_strict, target }| ExchangeRule::new(source, is_strict, target);
        rules.into_iter().map(compile).collect()
    }
}

impl FromIterator<ExchangeRule> for IdentityRules {
    fn from_iter<I: IntoIterator<Item = ExchangeRule>>(rules: I) -> Self {
        Self(rules.into_iter().map(Arc::new).collect())
    }
}

impl IdentityRules {
    /// Returns these rules, followed by the rules of `other`.
    #[must_use]
    pub fn followed_by(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Returns the user that a cluster sees for a caller. `cluster` is the name of the cluster in the system that
    /// configures it.
    pub fn exchange(&self, caller: &UserInfo, cluster: &str) -> ExchangedIdentity<'_> {
        match self.0.iter().find(|rule| rule.matches(caller, cluster)) {
            None => ExchangedIdentity::Caller,
            Some(rule) => rule.target.as_ref().map_or(ExchangedIdentity::Stored, ExchangedIdentity::Mapped),
        }
    }
}

/// The user that a member sees for a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangedIdentity<'a> {
    /// The member sees the caller, because no rule matches or the policy impersonates the caller.
    Caller,
    /// The member sees the user of the stored credential.
    Stored,
    /// The member sees the user in the target of the matching rule.
    Mapped(&'a UserInfo),
}

/// The callers and clusters to which a rule applies. Each field that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSource {
    /// The name of the caller.
    pub user: Option<String>,
    /// A group of the caller.
    pub group: Option<String>,
    /// The uid of the caller.
    pub uid: Option<String>,
    /// The name of the cluster in the system that configures it.
    pub cluster: Option<String>,
    /// A regular expression for the name of the caller.
    pub user_pattern: Option<String>,
    /// A regular expression for any group of the caller.
    pub group_pattern: Option<String>,
    /// A regular expression for the name of the cluster in the system that configures it.
    pub cluster_pattern: Option<String>,
}

/// A rule that exchanges the identity of a caller.
#[derive(Debug)]
pub struct ExchangeRule {
    source: RuleSource,
    is_strict: bool,
    user: Option<Regex>,
    group: Option<Regex>,
    cluster: Option<Regex>,
    /// The user that the cluster sees; `None` for the user of the stored credential.
    target: Option<UserInfo>,
}

impl PartialEq for ExchangeRule {
    fn eq(&self, other: &Self) -> bool {
        (&self.source, self.is_strict, &self.target) == (&other.source, other.is_strict, &other.target)
    }
}

/// Error: a pattern is not a regular expression of ASCII classes, or is too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a regular expression of ASCII classes, or is too large")]
pub struct InvalidPattern {
    /// The field of [`RuleSource`] with the pattern, in the spelling of cluster-gateway.
    pub field: &'static str,
    /// The pattern.
    pub pattern: String,
}

impl ExchangeRule {
    /// Compiles a rule. With `is_strict`, patterns must match the whole name. Without `target`, the cluster sees the
    /// user of the stored credential.
    ///
    /// # Errors
    /// [`InvalidPattern`].
    pub fn new(source: RuleSource, is_strict: bool, target: Option<UserInfo>) -> Result<Self, InvalidPattern> {
        let compile = |field: &'static str, pattern: &Option<String>| {
            let compiled = pattern.as_deref().map(|pattern| compile_pattern(pattern, is_strict)).transpose();
            compiled.map_err(|()| InvalidPattern { field, pattern: pattern.clone().unwrap_or_default() })
        };
        Ok(Self {
            user: compile("userPattern", &source.user_pattern)?,
            group: compile("groupPattern", &source.group_pattern)?,
            cluster: compile("clusterPattern", &source.cluster_pattern)?,
            source,
            is_strict,
            target,
        })
    }

    fn matches(&self, caller: &UserInfo, cluster: &str) -> bool {
        let source = &self.source;
        let equals = |field: &Option<String>, value: &str| field.as_deref().is_none_or(|field| field == value);
        let fits = |pattern: &Option<Regex>, value: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.is_match(value.as_bytes()))
        };
        equals(&source.user, &caller.username)
            && source.group.as_ref().is_none_or(|group| caller.groups.contains(group))
            && equals(&source.uid, &caller.uid)
            && equals(&source.cluster, cluster)
            && fits(&self.user, &caller.username)
            && self.group.as_ref().is_none_or(|group| caller.groups.iter().any(|one| group.is_match(one.as_bytes())))
            && fits(&self.cluster, cluster)
    }
}

/// Maximum size of a compiled pattern in bytes. A pattern of 1,024 letters needs less than 256 KiB. The limit bounds
/// the memory, because a user who may write a Secret can set 768 patterns.
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

    fn text(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    fn privileged(source: RuleSource, is_strict: bool) -> ExchangeRule {
        ExchangeRule::new(source, is_strict, None).unwrap()
    }

    fn mapped(source: RuleSource, user: &str, groups: &[&str]) -> ExchangeRule {
        let groups = groups.iter().map(ToString::to_string).collect();
        let target = UserInfo { username: user.to_owned(), groups, ..UserInfo::default() };
        ExchangeRule::new(source, false, Some(target)).unwrap()
    }

    /// Returns the user that cluster `eu` sees: `=` for the caller, `*` for the stored credential.
    fn exchanged(rules: &IdentityRules, name: &str, groups: &[&str], uid: &str) -> String {
        let groups = groups.iter().map(ToString::to_string).collect();
        let caller = UserInfo { username: name.to_owned(), groups, uid: uid.to_owned(), ..UserInfo::default() };
        match rules.exchange(&caller, "eu") {
            ExchangedIdentity::Caller => "=".to_owned(),
            ExchangedIdentity::Stored => "*".to_owned(),
            ExchangedIdentity::Mapped(target) => format!("{} {}", target.username, target.groups.join(",")),
        }
    }

    #[test]
    fn first_matching_identity_rule_determines_the_mapped_user() {
        let rules = IdentityRules::from_iter([
            privileged(RuleSource { group: text("sudoer"), ..RuleSource::default() }, false),
            privileged(RuleSource { uid: text("7"), ..RuleSource::default() }, false),
            privileged(RuleSource { cluster: text("us"), ..RuleSource::default() }, false),
            mapped(
                RuleSource { user: text("ann"), group_pattern: text("^dev-"), ..RuleSource::default() },
                "dev",
                &["a", "b"],
            ),
            mapped(
                RuleSource { user_pattern: text("bot"), cluster_pattern: text("^e"), ..RuleSource::default() },
                "robot",
                &[],
            ),
        ]);
        for (name, groups, uid, expected) in [
            ("ann", &[][..], "", "="),
            ("ann", &["a", "sudoer"], "", "*"),
            ("ann", &[], "7", "*"),
            ("ann", &["dev-eu"], "", "dev a,b"),
            ("bob", &["dev-eu"], "", "="),
            ("robots", &[], "", "robot "),
        ] {
            assert_eq!(exchanged(&rules, name, groups, uid), expected, "{name} {groups:?}");
        }
    }

    #[test]
    fn user_pattern_must_match_the_whole_name_only_in_strict_mode() {
        let rules = |pattern: &str, is_strict| {
            let source = RuleSource { user_pattern: text(pattern), ..RuleSource::default() };
            IdentityRules::from_iter([privileged(source, is_strict)])
        };
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
            assert_eq!(exchanged(&rules(pattern, false), name, &[], ""), loose, "{pattern}");
            assert_eq!(exchanged(&rules(pattern, true), name, &[], ""), strict, "{pattern}");
        }
    }

    #[test]
    fn identity_rule_pattern_with_a_large_compiled_form_is_refused() {
        assert!(compile_pattern(&"a".repeat(1024), true).is_ok());
        assert!(compile_pattern("(a{1000}){1000}", false).is_err());
    }

    #[test]
    fn identity_policy_selects_the_caller_a_mapped_user_or_the_stored_credential() {
        let caller = UserInfo { username: "ann".to_owned(), ..UserInfo::default() };
        let rule = mapped(RuleSource { user: text("ann"), ..RuleSource::default() }, "dev", &[]);
        let rules = IdentityPolicy::Rules(IdentityRules::from_iter([rule]));
        assert_eq!(IdentityPolicy::default().exchange(&caller, "eu"), ExchangedIdentity::Caller);
        assert_eq!(IdentityPolicy::Stored.exchange(&caller, "eu"), ExchangedIdentity::Stored);
        assert!(matches!(rules.exchange(&caller, "eu"), ExchangedIdentity::Mapped(user) if user.username == "dev"));
        for policy in [IdentityPolicy::default(), IdentityPolicy::Stored, rules] {
            let text = serde_json::to_string(&policy).unwrap();
            assert_eq!(serde_json::from_str::<IdentityPolicy>(&text).unwrap(), policy, "{text}");
        }
    }
}
