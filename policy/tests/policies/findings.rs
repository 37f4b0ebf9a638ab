//! Tests of findings about policies. Each finding has a path, a value and a remedy.

use tributary_policy::{Mode, Policy, PolicyScope, RULES_MAX, Rule, Severity, examine};

use crate::{denying, entries, everything};

/// Returns the findings about a cluster's policies, one per line, with the prefix `E` (error) or `W` (warning).
fn found(policies: &[Policy]) -> Vec<String> {
    found_of(policies, PolicyScope::Cluster)
}

/// Returns the findings about policies of a scope. The warning about a final denial is omitted, because it has its own
/// test.
fn found_of(policies: &[Policy], scope: PolicyScope) -> Vec<String> {
    let mut lines = all_found_of(policies, scope);
    lines.retain(|line| !line.contains("no later policy allows the remaining requests"));
    lines
}

fn all_found_of(policies: &[Policy], scope: PolicyScope) -> Vec<String> {
    let letter = |severity| if severity == Severity::Error { 'E' } else { 'W' };
    let line = |finding: &tributary_policy::Finding| {
        format!("{} {}: {}", letter(finding.severity), finding.path, finding.message)
    };
    examine(policies, scope).iter().map(line).collect()
}

/// Returns a policy that dispatches requests. Only the rules of such a policy can have findings.
fn policy(rules: Vec<Rule>) -> Policy {
    Policy { rules, ..Policy::default() }
}

fn pods() -> Rule {
    Rule { verbs: entries("get list"), api_groups: entries("''"), resources: entries("pods"), ..Rule::default() }
}

#[test]
fn policy_rules_that_never_match_are_errors() {
    for (rule, expected) in [
        (pods(), ""),
        (everything(), ""),
        (Rule { verbs: entries(""), ..pods() }, "E R.verbs: is empty, so the rule never matches; give verbs, or \"*\""),
        (
            Rule { verbs: entries("GET"), ..pods() },
            "E R.verbs[0]: \"GET\" is not a verb of any request, so it never matches; write \"get\"",
        ),
        (Rule { verbs: entries("get read"), ..pods() }, "E R.verbs[1]: \"read\" is not a verb of any request"),
        (Rule { verbs: entries("-*"), ..pods() }, "E R.verbs[0]: \"-*\" excludes everything"),
        (
            Rule { resources: entries("pods/exec */attach"), ..pods() },
            "E R.verbs: has no \"create\", the verb of exec, attach and portforward with every method, so the rule's \
             resources never",
        ),
        (Rule { resources: entries("pods/exec"), verbs: entries("-create"), ..pods() }, "E R.verbs: has no \"create\""),
        (
            Rule { resources: entries("pods/exec"), verbs: entries("post"), ..pods() },
            "E R.verbs: has no verb of resource requests",
        ),
        (Rule { resources: entries("pods/exec"), verbs: entries("create"), ..pods() }, ""),
        (Rule { resources: entries("pods pods/exec"), ..pods() }, ""),
        (Rule { verbs: entries("post"), ..pods() }, "E R.verbs: has no verb of resource requests"),
        (
            Rule { api_groups: entries(""), ..pods() },
            "E R.apiGroups: is empty, so the rule's resources never match; give \"\"",
        ),
        (Rule { resources: entries(""), ..pods() }, "E R.resources: is empty, so the rule's apiGroups never match"),
        (
            Rule { verbs: entries("*"), ..Rule::default() },
            "E R: names neither apiGroups and resources nor nonResourceURLs",
        ),
        (
            Rule { api_groups: entries("apps*"), ..pods() },
            "E R.apiGroups[0]: \"apps*\" never matches: a group is not a pattern",
        ),
        (
            Rule { resources: entries("Pod"), ..pods() },
            "E R.resources[0]: \"Pod\" never matches: resources are named in lower case",
        ),
        (Rule { resources: entries("pods/"), ..pods() }, "E R.resources[0]: \"pods/\" never matches; allowed are"),
        (Rule { resources: entries("po*"), ..pods() }, "E R.resources[0]: \"po*\" never matches; allowed are"),
        (Rule { resources: entries("pods/log/x"), ..pods() }, "E R.resources[0]: \"pods/log/x\" never matches"),
        (
            Rule { users: entries("a*b"), ..pods() },
            "E R.users[0]: \"a*b\" has a \"*\" inside; a \"*\" is allowed alone, or at the end",
        ),
        (
            Rule { service_accounts: entries("web"), ..pods() },
            "E R.serviceAccounts[0]: \"web\" is not a ServiceAccount; write \"NAMESPACE/NAME\"",
        ),
        (
            Rule { service_accounts: entries("*/web"), ..pods() },
            "E R.serviceAccounts[0]: \"*/web\" is not a ServiceAccount",
        ),
        (
            Rule { non_resource_urls: entries("healthz"), verbs: entries("get"), ..Rule::default() },
            "E R.nonResourceURLs[0]: \"healthz\" never matches: a path begins with \"/\"",
        ),
        (
            Rule { non_resource_urls: entries("/healthz"), verbs: entries("list"), ..Rule::default() },
            "E R.verbs: has no verb of non-resource requests",
        ),
        (Rule { non_resource_urls: entries("/healthz"), ..pods() }, ""),
    ] {
        let lines = found(&[policy(vec![rule.clone()])]);
        let lines: Vec<_> = lines.iter().map(|line| line.replace("spec.dispatchPolicies[0].rules[0]", "R")).collect();
        let (wanted, count) = if expected.is_empty() { ("", 0) } else { (expected, 1) };
        assert_eq!(lines.len(), count, "{rule:?}: {lines:#?}");
        assert!(lines.first().is_none_or(|line| line.starts_with(wanted)), "{rule:?}: {lines:#?}");
    }
    assert_eq!(
        found(&[policy(vec![pods()]), policy(Vec::new())]),
        ["E spec.dispatchPolicies[1].rules: is empty, so the policy matches no request; give at least one rule"]
    );
    let many = policy(vec![pods(); RULES_MAX + 1]);
    assert!(found(&[many])[0].starts_with("E spec.dispatchPolicies: 4097 rules are more than 4096"));
}

