//! The member clusters as they are now: who they are, what they serve, and what is wrong with them.

mod address;
mod cluster;
mod endpoints;
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
mod trouble;
mod trouble_log;

pub use address::ClusterAddress;
pub(crate) use cluster::{Cluster, ClusterIdentity, MemberShareMetrics};
pub(crate) use endpoints::EndpointMetrics;
pub(crate) use fleet::Fleet;
pub(crate) use health::next_state;
pub(crate) use mark::ClusterMark;
pub(crate) use member_limits::MemberLimitMetrics;
pub(crate) use member_unread::MemberUnreadBytes;
pub(crate) use served::Served;
pub use setup::{ClusterSetup, SetupRevision};
