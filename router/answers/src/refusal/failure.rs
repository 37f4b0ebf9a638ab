//! Reasons for which a cluster does not answer.

use std::fmt;
use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource};

use super::wording::{object, without_name};

/// A cluster that does not answer, with the reason. Displayed as `eu (for 3 s: refused)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFailure {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Cause in one line, for people.
    pub cause: String,
    /// Time since which the cluster does not answer. `None` for the failure of a single request.
    pub age: Option<Duration>,
}

impl ClusterFailure {
    /// Returns the duration and the cause: `for 3 s: refused`. Only the cause if the duration is unknown: `the cluster
    /// answered 500`.
    pub(super) fn why(&self) -> String {
        let cause = without_name(&self.cause, &self.cluster);
        match self.age {
            Some(age) => format!("for {} s: {cause}", age.as_secs()),
            None => cause.to_string(),
        }
    }

    /// Returns the cluster's name, duration and cause: `eu for 3 s: refused`, or `eu: the cluster answered 500`.
    pub(super) fn cluster_and_cause(&self) -> String {
        let separator = if self.age.is_some() { " " } else { ": " };
        format!("{}{separator}{}", self.cluster, self.why())
    }

    /// Returns the text of a Warning in the answer to a get: this cluster does not answer, and may also have an object
    /// with this name.
    pub fn doubt(&self, resource: &GroupVersionResource, name: &str) -> String {
        let (cluster, what) = (&self.cluster, object(resource, name));
        format!("cluster {cluster} may have {what}, too, but cannot be queried ({})", self.why())
    }
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cluster, self.why())
    }
}
