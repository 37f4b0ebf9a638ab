use serde_json::{Value, json};
use tributary_cluster_sources::{RefusedItem, SourceItem};

use crate::{CA, assert_refused, changed, encode, read as read_document, reader, secret};

fn read(spec: &Value) -> Result<SourceItem, RefusedItem> {
    read_by(&json!({}), spec)
}

/// Reads a ManagedCluster with these further settings of the source.
fn read_by(settings: &Value, spec: &Value) -> Result<SourceItem, RefusedItem> {
    let whole = json!({"hubAcceptsClient": true,
        "managedClusterClientConfigs": [{"url": "https://eu.example:6443", "caBundle": encode(CA)}]});
    let metadata = json!({"name": "eu", "uid": "u", "resourceVersion": "1"});
    let document = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": metadata, "spec": changed(whole, spec)});
    let data = json!({"token": "hunter2", "ca.crt": CA.replace("authority", "other")});
    let secrets = [secret("eu", "tributary", &json!({}), &data), secret("us", "other", &json!({}), &data)];
    let list = changed(json!({"managedServiceAccount": "tributary"}), settings);
    let source = json!({ "managedClusters": list });
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
fn user_server_leads_to_the_cluster_in_its_path() {
    let url = "https://cluster-proxy-addon-user.ocm:9092/";
    let server = json!({"url": url, "caData": encode(CA), "tlsServerName": "cluster-proxy-addon-user.ocm.svc"});
    // The cluster's own description has no effect.
    let item = read_by(&json!({"userServer": server}), &json!({"managedClusterClientConfigs": null})).unwrap();
    assert_eq!(item.spec.endpoints, ["https://cluster-proxy-addon-user.ocm:9092/eu"]);
    assert_eq!(item.spec.ca_data, Some(encode(CA)));
    assert_eq!(item.spec.tls_server_name.as_deref(), Some("cluster-proxy-addon-user.ocm.svc"));
    assert!(!item.spec.token_pass_through);
    assert!(read_by(&json!({"tokenPassThrough": true}), &json!({})).unwrap().spec.token_pass_through);
    for (server, reason, text) in [
        (json!({"url": "http://ocm", "caData": encode(CA)}), "InvalidEndpoint", "userServer.url"),
        (json!({"url": "https://ocm", "caData": ""}), "MissingCA", "userServer.caData"),
        (json!({"url": "https://ocm", "caData": "x"}), "InvalidCredential", "userServer.caData"),
    ] {
        assert_refused(read_by(&json!({"userServer": server}), &json!({})), reason, text);
    }
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
