//! The member clusters: identity, discovery, health and faults.

mod address;
mod cluster;
mod endpoints;
mod failure;
mod failure_log;
mod fleet;
mod followed_kinds;
mod health;
mod incarnation;
mod kind_changes;
mod mark;
mod member_limits;
mod member_unread;
mod report;
mod served;
mod server_version;
mod setup;

pub use address::ClusterAddress;
pub use cluster::{Cluster, ClusterIdentity, KindReader, MemberShareMetrics};
pub use endpoints::EndpointMetrics;
pub use fleet::Fleet;
pub use health::next_state;
pub use mark::ClusterMark;
pub use member_limits::MemberLimitMetrics;
pub use member_unread::MemberUnreadBytes;
pub(crate) use served::Served;
pub use setup::{ClusterSetup, SetupRevision};
