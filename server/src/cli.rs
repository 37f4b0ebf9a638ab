//! The command line.

pub mod access_log;
pub mod audit;
mod boolean;
pub(crate) mod bytes;
mod check;
mod completion;
mod convert;
#[cfg(feature = "demo")]
mod demo;
mod duration;
mod flag_values;
mod group_resource;
mod hub;
mod join;
mod kubeconfig;
mod limits;
mod output_format;
mod plugin;
mod policy;
mod publication;
mod replicas;
mod rv;
mod serve;
mod shared;
mod sni_cert_key;
mod status;

use clap::{Parser, Subcommand};

use crate::output::log::{LogFormat, LogLevel};
pub use check::CheckArguments;
pub use completion::CompletionArguments;
pub use convert::ConvertArguments;
#[cfg(feature = "demo")]
pub use demo::DemoArguments;
pub use group_resource::GroupResource;
pub use hub::{DoorSystem, HubArguments, HubObjectArguments, KarmadaServer};
pub use join::{ImpersonationChoice, JoinArguments, Profile, TokenLifetime};
pub use kubeconfig::{KubeconfigCommand, MergeArguments, RemoveArguments, UserArguments};
pub use limits::LimitArguments;
pub use output_format::OutputFormat;
pub use plugin::{
    DiffArguments, EndpointArguments, KubectlCommand, ObjectArguments, PluginCli, PluginCommand, WhichArguments,
    WhichOutput,
};
pub use policy::{PolicyCommand, PolicyTestArguments, TestedResource};
pub use publication::PublicationArguments;
pub use replicas::ReplicaArguments;
pub use rv::{DecodeArguments, RvCommand};
pub use serve::{Replicas, ServeArguments};
pub use shared::{SharedArguments, TlsVersion};
pub use sni_cert_key::SniCertKey;
pub use status::StatusArguments;

/// The text below the flags in `tributary --help`.
const EXIT_CODES: &str = "Exit codes:\n  \
    0  success, including a graceful drain\n  \
    1  an error of the environment: the port is in use, a directory is not writable\n  \
    2  an error in a flag, a kubeconfig or a configuration file";

/// One Kubernetes API over many clusters.
#[derive(Debug, Parser)]
#[command(name = "tributary", version, about = "One Kubernetes API over many clusters", after_help = EXIT_CODES)]
#[command(propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// The format of the log, which is written to standard error
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        env = "TRIBUTARY_LOG_FORMAT",
        help_heading = "Logging"
    )]
    pub log_format: LogFormat,
    /// The lowest level of log lines to write
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "info",
        env = "TRIBUTARY_LOG_LEVEL",
        help_heading = "Logging"
    )]
    pub log_level: LogLevel,
    /// The command to run
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one per process")]
pub enum Command {
    /// Serve the clusters of a kubeconfig or of configuration files as a single endpoint
    #[command(after_help = serve::HELP)]
    Serve(ServeArguments),
    /// Serve simulated clusters, until Ctrl-C
    #[cfg(feature = "demo")]
    #[command(after_help = demo::EXAMPLES)]
    Demo(DemoArguments),
    /// Show the state of a running server and its clusters
    #[command(after_help = status::EXAMPLES)]
    Status(StatusArguments),
    /// Validate configuration files and show the clusters and resources to be served
    #[command(after_help = check::EXAMPLES)]
    Check(CheckArguments),
    /// Create an account with the least rights in a cluster, and write the UpstreamCluster
    #[command(after_help = join::EXAMPLES)]
    Join(JoinArguments),
    /// Convert UpstreamClusters of KubeGateway to configuration files
    #[command(after_help = convert::EXAMPLES)]
    Convert(ConvertArguments),
    /// Test dispatch policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Decode composite resourceVersions
    #[command(subcommand)]
    Rv(RvCommand),
    /// Create a kubeconfig for a user, or remove contexts from a kubeconfig
    #[command(subcommand)]
    Kubeconfig(KubeconfigCommand),
    /// Print a completion script for a shell
    #[command(after_help = completion::INSTALLATION)]
    Completion(CompletionArguments),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use tributary_apimachinery::{ItemResourceVersions, Partial};
    use tributary_router::Limits;

    use super::*;

    #[test]
    fn command_definition_passes_the_checks_of_clap() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_parse_as_documented() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        let Command::Serve(serve) = parse(
            "tributary serve --kubeconfig k --contexts a,/b/ --listen 127.0.0.1:0 --resources pods,deployments.apps \
             --create-in eu --partial Deny --item-resource-versions Integer --replicas Several --data-dir d --write-kubeconfig w --log-format json --log-level debug",
        )
        .unwrap()
        .command
        else {
            panic!("serve")
        };
        assert_eq!(serve.resources, ["pods", "deployments.apps"]);
        assert_eq!(serve.partial, Some(Partial::Deny));
        assert_eq!(serve.item_resource_versions, ItemResourceVersions::Integer);
        assert!(!serve.is_only_replica());
        for (line, expected) in [
            ("tributary serve", true),
            ("tributary serve --config x", false),
            ("tributary serve --config x --replicas One", true),
            ("tributary serve --config x --contexts a", true),
            ("tributary serve --replica-count 2", false),
            ("tributary serve --replica-count 1 --replica-dns-name replicas", false),
            ("tributary serve --peer https://a:1 --peer-listen 127.0.0.1:1 --peer-key-file a", false),
            ("tributary serve --replicas several", false),
        ] {
            let Command::Serve(serve) = parse(line).unwrap().command else { panic!("serve") };
            assert_eq!(serve.is_only_replica(), expected, "{line}");
            assert_eq!(serve.item_resource_versions, ItemResourceVersions::Composite);
        }
        assert_eq!(serve.create_in.unwrap().as_str(), "eu");
        assert_eq!(serve.limits.router(8 << 30), Limits::default());
        // Flags accept their values in upper, lower or mixed case.
        let line = "tributary serve --partial deny --item-resource-versions integer";
        let Command::Serve(serve) = parse(line).unwrap().command else { panic!("serve") };
        assert_eq!(serve.partial, Some(Partial::Deny));
        assert_eq!(serve.item_resource_versions, ItemResourceVersions::Integer);
        for wrong in [
            "tributary",
            "tributary serve --tls-cert-file a",
            "tributary serve --tls-sni-cert-key a.crt",
            "tributary serve --tls-min-version VersionTLS11",
            "tributary serve --requestheader-allowed-names a",
            "tributary demo --listen 0.0.0.0:7443",
            "tributary serve --listen nonsense",
            "tributary serve --create-in A_B",
            "tributary serve --partial maybe",
            "tributary serve --max-connections 0",
            "tributary serve --max-collection-bytes 0",
            "tributary serve --max-total-collection-bytes 0",
            "tributary serve --max-namespace-views 0",
            "tributary serve --history-bytes -1",
            "tributary serve --item-resource-versions number",
            "tributary serve --replicas 2",
            "tributary serve --replica-count 0",
            "tributary serve --replica-dns-name replicas",
            "tributary demo --clusters 0",
            "tributary demo --churn -1",
            "tributary convert",
            "tributary policy test --config x --user ann --verb get",
            "tributary policy test --config x --user ann --verb get --path / --resource pods",
            "tributary policy test --config x --user ann --verb get --path / --namespace a",
            "tributary rv decode",
        ] {
            assert_eq!(parse(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }
}
