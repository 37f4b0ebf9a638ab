//! The command line.

pub mod access_log;
pub mod audit;
mod completion;
mod convert;
#[cfg(feature = "demo")]
mod demo;
mod join;
mod kubeconfig;
mod plugin;
mod policy;
mod replicas;
mod shared;
mod sni_cert_key;
mod words;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tributary_apimachinery::{ClusterName, Host, ItemResourceVersions, Partial, duration};
use tributary_router::Limits;

use crate::listener::{Bounds, GoawayChance, ListenAddress};
use crate::log::{LogFormat, LogLevel};
use access_log::AccessLogArguments;
use audit::AuditArguments;
pub use completion::CompletionArguments;
pub use convert::ConvertArguments;
#[cfg(feature = "demo")]
pub use demo::DemoArguments;
pub use join::{ImpersonationChoice, JoinArguments, Profile, TokenLifetime};
pub use kubeconfig::{KubeconfigCommand, MergeArguments, RemoveArguments};
pub use plugin::{
    DiffArguments, EndpointArguments, ObjectArguments, PluginCli, PluginCommand, WhichArguments, WhichOutput,
};
pub use policy::{PolicyCommand, PolicyTestArguments, TestedResource};
pub use replicas::{PeerUrl, ReplicaArguments};
pub use shared::{SharedArguments, TlsVersion};
pub use sni_cert_key::SniCertKey;

/// What stands at the end of every command's help.
const EXIT_CODES: &str = "Exit codes:\n  \
    0  done; also after a graceful drain\n  \
    1  a failure of the environment: a port in use, a directory that cannot be written\n  \
    2  a flag, a kubeconfig or a configuration file has to be corrected";

/// One Kubernetes API over many clusters.
#[derive(Debug, Parser)]
#[command(name = "tributary", version, about = "One Kubernetes API over many clusters", after_help = EXIT_CODES)]
#[command(propagate_version = true, max_term_width = 110)]
pub struct Cli {
    /// How logs are written; they go to standard error
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        env = "TRIBUTARY_LOG_FORMAT",
        help_heading = "Logging"
    )]
    pub log_format: LogFormat,
    /// The least important log lines that are written
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "info",
        env = "TRIBUTARY_LOG_LEVEL",
        help_heading = "Logging"
    )]
    pub log_level: LogLevel,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one per process")]
pub enum Command {
    /// Serve the clusters of a kubeconfig, or of configuration files, as one
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArguments),
    /// Show everything over embedded simulated clusters, until Ctrl-C
    #[cfg(feature = "demo")]
    #[command(after_help = demo::EXAMPLES)]
    Demo(DemoArguments),
    /// Show how the clusters of a running server are: one screen, live
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArguments),
    /// Validate configuration files and explain what would be served
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// Make an account in a cluster, with the least rights, and configure the cluster here
    #[command(after_help = join::EXAMPLES)]
    Join(JoinArguments),
    /// Write configuration files for the clusters of a KubeGateway
    #[command(after_help = convert::EXAMPLES)]
    Convert(ConvertArguments),
    /// Try out dispatch policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Look into composite resourceVersions
    #[command(subcommand)]
    Rv(RvCommand),
    /// Change a kubeconfig of yours
    #[command(subcommand)]
    Kubeconfig(KubeconfigCommand),
    /// Print a script by which a shell completes commands and flags
    #[command(after_help = completion::INSTALLATION)]
    Completion(CompletionArguments),
}

const SERVE_HELP: &str = "Examples:
  tributary serve
      serves every context of your kubeconfig
  tributary serve --contexts eu,us --write-kubeconfig all.kubeconfig
      serves two contexts; then: kubectl --kubeconfig all.kubeconfig get pods -A
  tributary serve --merge-into-kubeconfig
      puts the contexts into your kubeconfig; then: kubectl --context tributary-all get pods -A
  tributary serve --contexts '/^eu-/,america=us@1' --resources pods,deployments.apps
      serves the contexts that match a regular expression, and one under another name
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

Security:
  Only this machine can connect. Requests need the bearer token that is kept in the data
  directory (0600) and stands in the kubeconfig of --write-kubeconfig; only plain /healthz, /livez
  and /readyz need none. The clusters see the kubeconfig's own users.
  With --client-ca-file or --requestheader-client-ca-file many users are served instead, from any
  address: each sees and does what they may in each cluster, under their own name.

Signals:
  SIGTERM, SIGINT  drain: bookmarks, GOAWAY, at most 10 s (for exec, port-forward, logs -f);
                   a second one ends at once
  SIGHUP           read the kubeconfig and the configuration again (a change of the files is
                   noticed without it, too)

