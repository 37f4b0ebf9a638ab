//! What keeps a cluster from answering, and for how long, as clients are told.

use std::sync::Arc;

use tributary_apimachinery::ClusterName;
use tributary_proxy::ReachabilityState;

use super::{Cluster, Fleet};
use crate::refusal::Trouble;

impl Fleet {
    /// What keeps these clusters from answering. `told`: what is known of some of them in what is asked for, the latest
    /// last; that one is out of reach says more.
    pub(crate) fn troubles(&self, clusters: &[ClusterName], told: &[Trouble]) -> Vec<Trouble> {
        let told = |name: &ClusterName| told.iter().rfind(|trouble| trouble.cluster == *name).cloned();
        let trouble = |cluster: Arc<Cluster>| {
            cluster.out_of_reach().or_else(|| told(cluster.name())).unwrap_or_else(|| cluster.trouble())
        };
        clusters.iter().filter_map(|name| self.cluster(name)).map(trouble).collect()
    }
}

impl Cluster {
    /// Whether it is known to be out of reach. Then clients are not told to try again in a second: client-go obeys ten
    /// times for each request, and a command for a cluster that is down would be silent for that long.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let Ok(client) = &self.setup.client else { return true };
        matches!(client.reachability().borrow().state, ReachabilityState::Unreachable { .. })
    }

    /// What keeps it from answering, where it is already known to be out of reach: nobody need wait for it.
    pub(crate) fn out_of_reach(&self) -> Option<Trouble> {
        self.is_out_of_reach().then(|| self.trouble())
    }

    /// What keeps it from answering: that it cannot be reached, what is wrong with its discovery, or that it was not
    /// heard of yet. Only for a cluster that is known not to have answered, and of which nothing more is known: what a
    /// collection of it meets its standing says.
    pub(crate) fn trouble(&self) -> Trouble {
        let cluster = self.name().clone();
        if let Ok(client) = &self.setup.client {
            let reachability = client.reachability();
            let known = reachability.borrow();
            if let ReachabilityState::Unreachable { reason } = &known.state {
                // As lists say it: since it was last heard, not since that was found out.
                let age = Some(known.heard.unwrap_or(known.since).elapsed());
                return Trouble { cluster, cause: reason.to_string(), age };
            }
        }
        match self.problem_since() {
            Some((cause, age)) => Trouble { cluster, cause, age: Some(age) },
            None if self.discovery().is_none() => {
                let cause = "it has not said yet which resources it serves".to_owned();
                Trouble { cluster, cause, age: Some(self.age()) }
            }
            None => Trouble { cluster, cause: "it has not said what it has of this".to_owned(), age: None },
        }
    }
}
