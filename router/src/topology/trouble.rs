//! What keeps a cluster from answering, and for how long, as clients are told.

use std::time::Duration;

use tributary_proxy::ReachabilityState;

use super::Cluster;
use crate::refusal::Trouble;

/// How long a member may be gone before clients are no longer told to try again in a second. client-go does so ten
/// times for each request: a restart of a kube-apiserver goes unnoticed, but a command for a cluster that is down for
/// good would hang for minutes.
const BRIDGED: Duration = Duration::from_secs(10);

impl Cluster {
    /// Whether it has been out of reach for so long that coming again soon is in vain.
    pub(crate) fn is_gone(&self) -> bool {
        let Ok(client) = &self.setup.client else { return true };
        let reachability = client.reachability();
        let known = reachability.borrow();
        matches!(known.state, ReachabilityState::Unreachable { .. }) && known.since.elapsed() > BRIDGED
    }

    /// What keeps it from answering, where it is already known to be out of reach: nobody need wait for it.
    pub(crate) fn out_of_reach(&self) -> Option<Trouble> {
        let is_out_of_reach = match &self.setup.client {
            Ok(client) => matches!(client.reachability().borrow().state, ReachabilityState::Unreachable { .. }),
            Err(_) => true,
        };
        is_out_of_reach.then(|| self.trouble())
    }

    /// What keeps it from answering: that it cannot be reached, what is wrong with its discovery, or that it was not
    /// heard of yet. Only for a cluster that is known not to have answered.
    pub(crate) fn trouble(&self) -> Trouble {
        let cluster = self.name().clone();
        if let Ok(client) = &self.setup.client {
            let reachability = client.reachability();
            let known = reachability.borrow();
            if let ReachabilityState::Unreachable { reason } = &known.state {
                return Trouble { cluster, cause: reason.to_string(), age: known.since.elapsed() };
            }
        }
        match self.problem_since() {
            Some((cause, age)) => Trouble { cluster, cause, age },
            None if self.discovery().is_none() => {
                Trouble { cluster, cause: "it has not said yet which resources it serves".to_owned(), age: self.age() }
            }
            None => Trouble { cluster, cause: "its objects have not been read yet".to_owned(), age: self.age() },
        }
    }
}
