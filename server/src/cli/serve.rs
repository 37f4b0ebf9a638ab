//! The flags of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tributary_apimachinery::{ClusterName, Host, ItemResourceVersions, Partial};
use tributary_listener::{GoawayChance, ListenAddress};
use tributary_sources::ConfigurationFlags;
use tributary_sources::policies::PolicyFlags;

use super::access_log::AccessLogArguments;
use super::audit::AuditArguments;
use super::duration::parse_duration;
use super::flag_values;
use super::hub::HubArguments;
use super::kubeconfig::MergeArguments;
use super::limits::LimitArguments;
use super::publication::PublicationArguments;
use super::replicas::ReplicaArguments;
use super::shared::SharedArguments;

/// The text below the flags in `tributary serve --help`.
pub(super) const HELP: &str = "Examples:
  tributary serve
      serves every context of your kubeconfig
  tributary serve --contexts eu,us --write-kubeconfig all.kubeconfig
      serves two contexts; then: kubectl --kubeconfig all.kubeconfig get pods -A
  tributary serve --merge-into-kubeconfig
      puts the contexts into your kubeconfig; then: kubectl --context tributary-all get pods -A
  tributary serve --contexts '/^eu-/,america=us@1' --resources pods,deployments.apps
      serves the contexts that match a regular expression, and one under another name
  tributary serve --contexts '!old,!/-test$/'
      serves all contexts except 'old' and the contexts that match a regular expression
  tributary serve --config clusters/
      serves the UpstreamClusters of the YAML files in a directory

Cluster names:
  A cluster has the name of its context, in lower case, with '-' for each character that a DNS-1123
  label does not allow (kubernetes-admin@eu: kubernetes-admin-eu). For an ARN, the name is the part
  after the last '/'. Equal names are an error; NAME=CONTEXT sets a different name. The name 'all' is
  reserved for the merged view.
  If a context is unusable (a file is missing, for example) and --contexts names it, the start fails.
  If a pattern or the default selected it, the cluster reports the error, and the remaining contexts
  are served.

Durations:
  A DURATION has units (90s, 5m, 1h30m). A number without a unit is in seconds (5400).

Security:
  Personal mode, the default: only this machine can connect. Requests need the bearer token from the
  data directory (mode 0600), which is also in the kubeconfig of --write-kubeconfig. /healthz, /livez
  and /readyz without parameters need no token. The clusters see the users of the kubeconfig.
  Shared mode, with --client-ca-file, --requestheader-client-ca-file, --authentication-config,
  --token-review-cluster, or a certificate authority for clients in a cluster's spec.secureServing:
  many users can connect, from any address. Tributary impersonates each user, and each cluster's
  authorization rules apply to them.

Signals:
  SIGTERM, SIGINT  drain: send bookmarks and GOAWAY, then wait up to 10 s for exec, port-forward
                   and logs -f; a second signal exits at once
  SIGHUP           read the kubeconfig and the configuration again (changes of the files are also
                   detected without a signal)

Exit codes:
  0  success, including a graceful drain
  1  an error of the environment: the port is in use, a directory is not writable
  2  an error in a flag, a kubeconfig or a configuration file";

