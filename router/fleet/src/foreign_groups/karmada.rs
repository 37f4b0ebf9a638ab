//! The groups of Karmada's aggregated apiserver and search proxy. Source: karmada-io/karmada
//! `pkg/apis/cluster/v1alpha1`, `pkg/apis/search/v1alpha1`.

use super::{PROXY_VERBS, group, kind, resource, subresource};
use crate::discovery::model::Group;

const VERSION: &str = "v1alpha1";
const CLUSTER_GROUP: &str = "cluster.karmada.io";
const SEARCH_GROUP: &str = "search.karmada.io";

pub(super) fn groups() -> Vec<Group> {
    let proxy = |group, name| vec![subresource(kind(group, VERSION, name), "proxy", &PROXY_VERBS)];
    let clusters = resource(
        kind(CLUSTER_GROUP, VERSION, "Cluster"),
        ("clusters", "cluster"),
        &[],
        proxy(CLUSTER_GROUP, "ClusterProxyOptions"),
    );
    let proxying = resource(
        kind(SEARCH_GROUP, VERSION, "Proxying"),
        ("proxying", "proxying"),
        &[],
        proxy(SEARCH_GROUP, "ProxyingOptions"),
    );
    vec![group(CLUSTER_GROUP, VERSION, vec![clusters]), group(SEARCH_GROUP, VERSION, vec![proxying])]
}
