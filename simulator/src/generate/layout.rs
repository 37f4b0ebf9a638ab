//! The names of the generated objects. Each name is a function of an index, and sorts in the order of the indexes.
//!
//! A key is therefore found by binary search, and a namespace is a range of indexes, without stored objects.

use std::ops::Range;

use crate::SimulatorConfig;
use crate::catalog::{
    CATALOG, CONFIGMAPS, DEPLOYMENTS, EVENTS, NAMESPACES, NODES, PODS, REPLICASETS, ResourceIndex, SERVICEACCOUNTS,
    SERVICES,
};

/// Names of applications in byte order. No name is a prefix of another name, so that names of objects (`name-…`) sort
/// in the order of the applications.
const APPS: [&str; 24] = [
    "account",
    "billing",
    "cart",
    "checkout",
    "crawler",
    "delivery",
    "email",
    "frontend",
    "gateway",
    "identity",
    "inventory",
    "ledger",
    "mailer",
    "notifier",
    "orders",
    "payment",
    "queue",
    "recommender",
    "search",
    "shipping",
    "telemetry",
    "users",
    "vouchers",
    "worker",
];

/// Names of teams in byte order. No name is a prefix of another name.
const TEAMS: [&str; 16] = [
    "analytics",
    "billing",
    "commerce",
    "data",
    "edge",
    "finance",
    "growth",
    "identity",
    "logistics",
    "media",
    "platform",
    "retail",
    "risk",
    "search",
    "support",
    "web",
];

/// The characters of generated suffixes in Kubernetes (no vowels, no similar characters), in byte order.
const SUFFIX: &[u8; 27] = b"2456789bcdfghjklmnpqrstvwxz";

/// The number of generated pods for each generated Event.
const PODS_PER_EVENT: usize = 20;

/// The revision before the first generated object. A new cluster contains some hundred objects before its users create
/// any.
const FIRST_REVISION: u64 = 1000;

pub(crate) struct Layout {
    name: String,
    seed: u64,
    pods: usize,
    namespaces: usize,
    nodes: usize,
    replicas: usize,
    deployments: usize,
    /// The suffix of this member's deployment names. Other members run the same applications and have other suffixes.
    site: String,
}

/// The mixing function splitmix64, which changes about half of the output bits for each changed input bit.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Returns `length` characters for a hash, like the suffixes of generated names in Kubernetes.
fn suffix(mut hash: u64, length: usize) -> String {
    (0..length)
        .map(|_| {
            let character = SUFFIX[(hash % 27) as usize] as char;
            hash /= 27;
            character
        })
        .collect()
}

impl Layout {
    pub(crate) fn new(config: &SimulatorConfig) -> Self {
        let replicas = config.replicas.clamp(1, 700);
        let seed = config.name.bytes().fold(mix(config.seed), |seed, byte| mix(seed ^ u64::from(byte)));
        Self {
            name: config.name.clone(),
            seed,
            pods: config.pods,
            namespaces: config.namespaces.max(1),
            nodes: config.nodes.max(1),
            replicas,
            deployments: config.pods.div_ceil(replicas),
            site: suffix(mix(seed), 2),
        }
    }

    /// Returns a hash for an object. Different values of `salt` give independent hashes of the same object.
    pub(crate) fn hash(&self, resource: ResourceIndex, index: usize, salt: u64) -> u64 {
        mix(self.seed ^ mix(index as u64) ^ ((resource as u64) << 56) ^ (salt << 48))
    }

    pub(crate) fn count(&self, resource: ResourceIndex) -> usize {
        match resource {
            PODS => self.pods,
            EVENTS => self.pods.div_ceil(PODS_PER_EVENT),
            NAMESPACES | SERVICEACCOUNTS => self.namespaces,
            NODES => self.nodes,
            CONFIGMAPS | DEPLOYMENTS | REPLICASETS | SERVICES => self.deployments,
            _ => 0,
        }
    }

    /// Returns the revision at which a generated object was created.
    pub(crate) fn revision(&self, resource: ResourceIndex, index: usize) -> u64 {
        let before: usize = (0..resource).map(|resource| self.count(resource)).sum();
        FIRST_REVISION + (before + index) as u64 + 1
    }

    pub(crate) fn last_revision(&self) -> u64 {
        self.revision(CATALOG.len(), 0)
    }

    /// Returns the key `namespace/name`, or `name` for cluster-scoped resources.
    pub(crate) fn key(&self, resource: ResourceIndex, index: usize) -> String {
        match resource {
            NAMESPACES => self.namespace(index),
            NODES => self.node(index),
            SERVICEACCOUNTS => format!("{}/default", self.namespace(index)),
            PODS => format!("{}/{}", self.deployment_namespace(index / self.replicas), self.pod(index)),
            EVENTS => {
                let pod = self.event_pod(index);
                format!("{}/{}", self.deployment_namespace(pod / self.replicas), self.event(index))
            }
            CONFIGMAPS => format!("{}/{}-config", self.deployment_namespace(index), self.deployment(index)),
            REPLICASETS => format!("{}/{}", self.deployment_namespace(index), self.replicaset(index)),
            _ => format!("{}/{}", self.deployment_namespace(index), self.deployment(index)),
        }
    }

