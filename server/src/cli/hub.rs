//! The flags of hub mode.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args};
use tributary_crds::InsecureMembers;
use tributary_hub::{HubAddress, HubRules};
use tributary_proxy::DialPolicy;

use super::boolean::boolean;

/// The flags of hub mode: a cluster stores the configuration objects, the credentials and the status of members.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hub mode: configuration and credentials in a cluster")]
pub struct HubArguments {
    /// The flags that `check` has as well.
    #[command(flatten)]
    pub objects: HubObjectArguments,
    /// Keep the last accepted configuration of the hub, with its credentials, in the data directory (mode 0600). A
    /// start without an answer of the hub within 5 s serves this copy
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "true",
        action = ArgAction::Set,
        value_parser = boolean(),
    )]
    pub hub_remember: bool,
}

/// The flags that select the hub, and the rules for its objects.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hub mode: configuration and credentials in a cluster")]
pub struct HubObjectArguments {
    /// A kubeconfig for the hub, the cluster with UpstreamClusters, ResourceRegistries, a MergedEndpoint, DeniedUsers
    /// and Secrets. This flag enables shared mode. Other sources (--config, --contexts) can be used as well
    #[arg(long, value_name = "FILE", conflicts_with = "hub_in_cluster")]
    pub hub_kubeconfig: Option<PathBuf>,
    /// The context of --hub-kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", requires = "hub_kubeconfig")]
    pub hub_context: Option<String>,
    /// The hub is the cluster in which Tributary runs; the ServiceAccount of its Pod is used
    #[arg(long)]
    pub hub_in_cluster: bool,
    /// The namespace of the hub with the Secrets of members and with the Lease of the status writer
    #[arg(long, value_name = "NAMESPACE", default_value = "tributary-system")]
    pub hub_secret_namespace: String,
    /// Networks to which objects of the hub may lead, although they are refused by default: loopback, link-local,
    /// metadata, unspecified and multicast addresses
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub hub_allow_cidr: Vec<ipnet::IpNet>,
    /// Networks to which objects of the hub may not lead, in addition to the default. This flag has priority over
    /// --hub-allow-cidr
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub hub_deny_cidr: Vec<ipnet::IpNet>,
    /// Allow insecureSkipVerify in objects of the hub
    #[arg(long)]
    pub hub_allow_insecure_skip_verify: bool,
}

impl HubObjectArguments {
    /// Returns the rules for objects of the hub.
    pub fn rules(&self) -> HubRules {
        let insecure = match self.hub_allow_insecure_skip_verify {
            true => InsecureMembers::Allowed,
            false => InsecureMembers::Refused,
        };
        let policy = DialPolicy::new(self.hub_allow_cidr.clone(), self.hub_deny_cidr.clone());
        HubRules {
            namespace: self.hub_secret_namespace.clone(),
            reserved_names: Vec::new(),
            insecure,
            dial_policy: Arc::new(policy),
        }
    }

    /// Returns the location of the hub; `None` without hub mode.
    pub fn address(&self) -> Option<HubAddress> {
        match (&self.hub_kubeconfig, self.hub_in_cluster) {
            (Some(path), _) => Some(HubAddress::Kubeconfig { path: path.clone(), context: self.hub_context.clone() }),
            (None, true) => Some(HubAddress::InCluster),
            (None, false) => None,
        }
    }
}