/// Policies never apply to these paths, so an entry for such a path has no effect, and its author gets a finding.
#[test]
fn policy_rules_for_paths_that_never_reach_policies_are_reported() {
    const OWN: &str = "in the merged view Tributary answers this path itself, without policies; remove the entry";
    const OF_CLUSTER: &str = "requests below /clusters/NAME pass the policies of this cluster";
    const OF_RESOURCE: &str = "never matches: the path is of a resource; name the resource in apiGroups and resources";
    let never = |why: &str| format!("never matches: {why}");
    let nothing = String::new;
    for (entry, of_cluster, of_merged) in [
        ("/version", nothing(), nothing()),
        ("/api", nothing(), nothing()),
        ("/api/v1", nothing(), nothing()),
        ("/api/*", nothing(), nothing()),
        ("/apis/apps/v1*", nothing(), nothing()),
        ("/*", nothing(), nothing()),
        ("/tributary/*", nothing(), nothing()),
        ("/metrics", nothing(), never(OWN)),
        ("/metrics/slis", nothing(), nothing()),
        ("/healthz", nothing(), never(OWN)),
        ("/readyz/cluster/eu", nothing(), never(OWN)),
        ("/livez/*", nothing(), never(OWN)),
        ("/readyz/cluster/*", nothing(), never(OWN)),
        ("/metrics/*", nothing(), nothing()),
        ("/tributary/status/*", nothing(), nothing()),
        ("/tributary/status", nothing(), never(OWN)),
        ("/tributary/policy-test", nothing(), never(OWN)),
        ("/clusters/", nothing(), nothing()),
        ("/clusters/eu*", nothing(), never(OF_CLUSTER)),
        ("/clusters/eu/version", nothing(), never(OF_CLUSTER)),
        ("/k8s/clusters/", nothing(), nothing()),
        ("/k8s/clusters/eu/version", nothing(), never(OF_CLUSTER)),
        ("/api/v1/pods", OF_RESOURCE.to_owned(), OF_RESOURCE.to_owned()),
        ("/api/v1/namespaces/*", OF_RESOURCE.to_owned(), OF_RESOURCE.to_owned()),
        ("/apis/apps/v1/deployments", OF_RESOURCE.to_owned(), OF_RESOURCE.to_owned()),
    ] {
        let rule = Rule { verbs: entries("get"), non_resource_urls: entries(entry), ..Rule::default() };
        for (scope, expected) in [(PolicyScope::Cluster, of_cluster), (PolicyScope::MergedView, of_merged)] {
            let lines = found_of(&[policy(vec![rule.clone()])], scope);
            let begins = format!("E spec.dispatchPolicies[0].rules[0].nonResourceURLs[0]: {entry:?} {expected}");
            assert_eq!(lines.len(), usize::from(!expected.is_empty()), "{entry} {scope:?}: {lines:#?}");
            assert!(lines.iter().all(|line| line.starts_with(&begins)), "{entry} {scope:?}: {lines:#?}");
        }
    }
    // An entry with a prefix may also match paths to which policies apply: `/metrics/slis`, `/healthzz`, and
    // `/clusters/`.
    for (entry, description) in [
        ("/metrics*", "\"/metrics\": in the merged view Tributary answers this path itself"),
        ("/healthz*", "\"/healthz\": in the merged view Tributary answers this path itself"),
        ("/livez*", "\"/livez\": in the merged view Tributary answers this path itself"),
        ("/tributary/status*", "\"/tributary/status\": in the merged view Tributary answers this path itself"),
        ("/clusters/*", "requests below /clusters/NAME: they pass the policies of this cluster"),
        ("/k8s/clusters/*", "requests below /clusters/NAME: they pass the policies of this cluster"),
    ] {
        for (entry, is_reported) in [(entry.to_owned(), true), (format!("-{entry}"), false)] {
            let rule = Rule { verbs: entries("get"), non_resource_urls: entries(&entry), ..Rule::default() };
            let lines = found_of(&[policy(vec![rule.clone()])], PolicyScope::MergedView);
            let begins = format!(
                "W spec.dispatchPolicies[0].rules[0].nonResourceURLs[0]: {entry:?} does not match {description}"
            );
            assert_eq!(lines.len(), usize::from(is_reported), "{entry}: {lines:#?}");
            assert!(lines.iter().all(|line| line.starts_with(&begins)), "{lines:#?}");
            assert_eq!(found(&[policy(vec![rule])]), Vec::<String>::new());
        }
    }
    // An inverted entry without an effect does no harm, so it is only a warning.
    let rule = Rule { verbs: entries("get"), non_resource_urls: entries("-/metrics"), ..Rule::default() };
    let lines = found_of(&[policy(vec![rule.clone()])], PolicyScope::MergedView);
    let path = "spec.dispatchPolicies[0].rules[0].nonResourceURLs[0]";
    assert_eq!(lines, [format!("W {path}: \"-/metrics\" excludes nothing: {OWN}")]);
    assert_eq!(found(&[policy(vec![rule])]), Vec::<String>::new());
}

