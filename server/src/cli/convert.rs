//! The flags of `convert`.

use std::path::PathBuf;

use clap::Args;

/// What stands at the end of its help.
pub(super) const EXAMPLES: &str = "Examples:
  tributary convert gateway/*.yaml > clusters.yaml
      writes an UpstreamCluster for each of KubeGateway's; what differs or is lost is told on
      standard error, a line each
  kubectl get upstreamclusters.proxy.kubegateway.io -o yaml | tributary convert - > clusters.yaml
      takes them from a KubeGateway's control plane
  tributary check --config clusters.yaml
      says what is wrong with what was written

The manifests hold credentials, and so does what is written: keep it from others (umask 077).

Exit codes: 0 converted, 1 a file cannot be read, 2 a file has to be corrected.";

/// The arguments of `convert`.
#[derive(Args, Clone, Debug)]
pub struct ConvertArguments {
    /// YAML or JSON files with UpstreamClusters of proxy.kubegateway.io/v1alpha1, one by one or in a List; - is
    /// standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}
