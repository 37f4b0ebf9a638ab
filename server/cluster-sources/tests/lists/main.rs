//! Readings of each list, with the inputs that are refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod argo_cd;
mod cluster_gateway;
mod cluster_profiles;
mod karmada;
mod kube_gateway;
mod kubeconfigs;
mod managed_clusters;
mod source;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tributary_apimachinery::{Object, ObjectDecoder, Snapshot};
use tributary_cluster_sources::{AccessProviders, RefusedItem, Secrets, SourceItem, SourceReader};
use tributary_crds::{ClusterSource, ClusterSourceSpec, InsecureMembers};

/// The secret text in all test Secrets. It must never appear in messages.
const SECRET: &str = "hunter2";

const CA: &str = "-----BEGIN CERTIFICATE-----\nauthority\n";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nclient\n";
const KEY: &str = "-----BEGIN PRIVATE KEY-----\nhunter2\n";

/// A file of access providers.
const PROVIDERS: &str = r#"{"providers": [
    {"name": "first", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/usr/bin/first", "provideClusterInfo": true}},
    {"name": "second", "profileSourcedCLIArgsPolicy": "Append", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/usr/bin/second", "args": ["get"]}}]}"#;

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// Returns a reader for a source that is described by its `spec`.
fn reader_with(spec: Value, insecure: InsecureMembers) -> SourceReader {
    let spec: ClusterSourceSpec = serde_json::from_value(spec).unwrap();
    let providers = Arc::new(AccessProviders::parse(PROVIDERS).unwrap());
    SourceReader::new(&ClusterSource::new("source", spec), insecure, Some(&providers)).unwrap()
}

fn reader(spec: Value) -> SourceReader {
    reader_with(spec, InsecureMembers::Refused)
}

fn object(document: &Value) -> Arc<Object> {
    Arc::new(ObjectDecoder::new("", "", Arc::default()).decode(document.to_string().as_bytes()).unwrap())
}

/// Makes a Secret. `data` has texts, and `null` removes a key from earlier data.
fn secret(namespace: &str, name: &str, labels: &Value, data: &Value) -> Value {
    let data: Map<String, Value> = data
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, text)| text.is_string())
        .map(|(key, text)| (key.clone(), json!(encode(text.as_str().unwrap()))))
        .collect();
    let metadata = json!({"name": name, "namespace": namespace, "uid": name, "labels": labels,
        "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

/// Returns `base` with the fields of `change` in place of its own, at all levels.
fn changed(mut base: Value, change: &Value) -> Value {
    match (base.as_object_mut(), change.as_object()) {
        (Some(fields), Some(changes)) => {
            for (key, change) in changes {
                let before = fields.remove(key).unwrap_or(Value::Null);
                fields.insert(key.clone(), changed(before, change));
            }
            base
        }
        _ => change.clone(),
    }
}

fn snapshot(documents: &[Value]) -> Snapshot {
    documents.iter().map(object).collect()
}

fn read(reader: &SourceReader, document: &Value, secrets: &[Value]) -> Result<SourceItem, RefusedItem> {
    reader.read_item(&object(document), &Secrets::new(Some(&snapshot(secrets))))
}

/// Checks that a reading is refused with a reason, and with a message that contains a text and no secret.
fn assert_refused(read: Result<SourceItem, RefusedItem>, reason: &str, text: &str) {
    let refused = match read {
        Ok(item) => panic!("{reason}: accepted as {item:?}"),
        Err(refused) => refused,
    };
    assert_eq!(refused.reason, reason, "{refused:?}");
    assert!(refused.message.contains(text), "{text}: {refused:?}");
    assert!(!refused.message.contains(SECRET), "{refused:?}");
    assert!(refused.message.ends_with('.'), "{refused:?}");
}
