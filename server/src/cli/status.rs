//! The flags of `status`.

use std::path::PathBuf;

use clap::Args;

use super::output_format::OutputFormat;

/// The text below the flags in `tributary status --help`.
pub(super) const EXAMPLES: &str = "Examples:
  tributary status --kubeconfig all.kubeconfig
      shows the screen until Ctrl-C, updated every 2 s; without a terminal, prints it once
  tributary status --once
      prints the screen once, for the server of $KUBECONFIG or ~/.kube/config
  tributary status -o json
      prints the whole report, with reasons that the screen shortens

The columns:
  HEALTH   ready
           refusing: the cluster answers, but refuses some requests
           pending: Tributary has not asked the cluster yet
           misconfigured: invalid configuration, or the server uses a different protocol
           without credentials: the plugin or file with the credentials failed
           unauthorized: the cluster rejects the credentials
           untrusted: Tributary does not trust the certificate of the cluster
           unreachable: no connection
           troubled: any other failure of the whole cluster
  AGE      seconds since Tributary last heard from the cluster (oldest collection)
  LATENCY  duration of the last answer to /readyz
  BEHIND   number of collections that are not current

Exit codes:
  0  success, also after Ctrl-C
  1  the server does not answer, or is not Tributary
  2  an error in a flag or the kubeconfig";

/// The arguments of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArguments {
    /// The kubeconfig that `serve --write-kubeconfig` wrote [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the server, or of one of its clusters [default: the kubeconfig's current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Print the screen once, even on a terminal
    #[arg(long)]
    pub once: bool,
    /// Output format; JSON is printed once
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: OutputFormat,
}