Exit codes:
  0  done; also after a graceful drain
  1  a failure of the environment: a port in use, a directory that cannot be written
  2  a flag, a kubeconfig or a configuration file has to be corrected";

const STATUS_EXAMPLES: &str = "Examples:
  tributary status --kubeconfig all.kubeconfig
      shows the screen until Ctrl-C, made anew every 2 s; without a terminal it is printed once
  tributary status --once
      prints it once, for the server of $KUBECONFIG or ~/.kube/config
  tributary status -o json
      prints the whole report: reasons that are cut on the screen are whole there

The columns:
  HEALTH   ready; refusing: it answers, but refuses what is asked for; pending: not asked yet;
           troubled: something is wrong with it as a whole; unreachable
  AGE      how old the oldest of what is held of it is
  LATENCY  how long its last answer to /readyz took
  BEHIND   how many of its collections are not current

Exit codes:
  0  shown; also after Ctrl-C
  1  the server does not answer, or is no Tributary
  2  a flag or the kubeconfig has to be corrected";

const CHECK_EXAMPLES: &str = "Examples:
  tributary check --config clusters.yaml
  tributary check --config clusters/
  tributary check --config clusters/ --as ann --group dev
      asks each cluster what ann would see of it, and by which binding; Tributary's own account asks
  tributary check --as ann --contexts eu,us --resources pods,jobs.batch

A configuration file:
  apiVersion: tributary.dev/v1alpha1
  kind: UpstreamCluster
  metadata: { name: eu }
  spec:
    kubeconfig: { path: members.kubeconfig, context: eu }
  ---
  apiVersion: tributary.dev/v1alpha1
  kind: ResourceRegistry
  metadata: { name: workloads }
  spec:
    resources: [pods, deployments.apps]
    placement: eu

Exit codes: 0 valid, 1 a cluster cannot be asked, 2 there are errors.";

/// The arguments of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// The kubeconfig whose contexts are served [default: $KUBECONFIG, else ~/.kube/config; none with --config alone]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The contexts to serve, separated by commas: a, /regex/, name=context [default: all contexts of the kubeconfig]
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
    /// Write a kubeconfig for clients to this file, with the context 'all' and one for each cluster
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
    /// Where the certificates, the token and what clusters served last are kept [default: $XDG_DATA_HOME/tributary, else ~/.local/share/tributary]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How long requests are served as before after the signal that ends the process, while /readyz fails already, so
    /// that load balancers send clients elsewhere: 5s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_duration)]
    pub shutdown_delay_duration: Duration,
    /// How likely a request over HTTP/2 that is not long-running is the last on its connection: its client is told
    /// (GOAWAY) and opens another, by way of the load balancer, while what is under way goes on. From 0 (never) to 0.02;
    /// 0.001 spreads clients over several replicas within some thousand requests
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
    /// An apiserver.config.k8s.io/v1 TracingConfiguration, as kube-apiserver takes it: which requests are traced, and the
    /// OpenTelemetry collector that spans are sent to (OTLP over gRPC)
    #[arg(long, value_name = "FILE", help_heading = "Tracing")]
    pub tracing_config_file: Option<PathBuf>,
}

