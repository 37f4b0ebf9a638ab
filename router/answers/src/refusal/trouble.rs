//! What keeps a cluster from answering.

use std::fmt;
use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource};

use super::wording::{object, without_name};

/// What keeps a cluster from answering, as clients are told: `eu (for 3 s: refused)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The cluster.
    pub cluster: ClusterName,
    /// The cause, in one line, for people.
    pub cause: String,
    /// For how long it has been so. `None` for what it said of one question: that was just now, and may last.
    pub age: Option<Duration>,
}

impl Trouble {
    /// For how long, and why: `for 3 s: refused`, or `it answered 500`.
    pub(super) fn why(&self) -> String {
        let cause = without_name(&self.cause, &self.cluster);
        match self.age {
            Some(age) => format!("for {} s: {cause}", age.as_secs()),
            None => cause.to_string(),
        }
    }

    /// As [`why`](Self::why), of which cluster: `eu for 3 s: refused`, or `eu: it answered 500`.
    pub(super) fn which_and_why(&self) -> String {
        let separator = if self.age.is_some() { " " } else { ": " };
        format!("{}{separator}{}", self.cluster, self.why())
    }

    /// What the answer to a get is warned of: this cluster may have an object of the name, too.
    pub fn doubt(&self, resource: &GroupVersionResource, name: &str) -> String {
        let (cluster, what) = (&self.cluster, object(resource, name));
        format!("cluster {cluster} may have {what}, too: it cannot be asked ({})", self.why())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cluster, self.why())
    }
}
