//! Tests the CustomResourceDefinitions in `deploy/crds`. A kube-apiserver must accept the definitions, and objects of
//! their kinds. The validation rules in the definitions must refuse the same objects as Tributary refuses in
//! configuration files.

use crate::context::{Case, TestContext, cases};
use anyhow::ensure;
use serde_json::{Value, json};
use std::path::Path;
use tributary_e2e::{Kubectl, TestCluster};

pub(crate) fn cases() -> Vec<Case> {
    cases!["configuration_objects"; kube_apiserver_validates_objects_of_the_deployed_crds]
}

fn merged(name: &str, spec: &Value) -> String {
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "MergedEndpoint", "metadata": {"name": name}, "spec": spec});
    object.to_string()
}

fn cluster(spec: &Value) -> String {
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "eu"}, "spec": spec});
    object.to_string()
}

fn registry(spec: &Value) -> String {
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "ResourceRegistry", "metadata": {"name": "r"}, "spec": spec});
    object.to_string()
}

fn source(spec: &Value) -> String {
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "ClusterSource", "metadata": {"name": "s"}, "spec": spec});
    object.to_string()
}

/// Returns a ClusterSource with one identity rule.
fn ruled_source(rule: &Value) -> String {
    source(&json!({"karmadaClusters": {}, "identity": {"type": "Rules", "rules": [rule]}}))
}

fn named_cluster(name: &str) -> String {
    let spec = json!({"kubeconfig": {"path": "x"}});
    let object = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": name}, "spec": spec});
    object.to_string()
}

