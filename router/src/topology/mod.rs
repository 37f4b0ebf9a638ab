//! The member clusters as they are now: who they are, what they serve, and what is wrong with them.

mod cluster;
mod fleet;
mod mark;

pub use cluster::{Cluster, ClusterSetup};
pub use fleet::Fleet;
pub use mark::ClusterMark;
