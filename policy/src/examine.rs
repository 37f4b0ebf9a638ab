//! Checks of policies when they are loaded. The result reports errors and parts without effect, with their paths in the
//! configuration.

mod created_by_name;
mod fields;
mod unknown_names;

use tributary_apimachinery::{METHODS, Verb};

use crate::connections::MissedConnections;
use crate::explanation::RuleField;
use crate::outcome::Action;
use crate::place::{PolicyList, RulePosition};
use crate::policy::{Mode, Policy};
use crate::rule::{Matcher, Rule};
use crate::shadowed::{Denials, ShadowedRule, match_everything, shadowed};

/// Maximal number of rules in all policies of one configuration object. Loading compares each pair of rules.
pub const RULES_MAX: usize = 4_096;

fn resource_verbs() -> [&'static str; 8] {
    Verb::RESOURCE_VERBS.map(Verb::as_str)
}

fn path_verbs() -> [&'static str; METHODS.len()] {
    METHODS.map(|(_, verb)| verb)
}

/// The requests to which a list of policies applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyScope {
    /// Requests to the merged view.
    MergedView,
    /// Requests to one cluster.
    Cluster,
    /// All requests, for the global policies.
    Global,
}

impl PolicyScope {
    /// Returns the list in the configuration object that contains the policies of this scope.
    pub fn list(self) -> PolicyList {
        match self {
            Self::MergedView | Self::Cluster => PolicyList::Dispatch,
            Self::Global => PolicyList::Global,
        }
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The policies are valid, but may not have the effect that the author wants.
    Warning,
    /// A part of the policies can never have an effect. The author must correct this part.
    Error,
}

/// A finding about policies: an error, or a part without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// Path of the faulty value, for example `spec.dispatchPolicies[2].rules[0].verbs`.
    pub path: String,
    /// A message with the faulty value, the problem and the remedy.
    pub message: String,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { severity: Severity::Error, path: path.into(), message: message.into() });
    }

    fn warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { severity: Severity::Warning, path: path.into(), message: message.into() });
    }
}

/// Returns whether an entry of a field can match any request in any scope. The entry has no leading `-`, and is not
/// `*`.
pub fn can_match(field: RuleField, entry: &str) -> bool {
    fields::problem(field, entry).is_none()
}

/// Returns all findings about the policies, in the order of the policies.
pub fn examine(policies: &[Policy], scope: PolicyScope) -> Vec<Finding> {
    let rules: usize = policies.iter().map(|policy| policy.rules.len()).sum();
    let (list, mut findings) = (scope.list(), Findings::default());
    if rules > RULES_MAX {
        let message = format!("{rules} rules are more than {RULES_MAX}; merge rules with the same outcome");
        findings.error(list.path(), message);
        return findings.0;
    }
    let (mut shadowed, denials) = (shadowed(policies, list), Denials::from_policies(policies));
    for (number, policy) in policies.iter().enumerate() {
        if policy.rules.is_empty() {
            let message = "is empty, so the policy matches no request; give at least one rule";
            findings.error(format!("{}.rules", list.policy_path(number)), message);
        }
        for (rule, written) in policy.rules.iter().enumerate() {
            let position = RulePosition { list, policy: number, rule };
            fields::examine(written, (position, scope), &mut findings);
            whole_rule(written, position, &mut findings);
            unknown_names::examine(written, position, &mut findings);
            if matches!(policy.outcome.action, Action::Deny { .. }) {
                warn_of_evaded_denial(written, position, &mut findings);
                created_by_name::examine(written, (position, policy.mode), &denials, &mut findings);
            }
        }
        let own = shadowed.extract_if(.., |own| own.shadowed.policy == number).collect::<Vec<_>>();
        report_shadowed(policy, (list, number), &own, &mut findings);
    }
    if list == PolicyList::Dispatch {
        warn_of_final_denial(policies, &mut findings);
    }
    findings.0
}

/// Warns if the last enforced policy denies requests. The router answers 500 to a request that matches no policy, and
/// an author who ends the list with a denial rarely wants this.
fn warn_of_final_denial(policies: &[Policy], findings: &mut Findings) {
    let last = policies.iter().enumerate().rfind(|(_, policy)| policy.mode == Mode::Enforce);
    let Some((number, _)) = last.filter(|(_, policy)| policy.denies()) else { return };
    if match_everything(policies) {
        return;
    }
    let message = format!(
        "denies, and no later policy allows the remaining requests, so every request without a matching policy is \
         refused (500); append this policy to {}: {{rules: [{{verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"], \
         nonResourceURLs: [\"*\"]}}]}}",
        PolicyList::Dispatch.path()
    );
    findings.warning(PolicyList::Dispatch.policy_path(number), message);
}

