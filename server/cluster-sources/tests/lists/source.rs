//! The settings of a source: names, labels, identity, conflicts and status.

use std::sync::Arc;

use serde_json::{Value, json};
use tributary_apimachinery::Object;
use tributary_cluster_sources::{Caller, ExchangedIdentity, IdentityPolicy, REFUSED_SHOWN_MAX, SourceReader};
use tributary_crds::{ClusterSource, ClusterSourceSpec, InsecureMembers};

use crate::{CA, assert_refused, changed, object, read, reader, secret};

const RULES: &str = "cluster.core.oam.dev/cluster-gateway-proxy-configuration";

fn source(change: &Value) -> Value {
    changed(json!({"clusterGatewaySecrets": {"namespace": "vela-system"}}), change)
}

fn document(name: &str, metadata: &Value) -> Value {
    let labels =
        json!({"cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken", "region": "eu", "team": "a"});
    let data = json!({"endpoint": "https://eu", "ca.crt": CA, "token": "hunter2"});
    changed(secret("vela-system", name, &labels, &data), &json!({ "metadata": metadata }))
}

#[test]
fn annotations_choose_name_and_index() {
    let annotated = |annotations: Value| read(&reader(source(&json!({}))), &document("A.B", &annotations), &[]);
    let annotated = |key: &str, value: &str| annotated(json!({"annotations": { key: value }}));
    let item = annotated("tributary.dev/cluster-name", "eu").unwrap();
    assert_eq!((item.name.as_str(), item.foreign_name.as_str(), item.spec.index), ("eu", "A.B", None));
    assert_eq!(annotated("tributary.dev/cluster-index", "9999").unwrap().spec.index, Some(9999));
    assert_refused(annotated("tributary.dev/cluster-name", "all"), "InvalidName", "\"all\"");
    for bad in ["10000", "-1", "x", ""] {
        assert_refused(annotated("tributary.dev/cluster-index", bad), "InvalidIndex", "from 0 to 9999");
    }
}

#[test]
fn member_takes_over_the_placement_labels_of_the_source() {
    let labels = |placement: Value| {
        let item = read(&reader(source(&json!({ "placementLabels": placement }))), &document("eu", &json!({})), &[]);
        item.unwrap().labels.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(labels(json!([])), Vec::<String>::new());
    assert_eq!(labels(json!(["region", "zone"])), ["region"]);
    assert_eq!(labels(json!(["*"])), ["cluster.core.oam.dev/cluster-credential-type", "region", "team"]);
}

#[test]
fn younger_item_with_the_name_of_an_older_item_is_refused() {
    let named = |name: &str, created: &str, chosen: Value| -> Arc<Object> {
        let annotations = json!({"tributary.dev/cluster-name": chosen});
        object(&document(name, &json!({"creationTimestamp": created, "annotations": annotations})))
    };
    let objects = [
        named("a", "2026-01-02T00:00:00Z", json!("eu")),
        named("b", "2026-01-01T00:00:00Z", json!("eu")),
        named("c", "2026-01-02T00:00:00Z", json!("eu")),
    ];
    let reading = reader(source(&json!({}))).read_items(&objects, None);
    assert_eq!(reading.items.iter().map(|item| item.object_name.as_str()).collect::<Vec<_>>(), ["b"]);
    let refused: Vec<_> = reading.refused.iter().map(|item| (item.name.as_str(), item.reason)).collect();
    assert_eq!(refused, [("a", "NameConflict"), ("c", "NameConflict")]);
    assert!(reading.refused[0].message.contains("b already is the cluster eu"), "{:?}", reading.refused[0]);
}

#[test]
fn names_with_one_slug_stay_apart() {
    let objects = ["A.B", "a.b", "a-b"].map(|name| object(&document(name, &json!({}))));
    let reading = reader(source(&json!({}))).read_items(&objects, None);
    assert_eq!((reading.items.len(), reading.refused.len()), (3, 0));
}

#[test]
fn status_counts_items_and_shows_the_first_refusals() {
    let secrets = (0..30).map(|number| document(&format!("{number:02}"), &json!({"labels": null})));
    let objects: Vec<_> = secrets.chain([document("eu", &json!({}))]).map(|document| object(&document)).collect();
    let reader = reader(source(&json!({})));
    let status = reader.read_items(&objects, None).status(reader.list());
    assert_eq!((status.found, status.accepted), (Some(31), Some(1)));
    assert_eq!(status.list.as_deref(), Some("clusterGatewaySecrets"));
    assert_eq!(status.refused.len(), REFUSED_SHOWN_MAX);
    assert_eq!((status.refused[0].name.as_str(), status.refused[0].reason.as_str()), ("00", "MissingLabel"));
}

#[test]
fn rules_of_a_secret_come_before_rules_of_the_source() {
    let identity = json!({"identity": {"type": "Rules", "rules": [
        {"type": "StaticMappingIdentityExchanger", "source": {"cluster": "eu"}, "target": {"user": "mapped"}},
    ]}});
    let own = "{spec: {clientIdentityExchanger: {rules: [{type: PrivilegedIdentityExchanger, source: {user: ann}}]}}}";
    let annotated = document("eu", &json!({"annotations": { RULES: own }}));
    let item = read(&reader(source(&identity)), &annotated, &[]).unwrap();
    let IdentityPolicy::Rules(rules) = &item.identity else { panic!("{:?}", item.identity) };
    let exchange = |name| rules.exchange(Caller { name, groups: &[], uid: "" }, &item.foreign_name);
    assert_eq!(exchange("ann"), ExchangedIdentity::Stored);
    assert!(matches!(exchange("bob"), ExchangedIdentity::Mapped(target) if target.user == "mapped"));

    // cluster-gateway ignores the annotation if identities are not exchanged.
    for kind in ["Impersonate", "Stored"] {
        let source = source(&json!({"identity": {"type": kind}}));
        let wrong = document("eu", &json!({"annotations": { RULES: "{" }}));
        assert_eq!(format!("{:?}", read(&reader(source), &wrong, &[]).unwrap().identity), kind);
    }
    let wrong = document("eu", &json!({"annotations": { RULES: "{" }}));
    assert_refused(read(&reader(source(&identity)), &wrong, &[]), "InvalidRules", RULES);
}

#[test]
fn source_with_a_wrong_rule_is_refused() {
    let identity = json!({"identity": {"type": "Rules", "rules": [
        {"name": "r", "type": "PrivilegedIdentityExchanger", "source": {"userPattern": "("}},
    ]}});
    let spec: ClusterSourceSpec = serde_json::from_value(source(&identity)).unwrap();
    let refusal = SourceReader::new(&ClusterSource::new("source", spec), InsecureMembers::Refused).unwrap_err();
    assert_eq!(refusal.reason, "InvalidRules");
    assert!(refusal.message.starts_with("spec.identity.rules[0] (r).source.userPattern"), "{refusal:?}");
}
