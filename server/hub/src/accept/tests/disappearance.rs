//! Objects that disappear from the hub.

use super::*;

#[tokio::test(start_paused = true)]
async fn members_stay_when_most_of_them_disappear_at_once() {
    let mut hub = Hub::default();
    for name in ["a", "b", "c", "d"] {
        hub.put_member(name, json!({}));
    }
    hub.accept().await;
    hub.delete_member("a");
    assert_outcome(&hub.accept().await, &["b", "c", "d"], &[]);
    hub.put_member("a", json!({}));
    hub.accept().await;
    hub.objects.clear();
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a", "b", "c", "d"], &[]);
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    assert_outcome(&hub.accept().await, &[], &[]);
}

#[tokio::test(start_paused = true)]
async fn no_object_leaves_while_most_members_disappear() {
    let mut hub = Hub::default();
    for name in ["a", "b", "c", "d"] {
        hub.put_member(name, json!({}));
    }
    put_one_of_each_other_kind(&mut hub);
    hub.accept().await;
    hub.objects.retain(|(kind, name), _| *kind == HubKind::UpstreamCluster as usize && name == "a");
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a", "b", "c", "d"], &[]);
    assert_eq!(numbers_of_other_kinds(&accepted), (1, 1, 1));
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &[]);
    assert_eq!(numbers_of_other_kinds(&accepted), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn no_object_leaves_while_all_denied_users_disappear() {
    let mut hub = Hub::default();
    hub.put_member("a", json!({}));
    put_one_of_each_other_kind(&mut hub);
    hub.put(HubKind::DeniedUsers, "others", json!({"deniedUsers": ["bob"]}));
    hub.accept().await;
    hub.objects.remove(&(HubKind::DeniedUsers as usize, "others".to_owned()));
    assert_eq!(hub.accept().await.denied.into_iter().collect::<Vec<_>>(), ["ann"]);
    hub.objects.clear();
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["a"], &[]);
    assert_eq!(numbers_of_other_kinds(&accepted), (1, 1, 1));
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    assert_eq!(numbers_of_other_kinds(&hub.accept().await), (0, 0, 0));
}

fn put_one_of_each_other_kind(hub: &mut Hub) {
    hub.put(HubKind::DeniedUsers, "leavers", json!({"deniedUsers": ["ann"]}));
    hub.put(HubKind::ResourceRegistry, "pods", json!({"spec": {"resources": ["pods"]}}));
    hub.put(HubKind::MergedEndpoint, "all", json!({"spec": {}}));
}

/// The numbers of denied users, registries and MergedEndpoints in force.
fn numbers_of_other_kinds(accepted: &Acceptance) -> (usize, usize, usize) {
    let objects = &accepted.configuration.objects;
    (accepted.denied.len(), objects.registries.len(), objects.merged_endpoints.len())
}

#[tokio::test(start_paused = true)]
async fn members_of_a_source_stay_until_the_source_is_deleted() {
    let mut hub = Hub::default();
    hub.put_gateway_source("kubevela");
    for index in 0..4 {
        hub.put_gateway_secret(&format!("member-{index}"), json!({}), json!({}));
    }
    assert_eq!(hub.accept().await.configuration.clusters.len(), 4);
    // The list is not readable, for example after a start.
    let list = hub.lists.remove("kubevela").unwrap();
    let accepted = hub.accept().await;
    assert_eq!(accepted.configuration.clusters.len(), 4);
    assert_eq!(accepted.verdicts[0].source.as_ref().unwrap().found(), None);
    // Most items disappear at once.
    hub.lists.insert("kubevela".to_owned(), list.clone().into_iter().take(1).collect());
    let accepted = hub.accept().await;
    assert_eq!((accepted.configuration.clusters.len(), accepted.decides_at.is_some()), (4, true));
    hub.lists.insert("kubevela".to_owned(), list);
    // A wrong generation of the source changes nothing.
    hub.put_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "vela-system"}, "unknown": 1}));
    let accepted = hub.accept().await;
    assert_eq!(accepted.verdicts[0].accepted.reason, "Invalid");
    assert_eq!((accepted.configuration.clusters.len(), accepted.decides_at), (4, None));
    // The list of ClusterSources is empty, as after the deletion of the definition.
    let source = hub.objects.remove(&(HubKind::ClusterSource as usize, "kubevela".to_owned())).unwrap();
    let accepted = hub.accept().await;
    assert_eq!((accepted.configuration.clusters.len(), accepted.decides_at.is_some()), (4, true));
    tokio::time::sleep_until(accepted.decides_at.unwrap()).await;
    assert_outcome(&hub.accept().await, &[], &[]);
    // A single deletion counts at once.
    hub.objects.insert((HubKind::ClusterSource as usize, "kubevela".to_owned()), source);
    hub.put_gateway_source("kubevela");
    hub.put_source("other", json!({"clusterGatewaySecrets": {"namespace": "other"}}));
    assert_eq!(hub.accept().await.configuration.clusters.len(), 4);
    hub.objects.remove(&(HubKind::ClusterSource as usize, "kubevela".to_owned()));
    assert_outcome(&hub.accept().await, &[], &[]);
}
