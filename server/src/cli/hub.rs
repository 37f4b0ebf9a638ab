//! The flags of hub mode and of the aggregated API.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{ArgAction, Args, ValueEnum};
use tributary_apimachinery::ForeignSystem;
use tributary_crds::InsecureMembers;
use tributary_hub::{AccessProviders, AggregatedService, HubAddress, HubRules, OwnEndpoint};
use tributary_listener::ListenAddress;
use tributary_proxy::{AllowedCommand, CommandPolicy, DialPolicy};

use super::boolean::boolean;

/// The flags of hub mode: a cluster stores the configuration objects, the credentials and the status of members.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hub mode: configuration, credentials and the aggregated API")]
pub struct HubArguments {
    /// The flags that `serve` and `check` share.
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
    /// The address of the aggregated API, to which the kube-apiserver of the hub forwards requests. Needs
    /// --hub-kubeconfig or --hub-in-cluster. Port 0 selects a free port
    #[arg(long, value_name = "IP:PORT")]
    pub aggregated_listen: Option<ListenAddress>,
    /// The serving certificate of --aggregated-listen [default: a generated certificate in a Secret of
    /// --hub-secret-namespace]
    #[arg(long, value_name = "FILE", requires_all = ["aggregated_tls_private_key_file", "aggregated_listen"])]
    pub aggregated_tls_cert_file: Option<PathBuf>,
    /// The private key of --aggregated-tls-cert-file
    #[arg(long, value_name = "FILE", requires = "aggregated_tls_cert_file")]
    pub aggregated_tls_private_key_file: Option<PathBuf>,
    /// The Service to which the hub's APIService refers, for the names in the generated certificate
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "tributary-system/tributary")]
    pub aggregated_service: AggregatedService,
    /// Serve the paths of a different system at --aggregated-listen, for its clients. The members and their names come
    /// from ClusterSources of the hub. Can be given several times
    #[arg(long, value_name = "SYSTEM", requires = "aggregated_listen")]
    pub door: Vec<DoorSystem>,
    /// The address of the door of Open Cluster Management, with the paths of its user-server: `/CLUSTER/…`. Needs
    /// --hub-kubeconfig or --hub-in-cluster. The serving certificates are those of --listen. Port 0 selects a free port
    #[arg(long, value_name = "IP:PORT")]
    pub ocm_listen: Option<ListenAddress>,
    /// The old server of an aggregated API group of Karmada, which answers the requests of the group that Tributary
    /// does not. Tributary impersonates the callers. Can be given several times
    #[arg(long, value_name = "GROUP=KUBECONFIG", requires = "door")]
    pub karmada_server: Vec<KarmadaServer>,
}

impl HubArguments {
    /// Returns the systems whose doors are open.
    pub fn systems(&self) -> impl Iterator<Item = ForeignSystem> {
        let at_aggregated_entry = self.door.iter().map(|door| door.system());
        at_aggregated_entry.chain(self.ocm_listen.map(|_| ForeignSystem::OpenClusterManagement))
    }

    /// Returns whether an entry authenticates users of the hub.
    pub fn serves_hub_users(&self) -> bool {
        self.aggregated_listen.is_some() || self.ocm_listen.is_some()
    }
}

/// An old server of Karmada: `cluster.karmada.io=aggregated.kubeconfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KarmadaServer {
    /// The API group: `cluster.karmada.io` or `search.karmada.io`.
    pub group: String,
    /// The kubeconfig with the address and the credentials.
    pub kubeconfig: PathBuf,
}

impl FromStr for KarmadaServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((group @ ("cluster.karmada.io" | "search.karmada.io"), path)) if !path.is_empty() => {
                Ok(Self { group: group.to_owned(), kubeconfig: path.into() })
            }
            _ => Err("give cluster.karmada.io=KUBECONFIG or search.karmada.io=KUBECONFIG".to_owned()),
        }
    }
}

/// A system whose paths the aggregated entry serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DoorSystem {
    /// The paths of cluster-gateway, for KubeVela: `cluster.core.oam.dev/v1alpha1`.
    ClusterGateway,
    /// The paths of Karmada: `cluster.karmada.io/v1alpha1` and `search.karmada.io/v1alpha1`.
    Karmada,
}

