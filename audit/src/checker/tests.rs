//! The test cases of apiserver's `pkg/audit/policy/checker_test.go`, and additional cases.

use super::*;
use crate::Stage;

/// Returns a rule of Kubernetes' test by its name.
fn rule(name: &str) -> &'static str {
    match name {
        "default" => "level: Metadata",
        "create" => "{level: Request, verbs: [create]}",
        "tims" => "{level: Metadata, users: [tim@k8s.io]}",
        "humans" => "{level: Metadata, userGroups: [humans]}",
        "serviceAccounts" => "{level: Request, userGroups: ['system:serviceaccounts']}",
        "getPods" => "{level: RequestResponse, verbs: [get], resources: [{resources: [pods]}]}",
        "getPodLogs" => "{level: Request, verbs: [get], resources: [{resources: [pods/log]}]}",
        "getAll" => "{level: Request, verbs: [get], resources: [{resources: ['*']}]}",
        "getAllLogs" => "{level: Request, verbs: [get], resources: [{resources: ['*/log']}]}",
        "getPodSubresources" => "{level: Request, verbs: [get], resources: [{resources: ['pods/*']}]}",
        "getClusterRoles" => {
            "{level: RequestResponse, verbs: [get], namespaces: [''], \
             resources: [{group: rbac.authorization.k8s.io, resources: [clusterroles]}]}"
        }
        "updateStatus" => {
            "{level: RequestResponse, verbs: [update], resources: [{group: '*', resources: ['*/status']}]}"
        }
        "getLogs" => "{level: RequestResponse, verbs: [get], nonResourceURLs: ['/logs*']}",
        "getMetrics" => "{level: Request, verbs: [get], nonResourceURLs: [/metrics]}",
        "clusterRoleEdit" => {
            "{level: Request, resources: [{group: rbac.authorization.k8s.io, resources: [clusterroles], \
             resourceNames: [edit]}]}"
        }
        "omit RequestReceived" => "{level: Request, omitStages: [RequestReceived]}",
        "only Panic" => "{level: Request, omitStages: [RequestReceived, ResponseStarted, ResponseComplete]}",
        name => panic!("{name}"),
    }
}

fn policy(stages: &[Stage], rules: &[&str]) -> AuditPolicy {
    let stages: Vec<_> = stages.iter().map(|stage| stage.as_str()).collect();
    let rules: String = rules.iter().map(|name| format!("- {}\n", rule(name))).collect();
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: {stages:?}\nrules:\n{rules}");
    AuditPolicy::parse(&text).unwrap().0
}

/// Decides about a request of Kubernetes' test.
fn decide(request: &str, policy: &AuditPolicy) -> AuditDecision {
    let (method, path) = match request {
        "namespaced" | "Unauthorized" => ("GET", "/api/v1/namespaces/default/pods/busybox"),
        "cluster" => ("GET", "/apis/rbac.authorization.k8s.io/v1beta1/clusterroles/edit"),
        "nonResource" => ("GET", "/logs/kubelet.log"),
        "subresource" => ("GET", "/api/v1/namespaces/default/pods/busybox/log"),
        "ClusterRoleUpdate" => ("PUT", "/apis/rbac.authorization.k8s.io/v1beta1/clusterroles/somerole/status"),
        request => panic!("{request}"),
    };
    let info = RequestInfo::parse(method, path, None).unwrap();
    let groups = ["humans", "developers"].map(str::to_owned);
    let tim = ("tim@k8s.io", groups.as_slice());
    policy.decide(&AuditAttributes::from_request(&info, (request != "Unauthorized").then_some(tim)))
}

