//! The fuzzed property of dispatch policies.

use tributary_apimachinery::RequestInfo;
use tributary_policy::{
    Action, DispatchAttributes, DispatchPolicies, Mode, Outcome, Policy, PolicyScope, Rule, RuleField, RulePosition,
    Verdict, can_match, examine,
};

/// The input contains dispatch policies. The path of a request and a NUL byte may precede them. A line is a field with
/// its entries, separated by spaces (`''` is the empty entry). An empty line begins a rule, and `---` begins a policy.
/// The line `audit` gives the policy the mode `Audit`. The line `deny` makes the policy deny its requests. A denying
/// policy matches each spelling of a name.
///
/// The policy index returns the same policies as the evaluation of each rule. A rule that is reported as useless
/// matches no request.
pub fn dispatch_policies(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (path, text) = text.split_once('\0').unwrap_or(("/api/v1/namespaces/n/pods/p/log", text));
    let policies = policies(text);
    let findings = examine(&policies, PolicyScope::MergedView);
    let compiled = DispatchPolicies::new(policies.clone());
    let groups = ["system:authenticated".to_owned(), "dev".to_owned()];
    for (method, user) in [("GET", "ann"), ("POST", "system:serviceaccount:n:a"), ("OPTIONS", ""), ("DELETE", "user-1")]
    {
        let Ok(info) = RequestInfo::parse(method, path, None) else { return };
        let asked = DispatchAttributes::from_request(&info, user, &groups, "kubectl/v1.36");
        let decision = compiled.decide(&asked);
        let taken = match decision.verdict {
            Verdict::Matched { place, outcome } => {
                assert_eq!(outcome, &policies[place.policy].outcome);
                Some(place)
            }
            Verdict::Ungoverned | Verdict::Unmatched => None,
        };
        let matching = compiled.explain(&asked).rules.into_iter().filter(|(_, verdict)| verdict.matches());
        let matching: Vec<RulePosition> = matching.map(|(place, _)| place).collect();
        let of = |mode: Mode| matching.iter().copied().find(|place| policies[place.policy].mode == mode);
        assert_eq!(taken, of(Mode::Enforce));
        assert_eq!(decision.audited, of(Mode::Audit));
        for place in taken.into_iter().chain(decision.audited) {
            let own = [place.to_string(), format!("spec.dispatchPolicies[{}]", place.policy)];
            let is_useless = findings
                .iter()
                .any(|finding| own.contains(&finding.path) && finding.message.starts_with("matches no request"));
            assert!(!is_useless, "{place} is reported as useless, but matches a request");
        }
    }
    for rule in policies.iter().flat_map(|policy| &policy.rules) {
        for field in RuleField::ALL {
            for entry in rule.entries(field) {
                can_match(field, entry);
            }
        }
    }
}

fn policies(text: &str) -> Vec<Policy> {
    let policy = |text: &str| {
        let says = |word: &str| text.lines().any(|line| line == word);
        let mode = if says("audit") { Mode::Audit } else { Mode::Enforce };
        let action = if says("deny") { Action::Deny { message: "no".to_owned() } } else { Action::default() };
        let outcome = Outcome { action, ..Outcome::default() };
        Policy { rules: text.split("\n\n").map(rule).collect(), mode, outcome }
    };
    text.split("---\n").map(policy).collect()
}

fn rule(text: &str) -> Rule {
    let mut rule = Rule::default();
    for line in text.lines() {
        let (field, entries) = line.split_once(' ').unwrap_or((line, ""));
        let entries = entries.split_whitespace().map(|entry| if entry == "''" { "" } else { entry });
        let entries: Vec<String> = entries.map(str::to_owned).collect();
        match field {
            "verbs" => rule.verbs = entries,
            "apiGroups" => rule.api_groups = entries,
            "resources" => rule.resources = entries,
            "resourceNames" => rule.resource_names = entries,
            "namespaces" => rule.namespaces = entries,
            "users" => rule.users = entries,
            "serviceAccounts" => rule.service_accounts = entries,
            "userGroups" => rule.user_groups = entries,
            "nonResourceURLs" => rule.non_resource_urls = entries,
            "userAgents" => rule.user_agents = entries,
            _ => {}
        }
    }
    rule
}
