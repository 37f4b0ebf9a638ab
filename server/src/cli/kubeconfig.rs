//! The command line of `tributary kubeconfig`, and the flags of `serve` that put contexts into a kubeconfig.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands of `kubeconfig`.
#[derive(Debug, Subcommand)]
pub enum KubeconfigCommand {
    /// Take out of a kubeconfig what `serve --merge-into-kubeconfig` has put in
    #[command(after_help = "Example:\n  tributary kubeconfig remove")]
    Remove(RemoveArguments),
}

/// The arguments of `kubeconfig remove`.
#[derive(Args, Clone, Debug)]
pub struct RemoveArguments {
    /// The kubeconfig [default: each file of $KUBECONFIG, else ~/.kube/config]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// How contexts are put into a kubeconfig that has others.
#[derive(Args, Clone, Debug)]
pub struct MergeArguments {
    /// Put the contexts into your own kubeconfig too, beside what it has, as tributary-all and one for each cluster.
    /// They stay when the program ends; `tributary kubeconfig remove` takes them out. Not with a shared endpoint
    /// [default: no; without =FILE: the first file of $KUBECONFIG that exists, else ~/.kube/config]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub merge_into_kubeconfig: Option<Option<PathBuf>>,
    /// What the names of contexts, clusters and user begin with that --merge-into-kubeconfig puts in
    #[arg(long, value_name = "TEXT", default_value = DEFAULT_PREFIX, value_parser = parse_prefix)]
    pub kubeconfig_prefix: String,
}

/// Distinct from what a kubeconfig has, and says whose they are.
const DEFAULT_PREFIX: &str = "tributary-";

impl Default for MergeArguments {
    fn default() -> Self {
        Self { merge_into_kubeconfig: None, kubeconfig_prefix: DEFAULT_PREFIX.to_owned() }
    }
}

fn parse_prefix(text: &str) -> Result<String, &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@/:".contains(c);
    if text.chars().all(is_plain) { Ok(text.to_owned()) } else { Err("must be letters, digits and -_.@/: alone") }
}