#[test]
fn policy_entries_without_effect_cause_warnings() {
    for (verbs, expected) in [
        ("get -list", "W R.verbs: \"-list\" has no effect beside \"get\"; remove one of them"),
        ("* -get", "W R.verbs: \"*\" matches everything, so \"-get\" has no effect; remove one of them"),
    ] {
        let lines = found(&[policy(vec![Rule { verbs: entries(verbs), ..pods() }])]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].replace("spec.dispatchPolicies[0].rules[0]", "R"), expected);
    }
    let paths =
        Rule { verbs: entries("get"), non_resource_urls: entries("*"), namespaces: entries("a"), ..Rule::default() };
    let lines = found(&[policy(vec![paths])]);
    assert_eq!(
        lines,
        ["W spec.dispatchPolicies[0].rules[0].namespaces: has no effect, since the rule names no resources; remove it"]
    );
}

#[test]
fn rules_and_policies_hidden_by_earlier_rules_cause_warnings() {
    let rule = |index: usize| Rule { resources: entries(["pods", "nodes", "services"][index]), ..pods() };
    let two = || policy(vec![rule(0), rule(1)]);
    let all = || policy(vec![everything()]);
    let in_audit_mode = |policy| Policy { mode: Mode::Audit, ..policy };
    let (first, second) = ("spec.dispatchPolicies[0]", "spec.dispatchPolicies[1]");
    let remedy = "matches each of them first; move it before that, or remove it";
    for (policies, expected) in [
        (vec![two(), all()], vec![]),
        (vec![all(), two()], vec![format!("W {second}: matches no request, because {first}.rules[0] {remedy}")]),
        (
            vec![two(), policy(vec![rule(1), rule(2)])],
            vec![format!("W {second}.rules[0]: matches no request, because {first}.rules[1] {remedy}")],
        ),
        (
            vec![two(), policy(vec![rule(1), rule(0)])],
            vec![format!("W {second}: matches no request, because {first}.rules[0], {first}.rules[1] {remedy}")],
        ),
        (
            vec![policy(vec![rule(0), rule(0)])],
            vec![format!("W {first}.rules[1]: matches no request, because {first}.rules[0] {remedy}")],
        ),
        // A policy in audit mode does not hide an enforced policy, but an enforced policy hides a policy in audit mode.
        (vec![in_audit_mode(all()), two()], vec![]),
        (
            vec![all(), in_audit_mode(two())],
            vec![format!("W {second}: matches no request, because {first}.rules[0] {remedy}")],
        ),
        (
            vec![in_audit_mode(all()), in_audit_mode(two())],
            vec![format!("W {second}: matches no request, because {first}.rules[0] {remedy}")],
        ),
    ] {
        assert_eq!(found(&policies), expected, "{policies:#?}");
    }
}

