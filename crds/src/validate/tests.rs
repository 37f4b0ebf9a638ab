//! Tests with configurations and their expected validation problems.

use std::path::Path;

use super::*;
use crate::{UpstreamCluster, UpstreamClusterSpec, parse};

/// Returns a YAML document of a cluster whose `spec` is given in flow style.
fn cluster(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{name: {name}, labels: {{name: {name}}}}}\nspec: {{{spec}}}\n"
    )
}

fn registry(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

/// Returns the validation problems, each with the prefix `E` or `W`.
fn problems(text: &str) -> Vec<String> {
    let configuration = parse(text, Path::new("test.yaml")).unwrap();
    let letter = |severity| if severity == Severity::Error { 'E' } else { 'W' };
    let line = |ValidationProblem { severity, object, field, message, .. }: &ValidationProblem| {
        format!("{} {object}: {field}: {message}", letter(*severity))
    };
    configuration.validate().iter().map(line).collect()
}

const GOOD: &str = "endpoints: ['https://127.0.0.1:6443'], caFile: ca.pem, credentials: {tokenFile: t}";

/// Base64 of `-----BEGIN CERTIFICATE-----`.
const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";

#[test]
fn placement_decision_of_a_registry_in_a_file_is_refused() {
    let registry = "apiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: {name: jobs}\n\
                    spec: {resources: [pods], clusters: {placementDecision: {namespace: fleet, key: batch}}}\n";
    let found = problems(registry);
    assert!(found.iter().any(|problem| problem.contains("spec.clusters.placementDecision: needs a hub")), "{found:?}");
}

#[test]
fn invalid_upstream_cluster_fields_are_reported() {
    for (spec, expected) in [
        (GOOD, ""),
        ("kubeconfig: {path: /a}", ""),
        (&*format!("endpoints: ['https://[::1]:6443/prefix'], caData: {PEM}, credentials: {{token: abc}}"), ""),
        (
            &*format!(
                "endpoints: ['https://h'], caFile: a, credentials: {{clientCertificateData: {PEM}, clientKeyFile: k}}"
            ),
            "",
        ),
        (&*format!("{GOOD}, impersonation: {{uid: true, extra: [team, example.com/a]}}"), ""),
        (&*format!("{GOOD}, authorization: RBAC"), ""),
        (&*format!("{GOOD}, authorization: Live"), ""),
        (&*format!("{GOOD}, tokenReview: true"), ""),
        (
            &*format!("{GOOD}, impersonation: {{extra: [Team]}}"),
            "E spec.impersonation.extra[0]: \"Team\" has capital letters; write \"team\"",
        ),
        (&*format!("{GOOD}, impersonation: {{extra: [a, '']}}"), "E spec.impersonation.extra[1]: is empty"),
        (&*format!("{GOOD}, impersonation: {{extra: [a, a]}}"), "E spec.impersonation.extra[1]: \"a\" is listed twice"),
        (
            &*format!("{GOOD}, impersonation: {{extra: [authentication.kubernetes.io/node-name]}}"),
            "is a key of Kubernetes itself",
        ),
        ("kubeconfig: {path: ''}", "E spec.kubeconfig.path: is empty"),
        ("kubeconfig: {path: a}, caFile: b", "E spec.caFile: is given together with spec.kubeconfig"),
        ("caFile: a, credentials: {token: a}", "E spec.endpoints: is empty"),
        (
            "endpoints: ['h:1'], caFile: a, credentials: {token: a}",
            "E spec.endpoints[0]: \"h:1\" is not the address of a server",
        ),
        (
            "endpoints: ['https://'], caFile: a, credentials: {token: a}",
            "E spec.endpoints[0]: \"https://\" has no host",
        ),
        ("endpoints: ['https://h:65535/x'], caFile: a, credentials: {token: a}", ""),
        ("endpoints: ['https://h:65536'], caFile: a, credentials: {token: a}", "or a bad port"),
        ("endpoints: ['https://[::1]:+80'], caFile: a, credentials: {token: a}", "or a bad port"),
        ("endpoints: ['https://u:p@h'], caFile: a, credentials: {token: a}", "has user information"),
        ("endpoints: ['http://h'], caFile: a, credentials: {token: a}", "is not encrypted"),
        ("endpoints: ['http://127.0.0.1:1'], caFile: a, credentials: {token: a}", "accept it on this machine"),
        (
            "endpoints: ['https://h', 'https://h'], caFile: a, credentials: {token: a}",
            "W spec.endpoints[1]: \"https://h\" is listed twice",
        ),
        (
            "endpoints: ['https://g', 'https://h'], drainedEndpoints: ['https://h'], caFile: a, credentials: {token: a}",
            "",
        ),
        (
            &*format!("{GOOD}, drainedEndpoints: ['https://h']"),
            "E spec.drainedEndpoints[0]: \"https://h\" is not in spec.endpoints",
        ),
        (
            &*format!("{GOOD}, drainedEndpoints: ['https://127.0.0.1:6443']"),
            "W spec.drainedEndpoints: has all of spec.endpoints",
        ),
        ("kubeconfig: {path: a}, drainedEndpoints: ['https://h']", "E spec.drainedEndpoints[0]"),
        ("endpoints: ['https://h'], credentials: {token: a}", "E spec.caData: is missing, and so is spec.caFile"),
        (
            "endpoints: ['https://h'], insecureSkipVerify: true, credentials: {token: a}",
            "W spec.insecureSkipVerify: true",
        ),
        (
            "endpoints: ['https://h'], caFile: a, insecureSkipVerify: true, credentials: {token: a}",
            "E spec.insecureSkipVerify: true contradicts",
        ),
        (
            "endpoints: ['https://h'], insecureSkipVerify: true, credentials: {token: a}, tokenPassThrough: true",
            "E spec.tokenPassThrough: true would send tokens of users to unverified servers",
        ),
        ("endpoints: ['https://h'], caData: '!', credentials: {token: a}", "E spec.caData: is not base64 of PEM"),
        ("endpoints: ['https://h'], caFile: a", "W spec.credentials: is missing"),
        (
            "endpoints: ['https://h'], caFile: a, credentials: {token: a, tokenFile: b}",
            "E spec.credentials.tokenFile: is given together with",
        ),
        (
            "endpoints: ['https://h'], caFile: a, credentials: {clientCertificateFile: b}",
            "E spec.credentials.clientKeyData: is missing",
        ),
        (
            "endpoints: ['https://h'], caFile: a, credentials: {clientKeyFile: b}",
            "E spec.credentials.clientCertificateData: is missing",
        ),
        (
            "endpoints: ['https://h'], caFile: a, credentials: {clientKeyFile: b, clientCertificateFile: c, token: d}",
            "E spec.credentials: has a token and",
        ),
        (
            "endpoints: ['https://h'], caFile: a, credentials: {token: 'a b'}",
            "E spec.credentials.token: is empty, or contains a space",
        ),
        (
            "kubeconfig: {path: a}, proxyURL: 'http://secret@h:3128'",
            "E spec.proxyURL: is given together with spec.kubeconfig, which also has it",
        ),
        (&*format!("{GOOD}, proxyURL: 'ftp://secret@h'"), "E spec.proxyURL: is not the address of a proxy"),
        (&*format!("{GOOD}, proxyURL: 'socks5://h:1'"), ""),
        (&*format!("{GOOD}, proxyURL: 'socks5h://u:secret@h:65535/'"), ""),
        (&*format!("{GOOD}, proxyURL: 'http://[::1]:'"), ""),
        (&*format!("{GOOD}, proxyURL: 'http://u:1@h:65536'"), "E spec.proxyURL: is not the address of a proxy"),
        (&*format!("{GOOD}, proxyURL: 'http://h:0'"), "E spec.proxyURL: is not the address of a proxy"),
        (&*format!("{GOOD}, proxyURL: 'http://h:http'"), "E spec.proxyURL: is not the address of a proxy"),
        ("kubeconfig: {path: a}, serverNames: [eu.example.com, localhost]", ""),
        (
            "kubeconfig: {path: a}, serverNames: ['*.example.com']",
            "E spec.serverNames[0]: \"*.example.com\" must be a DNS name",
        ),
        ("kubeconfig: {path: a}, serverNames: [b, 10.0.0.1]", "E spec.serverNames[1]: \"10.0.0.1\" is an IP address"),
        (
            "kubeconfig: {path: a}, serverNames: [b.0x7f]",
            "E spec.serverNames[0]: \"b.0x7f\" must not end with a number",
        ),
        ("kubeconfig: {path: a}, serverNames: ['b:443']", "E spec.serverNames[0]: \"b:443\" must be a DNS name"),
        ("kubeconfig: {path: a}, serverNames: [b, B]", "E spec.serverNames[1]: \"B\" is listed twice"),
        ("kubeconfig: {path: a}, secureServing: {clientCAFile: b}", "E spec.secureServing: needs spec.serverNames"),
        ("kubeconfig: {path: a}, serverNames: [b], secureServing: {clientCAFile: b}", ""),
        ("kubeconfig: {path: a}, serverNames: [b], secureServing: {certificateFile: b, keyFile: c}", ""),
        (
            "kubeconfig: {path: a}, serverNames: [b], secureServing: {certificateFile: b}",
            "E spec.secureServing.keyData: is missing, and so is keyFile",
        ),
        (
            "kubeconfig: {path: a}, serverNames: [b], secureServing: {keyData: secret}",
            "E spec.secureServing.certificateData: is missing, and so is certificateFile",
        ),
        (
            &*format!(
                "kubeconfig: {{path: a}}, serverNames: [b], secureServing: {{clientCAFile: c, clientCAData: {PEM}}}"
            ),
            "E spec.secureServing.clientCAFile: is given together with spec.secureServing.clientCAData",
        ),
        (
            "kubeconfig: {path: a}, serverNames: [b], secureServing: {clientCAData: '!'}",
            "E spec.secureServing.clientCAData: is not base64 of PEM",
        ),
    ] {
        let found = problems(&cluster("eu", spec)).join("\n").replace("UpstreamCluster \"eu\": ", "");
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{spec}\n→ {found}");
        // The rows with `tokenPassThrough` and with `keyData` may have two problems each. All other rows have at most
        // one problem.
        let is_two = spec.contains("tokenPassThrough") || spec.contains("keyData: secret");
        let expected_lines = if is_two { 2 } else { 1 };
        assert!(found.lines().count() <= expected_lines, "{spec}\n→ {found}");
        assert!(!found.contains("secret"), "{found}");
    }
    let found = problems(&cluster("all", GOOD));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("E UpstreamCluster \"all\": metadata.name: "), "{found:?}");
}

