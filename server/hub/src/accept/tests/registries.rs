//! Registries and policies.

use super::*;

#[tokio::test]
async fn registry_that_fails_the_whole_check_keeps_its_last_generation() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"]}}));
    hub.accept().await;
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["services"]}}));
    hub.put(HubKind::MergedEndpoint, "all", json!({"spec": {}}));
    let check = |configuration: &LoadedConfiguration| {
        let objects = &configuration.objects;
        let is_bad = objects.registries.iter().any(|registry| registry.spec.resources == ["services"]);
        if is_bad || !objects.merged_endpoints.is_empty() { Err("a flag forbids it".to_owned()) } else { Ok(()) }
    };
    let accepted = hub.accept_checked(&check).await;
    assert_outcome(&accepted, &["a"], &["all Conflict", "pods Conflict"]);
    assert_eq!(accepted.configuration.objects.registries[0].spec.resources, ["pods"]);
    assert!(check(&accepted.configuration).is_ok());
}

#[tokio::test]
async fn registries_are_accepted_one_by_one() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    hub.put(HubKind::ResourceRegistry, "first", json!({"spec": {"resources": ["pods"]}}));
    hub.put(HubKind::ResourceRegistry, "second", json!({"spec": {"resources": ["pods", "secrets"]}}));
    hub.put(HubKind::ResourceRegistry, "third", json!({"spec": {"resources": ["services"], "placement": "absent"}}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &["second ResourceConflict"]);
    let third = accepted.verdicts.iter().find(|verdict| verdict.object.name == "third").unwrap();
    assert_eq!(third.resolved_refs.as_ref().unwrap().reason, "ClusterNotFound");
    assert_eq!(accepted.configuration.objects.registries.len(), 2);
}

#[tokio::test]
async fn policies_of_a_member_are_in_the_configuration() {
    let mut hub = Hub::default();
    let schemas = json!([{"name": "few", "maxRequestsInflight": {"max": 1}}]);
    let spec = json!({
        "dispatch": "DenyAll",
        "dispatchPolicies": [{"mode": "Audit", "rules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}],
        "flowControl": {"flowControlSchemas": schemas},
        "logging": {"mode": "Disabled"},
    });
    hub.put_member("a", spec);
    let LoadedConfiguration { dispatch, flow_control, logging, .. } = hub.accept().await.configuration;
    let name = ClusterName::new("a").unwrap();
    assert!(dispatch.clusters[&name].denies_all && dispatch.clusters[&name].policies.len() == 1);
    assert_eq!(flow_control.clusters[&name].schemas.len(), 1);
    assert!(logging.clusters[&name].mode.is_some());
}

#[tokio::test]
async fn member_without_index_is_named_if_a_registry_needs_indexes() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({"index": 1}));
    hub.put_member("b", json!({}));
    let reasons = |accepted: &Acceptance| -> Vec<Option<String>> {
        let members = accepted.verdicts.iter().filter(|verdict| verdict.object.kind == HubKind::UpstreamCluster);
        members.map(|verdict| verdict.indexed.as_ref().map(|state| state.reason.clone())).collect()
    };
    assert_eq!(reasons(&hub.accept().await), [None, None]);
    let spec = json!({"resources": ["pods"], "itemResourceVersions": "Integer"});
    hub.put(HubKind::ResourceRegistry, "pods", json!({ "spec": spec }));
    assert_eq!(reasons(&hub.accept().await), [Some("Indexed".to_owned()), Some("IndexMissing".to_owned())]);
}
