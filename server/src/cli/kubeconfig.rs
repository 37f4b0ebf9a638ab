//! The command line of `tributary kubeconfig`, and the flags of `serve` that put contexts into a kubeconfig.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tributary_apimachinery::ClusterName;

use super::duration::parse_duration_above_zero;

/// The commands of `kubeconfig`.
#[derive(Debug, Subcommand)]
pub enum KubeconfigCommand {
    /// Take out of a kubeconfig what `serve --merge-into-kubeconfig` has put in
    #[command(after_help = "Example:\n  tributary kubeconfig remove")]
    Remove(RemoveArguments),
    /// Make a kubeconfig for a user of a shared endpoint, with a certificate that the authority for clients signs
    #[command(after_help = USER_EXAMPLES)]
    User(UserArguments),
}

/// The end of the help of `kubeconfig user`.
const USER_EXAMPLES: &str = "Example:
  tributary kubeconfig user ann --group dev --client-ca people.crt --client-ca-key people.key \\
    --server https://tributary.example.com:6443 --certificate-authority server-ca.crt --clusters eu,us
      writes ann.kubeconfig; then: kubectl --kubeconfig ann.kubeconfig auth whoami

A certificate cannot be revoked before it ends: keep --expires short. serve --denied-users-file
refuses a user at once.

Exit codes: 0 done, 1 a file cannot be written, 2 a flag or a file has to be corrected.";

/// The arguments of `kubeconfig user`.
#[derive(Args, Clone, Debug)]
pub struct UserArguments {
    /// The user: the common name of the certificate
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A group of the user, an organization of the certificate; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The certificate of the authority that signs: one of serve --client-ca-file, or of an authority that it names
    #[arg(long, value_name = "FILE")]
    pub client_ca: PathBuf,
    /// The key of --client-ca
    #[arg(long, value_name = "FILE")]
    pub client_ca_key: PathBuf,
    /// How long the certificate is valid; it ends no later than the authority
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = parse_duration_above_zero)]
    pub expires: Duration,
    /// The URL of the endpoint
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:7443", value_parser = parse_server)]
    pub server: String,
    /// The authority of the endpoint's own certificate [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Clusters that get a context of their own, beside 'all'
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub clusters: Vec<ClusterName>,
    /// The file to write (0600) [default: NAME.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The URL of an endpoint, without a slash at its end.
fn parse_server(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "must be https://HOST[:PORT]";
    let url: http::Uri = text.parse().map_err(|_| FORM)?;
    let is_whole = url.scheme_str() == Some("https") && url.path() == "/" && url.query().is_none();
    let is_plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if is_whole && is_plain { Ok(text.trim_end_matches('/').to_owned()) } else { Err(FORM) }
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