#[test]
fn policy_rule_hides_a_later_rule_if_each_field_matches_all_of_its_values() {
    let with = |users: &str, accounts: &str, groups: &str, resources: &str, names: &str| Rule {
        users: entries(users),
        service_accounts: entries(accounts),
        user_groups: entries(groups),
        resources: entries(resources),
        resource_names: entries(names),
        ..pods()
    };
    for (by, rule, expected) in [
        (with("", "", "", "pods", ""), with("ann", "", "dev", "pods", "a"), true),
        (with("an*", "", "", "pods", ""), with("ann", "", "", "pods", ""), true),
        (with("an*", "", "", "pods", ""), with("ann*", "", "", "pods", ""), true),
        (with("ann*", "", "", "pods", ""), with("an*", "", "", "pods", ""), false),
        (with("ann", "", "", "pods", ""), with("", "", "", "pods", ""), false),
        (with("-bob", "", "", "pods", ""), with("ann", "", "", "pods", ""), true),
        (with("-b*", "", "", "pods", ""), with("bob", "", "", "pods", ""), false),
        (with("-bob", "", "", "pods", ""), with("b*", "", "", "pods", ""), false),
        (with("-bob", "", "", "pods", ""), with("-bob -ann", "", "", "pods", ""), true),
        (with("-bob -ann", "", "", "pods", ""), with("-bob", "", "", "pods", ""), false),
        (with("system:*", "", "", "pods", ""), with("", "a/b", "", "pods", ""), true),
        (with("system:serviceaccount:a:*", "", "", "pods", ""), with("", "a/*", "", "pods", ""), true),
        (with("", "a/*", "", "pods", ""), with("", "a/b", "", "pods", ""), true),
        (with("", "a/*", "", "pods", ""), with("", "*", "", "pods", ""), false),
        (with("", "a/*", "", "pods", ""), with("ann", "a/b", "", "pods", ""), false),
        // A user in the group `dev` may also be in the group `ops`.
        (with("", "", "-ops", "pods", ""), with("", "", "dev", "pods", ""), false),
        (with("", "", "-ops", "pods", ""), with("", "", "-o*", "pods", ""), true),
        (with("", "", "", "*/status", ""), with("", "", "", "pods/status", ""), true),
        (with("", "", "", "-*/status", ""), with("", "", "", "pods nodes", ""), true),
        (with("", "", "", "-*/status", ""), with("", "", "", "pods/status", ""), false),
        (with("", "", "", "pods", "-a"), with("", "", "", "pods", "b"), true),
        (with("", "", "", "pods", "a"), with("", "", "", "pods", ""), false),
    ] {
        let lines = found(&[policy(vec![by.clone()]), policy(vec![rule.clone()])]);
        assert_eq!(!lines.is_empty(), expected, "{by:?} {rule:?}: {lines:?}");
    }
}

