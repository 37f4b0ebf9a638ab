use super::*;
use crate::Stage;

const GOOD: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
metadata: {name: one}
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/version", "*"]
- level: RequestResponse
  users: [ann]
  userGroups: [people]
  verbs: [get]
  namespaces: [""]
  omitStages: [Panic]
  omitManagedFields: false
  resources:
  - group: apps
    resources: [deployments, "*/scale"]
    resourceNames: [one]
- level: Metadata
  resources: null
"#;

fn parse(text: &str) -> Result<AuditPolicy, InvalidPolicy> {
    AuditPolicy::parse(text).map(|(policy, _)| policy)
}

#[test]
fn audit_policy_parser_reads_every_field() {
    let (policy, warnings) = AuditPolicy::parse(GOOD).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let received: Stages = [Stage::RequestReceived].into_iter().collect();
    assert_eq!((policy.omit_stages, policy.omit_managed_fields), (received, true));
    let [health, apps, rest] = policy.rules.as_slice() else { panic!("three rules") };
    assert_eq!(health.non_resource_urls, ["/healthz*", "/version", "*"]);
    assert_eq!(health.omit_stages, received, "the policy's stages are each rule's");
    assert!(health.omit_managed_fields, "so is what it says of managed fields");
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let expected = PolicyRule {
        level: Level::RequestResponse,
        users: texts(&["ann"]),
        user_groups: texts(&["people"]),
        verbs: texts(&["get"]),
        resources: vec![GroupResources {
            group: "apps".to_owned(),
            resources: texts(&["deployments", "*/scale"]),
            resource_names: texts(&["one"]),
        }],
        namespaces: texts(&[""]),
        non_resource_urls: Vec::new(),
        omit_stages: [Stage::RequestReceived, Stage::Panic].into_iter().collect(),
        omit_managed_fields: false,
    };
    assert_eq!(*apps, expected);
    assert_eq!((rest.level, rest.resources.len()), (Level::Metadata, 0));
}

#[test]
fn unknown_audit_policy_fields_cause_warnings() {
    let text = GOOD.replace("  users: [ann]", "  user: [ann]").replace("metadata: {name: one}", "spec: {}");
    let text = text.replace("  - group: apps", "  - apiGroup: apps");
    let (policy, warnings) = AuditPolicy::parse(&text).unwrap();
    assert!(policy.rules[1].users.is_empty());
    assert_eq!(
        warnings,
        [
            r#"unknown field "spec""#,
            r#"unknown field "rules[1].user""#,
            r#"unknown field "rules[1].resources[0].apiGroup""#
        ]
    );
}

#[test]
fn invalid_audit_policy_has_the_messages_of_kube_apiserver() {
    let table = [
        (
            "level: None",
            "level: Some",
            r#"rules[0].level: Unsupported value: "Some": supported values: "None", "Metadata", "Request", "RequestResponse""#,
        ),
        ("level: None", "level: ''", "rules[0].level: Required value"),
        (
            "\"/version\"",
            "version",
            r#"rules[0].nonResourceURLs[1]: Invalid value: "version": non-resource URL rules must begin with a '/' character"#,
        ),
        (
            "\"/version\"",
            "/a*b",
            r#"rules[0].nonResourceURLs[1]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#,
        ),
        (
            "omitStages: [Panic]",
            "omitStages: [panic]",
            r#"rules[1].omitStages[0]: Invalid value: "panic": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
        ),
        (
            "omitStages: [RequestReceived]",
            "omitStages: [x]",
            r#"omitStages[0]: Invalid value: "x": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
        ),
        (
            "group: apps",
            "group: apps/v1",
            r#"rules[1].resources.group: Invalid value: "apps/v1": a lowercase RFC 1123 subdomain must consist of"#,
        ),
        (
            "    resources: [deployments, \"*/scale\"]\n",
            "",
            r#"rules[1].resources.resourceNames: Invalid value: ["one"]: using resourceNames requires at least one resource"#,
        ),
        (
            "  resources: null",
            "  namespaces: [x]\n  nonResourceURLs: [/y]",
            r#"rules[2].nonResourceURLs: Invalid value: ["/y"]: rules cannot apply to both regular resources and non-resource URLs"#,
        ),
        (
            "kind: Policy",
            "kind: Polices",
            r#"failed decoding: no kind "Polices" is registered for version "audit.k8s.io/v1""#,
        ),
        (
            "audit.k8s.io/v1",
            "audit.k8s.io/v1beta1",
            r#"failed decoding: no kind "Policy" is registered for version "audit.k8s.io/v1beta1""#,
        ),
        ("kind: Policy", "kind:", "failed decoding: Object 'Kind' is missing"),
        ("apiVersion: audit.k8s.io/v1", "", "failed decoding: Object 'apiVersion' is missing"),
        ("verbs: [get]", "verbs: get", "failed decoding: "),
        ("kind: Policy", "kind: Policy\nkind: Policy", "failed decoding: "),
        ("verbs: [get]", "verbs: [get", "failed decoding: "),
    ];
    for (from, to, expected) in table {
        assert!(GOOD.contains(from), "{from}");
        let problem = parse(&GOOD.replace(from, to)).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{from} -> {to}: {problem}");
    }
}

#[test]
fn audit_policy_error_lists_all_problems() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    let two = format!("{head}rules: [{{}}, {{level: X}}]");
    let problem = parse(&two).unwrap_err().to_string();
    assert!(problem.starts_with("[rules[0].level: Required value, rules[1].level: Unsupported value"), "{problem}");
    for empty in ["", "rules: []", "rules: null"] {
        assert_eq!(parse(&format!("{head}{empty}")).unwrap_err(), InvalidPolicy::NoRules, "{empty}");
    }
    for nothing in ["", "[]", "null", "text", "---\n---\n"] {
        assert!(matches!(parse(nothing), Err(InvalidPolicy::Undecodable(_))), "{nothing:?}");
    }
}

proptest::proptest! {
    #[test]
    fn audit_policy_parser_never_panics_on_arbitrary_text(text in "(?s).{0,200}") {
        let _ = parse(&text);
        let _ = parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  verbs: {text}"));
    }
}
