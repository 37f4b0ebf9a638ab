use serde_json::{Value, json};
use tributary_cluster_sources::{RefusedItem, SourceItem};

use crate::{CA, assert_refused, changed, encode, read as read_document, reader, secret};

fn read(spec: &Value) -> Result<SourceItem, RefusedItem> {
    let whole = json!({"hubAcceptsClient": true,
        "managedClusterClientConfigs": [{"url": "https://eu.example:6443", "caBundle": encode(CA)}]});
    let metadata = json!({"name": "eu", "uid": "u", "resourceVersion": "1"});
    let document = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": metadata, "spec": changed(whole, spec)});
    let data = json!({"token": "hunter2", "ca.crt": CA.replace("authority", "other")});
    let secrets = [secret("eu", "tributary", &json!({}), &data), secret("us", "other", &json!({}), &data)];
    let source = json!({"managedClusters": {"managedServiceAccount": "tributary"}});
    read_document(&reader(source), &document, &secrets)
}

#[test]
fn managed_cluster_becomes_a_member_with_the_token_of_its_namespace() {
    let item = read(&json!({})).unwrap();
    assert_eq!(item.spec.endpoints, ["https://eu.example:6443"]);
    assert_eq!(item.spec.ca_data, Some(encode(CA)));
    assert_eq!(item.spec.credentials.unwrap().token.unwrap().expose(), "hunter2");
    let item = read(&json!({"managedClusterClientConfigs": [{"url": "https://eu"}]})).unwrap();
    assert_eq!(item.spec.ca_data, Some(encode(CA.replace("authority", "other").trim())));
}

#[test]
fn managed_cluster_that_is_not_accepted_or_has_no_address_is_refused() {
    for (spec, reason, text) in [
        (json!({"hubAcceptsClient": false}), "NotAccepted", "spec.hubAcceptsClient"),
        (json!({"managedClusterClientConfigs": null}), "MissingEndpoint", "spec.managedClusterClientConfigs"),
        (json!({"managedClusterClientConfigs": [{"url": "http://eu"}]}), "InvalidEndpoint", "ClientConfigs[0].url"),
        (json!({"managedClusterClientConfigs": [{}]}), "Unreadable", "ManagedCluster eu"),
    ] {
        assert_refused(read(&spec), reason, text);
    }
}
