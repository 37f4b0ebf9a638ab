//! Each case of a rule that matches or rejects a request: KubeGateway's sixteen numbered cases, and further cases.

use tributary_policy::{DispatchAttributes, DispatchPolicies, Mode, Policy, PolicyList, Rule, RulePosition, Verdict};

use crate::{denying, entries, everything, path, resource};

/// Returns whether a policy with only this rule matches the request. Also checks that the explanation gives the same
/// result.
fn matches_rule(rule: &Rule, request: &DispatchAttributes<'_>) -> bool {
    let policies = DispatchPolicies::new(vec![denying("no", vec![rule.clone()])]);
    let is_matched = matches!(policies.decide(request).verdict, Verdict::Matched { .. });
    let explained = policies.explain(request);
    assert_eq!(explained.rules[0].1.matches(), is_matched, "{rule:?} {request:?}");
    is_matched
}

#[track_caller]
fn row(rule: Rule, requests: &[(DispatchAttributes<'_>, bool)]) {
    for (request, expected) in requests {
        assert_eq!(matches_rule(&rule, request), *expected, "{rule:?} {request:?}");
    }
}

fn verbs(text: &str) -> Rule {
    Rule { verbs: entries(text), ..everything() }
}

fn resources(text: &str) -> Rule {
    Rule { resources: entries(text), ..everything() }
}

fn user(name: &str) -> DispatchAttributes<'_> {
    DispatchAttributes { user: name, ..resource("get pods") }
}

#[test]
fn row_1_rule_with_empty_verbs_matches_nothing_and_with_star_all_verbs() {
    row(verbs(""), &[(resource("get pods"), false)]);
    row(verbs("* -get"), &[(resource("get pods"), true)]);
}

#[test]
fn row_2_inverted_verb_matches_all_other_verbs() {
    row(verbs("-get"), &[(resource("get pods"), false), (resource("create pods"), true)]);
}

#[test]
fn row_3_several_inverted_resources_are_all_excluded() {
    let requests =
        [(resource("get pods"), false), (resource("get deployments"), false), (resource("get services"), true)];
    row(resources("-pods -deployments"), &requests);
}

#[test]
fn row_4_inverted_entries_are_ignored_if_there_is_a_plain_entry() {
    let requests =
        [(resource("get deployments"), true), (resource("get pods"), false), (resource("get services"), false)];
    row(resources("-pods deployments"), &requests);
}

#[test]
fn row_5_resource_entry_does_not_match_its_subresource() {
    row(resources("pods"), &[(resource("get pods/status"), false)]);
    row(resources("*"), &[(resource("get pods/status"), true)]);
}

#[test]
fn row_6_inverted_resource_does_not_exclude_its_subresources() {
    row(resources("-pods"), &[(resource("get pods"), false), (resource("get pods/status"), true)]);
}

#[test]
fn row_7_star_entry_matches_a_subresource_of_all_resources() {
    let requests = [
        (resource("get deployments/status"), true),
        (resource("get deployments"), false),
        (resource("get deployments/scale"), false),
    ];
    row(resources("*/status"), &requests);
}

#[test]
fn row_8_inverted_star_entry_excludes_its_subresource_of_all_resources() {
    row(resources("-*/status"), &[(resource("get deployments/status"), false), (resource("get pods"), true)]);
}

#[test]
fn row_9_star_as_a_subresource_is_refused() {
    let rules = vec![resources("deployments/*"), resources("-deployments/*"), resources("pods */*")];
    let findings = tributary_policy::examine(&[denying("no", rules)], tributary_policy::PolicyScope::Cluster);
    for (index, place) in [(0, "rules[0].resources[0]"), (1, "rules[1].resources[0]"), (2, "rules[2].resources[1]")] {
        assert_eq!(findings[index].severity, tributary_policy::Severity::Error);
        assert!(findings[index].path.ends_with(place), "{findings:?}");
        assert!(findings[index].message.contains("/*\" never matches"), "{findings:?}");
    }
    row(resources("deployments/*"), &[(resource("get deployments/status"), false)]);
}

#[test]
fn row_10_empty_api_group_matches_the_core_group() {
    row(Rule { api_groups: entries("''"), ..everything() }, &[(resource("get pods"), true)]);
    row(Rule { api_groups: entries("-"), ..everything() }, &[(resource("get pods"), false)]);
}

#[test]
fn row_11_list_request_has_an_empty_name() {
    for (names, expected) in [("nginx", false), ("-nginx", true), ("", true)] {
        let rule = Rule { resource_names: entries(names), ..everything() };
        row(rule, &[(resource("list pods"), expected)]);
    }
}

/// A dispatching rule matches only the spelling that the rule contains.
#[test]
fn denial_of_an_object_name_applies_to_each_proxy_spelling_of_the_name() {
    let names = |names: &str| Rule { resource_names: entries(names), ..everything() };
    let spellings = ["web:80", "web:", "http:web:80", "https:web:", ":web:80"];
    let proxy = |name: &str| format!("get services/proxy {name}");
    let denies = |rule: &Rule, request: &str| matches_rule(rule, &resource(request));
    let passes = |rule: &Rule, request: &str| {
        let policies = DispatchPolicies::new(vec![Policy { rules: vec![rule.clone()], ..Policy::default() }]);
        let request_attributes = resource(request);
        let is_matched = matches!(policies.decide(&request_attributes).verdict, Verdict::Matched { .. });
        assert_eq!(policies.explain(&request_attributes).rules[0].1.matches(), is_matched, "{rule:?} {request}");
        is_matched
    };
    for spelling in spellings.map(proxy) {
        for (rule, is_denied, is_passed) in [
            ("web", true, false),
            ("we*", true, spelling.contains(" web:")),
            ("-web", true, false),
            ("-other", true, true),
            ("other", false, false),
            ("", true, true),
        ] {
            assert_eq!(denies(&names(rule), &spelling), is_denied, "{rule} {spelling}");
            assert_eq!(passes(&names(rule), &spelling), is_passed, "{rule} {spelling}");
        }
    }
    // An entry with a colon is compared with the path. The scheme in a path is not the beginning of the object's name.
    for (rule, name, is_denied, is_passed) in [
        ("web:80", "web:80", true, true),
        ("web:80", "http:web:80", false, false),
        ("-web:80", "web:80", false, false),
        ("-web:80", "web:81", true, true),
        ("http*", "http:web:80", true, false),
        ("-http*", "http:web:80", true, false),
        ("http:*", "http:web:80", true, true),
        ("web", "web", true, true),
        ("-web", "web", false, false),
        ("web", "a:web:80:b", false, false),
    ] {
        assert_eq!(denies(&names(rule), &proxy(name)), is_denied, "{rule} {name}");
        assert_eq!(passes(&names(rule), &proxy(name)), is_passed, "{rule} {name}");
    }
    // The name of an object without the subresource `proxy` has one spelling.
    for request in ["get services web:80", "get services/status web:80", "get configmaps/proxy web:80"] {
        assert!(!denies(&names("web"), request) && passes(&names("-web"), request), "{request}");
    }
}

#[test]
fn row_12_star_matches_a_prefix_of_user_names() {
    row(Rule { users: entries("user-*"), ..everything() }, &[(user("user-1"), true), (user("ann"), false)]);
    row(Rule { users: entries("-user-*"), ..everything() }, &[(user("user-1"), false), (user("ann"), true)]);
}

#[test]
fn row_13_rule_matches_its_users_or_its_service_accounts() {
    let rule = |users| Rule { users: entries(users), service_accounts: entries("d/d"), ..everything() };
    row(rule(""), &[(user("bob"), false)]);
    row(rule(""), &[(user("system:serviceaccount:d:d"), true)]);
    row(rule("bob"), &[(user("system:serviceaccount:d:d"), true)]);
    row(rule("*"), &[(user("alice"), true)]);
}

#[test]
fn row_14_path_entry_matches_whole_path_or_prefix() {
    let rule = |urls| Rule { non_resource_urls: entries(urls), ..everything() };
    row(rule("/healthz"), &[(path("/healthz/etcd"), false)]);
    row(rule("/healthz/*"), &[(path("/healthz"), false), (path("/healthz/etcd"), true)]);
}

#[test]
fn row_15_path_rules_do_not_match_resources() {
    let rule = Rule { verbs: entries("*"), non_resource_urls: entries("*"), ..Rule::default() };
    row(rule, &[(resource("list pods"), false), (path("/healthz"), true)]);
}

#[test]
fn row_16_first_matching_policy_determines_the_action() {
    let (pods, all) = (denying("A", vec![resources("pods")]), denying("B", vec![everything()]));
    let message = |policies: &DispatchPolicies, request| match policies.decide(&request).verdict {
        Verdict::Matched { outcome, .. } => outcome.action.clone(),
        other => panic!("{other:?}"),
    };
    let policies = DispatchPolicies::new(vec![pods.clone(), all.clone()]);
    assert_eq!(message(&policies, resource("get pods")), pods.outcome.action);
    assert_eq!(message(&policies, resource("get secrets")), all.outcome.action);
    let reversed = DispatchPolicies::new(vec![all.clone(), pods]);
    assert_eq!(message(&reversed, resource("get pods")), all.outcome.action);
    assert_eq!(message(&reversed, resource("get secrets")), all.outcome.action);
}

#[test]
fn case_17_request_that_matches_no_policy_is_refused() {
    let request = resource("get pods");
    assert_eq!(DispatchPolicies::default().decide(&request).verdict, Verdict::Ungoverned);
    let policies = DispatchPolicies::new(vec![denying("no", vec![resources("secrets")])]);
    assert_eq!(policies.decide(&request).verdict, Verdict::Unmatched);
}

#[test]
fn request_is_allowed_if_no_global_policy_matches() {
    let policies = DispatchPolicies::global(vec![denying("no", vec![resources("secrets")])]);
    assert_eq!(policies.decide(&resource("get pods")).verdict, Verdict::Ungoverned);
    let Verdict::Matched { place, .. } = policies.decide(&resource("get secrets")).verdict else { panic!("not taken") };
    assert_eq!(place.to_string(), "spec.globalDispatchPolicies[0].rules[0]");
}

#[test]
fn policy_in_audit_mode_does_not_change_the_decision() {
    let in_audit_mode = |rules| Policy { mode: Mode::Audit, ..denying("no", rules) };
    let acting = denying("no", vec![resources("secrets"), resources("pods")]);
    let at = |policy, rule| RulePosition { list: PolicyList::Dispatch, policy, rule };
    // A single policy in audit mode has the same effect as no policy.
    let alone = DispatchPolicies::new(vec![in_audit_mode(vec![everything()])]);
    let decision = alone.decide(&resource("get pods"));
    assert_eq!((decision.verdict, decision.audited), (Verdict::Ungoverned, Some(at(0, 0))));
    // A matching policy in audit mode is reported if it comes before the first matching enforced policy, but not if it
    // comes after that policy.
    for (policies, audited, position) in [
        (vec![in_audit_mode(vec![resources("pods")]), acting.clone()], Some(at(0, 0)), at(1, 1)),
        (vec![acting.clone(), in_audit_mode(vec![resources("pods")])], None, at(0, 1)),
        (
            vec![in_audit_mode(vec![resources("nodes")]), acting.clone(), in_audit_mode(vec![everything()])],
            None,
            at(1, 1),
        ),
    ] {
        let policies = DispatchPolicies::new(policies);
        let decision = policies.decide(&resource("get pods"));
        assert_eq!(decision.audited, audited);
        assert!(matches!(decision.verdict, Verdict::Matched { place, .. } if place == position), "{decision:?}");
    }
    // If no enforced rule matches, a matching rule in audit mode is reported at any position.
    let behind =
        DispatchPolicies::new(vec![denying("no", vec![resources("secrets")]), in_audit_mode(vec![everything()])]);
    let decision = behind.decide(&resource("get pods"));
    assert_eq!((decision.verdict, decision.audited), (Verdict::Unmatched, Some(at(1, 0))));
}

#[test]
fn service_account_entries_match_service_accounts_only() {
    let rule = |accounts| Rule { users: Vec::new(), service_accounts: entries(accounts), ..everything() };
    let shop = "system:serviceaccount:shop:web";
    for (accounts, of_shop, of_ann) in [
        ("shop/web", true, false),
        ("shop/*", true, false),
        ("shop/w*", true, false),
        ("shop/x*", false, false),
        ("*", true, false),
        ("-shop/web", false, false),
        ("-shop/*", false, false),
        ("-other/*", true, false),
    ] {
        row(rule(accounts), &[(user(shop), of_shop), (user("ann"), of_ann)]);
    }
}

#[test]
fn policy_rule_matches_groups_namespaces_and_user_agents() {
    let in_groups = |groups| DispatchAttributes { groups, ..resource("get pods") };
    let (none, dev, both): (&[String], Vec<String>, Vec<String>) = (&[], entries("dev"), entries("dev ops"));
    let rule = |groups| Rule { user_groups: entries(groups), ..everything() };
    for (groups, expected) in [
        ("", [true, true, true]),
        ("*", [true, true, true]),
        ("ops", [false, false, true]),
        ("de*", [false, true, true]),
        ("-ops", [true, true, false]),
        ("-ops -qa", [true, true, false]),
        ("-de*", [true, false, false]),
    ] {
        let requests = [in_groups(none), in_groups(&dev), in_groups(&both)];
        for (requests, expected) in requests.iter().zip(expected) {
            assert_eq!(matches_rule(&rule(groups), requests), expected, "{groups} {requests:?}");
        }
    }
    let agent = |user_agent| DispatchAttributes { user_agent, ..resource("get pods") };
    let rule = |agents| Rule { user_agents: entries(agents), ..everything() };
    row(rule("kubectl/*"), &[(agent("kubectl/v1.36"), true), (agent("curl/8"), false), (agent(""), false)]);
    row(rule("-kubectl/* -curl/8"), &[(agent("kubectl/v1.36"), false), (agent("curl/8"), false), (agent(""), true)]);
    let namespaced = |namespace| {
        let mut request = resource("get pods");
        if let tributary_policy::DispatchTarget::Resource(resource) = &mut request.target {
            resource.namespace = namespace;
        }
        request
    };
    let rule = |namespaces| Rule { namespaces: entries(namespaces), ..everything() };
    row(rule("shop ''"), &[(namespaced("shop"), true), (namespaced(""), true), (namespaced("a"), false)]);
    row(rule("team-*"), &[(namespaced("team-a"), true), (namespaced(""), false)]);
    row(rule("-kube-* -"), &[(namespaced("kube-system"), false), (namespaced(""), false), (namespaced("a"), true)]);
}
