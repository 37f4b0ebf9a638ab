//! The configuration values that a source returns.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use tributary_apimachinery::ClusterName;
use tributary_crds::{ConfigurationObjects, SecretText, UpstreamCluster};
use tributary_hosts::ClusterHosts;
use tributary_policy::LoggingModes;
use tributary_proxy::{CommandPolicy, DialPolicy};
use tributary_router::cluster_status::MemberSource;
use tributary_router::{
    ClusterAddress, ClusterAuthorization, DispatchSettings, FlowSettings, ForeignMember, MemberRules,
};

use crate::dispatch;
use crate::flow_control::flow_settings;
use crate::logging::logging_modes;
use crate::named_clusters::named_clusters;

/// A source's description of a cluster.
#[derive(Clone)]
pub struct ClusterSpec {
    /// The cluster's name.
    pub name: ClusterName,
    /// The source of the description, for messages: `context "a"`, `UpstreamCluster a`.
    pub origin: String,
    /// The client's configuration, or the reason why there is none. An invalid context that no flag names becomes a
    /// cluster without a client, so that other clusters are served.
    pub config: Result<kube::Config, String>,
    /// The addresses of the cluster's servers, except the address in `config`.
    pub further_endpoints: Vec<tributary_proxy::Address>,
    /// The cluster's endpoints that are drained, so that they get no new requests.
    pub drained_endpoints: tributary_proxy::EndpointSubset,
    /// The health probe of each endpoint.
    pub probe: tributary_proxy::Probe,
    /// The circuit breaker of each endpoint.
    pub breaker: tributary_proxy::BreakerTuning,
    /// A fingerprint of the connection settings without the servers' addresses. `None` if the configuration source
    /// supports only one address for each cluster.
    pub connection_fingerprint: Option<ClusterAddress>,
    /// A fingerprint of the cluster's addresses and certificate authorities, including the content of referenced files.
    pub address: ClusterAddress,
    /// A fingerprint of the cluster's user, including the content of referenced files. A changed user fingerprint
    /// leaves the cluster's connections and caches intact.
    pub user_fingerprint: String,
    /// The warnings about allowed but dangerous settings of the cluster.
    pub warnings: Vec<String>,
    /// The configured index for `itemResourceVersions: Integer`.
    pub index: Option<u16>,
    /// The parts of a user's identity, uid and extra fields, that Tributary may send to the cluster in shared mode.
    pub impersonation: MemberRules,
    /// In shared mode, the method that decides which objects in memory a user may read.
    pub authorization: ClusterAuthorization,
    /// True if, in shared mode, the cluster authenticates the bearer tokens of requests for the cluster's own API by a
    /// TokenReview.
    pub token_review: bool,
    /// True if users' bearer tokens are forwarded to the cluster.
    pub passes_tokens: bool,
    /// The hosts of the cluster's own API. The cluster of a kubeconfig context has none.
    pub hosts: ClusterHosts,
    /// The labels that the selectors of registries match. The cluster of a kubeconfig context has none.
    pub labels: BTreeMap<String, String>,
    /// True if an object of the hub describes the cluster.
    pub is_from_hub: bool,
    /// The token with which Tributary impersonates users in the cluster. `None` if Tributary impersonates them with the
    /// credentials in `config`.
    pub impersonator: Option<SecretText>,
    /// The headers of CONNECT requests to the cluster's proxy.
    pub proxy_headers: HeaderMap,
    /// The policy that restricts the addresses to which connections to the cluster may be opened. `None` allows all
    /// addresses.
    pub dial_policy: Option<Arc<DialPolicy>>,
    /// The policy for credential plugins. `None` allows all plugins, with the environment of this process.
    pub command_policy: Option<Arc<CommandPolicy>>,
}

impl ClusterSpec {
    /// Creates the description of a cluster with default settings, for a kubeconfig context. The caller sets the
    /// address and the user.
    pub fn new(name: ClusterName, origin: String, config: Result<kube::Config, String>) -> Self {
        Self {
            name,
            origin,
            config,
            further_endpoints: Vec::new(),
            drained_endpoints: tributary_proxy::EndpointSubset::default(),
            probe: tributary_proxy::Probe::default(),
            breaker: tributary_proxy::BreakerTuning::default(),
            connection_fingerprint: None,
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
            is_from_hub: false,
            impersonator: None,
            proxy_headers: HeaderMap::new(),
            dial_policy: None,
            command_policy: None,
        }
    }
}

#[cfg(test)]
impl ClusterSpec {
    /// Describes the cluster of a kubeconfig context with an unreachable server.
    pub(crate) fn named(name: &str) -> Self {
        let config = kube::Config::new(http::Uri::from_static("https://127.0.0.1:1"));
        Self::new(ClusterName::new(name).unwrap(), format!("context {name:?}"), Ok(config))
    }
}

/// The configuration from all sources, read at one time.
#[derive(Default)]
pub struct LoadedConfiguration {
    /// The clusters from all sources, with distinct names.
    pub clusters: Vec<Arc<ClusterSpec>>,
    /// The names of clusters in foreign systems, from the ClusterSources of the hub.
    pub foreign: Vec<ForeignMember>,
    /// The objects of the hub that describe clusters.
    pub sources: HashMap<ClusterName, MemberSource>,
    /// The configuration objects of files and of the hub, without the members of the hub. Without registries, the
    /// router's defaults apply.
    pub objects: ConfigurationObjects,
    /// The dispatch policies. Without policies, all requests are allowed.
    pub dispatch: DispatchSettings,
    /// The flow control of the merged view and of each cluster.
    pub flow_control: FlowSettings,
    /// The access log modes of the merged view and of each cluster.
    pub logging: LoggingModes,
    /// The files from which the configuration was read, to be watched for changes.
    pub files: Vec<PathBuf>,
}

impl LoadedConfiguration {
    /// Creates the configuration of validated objects. `clusters` also contains the clusters of kubeconfig contexts.
    pub fn new(clusters: Vec<Arc<ClusterSpec>>, objects: ConfigurationObjects, files: Vec<PathBuf>) -> Self {
        let mut configuration = Self { clusters, objects, files, ..Self::default() };
        configuration.set_policies(&[]);
        configuration
    }

    /// Makes the policies, the flow control and the access log modes of the objects and of further clusters.
    pub fn set_policies(&mut self, further: &[(ClusterName, &UpstreamCluster)]) {
        let clusters = [&named_clusters(&self.objects), further].concat();
        self.dispatch = dispatch::convert(&self.objects, &clusters);
        self.flow_control = flow_settings(&self.objects, &clusters);
        self.logging = logging_modes(&self.objects, &clusters);
    }

    /// Returns the first cluster whose own hosts have authorities for client certificates.
    pub fn cluster_with_authorities(&self) -> Option<&Arc<ClusterSpec>> {
        let vouches =
            |spec: &&Arc<ClusterSpec>| spec.hosts.tls.as_ref().is_some_and(|own| own.client_authorities.is_some());
        self.clusters.iter().find(vouches)
    }
}