#[test]
fn resource_registry_is_validated_against_the_clusters() {
    for (spec, expected) in [
        ("resources: ['*']", ""),
        ("resources: [pods, deployments.apps, apps/v1/statefulsets], clusters: {names: [eu]}, placement: eu", ""),
        ("resources: [Pods]", "E spec.resources[0]: \"Pods\" does not name a resource; allowed are"),
        (
            "resources: [deployments]",
            "E spec.resources[0]: \"deployments\" is not a resource of the core group; write \"deployments.apps\"",
        ),
        ("resources: [pods, pods]", "W spec.resources[1]: \"pods\" means the same as \"pods\""),
        ("resources: [pods, '*']", "W spec.resources[1]: \"*\" includes the other entries"),
        ("resources: [pods], namespaces: [A]", "E spec.namespaces[0]: \"A\" is not a valid namespace"),
        ("resources: [pods], namespaces: [a, a]", "W spec.namespaces[1]: \"a\" is listed twice"),
        ("resources: [pods], namespaces: [all]", ""),
        (
            "resources: [pods], clusters: {names: [eu, asia]}",
            "E spec.clusters.names[1]: there is no UpstreamCluster \"asia\"; allowed are eu, us",
        ),
        ("resources: [pods], clusters: {selector: {matchLabels: {name: x}}}", "W spec.clusters: selects no cluster"),
        (
            "resources: [pods], clusters: {selector: {matchExpressions: [{key: name, operator: In}]}}",
            "E spec.clusters.selector.matchExpressions[0].values: is empty",
        ),
        (
            "resources: [pods], clusters: {names: [eu]}, placement: us",
            "E spec.placement: \"us\" is not among the clusters that spec.clusters selects; allowed are eu",
        ),
        (
            "resources: [pods], itemResourceVersions: Integer",
            "E spec.itemResourceVersions: Integer needs a spec.index in UpstreamCluster \"us\"",
        ),
        ("resources: [pods], itemResourceVersions: Integer, clusters: {names: [eu]}", ""),
    ] {
        let text = cluster("eu", &format!("{GOOD}, index: 7")) + &cluster("us", GOOD) + &registry("r", spec);
        let found = problems(&text).join("\n").replace("ResourceRegistry \"r\": ", "");
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{spec}\n→ {found}");
    }
}