impl DoorSystem {
    /// Returns the system.
    pub fn system(self) -> ForeignSystem {
        match self {
            Self::ClusterGateway => ForeignSystem::ClusterGateway,
            Self::Karmada => ForeignSystem::Karmada,
        }
    }
}

/// The flags that select the hub, and the rules for its objects.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hub mode: configuration, credentials and the aggregated API")]
pub struct HubObjectArguments {
    /// A kubeconfig for the hub, the cluster with UpstreamClusters, ResourceRegistries, a MergedEndpoint, DeniedUsers
    /// and Secrets. This flag enables shared mode. Other sources (--config, --contexts) can be used as well
    #[arg(long, value_name = "FILE", conflicts_with = "hub_in_cluster")]
    pub hub_kubeconfig: Option<PathBuf>,
    /// The context of --hub-kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", requires = "hub_kubeconfig")]
    pub hub_context: Option<String>,
    /// The hub is the cluster in which Tributary runs; the ServiceAccount of its Pod is used. This flag enables shared
    /// mode
    #[arg(long)]
    pub hub_in_cluster: bool,
    /// The namespace of the hub with the Secrets of members, the Lease of the status writer, and the generated
    /// certificate of --aggregated-listen
    #[arg(long, value_name = "NAMESPACE", default_value = "tributary-system")]
    pub hub_secret_namespace: String,
    /// Allow addresses of these networks for members of the hub, although they are refused by default: loopback,
    /// link-local, unspecified, multicast and broadcast addresses, and metadata services of clouds
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub hub_allow_cidr: Vec<ipnet::IpNet>,
    /// Refuse addresses of these networks for members of the hub, in addition to the default. This flag has priority
    /// over --hub-allow-cidr
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub hub_deny_cidr: Vec<ipnet::IpNet>,
    /// Allow insecureSkipVerify in objects of the hub
    #[arg(long)]
    pub hub_allow_insecure_skip_verify: bool,
    /// Allow items of ClusterSources to run this command for their credential. The command gets an empty environment.
    /// With a digest, the file must have this SHA-256 digest at each run. Can be given several times. Without the flag,
    /// no command runs
    #[arg(long, value_name = "PATH[@sha256:HEX]")]
    pub exec_allow: Vec<AllowedCommand>,
    /// The access providers for ClusterProfiles, in the JSON format of cluster-inventory-api. The first provider of the
    /// file that a profile has is used. Its command also needs --exec-allow. Read at the start
    #[arg(long, value_name = "FILE")]
    pub cluster_profile_providers: Option<PathBuf>,
}

impl HubObjectArguments {
    /// Returns the rules for objects of the hub.
    ///
    /// # Errors
    /// The file of --cluster-profile-providers cannot be read.
    pub fn rules(&self) -> anyhow::Result<HubRules> {
        let insecure = match self.hub_allow_insecure_skip_verify {
            true => InsecureMembers::Allowed,
            false => InsecureMembers::Refused,
        };
        let policy = DialPolicy::new(self.hub_allow_cidr.clone(), self.hub_deny_cidr.clone());
        let access_providers = self.cluster_profile_providers.as_deref().map(read_providers).transpose()?;
        Ok(HubRules {
            namespace: self.hub_secret_namespace.clone(),
            reserved_names: Vec::new(),
            insecure,
            dial_policy: Arc::new(policy),
            command_policy: Arc::new(CommandPolicy::new(self.exec_allow.clone())),
            access_providers: access_providers.map(Arc::new),
            own: OwnEndpoint::default(),
        })
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

fn read_providers(path: &Path) -> anyhow::Result<AccessProviders> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("--cluster-profile-providers: {} cannot be read", path.display()))?;
    AccessProviders::parse(&text).map_err(|problem| {
        anyhow::anyhow!(
            "--cluster-profile-providers: {}: {problem}; give JSON in the form of cluster-inventory-api",
            path.display()
        )
    })
}
