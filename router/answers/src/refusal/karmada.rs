//! Refusals in the words of Karmada, whose clients may look for these texts.
//!
//! Source: karmada-io/karmada `pkg/registry/cluster/storage/aggregate.go` at 010d3895.

use tributary_apimachinery::ClusterName;

use super::{ClusterRefusal, Refusal, RouteRefusal};

/// The text for a named object that no cluster has, and for a resource that no cluster serves.
const NOT_FOUND: &str = "resource not found or don't have permission to get it";

impl Refusal {
    /// Returns the plain text with which Karmada refuses a request to all clusters; `None` if Karmada has no such
    /// refusal. The HTTP status code is that of [`status_at`](Self::status_at).
    pub fn text_of_karmada(&self) -> Option<String> {
        match self {
            Self::NoRoute => Some(NOT_FOUND.to_owned()),
            Self::Route(refusal) if matches!(**refusal, RouteRefusal::UnnamedAtKarmada(_)) => {
                Some(refusal.status().message)
            }
            Self::Cluster(refusal) => match &**refusal {
                ClusterRefusal::NotFound { .. } => Some(NOT_FOUND.to_owned()),
                ClusterRefusal::NameInSeveral { clusters, .. } => {
                    let names: Vec<_> = clusters.iter().map(ClusterName::as_str).collect();
                    Some(format!("conflict resource, exist in more than one cluster: {}", names.join(",")))
                }
                _ => None,
            },
            _ => None,
        }
    }
}