#[test]
fn duplicate_names_indexes_hosts_and_resources_of_a_configuration_are_errors() {
    let text = cluster("a", &format!("{GOOD}, index: 7, serverNames: [api.example.com]"))
        + &cluster("b", &format!("{GOOD}, index: 7, serverNames: [b.example.com, API.example.com]"))
        + &cluster("b", GOOD)
        + &registry("r", "resources: [pods, services]")
        + &registry("s", "resources: [v1/pods]")
        + &registry("t", "resources: ['*']")
        + &registry("u", "resources: ['*']");
    assert_eq!(
        problems(&text),
        [
            "E UpstreamCluster \"b\": metadata.name: 2 objects have this name; give each object a unique name, or remove all but one",
            "E UpstreamCluster \"b\": spec.index: 7 is already the index of UpstreamCluster \"a\"; give this cluster a number that was never used, for example 8",
            "E UpstreamCluster \"b\": spec.serverNames[1]: \"API.example.com\" is already a host of UpstreamCluster \"a\" (host names are case-insensitive); remove it from one of the clusters",
            "E ResourceRegistry \"s\": spec.resources[0]: \"v1/pods\" overlaps with \"pods\" of ResourceRegistry \"r\"; name a resource in only one registry, or merge the registries",
            "E ResourceRegistry \"u\": spec.resources[0]: \"*\" overlaps with \"*\" of ResourceRegistry \"t\"; name a resource in only one registry, or merge the registries",
        ]
    );
}

