//! The flags of `check`.

use std::path::PathBuf;

use clap::Args;

use super::group_resource::GroupResource;
use super::hub::HubObjectArguments;

/// The text below the flags in `tributary check --help`.
pub(super) const EXAMPLES: &str = "Examples:
  tributary check --config clusters.yaml
  tributary check --config clusters/
  tributary check --config clusters/ --as ann --group dev
      shows the resources that ann can read in each cluster, and the binding that allows it; the
      account of Tributary reads the rules
  tributary check --as ann --contexts eu,us --resources pods,jobs.batch
  tributary check --hub-kubeconfig hub.kubeconfig --config clusters/
      shows for each object of the hub whether serve would accept it beside these files; writes
      nothing

A configuration file:
  apiVersion: tributary.dev/v1alpha1
  kind: UpstreamCluster
  metadata: { name: eu }
  spec:
    kubeconfig: { path: members.kubeconfig, context: eu }
  ---
  apiVersion: tributary.dev/v1alpha1
  kind: ResourceRegistry
  metadata: { name: workloads }
  spec:
    resources: [pods, deployments.apps]
    placement: eu

Exit codes: 0 valid, 1 a cluster or the hub does not answer, or an object of the hub is refused,
2 the configuration has errors.";

/// The arguments of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArguments {
    /// A YAML file, or a directory with .yaml, .yml and .json files
    #[arg(long, value_name = "FILE|DIR")]
    pub config: Option<PathBuf>,
    /// An AuthenticationConfiguration to validate, as for serve --authentication-config
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Show the resources that this user can read in each cluster, and the binding that allows it
    #[arg(long = "as", value_name = "USER", id = "as_user")]
    pub as_user: Option<String>,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "GROUP", requires = "as_user")]
    pub groups: Vec<String>,
    /// The resources to show for --as: pods, deployments.apps
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "as_user",
        default_value = "pods,services,configmaps,secrets,deployments.apps,namespaces,nodes"
    )]
    pub resources: Vec<GroupResource>,
    /// The kubeconfig of the clusters [default: as for serve]
    #[arg(long, value_name = "FILE", requires = "as_user")]
    pub kubeconfig: Option<PathBuf>,
    /// The contexts of the clusters [default: as for serve]
    #[arg(long, value_name = "LIST", requires = "as_user")]
    pub contexts: Option<String>,
    /// The hub whose objects are checked.
    #[command(flatten)]
    pub hub: HubObjectArguments,
}

impl CheckArguments {
    /// Returns whether a flag selects a file, a user or a hub to check.
    pub fn names_anything(&self) -> bool {
        let has_file = self.config.is_some() || self.authentication_config.is_some();
        has_file || self.as_user.is_some() || self.hub.address().is_some()
    }
}