async fn kube_apiserver_validates_objects_of_the_deployed_crds(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    // The test uses a separate member, because a shared member would serve these kinds in other tests, too.
    let member = TestCluster::builder("hub").start(tools).await?;
    let kubectl = Kubectl::new(tools, &member.kubeconfig())?;
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    kubectl.ok(&["apply", "--server-side", "-f", &crds.to_string_lossy()]).await?;
    kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await?;

    let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*", "-/a*"]});
    let exec = json!({"verbs": ["create"], "apiGroups": [""], "resources": ["pods/exec", "-*/status"], "users": ["-oncall-*"]});
    let governed = |endpoints: &Value| {
        json!({
            "dispatchPolicies": [
                {"rules": [exec], "deny": {"message": "for people on call"}, "mode": "Audit", "auditLevel": "Request"},
                {"rules": [rule], "flowControlSchemaName": "few", "logMode": "Disabled", "endpoints": endpoints},
            ],
            "flowControl": {"flowControlSchemas": [
                {"name": "few", "tokenBucket": {"qps": 10, "burst": 20, "limitBy": ["User"], "queueing": {"maxWait": "750ms"}}},
                {"name": "none", "maxRequestsInflight": {"max": 0, "countLongRunning": true}},
                {"name": "free", "exempt": {}},
                {"name": "each", "maxRequestsInflight": {"max": 1, "limitBy": ["User", "Verb"]}},
            ]},
            "logging": {"mode": "Enabled"},
        })
    };
    let mut of_cluster = governed(&json!(["https://a"]));
    of_cluster["endpoints"] = json!(["https://a", "https://b"]);
    of_cluster["drainedEndpoints"] = json!(["https://b"]);
    of_cluster["caData"] = json!("eA==");
    of_cluster["circuitBreaker"] = json!({"consecutiveFailures": 3, "openSeconds": 300, "maxRequestsInflight": 100});
    of_cluster["secretRef"] = json!({"name": "eu", "tokenKey": "token", "caKey": "ca.crt"});
    of_cluster["dispatch"] = json!("DenyAll");
    of_cluster["endpointProbe"] = json!({"path": "/healthz", "failureThreshold": 1});
    of_cluster["proxyURL"] = json!("socks5h://proxy.example:1080");
    of_cluster["serverNames"] = json!(["eu.example.com", "EU", "10.4you", "0x7f.0x7g"]);
    of_cluster["impersonation"] = json!({"uid": true, "extra": ["team", "example.com/a"]});
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
        {"key": "k", "operator": "In", "values": ["a"]}, {"key": "k", "operator": "Exists"},
        {"key": "k", "operator": "NotIn", "values": ["b"]}, {"key": "k", "operator": "DoesNotExist", "values": []},
    ]});
    let resources = ["pods", "deployments.apps", "deployments.v1.apps", "apps/v1/statefulsets", "v1/configmaps"];
    let of_registry = json!({"resources": resources, "namespaces": ["all", "a-1"], "clusters": {"names": ["eu"], "selector": selector}});
    let whole = [merged("all", &governed(&json!([]))), cluster(&of_cluster), registry(&of_registry)];
    for object in whole.into_iter().chain([registry(&json!({"resources": ["*"]}))]) {
        let file = kubectl.file("object.json", &object)?;
        kubectl.ok(&["apply", "--server-side", "-f", &file]).await?;
    }
    for endpoint in ["https://a.example.com:6443/prefix", "https://[::1]:6443", "https://a:65535"] {
        let object = cluster(&json!({"endpoints": [endpoint], "insecureSkipVerify": true}));
        let file = kubectl.file("object.json", &object)?;
        kubectl.ok(&["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &file]).await?;
    }
    let status = json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Accepted", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Valid", "message": ""}]}});
    for object in ["mergedendpoint/all", "upstreamcluster/eu"] {
        kubectl.ok(&["patch", object, "--subresource=status", "--type=merge", "-p", &status.to_string()]).await?;
    }

    let policy = |policy: Value| json!({"dispatchPolicies": [policy]});
    let of_rule = |rule: Value| policy(json!({"rules": [rule]}));
    let schema = |schema: Value| json!({"flowControl": {"flowControlSchemas": [schema]}});
    let by_cluster = |mut limit: Value| {
        limit["limitBy"] = json!(["User", "Cluster"]);
        limit
    };
    let reached = |more: Value| {
        let mut spec = json!({"endpoints": ["https://a"], "caData": "eA=="});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cluster(&spec)
    };
    let selected = |requirement: Value| {
        registry(&json!({"resources": ["*"], "clusters": {"selector": {"matchExpressions": [requirement]}}}))
    };
    let at = |endpoint: &str| cluster(&json!({"endpoints": [endpoint], "caData": "eA=="}));
    let waiting = |max_wait: &str| {
        merged("all", &schema(json!({"name": "a", "tokenBucket": {"qps": 1, "queueing": {"maxWait": max_wait}}})))
    };
    // These objects have the largest allowed numbers of policies and schemas. The test needs them because a
    // kube-apiserver refuses a validation rule whose estimated cost is too high.
    let names: Vec<_> = (0..256).map(|number| format!("{number:0>253}")).collect();
    let schemas: Vec<_> = names.iter().map(|name| json!({"name": name, "exempt": {}})).collect();
    let policies = names.iter().cycle().take(1024).map(|name| json!({"rules": [exec], "flowControlSchemaName": name}));
    let policies: Vec<_> = policies.collect();
    let mut largest = json!({"dispatchPolicies": policies, "flowControl": {"flowControlSchemas": schemas}});
    let by_cluster_alone = schema(json!({"name": "a", "tokenBucket": by_cluster(json!({"qps": 1}))}));
    let pattern = "a".repeat(1024);
    let patterns = json!({"userPattern": pattern, "groupPattern": pattern, "clusterPattern": pattern});
    let rules = vec![json!({"type": "PrivilegedIdentityExchanger", "source": patterns}); 256];
    let secrets = json!({"namespace": "vela-system", "labelSelector": selector});
    let largest_source = json!({"clusterGatewaySecrets": secrets, "identity": {"type": "Rules", "rules": rules}});
    for object in [merged("all", &largest), reached(by_cluster_alone), source(&largest_source)] {
        let file = kubectl.file("object.json", &object)?;
        kubectl.ok(&["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &file]).await?;
    }
    largest["dispatchPolicies"][1023]["flowControlSchemaName"] = json!("other");
    let naming = |name: &str| policy(json!({"rules": [rule], "flowControlSchemaName": name}));
    let mut another = naming("few");
    another["flowControl"] = json!({"flowControlSchemas": [{"name": "other", "exempt": {}}]});
    for (object, expected) in [
        (merged("all", &largest), "flowControlSchemaName must be a name in"),
        (merged("all", &naming("few")), "flowControlSchemaName must be a name in"),
        (merged("all", &another), "flowControlSchemaName must be a name in"),
        (reached(naming("few")), "flowControlSchemaName must be a name in"),
        (reached(another), "flowControlSchemaName must be a name in"),
        (selected(json!({"key": "k", "operator": "Like"})), "Unsupported value"),
        (selected(json!({"key": "k", "operator": "In"})), "In and NotIn need values"),
        (selected(json!({"key": "k", "operator": "NotIn", "values": []})), "In and NotIn need values"),
        (
            selected(json!({"key": "k", "operator": "Exists", "values": ["a"]})),
            "Exists and DoesNotExist take no values",
        ),
        (registry(&json!({"resources": ["*"], "namespaces": ["A"]})), "spec.namespaces[0]"),
        (registry(&json!({"resources": ["*"], "namespaces": ["a".repeat(64)]})), "spec.namespaces[0]"),
        (registry(&json!({"resources": ["Pods"]})), "spec.resources[0]"),
        (registry(&json!({"resources": ["deployments.apps."]})), "spec.resources[0]"),
        (registry(&json!({"resources": []})), "at least 1 item"),
        (named_cluster("all"), "must not be all, the name of the merged view"),
        (named_cluster("eu.west"), "at most 63 characters and no dot"),
        (named_cluster(&"a".repeat(64)), "at most 63 characters and no dot"),
        (
            reached(json!({"credentials": {"tokenFile": "x", "clientCertificateFile": "x", "clientKeyFile": "x"}})),
            "a token and a client certificate are both set",
        ),
        (at("http://127.0.0.1:8001"), "objects in a hub need https:// endpoints"),
        (at("http://localhost"), "objects in a hub need https:// endpoints"),
        (reached(json!({"proxyURL": "http://ann:secret@h"})), "proxyURL contains a user or a password"),
        (cluster(&json!({"kubeconfig": {"path": "x"}})), "objects in a hub contain no file names and no secrets"),
        (
            cluster(&json!({"endpoints": ["https://a"], "caFile": "x"})),
            "objects in a hub contain no file names and no secrets",
        ),
        (reached(json!({"credentials": {"token": "x"}})), "objects in a hub contain no file names and no secrets"),
        (reached(json!({"credentials": {"tokenFile": "x"}})), "objects in a hub contain no file names and no secrets"),
        (
            reached(json!({"serverNames": ["a.example.com"], "secureServing": {"clientCAFile": "x"}})),
            "objects in a hub contain no file names and no secrets",
        ),
        (reached(json!({"secretRef": {"name": ""}})), "spec.secretRef.name"),
        (
            reached(json!({"secretRef": {"name": "a", "certificateKey": "x"}})),
            "name the keys of a client certificate and of its key together",
        ),
        (
            reached(json!({"secretRef": {"name": "a", "tokenKey": "t", "certificateKey": "x", "keyKey": "y"}})),
            "tokenKey and certificateKey are both set",
        ),
        (at("h:1"), "spec.endpoints[0]"),
        (at("http://h"), "spec.endpoints[0]"),
        (at("http://127.example.com"), "spec.endpoints[0]"),
        (at("https://user@h"), "spec.endpoints[0]"),
        (at("https://h:"), "spec.endpoints[0]"),
        (at("https://:6443"), "spec.endpoints[0]"),
        (at("https://h:0"), "spec.endpoints[0]"),
        (at("https://h:65536"), "spec.endpoints[0]"),
        (at("https://[::1]:70000/x"), "spec.endpoints[0]"),
        (reached(json!({"proxyURL": "ftp://h"})), "spec.proxyURL"),
        (reached(json!({"proxyURL": "http://user@"})), "spec.proxyURL"),
        (reached(json!({"proxyURL": "http://u:1@h:65536"})), "spec.proxyURL"),
        (
            reached(json!({"serverNames": ["a.example.com"], "secureServing": {"clientCAData": "x"}})),
            "name no authorities for clients",
        ),
        (reached(json!({"serverNames": ["*.x"]})), "spec.serverNames[0]"),
        (reached(json!({"serverNames": ["a.example.com", "10.0.0.1"]})), "spec.serverNames[1]"),
        (reached(json!({"serverNames": ["eu.1"]})), "spec.serverNames[0]"),
        (reached(json!({"serverNames": ["eu.0x7f"]})), "spec.serverNames[0]"),
        (reached(json!({"serverNames": ["eu..example.com"]})), "spec.serverNames[0]"),
        (reached(json!({"impersonation": {"extra": ["Team"]}})), "spec.impersonation.extra[0]"),
        (cluster(&json!({"kubeconfig": {"path": ""}})), "spec.kubeconfig.path"),
        (
            merged("all", &schema(json!({"name": "a", "maxRequestsInflight": {"max": 0, "queueing": {}}}))),
            "queueing has no effect with max 0",
        ),
        (
            merged("all", &schema(json!({"name": "a", "maxRequestsInflight": by_cluster(json!({"max": 1}))}))),
            "remove Cluster from limitBy",
        ),
        (
            merged("all", &schema(json!({"name": "a", "tokenBucket": by_cluster(json!({"qps": 1}))}))),
            "remove Cluster from limitBy",
        ),
        (waiting("2m"), "maxWait is out of range"),
        (waiting("0s"), "maxWait is out of range"),
        (waiting("500us"), "queueing.maxWait"),
        (
            merged("all", &of_rule(json!({"verbs": ["*"], "nonResourceURLs": ["/a*b"]}))),
            "spec.dispatchPolicies[0].rules[0].nonResourceURLs[0]",
        ),
        (cluster(&json!({"dispatch": "DenyAll"})), "give exactly one of endpoints and kubeconfig"),
        (reached(json!({"kubeconfig": {"path": "x"}})), "give exactly one of endpoints and kubeconfig"),
        (cluster(&json!({"kubeconfig": {"path": "x"}, "tlsServerName": "a"})), "with kubeconfig, remove caData"),
        (cluster(&json!({"kubeconfig": {"path": "x"}, "proxyURL": "http://h"})), "with kubeconfig, remove caData"),
        (
            cluster(&json!({"kubeconfig": {"path": "x"}, "drainedEndpoints": ["https://a"]})),
            "drainedEndpoints must be entries of",
        ),
        (reached(json!({"caFile": "x"})), "caData and caFile are both set"),
        (cluster(&json!({"endpoints": ["https://a"]})), "the certificates of the servers cannot be verified"),
        (reached(json!({"insecureSkipVerify": true})), "insecureSkipVerify contradicts"),
        (
            cluster(&json!({"endpoints": ["https://a"], "insecureSkipVerify": true, "tokenPassThrough": true})),
            "tokenPassThrough would send tokens",
        ),
        (reached(json!({"secureServing": {"clientCAFile": "x"}})), "secureServing needs serverNames"),
        (
            reached(json!({"serverNames": ["a.example.com"], "secureServing": {"certificateFile": "x"}})),
            "give a serving certificate and its key together",
        ),
        (
            reached(json!({"credentials": {"token": "x", "tokenFile": "x"}})),
            "a value is given both as data and as a file",
        ),
        (reached(json!({"credentials": {"clientKeyFile": "x"}})), "give a client certificate and its key together"),
        (merged("other", &json!({})), "the only MergedEndpoint is named all"),
        (
            merged("all", &policy(json!({"rules": [rule], "endpoints": ["https://a"]}))),
            "endpoints belong to a single cluster",
        ),
        (
            merged("all", &policy(json!({"rules": [rule], "deny": {"message": "x"}, "flowControlSchemaName": "few"}))),
            "a denied request reaches no endpoint",
        ),
        (
            cluster(&policy(json!({"rules": [rule], "deny": {"message": "x"}, "endpoints": ["https://a"]}))),
            "a denied request reaches no endpoint",
        ),
        (
            merged("all", &of_rule(json!({"verbs": ["*"], "resources": ["pods"]}))),
            "give apiGroups and resources together",
        ),
        (merged("all", &of_rule(json!({"verbs": ["*"]}))), "give resources, nonResourceURLs or both"),
        (
            merged("all", &of_rule(json!({"verbs": ["*"], "apiGroups": [], "resources": [], "nonResourceURLs": []}))),
            "give resources, nonResourceURLs or both",
        ),
        (merged("all", &of_rule(json!({"verbs": [], "nonResourceURLs": ["*"]}))), "at least 1 item"),
        (
            merged("all", &of_rule(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["deployments/*"]}))),
            "spec.dispatchPolicies[0].rules[0].resources[0]",
        ),
        (merged("all", &schema(json!({"name": "a"}))), "give exactly one of exempt"),
        (
            merged("all", &schema(json!({"name": "a", "exempt": {}, "tokenBucket": {"qps": 1}}))),
            "give exactly one of exempt",
        ),
        (merged("all", &schema(json!({"name": "a", "tokenBucket": {"qps": 2, "burst": 1}}))), "burst is less than qps"),
        (
            merged("all", &schema(json!({"name": "a", "maxRequestsInflight": {"max": 1, "queueing": {"queues": 4}}}))),
            "handSize is more than queues",
        ),
        (reached(json!({"circuitBreaker": {"consecutiveFailures": 0}})), "spec.circuitBreaker.consecutiveFailures"),
        (reached(json!({"circuitBreaker": {"openSeconds": 301}})), "spec.circuitBreaker.openSeconds"),
        (reached(json!({"circuitBreaker": {"maxRequestsInflight": 0}})), "spec.circuitBreaker.maxRequestsInflight"),
        (
            reached(json!({"circuitBreaker": {"maxRequestsInflightPerEndpoint": 1_000_001}})),
            "spec.circuitBreaker.maxRequestsInflightPerEndpoint",
        ),
        (reached(json!({"circuitBreaker": {"failures": 1}})), "failures"),
        (source(&json!({})), "give exactly one of clusterGatewaySecrets"),
        (
            source(&json!({"karmadaClusters": {}, "kubeGatewayClusters": {}})),
            "give exactly one of clusterGatewaySecrets",
        ),
        (source(&json!({"argoCDSecrets": {}})), "spec.argoCDSecrets.namespace"),
        (source(&json!({"karmadaClusters": {}, "missingCA": "Allow"})), "spec.missingCA"),
        (source(&json!({"karmadaClusters": {}, "identity": {"type": "Rules"}})), "the type Rules needs rules"),
        (ruled_source(&json!({"type": "PrivilegedIdentityExchanger"})), "spec.identity.rules[0].source"),
        (ruled_source(&json!({"type": "ExternalIdentityExchanger", "source": {}})), "ExternalIdentityExchanger"),
        (
            ruled_source(&json!({"type": "StaticMappingIdentityExchanger", "source": {}})),
            "StaticMappingIdentityExchanger needs a target",
        ),
    ] {
        let file = kubectl.file("object.json", &object)?;
        let refused =
            kubectl.run(&["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &file]).await?;
        let words = refused.failure()?;
        ensure!(words.contains(expected), "{object}: {words}");
    }
    Ok(())
}
