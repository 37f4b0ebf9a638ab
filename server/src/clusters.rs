//! Makes clients of cluster descriptions, and keeps those whose description stays the same.

use std::collections::BTreeMap;

use tributary_apimachinery::{ClusterName, explain};
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
    /// The description's own fingerprint; the setup's also tells why there is no client.
    fingerprint: String,
    /// The cluster that this one turned out to be, if it is refused for that.
    twin: Option<ClusterName>,
    setup: ClusterSetup,
}

impl Clusters {
    /// No clusters yet; `tuning` is every client's, tunnels included.
    pub fn new(tuning: Tuning) -> Self {
        Self { tuning, known: BTreeMap::new() }
    }

    /// Takes over new descriptions. A cluster whose fingerprint is known keeps its client, with its connections; one whose
    /// client cannot be made is there with the reason, so that it is named in answers rather than forgotten, and is tried
    /// anew each time.
    pub async fn update(&mut self, specs: Vec<ClusterSpec>) {
        let names: Vec<ClusterName> = specs.iter().map(|spec| spec.name.clone()).collect();
        let mut known = BTreeMap::new();
        for spec in specs {
            let entry = match self.known.remove(&spec.name) {
                Some(same) if same.holds_for(&spec, &names) => Known { origin: spec.origin, ..same },
                before => self.connect(spec, before).await,
            };
            known.insert(entry.setup.name.clone(), entry);
        }
        self.known = known;
    }

    /// Makes a client. Why there is none is said once, however often it is tried.
    async fn connect(&self, spec: ClusterSpec, before: Option<Known>) -> Known {
        let ClusterSpec { name, origin, config, further_endpoints, fingerprint, index, labels: _ } = spec;
        let client = match config {
            Ok(config) => {
                let tuning = self.tuning.clone();
                let client = ClusterClient::connect_to_all(name.clone(), config, &further_endpoints, tuning);
                client.await.map_err(|e| explain(&e))
            }
            Err(reason) => Err(reason),
        };
        let said = before.and_then(|known| known.setup.client.err());
        match &client {
            Err(reason) if said.as_ref() != Some(reason) => {
                tracing::error!(cluster = %name, origin, reason, "the cluster cannot be used; the others are served");
            }
            Ok(_) if said.is_some() => tracing::info!(cluster = %name, origin, "the cluster can be used now"),
            _ => {}
        }
        let fingerprint_with_index = match index {
            // Its objects' versions carry it.
            Some(index) => format!("{fingerprint} index {index}"),
            None => fingerprint.clone(),
        };
        // The reason is a part: a client that can be made later is another one, though its description is the same.
        let setup_fingerprint = match &client {
            Ok(_) => fingerprint_with_index,
            Err(reason) => format!("{fingerprint_with_index} {reason}"),
        };
        let setup = ClusterSetup { name, client, fingerprint: setup_fingerprint, index };
        Known { origin, fingerprint, twin: None, setup }
    }

    /// What the router is told.
    pub fn setups(&self) -> Vec<ClusterSetup> {
        self.known.values().map(|known| known.setup.clone()).collect()
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<ClusterName> {
        self.known.keys().cloned().collect()
    }

    /// The clusters' fingerprints, which tell of every change.
    pub fn fingerprints(&self) -> Vec<String> {
        self.known.values().map(|known| known.setup.fingerprint.clone()).collect()
    }

    /// Whether a cluster of this name is there.
    pub fn contains(&self, name: &ClusterName) -> bool {
        self.known.contains_key(name)
    }

    /// Where a cluster comes from, for messages.
    pub fn origin(&self, name: &ClusterName) -> &str {
        self.known.get(name).map_or("", |known| &known.origin)
    }

    /// Whether a client could not be made, so that another try may help.
    pub fn any_failed(&self) -> bool {
        self.known.values().any(|known| known.setup.client.is_err() && known.twin.is_none())
    }

    /// Refuses a cluster that turned out to be `twin`, for as long as both are described as they are.
    pub fn refuse(&mut self, name: &ClusterName, twin: &ClusterName, reason: String) {
        if let Some(known) = self.known.get_mut(name) {
            known.setup.fingerprint = format!("{} {reason}", known.fingerprint);
            known.setup.client = Err(reason);
            known.twin = Some(twin.clone());
        }
    }
}

impl Known {
    fn holds_for(&self, spec: &ClusterSpec, names: &[ClusterName]) -> bool {
        let usable = match &self.twin {
            None => self.setup.client.is_ok(),
            Some(twin) => names.contains(twin),
        };
        usable && self.fingerprint == spec.fingerprint && self.setup.index == spec.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, fingerprint: &str) -> ClusterSpec {
        ClusterSpec {
            name: ClusterName::new(name).unwrap(),
            origin: format!("context {name:?}"),
            config: Ok(kube::Config::new("https://127.0.0.1:1".parse().unwrap())),
            further_endpoints: Vec::new(),
            fingerprint: fingerprint.to_owned(),
            index: None,
            labels: BTreeMap::new(),
        }
    }

    #[tokio::test]
    async fn a_refused_twin_comes_back_when_the_other_goes() {
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let mut clusters = Clusters::new(Tuning::default());
        clusters.update(vec![spec("a", "1"), spec("b", "2")]).await;
        assert_eq!(clusters.fingerprints(), ["1", "2"]);
        clusters.refuse(&b, &a, "same".to_owned());
        assert_eq!(clusters.fingerprints(), ["1", "2 same"]);
        assert!(!clusters.any_failed(), "another try would not help");
        clusters.update(vec![spec("a", "1"), spec("b", "2")]).await;
        assert_eq!(clusters.fingerprints(), ["1", "2 same"], "an unchanged configuration changes nothing");
        clusters.update(vec![spec("b", "2")]).await;
        assert_eq!(clusters.fingerprints(), ["2"]);
        assert!(clusters.setups()[0].client.is_ok());
    }

    #[tokio::test]
    async fn a_cluster_without_a_client_is_named() {
        let mut broken = spec("a", "1");
        broken.config = Ok(kube::Config::new("ftp://127.0.0.1".parse().unwrap()));
        let mut clusters = Clusters::new(Tuning::default());
        clusters.update(vec![broken]).await;
        assert!(clusters.any_failed());
        assert_eq!(clusters.names().len(), 1);
        assert!(clusters.setups()[0].client.is_err());
        let first = clusters.fingerprints();
        let unreadable = ClusterSpec { config: Err("no such file".to_owned()), ..spec("a", "1") };
        clusters.update(vec![unreadable]).await;
        assert_eq!(clusters.setups()[0].client.as_ref().unwrap_err(), "no such file");
        assert_ne!(clusters.fingerprints(), first, "another reason is news");
    }
}
