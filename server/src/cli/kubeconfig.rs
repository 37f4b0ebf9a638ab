//! The command line of `tributary kubeconfig`, and the flags of `serve` that put contexts into a kubeconfig.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tributary_apimachinery::ClusterName;

use super::duration::parse_duration_above_zero;

/// The commands of `kubeconfig`.
#[derive(Debug, Subcommand)]
pub enum KubeconfigCommand {
    /// Remove the contexts of `serve --merge-into-kubeconfig` from a kubeconfig
    #[command(after_help = "Example:\n  tributary kubeconfig remove")]
    Remove(RemoveArguments),
    /// Create a kubeconfig for a user of an endpoint in shared mode, with a client certificate
    #[command(after_help = USER_EXAMPLES)]
    User(UserArguments),
}

/// The text below the flags in `tributary kubeconfig user --help`.
const USER_EXAMPLES: &str = "Example:
  tributary kubeconfig user ann --group dev --client-ca people.crt --client-ca-key people.key \\
    --server https://tributary.example.com:6443 --certificate-authority server-ca.crt --clusters eu,us
      writes ann.kubeconfig; then: kubectl --kubeconfig ann.kubeconfig auth whoami

A certificate cannot be revoked: keep --expires short. To lock out a user at once, use serve
--denied-users-file.

Exit codes: 0 done, 1 a file cannot be written, 2 an error in a flag or a file.";

/// The arguments of `kubeconfig user`.
#[derive(Args, Clone, Debug)]
pub struct UserArguments {
    /// The user, the common name of the certificate
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A group of the user, an organization of the certificate; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The certificate of the signing authority: a certificate of serve --client-ca-file, or of an intermediate
    /// authority
    #[arg(long, value_name = "FILE")]
    pub client_ca: PathBuf,
    /// The key of --client-ca
    #[arg(long, value_name = "FILE")]
    pub client_ca_key: PathBuf,
    /// The lifetime of the certificate; it ends with the certificate of the authority at the latest
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = parse_duration_above_zero)]
    pub expires: Duration,
    /// The URL of the endpoint
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:7443", value_parser = parse_server)]
    pub server: String,
    /// The certificate authority of the endpoint's serving certificate [default: the authorities of the system]
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Clusters with a context of their own, in addition to 'all'
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub clusters: Vec<ClusterName>,
    /// The file to write, with mode 0600 [default: NAME.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Parses the URL of an endpoint, and removes the slash at its end.
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
    /// The kubeconfig [default: each file of $KUBECONFIG or ~/.kube/config]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Flags that add contexts to an existing kubeconfig.
#[derive(Args, Clone, Debug)]
pub struct MergeArguments {
    /// Add the contexts to your own kubeconfig, as tributary-all and tributary-CLUSTER. They stay when the program
    /// ends; `tributary kubeconfig remove` removes them. Not in shared mode [default: no; without =FILE: the first file
    /// of $KUBECONFIG that exists, or ~/.kube/config]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub merge_into_kubeconfig: Option<Option<PathBuf>>,
    /// Prefix of the contexts, clusters and user that --merge-into-kubeconfig adds
    #[arg(long, value_name = "TEXT", default_value = DEFAULT_PREFIX, value_parser = parse_prefix)]
    pub kubeconfig_prefix: String,
}

/// The default prefix. The prefix names the program, and differs from the names in most kubeconfigs.
const DEFAULT_PREFIX: &str = "tributary-";

impl Default for MergeArguments {
    fn default() -> Self {
        Self { merge_into_kubeconfig: None, kubeconfig_prefix: DEFAULT_PREFIX.to_owned() }
    }
}

fn parse_prefix(text: &str) -> Result<String, &'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@/:".contains(c);
    if text.chars().all(is_plain) { Ok(text.to_owned()) } else { Err("must contain only letters, digits and -_.@/:") }
}
