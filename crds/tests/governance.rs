//! Loading and validation of dispatch policies and flow control in files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use tributary_crds::{
    ConfigurationObjects, DispatchPolicy, DispatchRule, FlowControlSchema, MaxRequestsInflight, Severity, parse,
};
use tributary_policy::{Action, Mode, Policy};

fn objects(text: &str) -> ConfigurationObjects {
    parse(text, Path::new("test.yaml")).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Validates a cluster with these additional fields. Returns its problems, each with the prefix `E` (error) or `W`
/// (warning).
fn problems_of_cluster(fields: &str) -> Vec<String> {
    problems(&format!(
        "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{name: eu}}\nspec: {{endpoints: \
         ['https://a', 'https://b'], caFile: ca.pem, credentials: {{tokenFile: t}}, {fields}}}\n"
    ))
}

fn problems_of_merged(name: &str, fields: &str) -> Vec<String> {
    problems(&format!(
        "apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {{name: {name}}}\nspec: {{{fields}}}\n"
    ))
}

fn problems(text: &str) -> Vec<String> {
    let letter = |severity| if severity == Severity::Error { 'E' } else { 'W' };
    let problems = objects(text).validate();
    problems
        .iter()
        .map(|problem| format!("{} {}: {}", letter(problem.severity), problem.field, problem.message))
        .collect()
}

const RULE: &str = "{verbs: ['*'], apiGroups: ['*'], resources: ['*']}";

const EVERYTHING: &str = "{verbs: ['*'], apiGroups: ['*'], resources: ['*'], nonResourceURLs: ['*']}";

#[test]
fn dispatch_policies_in_a_file_are_parsed() {
    let text = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {name: eu}\nspec:\n  endpoints: \
                ['https://a']\n  caFile: a\n  dispatchPolicies:\n  - rules:\n    - {verbs: [get], nonResourceURLs: \
                [/healthz], userAgents: [kubectl/*]}\n    deny: {message: not here}\n    mode: Audit\n    auditLevel: \
                Request\n    logMode: Enabled\n  - rules:\n    - {verbs: ['*'], apiGroups: [''], resources: [pods], \
                resourceNames: [a], namespaces: [b], users: [c], serviceAccounts: [d/e], userGroups: [f]}\n    endpoints: \
                ['https://a']\n    flowControlSchemaName: slow\nstatus: {whatever: a hub says}\n";
    let written = objects(text).clusters.remove(0).spec.dispatch_policies;
    let policies: Vec<Policy> = written.iter().map(Policy::from).collect();
    assert_eq!(policies[0].mode, Mode::Audit);
    assert_eq!(policies[0].outcome.action, Action::Deny { message: "not here".to_owned() });
    assert_eq!(policies[0].outcome.audit_level, Some(tributary_apimachinery::AuditLevel::Request));
    assert_eq!(policies[0].outcome.log_mode, Some(tributary_policy::LogMode::Enabled));
    assert_eq!(policies[0].rules[0].non_resource_urls, ["/healthz"]);
    assert_eq!(policies[0].rules[0].user_agents, ["kubectl/*"]);
    let dispatch =
        Action::Dispatch { endpoints: vec!["https://a".to_owned()], flow_control_schema: Some("slow".to_owned()) };
    assert_eq!((policies[1].mode, &policies[1].outcome.action), (Mode::Enforce, &dispatch));
    let rule = &policies[1].rules[0];
    let lists = [
        &rule.verbs,
        &rule.api_groups,
        &rule.resources,
        &rule.resource_names,
        &rule.namespaces,
        &rule.users,
        &rule.service_accounts,
        &rule.user_groups,
    ];
    assert_eq!(lists.map(|list| list[0].as_str()), ["*", "", "pods", "a", "b", "c", "d/e", "f"]);
}

#[test]
fn dispatch_policies_are_validated_against_endpoints_and_schemas() {
    for (fields, expected) in [
        (format!("dispatchPolicies: [{{rules: [{RULE}]}}]"), ""),
        (format!("dispatchPolicies: [{{rules: [{RULE}], endpoints: ['https://b']}}]"), ""),
        (
            "dispatchPolicies: [{rules: [{verbs: [get], apiGroups: [''], resources: [deployments/*]}]}]".to_owned(),
            "E spec.dispatchPolicies[0].rules[0].resources[0]: \"deployments/*\" never matches: a subresource is not \
             a pattern",
        ),
        (
            format!("dispatchPolicies: [{{rules: [{RULE}]}}, {{rules: [{RULE}]}}]"),
            "W spec.dispatchPolicies[1]: matches no request, because spec.dispatchPolicies[0].rules[0]",
        ),
        (
            format!("dispatchPolicies: [{{rules: [{RULE}], endpoints: ['https://b', 'https://c']}}]"),
            "E spec.dispatchPolicies[0].endpoints[1]: \"https://c\" is not in spec.endpoints, which has https://a, https://b",
        ),
        (
            format!("dispatchPolicies: [{{rules: [{RULE}], endpoints: ['https://user:secret@c']}}]"),
            "E spec.dispatchPolicies[0].endpoints[0]: the entry is not in spec.endpoints",
        ),
        (
            format!("dispatchPolicies: [{{rules: [{RULE}], flowControlSchemaName: slow}}]"),
            "E spec.dispatchPolicies[0].flowControlSchemaName: \"slow\" is not a flow-control schema of this object; the object has no schemas",
        ),
        (
            format!("dispatchPolicies: [{{rules: [{EVERYTHING}], deny: {{message: ' '}}}}]"),
            "E spec.dispatchPolicies[0].deny.message: is empty; give the reason",
        ),
        (
            format!(
                "dispatchPolicies: [{{rules: [{EVERYTHING}], deny: {{message: never}}, endpoints: ['https://b']}}]"
            ),
            "E spec.dispatchPolicies[0].endpoints: is given together with spec.dispatchPolicies[0].deny",
        ),
        ("endpointProbe: {path: /healthz, failureThreshold: 1}".to_owned(), ""),
        ("endpointProbe: {path: healthz}".to_owned(), "E spec.endpointProbe.path: \"healthz\" is not a path"),
        ("endpointProbe: {path: /a b}".to_owned(), "E spec.endpointProbe.path: \"/a b\" is not a path"),
        ("dispatch: DenyAll, logging: {mode: Disabled}".to_owned(), ""),
    ] {
        let found = problems_of_cluster(&fields);
        assert_eq!(found.len(), usize::from(!expected.is_empty()), "{fields}\n→ {found:#?}");
        assert!(
            found.iter().all(|line| line.starts_with(expected) && !line.contains("secret")),
            "{fields}\n→ {found:#?}"
        );
    }
}

#[test]
fn flow_control_schemas_are_validated() {
    let with = |schemas: &str| {
        problems_of_cluster(&format!(
            "flowControl: {{flowControlSchemas: [{schemas}]}}, dispatchPolicies: [{{rules: [{RULE}], flowControlSchemaName: a}}]"
        ))
    };
    let path = "spec.flowControl.flowControlSchemas";
    for (schemas, expected) in [
        ("{name: a, exempt: {}}", String::new()),
        ("{name: a, maxRequestsInflight: {max: 0, countLongRunning: true}}", String::new()),
        ("{name: a, tokenBucket: {qps: 10, limitBy: [User, Group], queueing: {maxWait: 750ms}}}", String::new()),
        (
            "{name: a, tokenBucket: {qps: 10, limitBy: [User, Cluster]}}",
            format!("W {path}[0].tokenBucket.limitBy[1]: Cluster has no effect in an UpstreamCluster"),
        ),
        ("{name: a}", format!("E {path}[0]: has no limit; give exactly one of exempt")),
        (
            "{name: a, exempt: {}, tokenBucket: {qps: 1}}",
            format!("E {path}[0]: has exempt and tokenBucket; give exactly one"),
        ),
        (
            "{name: a, tokenBucket: {qps: 10, burst: 9}}",
            format!("E {path}[0].tokenBucket.burst: 9 is less than qps (10); give at least qps"),
        ),
        (
            "{name: a, tokenBucket: {qps: 10, limitBy: [User, User]}}",
            format!("W {path}[0].tokenBucket.limitBy[1]: User is listed twice"),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 0, queueing: {}}}",
            format!("E {path}[0].maxRequestsInflight.queueing: has no effect with max 0"),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 1, queueing: {queues: 4}}}",
            format!("E {path}[0].maxRequestsInflight.queueing.handSize: 8 is more than queues (4)"),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 1, queueing: {queues: 1024, handSize: 7}}}",
            format!("E {path}[0].maxRequestsInflight.queueing.handSize: 7 of 1024 queues have too many combinations"),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 1, queueing: {maxWait: 2m}}}",
            format!(
                "E {path}[0].maxRequestsInflight.queueing.maxWait: \"2m\" is out of range; give a duration above 0 and"
            ),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 1, queueing: {maxWait: 500us}}}",
            format!("E {path}[0].maxRequestsInflight.queueing.maxWait: \"500us\" must use only the units ms, s and m"),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 1, queueing: {maxWait: .5s}}}",
            format!("E {path}[0].maxRequestsInflight.queueing.maxWait: \".5s\" must use only the units ms, s and m"),
        ),
        (
            "{name: a, maxRequestsInflight: {max: 1, queueing: {maxWait: soon}}}",
            format!("E {path}[0].maxRequestsInflight.queueing.maxWait: time: invalid duration \"soon\"; give"),
        ),
        ("{name: a, exempt: {}}, {name: b, exempt: {}}", format!("W {path}[1].name: no policy names \"b\"")),
        (
            "{name: a, exempt: {}}, {name: a, exempt: {}}",
            format!("E {path}[1].name: \"a\" is also the name of an earlier"),
        ),
        ("{name: a, exempt: {}}, {name: 'a b', exempt: {}}", format!("W {path}[1].name: no policy names \"a b\"")),
    ] {
        let found = with(schemas);
        let first = found.first().cloned().unwrap_or_default();
        assert!(first.starts_with(&expected) && found.is_empty() == expected.is_empty(), "{schemas}\n→ {found:#?}");
    }
    let found = with("{name: b, exempt: {}}");
    assert!(
        found[0].contains("\"a\" is not a flow-control schema of this object; its schemas are b; name one"),
        "{found:?}"
    );
    assert!(with("{name: 'a b', exempt: {}}").iter().any(|line| line.contains("cannot be sent in a header")));
}

#[test]
fn merged_endpoint_with_another_name_than_all_or_with_endpoints_is_refused() {
    assert_eq!(problems_of_merged("all", &format!("dispatchPolicies: [{{rules: [{RULE}]}}]")), Vec::<String>::new());
    let found = problems_of_merged("merged", "logging: {mode: Enabled}");
    assert!(found[0].starts_with("E metadata.name: \"merged\" is not allowed; the only MergedEndpoint"), "{found:?}");
    let found =
        problems_of_merged("all", &format!("dispatchPolicies: [{{rules: [{RULE}], endpoints: ['https://a']}}]"));
    assert!(
        found[0]
            .starts_with("E spec.dispatchPolicies[0].endpoints[0]: \"https://a\" is an endpoint of a single cluster"),
        "{found:?}"
    );
    let one = "---\napiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {name: all}\nspec: {}\n";
    let found = problems(&[one, one].concat());
    assert!(found[0].starts_with("E metadata.name: 2 objects have this name"), "{found:?}");
}

#[test]
fn merged_endpoint_refuses_schemas_with_separate_limits_per_cluster() {
    for (kind, limit) in [("maxRequestsInflight", "max: 1"), ("tokenBucket", "qps: 1")] {
        let fields = format!(
            "flowControl: {{flowControlSchemas: [{{name: a, {kind}: {{{limit}, limitBy: [User, Cluster]}}}}]}}, \
             dispatchPolicies: [{{rules: [{RULE}], flowControlSchemaName: a}}]"
        );
        let found = problems_of_merged("all", &fields);
        let field = format!("E spec.flowControl.flowControlSchemas[0].{kind}.limitBy[1]: Cluster is not allowed");
        assert!(found.len() == 1 && found[0].starts_with(&field), "{found:?}");
        assert!(found[0].contains("flowControlSchemas of its UpstreamCluster"), "{found:?}");
    }
}

#[test]
fn merged_endpoint_refuses_policies_for_paths_it_does_not_serve() {
    let fields = "dispatchPolicies: [{rules: [{verbs: [get], nonResourceURLs: [/version, /metrics]}]}]";
    let found = problems_of_merged("all", fields);
    let expected =
        "E spec.dispatchPolicies[0].rules[0].nonResourceURLs[1]: \"/metrics\" never matches: in the merged view";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    assert_eq!(problems_of_cluster(fields), Vec::<String>::new(), "the policies of a cluster apply to its metrics");
}

#[test]
fn global_dispatch_policies_are_validated_against_schemas() {
    let deny = format!("{{rules: [{RULE}], deny: {{message: never}}}}");
    let schema = "flowControl: {flowControlSchemas: [{name: a, exempt: {}}]}";
    for (fields, expected) in [
        (format!("globalDispatchPolicies: [{deny}]"), ""),
        (format!("{schema}, globalDispatchPolicies: [{{rules: [{RULE}], flowControlSchemaName: a}}]"), ""),
        (
            format!("{schema}, globalDispatchPolicies: [{{rules: [{RULE}], flowControlSchemaName: b}}]"),
            "E spec.globalDispatchPolicies[0].flowControlSchemaName: \"b\" is not a flow-control schema of this object",
        ),
        (
            format!("globalDispatchPolicies: [{{rules: [{RULE}], endpoints: ['https://a']}}]"),
            "E spec.globalDispatchPolicies[0].endpoints[0]: \"https://a\" is an endpoint of a single cluster",
        ),
        (
            "globalDispatchPolicies: [{rules: [{verbs: [get], apiGroups: [core], resources: [pods]}]}]".to_owned(),
            "W spec.globalDispatchPolicies[0].rules[0].apiGroups[0]: \"core\" never matches",
        ),
        (format!("globalDispatchPolicies: [{deny}], dispatchPolicies: [{{rules: [{RULE}]}}]"), ""),
    ] {
        let found = problems_of_merged("all", &fields);
        let first = found.first().cloned().unwrap_or_default();
        assert!(first.starts_with(expected) && found.is_empty() == expected.is_empty(), "{fields}\n→ {found:#?}");
    }
    let text = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {name: eu}\nspec: \
                {globalDispatchPolicies: []}\n";
    let error = parse(text, Path::new("test.yaml")).unwrap_err().to_string();
    assert!(error.contains("spec.globalDispatchPolicies: unknown field"), "{error}");
}

#[test]
fn validation_error_lists_the_files_and_documents_of_its_object() {
    let cluster = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {name: eu}\nspec: {endpoints: \
                   ['https://a'], caFile: ca.pem, credentials: {tokenFile: t}}\n";
    let denial = format!("dispatchPolicies: [{{rules: [{RULE}], deny: {{message: never}}}}]");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), cluster.replace("t}}", &format!("t}}, {denial}}}"))).unwrap();
    std::fs::write(folder.path().join("b.yaml"), format!("# first\n---\n{cluster}")).unwrap();
    let problems: Vec<_> =
        tributary_crds::load(folder.path()).unwrap().validate().iter().map(ToString::to_string).collect();
    let [a, b] = ["a.yaml", "b.yaml"].map(|file| folder.path().join(file).display().to_string());
    let both = format!("{a}: document 1 (line 1); {b}: document 1 (line 2): UpstreamCluster \"eu\": ");
    let twice = problems.iter().find(|line| line.contains("2 objects have this name")).unwrap();
    assert!(twice.starts_with(&format!("{both}metadata.name: 2 objects")), "{twice}");
    std::fs::remove_file(&b).unwrap();
    let problems: Vec<_> =
        tributary_crds::load(folder.path()).unwrap().validate().iter().map(ToString::to_string).collect();
    let denial = problems.iter().find(|line| line.contains("refused (500)")).unwrap();
    let expected =
        format!("{a}: document 1 (line 1): UpstreamCluster \"eu\": spec.dispatchPolicies[0]: denies, and no");
    assert!(denial.starts_with(&expected), "{denial}");
}

#[test]
fn schema_check_reports_wrong_types_and_ranges() {
    let refused = |fields: &str| {
        let text = format!(
            "apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {{name: all}}\nspec: {{{fields}}}\n"
        );
        parse(&text, Path::new("test.yaml")).unwrap_err().to_string()
    };
    for (fields, expected) in [
        ("dispatchPolicies: [{rules: []}]", "spec.dispatchPolicies[0].rules: is empty; give at least one entry"),
        ("dispatchPolicies: [{}]", "spec.dispatchPolicies[0].rules: is required"),
        ("dispatchPolicies: [{rules: [{}]}]", "spec.dispatchPolicies[0].rules[0].verbs: is required"),
        ("dispatchPolicies: [{rules: [{verbs: []}]}]", "spec.dispatchPolicies[0].rules[0].verbs: is empty"),
        ("dispatchPolicies: [{rules: [{verb: [get]}]}]", "spec.dispatchPolicies[0].rules[0].verb: unknown field"),
        ("logging: {mode: on}", "spec.logging.mode: "),
        (
            "flowControl: {flowControlSchemas: [{name: a, tokenBucket: {qps: 0}}]}",
            "spec.flowControl.flowControlSchemas[0].tokenBucket.qps: 0 is out of range; allowed are 1 to 1000000",
        ),
        (
            "flowControl: {flowControlSchemas: [{name: a, maxRequestsInflight: {max: -1}}]}",
            "spec.flowControl.flowControlSchemas[0].maxRequestsInflight.max: -1 is out of range; allowed are 0 to 1000000",
        ),
    ] {
        let error = refused(fields);
        assert!(error.contains(expected), "{fields}\n→ {error}");
    }
}

#[test]
fn serialized_configuration_object_parses_to_an_equal_value() {
    let rule = DispatchRule {
        verbs: vec!["*".to_owned()],
        api_groups: vec![String::new()],
        resources: vec!["pods".to_owned()],
        ..DispatchRule::default()
    };
    let policy = DispatchPolicy {
        rules: vec![rule],
        flow_control_schema_name: Some("a".to_owned()),
        ..DispatchPolicy::default()
    };
    let limit = MaxRequestsInflight { max: 1, count_long_running: true, ..MaxRequestsInflight::default() };
    let schema =
        FlowControlSchema { name: "a".to_owned(), max_requests_inflight: Some(limit), ..FlowControlSchema::default() };
    let text = serde_json::json!({"dispatchPolicies": [policy], "flowControl": {"flowControlSchemas": [schema]}});
    let lines =
        format!("apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {{name: all}}\nspec: {text}\n");
    let read = objects(&lines).merged_endpoints.remove(0).spec;
    assert_eq!((&read.dispatch_policies[0], &read.flow_control.flow_control_schemas[0]), (&policy, &schema));
    assert_eq!(serde_json::to_value(&read).unwrap(), text);
}
