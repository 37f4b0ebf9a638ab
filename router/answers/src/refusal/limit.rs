//! Limits that a request has reached.

use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource, Status, StatusReason};
use tributary_flow_control::Refused;
use tributary_sharing::flow::fair_semaphore::Exceeded;
use tributary_sharing::flow::long_answers::NoTurn;

use super::wording::listed;

/// Retry-After in seconds. kube-apiserver's max-in-flight filter and its flow control send the same.
const RETRY_AFTER: u32 = 1;

/// Retry-After in seconds if no further namespace can be read. Watches last for minutes.
const NAMESPACE_RETRY_AFTER: u32 = 5;

/// The limit that is reached.
#[derive(Clone, Debug)]
pub enum LimitRefusal {
    /// The client's share of a common limit: 429.
    Share(Exceeded),
    /// The limit of the request's flow-control schema: 429.
    FlowControl {
        /// Cluster of the schema; `None` for the merged view.
        cluster: Option<ClusterName>,
        /// The schema, and its limit.
        refused: Box<Refused>,
    },
    /// There is no turn for a long answer: 429.
    Turn(NoTurn),
    /// The client's share of the open requests at a cluster: 429.
    ClusterPlaces {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The exceeded share.
        exceeded: Exceeded,
        /// Whether the request is long-running.
        is_lasting: bool,
    },
    /// The client's share of the bytes that long-running answers of all clusters may leave unread: 429.
    MemberUnread {
        /// The cluster that the request is for.
        cluster: ClusterName,
        /// The exceeded share.
        exceeded: Exceeded,
    },
    /// The client's share of bytes, for a cluster's answer about an object: 429.
    ClusterAnswer {
        /// Name of the cluster.
        cluster: ClusterName,
        /// The exceeded share.
        exceeded: Exceeded,
    },
    /// Too many requests to a cluster for objects: 429.
    Questions {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// No further namespace can be read by itself (`--max-namespace-views`): 429.
    Namespaces {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Namespaces in use.
        all: usize,
        /// Namespaces that this connection uses.
        own: usize,
        /// Limit of namespaces.
        max: usize,
    },
    /// The body is too large: 413.
    Body {
        /// Limit in bytes.
        max: usize,
    },
    /// A list is too long for protobuf, which begins with the length: 406.
    ProtobufList {
        /// Limit in bytes.
        max: usize,
    },
    /// The time limit of the request: 504 without Retry-After, because the cluster may have acted.
    Time {
        /// The time limit.
        limit: Duration,
        /// Whether the limit is the request's own parameter `timeout`.
        is_own: bool,
        /// Clusters that were asked and have not answered.
        clusters: Vec<ClusterName>,
    },
}

impl LimitRefusal {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Share(exceeded) => Status::too_many_requests(exceeded.to_string(), RETRY_AFTER),
            Self::FlowControl { cluster, refused } => flow_control(cluster.as_ref(), refused),
            Self::Turn(none) => Status::too_many_requests(none.to_string(), RETRY_AFTER),
            Self::ClusterPlaces { cluster, exceeded, is_lasting } => cluster_places(cluster, exceeded, *is_lasting),
            Self::MemberUnread { cluster, exceeded } => member_unread(cluster, exceeded),
            Self::ClusterAnswer { cluster, exceeded } => Status::too_many_requests(
                format!("cluster {cluster}: no room for what it says of the object: {exceeded}"),
                RETRY_AFTER,
            ),
            Self::Questions { cluster } => Status::too_many_requests(
                format!(
                    "too many requests are looking for objects in cluster {cluster}, of this connection or of all together"
                ),
                RETRY_AFTER,
            ),
            Self::Namespaces { resource, all, own, max } => namespaces(resource, *all, *own, *max),
            Self::Body { max } => Status::request_entity_too_large(*max),
            Self::ProtobufList { max } => protobuf_list(*max),
            Self::Time { limit, is_own, clusters } => {
                let whose = if *is_own { "the request's parameter timeout" } else { "the server's --request-timeout" };
                let who = if clusters.is_empty() { "" } else { "; no answer yet from " };
                Status::request_timed_out(format_args!("{whose}: {limit:?}{who}{}", listed(clusters)))
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

fn cluster_places(cluster: &ClusterName, exceeded: &Exceeded, is_lasting: bool) -> Status {
    let remedy = match is_lasting {
        true => format!(
            "end some of them, or watch without /clusters/{cluster} (kubectl: without --context {cluster}), which needs \
             none of them"
        ),
        false => "read their answers to the end, or send fewer at once".to_owned(),
    };
    Status::too_many_requests(format!("cluster {cluster}: {exceeded}; {remedy}"), RETRY_AFTER)
}

/// Long-running requests to all clusters share this limit.
fn member_unread(cluster: &ClusterName, exceeded: &Exceeded) -> Status {
    let remedy = "end some logs and watches, in whichever cluster, or raise the flag";
    Status::too_many_requests(format!("cluster {cluster}: {exceeded}; {remedy}"), RETRY_AFTER)
}

fn namespaces(resource: &GroupVersionResource, all: usize, own: usize, max: usize) -> Status {
    let message = format!(
        "{resource} of {all} namespaces are being read or watched, {own} of them by this connection, which may hold at most half \
         of what others leave of {max} (--max-namespace-views), because a cluster forbids listing all namespaces; end some watches, raise \
         the flag, or allow that list (`/readyz?verbose` names the cluster)"
    );
    Status::too_many_requests(message, NAMESPACE_RETRY_AFTER)
}

fn protobuf_list(max: usize) -> Status {
    let message = format!(
        "the list is longer than {max} bytes, which is the most that is gathered from the clusters for it; ask for pages (limit), or \
         for JSON"
    );
    Status::new(406, StatusReason::NotAcceptable, message)
}
