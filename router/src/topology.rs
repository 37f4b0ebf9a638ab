//! The member clusters as they are now: who they are, what they serve, and what is wrong with them.

mod cluster;
mod endpoints;
mod fleet;
mod mark;
mod server_version;
mod trouble;

pub use cluster::{Cluster, ClusterSetup, Identity, MemberShareMetrics};
pub use endpoints::EndpointMetrics;
pub use fleet::Fleet;
pub use mark::ClusterMark;
pub use server_version::ServerVersion;