/// A rule that dispatches `web` does not match `web:80`, but a rule that denies `web` does.
#[test]
fn policy_rule_hides_a_later_rule_only_if_it_matches_all_name_spellings() {
    let rule = |resources: &str, names: &str| {
        let (resources, resource_names) = (entries(resources), entries(names));
        Rule { resources, resource_names, verbs: entries("get"), ..pods() }
    };
    let passing = |rule: &Rule| policy(vec![rule.clone()]);
    let refusing = |rule: &Rule| denying("no", vec![rule.clone()]);
    for (by, hidden, [both_pass, both_deny, passes_first, denies_first]) in [
        (rule("pods/proxy", "we*"), rule("pods/proxy", "web"), [true, true, false, true]),
        (rule("pods/proxy", ""), rule("pods/proxy", "web"), [true; 4]),
        (rule("pods/proxy", "http*"), rule("pods/proxy", "http:web:80"), [false, false, false, true]),
        (rule("pods/proxy pods", "we*"), rule("pods", "web"), [true; 4]),
        (rule("pods/proxy", "web"), rule("pods/proxy", "other"), [false; 4]),
    ] {
        for (policies, expected) in [
            ([passing(&by), passing(&hidden)], both_pass),
            ([refusing(&by), refusing(&hidden)], both_deny),
            ([passing(&by), refusing(&hidden)], passes_first),
            ([refusing(&by), passing(&hidden)], denies_first),
        ] {
            let lines = found(&policies);
            let is_reported = lines.iter().any(|line| line.contains("matches no request"));
            assert_eq!(is_reported, expected, "{by:?} {hidden:?}: {lines:?}");
        }
    }
}

