//! The flags of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tributary_apimachinery::{ClusterName, Host, ItemResourceVersions, Partial};

use super::access_log::AccessLogArguments;
use super::audit::AuditArguments;
use super::clusters::ClusterArguments;
use super::duration::parse_duration;
use super::kubeconfig::MergeArguments;
use super::limits::LimitArguments;
use super::replicas::ReplicaArguments;
use super::shared::SharedArguments;
use super::words;
use crate::listener_settings::{GoawayChance, ListenAddress};

/// What stands below its flags.
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
      serves all contexts but one, and but those that match a regular expression
  tributary serve --config clusters/
      serves the UpstreamClusters of the YAML files in a directory

Cluster names:
  A context becomes a cluster of its name in lower case, with '-' for what a DNS-1123 label does
  not allow (kubernetes-admin@eu: kubernetes-admin-eu); of an ARN the part after the last '/'
  counts. Names that collide are refused; NAME=CONTEXT gives another one. 'all' is reserved for
  the merged view.
  A context that cannot be used (a file is missing, for example) ends the start if --contexts
  names it. If it was taken with all others or by a pattern, it becomes a cluster that says why it
  fails, and the others are served.

Durations:
  A DURATION has units (90s, 5m, 1h30m); without one it is seconds (5400).

Security:
  Only this machine can connect. Requests need the bearer token that is kept in the data
  directory (0600) and stands in the kubeconfig of --write-kubeconfig; only plain /healthz, /livez
  and /readyz need none. The clusters see the kubeconfig's own users.
  With --client-ca-file, --requestheader-client-ca-file, --authentication-config or
  --token-review-cluster, or where a cluster's spec.secureServing has an authority for clients, many
  users are served instead, from any address: each sees and does what they may in each cluster,
  under their own name.

Signals:
  SIGTERM, SIGINT  drain: bookmarks, GOAWAY, at most 10 s (for exec, port-forward, logs -f);
                   a second one ends at once
  SIGHUP           read the kubeconfig and the configuration again (a change of the files is
                   noticed without it, too)

Exit codes:
  0  done; also after a graceful drain
  1  a failure of the environment: a port in use, a directory that cannot be written
  2  a flag, a kubeconfig or a configuration file has to be corrected";

/// The arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// The kubeconfig whose contexts are served [default: $KUBECONFIG, else ~/.kube/config; none with --config alone]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The contexts to serve, separated by commas: a, /regex/, name=context; !a and !/regex/ exclude, and alone leave
    /// all others [default: all contexts of the kubeconfig]
    #[arg(long, value_name = "LIST")]
    pub contexts: Option<String>,
    /// UpstreamClusters and ResourceRegistries in a YAML file, or in the .yaml, .yml and .json files of a directory
    #[arg(long, value_name = "FILE|DIR")]
    pub config: Option<PathBuf>,
    /// The address to listen on: a loopback address, unless the endpoint is shared; port 0 is a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7443")]
    pub listen: ListenAddress,
    /// Hosts, without a port, at which all clusters are served as one. With it, or with spec.serverNames of an
    /// UpstreamCluster, any other host is answered 503, but for loopback names where it listens on loopback. Addresses
    /// need not be named for health checks and metrics
    #[arg(long = "merged-host", value_name = "HOST,...", value_delimiter = ',')]
    pub merged_hosts: Vec<Host>,
    /// Write a kubeconfig for clients to this file, with the context 'all' and one for each cluster; not with a shared
    /// endpoint
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// How contexts are put into a kubeconfig that has others.
    #[command(flatten)]
    pub merge: MergeArguments,
    /// Hold only these resources in memory: pods, deployments.apps [default: everything that can be listed and watched,
    /// on first use]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub resources: Vec<String>,
    /// The cluster for new objects for which nothing else decides
    #[arg(long, value_name = "CLUSTER")]
    pub create_in: Option<ClusterName>,
    /// What lists and watches do about a cluster that has never been read: wait for it, then refuse; or leave it out,
    /// with a Warning [default: Allow; Deny with --config alone]
    #[arg(long, value_parser = words::partial(), ignore_case = true, value_name = "Deny|Allow")]
    pub partial: Option<Partial>,
    /// The form of the versions that single objects carry: Composite, or Integer for clients that compare them as
    /// numbers (for example controller-runtime's EnableReadYourWritesConsistency).
    /// A ResourceRegistry decides for its own resources
    #[arg(
        long,
        value_parser = words::item_resource_versions(),
        ignore_case = true,
        value_name = "Composite|Integer",
        default_value = "Composite"
    )]
    pub item_resource_versions: ItemResourceVersions,
    /// How many processes serve this endpoint's clients. With Several, a watch of several clusters never resumes from
    /// an Integer version, only from the versions of bookmarks and lists [default: One; Several with --config alone]
    #[arg(long, value_enum, ignore_case = true, value_name = "One|Several")]
    pub replicas: Option<Replicas>,
    /// Where the certificates, the token and what clusters served last are kept [default: $XDG_DATA_HOME/tributary,
    /// else ~/.local/share/tributary]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How long requests are served as before after the signal that ends the process, while /readyz fails already, so
    /// that load balancers send clients elsewhere: 5s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub shutdown_delay_duration: Duration,
    /// How likely a request over HTTP/2, a watch as any other, is the last on its connection: its client is told
    /// (GOAWAY) and opens another, by way of the load balancer, while what is under way goes on. From 0 (never) to
    /// 0.02; 0.001 spreads clients over several replicas within some thousand requests
    #[arg(long, value_name = "CHANCE", default_value = "0")]
    pub goaway_chance: GoawayChance,
    /// Who may connect, and how.
    #[command(flatten)]
    pub shared: SharedArguments,
    /// How many share limits of flow control.
    #[command(flatten)]
    pub sharing: ReplicaArguments,
    /// What is held at most.
    #[command(flatten)]
    pub limits: LimitArguments,
    /// What is written of requests, and where.
    #[command(flatten)]
    pub audit: AuditArguments,
    /// Where a line of each request is written.
    #[command(flatten)]
    pub access_log: AccessLogArguments,
    /// An apiserver.config.k8s.io/v1 TracingConfiguration, as kube-apiserver takes it: which requests are traced, and
    /// the OpenTelemetry collector that spans are sent to (OTLP over gRPC)
    #[arg(long, value_name = "FILE", help_heading = "Tracing")]
    pub tracing_config_file: Option<PathBuf>,
    /// Whether it is `demo` that serves, for somebody who has a first look: the log leaves out what a machine is sized
    /// by.
    #[arg(skip)]
    pub is_demo: bool,
}

impl ServeArguments {
    /// Whether the contexts of a kubeconfig are served: always, unless `--config` stands alone.
    pub fn serves_contexts(&self) -> bool {
        self.clusters().has_contexts()
    }

    /// Where the clusters are named.
    pub fn clusters(&self) -> ClusterArguments<'_> {
        let Self { config, kubeconfig, contexts, .. } = self;
        ClusterArguments { config: config.as_deref(), kubeconfig: kubeconfig.as_deref(), contexts: contexts.as_deref() }
    }

    /// Whether this process alone serves its clients. Whoever shares an endpoint may well run it twice,
    /// and has to say so if not.
    pub fn is_alone(&self) -> bool {
        match self.replicas {
            Some(replicas) => replicas == Replicas::One,
            None => self.serves_contexts() && !self.sharing.are_several(),
        }
    }
}

/// How many processes serve one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Replicas {
    /// This one.
    #[value(name = "One")]
    One,
    /// This one and others, for example behind a load balancer.
    #[value(name = "Several")]
    Several,
}
