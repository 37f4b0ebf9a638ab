//! The settings of a source: names, labels and identity.

use serde_json::{Value, json};
use tributary_authentication::{ExchangedIdentity, UserInfo};
use tributary_cluster_sources::SourceReader;
use tributary_crds::{ClusterSource, ClusterSourceSpec, InsecureMembers};

use crate::{CA, assert_refused, changed, read, reader, secret};

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
fn rules_of_a_secret_come_before_rules_of_the_source() {
    let identity = json!({"identity": {"type": "Rules", "rules": [
        {"type": "StaticMappingIdentityExchanger", "source": {"cluster": "eu"}, "target": {"user": "mapped"}},
    ]}});
    let own = "{spec: {clientIdentityExchanger: {rules: [{type: PrivilegedIdentityExchanger, source: {user: ann}}]}}}";
    let annotated = document("eu", &json!({"annotations": { RULES: own }}));
    let item = read(&reader(source(&identity)), &annotated, &[]).unwrap();
    let user = |name: &str| UserInfo { username: name.to_owned(), ..UserInfo::default() };
    assert_eq!(item.identity.exchange(&user("ann"), &item.foreign_name), ExchangedIdentity::Stored);
    assert_eq!(item.identity.exchange(&user("bob"), &item.foreign_name), ExchangedIdentity::Mapped(&user("mapped")));

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
fn identity_of_a_source_is_refused_if_no_door_uses_the_names_of_its_list() {
    for list in [json!({"karmadaClusters": {}}), json!({"argoCDSecrets": {"namespace": "argocd"}})] {
        let spec: ClusterSourceSpec =
            serde_json::from_value(changed(list, &json!({"identity": {"type": "Stored"}}))).unwrap();
        let refusal =
            SourceReader::new(&ClusterSource::new("source", spec), InsecureMembers::Refused, None).unwrap_err();
        assert_eq!(refusal.reason, "NotSupported");
    }
}

#[test]
fn source_with_a_wrong_rule_is_refused() {
    let identity = json!({"identity": {"type": "Rules", "rules": [
        {"name": "r", "type": "PrivilegedIdentityExchanger", "source": {"userPattern": "("}},
    ]}});
    let spec: ClusterSourceSpec = serde_json::from_value(source(&identity)).unwrap();
    let refusal = SourceReader::new(&ClusterSource::new("source", spec), InsecureMembers::Refused, None).unwrap_err();
    assert_eq!(refusal.reason, "InvalidRules");
    assert!(refusal.message.starts_with("spec.identity.rules[0] (r).source.userPattern"), "{refusal:?}");
}
