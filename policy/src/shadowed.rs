//! Rules that never match, because an earlier rule matches all their requests.

use tributary_apimachinery::SERVICE_ACCOUNT_USERNAME_PREFIX;

use crate::entries::{Entry, FieldEntries, Values};
use crate::pattern::{ServiceAccountPattern, TextPattern};
use crate::place::{PolicyList, RulePosition};
use crate::policy::{Mode, Policy};
use crate::rule::{Matcher, Rule};

/// A rule that never matches, and the earlier rule that matches all its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShadowedRule {
    pub(crate) shadowed: RulePosition,
    pub(crate) shadowing: RulePosition,
}

/// Returns the rules whose requests a single earlier rule certainly matches. Leaves out rules that can match no
/// request, and rules that only several earlier rules together hide. Compares each pair of rules.
pub(crate) fn shadowed(policies: &[Policy], list: PolicyList) -> Vec<ShadowedRule> {
    let mut earlier: Vec<(RulePosition, Mode, ComparedRule)> = Vec::new();
    let mut found = Vec::new();
    for (number, policy) in policies.iter().enumerate() {
        for (rule, written) in policy.rules.iter().enumerate() {
            let position = RulePosition { list, policy: number, rule };
            let own = ComparedRule::from_rule(written, policy);
            if !matches_something(&own.matcher) {
                continue;
            }
            // A rule of a policy in audit mode does not hide a rule of an enforced policy.
            let hides = |(_, mode, earlier_rule): &&(RulePosition, Mode, ComparedRule)| {
                (*mode == Mode::Enforce || policy.mode == Mode::Audit) && covers(earlier_rule, &own)
            };
            if let Some((earlier_rule, ..)) = earlier.iter().find(hides) {
                found.push(ShadowedRule { shadowed: position, shadowing: *earlier_rule });
            }
            earlier.push((position, policy.mode, own));
        }
    }
    found
}

/// Returns `true` if the enforced rules certainly match every request. For this, one rule has to match all resource
/// requests, and one rule all non-resource requests.
pub(crate) fn match_everything(policies: &[Policy]) -> bool {
    let all = || vec!["*".to_owned()];
    let resources = Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() };
    let paths = Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() };
    let acting = policies.iter().filter(|policy| policy.mode == Mode::Enforce);
    let rules: Vec<_> =
        acting.flat_map(|policy| policy.rules.iter().map(|rule| ComparedRule::from_rule(rule, policy))).collect();
    [resources, paths].iter().all(|rest| {
        let rest = ComparedRule { matcher: Matcher::new(rest), denies: false };
        rules.iter().any(|rule| covers(rule, &rest))
    })
}

/// The rules of all denying policies, prepared for comparisons.
pub(crate) struct Denials(Vec<(Mode, ComparedRule)>);

impl Denials {
    pub(crate) fn from_policies(policies: &[Policy]) -> Self {
        let rules = policies.iter().filter(|policy| policy.denies()).flat_map(|policy| {
            let compared = move |rule| (policy.mode, ComparedRule::from_rule(rule, policy));
            policy.rules.iter().map(compared)
        });
        Self(rules.collect())
    }

    /// Returns `true` if a single denying rule certainly matches every request of this rule. `mode` is the mode of this
    /// rule's policy. Cost: a comparison with each denying rule.
    pub(crate) fn cover(&self, rule: &Rule, mode: Mode) -> bool {
        let rule = ComparedRule { matcher: Matcher::new(rule), denies: true };
        // A denying rule in audit mode denies nothing, so it covers only a rule that is in audit mode, too.
        self.0.iter().any(|(own, by)| (*own == Mode::Enforce || mode == Mode::Audit) && covers(by, &rule))
    }
}

struct ComparedRule {
    matcher: Matcher,
    denies: bool,
}

impl ComparedRule {
    fn from_rule(rule: &Rule, policy: &Policy) -> Self {
        Self { matcher: Matcher::new(rule), denies: policy.denies() }
    }
}

