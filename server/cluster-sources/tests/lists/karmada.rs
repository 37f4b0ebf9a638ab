use serde_json::{Value, json};
use tributary_cluster_sources::{RefusedItem, Secrets, SourceItem};
use tributary_crds::{InsecureMembers, SecretText};

use crate::{CA, assert_refused, changed, encode, read as read_document, reader, reader_with, secret};

fn source() -> Value {
    json!({"karmadaClusters": {}})
}

fn cluster(spec: &Value) -> Value {
    let whole = json!({
        "id": "11-22", "syncMode": "Push", "apiEndpoint": "https://eu.example:6443",
        "secretRef": {"namespace": "karmada-cluster", "name": "eu"},
        "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "eu-impersonator"},
    });
    let metadata =
        json!({"name": "eu", "uid": "uid-eu", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": metadata, "spec": changed(whole, spec)})
}

/// The Secrets of a Cluster, with the ownerReferences that Karmada sets.
fn secrets(change: &Value) -> Vec<Value> {
    let owner =
        json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "eu", "uid": "uid-eu"}]);
    let whole = |name: &str, data: Value| {
        let document = secret("karmada-cluster", name, &json!({}), &data);
        changed(changed(document, &json!({"metadata": {"ownerReferences": owner}})), change)
    };
    vec![
        whole("eu", json!({"token": "hunter2", "caBundle": CA})),
        whole("eu-impersonator", json!({"token": "hunter2-impersonator"})),
    ]
}

fn read(spec: &Value) -> Result<SourceItem, RefusedItem> {
    read_document(&reader(source()), &cluster(spec), &secrets(&json!({})))
}

#[test]
fn cluster_becomes_a_member_with_two_tokens() {
    let item = read(&json!({
        "provider": "aws", "region": "eu-west-1", "zones": ["a", "b"],
        "proxyURL": "http://proxy:3128", "proxyHeader": {"X-Team": "a, b"},
    }));
    let item = item.unwrap();
    assert_eq!((item.name.as_str(), item.uid.as_deref()), ("eu", Some("11-22")));
    assert_eq!(item.spec.ca_data, Some(encode(CA.trim())));
    assert_eq!(item.spec.credentials.clone().unwrap().token.unwrap().expose(), "hunter2");
    assert_eq!(item.impersonator.clone().unwrap().expose(), "hunter2-impersonator");
    assert_eq!(item.spec.proxy_url.as_deref(), Some("http://proxy:3128"));
    assert_eq!(item.proxy_headers, [("X-Team".to_owned(), ["a", "b"].map(SecretText::new).to_vec())].into());
    let labels = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "tributary.dev/provider"];
    assert_eq!(labels.map(|label| item.labels[label].as_str()), ["eu-west-1", "a__b", "aws"]);
    assert_eq!(item.warnings, []);
}

#[test]
fn endpoint_without_a_scheme_is_https() {
    assert_eq!(read(&json!({"apiEndpoint": "10.0.0.1:6443"})).unwrap().spec.endpoints, ["https://10.0.0.1:6443"]);
    assert_eq!(read(&json!({"zone": "a"})).unwrap().labels["topology.kubernetes.io/zone"], "a");
}

#[test]
fn cluster_in_pull_mode_without_proxy_names_the_proxy() {
    let pull = json!({"syncMode": "Pull", "impersonatorSecretRef": null});
    let item = read(&pull).unwrap();
    assert_eq!(item.warnings.len(), 1);
    assert!(item.warnings[0].reason == "PullWithoutProxy" && item.warnings[0].message.contains("spec.proxyURL"));
    assert!(item.impersonator.is_none());
    let item = read(&changed(pull.clone(), &json!({"proxyURL": "http://proxy:3128"})));
    assert_eq!(item.unwrap().warnings, []);
    // In Pull mode, Karmada's agent registers a cluster without credentials.
    assert_refused(read(&changed(pull, &json!({"secretRef": null}))), "MissingCredential", "spec.proxyURL");
    assert_refused(read(&json!({"secretRef": null})), "MissingCredential", "spec.secretRef is missing");
}