/// Each case has a request, the expected level, and the rules.
const LEVELS: &[(&str, Level, &[&str])] = &[
    ("namespaced", Level::Metadata, &["default"]),
    ("namespaced", Level::None, &["create"]),
    ("namespaced", Level::Metadata, &["tims"]),
    ("namespaced", Level::Metadata, &["humans"]),
    ("namespaced", Level::None, &["serviceAccounts"]),
    ("namespaced", Level::RequestResponse, &["getPods"]),
    ("namespaced", Level::None, &["getClusterRoles"]),
    ("namespaced", Level::None, &["getLogs"]),
    ("namespaced", Level::None, &["getMetrics"]),
    ("namespaced", Level::Metadata, &["getMetrics", "serviceAccounts", "default"]),
    ("namespaced", Level::RequestResponse, &["getMetrics", "getPods", "default"]),
    ("namespaced", Level::RequestResponse, &["getPodLogs", "getPods"]),
    ("namespaced", Level::Request, &["getPodSubresources"]),
    ("namespaced", Level::None, &["getAllLogs"]),
    ("cluster", Level::Metadata, &["default"]),
    ("cluster", Level::None, &["create"]),
    ("cluster", Level::Metadata, &["tims"]),
    ("cluster", Level::Metadata, &["humans"]),
    ("cluster", Level::None, &["serviceAccounts"]),
    ("cluster", Level::None, &["getPods"]),
    ("cluster", Level::RequestResponse, &["getClusterRoles"]),
    ("cluster", Level::Request, &["clusterRoleEdit", "getClusterRoles"]),
    ("cluster", Level::None, &["getLogs"]),
    ("cluster", Level::None, &["getMetrics"]),
    ("cluster", Level::Metadata, &["getMetrics", "serviceAccounts", "default"]),
    ("cluster", Level::RequestResponse, &["getMetrics", "getClusterRoles", "default"]),
    ("cluster", Level::None, &["getPodLogs", "getPods"]),
    ("cluster", Level::None, &["getAll"]),
    ("nonResource", Level::Metadata, &["default"]),
    ("nonResource", Level::None, &["create"]),
    ("nonResource", Level::Metadata, &["tims"]),
    ("nonResource", Level::Metadata, &["humans"]),
    ("nonResource", Level::None, &["serviceAccounts"]),
    ("nonResource", Level::None, &["getPods"]),
    ("nonResource", Level::None, &["getClusterRoles"]),
    ("nonResource", Level::RequestResponse, &["getLogs"]),
    ("nonResource", Level::None, &["getMetrics"]),
    ("nonResource", Level::Metadata, &["getMetrics", "serviceAccounts", "default"]),
    ("nonResource", Level::RequestResponse, &["getLogs", "getClusterRoles", "default"]),
    ("nonResource", Level::None, &["getPodLogs", "getPods"]),
    ("subresource", Level::Request, &["getPodLogs", "getPods"]),
    ("subresource", Level::None, &["getPods"]),
    ("subresource", Level::Request, &["getAll"]),
    ("subresource", Level::Request, &["getAllLogs"]),
    ("subresource", Level::Request, &["getPodSubresources"]),
    ("Unauthorized", Level::None, &["tims"]),
    ("Unauthorized", Level::Metadata, &["tims", "default"]),
    ("Unauthorized", Level::None, &["humans"]),
    ("Unauthorized", Level::Metadata, &["humans", "default"]),
    ("ClusterRoleUpdate", Level::RequestResponse, &["updateStatus"]),
];

#[test]
fn first_matching_audit_rule_determines_the_audit_level() {
    for stages in [&[][..], &[Stage::RequestReceived, Stage::ResponseStarted]] {
        for (request, level, rules) in LEVELS {
            let decision = decide(request, &policy(stages, rules));
            assert_eq!(decision.level, *level, "{request} {rules:?}");
            assert_eq!(decision.omit_stages, stages.iter().copied().collect(), "{request} {rules:?}");
        }
    }
}

#[test]
fn stages_omitted_by_policy_or_rule_have_no_event() {
    let received: &[Stage] = &[Stage::RequestReceived];
    let but_panic: &[Stage] = &[Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete];
    let two: &[Stage] = &[Stage::RequestReceived, Stage::ResponseStarted];
    for (own, first, expected) in [
        (&[][..], "omit RequestReceived", received),
        (&[], "only Panic", but_panic),
        (two, "omit RequestReceived", two),
        (two, "only Panic", but_panic),
        (two, "default", two),
    ] {
        for request in ["namespaced", "cluster", "nonResource"] {
            let decision = decide(request, &policy(own, &[first, "getPods", "default"]));
            assert_eq!(decision.omit_stages, expected.iter().copied().collect(), "{request} {own:?} {first}");
        }
    }
}

#[test]
fn audit_policy_wildcards_match_as_in_kube_apiserver() {
    for (path, url, expected) in [
        ("/healthz", "/healthz*", true),
        ("/healthz/etcd", "/healthz*", true),
        ("/healthz", "/healthz/*", false),
        ("/anything", "*", true),
        ("/a*", "/a*", true),
        ("/version", "/versio", false),
    ] {
        assert_eq!(path_matches(path, url), expected, "{path} {url}");
    }
    let resource_of =
        |resource, subresource| RequestedResource { resource, subresource, ..RequestedResource::default() };
    for (own, resource_of, expected) in [
        ("pods", resource_of("pods", ""), true),
        ("pods", resource_of("pods", "log"), false),
        ("pods/*", resource_of("pods", ""), true),
        ("*/*", resource_of("pods", "log"), false),
        ("*/log", resource_of("pods", ""), false),
        ("*/*", resource_of("pods", "*"), true),
        ("pods/", resource_of("pods", ""), false),
    ] {
        assert_eq!(resource_matches(own, &resource_of), expected, "{own} {resource_of:?}");
    }
}

#[test]
fn audited_verbs_equal_those_of_kube_apiserver() {
    for (method, path, expected) in [
        ("GET", "/api/v1/pods", "list"),
        ("OPTIONS", "/api/v1/pods", ""),
        ("POST", "/api/v1/namespaces/n/pods/p", "create"),
        ("PUT", "/api/v1/namespaces/n/pods", "update"),
        ("PATCH", "/api/v1/namespaces/n/pods", "patch"),
        ("OPTIONS", "/version", "options"),
        ("FETCH", "/version", ""),
    ] {
        let info = RequestInfo::parse(method, path, None).unwrap();
        assert_eq!(AuditAttributes::from_request(&info, None).verb, expected, "{method} {path}");
    }
}
