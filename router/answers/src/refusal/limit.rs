//! Refusals because a request exceeds a limit.

use std::time::Duration;

use tributary_apimachinery::{ClusterName, Door, GroupVersionResource, Status, StatusReason};
use tributary_flow_control::Refused;
use tributary_sharing::flow::fair_semaphore::Exceeded;
use tributary_sharing::flow::long_answers::NoWritePermit;

use super::wording::listed;

/// Retry-After in seconds, as in kube-apiserver's max-in-flight filter and flow control.
const RETRY_AFTER: u32 = 1;

/// Retry-After in seconds if the limit of namespace views is reached. Longer than `RETRY_AFTER`, because the watches
/// that use the views last for minutes.
const NAMESPACE_RETRY_AFTER: u32 = 5;

/// Limit that a request exceeds.
#[derive(Clone, Debug)]
pub enum LimitRefusal {
    /// The client's share of a limit that concerns all clusters is used up: 429.
    Share(Exceeded),
    /// The flow-control schema that matches the request has reached its limit: 429.
    FlowControl {
        /// Cluster to which the schema belongs; `None` for the merged view.
        cluster: Option<ClusterName>,
        /// The flow-control schema and its limit.
        refused: Box<Refused>,
    },
    /// No permit to write a long answer is free: 429.
    WritePermit(NoWritePermit),
    /// The client's share of a cluster's concurrent requests is used up: 429.
    ClusterPlaces {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Client's share of the limit, and the part of the limit that is in use.
        exceeded: Exceeded,
        /// True if the request is long-running.
        is_long_running: bool,
    },
    /// The client's share of unread bytes of long-running answers is used up: 429. The limit covers the answers of all
    /// clusters together.
    MemberUnread {
        /// Cluster of the request.
        cluster: ClusterName,
        /// Client's share of the limit, and the part of the limit that is in use.
        exceeded: Exceeded,
    },
    /// The client's share of body bytes in memory has no room for a cluster's answer about an object: 429.
    ClusterAnswer {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Client's share of the limit, and the part of the limit that is in use.
        exceeded: Exceeded,
    },
    /// Too many concurrent lookups of objects in a cluster: 429.
    Lookups {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// All namespace views (`--max-namespace-views`) are in use: 429. A namespace view caches a single namespace of
    /// clusters that forbid reading all namespaces.
    Namespaces {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Number of cached namespace views.
        all: usize,
        /// Number of these namespace views that the client's connection uses.
        own: usize,
        /// Maximum number of cached namespace views.
        max: usize,
    },
    /// The request's body exceeds the size limit: 413.
    Body {
        /// Limit in bytes.
        max: usize,
    },
    /// A list in protobuf exceeds the size limit: 406. Such a list begins with its length, so Tributary cannot send it
    /// in parts.
    ProtobufList {
        /// Limit in bytes.
        max: usize,
    },
    /// The request has exceeded its time limit: 504 without Retry-After, because a cluster may have acted.
    Time {
        /// The time limit.
        limit: Duration,
        /// True if the client set the time limit with the parameter `timeout`.
        is_own: bool,
        /// Clusters that got the request and have not answered.
        clusters: Vec<ClusterName>,
    },
}

impl LimitRefusal {
    pub(super) fn status(&self, door: Door) -> Status {
        match self {
            Self::Share(exceeded) => Status::too_many_requests(exceeded.to_string(), RETRY_AFTER),
            Self::FlowControl { cluster, refused } => flow_control(cluster.as_ref(), refused),
            Self::WritePermit(none) => Status::too_many_requests(none.to_string(), RETRY_AFTER),
            Self::ClusterPlaces { cluster, exceeded, is_long_running } => {
                cluster_places(door, cluster, exceeded, *is_long_running)
            }
            Self::MemberUnread { cluster, exceeded } => member_unread(cluster, exceeded),
            Self::ClusterAnswer { cluster, exceeded } => Status::too_many_requests(
                format!("cluster {cluster}: no memory for its answer about the object: {exceeded}"),
                RETRY_AFTER,
            ),
            Self::Lookups { cluster } => Status::too_many_requests(
                format!(
                    "too many lookups of objects in cluster {cluster} are in flight, for this connection or in total"
                ),
                RETRY_AFTER,
            ),
            Self::Namespaces { resource, all, own, max } => namespaces(resource, *all, *own, *max),
            Self::Body { max } => Status::request_entity_too_large(*max),
            Self::ProtobufList { max } => protobuf_list(*max),
            Self::Time { limit, is_own, clusters } => {
                let whose = if *is_own { "the request's parameter timeout" } else { "the server's --request-timeout" };
                let separator = if clusters.is_empty() { "" } else { "; no answer yet from " };
                Status::request_timed_out(format_args!("{whose}: {limit:?}{separator}{}", listed(clusters)))
            }
        }
    }
}

fn flow_control(cluster: Option<&ClusterName>, refused: &Refused) -> Status {
    let message = match cluster {
        Some(cluster) => format!("cluster {cluster}: {refused}"),
        None => refused.to_string(),
    };
    let status = Status::new(429, StatusReason::TooManyRequests, message);
    match refused.retry_after {
        Some(after) => status.with_retry_after(u32::try_from(after.as_secs()).unwrap_or(u32::MAX)),
        None => status,
    }
}

fn cluster_places(door: Door, cluster: &ClusterName, exceeded: &Exceeded, is_long_running: bool) -> Status {
    let remedy = match is_long_running {
        true => format!(
            "end some of these requests, or watch without {} (kubectl: without {}): such a watch needs no request to \
             the cluster",
            door.cluster_path(cluster),
            door.kubectl_flag(cluster)
        ),
        false => "read the answers to the end, or send fewer requests at once".to_owned(),
    };
    Status::too_many_requests(format!("cluster {cluster}: {exceeded}; {remedy}"), RETRY_AFTER)
}

/// Makes the 429 for unread bytes. The limit covers long-running requests to all clusters, so the remedy names requests
/// to any cluster.
fn member_unread(cluster: &ClusterName, exceeded: &Exceeded) -> Status {
    let remedy = "end some logs and watches of any cluster, or raise the limit";
    Status::too_many_requests(format!("cluster {cluster}: {exceeded}; {remedy}"), RETRY_AFTER)
}

fn namespaces(resource: &GroupVersionResource, all: usize, own: usize, max: usize) -> Status {
    let message = format!(
        "{resource} are cached separately for {all} namespaces, because a cluster forbids a list of all namespaces; \
         {own} of these namespaces are for this connection, which may use at most half of the limit {max} \
         (--max-namespace-views) that other connections do not use; end some watches, raise the limit, or allow the \
         list (`/readyz?verbose` names the cluster)"
    );
    Status::too_many_requests(message, NAMESPACE_RETRY_AFTER)
}

fn protobuf_list(max: usize) -> Status {
    let message = format!(
        "the list is longer than {max} bytes, the limit for a protobuf list from several clusters; request pages \
         (limit), or JSON"
    );
    Status::new(406, StatusReason::NotAcceptable, message)
}
