//! The flags of `status`.

use std::path::PathBuf;

use clap::Args;

use super::output_format::OutputFormat;

/// What stands below its flags.
pub(super) const EXAMPLES: &str = "Examples:
  tributary status --kubeconfig all.kubeconfig
      shows the screen until Ctrl-C, made anew every 2 s; without a terminal it is printed once
  tributary status --once
      prints it once, for the server of $KUBECONFIG or ~/.kube/config
  tributary status -o json
      prints the whole report: reasons that are cut on the screen are whole there

The columns:
  HEALTH   ready; refusing: it answers, but refuses some requests; pending: not asked yet;
           misconfigured: invalid configuration, or another protocol; without credentials: no plugin
           or file gives them; unauthorized: it rejects them; untrusted: Tributary does not trust its
           certificate; unreachable; troubled: another fault of the whole cluster
  AGE      seconds since Tributary last heard from it; with several collections the oldest value
  LATENCY  how long its last answer to /readyz took
  BEHIND   how many of its collections are not current

Exit codes:
  0  shown; also after Ctrl-C
  1  the server does not answer, or is no Tributary
  2  a flag or the kubeconfig has to be corrected";

/// The arguments of `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArguments {
    /// The kubeconfig that `serve --write-kubeconfig` wrote [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the server, or of one of its clusters [default: the kubeconfig's current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Print the screen once, even on a terminal
    #[arg(long)]
    pub once: bool,
    /// The form of the output; JSON is printed once
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: OutputFormat,
}