    /// Returns the index of the first object whose key is equal to or above `key`.
    pub(crate) fn lower_bound(&self, resource: ResourceIndex, key: &str) -> usize {
        let (mut low, mut high) = (0, self.count(resource));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(resource, middle).as_str() < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub(crate) fn find(&self, resource: ResourceIndex, key: &str) -> Option<usize> {
        let index = self.lower_bound(resource, key);
        (index < self.count(resource) && self.key(resource, index) == key).then_some(index)
    }

    pub(crate) fn namespace(&self, index: usize) -> String {
        let team = TEAMS[index * TEAMS.len() / self.namespaces.max(TEAMS.len())];
        format!("{team}-{index:04}")
    }

    pub(crate) fn deployment_namespace(&self, deployment: usize) -> String {
        self.namespace(deployment * self.namespaces / self.deployments.max(1))
    }

    fn neighbours(&self, deployment: usize) -> Range<usize> {
        let namespace = deployment * self.namespaces / self.deployments.max(1);
        let first = |namespace: usize| (namespace * self.deployments).div_ceil(self.namespaces);
        first(namespace)..first(namespace + 1)
    }

    pub(crate) fn app(&self, deployment: usize) -> &'static str {
        let neighbours = self.neighbours(deployment);
        let place = deployment - neighbours.start;
        APPS[place * APPS.len() / neighbours.len().max(APPS.len())]
    }

    pub(crate) fn deployment(&self, index: usize) -> String {
        let neighbours = self.neighbours(index);
        if neighbours.len() <= APPS.len() {
            format!("{}-{}", self.app(index), self.site)
        } else {
            format!("{}-{:05}-{}", self.app(index), index - neighbours.start, self.site)
        }
    }

    /// Returns the template hash of a deployment, which is a part of the name of its ReplicaSet.
    pub(crate) fn template_hash(&self, deployment: usize) -> String {
        suffix(self.hash(REPLICASETS, deployment, 1), 10)
    }

    pub(crate) fn replicaset(&self, deployment: usize) -> String {
        format!("{}-{}", self.deployment(deployment), self.template_hash(deployment))
    }

    pub(crate) fn pod(&self, index: usize) -> String {
        let (deployment, place) = (index / self.replicas, index % self.replicas);
        // In the suffix of a pod's name, two characters encode the pod's index, and three look random. So the names of
        // pods sort in the order of the indexes.
        let (high, low) = (SUFFIX[place / 27] as char, SUFFIX[place % 27] as char);
        format!("{}-{high}{low}{}", self.replicaset(deployment), suffix(self.hash(PODS, index, 1), 3))
    }

    pub(crate) fn pod_deployment(&self, pod: usize) -> usize {
        pod / self.replicas
    }

    pub(crate) fn deployment_replicas(&self, deployment: usize) -> usize {
        self.replicas.min(self.pods - deployment * self.replicas)
    }

    pub(crate) fn event_pod(&self, event: usize) -> usize {
        event * PODS_PER_EVENT
    }

    pub(crate) fn event(&self, index: usize) -> String {
        format!("{}.{:016x}", self.pod(self.event_pod(index)), self.hash(EVENTS, index, 1))
    }

    pub(crate) fn node(&self, index: usize) -> String {
        format!("{}-node-{index:04}", self.name)
    }

    pub(crate) fn pod_node(&self, pod: usize) -> usize {
        (self.hash(PODS, pod, 2) % self.nodes as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_keys_increase_with_the_index_and_are_found() {
        for (pods, namespaces, replicas) in
            [(1000, 7, 5), (3000, 3, 2), (50, 40, 10), (1, 1, 1), (700, 1, 700), (0, 2, 5)]
        {
            let layout = Layout::new(&SimulatorConfig { pods, namespaces, replicas, ..SimulatorConfig::default() });
            for (resource, described) in CATALOG.iter().enumerate() {
                let keys: Vec<_> = (0..layout.count(resource)).map(|index| layout.key(resource, index)).collect();
                for pair in keys.windows(2) {
                    assert!(pair[0] < pair[1], "{}: {} before {}", described.name, pair[0], pair[1]);
                }
                for (index, key) in keys.iter().enumerate() {
                    assert_eq!(layout.find(resource, key), Some(index));
                }
                assert_eq!(layout.find(resource, "zzz/zzz"), None);
            }
        }
    }

    #[test]
    fn simulated_members_share_namespace_names_but_no_deployment_names() {
        let of = |name: &str| Layout::new(&SimulatorConfig { name: name.to_owned(), ..SimulatorConfig::default() });
        let (one, two) = (of("member1"), of("member2"));
        assert_eq!(one.namespace(0), two.namespace(0));
        assert_ne!(one.deployment(0), two.deployment(0));
    }
}