/// Helm 4 and `kubectl apply --server-side` create objects with PATCH.
#[test]
fn policy_that_denies_create_but_not_patch_and_update_causes_a_warning() {
    let creating =
        |verbs: &str, resources: &str| Rule { verbs: entries(verbs), resources: entries(resources), ..pods() };
    let reported_fields = |policies: &[Policy]| {
        let lines = found(policies);
        let lines = lines.iter().filter(|line| line.contains("even if it creates the object"));
        lines.map(|line| line.split(": denies ").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let none: &[&str] = &[];
    let twice = ["W spec.dispatchPolicies[0].rules[0].verbs"; 2];
    for (rule, expected) in [
        (creating("create", "pods"), &twice[..]),
        (creating("create", "*"), &twice[..]),
        (creating("create", "-pods"), &twice[..]),
        (creating("create", "tokenreviews pods"), &twice[..]),
        (creating("create delete patch", "pods"), &twice[..1]),
        (creating("-patch", "pods"), &twice[..1]),
        (creating("create patch update", "pods"), none),
        (creating("*", "pods"), none),
        (creating("-get", "pods"), none),
        (creating("delete", "pods"), none),
        // A request to create one of these resources never has a name.
        (creating("create", "pods/exec pods/eviction */binding"), none),
        (creating("create", "tokenreviews"), none),
        (
            Rule {
                resources: entries(""),
                api_groups: entries(""),
                non_resource_urls: entries("/x"),
                ..creating("*", "")
            },
            none,
        ),
    ] {
        assert_eq!(reported_fields(&[denying("no", vec![rule.clone()])]), expected, "{rule:?}");
        assert_eq!(reported_fields(&[policy(vec![rule])]), Vec::<String>::new(), "what is not denied may pass");
    }
    let lines = found(&[denying("no", vec![creating("create", "pods")])]);
    let of_patch = "denies \"create\" but not \"patch\": a server-side apply (Helm 4, kubectl apply --server-side) is \
                    a patch, even";
    assert!(lines[0].contains(of_patch), "{lines:?}");
    assert!(lines[1].contains("denies \"create\" but not \"update\": a PUT is an update, even"), "{lines:?}");
    // A second rule or policy may deny `patch` and `update`.
    let others = [creating("update", "pods"), creating("patch", "pods services")];
    let (rule, audited) = (creating("create", "pods"), |policy| Policy { mode: Mode::Audit, ..policy });
    let [update, patch] = others.map(|rule| denying("no", vec![rule]));
    let own = || denying("no", vec![rule.clone()]);
    assert_eq!(reported_fields(&[own(), update.clone(), patch.clone()]), Vec::<String>::new());
    assert_eq!(reported_fields(&[audited(own()), audited(update.clone()), patch.clone()]), Vec::<String>::new());
    assert_eq!(reported_fields(&[own(), audited(update), patch]), twice[..1], "an audited policy denies nothing");
}

#[test]
fn policy_denial_by_object_name_that_list_requests_bypass_causes_a_warning() {
    for (rule, field, verb) in [
        (Rule { namespaces: entries("kube-system"), ..pods() }, "namespaces", "list"),
        (Rule { resource_names: entries("a*"), verbs: entries("watch"), ..pods() }, "resourceNames", "watch"),
    ] {
        let lines = found(&[denying("no", vec![rule.clone()])]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with(&format!("W spec.dispatchPolicies[0].rules[0].{field}: a {verb} of ")),
            "{lines:?}"
        );
        assert_eq!(found(&[policy(vec![rule])]), Vec::<String>::new(), "what is not denied may pass");
    }
    for rule in [
        Rule { namespaces: entries("kube-system ''"), ..pods() },
        Rule { namespaces: entries("-shop"), ..pods() },
        Rule { resource_names: entries("a"), verbs: entries("get"), ..pods() },
    ] {
        assert_eq!(found(&[denying("no", vec![rule])]), Vec::<String>::new());
    }
}

#[test]
fn denying_policy_in_the_last_position_causes_a_warning() {
    let pods = || denying("no", vec![pods()]);
    let audited = |policy| Policy { mode: Mode::Audit, ..policy };
    let paths = Rule { verbs: entries("*"), non_resource_urls: entries("*"), ..Rule::default() };
    let resources = Rule { non_resource_urls: Vec::new(), ..everything() };
    for (policies, expected) in [
        (vec![pods()], Some(0)),
        (vec![policy(vec![pods().rules[0].clone()]), pods()], Some(1)),
        (vec![pods(), audited(policy(vec![everything()]))], Some(0)),
        (vec![denying("no", vec![resources.clone()])], Some(0)),
        // There is no warning if policies deny every request that no earlier policy matches, by one rule or by several:
        // then no request gets a 500.
        (vec![denying("no", vec![everything()])], None),
        (vec![denying("no", vec![resources, paths])], None),
        (vec![pods(), policy(vec![everything()])], None),
        (vec![pods(), policy(vec![pods().rules[0].clone()])], None),
        (vec![audited(pods())], None),
        (vec![], None),
    ] {
        for scope in [PolicyScope::Cluster, PolicyScope::MergedView] {
            let lines = all_found_of(&policies, scope);
            let warnings: Vec<_> = lines.iter().filter(|line| line.contains("refused (500)")).collect();
            assert_eq!(warnings.len(), usize::from(expected.is_some()), "{policies:?}: {lines:?}");
            if let Some(last) = expected {
                let begins = format!(
                    "W spec.dispatchPolicies[{last}]: denies, and no later policy allows the remaining requests"
                );
                assert!(warnings[0].starts_with(&begins), "{warnings:?}");
                assert!(
                    warnings[0].contains("append this policy to spec.dispatchPolicies: {rules: [{verbs: [\"*\"]"),
                    "{warnings:?}"
                );
            }
        }
        // If no global policy matches a request, the policies of the cluster or merged view decide.
        let lines = all_found_of(&policies, PolicyScope::Global);
        assert!(!lines.iter().any(|line| line.contains("500")), "{lines:?}");
    }
}

#[test]
fn unknown_group_and_resource_names_cause_warnings() {
    let rule = |groups: &str, resources: &str| Rule {
        verbs: entries("*"),
        api_groups: entries(groups),
        resources: entries(resources),
        ..Rule::default()
    };
    for (groups, resources, expected) in [
        ("''", "pods pods/exec */status", &[][..]),
        ("'' apps", "deployments", &[]),
        ("*", "namespace ns", &[]),
        ("-apps", "namespace", &[]),
        ("'' shop.example", "cart", &[]),
        ("'' apps", "*", &[]),
        (
            "core",
            "namespace ns",
            &[
                "R.apiGroups[0]: \"core\" never matches: the core group is written \"\"",
                "R.resources[0]: \"namespace\" never matches: Kubernetes has no resource \"namespace\" in its core group; \
                 did you mean namespaces",
                "R.resources[1]: \"ns\" never matches: Kubernetes has no resource \"ns\" in its core group; did you mean \
                 namespaces",
            ],
        ),
        (
            "apps/v1",
            "deployments",
            &["R.apiGroups[0]: \"apps/v1\" never matches: a group is written without its version"],
        ),
        ("-core", "pods", &["R.apiGroups[0]: \"-core\" excludes nothing: the core group"]),
        ("''", "-pod", &["R.resources[0]: \"-pod\" excludes nothing: Kubernetes has no resource \"pod\""]),
        ("''", "pods/exce", &["R.resources[0]: \"pods/exce\" never matches: Kubernetes' pods have no subresource"]),
        ("apps", "pods", &["R.resources[0]: \"pods\" never matches: Kubernetes has no resource \"pods\" in \"apps\""]),
    ] {
        let lines = found(&[policy(vec![rule(groups, resources)])]);
        assert_eq!(lines.len(), expected.len(), "{groups} {resources}: {lines:#?}");
        for (line, expected) in lines.iter().zip(expected) {
            let line = line.replace("spec.dispatchPolicies[0].rules[0]", "R");
            assert!(line.starts_with(&format!("W {expected}")), "{line}");
        }
    }
}

#[test]
fn validation_findings_of_global_policies_have_their_field_path() {
    let wrong = Rule { verbs: entries("read"), ..pods() };
    let lines = found_of(&[policy(vec![wrong]), policy(vec![everything()]), policy(vec![pods()])], PolicyScope::Global);
    let list = "spec.globalDispatchPolicies";
    assert!(lines[0].starts_with(&format!("E {list}[0].rules[0].verbs[0]: \"read\"")), "{lines:?}");
    let hidden = format!("W {list}[2]: matches no request, because {list}[1].rules[0] matches each of them first");
    assert!(lines[1].starts_with(&hidden), "{lines:?}");
    let path = Rule { verbs: entries("get"), non_resource_urls: entries("/clusters/eu/version"), ..Rule::default() };
    let lines = found_of(&[policy(vec![path])], PolicyScope::Global);
    assert!(lines[0].contains("write only this path"), "{lines:?}");
}