/// Reports combinations of fields because of which the whole rule, or its resources or paths, can match no request.
fn whole_rule(rule: &Rule, position: RulePosition, findings: &mut Findings) {
    let matcher = Matcher::new(rule);
    let path = |field: RuleField| format!("{position}.{}", field.as_str());
    if rule.verbs.is_empty() {
        findings.error(path(RuleField::Verbs), "is empty, so the rule never matches; give verbs, or \"*\" for all");
    }
    match (rule.api_groups.is_empty(), rule.resources.is_empty()) {
        (true, false) => findings.error(
            path(RuleField::ApiGroups),
            "is empty, so the rule's resources never match; give \"\" for the core group, or \"*\" for all",
        ),
        (false, true) => findings.error(
            path(RuleField::Resources),
            "is empty, so the rule's apiGroups never match; give resources, or \"*\" for all",
        ),
        (true, true) if rule.non_resource_urls.is_empty() => findings.error(
            position.to_string(),
            "names neither apiGroups and resources nor nonResourceURLs, so it never matches; give one of them",
        ),
        (true, true) => {
            for field in [RuleField::ResourceNames, RuleField::Namespaces] {
                if !rule.entries(field).is_empty() {
                    findings.warning(path(field), "has no effect, since the rule names no resources; remove it");
                }
            }
        }
        (false, false) => {}
    }
    let accepts = |verb: &str| matcher.verbs.verdict(std::iter::once(verb)).accepts();
    // An empty field or an invalid verb already has a finding, so the rule gets no second finding about its verbs.
    let has_verb_finding = rule.verbs.is_empty() || !rule.verbs.iter().all(|entry| fields::is_verb(entry));
    let has_verb = |known: &[&str]| has_verb_finding || accepts("") || known.iter().any(|verb| accepts(verb));
    if matcher.matches_resources() && !has_verb(&resource_verbs()) {
        let message = format!(
            "has no verb of resource requests, so the rule's resources never match; add one of {}",
            resource_verbs().join(", ")
        );
        findings.error(path(RuleField::Verbs), message);
    } else if matcher.matches_resources()
        && !has_verb_finding
        && MissedConnections::from_rule(&rule.verbs, &rule.resources) == MissedConnections::All
    {
        let message = "has no \"create\", the verb of exec, attach and portforward with every method, so the rule's \
                       resources never match; add it";
        findings.error(path(RuleField::Verbs), message);
    }
    if matcher.matches_paths() && !has_verb(&path_verbs()) {
        let message = format!(
            "has no verb of non-resource requests, so the rule's nonResourceURLs never match; add one of {}",
            path_verbs().join(", ")
        );
        findings.error(path(RuleField::Verbs), message);
    }
}

/// Warns of a denial by name or namespace. A request for many objects, or for all namespaces, has no name or no
/// namespace, and so evades the denial.
fn warn_of_evaded_denial(rule: &Rule, position: RulePosition, findings: &mut Findings) {
    let matcher = Matcher::new(rule);
    let accepts = |verb: &&&str| matcher.verbs.verdict(std::iter::once(**verb)).accepts();
    let Some(verb) = ["list", "watch", "deletecollection"].iter().find(accepts).filter(|_| matcher.matches_resources())
    else {
        return;
    };
    for (field, entries, what) in [
        (RuleField::Namespaces, &matcher.namespaces, "of all namespaces has no namespace"),
        (RuleField::ResourceNames, &matcher.resource_names, "of several objects has no name"),
    ] {
        if !entries.verdict(std::iter::once("")).accepts() {
            findings.warning(
                format!("{position}.{}", field.as_str()),
                format!(
                    "a {verb} {what}, so it is not denied; add \"\" to deny it, too, or restrict the user's rights in \
                     the cluster"
                ),
            );
        }
    }
}

fn report_shadowed(
    policy: &Policy,
    (list, number): (PolicyList, usize),
    shadowed: &[ShadowedRule],
    findings: &mut Findings,
) {
    if !shadowed.is_empty()
        && shadowed.len() == policy.rules.len()
        && shadowed.iter().all(|one| one.shadowing.policy != number)
    {
        let mut shadowing: Vec<_> = shadowed.iter().map(|one| one.shadowing).collect();
        shadowing.sort_unstable();
        shadowing.dedup();
        let shadowing = shadowing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let message = format!(
            "matches no request, because {shadowing} matches each of them first; move it before that, or remove it"
        );
        return findings.warning(list.policy_path(number), message);
    }
    for ShadowedRule { shadowed, shadowing } in shadowed {
        let message = format!(
            "matches no request, because {shadowing} matches each of them first; move it before that, or remove it"
        );
        findings.warning(shadowed.to_string(), message);
    }
}
