use serde_json::{Value, json};
use tributary_cluster_sources::{RefusedItem, SourceItem};

use crate::{CA, assert_refused, changed, encode, read as read_document, reader};

fn read(spec: &Value) -> Result<SourceItem, RefusedItem> {
    let whole = json!({"servers": [{"endpoint": "https://a:6443"}, {"endpoint": "https://b:6443"}],
        "clientConfig": {"bearerToken": encode("hunter2"), "caData": encode(CA)}, "sidecar": true});
    let metadata = json!({"name": "eu.example.com", "uid": "u", "resourceVersion": "1"});
    let document = json!({"metadata": metadata, "spec": changed(whole, spec)});
    read_document(&reader(json!({"kubeGatewayClusters": {}})), &document, &[])
}

#[test]
fn unsupported_fields_of_an_accepted_cluster_become_warnings() {
    let item = read(&json!({})).unwrap();
    assert_eq!(item.foreign_name, "eu.example.com");
    assert!(item.name.as_str().starts_with("eu-example-com-"), "{}", item.name);
    assert_eq!(item.spec.endpoints, ["https://a:6443", "https://b:6443"]);
    assert_eq!(item.spec.credentials.unwrap().token.unwrap().expose(), "hunter2");
    assert!(item.warnings.iter().all(|warning| warning.reason == "DiffersFromKubeGateway"), "{:?}", item.warnings);
    let has = |text: &str| item.warnings.iter().any(|warning| warning.message.starts_with(text));
    assert!(has("spec.sidecar: unknown field") && !has("metadata.name"), "{:?}", item.warnings);
}

#[test]
fn cluster_with_plain_or_unverified_servers_is_refused() {
    for (spec, reason, text) in [
        (json!({"servers": [{"endpoint": "http://a"}]}), "InvalidEndpoint", "spec.servers[0].endpoint"),
        (json!({"clientConfig": {"caData": null}}), "MissingCA", "spec.clientConfig.caData"),
        (
            json!({"clientConfig": {"caData": null, "insecure": true}}),
            "InsecureSkipVerify",
            "spec.clientConfig.insecure",
        ),
        (json!({"clientConfig": {"bearerToken": null}}), "MissingCredential", "spec.clientConfig"),
        (json!({"clientConfig": {"bearerToken": "hunter2"}}), "MissingCredential", "bearerToken"),
        (json!({"servers": "hunter2"}), "Unreadable", "UpstreamCluster eu.example.com"),
    ] {
        assert_refused(read(&spec), reason, text);
    }
}
