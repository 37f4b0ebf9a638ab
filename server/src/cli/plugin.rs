//! The command line of `kubectl tributary`, which is this program under the name of a kubectl plugin.
//!
//! Source: the plugin mechanism of kubectl (`kubectl-NAME` on the PATH is `kubectl NAME`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tributary_apimachinery::ClusterName;

use super::rv::RvCommand;
use super::status::StatusArguments;

/// The file name under which kubectl finds the plugin.
const PROGRAM: &str = "kubectl-tributary";

const EXAMPLES: &str = "Examples:
  kubectl tributary which deploy/web -n shop
  kubectl tributary diff deploy/web -n shop
  kubectl tributary exec deploy/web -n shop --cluster eu -it -- sh
  kubectl tributary status

It uses the kubeconfig as kubectl does, with a context of the merged view.";

const WHICH_HELP: &str = "Examples:
  kubectl tributary which deploy/web -n shop
  kubectl tributary which node/node-0 -o name

Exit codes: 0 found, 1 no cluster has it or the server does not answer, 2 an error in a flag or the kubeconfig.";

const STATUS_HELP: &str = "Examples:
  kubectl tributary status
  kubectl tributary status --once

`tributary status --help` explains the columns.

Exit codes: 0 success, 1 the server does not answer, 2 an error in a flag or the kubeconfig.";

const KUBECTL_HELP: &str = "Examples:
  kubectl tributary get deploy/web -n shop --cluster eu -o yaml
  kubectl tributary exec deploy/web -n shop --cluster eu -it -- sh
  kubectl tributary logs deploy/web -n shop --cluster eu -f
  kubectl tributary port-forward svc/web -n shop --cluster eu 8080:80

kubectl runs against the cluster path of --cluster, so it sees only objects of that cluster, even if more clusters have
the name. `kubectl COMMAND --help` lists the flags; --server and kubectl's own --cluster are not available.

Exit codes: the exit code of kubectl; 2 for an error in a flag or the kubeconfig.";

const DIFF_HELP: &str = "Examples:
  kubectl tributary diff deploy/web -n shop
  kubectl tributary diff configmap/settings --clusters eu,us

Values of Secrets are not shown, only whether they differ.

Exit codes, as for diff: 0 no differences, 1 differences, 2 an error.";

/// Commands for the clusters behind a Tributary endpoint.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, bin_name = "kubectl tributary", about = "Commands for the clusters behind a Tributary endpoint")]
#[command(version, after_help = EXAMPLES, propagate_version = true, max_term_width = 110)]
pub struct PluginCli {
    /// The command to run
    #[command(subcommand)]
    pub command: PluginCommand,
}

impl PluginCli {
    /// Returns whether the program was started under the name of the plugin.
    pub fn is_plugin_name(program: Option<&OsStr>) -> bool {
        program.and_then(|program| Path::new(program).file_stem()) == Some(OsStr::new(PROGRAM))
    }
}

/// The commands of `kubectl tributary`.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// List the clusters that have an object
    #[command(after_help = WHICH_HELP)]
    Which(WhichArguments),
    /// Compare an object between clusters
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
    /// Show the state of the server and its clusters
    #[command(after_help = STATUS_HELP)]
    Status(StatusArguments),
    /// Decode composite resourceVersions
    #[command(subcommand)]
    Rv(RvCommand),
}

/// The arguments of a kubectl command. kubectl parses all of them but `--cluster`, `--kubeconfig` and `--context`.
#[derive(Args, Clone, Debug)]
#[command(override_usage = "kubectl tributary COMMAND [TYPE/NAME] --cluster NAME [FLAGS OF KUBECTL] [-- COMMAND]")]
pub struct KubectlCommand {
    /// --cluster NAME, and the arguments of the kubectl command
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    pub arguments: Vec<OsString>,
}

/// Flags that select the endpoint.
#[derive(Args, Clone, Debug)]
pub struct EndpointArguments {
    /// The kubeconfig [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the merged view [default: the current context]
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
}

/// Arguments that select an object.
#[derive(Args, Clone, Debug)]
pub struct ObjectArguments {
    /// The object. The type can be a plural, a singular or a short name, with or without a group: deploy,
    /// deployments.apps
    #[arg(value_name = "TYPE/NAME", required = true, num_args = 1..=2)]
    pub object: Vec<String>,
    /// The namespace of the object [default: the namespace of the context, or default]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Flags that select the endpoint.
    #[command(flatten)]
    pub endpoint: EndpointArguments,
}

/// The arguments of `which`.
#[derive(Args, Clone, Debug)]
pub struct WhichArguments {
    /// Arguments that select an object.
    #[command(flatten)]
    pub object: ObjectArguments,
    /// Output format: a table, names or JSON
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: WhichOutput,
}

/// The output format of `which`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichOutput {
    /// A table for people.
    Table,
    /// The names of the clusters, a line each.
    Name,
    /// JSON for programs.
    Json,
}

/// The arguments of `diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// Arguments that select an object.
    #[command(flatten)]
    pub object: ObjectArguments,
    /// The clusters to compare, separated by commas. Each is compared with the first [default: all clusters that have
    /// the object]
    #[arg(long, alias = "contexts", value_name = "LIST", value_delimiter = ',')]
    pub clusters: Vec<ClusterName>,
    /// Also compare fields that each cluster sets: status, uid, versions, times, managedFields
    #[arg(long)]
    pub all_fields: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_definition_passes_the_checks_of_clap() {
        PluginCli::command().debug_assert();
    }

    #[test]
    fn plugin_parses_kubectl_arguments_unchanged() {
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
    fn plugin_is_detected_by_the_name_of_the_program() {
        for (program, expected) in [
            ("kubectl-tributary", true),
            ("/usr/local/bin/kubectl-tributary", true),
            ("kubectl-tributary.exe", true),
            ("tributary", false),
            ("kubectl", false),
            ("", false),
        ] {
            assert_eq!(PluginCli::is_plugin_name(Some(OsStr::new(program))), expected, "{program}");
        }
        assert!(!PluginCli::is_plugin_name(None));
    }
}
