//! The flags of `check`.

use std::path::PathBuf;

use clap::Args;

use super::group_resource::GroupResource;

/// What stands below its flags.
pub(super) const EXAMPLES: &str = "Examples:
  tributary check --config clusters.yaml
  tributary check --config clusters/
  tributary check --config clusters/ --as ann --group dev
      asks each cluster what ann would see of it, and by which binding; Tributary's own account asks
  tributary check --as ann --contexts eu,us --resources pods,jobs.batch

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

Exit codes: 0 valid, 1 a cluster cannot be asked, 2 there are errors.";

/// The arguments of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArguments {
    /// A YAML file, or a directory with .yaml, .yml and .json files
    #[arg(long, value_name = "FILE|DIR")]
    pub config: Option<PathBuf>,
    /// The file of serve --authentication-config, to be checked as well
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Ask the clusters what this user would see of each, and by which binding
    #[arg(long = "as", value_name = "USER", id = "as_user")]
    pub as_user: Option<String>,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "GROUP", requires = "as_user")]
    pub groups: Vec<String>,
    /// Of these resources: pods, deployments.apps
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
}

impl CheckArguments {
    /// Whether there is anything to check.
    pub fn names_anything(&self) -> bool {
        self.config.is_some() || self.authentication_config.is_some() || self.as_user.is_some()
    }
}
