//! Conversion of KubeGateway's manifests, and the reported differences.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_crds::kubegateway::{Converted, convert};
use tributary_crds::{ConfigurationObjects, Dispatch, LogMode, Severity};

fn manifest(spec: Value) -> Value {
    json!({"apiVersion": "proxy.kubegateway.io/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "eu"}, "spec": spec})
}

fn of(spec: Value) -> Converted {
    convert(manifest(spec)).unwrap()
}

fn differences(converted: &Converted) -> Vec<&str> {
    let differences = converted.differences.iter().map(String::as_str);
    differences.filter(|line| line.starts_with("spec.dispatchPolicies[")).collect()
}

/// Converts a rule. Returns the converted rule, and the reported differences with shortened paths.
fn rule(rule: Value) -> (Option<Value>, Vec<String>) {
    let converted = of(json!({"dispatchPolicies": [{"rules": [rule]}]}));
    let mut policies = converted.cluster.spec.dispatch_policies.iter().filter(|policy| policy.deny.is_none());
    let rule = policies.next().map(|policy| serde_json::to_value(&policy.rules[0]).unwrap());
    let shorter =
        |line: &&str| line.replace("spec.dispatchPolicies[0].rules[0]", "R").replace("spec.dispatchPolicies[0]", "P");
    (rule, differences(&converted).iter().map(shorter).collect())
}

const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";

#[test]
fn kubegateway_manifest_becomes_a_valid_upstream_cluster() {
    let mut text = manifest(json!({
        "servers": [{"endpoint": "https://a:6443"}, {"endpoint": "https://b:6443"}, {"endpoint": "https://c", "disabled": true}],
        "clientConfig": {"bearerToken": STANDARD.encode("hunter2\n"), "caData": PEM, "qps": 10, "serverName": "kubernetes"},
        "secureServing": {"clientCAData": PEM, "serverNames": ["api.example.com"]},
        "flowControl": {"flowControlSchemas": [
            {"name": "few", "maxRequestsInflight": {"max": 0}},
            {"name": "slow", "strategy": "globalCount", "tokenBucket": {"qps": 10, "burst": 20}, "globalTokenBucket": {"qps": 100}},
            {"name": "free", "exempt": {}},
        ]},
        "dispatchPolicies": [
            {"strategy": "RoundRobin", "upsteamSubset": ["https://a:6443", "https://c"], "flowControlSchemaName": "few", "logMode": "off",
                "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "serviceAccounts": [{"name": "web", "namespace": "shop"}]}]},
            {"flowControlSchemaName": "slow", "logMode": true, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}]},
            {"flowControlSchemaName": "free", "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}]},
        ],
        "logging": {"mode": "on"},
        "sidecar": true,
    }));
    text["metadata"] = json!({"name": "eu.Example.com", "labels": {"a": "b"}, "annotations": {
        "proxy.kubegateway.io/feature-gates": "DenyAllRequests=true,Tracing=true,CloseConnectionWhenIdle=false", "keep": "me"}});
    let Converted { cluster, differences } = convert(text).unwrap();
    assert_eq!(cluster.metadata.name.as_deref(), Some("eu-example-com"));
    assert_eq!(cluster.metadata.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(), ["keep"]);
    assert_eq!(cluster.metadata.labels.as_ref().unwrap()["a"], "b");
    let spec = &cluster.spec;
    assert_eq!(spec.endpoints, ["https://a:6443", "https://b:6443", "https://c"]);
    assert_eq!(spec.drained_endpoints, ["https://c"]);
    assert_eq!(spec.credentials.as_ref().unwrap().token.as_ref().unwrap().expose(), "hunter2");
    assert_eq!((spec.ca_data.as_deref(), spec.tls_server_name.as_deref()), (Some(PEM), Some("kubernetes")));
    assert_eq!((spec.dispatch, spec.logging.mode), (Dispatch::DenyAll, Some(LogMode::Enabled)));
    let schemas = &spec.flow_control.flow_control_schemas;
    let few = schemas[0].max_requests_inflight.as_ref().unwrap();
    assert!(few.max == 0 && few.count_long_running, "case 19");
    let bucket = schemas[1].token_bucket.as_ref().unwrap();
    assert_eq!((bucket.qps, bucket.burst, schemas[2].exempt.is_some()), (10, Some(20), true));
    assert!(spec.token_review, "KubeGateway asks the cluster about every bearer token");
    let probe = spec.endpoint_probe.as_ref().unwrap();
    assert_eq!((&*probe.path, probe.success_threshold, probe.failure_threshold), ("/healthz", 1, 1), "case 22");
    let policies = &spec.dispatch_policies;
    assert_eq!(spec.server_names, ["eu.Example.com", "api.example.com"]);
    let serving = spec.secure_serving.as_ref().unwrap();
    assert_eq!((serving.client_ca_data.as_deref(), &serving.certificate_data), (Some(PEM), &None));
    assert_eq!(policies[0].endpoints, ["https://a:6443", "https://c"]);
    assert_eq!(policies[0].rules[0].service_accounts, ["shop/web"]);
    let modes: Vec<_> = policies.iter().map(|policy| policy.log_mode).collect();
    assert_eq!(modes, [Some(LogMode::Disabled), Some(LogMode::Enabled), None]);
    let expected = [
        "metadata.name: \"eu.Example.com\" becomes \"eu-example-com\"",
        "metadata.annotations[proxy.kubegateway.io/feature-gates]: Tracing",
        "spec.sidecar: unknown field; removed",
        "spec.servers[2]: \"https://c\" is disabled; it becomes a drained endpoint",
        "spec.clientConfig.qps: limits the requests of the gateway itself",
        "spec.clientConfig: the cluster reviews bearer tokens of clients, as in KubeGateway, but only in shared mode",
        "spec.clientConfig: the cluster receives the extras of a user that its own review returned; add all further extras to",
        "spec.flowControl.flowControlSchemas[1]: the limit over all replicas",
    ];
    assert_eq!(differences.len(), expected.len(), "{differences:#?}");
    for (found, expected) in differences.iter().zip(expected) {
        assert!(found.starts_with(expected) && !found.contains("hunter2"), "{found}");
    }
    // Parsing the serialized cluster yields an equal cluster without validation problems.
    let text = serde_json::to_string(&cluster).unwrap();
    let read = tributary_crds::parse(&text, Path::new("out.yaml")).unwrap();
    assert_eq!(read.clusters, [cluster]);
    assert_eq!(read.validate(), []);
}

#[test]
fn converted_rules_match_as_in_kubegateway_or_report_the_difference() {
    let all = |field: &str, entries: Value| {
        let mut rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        rule[field] = entries;
        rule
    };
    for (given, becomes, differs) in [
        (all("verbs", json!(["*", "-get"])), json!(["*"]), ""),
        (all("verbs", json!(["list", "-get"])), json!(["list"]), ""),
        (all("verbs", json!(["-get"])), json!(["-get"]), ""),
        (all("verbs", json!(["list", "GET"])), json!(["list"]), "R.verbs: \"GET\" never matches; removed"),
        (all("verbs", json!(["-GET"])), json!(["*"]), "R.verbs: \"-GET\" excludes no value; replaced by \"*\""),
        (
            all("resources", json!(["-pods", "-nodes"])),
            json!(["-pods", "-nodes"]),
            "R.resources: \"-pods\", \"-nodes\" matches all values in KubeGateway",
        ),
        (
            all("resources", json!(["-*/status"])),
            json!(["-*/status"]),
            "R.resources: \"-*/status\" excludes no value, or too few, in KubeGateway",
        ),
        (
            all("resources", json!(["pods", "nodes/*"])),
            json!(["pods"]),
            "R.resources: \"nodes/*\" never matches; removed",
        ),
        (
            all("users", json!(["-user-*"])),
            json!(["-user-*"]),
            "R.users: \"-user-*\" excludes no value, or too few, in KubeGateway",
        ),
        (all("users", json!(["user-*"])), json!(["user-*"]), ""),
        (all("userGroups", json!(["dev*"])), json!(["dev*"]), "R.userGroups: \"dev*\" is a single name in KubeGateway"),
        (all("apiGroups", json!(["", "-apps"])), json!([""]), ""),
    ] {
        let (rule, found) = rule(given.clone());
        let field = given.as_object().unwrap().iter().find(|(_, value)| **value != json!(["*"]));
        let field = field.map_or("verbs", |(field, _)| field);
        assert_eq!(rule.unwrap()[field], becomes, "{given}");
        assert_eq!(found.len(), usize::from(!differs.is_empty()), "{given}: {found:?}");
        assert!(found.iter().all(|line| line.starts_with(differs)), "{given}: {found:?}");
    }
}

#[test]
fn rule_that_never_matches_in_kubegateway_is_removed() {
    let removed = "R: never matches; removed";
    for (given, first) in [
        (json!({"verbs": [], "apiGroups": ["*"], "resources": ["*"]}), removed),
        (json!({"verbs": ["GET"], "apiGroups": ["*"], "resources": ["*"]}), "R.verbs: \"GET\" never matches"),
        (
            json!({"verbs": ["*"], "resources": ["pods"]}),
            "R: its apiGroups, resources and resourceNames never match together",
        ),
        (
            json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods/*", "-nodes"]}),
            "R.resources: \"pods/*\" never",
        ),
        (
            json!({"verbs": ["*"], "nonResourceURLs": ["-/healthz"]}),
            "R.nonResourceURLs: \"-/healthz\" never matches in KubeGateway",
        ),
        (
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "serviceAccounts": [{"name": "a"}]}),
            "R.serviceAccounts[0]: lacks",
        ),
        (
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "userGroups": ["a*b"]}),
            "R.userGroups: \"a*b\" never",
        ),
    ] {
        let (rule, found) = rule(given.clone());
        assert_eq!(rule, None, "{given}");
        assert!(found[0].starts_with(first), "{given}: {found:?}");
        assert_eq!(found[found.len() - 1], "P: has no rule that can match; removed", "{given}");
        assert!(found.iter().any(|line| line == removed), "{given}: {found:?}");
    }
    // A converted policy without endpoints would apply to all endpoints.
    let converted = of(json!({
        "servers": [{"endpoint": "https://b"}],
        "dispatchPolicies": [{"upstreamSubset": ["https://a"], "rules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}],
    }));
    let policy = &converted.cluster.spec.dispatch_policies[0];
    assert!(policy.deny.is_some() && policy.endpoints.is_empty());
    assert!(
        differences(&converted)[1]
            .contains("no entry of upstreamSubset is a server of the cluster, so the policy denies its requests")
    );
}

/// KubeGateway matches the request that opens a WebSocket to a Pod by its method, GET.
#[test]
fn conversion_reports_a_kubegateway_rule_that_allows_exec_by_get() {
    let of = |verbs: Value, resources: Value| rule(json!({"verbs": verbs, "apiGroups": [""], "resources": resources}));
    for (verbs, resources) in [
        (json!(["get", "list", "watch"]), json!(["*"])),
        (json!(["-create"]), json!(["*"])),
        (json!(["get"]), json!(["pods", "pods/exec"])),
    ] {
        let (rule, found) = of(verbs.clone(), resources.clone());
        let rule = rule.unwrap();
        assert_eq!((&rule["verbs"], &rule["resources"]), (&verbs, &resources));
        let expected = "R.verbs: in KubeGateway this rule also matches exec, attach and portforward that are opened by a WebSocket (GET)";
        assert!(found.len() == 1 && found[0].starts_with(expected), "{verbs} {resources}: {found:?}");
    }
    for (verbs, resources) in [
        (json!(["get", "create"]), json!(["*"])),
        (json!(["*"]), json!(["pods/exec"])),
        (json!(["list"]), json!(["*"])),
        (json!(["get"]), json!(["pods", "pods/log"])),
    ] {
        let (rule, found) = of(verbs.clone(), resources.clone());
        assert!(rule.is_some() && found.is_empty(), "{verbs} {resources}: {found:?}");
    }
    // Without the added verb `create`, a later and perhaps less strict policy would match these requests.
    let (rule_of_exec, found) = of(json!(["get"]), json!(["pods/exec", "pods/attach"]));
    assert_eq!(rule_of_exec.unwrap()["verbs"], json!(["get", "create"]));
    let expected = "R.verbs: in KubeGateway this rule matches requests that are opened by a WebSocket (GET)";
    assert!(found.len() == 1 && found[0].starts_with(expected) && found[0].ends_with("which is added"), "{found:?}");
    for (verbs, expected) in [
        (json!(["-create"]), "R: in KubeGateway this rule matches requests that are opened by a WebSocket (GET)"),
        (json!(["delete"]), "R: its verbs and resources never match together; they are removed"),
    ] {
        let (rule, found) = of(verbs.clone(), json!(["pods/exec", "pods/attach"]));
        assert_eq!(rule, None, "{verbs}");
        assert!(found[0].starts_with(expected), "{verbs}: {found:?}");
        assert_eq!(found[1..], ["R: never matches; removed", "P: has no rule that can match; removed"]);
    }
    // The rule is kept, because its non-resource paths can still match.
    let both =
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/exec"], "nonResourceURLs": ["/healthz"]});
    let (rule, found) = rule(both);
    assert_eq!((&rule.unwrap()["nonResourceURLs"], found.len()), (&json!(["/healthz"]), 1));
}

/// Without policies, KubeGateway refuses all requests, and Tributary allows all requests.
#[test]
fn converted_cluster_without_matching_policies_denies_all_requests() {
    let never = json!({"rules": [{"verbs": ["GET"], "apiGroups": ["*"], "resources": ["*"]}]});
    for (policies, why) in [
        (json!([]), "is empty"),
        (Value::Null, "is empty"),
        (json!([never.clone(), never]), "no policy ever matches"),
        (json!([{"rules": []}]), "no policy ever matches"),
    ] {
        let servers = json!([{"endpoint": "https://a"}]);
        let client_config = json!({"bearerToken": STANDARD.encode("t"), "caData": PEM, "serverName": "a"});
        let converted =
            of(json!({"servers": servers, "clientConfig": client_config, "dispatchPolicies": policies.clone()}));
        let expected = format!("spec.dispatchPolicies: {why}, so KubeGateway refuses all requests");
        assert!(converted.differences.iter().any(|line| line.starts_with(&expected)), "{:#?}", converted.differences);
        let written = &converted.cluster.spec.dispatch_policies;
        let policies: Vec<_> = written.iter().map(tributary_policy::Policy::from).collect();
        let compiled = tributary_policy::DispatchPolicies::new(policies);
        for (method, path) in [("GET", "/api/v1/pods"), ("POST", "/apis/apps/v1/deployments"), ("GET", "/version")] {
            let info = tributary_apimachinery::RequestInfo::parse(method, path, None).unwrap();
            let asked = tributary_policy::DispatchAttributes::from_request(&info, "ann", &[], "");
            let tributary_policy::Verdict::Matched { outcome, .. } = compiled.decide(&asked).verdict else {
                panic!("{method} {path}")
            };
            assert!(matches!(outcome.action, tributary_policy::Action::Deny { .. }), "{method} {path}");
        }
        let objects = ConfigurationObjects { clusters: vec![converted.cluster], ..ConfigurationObjects::default() };
        let problems = objects.validate();
        assert!(problems.iter().all(|problem| problem.severity != Severity::Error), "{problems:?}");
    }
}

#[test]
fn kubegateway_conversion_refuses_documents_of_other_kinds() {
    let error = convert(json!({"apiVersion": "v1", "kind": "Pod"})).unwrap_err().to_string();
    assert!(error.contains("\"v1\" with kind \"Pod\"") && error.contains("proxy.kubegateway.io/v1alpha1"), "{error}");
    assert!(convert(manifest(json!({"servers": "https://a"}))).is_err());
    let empty = of(json!({})).cluster;
    let objects = ConfigurationObjects { clusters: vec![empty], ..ConfigurationObjects::default() };
    assert!(
        objects.validate().iter().any(|problem| problem.severity == Severity::Error),
        "the cluster has no endpoints"
    );
}
