//! The flags of `convert`.

use std::path::PathBuf;

use clap::Args;

/// The text below the flags in `tributary convert --help`.
pub(super) const EXAMPLES: &str = "Examples:
  tributary convert gateway/*.yaml > clusters.yaml
      writes an UpstreamCluster for each UpstreamCluster of KubeGateway; standard error has a line
      for each difference
  kubectl get upstreamclusters.proxy.kubegateway.io -o yaml | tributary convert - > clusters.yaml
      reads the UpstreamClusters of a running KubeGateway
  tributary check --config clusters.yaml
      validates the result

The manifests and the result contain credentials: protect the files (umask 077).

Exit codes: 0 converted, 1 a file cannot be read, 2 a file has an error.";

/// The arguments of `convert`.
#[derive(Args, Clone, Debug)]
pub struct ConvertArguments {
    /// YAML or JSON files with UpstreamClusters of proxy.kubegateway.io/v1alpha1, single or in a List; - is standard
    /// input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}