/// What is held at most. Bytes and seconds are whole numbers without a suffix. Each bound is a metric, too.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Client connections that are open at once; further ones wait until one closes
    #[arg(long, value_name = "N", default_value_t = Self::default().max_connections, value_parser = parse_count)]
    pub max_connections: usize,
    /// Bytes of answers that clients have not read, all connections together. A connection that has used its share is
    /// given no more until its client reads: its streams wait, and its requests are answered 429. An answer that nobody
    /// reads is cut after a while
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_unread_bytes, value_parser = parse_count)]
    pub max_unread_bytes: usize,
    /// Lists, and initial events of watches, longer than 64 KiB that are written at once. Further ones wait, for at
    /// most 50 s; connections take turns
    #[arg(long, value_name = "N", default_value_t = Self::default().max_long_answers, value_parser = parse_count)]
    pub max_long_answers: usize,
    /// Bytes of changes that are remembered for each resource of each cluster; a client that was away for longer than
    /// they reach back lists again
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().history_bytes)]
    pub history_bytes: usize,
    /// Seconds for which changes are remembered
    #[arg(long, value_name = "SECONDS", default_value_t = Self::default().history_seconds)]
    pub history_seconds: u64,
    /// Bytes of encoded watch events that are kept for other watchers, for each resource
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().encodings_bytes)]
    pub encodings_bytes: usize,
    /// Seconds after which a resource that nobody reads or watches is no longer held
    #[arg(long, value_name = "SECONDS", default_value_t = Self::default().unused_seconds)]
    pub unused_seconds: u64,
    /// Requests in flight, without watches, exec, logs and other long-running ones. Of three quarters of them one
    /// connection may use at most half of what nobody else uses (1,500 of 4,000 if it is alone); the last quarter is
    /// for connections with few requests. More is answered 429 with Retry-After
    #[arg(long, value_name = "N", default_value_t = Self::default().max_requests_inflight, value_parser = parse_count)]
    pub max_requests_inflight: usize,
    /// Watches, followed logs, exec and other long-running requests at once, where many users are served. Shared among
    /// users as requests in flight are, over all their connections and all clusters (15,000 of 40,000 for one alone).
    /// More is answered 429 with Retry-After
    #[arg(long, value_name = "N", default_value_t = Self::default().max_long_running_requests, value_parser = parse_count)]
    pub max_long_running_requests: usize,
    /// Bytes of bodies that are held: of writes, of clusters' answers to them, and of lists that clusters are asked
    /// for. Shared among connections as requests in flight are; a request that finds no room is answered 429
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_held_bytes, value_parser = parse_count)]
    pub max_held_bytes: usize,
    /// Bytes that the objects of one resource in one cluster may occupy. A cluster that has more is left out of that
    /// resource with a Warning, or has its lists answered 429 under --partial Deny
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_collection_bytes, value_parser = parse_collection_bytes)]
    pub max_collection_bytes: u64,
    /// Namespaces, per resource, that are listed and watched one by one because a cluster forbids listing all of them
    /// at once. A new one takes the place of the one that has been unused for longest. Those in use are shared among
    /// connections as requests in flight are; a connection that has its share is answered 429 for the next one
    #[arg(long, value_name = "N", default_value_t = Self::default().max_namespace_views, value_parser = parse_count)]
    pub max_namespace_views: usize,
    /// Seconds that a request may take until its answer begins, unless it is long-running; 504 after that
    #[arg(long, value_name = "SECONDS", default_value_t = Self::default().request_timeout, value_parser = parse_seconds)]
    pub request_timeout: u64,
}

impl Default for LimitArguments {
    fn default() -> Self {
        let (limits, bounds) = (Limits::default(), Bounds::default());
        Self {
            max_connections: bounds.connections,
            max_unread_bytes: bounds.unread_bytes,
            max_long_answers: limits.long_answers,
            history_bytes: limits.history_bytes,
            history_seconds: limits.history_age.as_secs(),
            encodings_bytes: limits.encodings_bytes,
            unused_seconds: limits.unused_after.as_secs(),
            max_requests_inflight: limits.requests_in_flight,
            max_long_running_requests: limits.long_running_requests,
            max_held_bytes: limits.held_bytes,
            max_collection_bytes: limits.collection_bytes,
            max_namespace_views: limits.namespace_views,
            request_timeout: limits.request_timeout.as_secs(),
        }
    }
}

impl LimitArguments {
    /// The router's part.
    pub fn router(&self) -> Limits {
        Limits {
            history_bytes: self.history_bytes,
            history_age: Duration::from_secs(self.history_seconds),
            encodings_bytes: self.encodings_bytes,
            long_answers: self.max_long_answers,
            unused_after: Duration::from_secs(self.unused_seconds),
            requests_in_flight: self.max_requests_inflight,
            long_running_requests: self.max_long_running_requests,
            held_bytes: self.max_held_bytes,
            collection_bytes: self.max_collection_bytes,
            namespace_views: self.max_namespace_views,
            request_timeout: Duration::from_secs(self.request_timeout),
        }
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("must be a whole number above 0".to_owned()),
    }
}

fn parse_collection_bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("must be a whole number above 0; with 0 every cluster would be unknown".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err("must be a whole number above 0".to_owned()),
    }
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

/// Where clusters are named.
#[derive(Clone, Copy, Debug)]
pub struct ClusterArguments<'a> {
    /// `--config`
    pub config: Option<&'a Path>,
    /// `--kubeconfig`
    pub kubeconfig: Option<&'a Path>,
    /// `--contexts`
    pub contexts: Option<&'a str>,
}

