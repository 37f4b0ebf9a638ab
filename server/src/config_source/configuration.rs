//! What the sources say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tributary_apimachinery::ClusterName;
use tributary_router::{ClusterAddress, ClusterAuthorization, DispatchSettings, FlowSettings, MemberRules};

use crate::access_log::LoggingModes;
use crate::hosts::ClusterHosts;

/// A cluster as a source describes it.
pub struct ClusterSpec {
    /// Its name.
    pub name: ClusterName,
    /// Where it comes from, for messages: `context "a"`, `UpstreamCluster a`.
    pub origin: String,
    /// How to reach and authenticate to it, or why that cannot be said: a context that nobody named may be broken
    /// without harm to the others.
    pub config: Result<kube::Config, String>,
    /// The addresses of its servers besides the one in `config`.
    pub further_endpoints: Vec<tributary_proxy::Address>,
    /// Those of all its addresses that are drained.
    pub drained_endpoints: tributary_proxy::EndpointSubset,
    /// How each of its endpoints is asked whether it is well.
    pub probe: tributary_proxy::Probe,
    /// When its endpoints that fail are sent nothing for a while.
    pub breaker: tributary_proxy::BreakerTuning,
    /// Equal where all but the addresses of its servers is as in `address`; `None` where the source has one address
    /// alone.
    pub beside_endpoints: Option<ClusterAddress>,
    /// Equal where the member is reached in the same way, referenced files included.
    pub address: ClusterAddress,
    /// Equal where the user is the same, referenced files included: a change costs neither connections nor caches.
    pub user_fingerprint: String,
    /// What is allowed and dangerous in what the source says, for people.
    pub warnings: Vec<String>,
    /// The index of `itemResourceVersions: Integer`, if the source gives one.
    pub index: Option<u16>,
    /// What it is told of users beyond their names and groups, in the shared mode.
    pub impersonation: MemberRules,
    /// By what it is decided which of its objects users are shown from memory, in the shared mode.
    pub authorization: ClusterAuthorization,
    /// Whether it is asked about bearer tokens of requests to its own path, in the shared mode.
    pub token_review: bool,
    /// Whether users' own tokens are passed on to it.
    pub passes_tokens: bool,
    /// The hosts at which its own API stands; a context has none.
    pub hosts: ClusterHosts,
    /// What registries select by; a context has none.
    pub labels: BTreeMap<String, String>,
}

impl ClusterSpec {
    /// A cluster of which nothing is said but where it is described and how to reach it: that of a context. Its address
    /// and user are for the source to say.
    pub(super) fn new(name: ClusterName, origin: String, config: Result<kube::Config, String>) -> Self {
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
    /// A context of a kubeconfig, whose server answers nobody.
    pub(crate) fn named(name: &str) -> Self {
        let config = kube::Config::new(http::Uri::from_static("https://127.0.0.1:1"));
        Self::new(ClusterName::new(name).unwrap(), format!("context {name:?}"), Ok(config))
    }
}

/// Everything that the sources say at one time.
#[derive(Default)]
pub struct LoadedConfiguration {
    /// The clusters, with different names.
    pub clusters: Vec<ClusterSpec>,
    /// The registries, if the source has any; the router's defaults stand where there are none.
    pub registries: Vec<tributary_crds::ResourceRegistry>,
    /// Which requests go on; all of them where the source has no objects that say so.
    pub dispatch: DispatchSettings,
    /// How many of them.
    pub flow_control: FlowSettings,
    /// Which requests objects say are written into the access log.
    pub logging: LoggingModes,
    /// The files that were read, to be watched for changes.
    pub files: Vec<PathBuf>,
}

impl LoadedConfiguration {
    /// The first cluster whose own hosts have authorities that vouch for clients.
    pub fn vouching_cluster(&self) -> Option<&ClusterSpec> {
        let vouches = |spec: &&ClusterSpec| spec.hosts.tls.as_ref().is_some_and(|own| own.client_authorities.is_some());
        self.clusters.iter().find(vouches)
    }
}
