//! The command line of `kubectl tributary`: this program under the name of a kubectl plugin.
//!
//! Source: kubectl's plugin mechanism (`kubectl-NAME` on the PATH is `kubectl NAME`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tributary_apimachinery::ClusterName;

use super::rv::RvCommand;
use super::status::StatusArguments;

/// The name under which kubectl finds the plugin.
const PROGRAM: &str = "kubectl-tributary";

const EXAMPLES: &str = "Examples:
  kubectl tributary which deploy/web -n shop
  kubectl tributary diff deploy/web -n shop
  kubectl tributary exec deploy/web -n shop --cluster eu -it -- sh
  kubectl tributary status

It uses the kubeconfig as kubectl does, and in it a context that leads to Tributary's merged view.";

const WHICH_HELP: &str = "Examples:
  kubectl tributary which deploy/web -n shop
  kubectl tributary which node/node-0 -o name

Exit codes: 0 found, 1 in no cluster, or it cannot be asked, 2 a flag or the kubeconfig has to be corrected.";

const STATUS_HELP: &str = "Examples:
  kubectl tributary status
  kubectl tributary status --once

`tributary status --help` explains the columns.

Exit codes: 0 shown, 1 it cannot be asked, 2 a flag or the kubeconfig has to be corrected.";

const KUBECTL_HELP: &str = "Examples:
  kubectl tributary get deploy/web -n shop --cluster eu -o yaml
  kubectl tributary exec deploy/web -n shop --cluster eu -it -- sh
  kubectl tributary logs deploy/web -n shop --cluster eu -f
  kubectl tributary port-forward svc/web -n shop --cluster eu 8080:80

kubectl is run with the cluster's own API as its server, so that pods are those of the cluster, and a name that several
clusters have is that cluster's. `kubectl COMMAND --help` lists the other flags; all but --server and kubectl's own
--cluster are taken.

Exit codes: those of kubectl; 2 a flag or the kubeconfig has to be corrected.";

const DIFF_HELP: &str = "Examples:
  kubectl tributary diff deploy/web -n shop
  kubectl tributary diff configmap/settings --clusters eu,us

Values of Secrets are not shown, only whether they differ.

Exit codes are those of diff: 0 no difference, 1 differences, 2 a failure.";

/// What a kubectl user wants to know of many clusters.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl tributary", about = "What a kubectl user wants to know of many clusters")]
#[command(version, after_help = EXAMPLES, propagate_version = true, max_term_width = 110)]
pub struct PluginCli {
    /// What to do
    #[command(subcommand)]
    pub command: PluginCommand,
}

impl PluginCli {
    /// Whether the program was started under the plugin's name.
    pub fn is_meant(program: Option<&OsStr>) -> bool {
        program.and_then(|program| Path::new(program).file_stem()) == Some(OsStr::new(PROGRAM))
    }
}

/// The commands of `kubectl tributary`.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Name the clusters that have an object
    #[command(after_help = WHICH_HELP)]
    Which(WhichArguments),
    /// Show how an object of one name differs between clusters
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArguments),
    /// Run `kubectl get` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    Get(KubectlCommand),
    /// Run `kubectl describe` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    Describe(KubectlCommand),
    /// Run `kubectl logs` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    Logs(KubectlCommand),
    /// Run `kubectl exec` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    Exec(KubectlCommand),
    /// Run `kubectl attach` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    Attach(KubectlCommand),
    /// Run `kubectl port-forward` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    PortForward(KubectlCommand),
    /// Run `kubectl delete` in one cluster
    #[command(after_help = KUBECTL_HELP)]
    Delete(KubectlCommand),
    /// Show how the clusters are: one screen, live
    #[command(after_help = STATUS_HELP)]
    Status(StatusArguments),
    /// Look into composite resourceVersions
    #[command(subcommand)]
    Rv(RvCommand),
}

/// The arguments of a kubectl command. kubectl parses all but a few of them.
#[derive(Args, Clone, Debug)]
#[command(override_usage = "kubectl tributary COMMAND [TYPE/NAME] --cluster NAME [FLAGS OF KUBECTL] [-- COMMAND]")]
pub struct KubectlCommand {
    /// --cluster NAME, and the arguments of the kubectl command
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    pub arguments: Vec<OsString>,
}

/// Which endpoint is asked.
#[derive(Args, Clone, Debug)]
pub struct EndpointArguments {
    /// The kubeconfig [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of Tributary's merged view [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
}

/// Which object is meant.
#[derive(Args, Clone, Debug)]
pub struct ObjectArguments {
    /// The object. The type may be a plural, a singular, a short name, and have a group: deploy, deployments.apps
    #[arg(value_name = "TYPE/NAME", required = true, num_args = 1..=2)]
    pub object: Vec<String>,
    /// The object's namespace [default: the context's, else default]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Which endpoint is asked.
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

/// The arguments of `which`.
#[derive(Args, Clone, Debug)]
pub struct WhichArguments {
    /// Which object is meant.
    #[command(flatten)]
    pub object: ObjectArguments,
    /// The form of the output
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: WhichOutput,
}

/// The form of the output of `which`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichOutput {
    /// For people.
    Table,
    /// The names of the clusters, one a line.
    Name,
    /// For programs.
    Json,
}

/// The arguments of `diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// Which object is meant.
    #[command(flatten)]
    pub object: ObjectArguments,
    /// The clusters to compare, separated by commas: each further one with the first [default: all that have the
    /// object]
    #[arg(long, alias = "contexts", value_name = "LIST", value_delimiter = ',')]
    pub clusters: Vec<ClusterName>,
    /// Compare also what each cluster sets by itself: status, uid, versions and times, managedFields
    #[arg(long)]
    pub all_fields: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        PluginCli::command().debug_assert();
    }

    #[test]
    fn arguments_for_kubectl_stay_as_they_are() {
        for arguments in [
            "deploy/web --cluster eu -it -- sh -c x --help",
            "--cluster eu deploy/web -n shop -- ls -l",
            "--cluster=eu -n shop deploy/web",
            "-n shop --cluster eu deploy/web -- --version",
            "-it deploy/web --cluster eu -- sh",
            "",
        ] {
            let words = ["kubectl-tributary", "exec"].into_iter().chain(arguments.split_whitespace());
            let PluginCommand::Exec(parsed) = PluginCli::try_parse_from(words).unwrap().command else { panic!() };
            assert_eq!(parsed.arguments.join(OsStr::new(" ")), OsStr::new(arguments));
        }
        let help = PluginCli::try_parse_from(["kubectl-tributary", "exec", "--help"]).unwrap_err();
        assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn the_name_decides() {
        for (program, expected) in [
            ("kubectl-tributary", true),
            ("/usr/local/bin/kubectl-tributary", true),
            ("kubectl-tributary.exe", true),
            ("tributary", false),
            ("kubectl", false),
            ("", false),
        ] {
            assert_eq!(PluginCli::is_meant(Some(OsStr::new(program))), expected, "{program}");
        }
        assert!(!PluginCli::is_meant(None));
    }
}
