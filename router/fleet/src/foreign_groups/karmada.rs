//! The groups of Karmada's aggregated apiserver and search proxy. Source: karmada-io/karmada
//! `pkg/apis/cluster/v1alpha1`, `pkg/apis/search/v1alpha1`.

use super::{PROXY_VERBS, group, kind, resource, subresource};
use crate::discovery::model::{Group, Subresource};

const VERSION: &str = "v1alpha1";
const CLUSTER_GROUP: &str = "cluster.karmada.io";
const SEARCH_GROUP: &str = "search.karmada.io";

/// Verbs of resources whose objects Karmada's old servers store. Tributary forwards requests for these objects to the
/// old servers.
const OBJECT_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub(super) fn groups() -> Vec<Group> {
    let proxy = |group, name| subresource(kind(group, VERSION, name), "proxy", &PROXY_VERBS);
    let status = |group, name| subresource(kind(group, VERSION, name), "status", &["get", "patch", "update"]);
    let resource = |group, name, names, verbs: &[&str], below: Vec<Subresource>| {
        resource(kind(group, VERSION, name), names, verbs, below)
    };
    let clusters = resource(
        CLUSTER_GROUP,
        "Cluster",
        ("clusters", "cluster"),
        &OBJECT_VERBS,
        vec![status(CLUSTER_GROUP, "Cluster"), proxy(CLUSTER_GROUP, "ClusterProxyOptions")],
    );
    let registries = resource(
        SEARCH_GROUP,
        "ResourceRegistry",
        ("resourceregistries", "resourceregistry"),
        &OBJECT_VERBS,
        vec![status(SEARCH_GROUP, "ResourceRegistry")],
    );
    let below = vec![proxy(SEARCH_GROUP, "ProxyingOptions")];
    let proxying = resource(SEARCH_GROUP, "Proxying", ("proxying", "proxying"), &[], below);
    vec![group(CLUSTER_GROUP, VERSION, vec![clusters]), group(SEARCH_GROUP, VERSION, vec![registries, proxying])]
}