/// Returns whether each field of the rule accepts at least one value.
fn matches_something(rule: &Matcher) -> bool {
    let has_subject = !rule.users.is_nothing() || !rule.service_accounts.is_nothing();
    let has_rest = !rule.verbs.is_nothing() && !rule.user_groups.is_nothing() && !rule.user_agents.is_nothing();
    has_subject && has_rest && (rule.matches_resources() || rule.matches_paths())
}

/// Returns `true` if the rule `shadowing` certainly matches all requests of the rule `shadowed`.
fn covers(shadowing: &ComparedRule, shadowed: &ComparedRule) -> bool {
    let (by, rule) = (&shadowing.matcher, &shadowed.matcher);
    // The fields that differ most often are compared first: each pair of rules is compared, and most comparisons end
    // early.
    covers_subject(by, rule)
        && covers_target(by, rule)
        && by.verbs.covers(&rule.verbs, Values::One)
        && by.user_groups.covers(&rule.user_groups, Values::Several)
        && by.user_agents.covers(&rule.user_agents, Values::One)
        && covers_spellings(shadowing, shadowed)
}

/// Returns whether `by` matches all spellings of a proxied object's name that `rule` matches, if the entries of `by`
/// cover the entries of `rule`. A denying rule matches more spellings than its entries, and a dispatching rule fewer.
/// So a denying rule always covers a dispatching rule. If both rules deny or both dispatch, an entry with a colon can
/// make a difference.
fn covers_spellings(by: &ComparedRule, rule: &ComparedRule) -> bool {
    let names_nothing = matches!(by.matcher.resource_names, FieldEntries::Any(_));
    let has_spellings = || by.matcher.resource_names.has_spellings() || rule.matcher.resource_names.has_spellings();
    names_nothing
        || !rule.matcher.matches_proxied()
        || (by.denies && !rule.denies)
        || (by.denies == rule.denies && !has_spellings())
}

fn covers_target(by: &Matcher, rule: &Matcher) -> bool {
    let resources = || {
        by.api_groups.covers(&rule.api_groups, Values::One)
            && by.resources.covers(&rule.resources, Values::One)
            && by.resource_names.covers(&rule.resource_names, Values::One)
            && by.namespaces.covers(&rule.namespaces, Values::One)
    };
    (!rule.matches_resources() || resources())
        && (!rule.matches_paths() || by.non_resource_urls.covers(&rule.non_resource_urls, Values::One))
}

fn covers_subject(by: &Matcher, rule: &Matcher) -> bool {
    by.users.covers(&rule.users, Values::One)
        && (by.service_accounts.covers(&rule.service_accounts, Values::One)
            || by.users.covers(&as_users(&rule.service_accounts), Values::One))
}

/// Returns entries for ServiceAccounts as entries for user names. Inverted entries become an entry for all
/// ServiceAccounts.
fn as_users(accounts: &FieldEntries<ServiceAccountPattern>) -> FieldEntries<TextPattern> {
    let of = |text: &str| format!("{SERVICE_ACCOUNT_USERNAME_PREFIX}{text}").into_boxed_str();
    let user = |ServiceAccountPattern(text): &ServiceAccountPattern| match text {
        TextPattern::Exact(text) => TextPattern::Exact(of(text)),
        TextPattern::Prefix(prefix) => TextPattern::Prefix(of(prefix)),
    };
    match accounts {
        FieldEntries::Only(entries) => {
            let entries = entries.iter().map(|entry| Entry { place: entry.place, pattern: user(&entry.pattern) });
            FieldEntries::Only(entries.collect())
        }
        FieldEntries::Any(_) | FieldEntries::AllBut(_) => {
            FieldEntries::Only(vec![Entry { place: 0, pattern: TextPattern::Prefix(of("")) }])
        }
    }
}
