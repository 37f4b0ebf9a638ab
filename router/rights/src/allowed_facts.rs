//! Methods by which Tributary decides about rights in a cluster, and the age of the facts that a decision may use.

use tokio::time::Instant;

/// Method by which Tributary decides about a user's rights in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionMethod {
    /// Tributary decides by its mirror of the cluster's roles and bindings.
    Rules,
    /// The cluster decides: Tributary sends it access reviews.
    Reviews,
    /// The cluster decides, and Tributary sends it access reviews only for forwarded requests. Reads from cachers show
    /// no object of the cluster.
    Live,
}

/// Facts (mirrored roles and bindings, and results of access reviews) that a decision about rights may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AllowedFacts {
    /// All facts that are still valid. If a cluster is unreachable, its last review results stay valid for some time.
    /// For reads from cachers.
    #[default]
    Cached,
    /// All facts that are still valid, and expired review results. Used to check whether a user has lost a right.
    WithExpired,
    /// Only up-to-date facts of one cluster. The value is the decision method of this cluster; `None` if the method is
    /// unknown.
    Current(Option<DecisionMethod>),
    /// Only results of reviews that were sent since this time. For a cluster whose mirrored roles may be out of date.
    ReviewedSince(Instant),
}
