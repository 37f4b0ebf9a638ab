//! The copy of the objects in force.

use super::*;

#[tokio::test]
async fn copy_of_the_objects_in_force_serves_without_the_hub() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({"index": 3}));
    hub.put(HubKind::DeniedUsers, "leavers", json!({"deniedUsers": ["ann"]}));
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"]}}));
    hub.accept().await;
    let copy = serde_json::to_string(&hub.in_force).unwrap();
    let mut restarted = Hub { in_force: serde_json::from_str(&copy).unwrap(), ..Hub::default() };
    let accepted = restarted.accept_snapshot(&HubSnapshot::default(), &|_| Ok(())).await;
    let spec = &accepted.configuration.clusters[0];
    assert!(spec.config.as_ref().unwrap().auth_info.token.is_some() && spec.index == Some(3));
    assert_eq!(accepted.denied.into_iter().collect::<Vec<_>>(), ["ann"]);
    assert_eq!(accepted.configuration.objects.registries.len(), 1);
}

#[tokio::test]
async fn remembered_member_without_verification_needs_the_flag() {
    let mut hub = Hub::default();
    hub.put_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "vela-system"}, "missingCA": "Insecure"}));
    hub.put_gateway_secret("eu", json!({"ca.crt": null}), json!({}));
    assert_outcome(&hub.accept().await, &["eu"], &[]);
    let copy = serde_json::to_vec(&hub.in_force).unwrap();
    let mut in_force: InForce = serde_json::from_slice(&copy).unwrap();
    describe_remembered(&mut in_force, &HubRules { insecure: InsecureMembers::Refused, ..rules() }).await;
    assert!(in_force.members["eu"].spec.is_none());
    describe_remembered(&mut in_force, &rules()).await;
    let warnings = &in_force.members["eu"].spec.as_ref().unwrap().warnings;
    assert!(!warnings.is_empty() && *warnings == hub.in_force.members["eu"].spec.as_ref().unwrap().warnings);
}

#[tokio::test]
async fn copy_of_the_configuration_has_the_items_with_their_credentials() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    hub.put_gateway_secret("eu", json!({}), json!({}));
    hub.accept().await;
    let text = serde_json::to_string(&hub.in_force).unwrap();
    let mut restored = Hub { in_force: serde_json::from_str(&text).unwrap(), ..Hub::default() };
    let empty = HubSnapshot::default();
    let accepted = restored.accept_snapshot(&empty, &|_| Ok(())).await;
    assert_outcome(&accepted, &["eu"], &[]);
    assert_eq!(accepted.configuration.foreign.len(), 1);
    assert!(accepted.configuration.clusters[0].config.is_ok());
    // The unchanged list changes nothing.
    restored.objects.clone_from(&hub.objects);
    restored.lists.clone_from(&hub.lists);
    let accepted = restored.accept().await;
    assert_outcome(&accepted, &["eu"], &[]);
    assert!(!accepted.is_changed);
}