#[test]
fn one_cluster_uid_under_two_names_causes_a_warning() {
    let of = |name: &str, uid: &str| {
        let annotations = format!("name: {name}, annotations: {{tributary.dev/cluster-uid: {uid}}}");
        cluster(name, GOOD).replacen(&format!("name: {name}"), &annotations, 1)
    };
    let text = of("a", "u1") + &of("b", "u2") + &of("c", "u1") + &cluster("d", GOOD);
    assert_eq!(
        problems(&text),
        [
            "W UpstreamCluster \"c\": metadata.annotations[tributary.dev/cluster-uid]: \"u1\" is also the uid of UpstreamCluster \"a\", and serve refuses two names for a cluster; remove one of the UpstreamClusters"
        ]
    );
    // Two objects with the same name cause only the error about the name, and no warning about the cluster uid.
    assert!(!problems(&(of("a", "u1") + &of("a", "u1"))).join("\n").contains("cluster-uid"));
}

#[test]
fn integer_versions_are_recommended_for_composite_versions_above_4_kib() {
    let mut configuration = parse(&registry("r", "resources: [pods]"), Path::new("test.yaml")).unwrap();
    let spec = UpstreamClusterSpec {
        kubeconfig: Some(crate::KubeconfigReference { path: "a".to_owned(), context: None }),
        ..UpstreamClusterSpec::default()
    };
    configuration.clusters =
        (0..110).map(|index| UpstreamCluster::new(&format!("cluster-{index:03}"), spec.clone())).collect();
    assert_eq!(configuration.validate(), []);
    configuration.clusters =
        (0..120).map(|index| UpstreamCluster::new(&format!("cluster-{index:03}"), spec.clone())).collect();
    let found = configuration.validate();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].severity, Severity::Warning);
    assert!(found[0].message.contains("Integer is recommended"), "{}", found[0]);
}
