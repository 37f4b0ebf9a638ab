//! Values that the sources return.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tributary_apimachinery::ClusterName;
use tributary_hosts::ClusterHosts;
use tributary_policy::LoggingModes;
use tributary_router::{ClusterAddress, ClusterAuthorization, DispatchSettings, FlowSettings, MemberRules};

/// Description of a cluster by a source.
pub struct ClusterSpec {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Source of the description, for messages: `context "a"`, `UpstreamCluster a`.
    pub origin: String,
    /// Configuration of the client, or the reason for a missing one: a faulty context that nobody named does not affect
    /// the others.
    pub config: Result<kube::Config, String>,
    /// The addresses of its servers besides the one in `config`.
    pub further_endpoints: Vec<tributary_proxy::Address>,
    /// Drained endpoints among all addresses.
    pub drained_endpoints: tributary_proxy::EndpointSubset,
    /// Probe of each endpoint.
    pub probe: tributary_proxy::Probe,
    /// Circuit breaker of each endpoint.
    pub breaker: tributary_proxy::BreakerTuning,
    /// Equal for an equal configuration apart from the addresses of the servers; `None` if the source supports only one
    /// address.
    pub beside_endpoints: Option<ClusterAddress>,
    /// Equal for equal addresses and authorities, with the content of referenced files.
    pub address: ClusterAddress,
    /// Equal for an equal user, with the content of referenced files: a change keeps connections and caches.
    pub user_fingerprint: String,
    /// Warnings about allowed but dangerous settings, for people.
    pub warnings: Vec<String>,
    /// The index of `itemResourceVersions: Integer`, if the source gives one.
    pub index: Option<u16>,
    /// Attributes of users, beyond names and groups, that the cluster may see in shared mode.
    pub impersonation: MemberRules,
    /// Method by which Tributary decides in shared mode which objects users see from memory.
    pub authorization: ClusterAuthorization,
    /// Whether the cluster reviews bearer tokens of requests to its own path, in shared mode.
    pub token_review: bool,
    /// Whether users' own tokens are passed on to the cluster.
    pub passes_tokens: bool,
    /// Hosts of the cluster's own API; a context has none.
    pub hosts: ClusterHosts,
    /// Labels for the selectors of registries; a context has none.
    pub labels: BTreeMap<String, String>,
}

impl ClusterSpec {
    /// Creates a cluster with defaults, for a context. The source sets the address and the user.
    pub fn new(name: ClusterName, origin: String, config: Result<kube::Config, String>) -> Self {
        Self {
            name,
            origin,
            config,
            further_endpoints: Vec::new(),
            drained_endpoints: tributary_proxy::EndpointSubset::default(),
            probe: tributary_proxy::Probe::default(),
            breaker: tributary_proxy::BreakerTuning::default(),
            beside_endpoints: None,
            address: ClusterAddress::from_description(""),
            user_fingerprint: String::new(),
            warnings: Vec::new(),
            index: None,
            impersonation: MemberRules::default(),
            authorization: ClusterAuthorization::Auto,
            token_review: false,
            passes_tokens: false,
            hosts: ClusterHosts::default(),
            labels: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
impl ClusterSpec {
    /// A context of a kubeconfig with an unreachable server.
    pub(crate) fn named(name: &str) -> Self {
        let config = kube::Config::new(http::Uri::from_static("https://127.0.0.1:1"));
        Self::new(ClusterName::new(name).unwrap(), format!("context {name:?}"), Ok(config))
    }
}

/// Result of all sources at one time.
#[derive(Default)]
pub struct LoadedConfiguration {
    /// The clusters, with different names.
    pub clusters: Vec<ClusterSpec>,
    /// The registries, if the source has any; the router's defaults stand where there are none.
    pub registries: Vec<tributary_crds::ResourceRegistry>,
    /// Dispatch policies; without objects, all requests pass.
    pub dispatch: DispatchSettings,
    /// Flow control of the places.
    pub flow_control: FlowSettings,
    /// Access log modes of the places.
    pub logging: LoggingModes,
    /// The files that were read, to be watched for changes.
    pub files: Vec<PathBuf>,
}

impl LoadedConfiguration {
    /// First cluster with authorities for clients at its own hosts.
    pub fn vouching_cluster(&self) -> Option<&ClusterSpec> {
        let vouches = |spec: &&ClusterSpec| spec.hosts.tls.as_ref().is_some_and(|own| own.client_authorities.is_some());
        self.clusters.iter().find(vouches)
    }
}
