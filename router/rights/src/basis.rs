//! Basis of decisions about rights in a cluster.

use tokio::time::Instant;

/// Method by which rights in a cluster are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decides {
    /// Its roles and bindings.
    Rules,
    /// By the cluster's answers to access reviews.
    Reviews,
    /// By the cluster's answers to access reviews, for forwarded requests only: memory shows none of its objects.
    Live,
}

/// Part of the known facts that a decision uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Basis {
    /// All facts, also answers of a cluster before it was out of reach: for answers from memory.
    #[default]
    Held,
    /// All facts, and answers that have to be asked again count as they were: to detect lost rights.
    Last,
    /// Only facts that hold now in one cluster, by its method. `None` if the method is unknown.
    Now(Option<Decides>),
    /// Only answers since this moment, for a cluster with roles that may be out of date.
    Asked(Instant),
}
