//! Methods of decisions about rights in a cluster, and the age of the facts that a decision may use.

use tokio::time::Instant;

/// Method by which Tributary decides about rights in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decides {
    /// Tributary decides by its mirror of the cluster's roles and bindings.
    Rules,
    /// The cluster decides by its answers to access reviews.
    Reviews,
    /// The cluster decides by its answers to access reviews, for forwarded requests only. Reads from cachers show no
    /// object of the cluster.
    Live,
}

/// Facts that a decision may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Basis {
    /// All facts, including review results from before a cluster became unreachable. For reads from cachers.
    #[default]
    Held,
    /// All facts, and also expired review results. For the detection of lost rights.
    Last,
    /// Only current facts of one cluster. The value is the cluster's method; `None` if the method is unknown.
    Now(Option<Decides>),
    /// Only review results since this time, for a cluster whose mirrored roles may be out of date.
    Asked(Instant),
}
