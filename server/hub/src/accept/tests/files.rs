//! ClusterSources of files, whose lists are in the hub.

use super::*;

fn source(spec: Value) -> ClusterSource {
    ClusterSource::new("kubevela", serde_json::from_value(spec).unwrap())
}

#[tokio::test]
async fn source_of_a_file_yields_members_of_the_hub_s_list() {
    let gateway = || source(json!({"clusterGatewaySecrets": {"namespace": "vela-system"}}));
    let mut hub = Hub { file_sources: vec![gateway()], ..Hub::default() };
    hub.put_gateway_secret("eu", json!({}), json!({}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["eu"], &[]);
    assert_eq!(items(&accepted, "kubevela"), ["eu eu Accepted"]);
    assert_eq!(hub.in_force.source_lists().count(), 1);

    // A source of the hub does not take the place of the file, also not after a start from the copy.
    hub.put_source("kubevela", json!({"clusterGatewaySecrets": {"namespace": "other"}}));
    let accepted = hub.accept().await;
    assert_outcome(&accepted, &["eu"], &["kubevela NameConflict"]);
    let of_hub = accepted.verdicts.iter().find(|verdict| verdict.accepted.reason == "NameConflict").unwrap();
    assert!(of_hub.source.is_none(), "the items belong to the source of the file");
    let copy = serde_json::to_string(&hub.in_force).unwrap();
    hub.in_force = serde_json::from_str(&copy).unwrap();
    assert_outcome(&hub.accept_snapshot(&HubSnapshot::default(), &|_| Ok(())).await, &["eu"], &[]);
    hub.objects.clear();

    // A wrong file keeps the last form. Without the file, the members leave.
    hub.file_sources = vec![source(json!({"clusterGatewaySecrets": {"namespace": "a"}, "karmadaClusters": {}}))];
    assert_outcome(&hub.accept().await, &["eu"], &["kubevela Invalid"]);
    hub.file_sources.clear();
    assert_outcome(&hub.accept().await, &[], &[]);
}
