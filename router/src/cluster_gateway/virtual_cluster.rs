//! The kind `VirtualCluster`.

use std::cmp::Reverse;

use serde_json::{Value, json};
use tributary_fleet::foreign_groups::CLUSTER_GATEWAY_GROUP;
use tributary_fleet::foreign_member::ForeignMember;

use super::gateway_kind::{GatewayKind, api_version};

/// Name of the VirtualCluster for the hub itself. No member has this name.
const LOCAL: &str = "local";

/// Returns the VirtualClusters: first the hub, then the members from newest to oldest.
pub(super) fn virtual_clusters<'a>(members: impl IntoIterator<Item = &'a ForeignMember>) -> Vec<Value> {
    let mut members: Vec<_> = members.into_iter().filter(|member| member.name != LOCAL).collect();
    // The times are RFC 3339 in UTC with equal precision, so their texts have the order of the times.
    members.sort_by_key(|member| Reverse(&member.created));
    [local()].into_iter().chain(members.into_iter().map(virtual_cluster)).collect()
}

fn local() -> Value {
    let metadata = json!({"name": LOCAL, "creationTimestamp": null, "labels": labels([], true)});
    object(&metadata, &json!({"endpoint": "-", "accepted": true, "credential-type": "Internal"}))
}

fn virtual_cluster(member: &ForeignMember) -> Value {
    let facts = member.gateway.clone().unwrap_or_default();
    let mut spec = json!({"endpoint": facts.endpoint, "accepted": true, "credential-type": facts.credential_type});
    if let Some(alias) = facts.alias.filter(|alias| !alias.is_empty()) {
        spec["alias"] = json!(alias);
    }
    let labels = labels(member.labels.iter().map(|(key, value)| (&**key, &**value)), false);
    object(&json!({"name": member.name, "creationTimestamp": member.created, "labels": labels}), &spec)
}

fn object(metadata: &Value, spec: &Value) -> Value {
    json!({"kind": GatewayKind::VirtualCluster.as_str(), "apiVersion": api_version(), "metadata": metadata, "spec": spec})
}

/// Returns the labels of a VirtualCluster: the labels of the member's Secret, without cluster-gateway's labels, and the
/// label that marks the hub.
fn labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>, is_hub: bool) -> Value {
    let own = labels.into_iter().filter(|(key, _)| !key.starts_with(CLUSTER_GATEWAY_GROUP));
    let own = own.map(|(key, value)| (key.to_owned(), json!(value)));
    let hub = (format!("{CLUSTER_GATEWAY_GROUP}/control-plane"), json!(is_hub.to_string()));
    Value::Object(own.chain([hub]).collect())
}

#[cfg(test)]
mod tests {
    use super::super::gateway::tests::member;
    use super::*;

    #[test]
    fn hub_is_first_and_the_newest_member_follows() {
        let members = [
            member("old", "2026-01-01T00:00:00Z", &[]),
            member("new", "2026-03-01T00:00:00Z", &[]),
            member("middle", "2026-02-01T00:00:00Z", &[]),
        ];
        let objects = virtual_clusters(&members);
        let names: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["local", "new", "middle", "old"]);
        assert_eq!(objects[0]["spec"]["credential-type"], "Internal");
        assert_eq!(objects[0]["metadata"]["labels"], json!({"cluster.core.oam.dev/control-plane": "true"}));
    }

    #[test]
    fn virtual_cluster_has_no_labels_of_cluster_gateway() {
        let labels = [("cluster.core.oam.dev/cluster-credential-type", "X509Certificate"), ("team", "a")];
        let member = member("eu", "2026-01-01T00:00:00Z", &labels);
        assert_eq!(
            virtual_cluster(&member),
            json!({
                "kind": "VirtualCluster",
                "apiVersion": "cluster.core.oam.dev/v1alpha1",
                "metadata": {"name": "eu", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"team": "a", "cluster.core.oam.dev/control-plane": "false"}},
                "spec": {"alias": "Europe", "accepted": true, "endpoint": "https://192.0.2.1:6443",
                    "credential-type": "X509Certificate"},
            })
        );
    }
}