impl ClusterArguments<'_> {
    /// Whether contexts of a kubeconfig are clusters.
    pub fn has_contexts(self) -> bool {
        self.config.is_none() || self.kubeconfig.is_some() || self.contexts.is_some()
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

/// The arguments of `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArguments {
    /// A YAML file, or a directory with .yaml, .yml and .json files
    #[arg(long, value_name = "FILE|DIR", required_unless_present_any = ["as_user", "authentication_config"])]
    pub config: Option<PathBuf>,
    /// The file of serve --authentication-config, to be checked as well
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Ask the clusters what this user would see of each, and by which binding
    #[arg(long = "as", value_name = "USER", id = "as_user")]
    pub as_user: Option<String>,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "GROUP", requires = "as_user")]
    pub groups: Vec<String>,
    /// Of these resources: pods, deployments.apps
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "as_user",
        default_value = "pods,services,configmaps,secrets,deployments.apps,namespaces,nodes"
    )]
    pub resources: Vec<GroupResource>,
    /// The kubeconfig of the clusters [default: as for serve]
    #[arg(long, value_name = "FILE", requires = "as_user")]
    pub kubeconfig: Option<PathBuf>,
    /// The contexts of the clusters [default: as for serve]
    #[arg(long, value_name = "LIST", requires = "as_user")]
    pub contexts: Option<String>,
}

/// A resource and its group, written `deployments.apps`; of the core group the resource alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
}

impl std::str::FromStr for GroupResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        let is_plain = !resource.is_empty() && !text.contains(['/', '*', ' ']) && !text.ends_with('.');
        is_plain
            .then(|| Self { group: group.to_lowercase(), resource: resource.to_lowercase() })
            .ok_or_else(|| "must be a resource, or resource.group: pods, deployments.apps".to_owned())
    }
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// The commands about resourceVersions.
#[derive(Debug, Subcommand)]
pub enum RvCommand {
    /// Print the components of a composite resourceVersion, in its long, compact or item form
    #[command(after_help = "Example:\n  tributary rv decode eyJjbHVzdGVyMSI6IjEyMzQifQ")]
    Decode(DecodeArguments),
}

/// The arguments of `rv decode`.
#[derive(Args, Clone, Debug)]
pub struct DecodeArguments {
    /// The resourceVersion, as it stands in a list, an event or an object
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// The form of the output
    #[arg(long, short, value_enum, default_value = "table")]
    pub output: OutputFormat,
    /// The data directory with the lists of clusters that compact versions refer to [default: as for serve]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// The form of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn limits_are_the_routers() {
        let line = "tributary serve --max-collection-bytes 1 --max-namespace-views 2";
        let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else { panic!() };
        let expected = Limits { collection_bytes: 1, namespace_views: 2, ..Limits::default() };
        assert_eq!(serve.limits.router(), expected);
        let refused =
            Cli::try_parse_from(["tributary", "serve", "--max-collection-bytes", "0"]).unwrap_err().to_string();
        for part in ["--max-collection-bytes", "'0'", "above 0", "every cluster would be unknown"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn flags_are_taken_as_documented() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        let Command::Serve(serve) = parse(
            "tributary serve --kubeconfig k --contexts a,/b/ --listen 127.0.0.1:0 --resources pods,deployments.apps \
             --create-in eu --partial deny --item-resource-versions integer --replicas several --data-dir d --write-kubeconfig w --log-format json --log-level debug",
        )
        .unwrap()
        .command
        else {
            panic!("serve")
        };
        assert_eq!(serve.resources, ["pods", "deployments.apps"]);
        assert_eq!(serve.partial, Some(Partial::Deny));
        assert_eq!(serve.item_resource_versions, ItemResourceVersions::Integer);
        assert!(!serve.is_alone());
        for (line, expected) in [
            ("tributary serve", true),
            ("tributary serve --config x", false),
            ("tributary serve --config x --replicas one", true),
            ("tributary serve --config x --contexts a", true),
            ("tributary serve --replica-count 2", false),
        ] {
            let Command::Serve(serve) = parse(line).unwrap().command else { panic!("serve") };
            assert_eq!(serve.is_alone(), expected, "{line}");
            assert_eq!(serve.item_resource_versions, ItemResourceVersions::Composite);
        }
        assert_eq!(serve.create_in.unwrap().as_str(), "eu");
        assert_eq!(serve.limits.router(), Limits::default());
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
            "tributary serve --max-namespace-views 0",
            "tributary serve --history-bytes -1",
            "tributary serve --item-resource-versions number",
            "tributary serve --replicas 2",
            "tributary serve --replica-count 0",
            "tributary serve --peer https://a:1",
            "tributary serve --peer-listen 127.0.0.1:1",
            "tributary serve --peer-key-file a",
            "tributary demo --clusters 0",
            "tributary demo --churn -1",
            "tributary check",
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
