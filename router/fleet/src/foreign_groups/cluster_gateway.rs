//! The group of cluster-gateway. Source: oam-dev/cluster-gateway `pkg/apis/cluster/v1alpha1`.

use super::{PROXY_VERBS, group, kind, owned, resource, subresource};
use crate::discovery::model::{Group, Resource};

/// Name of cluster-gateway's API group.
pub const GROUP: &str = "cluster.core.oam.dev";

/// Only version of the API group.
pub const VERSION: &str = "v1alpha1";

/// Short names of `virtualclusters`.
const VIRTUAL_CLUSTER_NAMES: [&str; 5] = ["vc", "vcluster", "vclusters", "virtual-cluster", "virtual-clusters"];

pub(super) fn groups() -> Vec<Group> {
    let kind = |name| kind(GROUP, VERSION, name);
    let below = vec![
        subresource(kind("ClusterGateway"), "health", &["get", "update"]),
        subresource(kind("ClusterGatewayProxyOptions"), "proxy", &PROXY_VERBS),
    ];
    let read = ["get", "list"];
    let gateways = resource(kind("ClusterGateway"), ("clustergateways", "clustergateway"), &read, below);
    let clusters = resource(kind("VirtualCluster"), ("virtualclusters", "virtualcluster"), &read, Vec::new());
    let clusters = Resource { short_names: owned(&VIRTUAL_CLUSTER_NAMES), ..clusters };
    vec![group(GROUP, VERSION, vec![gateways, clusters])]
}