#[test]
fn wrong_clusters_are_refused_with_the_field_and_the_remedy() {
    let other = json!({"namespace": "kube-system", "name": "eu"});
    let absent = json!({"namespace": "karmada-cluster", "name": "us"});
    for (spec, reason, text) in [
        (json!({"apiEndpoint": null}), "Unreadable", "Cluster eu"),
        (json!({"apiEndpoint": ""}), "MissingEndpoint", "spec.apiEndpoint"),
        (json!({"apiEndpoint": "http://eu"}), "InvalidEndpoint", "spec.apiEndpoint"),
        (json!({"apiEndpoint": "ann:hunter2@eu"}), "InvalidEndpoint", "spec.apiEndpoint"),
        (json!({"proxyURL": "http://ann:hunter2@proxy"}), "InvalidProxy", "spec.proxyURL"),
        (json!({"secretRef": other}), "SecretOfOtherNamespace", "spec.secretRef.namespace"),
        (json!({"impersonatorSecretRef": other}), "SecretOfOtherNamespace", "spec.impersonatorSecretRef.namespace"),
        (json!({"secretRef": absent}), "SecretNotFound", "Secret us"),
        (json!({"insecureSkipTLSVerification": true}), "InsecureSkipVerify", "spec.insecureSkipTLSVerification"),
    ] {
        assert_refused(read(&spec), reason, text);
    }
    let mut without_spec = cluster(&json!({}));
    without_spec["spec"] = Value::Null;
    assert_refused(read_document(&reader(source()), &without_spec, &[]), "MissingEndpoint", "spec.apiEndpoint");
    for (data, reason, text) in [
        (json!({"token": ""}), "MissingCredential", "key \"token\""),
        (json!({"caBundle": ""}), "MissingCA", "key \"caBundle\""),
    ] {
        let secrets = secrets(&json!({ "data": data }));
        assert_refused(read_document(&reader(source()), &cluster(&json!({})), &secrets), reason, text);
    }
    assert!(read(&json!({"apiEndpoint": ""})).unwrap_err().keeps_earlier());
    let unread = reader(source()).read_item(&crate::object(&cluster(&json!({}))), &Secrets::default());
    assert_refused(unread, "SecretsUnknown", "Secret eu");
}

#[test]
fn unverified_servers_need_the_source_and_the_process() {
    let insecure = reader_with(changed(source(), &json!({"missingCA": "Insecure"})), InsecureMembers::Allowed);
    let document = cluster(&json!({"insecureSkipTLSVerification": true}));
    let item = read_document(&insecure, &document, &secrets(&json!({}))).unwrap();
    assert!(item.spec.insecure_skip_verify && item.spec.ca_data.is_none());
    assert_eq!(item.warnings[0].reason, "InsecureSkipVerify");
    // The annotation with allowed hosts protects nothing if servers are not verified, so the cluster is refused.
    let secrets = secrets(&json!({"metadata": {"annotations": {"tributary.dev/hosts": "eu.example"}}}));
    assert_refused(read_document(&insecure, &document, &secrets), "HostNotAllowed", "verified servers");
}

/// Without this check, a user who may create Clusters could send the credentials of a different Cluster to a server of
/// their own.
#[test]
fn secret_is_used_only_for_its_own_cluster() {
    let read = |metadata: Value| {
        let secrets = secrets(&json!({ "metadata": metadata }));
        read_document(&reader(source()), &cluster(&json!({"proxyURL": "http://proxy"})), &secrets)
    };
    let owner = |change: Value| {
        let own =
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": "eu", "uid": "uid-eu"});
        json!({"ownerReferences": [changed(own, &change)]})
    };
    assert!(read(owner(json!({"apiVersion": "cluster.karmada.io/v1"}))).is_ok());
    assert!(read(json!({"ownerReferences": null, "annotations": {"tributary.dev/credential-of": "eu"}})).is_ok());
    assert!(read(json!({"annotations": {"tributary.dev/hosts": "EU.example, proxy"}})).is_ok());
    for metadata in [
        json!({"ownerReferences": null}),
        json!({"ownerReferences": null, "annotations": {"tributary.dev/credential-of": "us"}}),
        owner(json!({"uid": "uid-old"})),
        owner(json!({"name": "us"})),
        owner(json!({"kind": "ClusterProfile"})),
        owner(json!({"apiVersion": "cluster.karmada.io.evil/v1alpha1"})),
        owner(json!({"apiVersion": "v1"})),
    ] {
        // The refusal comes before the keys of the Secret are read.
        let secrets = secrets(&json!({"metadata": metadata, "data": {"token": ""}}));
        let document = cluster(&json!({}));
        let read = read_document(&reader(source()), &document, &secrets);
        assert!(!read.as_ref().unwrap_err().keeps_earlier());
        assert_refused(read, "SecretOfOtherCluster", "tributary.dev/credential-of: eu");
    }
    let hosts = json!({"annotations": {"tributary.dev/hosts": "eu.example"}});
    assert_refused(read(hosts), "HostNotAllowed", "\"proxy\"");
}

#[test]
fn impersonator_of_a_different_cluster_is_refused() {
    let mut secrets = secrets(&json!({}));
    secrets[1]["metadata"]["ownerReferences"] = Value::Null;
    let read = read_document(&reader(source()), &cluster(&json!({})), &secrets);
    assert_refused(read, "SecretOfOtherCluster", "Secret eu-impersonator");
}