/// The arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// The kubeconfig with the contexts to serve [default: $KUBECONFIG or ~/.kube/config; no kubeconfig with --config
    /// alone]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Contexts to serve, separated by commas: a, /regex/, name=context. !a and !/regex/ exclude contexts; a list of
    /// exclusions alone serves all remaining contexts [default: all contexts of the kubeconfig]
    #[arg(long, value_name = "LIST")]
    pub contexts: Option<String>,
    /// A YAML file, or a directory of .yaml, .yml and .json files, with UpstreamClusters, ResourceRegistries and a
    /// MergedEndpoint
    #[arg(long, value_name = "FILE|DIR")]
    pub config: Option<PathBuf>,
    /// The address to listen on. Outside shared mode it must be a loopback address. Port 0 selects a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7443")]
    pub listen: ListenAddress,
    /// Host names of the merged view, without a port. With this flag, or with spec.serverNames of an UpstreamCluster,
    /// requests to any other host name are answered 503; loopback names still work if Tributary listens on loopback. By
    /// IP address, health checks and metrics are always available
    #[arg(long = "merged-host", value_name = "HOST,...", value_delimiter = ',')]
    pub merged_hosts: Vec<Host>,
    /// Write a kubeconfig for clients to this file, with a context 'all' and a context for each cluster. Not in shared
    /// mode
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// Flags that add contexts to an existing kubeconfig.
    #[command(flatten)]
    pub merge: MergeArguments,
    /// Cache only these resources: pods, deployments.apps [default: each resource that can be listed and watched, from
    /// its first read on]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub resources: Vec<String>,
    /// The cluster for new objects if no other rule selects a cluster
    #[arg(long, value_name = "CLUSTER")]
    pub create_in: Option<ClusterName>,
    /// The answer to a list or watch while a cluster has never been read [default: Allow; Deny with --config alone]
    #[arg(long, value_parser = flag_values::partial(), ignore_case = true, value_name = "Deny|Allow")]
    pub partial: Option<Partial>,
    /// The form of the resourceVersions of single objects. A ResourceRegistry overrides it for its resources
    #[arg(
        long,
        value_parser = flag_values::item_resource_versions(),
        ignore_case = true,
        value_name = "Composite|Integer",
        default_value = "Composite"
    )]
    pub item_resource_versions: ItemResourceVersions,
    /// The number of replicas that serve the same clients. With Several, a watch of several clusters resumes only from
    /// the versions of lists and bookmarks, not from Integer versions [default: One; Several with --config alone]
    #[arg(long, value_enum, ignore_case = true, value_name = "One|Several")]
    pub replicas: Option<Replicas>,
    /// The directory for the certificates, the token and the last known discovery of each cluster [default:
    /// $XDG_DATA_HOME/tributary or ~/.local/share/tributary]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Time between the end signal and the drain. Requests are served while /readyz fails, so that load balancers
    /// choose a different replica. Example: 5s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub shutdown_delay_duration: Duration,
    /// Probability, from 0 to 0.02, that an HTTP/2 request or watch makes its client open a new connection (GOAWAY).
    /// Requests in flight continue. 0.001 spreads clients over replicas within some thousand requests; 0 disables it
    #[arg(long, value_name = "CHANCE", default_value = "0")]
    pub goaway_chance: GoawayChance,
    /// Flags of shared mode.
    #[command(flatten)]
    pub shared: SharedArguments,
    /// Flags of hub mode.
    #[command(flatten)]
    pub hub: HubArguments,
    /// Flags of the publication of members in the hub.
    #[command(flatten)]
    pub publication: PublicationArguments,
    /// Flags for the division of flow-control limits among replicas.
    #[command(flatten)]
    pub sharing: ReplicaArguments,
    /// Flags of the resource limits.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Flags of the audit log.
    #[command(flatten)]
    pub audit: AuditArguments,
    /// Flags of the access log.
    #[command(flatten)]
    pub access_log: AccessLogArguments,
    /// A TracingConfiguration of apiserver.config.k8s.io/v1, as for kube-apiserver: the traced requests and the
    /// OpenTelemetry collector (OTLP over gRPC)
    #[arg(long, value_name = "FILE", help_heading = "Tracing")]
    pub tracing_config_file: Option<PathBuf>,
    /// True for `tributary demo`, whose log omits the limits.
    #[arg(skip)]
    pub is_demo: bool,
}

impl ServeArguments {
    /// Returns whether contexts of a kubeconfig are served: always, unless `--config` is the only source.
    pub fn serves_contexts(&self) -> bool {
        self.configuration_flags().has_contexts()
    }

    /// Returns the flags that select the configuration.
    pub fn configuration_flags(&self) -> ConfigurationFlags<'_> {
        let Self { config, kubeconfig, contexts, .. } = self;
        let [config, kubeconfig] = [config, kubeconfig].map(Option::as_deref);
        ConfigurationFlags {
            config,
            kubeconfig,
            contexts: contexts.as_deref(),
            has_hub: self.hub.objects.address().is_some(),
        }
    }

    /// Returns the flags for resources. By default, an answer in personal mode omits a cluster that was never
    /// reachable, and contains a Warning. An endpoint with only `--config` refuses such a request.
    pub fn policy_flags(&self) -> PolicyFlags {
        let default = if self.serves_contexts() { Partial::Allow } else { Partial::Deny };
        PolicyFlags {
            partial: self.partial.unwrap_or(default),
            item_resource_versions: self.item_resource_versions,
            create_in: self.create_in.clone(),
            resources: self.resources.clone(),
        }
    }

    /// Returns whether this process is the only replica. With `--config` alone, several replicas are the default.
    pub fn is_only_replica(&self) -> bool {
        match self.replicas {
            Some(replicas) => replicas == Replicas::One,
            None => self.serves_contexts() && !self.sharing.has_several(),
        }
    }
}

/// The number of replicas of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Replicas {
    /// This process is the only replica.
    #[value(name = "One")]
    One,
    /// Several replicas serve the clients, for example behind a load balancer.
    #[value(name = "Several")]
    Several,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArguments,
    }

    #[test]
    fn partial_answers_are_allowed_by_default_only_with_kubeconfig_contexts() {
        for (line, expected) in [
            ("serve", Partial::Allow),
            ("serve --config x", Partial::Deny),
            ("serve --config x --contexts eu", Partial::Allow),
            ("serve --partial Deny", Partial::Deny),
        ] {
            let flags = Line::parse_from(line.split(' ')).serve.policy_flags();
            assert_eq!(flags.partial, expected, "{line}");
        }
    }
}
