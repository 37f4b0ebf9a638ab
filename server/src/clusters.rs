//! Makes clients of cluster descriptions, and finds two names for one cluster.

use std::collections::BTreeMap;

use tributary_apimachinery::ClusterName;
use tributary_proxy::{ClusterClient, Tuning};
use tributary_router::ClusterSetup;

use crate::config_source::ClusterSpec;

/// The clusters as they were last described, with their clients.
pub struct Clusters {
    tuning: Tuning,
    known: BTreeMap<ClusterName, Known>,
}

struct Known {
    origin: String,
    setup: ClusterSetup,
}

impl Clusters {
    /// No clusters yet; `tuning` is every client's, tunnels included.
    pub fn new(tuning: Tuning) -> Self {
        Self { tuning, known: BTreeMap::new() }
    }

    /// Takes over new descriptions. A cluster whose fingerprint is known keeps its client, with its connections; one whose
    /// client cannot be made is there with the reason, so that it is named in answers rather than forgotten.
    pub async fn update(&mut self, specs: Vec<ClusterSpec>) {
        let mut known = BTreeMap::new();
        for spec in specs {
            let same = self.known.remove(&spec.name).filter(|known| {
                known.setup.fingerprint == spec.fingerprint
                    && known.setup.client.is_ok()
                    && known.setup.index == spec.index
            });
            let entry = match same {
                Some(same) => Known { origin: spec.origin, ..same },
                None => self.connect(spec).await,
            };
            known.insert(entry.setup.name.clone(), entry);
        }
        self.known = known;
    }

    async fn connect(&self, spec: ClusterSpec) -> Known {
        let ClusterSpec { name, origin, config, fingerprint, index } = spec;
        let client = ClusterClient::connect(name.clone(), config, self.tuning.clone()).await;
        let client = client.map_err(|error| explain(&error));
        if let Err(reason) = &client {
            tracing::error!(cluster = %name, origin, reason, "the cluster cannot be used");
        }
        // The reason is a part: a client that can be made later is another one, though its description is the same.
        let fingerprint = match &client {
            Ok(_) => fingerprint,
            Err(reason) => format!("{fingerprint} {reason}"),
        };
        Known { origin, setup: ClusterSetup { name, client, fingerprint, index } }
    }

    /// What the router is told.
    pub fn setups(&self) -> Vec<ClusterSetup> {
        self.known.values().map(|known| known.setup.clone()).collect()
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<ClusterName> {
        self.known.keys().cloned().collect()
    }

    /// Whether a cluster of this name is there.
    pub fn contains(&self, name: &ClusterName) -> bool {
        self.known.contains_key(name)
    }

    /// Where a cluster comes from, for messages.
    pub fn origin(&self, name: &ClusterName) -> &str {
        self.known.get(name).map_or("", |known| &known.origin)
    }

    /// Puts a reason in the place of a cluster's client.
    pub fn refuse(&mut self, name: &ClusterName, reason: String) {
        if let Some(known) = self.known.get_mut(name) {
            known.setup.fingerprint = format!("{} {reason}", known.setup.fingerprint);
            known.setup.client = Err(reason);
        }
    }
}

/// Two names for one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameCluster {
    /// The name that comes first.
    pub first: ClusterName,
    /// The other.
    pub second: ClusterName,
}

/// Finds the clusters that share a kube-system uid with one before them. Pure. A cluster whose uid is not known yet is
/// compared when it is.
pub fn same_clusters<'a>(uids: impl IntoIterator<Item = (&'a ClusterName, &'a str)>) -> Vec<SameCluster> {
    let mut first_with: BTreeMap<&str, &ClusterName> = BTreeMap::new();
    let mut same = Vec::new();
    for (name, uid) in uids {
        match first_with.get(uid) {
            Some(first) => same.push(SameCluster { first: (*first).clone(), second: name.clone() }),
            None => drop(first_with.insert(uid, name)),
        }
    }
    same
}

/// An error with its causes in one line, without repeating what a message already quotes.
pub(crate) fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let own = error.to_string();
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_uid_under_two_names_is_found() {
        let names = ["a", "b", "c", "d"].map(|name| ClusterName::new(name).unwrap());
        let uids = names.iter().zip(["1", "2", "1", "1"]);
        let same = same_clusters(uids);
        let pairs: Vec<_> = same.iter().map(|same| (same.first.as_str(), same.second.as_str())).collect();
        assert_eq!(pairs, [("a", "c"), ("a", "d")]);
        assert!(same_clusters(names.iter().zip(["1", "2", "3", "4"])).is_empty());
    }
}
